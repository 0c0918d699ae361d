"""One test or more for each paragraph of the contract (docs/architecture.md, 3a): whole path, tiny model, real core."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import Pending, submit

import plait
from plait import assistant, function, gen, select, user
from plait.runtime import Runtime, connect
from plait.runtime import protocol as p
from plait.runtime.errors import ForkError, InvalidConstraint, InvalidValue, PlaitError, RunTimeout

pytestmark = pytest.mark.filterwarnings("ignore::plait.PlaitWarning")


@pytest.fixture(scope="module")
def runtime(tiny_model_path: Path) -> Iterator[Runtime]:
    with Runtime(tiny_model_path, mode="reference", kv_tokens=8192, threads=1) as runtime:
        yield runtime


def eventually(what: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for another thread or process to get there; fail if it never does."""
    tick = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if what():
            return
        tick.wait(0.01)
    raise AssertionError("did not happen in time")


def slots_are_back(runtime: Runtime) -> bool:
    stats = runtime.stats()
    return stats.running == 0 and stats.waiting == 0 and stats.kv_free + stats.kv_cached == stats.kv_total


# ------------------------------------------------------------------ ids


def test_names_may_repeat_because_ops_are_the_key(runtime: Runtime) -> None:
    @function
    def loop(s: Any) -> None:
        s += "count:"
        for _ in range(3):
            s += gen("x", max_tokens=4, temperature=1.0, ignore_eos=True)

    state = loop.run(backend=runtime, seed=7)
    assert state.text().endswith(state["x"])
    assert len(state.text()) > len("count:") + len(state["x"])


def test_protocol_mismatch_is_an_error_at_hello(tiny_model_path: Path, tmp_path: Path) -> None:
    import zmq

    address = f"ipc://{tmp_path}/s"
    with Runtime(tiny_model_path, mode="reference", kv_tokens=4096, threads=1, address=address):
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(address)
            socket.send(p.encode(p.Hello(protocol=p.PROTOCOL_VERSION + 1, session="future")))
            assert socket.poll(10_000)
            reply = p.decode_front(socket.recv_multipart()[-1])
        assert isinstance(reply, p.Lost)
        assert str(p.PROTOCOL_VERSION) in reply.message


# ------------------------------------------------------------------ core ops


