"""A value is made once, whoever reads it; a whole text is a value of its type, or an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest
from fake_backend import FakeBackend

import plait
from plait.lang.outcome import Outcome
from plait.lang.variables import OpVariable
from plait.runtime.errors import GenerationError
from plait.runtime.protocol import Done, Reason, Usage

pytestmark = pytest.mark.filterwarnings("ignore::plait.PlaitWarning")


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend(answer=lambda prompt, gen: '{"n": [1, 2]}')
    yield fake
    fake.close()


class Model(pydantic.BaseModel):
    n: list[int]


@plait.function
def program(s: plait.State, **options: Any) -> None:
    s += plait.gen("m", 64, **options)


@pytest.mark.parametrize("options", [{"schema": Model}, {"json_schema": {}}])
def test_a_value_is_one_object_and_an_edit_of_it_lasts(backend: FakeBackend, options: dict[str, Any]) -> None:
    state = program.run(backend=backend, **options)
    first = state["m"]
    assert state["m"] is first is state.result("m").value
    (first.n if isinstance(first, Model) else first["n"]).append(3)
    again = state["m"]
    assert (again.n if isinstance(again, Model) else again["n"]) == [1, 2, 3]


def test_a_callable_schema_runs_once(backend: FakeBackend) -> None:
    calls: list[list[int]] = []

    def act(n: list[int]) -> int:
        calls.append(n)
        return len(calls)

    state = program.run(backend=backend, schema=act)
    assert (state["m"], state["m"], state.result("m").value, "m" in state) == (1, 1, 1, True)
    assert calls == [[1, 2]]


def test_a_callable_that_fails_runs_once_too(backend: FakeBackend) -> None:
    calls: list[list[int]] = []

    def act(n: list[int]) -> int:
        calls.append(n)
        raise KeyError("no such tool")

    state = program.run(backend=backend, schema=act)
    assert "m" not in state
    for _ in range(2):
        with pytest.raises(GenerationError, match="no such tool") as caught:
            state["m"]
    assert isinstance(caught.value.__cause__, KeyError) and calls == [[1, 2]]


def test_many_threads_read_one_object(backend: FakeBackend) -> None:
    state = program.run(backend=backend, json_schema={})
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(state["m"])) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(value) for value in found}) == 1


def test_lists_of_choices_and_of_branches_are_one_object_each(backend: FakeBackend) -> None:
    state = program.run(backend=backend, json_schema={}, n=2)
    assert state["m"] is state["m"] and state["m"][0] is state.result("m")[0].value

    @plait.function
    def branches(s: plait.State) -> None:
        s += plait.gen("own", 64, json_schema={})
        forks = s.fork(2)
        forks += plait.gen("x", 64, json_schema={})
        s["same"] = forks[0]["own"] is s["own"]
        forks.join()

    state = branches.run(backend=backend)
    assert state["same"], "a branch reads its parent's object"
    assert state["x"] is state["x"] and state["x"][1] is state.result("x")[1].value
    state["x"].append("more")
    assert state["x"][2] == "more"


def test_an_error_is_the_same_each_time(backend: FakeBackend) -> None:
    state = program.run(backend=backend, schema=int)
    with pytest.raises(GenerationError) as first:
        state["m"]
    with pytest.raises(GenerationError) as second:
        state["m"]
    assert first.value is second.value is state.result("m").error and "m" not in state


@pytest.mark.parametrize(
    ("reason", "matched", "wrapped"),
    [("stop", None, 0), ("stop", "!", 0), ("stop", 7, 0), ("length", None, 3), ("length", None, 0)],
)
def test_a_whole_text_that_its_type_refuses_raises_whatever_ended_it(
    reason: Reason, matched: str | int | None, wrapped: int
) -> None:
    expr = plait.gen("x", schema=Model)
    outcome = Outcome("gen 'x'")
    text = '{"n": ["no number"]}'
    outcome.finish(Done(1, 1, reason=reason, matched=matched, text=text, usage=Usage(wrapped=wrapped)))
    variable = OpVariable(None, outcome, 1, 1, expr.form)  # type: ignore[arg-type, attr-defined]  # only for references
    (result,) = variable._made()
    assert isinstance(result.error, GenerationError) and result.value is None and variable.failed()


@pytest.mark.parametrize(("reason", "partial"), [("length", True), ("abort", True), ("abort", False)])
def test_a_cut_text_is_what_is_there_so_far(reason: Reason, partial: bool) -> None:
    expr = plait.gen("x", schema=Model)
    outcome = Outcome("gen 'x'")
    outcome.finish(Done(1, 1, reason=reason, text='{"n": [1, ', partial=partial))
    variable = OpVariable(None, outcome, 1, 1, expr.form)  # type: ignore[arg-type, attr-defined]  # only for references
    (result,) = variable._made()
    assert result.error is None and result.value == {"n": [1]}
