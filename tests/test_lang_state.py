"""A state as Python sees it: ``in``, ``print``, ``repr``, and what it is not: a dict, a string, a thing to save."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend

import plait
from plait.runtime.errors import InvalidValue
from plait.runtime.protocol import Failed, Op


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend(fault=too_long)
    yield fake
    fake.close()


def named(s: plait.State) -> None: ...


def too_long(text: str, op: Op) -> Failed | None:
    return Failed(0, op.op, code="context_length", message="too long") if text.endswith("long") else None


# ---------------------------------------------------------------- in


def test_a_failed_name_is_not_in_its_state(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State, text: str) -> None:
        with s.var_scope("both"):
            s += text + plait.gen("revision")
        s["mine"] = 1

    good, bad = program.run_batch([("short",), ("long",)], backend=backend)
    assert [name in good for name in ("revision", "both", "mine", "other")] == [True, True, True, False]
    assert [name in bad for name in ("revision", "both", "mine", "other")] == [False, False, True, False]
    assert bad.names() == good.names() == ["revision", "both", "mine"]
    assert 3 not in good
    for state in (good, bad):  # what is in it can be read
        assert all(state[name] for name in state.names() if name in state)


def test_a_list_with_a_failed_branch_is_not_in(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State, end: str) -> None:
        forks = s.fork(2)
        forks += lambda i: f"branch {i} {end if i else 'short'}" + plait.gen("x")
        forks.join()
        with s.copy() as aside:
            aside += end + plait.gen("aside", n=2)

    good, bad = program.run("short", backend=backend), program.run("long", backend=backend)
    assert "x" in good and "aside" in good
    assert "x" not in bad and "aside" not in bad
    with pytest.raises(plait.ForkError):
        _ = bad["x"]


def test_a_value_that_its_type_refuses_is_not_in(backend: FakeBackend) -> None:
    backend.answer = lambda text, gen: "7" if text.endswith("7") else "x"

    @plait.function
    def program(s: plait.State, text: str) -> None:
        s += text + plait.gen("number", json_schema={"type": "integer"})

    assert "number" in program.run("7", backend=backend)
    bad = program.run("8", backend=backend)
    with pytest.raises(plait.PlaitError):
        _ = bad["number"]
    assert "number" not in bad


def test_in_never_waits(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    def program(s: plait.State) -> None:
        s += "long" + plait.gen("x", max_tokens=3)
        s += plait.gen("y")
        assert "y" in s  # not known yet
        backend.allow(1000)

    program.run(backend=backend)


def test_what_a_program_s_own_error_cut_is_not_in(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "a" + plait.gen("x")
        assert s["x"]
        raise ZeroDivisionError

    (state,) = program.run_batch([()], backend=backend)
    assert "x" in state  # it was there before
    assert state["x"]


# ---------------------------------------------------------------- print and repr


def test_print_gives_the_text_and_repr_a_summary(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State, text: str) -> None:
        s += text + plait.gen("x") + "."
        for number in range(12):
            s[f"name {number}"] = number

    state = program.run("short", backend=backend)
    assert str(state) == f"{state}" == state.text() != ""
    assert repr(state).startswith("<plait.State ended, names: x, name 0, name 1") and len(repr(state)) < 150
    bad = program.run("long", backend=backend)
    assert str(bad) == "long [ContextLengthExceeded: too long]"
    assert repr(bad).startswith("<plait.State ended, ContextLengthExceeded, names: x")
    empty = plait.function(lambda s: None).run(backend=backend)
    assert (str(empty), repr(empty)) == ("", "<plait.State ended, names: none>")


def test_print_inside_a_program_waits_as_text_does(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> str:
        s += "a" + plait.gen("x")
        return str(s)

    state = program.run(backend=backend)
    assert state.ret_value == state.text()


def test_print_on_an_event_loop_gives_what_is_there(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    async def program(s: plait.State) -> list[str]:
        s += "a" + plait.gen("x")
        early = str(s)
        assert repr(s) == "<plait.State running, names: x>"
        backend.allow(1000)
        return [early, await s.text_async(), str(s)]

    async def main() -> list[str]:
        return list((await program.arun(backend=backend)).ret_value)

    early, text, late = asyncio.run(main())
    assert early == "a" and text == late != "a"


def test_a_program_that_failed_prints_what_it_had(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "before"
        raise ZeroDivisionError("no")

    (state,) = program.run_batch([()], backend=backend)
    assert str(state) == "before [ZeroDivisionError: no]"


# ---------------------------------------------------------------- what is written by mistake


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (lambda s: s + plait.gen("x"), r"grows in place: write s \+= \.\.\."),
        (lambda s: s + "text", r"grows in place"),
        (lambda s: "text" + s, r"no part of an expression: write s\.text\(\)"),
        (lambda s: plait.gen("x") + s, r"add its \.text\(\)"),
        (lambda s: s.__iadd__(plait.gen), r"gen was added .* without being called: write gen\(\.\.\.\)"),
        (lambda s: s.__iadd__(plait.function(named)), r"named\(\.\.\.\)\.text\(\)"),
        (lambda s: s.fork(2).__iadd__(s), r"add its \.text\(\)"),
        (lambda s: s.__iadd__("a" + plait.gen("x") + plait.user), r"user was added"),
        (lambda s: s.__iadd__(["a", "b"]), r"not list; add one of its items, or .*join"),
        (lambda s: s.__iadd__(b"a"), r"\.decode\(\)"),
        (lambda s: s.__iadd__(1.5), r"str\(\.\.\.\) around it"),
        (lambda s: s.fork(2) + "x", r"forks \+="),
    ],
)
def test_what_cannot_be_added_says_what_to_write(backend: FakeBackend, write: Any, match: str) -> None:
    with pytest.raises(InvalidValue, match=match):
        plait.function(lambda s: write(s)).run(backend=backend)


def test_the_advice_works(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen("x")
        s += "\n".join(["a", "b"]) + b"c".decode() + str(1.5)
        other = program_of_text.run()
        s += other.text()

    program_of_text = plait.function(lambda s: s.__iadd__("other") and None)
    assert program.run(backend=backend).text().endswith("a\nbc1.5other")


def test_a_state_is_no_dict_and_cannot_be_saved(backend: FakeBackend) -> None:
    @plait.function
    def program(s: plait.State) -> None:
        s += "a" + plait.gen("x")

    state = program.run(backend=backend)
    for save in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"cannot be pickled.*s\.text\(\)"):
            save(state)
    for read in (dict, list, iter):
        with pytest.raises(TypeError, match=r"for name in s\.names\(\)"):
            read(state)
    with pytest.raises(AttributeError, match=r"to_dict'; \{name: s\[name\]"):
        state.to_dict()  # type: ignore[operator]
    assert {name: state[name] for name in state.names()} == {"x": state["x"]}


def test_a_state_outside_a_program_says_how_to_go_on(backend: FakeBackend) -> None:
    with pytest.raises(TypeError, match=r"made by a program that runs"):
        plait.State()
    state = plait.function(lambda s: s.__iadd__("a") and None).run(backend=backend)
    with pytest.raises(plait.PlaitError, match=r"has ended.*s \+= earlier\.text\(\)"):
        state += "more"