def test_fork_while_a_gen_runs(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "story"
        s += gen("a", max_tokens=40, temperature=1.0, ignore_eos=True)
        forks = s.fork(3)  # the gen has not ended: nothing was read
        for fork in forks:
            fork += " then"
            fork += gen("b", max_tokens=8, temperature=1.0, ignore_eos=True)
        forks.join()

    state = program.run(backend=runtime, seed=1)
    assert len(state["b"]) == 3
    assert len(set(state["b"])) > 1, "branches draw from different seeds"


def test_nested_joins_compose(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "root"
        outer = s.fork(2)
        for i, branch in enumerate(outer):
            branch += f" branch {i}"
            inner = branch.fork(2)
            for leaf in inner:
                leaf += gen("leaf", max_tokens=4, temperature=1.0, ignore_eos=True)
            inner.join()
            branch["leaves"] = "|".join(branch["leaf"])
        outer.join()
        s += " end" + gen("last", max_tokens=3, temperature=0, ignore_eos=True)

    state = program.run(backend=runtime, seed=3)
    assert [leaves.count("|") for leaves in state["leaves"]] == [1, 1]
    assert state["last"]


def test_a_failed_branch_is_named_when_read_and_harms_no_other(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "x"
        forks = s.fork(3)
        for i, fork in enumerate(forks):
            if i == 1:
                fork += "word " * 5000  # longer than the context
            fork += gen("y", max_tokens=4, temperature=0, ignore_eos=True)
        forks.join()
        s += " go on" + gen("z", max_tokens=4, temperature=0, ignore_eos=True)

    state = program.run(backend=runtime)
    assert state["z"]
    with pytest.raises(ForkError, match="1") as caught:
        state["y"]
    assert list(caught.value.errors) == [1]
    results = state.result("y")
    assert results[1].error is not None
    assert results[0].text and results[2].text


def test_abort_of_a_parent_with_live_children(runtime: Runtime) -> None:
    parent, children = runtime.allocate(), [runtime.allocate(), runtime.allocate()]
    events: list[p.Event] = []
    sampling = p.Sampling(max_tokens=400, temperature=0.0, ignore_eos=True)
    short = p.Sampling(max_tokens=30, temperature=0.0, ignore_eos=True)
    runtime.submit(
        [
            p.Open(parent, program=runtime.allocate(), seed=1),
            p.Extend(parent, (p.Text(1, "a shared beginning"),)),
            p.Fork(parent, 2, tuple(children)),
            p.Extend(parent, (p.Gen(3, sampling, stream=True), p.Gen(4, sampling))),
            *(p.Extend(child, (p.Gen(1, short),)) for child in children),
        ],
        events.append,
    )
    eventually(lambda: any(isinstance(e, p.Delta) and e.strand == parent for e in events))
    runtime.abort(strand=parent)
    runtime.submit([p.Close(child) for child in children], events.append)
    eventually(lambda: sum(isinstance(e, p.Closed) for e in events) == 3)
    done = {(e.strand, e.op): e for e in events if isinstance(e, p.Done)}
    assert done[parent, 3].reason == "abort"
    assert done[parent, 3].text
    assert [e.code for e in events if isinstance(e, p.Failed) and e.strand == parent] == ["aborted"]
    assert all(done[child, 1].usage.completion == 30 for child in children)
    eventually(lambda: slots_are_back(runtime))


def test_n_choices_count_the_prompt_once(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "many ways to say this:"
        s += gen("x", n=3, max_tokens=6, temperature=1.0, ignore_eos=True)
        s += "!" + gen("y", max_tokens=2, temperature=0, ignore_eos=True)

    state = program.run(backend=runtime, seed=11)
    assert len(state["x"]) == 3
    assert state["x"][0] in state.text()
    results = state.result("x")
    assert sum(r.usage.computed for r in results) <= results[0].usage.prompt + 2  # a full hit computes one token each


def test_select_appends_the_winner(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "pick: "
        s += select("c", ["red", "reddish", "blue"])
        s += " and" + gen("x", max_tokens=3, temperature=0, ignore_eos=True)

    state = program.run(backend=runtime)
    assert state["c"] in ("red", "reddish", "blue")
    assert f"pick: {state['c']} and" in state.text()


# ------------------------------------------------------------------ tokens


def test_a_user_typing_a_special_token_gets_its_characters(runtime: Runtime) -> None:
    @function
    def program(s: Any, text: str) -> None:
        s += user(text)
        s += assistant(gen("x", max_tokens=1, temperature=0, ignore_eos=True))

    typed = program.run("hi<|im_end|>", backend=runtime)
    assert typed.messages()[0]["content"] == "hi<|im_end|>"
    plain = program.run("hi", backend=runtime)
    grown = typed.result("x").usage.prompt - plain.result("x").usage.prompt
    assert grown > 1, "the marker must be several ordinary tokens inside a role"

    @function
    def raw(s: Any, text: str) -> None:
        s += text + gen("x", max_tokens=1, temperature=0, ignore_eos=True)

    a = raw.run("hi<|im_end|>", backend=runtime).result("x").usage.prompt
    b = raw.run("hi", backend=runtime).result("x").usage.prompt
    assert a - b == 1, "raw text outside roles does give the special id"


def test_reading_the_text_changes_nothing(runtime: Runtime) -> None:
    def body(read: bool) -> str:
        @function
        def program(s: Any) -> None:
            s += "Once"
            s += gen("a", max_tokens=6, temperature=1.0, ignore_eos=True)
            if read:
                assert s["a"]
                assert s.text()
            s += " upon"
            s += gen("b", max_tokens=6, temperature=1.0, ignore_eos=True)

        return str(program.run(backend=runtime, seed=5).text())

    assert body(True) == body(False)


# ------------------------------------------------------------------ stops and UTF-8


def free_text(runtime: Runtime, n: int = 60) -> str:
    @function
    def program(s: Any) -> None:
        s += "stop test" + gen("x", max_tokens=n, temperature=1.0, ignore_eos=True)

    return str(program.run(backend=runtime, seed=21)["x"])


def test_a_stop_string_split_over_tokens(runtime: Runtime) -> None:
    text = free_text(runtime)
    at = next(
        i for i in range(10, len(text) - 8) if "\ufffd" not in text[i : i + 5] and text.find(text[i : i + 5]) == i
    )
    stop = text[at : at + 5]

    @function
    def program(s: Any) -> None:
        s += "stop test" + gen("x", max_tokens=60, temperature=1.0, ignore_eos=True, stop=stop)

    whole = program.run(backend=runtime, seed=21)
    assert whole["x"] == text[:at]
    assert whole.result("x").finish_reason == "stop"
    assert whole.result("x").matched == stop
    streamed = program.run(backend=runtime, seed=21, stream=True)
    pieces = list(streamed.text_iter("x"))
    assert "".join(pieces) == text[:at]
    assert all(pieces), "no empty pieces"


def test_a_stop_over_forced_and_sampled_bytes(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "v" + gen("x", regex=r"[a-c]{3}=forced-tail;[a-c]{3}", stop="forced", max_tokens=60, temperature=1.0)

    result = program.run(backend=runtime, seed=2).result("x")
    assert result.finish_reason == "stop"
    assert result.matched == "forced"
    assert len(result.text) == 4 and result.text[3] == "="
    assert result.partial


def test_max_tokens_inside_a_forced_run(runtime: Runtime) -> None:
    @function
    def program(s: Any, n: int) -> None:
        s += "v" + gen("x", regex=r"[ab]=a long and wholly forced tail of the pattern", max_tokens=n, temperature=1.0)
        s += "." + gen("y", max_tokens=1, temperature=0, ignore_eos=True)

    full = program.run(64, backend=runtime, seed=4).result("x")
    assert full.finish_reason == "stop" and full.usage.forced > 3
    cut = program.run(4, backend=runtime, seed=4)
    result = cut.result("x")
    assert result.finish_reason == "length"
    assert result.usage.completion == 4 == len(result.tokens)
    assert full.text.startswith(result.text)
    assert cut["y"]


def test_stream_equals_text_with_broken_utf8(runtime: Runtime) -> None:
    @function
    def program(s: Any, i: int) -> None:
        s += f"é{i}" + gen("x", max_tokens=25, temperature=1.5, ignore_eos=True)

    for i in range(12):  # the tiny model samples bytes at random: most outputs end or break inside a character
        streamed = program.run(i, backend=runtime, seed=i, stream=True)
        pieces = list(streamed.text_iter())
        assert "".join(pieces) == streamed.text()
        assert program.run(i, backend=runtime, seed=i).text() == streamed.text()


# ------------------------------------------------------------------ KV and counts


def test_fork_computes_the_prefix_once(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "".join(f"{i} bottles; " for i in range(150))
        forks = s.fork(8)
        for i, fork in enumerate(forks):
            fork += f"branch {i}"
            fork += gen("x", max_tokens=2, temperature=0, ignore_eos=True)
        forks.join()

    before = runtime.stats()
    state = program.run(backend=runtime)
    usages = [r.usage for r in state.result("x")]
    prefix = min(u.cached for u in usages)
    assert prefix >= 600
    after = runtime.stats()
    computed = (after.prompt_tokens - after.cached_tokens) - (before.prompt_tokens - before.cached_tokens)
    assert computed <= prefix + sum(max(1, u.prompt - prefix) for u in usages)


def test_programs_that_arrive_together_compute_the_prefix_once(runtime: Runtime) -> None:
    ids = [3 + i % 200 for i in range(600)]
    pending: list[Pending] = []
    actions: list[p.Action] = []
    listeners = {}
    for i in range(8):
        item = Pending(runtime.allocate(), runtime.allocate())
        listeners[item.strand] = item
        pending.append(item)
        actions += [
            p.Open(item.strand, item.program, seed=i, salt="together"),
            p.Extend(item.strand, (p.Ids(1, (*ids, 20 + i)), p.Gen(2, p.Sampling(max_tokens=2, ignore_eos=True)))),
            p.Close(item.strand),
        ]

    def route(event: p.Event) -> None:
        if not isinstance(event, p.Lost):
            listeners[event.strand](event)

    runtime.submit(actions, route)  # one fragment: the same millisecond
    usages = [item.result().usage for item in pending]
    assert sum(u.computed for u in usages) <= 600 + 8


def test_a_retracted_fork_child_gives_what_it_would_have(runtime: Runtime, tiny_model_path: Path) -> None:
    @function
    def program(s: Any) -> None:
        s += "".join(f"{i} bottles; " for i in range(20))
        forks = s.fork(8)
        forks += lambda i: f"branch {i}" + gen("x", max_tokens=60, temperature=1.0, ignore_eos=True)
        forks.join()
        s += gen("after", max_tokens=4, temperature=1.0, ignore_eos=True)

    roomy = program.run(backend=runtime, seed=8)
    # So small that two children do not fit together: the pool overflows however slowly the client sends them.
    with Runtime(tiny_model_path, mode="reference", kv_tokens=260, threads=1) as small:
        tight = program.run(backend=small, seed=8)
        assert small.stats().retractions > 0
        assert (tight["x"], tight["after"]) == (roomy["x"], roomy["after"])
        usages = [result.usage for result in tight.result("x")]
        assert sum(usage.recomputed for usage in usages) > 0
        assert all(usage.cached <= usage.prompt for usage in usages)  # runtime_open 8
        eventually(lambda: slots_are_back(small))


def test_max_tokens_zero_is_prefill_only(runtime: Runtime) -> None:
    done = submit(runtime, [5, 6, 7], p.Sampling(max_tokens=0)).result()
    assert (done.text, done.reason, done.ids) == ("", "length", ())


# ------------------------------------------------------------------ transport


def test_a_paused_client_loses_nothing_and_harms_nobody(tiny_model_path: Path, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s"
    with Runtime(tiny_model_path, mode="reference", kv_tokens=8192, threads=1, address=address) as runtime:
        slow, release = connect(address), threading.Event()
        events: list[p.Event] = []
        ended = threading.Event()

        def listener(event: p.Event) -> None:
            release.wait(30)  # the client's thread is stuck, as in a debugger
            events.append(event)
            if isinstance(event, p.Done):
                ended.set()

        strand = slow.allocate()
        sampling = p.Sampling(max_tokens=300, temperature=1.0, ignore_eos=True)
        slow.submit(
            [
                p.Open(strand, slow.allocate(), seed=1),
                p.Extend(strand, (p.Text(1, "go"), p.Gen(2, sampling, stream=True))),
                p.Close(strand),
            ],
            listener,
        )
        others = [submit(runtime, [9, 8, 7, i], p.Sampling(max_tokens=20, ignore_eos=True)) for i in range(8)]
        assert all(o.result(60).usage.completion == 20 for o in others)
        release.set()
        assert ended.wait(60)
        done = next(e for e in events if isinstance(e, p.Done))
        assert "".join(e.text for e in events if isinstance(e, p.Delta)) == done.text
        assert len(done.ids) == 300
        slow.close()


def test_programs_run_over_connect_as_in_process(tiny_model_path: Path, tmp_path: Path) -> None:
    @function
    def program(s: Any) -> None:
        s += user("hello")
        s += assistant(gen("x", max_tokens=8, temperature=1.0, ignore_eos=True))
        forks = s.fork(2)
        forks += gen("y", max_tokens=4, temperature=1.0, ignore_eos=True)
        forks.join()

    address = f"ipc://{tmp_path}/s"
    with Runtime(tiny_model_path, mode="reference", kv_tokens=4096, threads=1, address=address) as runtime:
        remote = connect(address)
        try:
            a, b = program.run(backend=runtime, seed=3), program.run(backend=remote, seed=3)
            assert a.text() == b.text()
            assert a["y"] == b["y"]
        finally:
            remote.close()


# ------------------------------------------------------------------ crash and replay


@pytest.mark.parametrize("streaming", [False, True])
def test_kill_the_core_in_the_middle_of_20_programs(tiny_model_path: Path, streaming: bool) -> None:
    @function
    def program(s: Any, i: int) -> None:
        s += user(f"program {i}")
        s += assistant(gen("a", max_tokens=60, temperature=1.0, ignore_eos=True))
        s += gen("b", regex=r"[a-z]{4}: forced bytes; [0-9]{2,6}", max_tokens=60, temperature=1.0)
        forks = s.fork(2)
        for fork in forks:
            fork += gen("c", max_tokens=30, temperature=1.0, ignore_eos=True, stop=["zq"])
        forks.join()
        s += select("d", ["yes", "no", "maybe"])

    def texts(runtime: Runtime, kill: bool) -> list[tuple[str, list[str]]]:
        states = [program.run(i, backend=runtime, seed=i, stream=True) for i in range(20)]
        if kill:
            seen = threading.Event()

            def watch() -> None:
                for n, _ in enumerate(states[0].text_iter("a")):
                    if n == 10:
                        seen.set()
                seen.set()

            threading.Thread(target=watch, daemon=True).start()
            assert seen.wait(60)
            os.kill(runtime.core_pid, signal.SIGKILL)
        if streaming:
            for state in states:
                assert "".join(state.text_iter()) == state.text()
        return [(state.text(), state["c"]) for state in states]

    with Runtime(tiny_model_path, mode="reference", kv_tokens=16384, threads=1) as runtime:
        undisturbed = texts(runtime, kill=False)
        first = runtime.core_pid
        assert texts(runtime, kill=True) == undisturbed
        assert runtime.core_pid != first
        eventually(lambda: slots_are_back(runtime))


# ------------------------------------------------------------------ constraints


def test_a_bad_regex_is_refused_and_the_next_request_served(runtime: Runtime) -> None:
    @function
    def program(s: Any, pattern: str) -> None:
        s += "x" + gen("x", regex=pattern, max_tokens=8)

    with pytest.raises(InvalidConstraint, match="regex"):  # seen where it is written
        program.run("a(b", backend=runtime)
    state = program.run(r"(a)\1", backend=runtime)  # Python's, but not regular: seen by the compiler
    with pytest.raises(InvalidConstraint, match="back-reference"):
        state["x"]
    assert program.run("ab?", backend=runtime)["x"] in ("a", "ab")


# ------------------------------------------------------------------ numbers


def test_seeds_repeat_and_branches_differ(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "seeded"
        s += gen("a", max_tokens=10, temperature=1.0, ignore_eos=True)
        forks = s.fork(3)
        forks += gen("b", max_tokens=10, temperature=1.0, ignore_eos=True)
        forks.join()

    first = program.run(backend=runtime, seed=99)  # alone and cold
    states = [program.run(backend=runtime, seed=99, stream=True) for _ in range(4)]  # together and warm
    assert all((s.text(), s["b"]) == (first.text(), first["b"]) for s in states)
    assert len(set(first["b"])) == 3
    assert program.run(backend=runtime, seed=100).text() != first.text()


def test_which_tokens_each_penalty_counts(runtime: Runtime) -> None:
    """Repetition counts the prompt's and the output's, presence and frequency only the output's (runtime_open 19)."""

    def ids(prompt: list[int], **sampling: Any) -> tuple[int, ...]:
        return submit(runtime, prompt, p.Sampling(temperature=0.0, ignore_eos=True, **sampling)).result().ids

    prompt = [40, 41, 42]
    for _ in range(20):  # until it holds what it makes likeliest
        (first,) = ids(prompt, max_tokens=1)
        if first in prompt:
            break
        prompt.insert(0, first)
    assert first in prompt
    strong = {"presence_penalty": 2.0, "frequency_penalty": 2.0}
    assert ids(prompt, max_tokens=1, **strong) == (first,), "what only the prompt holds is not penalized"
    assert ids(prompt, max_tokens=1, repetition_penalty=100.0) != (first,)
    repeated = ids(prompt, max_tokens=40, repetition_penalty=100.0)
    assert not {*repeated} & {*prompt} and len({*repeated}) == 40, "in the prompt and in the output"
    assert repeated == ids(prompt, max_tokens=40, repetition_penalty=100.0), "also when the prompt was cached"
    plain = ids(prompt, max_tokens=40)
    assert len({*ids(prompt, max_tokens=40, **strong)}) > len({*plain}), "the output's repetitions are"


# ------------------------------------------------------------------ API


def test_an_async_program(runtime: Runtime) -> None:
    @function
    async def program(s: Any) -> str:
        s += "async" + gen("x", max_tokens=5, temperature=0, ignore_eos=True)
        with pytest.raises(plait.NotReady, match="await"):
            s["later"] if "later" in s else s["x"]
        x = await s.get("x")
        forks = s.fork(2)
        forks += gen("y", max_tokens=3, temperature=0, ignore_eos=True)
        await forks.join_async()
        assert await s.text_async()
        return str(x)

    async def main() -> Any:
        return await asyncio.gather(*(program.arun(backend=runtime) for _ in range(4)))

    states = asyncio.run(main())
    assert len({state.ret_value for state in states}) == 1


def test_run_timeout_aborts(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "long" + gen("x", max_tokens=1900, temperature=1.0, ignore_eos=True)
        assert s["x"]

    with pytest.raises(RunTimeout):
        program.run(backend=runtime, timeout=0.05)
    eventually(lambda: slots_are_back(runtime))


def test_200_programs_with_one_failing(runtime: Runtime) -> None:
    @function
    def program(s: Any, i: int) -> str:
        s += f"item {i}:" + gen("x", max_tokens=4, temperature=0, ignore_eos=True)
        if i == 117:
            raise RuntimeError("deliberate")
        return f"{i} {s['x']}"

    states = program.run_batch([{"i": i} for i in range(200)], backend=runtime)
    assert len(states) == 200
    for i, state in enumerate(states):
        if i == 117:
            assert isinstance(state.error(), RuntimeError)
        else:
            assert state.error() is None
            assert state.ret_value.startswith(f"{i} ")


def test_top_p_zero_is_greedy_through_the_whole_stack(runtime: Runtime) -> None:
    @function
    def program(s: Any, **options: Any) -> None:
        s += "x" + gen("x", 12, ignore_eos=True, **options)
        s += " [" + gen("y", 12, regex="[a-z]{3,9}", **options) + "]"

    greedy = program.run(backend=runtime, temperature=0).text()
    for seed in range(3):
        assert program.run(backend=runtime, temperature=5.0, top_p=0, seed=seed).text() == greedy


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"stop": ""}, "stop"),
        ({"stop_token_ids": [10**9]}, "stop_token_ids"),
    ],
)
def test_bad_input_names_the_field(runtime: Runtime, arguments: dict[str, Any], field: str) -> None:
    @function
    def program(s: Any) -> None:
        s += "x" + gen("x", **arguments)
        assert s["x"] is not None

    with pytest.raises(PlaitError, match=field):
        program.run(backend=runtime)


def test_prompt_longer_than_the_context(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "word " * 5000 + gen("x", max_tokens=4)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = program.run(backend=runtime)
    with pytest.raises(PlaitError, match="context"):
        state["x"]
    assert submit(runtime, [1, 2, 3], p.Sampling(max_tokens=2, ignore_eos=True)).result().usage.completion == 2


def test_fork_before_any_text_and_empty_prompt(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        forks = s.fork(2)
        forks += "a" + gen("x", max_tokens=3, temperature=0, ignore_eos=True)
        forks.join()

    state = program.run(backend=runtime)
    assert state["x"][0] == state["x"][1] != ""

    @function
    def empty(s: Any) -> None:
        s += gen("x", max_tokens=3, temperature=0, ignore_eos=True)

    result = empty.run(backend=runtime)
    try:
        assert isinstance(result["x"], str)  # BOS
    except InvalidValue as error:  # a model without BOS
        assert "write some text first" in str(error)
