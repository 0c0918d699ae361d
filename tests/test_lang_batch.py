"""run_batch: order, bounds, and failures that stay with their item."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend

import plait
from plait.runtime.errors import InvalidValue
from plait.runtime.protocol import Failed, Op


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


@plait.function
def plain(s: plait.State, number: int) -> int:
    s += f"number {number}:" + plait.gen("x")
    if number == 77:
        raise ZeroDivisionError("seventy-seven")
    assert s["x"]
    return number


def program(s: plait.State, number: int) -> None:
    s += str(number)


@plait.function
async def asynchronous(s: plait.State, number: int) -> int:
    s += f"number {number}:" + plait.gen("x")
    if number == 77:
        raise ZeroDivisionError("seventy-seven")
    assert await s.get("x")
    return number


@pytest.mark.parametrize("program", [plain, asynchronous], ids=["def", "async def"])
def test_two_hundred_programs_with_one_that_fails(backend: FakeBackend, program: plait.Function) -> None:
    states = program.run_batch([{"number": i} for i in range(200)], backend=backend)
    assert len(states) == 200
    for number, state in enumerate(states):
        if number == 77:
            assert isinstance(state.error(), ZeroDivisionError)
            with pytest.raises(ZeroDivisionError):
                _ = state.ret_value
        else:
            assert state.ret_value == number and state.error() is None and state["x"]
            assert state.text().startswith(f"number {number}:")
    backend.until(lambda: backend.open_strands == 0)


def test_each_item_runs_once_and_only_so_many_at_once(backend: FakeBackend) -> None:  # faults 7 and 19
    lock = threading.Lock()
    seen: list[int] = []
    now = most = 0
    together = threading.Barrier(3)

    @plait.function
    def program(s: plait.State, i: int) -> None:
        nonlocal now, most
        with lock:
            seen.append(i)
            now += 1
            most = max(most, now)
        together.wait(20)  # needs three at once
        with lock:
            now -= 1

    program.run_batch([(i,) for i in range(12)], backend=backend, num_threads=3)
    assert sorted(seen) == list(range(12)) and most == 3


def test_async_items_are_bounded_too(backend: FakeBackend) -> None:
    now = most = 0

    @plait.function
    async def program(s: plait.State, i: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(3):
            await asyncio.sleep(0)
        now -= 1

    program.run_batch([(i,) for i in range(12)], backend=backend, num_threads=3)
    assert most == 3


def test_items_are_checked_before_anything_runs(backend: FakeBackend) -> None:
    with pytest.raises(TypeError, match=r"item 1: plain\(\): too many"):
        plain.run_batch([(1,), (1, 2)], backend=backend)
    with pytest.raises(InvalidValue, match="item 0"):
        plain.run_batch([5], backend=backend)
    for number in (0, 2.5, True, "many"):
        with pytest.raises(InvalidValue, match="num_threads"):
            plain.run_batch([(1,)], backend=backend, num_threads=number)  # type: ignore[arg-type]  # the point
    with pytest.raises(TypeError, match="unexpected keyword argument 'numthreads'"):
        plain.run_batch([(1,)], backend=backend, numthreads=3)
    with pytest.raises(InvalidValue, match="temperature"):
        plain.run_batch([(1,)], backend=backend, temperature=-1)
    assert backend.actions == []
    assert plain.run_batch([], backend=backend) == []


def test_a_seed_gives_each_item_its_own(backend: FakeBackend) -> None:
    first = [state["x"] for state in plain.run_batch([(1,), (1,)], backend=backend, seed=5)]
    assert first[0] != first[1]
    assert [state["x"] for state in plain.run_batch([(1,), (1,)], backend=backend, seed=5)] == first


@pytest.mark.parametrize("program", [plain, asynchronous], ids=["def", "async def"])
def test_generator_style_gives_states_in_order_and_can_be_left(backend: FakeBackend, program: plait.Function) -> None:
    states = program.run_batch([(i,) for i in range(40)], backend=backend, num_threads=2, generator_style=True)
    taken = []
    for state in states:
        taken.append(state.ret_value)
        if len(taken) == 3:
            break
    states.close()  # type: ignore[attr-defined]  # it is a generator
    assert taken == [0, 1, 2]
    assert len(backend.prompts) < 40
    backend.until(lambda: backend.open_strands == 0)


def test_the_timeout_is_each_item_s(backend: FakeBackend) -> None:
    backend.pause()
    states = plain.run_batch([(1,), (2,)], backend=backend, timeout=0.05)
    assert all(isinstance(state.error(), plait.RunTimeout) for state in states)


def test_a_batch_works_on_an_event_loop(backend: FakeBackend) -> None:
    async def main() -> list[int]:
        return [state.ret_value for state in asynchronous.run_batch([(1,), (2,)], backend=backend)]

    assert asyncio.run(main()) == [1, 2]


def test_the_progress_bar_counts_items(backend: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    plain.run_batch([(1,), (2,)], backend=backend)
    assert capsys.readouterr().err == ""  # silent unless asked
    plain.run_batch([(1,), (77,), (3,)], backend=backend, progress_bar=True)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize("program", [plain, asynchronous], ids=["def", "async def"])
@pytest.mark.parametrize("generator", [False, True])
def test_a_batch_that_failed_says_so_once(program: plait.Function, generator: bool, caplog: Any, capsys: Any) -> None:
    """Also when nobody reads an error; failed ops that the program did not read count too."""

    def fault(text: str, op: Op) -> Failed | None:
        refused = text.startswith(("number 3:", "number 4:"))
        return Failed(0, op.op, code="context_length", message="too long") if refused else None

    backend = FakeBackend(fault=fault)
    items = [(number,) for number in (1, 77, 3, 4)]
    assert len(list(program.run_batch(items, backend=backend, generator_style=generator, num_threads=1))) == 4
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("plait", "WARNING")
    said = record.getMessage()
    assert "3 of 4 items failed (2 ContextLengthExceeded, 1 ZeroDivisionError)" in said
    assert "The first is item 1: ZeroDivisionError: seventy-seven." in said
    caplog.clear()
    program.run_batch(items[:1], backend=backend)
    assert caplog.records == []
    backend.close()


def test_a_batch_that_is_left_says_what_failed_so_far(backend: FakeBackend, caplog: Any) -> None:
    states = plain.run_batch([(77,), *((i,) for i in range(20))], backend=backend, generator_style=True, num_threads=2)
    assert next(states).error() is not None and next(states).error() is None
    states.close()  # type: ignore[attr-defined]  # it is a generator
    (record,) = caplog.records
    assert "1 of 2 items failed (1 ZeroDivisionError)" in record.getMessage()


@pytest.mark.parametrize(
    ("item", "match"),
    [
        (["a", "b"], r"item 0: program\(\): too many.*taken as 2 arguments.*\{'number': \.\.\.\}"),
        ("text", r"item 0 must be a dict or a tuple of the program's arguments, not str.*\{'number': \.\.\.\}"),
    ],
)
def test_a_row_that_does_not_fit_says_how_to_write_it(item: Any, match: str, backend: FakeBackend) -> None:
    with pytest.raises((TypeError, InvalidValue), match=match):
        plait.function(program).run_batch([item], backend=backend)


def test_programs_of_a_batch_may_run_batches(backend: FakeBackend) -> None:
    @plait.function
    def outer(s: plait.State, i: int) -> list[int]:
        return [state.ret_value for state in plain.run_batch([(i,), (i + 1,)])]

    states = outer.run_batch([(1,), (5,)], backend=backend, num_threads=1)
    assert [state.ret_value for state in states] == [[1, 2], [5, 6]]
