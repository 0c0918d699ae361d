"""What a single-strand program sends, and what its reads give."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend

import plait
from plait.lang import notices
from plait.lang.sampling import ALIASES, SamplingOptions, merge, normalize
from plait.runtime.errors import InvalidConstraint, InvalidValue
from plait.runtime.protocol import Close, Closed, Extend, Gen, Open, Regex, RoleBegin, Sampling, Select, Text, VarRef


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


def saying(text: str) -> FakeBackend:
    return FakeBackend(answer=lambda prompt, gen: text)


# ---------------------------------------------------------------- what is sent


def test_text_waits_for_a_gen_and_goes_with_it(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "one "
        s += "two"
        assert backend.submissions == []
        s += plait.gen("x") + " three" + plait.gen("y")

    program.run(backend=backend)
    first = backend.submissions[0]
    assert [type(action) for action in first] == [Open, Extend, Extend]
    assert [type(op) for op in first[1].ops] == [Text, Text, Gen]
    assert [type(op) for op in first[2].ops] == [Text, Gen]


def test_ops_rise_and_every_strand_is_closed_once(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.user("hi") + plait.assistant(plait.gen("x"))
        forks = s.fork(2)
        forks += plait.gen("y")
        forks.join()

    program.run(backend=backend)
    closes = [action.strand for action in backend.of(Close)]
    assert sorted(closes) == sorted(set(closes)) and len(closes) == 3  # fault 18: nothing is ended twice
    root = backend.of(Open)[0].strand
    ops = [op.op for action in backend.of(Extend) if action.strand == root for op in action.ops]
    assert ops == sorted(set(ops))
    backend.until(lambda: backend.open_strands == 0)


def test_a_program_of_text_alone_asks_the_backend_for_nothing(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "nothing to do"

    assert program.run(backend=backend).text() == "nothing to do"
    assert backend.actions == []


def test_an_expression_may_be_added_often(backend: FakeBackend) -> None:
    ask = "Q:" + plait.gen(stop="\n") + "\n"

    @plait.function
    def program(s: plait.State) -> None:
        s += ask
        s += ask

    program.run(backend=backend)
    assert len(backend.ops(Gen)) == 2


# ---------------------------------------------------------------- sampling parameters


def test_options_are_the_wire_struct_s_fields() -> None:
    """Declared once: the keywords are those of Sampling, n and constraint_backend. (In programs top_logprobs speaks of
    the prompt's tokens too.)"""
    fields = {*Sampling.__struct_fields__} - {"prompt_top_logprobs"}
    assert set(SamplingOptions.__annotations__) == {*fields, "n", "constraint_backend"}
    assert set(ALIASES.values()) <= set(SamplingOptions.__annotations__)


def test_the_gen_s_options_win_over_the_run_s_over_the_default(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("a") + plait.gen("b", 7, temperature=0.5, stop=["x"]) + plait.gen("c", temperature=0)

    program.run(backend=backend, temperature=0.25, stop="end", top_k=-1)
    a, b, c = (gen.sampling for gen in backend.ops(Gen))
    assert (a.max_tokens, a.temperature, a.stop, a.top_k) == (128, 0.25, ("end",), 0)
    assert (b.max_tokens, b.temperature, b.stop) == (7, 0.5, ("x",))
    assert c.temperature == 0


def test_sglang_s_names_are_taken() -> None:
    given = normalize("gen", {"max_new_tokens": 5, "return_logprob": True, "top_logprobs_num": 2})
    assert given == {"max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    assert normalize("gen", {"logprob_start_len": 0}) == {"logprob_start_len": 0, "logprobs": True}
    assert normalize("gen", {"logprob_start_len": -1}) == {"logprob_start_len": -1}
    with pytest.raises(InvalidValue, match="logprob_start_len needs logprobs=True"):
        normalize("gen", {"logprob_start_len": 0, "logprobs": False})


def test_a_gen_without_logprobs_has_none_of_its_prompt_either() -> None:
    run = normalize("run", {"logprob_start_len": 3, "top_logprobs": 2})
    assert merge("gen", run, {}, constrained=False)[0].prompt_top_logprobs == 2
    sampling, _, _ = merge("gen", run, normalize("gen", {"logprobs": False, "top_logprobs": 0}), constrained=False)
    assert (sampling.logprob_start_len, sampling.prompt_top_logprobs) == (-1, 0)
    with pytest.raises(InvalidValue, match="another name"):
        normalize("gen", {"max_new_tokens": 5, "max_tokens": 6})


def test_a_user_s_stop_list_is_never_changed(backend: FakeBackend) -> None:  # fault 6
    stop = ["\n"]

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("a", dtype=int) + plait.gen("b", stop=stop, dtype=int)

    program.run(backend=backend, stop=stop)
    assert stop == ["\n"]
    assert [gen.sampling.stop for gen in backend.ops(Gen)] == [("\n", " ", "\n")] * 2


def test_merging_leaves_its_arguments_alone() -> None:
    run, own = {"min_tokens": 9, "seed": 3}, {"max_tokens": 4}
    sampling, n, backend = merge("gen", run, own, constrained=False)
    assert (sampling.min_tokens, sampling.max_tokens, sampling.seed, n, backend) == (4, 4, None, 1, "plait")
    assert run == {"min_tokens": 9, "seed": 3} and own == {"max_tokens": 4}


def test_the_run_s_seed_is_the_strand_s_and_a_gen_s_is_its_own(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("a") + plait.gen("b", seed=5) + plait.gen("c")

    state = program.run(backend=backend, seed=11)
    assert backend.of(Open)[0].seed == 11
    assert [gen.sampling.seed for gen in backend.ops(Gen)] == [None, 5, None]
    assert state["a"] != state["c"]
    assert program.run(backend=backend, seed=11).text() == state.text()
    assert program.run(backend=backend, seed=12)["a"] != state["a"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"stop": [""]}, "stop"),
        ({"stop": [3]}, "stop"),
        ({"stop_token_ids": [-2]}, "stop_token_ids"),
        ({"logit_bias": {5: 1000}}, "logit_bias"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"choices": []}, "choices"),
        ({"choices": "abc"}, "choices"),
        ({"choices": ["a", ""]}, "choices"),
        ({"choices": ["a"], "regex": "b"}, "regex"),
        ({"choices": ["a"], "max_tokens": -3}, "max_tokens"),
        ({"choices": ["a"], "dtype": int}, "dtype"),
        ({"choices": ["a"], "temperature": -1}, "temperature"),
        ({"choices": ["a"], "choices_method": "best"}, "choices_method"),
        ({"choices_method": "greedy_token_selection"}, "choices_method"),
        ({"dtype": list}, "dtype"),
        ({"dtype": int, "regex": "a"}, "dtype"),
        ({"regex": ""}, "regex"),
        ({"end": "eos"}, "end"),
        ({"end": "soon", "regex": "a"}, "end"),
        ({"end": True, "regex": "a"}, "end"),
        ({"name": 3}, "name"),
    ],
)
def test_a_bad_value_is_refused_where_it_is_written(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        plait.gen(**arguments)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_a_broken_regex_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidConstraint, match="regex"):
        plait.gen("x", regex="(a")
    with pytest.raises(InvalidConstraint, match="nested too deeply"):
        plait.gen("x", regex="(?:" * 5000 + "a" + ")?" * 5000)
    with pytest.raises(InvalidConstraint, match="too large"):
        plait.gen("x", regex="a{99999999999999999999}")
    plait.gen("x", regex="[[a]")  # Python warns about what it may mean one day; a warning is an error in tests


