"""fork, join, copy: branches, their values, and what fails in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend
from hypothesis import given, settings
from hypothesis import strategies as st

import plait
from plait.runtime.errors import GenerationError, InvalidValue
from plait.runtime.protocol import Close, Failed, Fork, Gen, Join, Op, Text, VarRef


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


def failing(mark: str) -> FakeBackend:
    """Every gen whose text so far ends in ``mark`` fails."""

    def fault(prompt: str, op: Op) -> Failed | None:
        if isinstance(op, Gen) and prompt.endswith(mark):
            return Failed(0, 0, code="internal", message=f"no luck after {mark}")
        return None

    return FakeBackend(fault=fault)


def test_branches_go_on_from_the_parent_and_differ(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> list[str]:
        s += "start" + plait.gen("shared")
        forks = s.fork(3)
        forks += lambda i: f"[{i}]"
        forks += plait.gen("x")
        forks[1] += " more"
        assert len(forks) == 3 and len(list(forks)) == 3 and len(forks[1:]) == 2
        texts = [fork.text() for fork in forks]
        assert [fork["shared"] for fork in forks] == [s["shared"]] * 3
        forks.join()
        return texts

    state = program.run(backend=backend)
    assert len(set(state["x"])) == 3
    base = f"start{state['shared']}"
    ends = ["", " more", ""]
    assert state.ret_value == [f"{base}[{i}]{x}{end}" for i, (x, end) in enumerate(zip(state["x"], ends))]
    assert state.text() == base
    assert [prompt for prompt, op in backend.prompts[1:]] == [f"{base}[{i}]" for i in range(3)]


def test_a_fork_costs_no_threads(backend: FakeBackend) -> None:  # fault 19
    @plait.function
    def program(s: plait.State) -> int:
        before = threading.active_count()
        forks = s.fork(8)
        forks += plait.gen("x")
        more = threading.active_count() - before
        forks.join()
        return more

    assert program.run(backend=backend).ret_value == 0


def test_a_group_s_addition_is_one_submission(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(8)
        before = len(backend.submissions)
        forks += "x" + plait.gen("x")
        assert len(backend.submissions) == before + 1

    program.run(backend=backend)


def test_what_a_group_takes(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(2)
        forks += "t"
        forks += ["a", "b" + plait.gen("x")]
        forks += lambda i: str(i)
        assert forks[0].text() == "ta0"
        assert forks[1].text() == f"tb{forks[1]['x']}1"
        for bad in (["one"], None, 5, ["a", None]):
            with pytest.raises(InvalidValue):
                forks += bad  # type: ignore[arg-type]  # the point of the test
        with pytest.raises(InvalidValue):
            forks[0] = forks[1]

    program.run(backend=backend)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
def test_a_bad_size_is_refused(backend: FakeBackend, size: Any) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s.fork(size)

    with pytest.raises(InvalidValue, match="size"):
        program.run(backend=backend)


def test_a_fork_before_any_text(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(2)
        forks += plait.gen("x")
        forks.join()

    assert len(program.run(backend=backend)["x"]) == 2


def test_join_does_not_wait_and_reading_does(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> list[str]:
        forks = s.fork(2)
        forks += plait.gen("x")
        forks.join()
        s += "then" + plait.gen("y")
        assert backend.ops(Gen)[-1].op  # sent, though nothing has run
        backend.resume()
        found: list[str] = s["x"]
        return found

    state = program.run(backend=backend)
    assert len(state.ret_value) == 2 and state["y"]
    assert next(type(action) for action in backend.actions if isinstance(action, Join | Close)) is Join


def test_names_used_again_give_the_new_values(backend: FakeBackend) -> None:  # fault 11
    @plait.function
    def program(s: plait.State) -> list[list[str]]:
        found = []
        for turn in range(2):
            forks = s.fork(2)
            forks += f"{turn}" + plait.gen("x")
            forks.join()
            found.append(s["x"])
        return found

    state = program.run(backend=backend)
    first, second = state.ret_value
    assert first != second == state["x"]


def test_lists_are_in_branch_order_with_none_for_a_missing_name(backend: FakeBackend) -> None:  # fault 11
    @plait.function
    def program(s: plait.State) -> None:
        s["kept"] = "parent"
        forks = s.fork(3)
        forks[2] += plait.gen("x")
        forks[0] += plait.gen("x")
        forks[1]["y"] = 7
        forks.join()

    state = program.run(backend=backend)
    values = state["x"]
    assert values[1] is None and values[0] and values[2]
    assert state["y"] == [None, 7, None]
    assert state["kept"] == "parent"
    assert state.result("x")[1] is None and state.result("x")[2].text == values[2]


def test_a_failed_branch_is_named_when_its_values_are_read() -> None:  # fault 11
    backend = failing("[1]")

    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(3)
        forks += lambda i: f"[{i}]"
        forks += plait.gen("x")
        forks.join()
        s += "on" + plait.gen("y")

    state = program.run(backend=backend)
    assert state["y"]
    with pytest.raises(plait.ForkError, match=r"'x' failed in 1 branch: branch 1: .*no luck after \[1\]") as caught:
        state["x"]
    assert list(caught.value.errors) == [1]
    assert isinstance(caught.value.errors[1], GenerationError)
    good, bad, also_good = state.result("x")
    assert good.error is None and also_good.error is None and bad.error is caught.value.errors[1]
    error = state.error()
    assert isinstance(error, plait.ForkError) and list(error.errors) == [1]
    backend.close()


def test_a_failed_parent_fails_its_branches_with_the_cause() -> None:
    backend = failing("root")

    @plait.function
    def program(s: plait.State) -> None:
        s += "root" + plait.gen("x")
        forks = s.fork(2)
        forks += plait.gen("y")
        forks.join()

    state = program.run(backend=backend)
    with pytest.raises(plait.ForkError) as caught:
        state["y"]
    assert set(caught.value.errors) == {0, 1}
    cause = caught.value.errors[0].__cause__
    assert isinstance(cause, GenerationError) and "no luck" in str(cause)
    assert state.error() is cause
    backend.close()


@pytest.mark.parametrize("mode", ["append", "concate_and_append"])
def test_appending_takes_the_branches_texts_in_order(backend: FakeBackend, mode: str) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "head"
        forks = s.fork(2)
        forks += lambda i: f"[{i}]" + plait.gen("x")
        forks.join(mode)
        s += "tail" + plait.gen("y")

    state = program.run(backend=backend)
    first, second = state["x"]
    assert state.text() == f"head[0]{first}[1]{second}tail{state['y']}"
    assert backend.prompts[-1][0] == f"head[0]{first}[1]{second}tail"
    assert backend.of(Join)[0].append


def test_a_second_join_does_nothing_or_is_refused(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(2)
        forks += plait.gen("x")
        forks.join("append")
        forks.join("concate_and_append")
        with pytest.raises(InvalidValue, match="joined already, with append"):
            forks.join()

    state = program.run(backend=backend)
    assert state.text() == "".join(state["x"])


def test_a_bad_mode_is_refused(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s.fork(2).join("mix")

    with pytest.raises(InvalidValue, match="mode"):
        program.run(backend=backend)


def test_nested_forks_give_lists_of_lists(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        outer = s.fork(2)
        outer += lambda i: f"<{i}" + plait.gen("plan")
        groups = []
        for branch in outer:
            inner = branch.fork(3)
            inner += lambda i: f"({i}" + plait.gen("leaf")
            groups.append(inner)
        for inner in groups:
            inner.join()
        outer.join()

    state = program.run(backend=backend)
    assert [len(leaves) for leaves in state["leaf"]] == [3, 3]
    assert len({leaf for leaves in state["leaf"] for leaf in leaves}) == 6
    assert len(state["plan"]) == 2
    assert len(backend.of(Fork)) == 3
    backend.until(lambda: backend.open_strands == 0)


def test_a_group_as_a_context_joins_at_its_end(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        with s.fork(2) as forks:
            forks += plait.gen("x")
        with pytest.raises(plait.PlaitError, match="has ended"):
            forks[0] += "late"
        assert forks[0]["x"] == s["x"][0]
        forks.join()  # again: nothing happens

    program.run(backend=backend)
    assert len(backend.of(Join)) == 1


def test_a_copy_keeps_its_text_and_gives_its_names(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "base"
        s["old"] = 1
        with s.copy() as c:
            c += "?" + plait.gen("guess")
            c["old"] = 2
        s += f"guessed:{s['guess']}"
        assert s["old"] == 2
        assert c.text() == f"base?{s['guess']}"
        with pytest.raises(plait.PlaitError, match="has ended"):
            c += "late"

    state = program.run(backend=backend)
    assert state.text() == f"baseguessed:{state['guess']}"


def test_a_copy_left_by_an_exception_gives_nothing(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        with pytest.raises(ZeroDivisionError), s.copy() as c:
            c["x"] = 1
            raise ZeroDivisionError
        assert "x" not in s
        s += plait.gen("y")

    assert program.run(backend=backend)["y"]


def test_a_turn_may_be_finished_by_its_branches(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.user("hi")
        s += plait.assistant_begin()
        forks = s.fork(2)
        forks += plait.gen("x") + plait.assistant_end()
        contents = [fork.messages()[-1]["content"] for fork in forks]
        forks.join()
        assert contents == s["x"]
        s += plait.gen("y") + plait.assistant_end()

    state = program.run(backend=backend)
    assert [message["role"] for message in state.messages()] == ["user", "assistant"]


def test_a_reference_crosses_branches(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        forks = s.fork(2)
        forks += plait.gen("x")
        s += "first:" + forks[0].ref("x") + " second:" + forks[1].ref("x") + plait.gen("y")
        forks.join()
        with pytest.raises(InvalidValue, match=r"forks\[i\]"):
            s.ref("x")

    state = program.run(backend=backend)
    first, second = state["x"]
    assert backend.prompts[-1][0] == f"first:{first} second:{second}"
    assert state.text() == f"first:{first} second:{second}{state['y']}"


def test_a_reference_goes_to_other_programs(backend: FakeBackend) -> None:
    @plait.function
    def inner(s: plait.State, what: plait.Expr) -> str:
        s += "about:" + what + plait.gen("z")
        return s.text()

    @plait.function
    def outer(s: plait.State) -> None:
        s += plait.gen("x")
        text = inner(s.ref("x")).ret_value
        assert text.startswith(f"about:{s['x']}")

    state = outer.run(backend=backend)
    assert len(backend.ops(VarRef)) == 1
    # That program is over, and the backend has forgotten it.
    assert inner.run(state.ref("x"), backend=backend).ret_value.startswith(f"about:{state['x']}")
    assert len(backend.ops(VarRef)) == 1
    other = FakeBackend()
    with pytest.raises(InvalidValue, match="another backend"):
        inner.run(state.ref("x"), backend=other)
    other.close()


def test_a_reference_to_a_program_that_only_finishes_its_gens(backend: FakeBackend) -> None:
    """Its function has returned, so the backend may forget it at any moment: the text is awaited here."""

    @plait.function
    def writer(s: plait.State) -> None:
        s += "w" + plait.gen("x")

    @plait.function
    def reader(s: plait.State, what: plait.Expr) -> None:
        s += "r:" + what + plait.gen("y")

    @plait.function
    async def async_reader(s: plait.State, what: plait.Expr) -> None:
        with pytest.raises(plait.NotReady, match="await"):
            s += what

    backend.pause()
    written = writer.stream(backend=backend)
    backend.until(lambda: bool(backend.of(Close)))
    asyncio.run(async_reader.arun(written.ref("x"), backend=backend))
    read = reader.stream(written.ref("x"), backend=backend)
    backend.resume()
    assert read.text() == f"r:{written['x']}{read['y']}"
    assert ("r:" + written["x"]) in [prompt for prompt, _ in backend.prompts]


Step = tuple[str, int]


def grow(s: plait.State, steps: list[Step], depth: int, leaves: list[plait.State]) -> None:
    for kind, number in steps:
        if kind == "text":
            s += f"<{number}>"
        elif kind == "gen":
            s += plait.gen(f"v{number}", n=1 + number % 2)
        elif kind == "select":
            s += plait.select(f"v{number}", ["left", "right"])
        elif kind == "ref" and s.names() and not isinstance(s[s.names()[0]], list):
            s += s.ref(s.names()[0])
        elif kind in ("gather", "append") and depth < 3:
            forks = s.fork(1 + number % 3)
            for fork in forks:
                grow(fork, steps[: number + 1], depth + 1, leaves)
            forks.join(kind)
            leaves.extend(forks)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "gen", "select", "ref", "gather", "append"]), st.integers(0, 3)), max_size=7
    )
)
def test_the_backend_and_the_language_agree_on_every_text(steps: list[Step]) -> None:
    backend = FakeBackend()
    states: list[plait.State] = []

    @plait.function
    def program(s: plait.State) -> None:
        s += "begin"
        grow(s, steps, 0, states)
        s += plait.gen("end")
        states.append(s)

    program.run(backend=backend, seed=1)
    backend.until(lambda: backend.open_strands == 0)
    for state in states:
        assert state.text() == "".join(state.text_iter()) == backend.text_of(state._strand.id)
    backend.close()


def test_children_share_the_text_they_did_not_add(backend: FakeBackend) -> None:
    """The parent's text is sent once, whatever the number of children."""

    @plait.function
    def program(s: plait.State) -> None:
        s += "a long prefix"
        forks = s.fork(5)
        forks += plait.gen("x")

    program.run(backend=backend)
    assert [op.text for op in backend.ops(Text)] == ["a long prefix"]