def test_half_a_surrogate_pair_is_seen_as_the_model_sees_it(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "cut \ud83d off, whole \ud83d\ude42"

    assert program.run(backend=backend).text() == "cut \ufffd off, whole \U0001f642"
    wrong: list[dict[str, Any]] = [{"stop": "\ud83d"}, {"stop": ["a", "\ude42"]}, {"regex": "[a\ud800]"}]
    for options in (*wrong, {"choices": ["\udfff", "b"]}):
        with pytest.raises(InvalidValue, match="surrogate"):
            plait.gen("x", **options)


@pytest.mark.parametrize("n", [0, -1, 1025, 2**62])
def test_an_n_that_cannot_be_is_refused_where_it_is_written(n: int) -> None:
    with pytest.raises(InvalidValue, match="n must be a whole number from 1"):
        plait.gen("x", n=n)


def test_min_tokens_over_the_default_is_found_when_the_gen_is_added(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x", min_tokens=500)

    with pytest.raises(InvalidValue, match=r"gen 'x': min_tokens \(500\)"):
        program.run(backend=backend)


@pytest.mark.parametrize("name", ["use_thread", "num_api_spec_tokens"])
def test_what_is_not_built_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}= is not available"):
        plait.gen("x", **{name: "?"})  # type: ignore[misc]  # the point of the test


@pytest.mark.parametrize(
    ("name", "match"),
    [
        *[(name, "not available") for name in ("image", "video", "trace", "separate_reasoning")],
        ("RuntimeEndpoint", r"plait\.connect\(address\)"),
        ("Engine", r"plait\.Runtime"),
        ("OpenAI", "own runtime"),
    ],
)
def test_names_that_are_not_built_are_absent(name: str, match: str) -> None:
    with pytest.raises(AttributeError, match=match):
        getattr(plait, name)
    assert not hasattr(plait, name)
    with pytest.raises(ImportError, match=match):
        exec(f"from plait import {name}")


def test_a_program_names_what_it_lacks() -> None:
    with pytest.raises(AttributeError, match="tracing is not available"):
        plait.function(lambda s: None).trace()


@pytest.mark.parametrize("wrong", ["ipc:///x", "http://x", 5, FakeBackend])
def test_what_is_no_backend_is_refused(wrong: Any) -> None:
    program = plait.function(lambda s: None)
    with pytest.raises(InvalidValue, match=r"connect\(address\)"):
        plait.set_default_backend(wrong)
    for run in (program.run, program.stream, lambda backend: program.run_batch([()], backend=backend)):
        with pytest.raises(InvalidValue, match="backend must be"):
            run(backend=wrong)
    with pytest.raises(InvalidValue, match="backend must be"):
        asyncio.run(program.arun(backend=wrong))


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300])
def test_a_timeout_that_is_none(timeout: float, backend: FakeBackend) -> None:
    with pytest.raises(InvalidValue, match="timeout must be"):
        plait.function(lambda s: None).run(backend=backend, timeout=timeout)


def test_a_state_names_what_it_lacks(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s.get_meta_info("x")

    with pytest.raises(AttributeError, match=r"s\.result"):
        program.run(backend=backend)


@pytest.mark.parametrize(("value", "match"), [(None, "forget to return"), (5, "str"), ([1], "list")])
def test_only_text_and_expressions_are_added(backend: FakeBackend, value: Any, match: str) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += value

    with pytest.raises(InvalidValue, match=match):
        program.run(backend=backend)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (int, "-42 and more", -42),
        ("int", "7\n", 7),
        (float, "3.25", 3.25),
        (bool, "False", False),
        (str, '"a \\"b\\""', 'a "b"'),
    ],
)
def test_a_dtype_gives_a_typed_value(dtype: Any, text: str, value: Any) -> None:
    backend = saying(text)

    @plait.function
    def program(s: plait.State) -> None:
        s += "n=" + plait.gen("x", dtype=dtype)
        assert s["x"] == value and type(s["x"]) is type(value)

    state = program.run(backend=backend)
    assert isinstance(backend.ops(Gen)[0].constraint, Regex)
    assert text.startswith(state.result("x").text)
    backend.close()


def test_a_dtype_with_a_str_stop(backend: FakeBackend) -> None:  # fault 8
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen_int("x", stop=".") + plait.gen_string("y")

    state = program.run(backend=backend)
    assert backend.ops(Gen)[0].sampling.stop == (".", " ", "\n")
    assert isinstance(state["x"], int) and isinstance(state["y"], str)


def test_a_cut_dtype_raises_when_read_and_keeps_its_text() -> None:
    backend = saying('"unfinished')

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen_string("x")

    state = program.run(backend=backend)
    with pytest.raises(plait.PlaitError, match="not a complete str"):
        state["x"]
    result = state.result("x")
    assert result.text == '"unfinished' and result.value is None and result.error is not None
    assert state.text() == '"unfinished'
    backend.close()


def test_n_gives_lists_and_goes_on_with_the_first(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "a" + plait.gen("x", n=3)

    state = program.run(backend=backend)
    assert len(state["x"]) == 3 == len(set(state["x"]))
    assert [result.text for result in state.result("x")] == state["x"]
    assert state.text() == "a" + state["x"][0]


def test_a_result_has_everything(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "a b c" + plait.gen("x", logprobs=True) + plait.select("y", ["left", "right"])

    result = program.run(backend=backend, seed=4).result("x")
    assert result.finish_reason == "stop" and result.error is None and result.seed == 4
    assert len(result.tokens) == result.usage.completion == len(result.logprobs)
    assert result.usage.prompt == 3
    state = program.run(backend=backend)
    chosen = state.result("y")
    assert chosen.value in ("left", "right") and len(chosen.scores) == 2
    assert list(chosen.choice_logprobs) == ["left", "right"] and chosen.logprobs == chosen.choice_logprobs[chosen.value]
    assert result.prompt_logprobs is None and result.choice_logprobs is None and result.next_top == ()


@pytest.mark.parametrize("n", [1, 2])
def test_a_result_has_what_was_before_and_what_would_come(backend: FakeBackend, n: int) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "a b c" + plait.gen("x", max_tokens=0, logprob_start_len=1, top_logprobs=3, n=n)

    found = program.run(backend=backend).result("x")
    for result in found if n > 1 else [found]:
        assert [entry.token for entry in result.prompt_logprobs] == [" b", " c"]
        assert len(result.next_top) == 3 and result.logprobs == ()


def test_gen_with_choices_is_a_select(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x", choices=["a", "b"], choices_method=plait.greedy_token_selection, temperature=0.5, seed=3)
        s += plait.select("y", ["a", "b"])

    program.run(backend=backend, temperature=0.9)
    first, second = backend.ops(Select)
    assert (first.method, first.temperature, first.seed) == ("greedy_token_selection", 0.5, 3)
    assert (second.method, second.temperature) == ("token_length_normalized", 0.0)


def test_unnamed_gens_share_nothing(backend: FakeBackend) -> None:  # fault 9
    @plait.function
    def program(s: plait.State) -> None:
        s += "a" + plait.gen() + "b" + plait.gen() + plait.select(choices=["c"])
        forks = s.fork(2)
        forks += plait.gen()
        forks.join()
        assert s.names() == [] and None not in s

    state = program.run(backend=backend)
    first, second = (prompt for prompt, op in backend.prompts[:2])
    assert first == "a" and second.startswith("a ") and second.endswith("b")
    assert state.text().startswith(second)


def test_names_are_bound_in_program_order(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> str:
        assert "x" not in s
        s += plait.gen("x")
        assert "x" in s
        before: str = s["x"]
        s["x"] = 5
        assert s["x"] == 5
        s += plait.gen("x")
        assert s["x"] not in (before, 5)
        s.set_var("y", [1])
        assert s.get_var("y") == [1]
        return before

    state = program.run(backend=backend)
    assert state["x"] != state.ret_value
    assert state.result("y").value == [1]


def test_a_generated_value_goes_into_a_later_prompt(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x") + "\n"
        s += f"again:{s['x']}" + plait.gen("y")

    state = program.run(backend=backend)
    assert backend.prompts[1][0] == f"{state['x']}\nagain:{state['x']}"


def test_a_reference_does_not_wait(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")
        s["five"] = 5
        with s.var_scope("scope"):
            s += "<" + plait.gen("y") + ">"
        other = s.fork(1)[0]
        other += "|" + s.ref("x") + s.ref("five") + s.ref("scope")
        other += plait.gen("z")
        assert len(backend.ops(VarRef)) == 2
        backend.resume()
        assert other.text() == s.text() + f"|{s['x']}5{s['scope']}{other['z']}"

    backend.pause()
    program.run(backend=backend)
    assert backend.prompts[-1][0].count("|") == 1


def test_an_unknown_name_lists_the_known_ones(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("answer")
        s["answr"]

    with pytest.raises(KeyError, match="no variable 'answr'; known: answer"):
        program.run(backend=backend)


def test_a_scope_is_the_text_between_its_marks(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "before "
        with s.var_scope("json"):
            s += '{"a": ' + plait.gen_int("a") + "}"
        s += " after"

    state = program.run(backend=backend)
    assert state["json"] == '{"a": ' + str(state["a"]) + "}"
    assert state.text() == f"before {state['json']} after"
    assert "".join(state.text_iter("json")) == state["json"]


# ---------------------------------------------------------------- roles


def test_roles_make_messages_and_the_template_s_marks(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.system("be brief")
        s += plait.user_begin() + "hi" + plait.user_end()
        with s.assistant():
            s += "well," + plait.gen("x")
        with s.user():
            s += "bye"

    state = program.run(backend=backend)
    assert state.messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "well," + state["x"]},
        {"role": "user", "content": "bye"},
    ]
    assert state.text().startswith("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n")
    assert len(backend.ops(RoleBegin)) == 4


@pytest.mark.parametrize(
    "expr",
    [
        plait.user(plait.system("x")),
        plait.user_begin() + plait.user_begin(),
        plait.user_end() + "x",
    ],
)
def test_turns_do_not_nest_or_cross(backend: FakeBackend, expr: plait.Expr) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += expr

    with pytest.raises(InvalidValue, match="turn"):
        program.run(backend=backend)


def test_a_wrong_end_warns_and_ends_the_open_turn(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.user("Hi") + plait.assistant_begin() + "1. A" + plait.user_end() + plait.user("Bye")

    with pytest.warns(plait.PlaitWarning, match=r"user_end\(\) ends the assistant turn.*assistant_end\(\)") as caught:
        states = [program.run(backend=backend) for _ in range(2)]
    assert len(caught) == 1 and caught[0].filename == __file__
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "1. A"}]
    assert [state.messages() for state in states] == [[*turns, {"role": "user", "content": "Bye"}]] * 2


# ---------------------------------------------------------------- warnings


def test_a_cut_gen_warns_once_and_says_length() -> None:
    backend = saying("one two three four")

    @plait.function
    def program(s: plait.State, limit: int = 2) -> None:
        for _ in range(3):
            s += "go" + plait.gen("x", max_tokens=limit)

    with pytest.warns(plait.PlaitWarning, match=r"gen 'x' was cut at max_tokens=2.*max_tokens") as caught:
        state = program.run(backend=backend)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert state.result("x").finish_reason == "length"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run(backend=backend)  # said once
        program.run(0, backend=backend)  # prefill only is no accident
    backend.close()


def test_a_cut_that_broke_the_program_is_said_too() -> None:
    backend = saying("one two three four")

    @plait.function
    def program(s: plait.State) -> int:
        s += plait.gen("x", max_tokens=2)
        return int(s["x"])

    with pytest.warns(plait.PlaitWarning, match="gen 'x' was cut"), pytest.raises(ValueError, match="int"):
        program.run(backend=backend)
    backend.close()


def test_a_space_before_a_gen_warns_once(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        for _ in range(2):
            s += "Answer: " + plait.gen("x")
        s += "n= " + plait.gen_int("y") + "c= " + plait.select("z", ["a"])  # these cannot begin with a space

    with pytest.warns(plait.PlaitWarning, match="before gen 'x' ends in a space") as caught:
        program.run(backend=backend)
    assert len(caught) == 1
    program.run(backend=backend)


def test_a_program_that_is_made_anew_warns_once_and_another_place_again(backend: FakeBackend) -> None:
    backend = saying("one two three four")

    def made() -> plait.Function:
        @plait.function
        def program(s: plait.State) -> None:
            s += "go" + plait.gen("x", max_tokens=2)

        return program

    typed = "@plait.function\ndef program(s):\n    s += 'go' + plait.gen({!r}, max_tokens=2)\n"
    with pytest.warns(plait.PlaitWarning, match="was cut") as caught:
        for _ in range(3):
            made().run(backend=backend)
        for name in ("a", "b", "a", "b"):  # at one prompt, where every statement is line 1 of <stdin>
            space: dict[str, Any] = {"plait": plait}
            exec(compile(typed.format(name), "<stdin>", "exec"), space)
            space["program"].run(backend=backend)
    assert [str(warning.message)[:8] for warning in caught] == ["gen 'x' ", "gen 'a' ", "gen 'b' "]
    backend.close()


def test_what_was_said_has_a_bound() -> None:
    code = test_what_was_said_has_a_bound.__code__
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for line in (*range(5000), 4999, 0):
            notices.say("kind", notices.Site("x.py", line, code), "message")
    assert len(caught) == 5001  # the first was forgotten, the last not
    assert len(notices._said) <= 4096


# ---------------------------------------------------------------- functions


def test_the_state_is_found_by_position(backend: FakeBackend) -> None:
    class Asker:
        prefix = "P:"

        @plait.function
        def ask(self, conversation: plait.State, question: str, tail: str = "") -> str:
            conversation += self.prefix + question + tail + plait.gen("x")
            return question

        @staticmethod
        @plait.function
        def fixed(st: plait.State, word: str) -> None:
            st += word + plait.gen("x")

        @plait.function
        def build(s, question, n=1):  # type: ignore[no-untyped-def]  # as SGLang's users write it
            s += question + plait.gen("x", n=n)

        @plait.function
        @staticmethod
        def other_way(st: plait.State, word: str) -> None:
            st += word + plait.gen("x")

        @classmethod
        @plait.function
        def of_class(cls, st: plait.State, word: str) -> str:
            st += cls.prefix + word + plait.gen("x")
            return cls.__name__

        @plait.function
        def named(me, state, word):  # type: ignore[no-untyped-def]
            state += me.prefix + word + plait.gen("x")

        def use(self, **arguments: Any) -> plait.State:
            return self.build.run(backend=backend, **arguments)

    asker = Asker()
    assert isinstance(asker.use(question="q", n=2)["x"], list)
    for run in (asker.build.run, Asker.build.run, asker.build.bind(n=1).run):
        assert run(question="q", n=1, backend=backend)["x"]
        assert run("q", backend=backend)["x"]
        assert backend.prompts[-1][0] == "q"
    asker.other_way.run("o", backend=backend)
    assert backend.prompts[-1][0] == "o"
    asker.named.run("n", backend=backend)
    Asker.named.run(asker, word="n", backend=backend)
    assert [prompt for prompt, _ in backend.prompts[-2:]] == ["P:n", "P:n"]
    assert (
        asker.of_class.run("c", backend=backend).ret_value
        == "Asker"
        == Asker.of_class.run("c", backend=backend).ret_value
    )
    with pytest.raises(TypeError, match=r"@classmethod above @plait.function"):
        plait.function(classmethod(lambda cls, s: None))  # type: ignore[arg-type]
    assert asker.ask.run("why", backend=backend, tail="?").ret_value == "why"
    assert backend.prompts[-1][0] == "P:why?"
    assert Asker.ask.run(asker, "how", backend=backend).ret_value == "how"
    asker.fixed.run(word="w", backend=backend)
    assert backend.prompts[-1][0] == "w"
    states = asker.ask.bind(tail="!").run_batch([("a",), {"question": "b"}], backend=backend)
    assert [state.ret_value for state in states] == ["a", "b"]


def test_a_program_may_be_an_attribute_of_a_class_or_an_instance(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State, word: str) -> str:
        return word

    class Holder:
        shared = program

        def __init__(self) -> None:
            self.own = program.bind(word="own")

    holder = Holder()
    assert [holder.own.run(backend=backend).ret_value, holder.shared.run("a", backend=backend).ret_value] == [
        "own",
        "a",
    ]
    assert Holder.shared.run(word="b", backend=backend).ret_value == "b"
    assert program.run("c", backend=backend).ret_value == "c"  # a class that holds it changes nothing for others
    assert holder.shared.run_batch([("d",), {"word": "e"}], backend=backend)[1].ret_value == "e"


def test_bind_keeps_its_own_arguments(backend: FakeBackend) -> None:  # fault 10
    @plait.function
    def program(s: plait.State, a: str, b: str) -> str:
        return a + b

    bound = program.bind(b="2")
    item = {"a": "1"}
    assert bound.run_batch([item], backend=backend)[0].ret_value == "12"
    assert item == {"a": "1"}
    assert bound.run("1", b="3", backend=backend).ret_value == "13"
    assert bound.bind(a="9").run(backend=backend).ret_value == "92"
    with pytest.raises(TypeError, match="no parameter 'c'"):
        program.bind(c="x")


def test_a_parameter_hides_a_sampling_default(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State, stop: str) -> str:
        s += plait.gen("x")
        return stop

    assert program.run(stop="mine", backend=backend).ret_value == "mine"
    assert backend.ops(Gen)[0].sampling.stop == ()


def test_bad_programs_and_bad_calls_are_refused(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State, a: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        program.run(backend=backend)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tempperature'"):
        program.run("x", tempperature=1, backend=backend)
    with pytest.raises(InvalidValue, match="temperature"):
        program.run("x", temperature=-1, backend=backend)
    with pytest.raises(InvalidValue, match="timeout"):
        program.run("x", timeout=0, backend=backend)
    with pytest.raises(TypeError, match="first parameter"):
        plait.function(lambda: None)
    with pytest.raises(InvalidValue, match="cannot be called stream"):
        plait.function(lambda s, stream: None)
    with pytest.raises(TypeError, match="yield"):

        @plait.function
        def generator(s: plait.State) -> Iterator[int]:
            yield 1


def test_a_program_calls_another_with_its_backend_and_a_seed_of_its_run(backend: FakeBackend) -> None:
    @plait.function
    def inner(s: plait.State, topic: str) -> str:
        s += topic + plait.gen("x")
        return str(s["x"])

    @plait.function
    def outer(s: plait.State) -> tuple[str, str]:
        return inner("a").ret_value, inner("a").ret_value

    first = outer.run(backend=backend, seed=1).ret_value
    assert first[0] != first[1]
    assert outer.run(backend=backend, seed=1).ret_value == first
    assert outer.run(backend=backend, seed=2).ret_value != first

    @plait.function
    def mistaken(s: plait.State) -> None:
        inner(s, "a")

    with pytest.raises(TypeError, match="state of its own"):
        mistaken.run(backend=backend)


def test_the_default_backend(backend: FakeBackend) -> None:
    @plait.function()
    def program(s: plait.State) -> None:
        s += plait.gen("x")

    plait.set_default_backend(backend)
    try:
        assert program.run()["x"]
    finally:
        plait.set_default_backend(None)
    assert backend.ops(Gen)


def test_a_default_backend_that_ended_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.lang import defaults

    made: list[FakeBackend] = []

    def factory() -> FakeBackend:
        made.append(FakeBackend())
        return made[-1]

    monkeypatch.setattr(defaults, "_started", None)
    monkeypatch.setattr(defaults, "_factory", factory)
    program = plait.function(lambda s: s.text())
    for _ in range(2):
        assert program.run().ret_value == program.run().ret_value == ""
        made[-1].close()
    assert len(made) == 2


def test_events_after_the_end_are_harmless(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")

    state = program.run(backend=backend)
    state._program.on_event(Closed(10**9))
    assert state["x"]
    with pytest.raises(plait.PlaitError, match="has ended"):
        state += "more"


def test_an_expression_in_an_f_string_is_refused() -> None:
    """Its repr would become part of the prompt, and nobody would notice."""
    for expr in (plait.gen("x"), plait.user("a"), "a" + plait.select("c", ["a", "b"])):
        with pytest.raises(InvalidValue, match=r"f-string.*\+"):
            f"say {expr} now"
        with pytest.raises(InvalidValue, match="f-string"):
            "say {}".format(expr)  # noqa: UP032  # the point of the test


def test_a_state_added_to_a_state_is_told_what_to_do(backend: FakeBackend) -> None:
    inner = plait.function(lambda s: None)

    @plait.function
    def program(s: plait.State) -> None:
        s += inner()

    with pytest.raises(InvalidValue, match=r"state of its own.*\.text\(\)"):
        program.run(backend=backend)
