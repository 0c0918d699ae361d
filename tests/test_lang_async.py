"""Programs as ``async def``, and plain ones on an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest
from fake_backend import FakeBackend

import plait
from plait.runtime.errors import GenerationError
from plait.runtime.protocol import Failed, Gen, Op


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


@plait.function
async def ask(s: plait.State, question: str) -> str:
    s += plait.user(question)
    with s.assistant():
        s += plait.gen("x")
    forks = s.fork(2)
    forks += plait.gen("y")
    await forks.join_async()
    text = await s.text_async()
    assert text.endswith("<|im_end|>\n")
    assert (await s.messages_async())[1]["content"] == s["x"]
    assert len(s["y"]) == 2  # there, so it may be read
    return str(await s.get("x"))


def test_arun_awaits_the_whole_program(backend: FakeBackend) -> None:
    async def main() -> None:
        first, second = await asyncio.gather(ask.arun("a", backend=backend), ask("b", backend=backend))
        assert first.ret_value == first["x"] and second.ret_value == (await second.result_async("x")).value
        assert first["x"] != second["x"]

    asyncio.run(main())
    backend.until(lambda: backend.open_strands == 0)


def test_run_runs_async_programs_with_and_without_a_loop(backend: FakeBackend) -> None:
    assert ask.run("a", backend=backend).ret_value

    async def main() -> None:
        assert ask.run("a", backend=backend).ret_value

    asyncio.run(main())


def test_a_plain_program_runs_on_a_loop_too(backend: FakeBackend) -> None:
    threads: list[threading.Thread] = []

    @plait.function
    def plain(s: plait.State) -> str:
        threads.append(threading.current_thread())
        s += plait.gen("x")
        return str(s["x"])  # blocks, in a thread of its own

    async def main() -> None:
        assert (await plain.arun(backend=backend)).ret_value
        assert plain.run(backend=backend).ret_value

    asyncio.run(main())
    assert threading.main_thread() not in threads


def test_a_notebook_s_cell_may_block(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    threads: list[threading.Thread] = []

    @plait.function
    def plain(s: plait.State) -> str:
        threads.append(threading.current_thread())
        s += plait.gen("x")
        return str(s["x"])

    async def cell() -> None:
        assert plain.run(backend=backend).ret_value
        assert ask.run("a", backend=backend).ret_value
        state = plain.stream(backend=backend)
        assert "".join(state.text_iter()) == state["x"]

    asyncio.run(cell())
    assert threads[0] is threading.main_thread()


def test_reading_too_early_on_a_loop_names_the_await(backend: FakeBackend) -> None:
    backend.pause()

    @plait.function
    async def program(s: plait.State) -> None:
        s += plait.gen("x")
        with pytest.raises(plait.NotReady, match=r"await s\.get\('x'\)"):
            s["x"]
        with pytest.raises(plait.NotReady, match=r"await s\.text_async\(\)"):
            s.text()
        with pytest.raises(plait.NotReady, match=r"text_aiter"):
            list(s.text_iter())
        with pytest.raises(plait.NotReady, match="result_async"):
            s.result("x")
        with pytest.raises(plait.NotReady, match="sync_async"):
            s.sync()
        assert "x" in s
        backend.resume()
        await s.sync_async()
        assert s["x"] == s.text()
        assert await s.error_async() is None

    program.run(backend=backend)


def test_iterating_does_not_hold_up_the_loop(backend: FakeBackend) -> None:  # fault 5
    """While the iteration waits for a variable that is not even named, other tasks run as often as they like."""
    go = threading.Event()

    @plait.function
    def program(s: plait.State) -> None:
        assert go.wait(20)
        s += plait.gen("x")

    async def main() -> None:
        state = program.stream(backend=backend)
        pieces: list[str] = []

        async def read() -> None:
            async for piece in state.text_aiter("x"):
                pieces.append(piece)

        reader = asyncio.create_task(read())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not reader.done() and not pieces
        go.set()
        await reader
        assert pieces and "".join(pieces) == await state.get("x")
        assert "".join([piece async for piece in state.text_async_iter()]) == await state.text_async()

    asyncio.run(main())


def test_a_timeout_aborts(backend: FakeBackend) -> None:
    backend.pause()
    with pytest.raises(plait.RunTimeout, match=r"timeout=0\.05 s"):
        ask.run("a", backend=backend, timeout=0.05)
    assert len(backend.aborts) == 1


def test_a_timeout_of_the_program_s_own_is_its_own(backend: FakeBackend) -> None:
    @plait.function
    async def program(s: plait.State) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine") as caught:
        program.run(backend=backend, timeout=1000)
    assert not isinstance(caught.value, plait.RunTimeout)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_cancelling_aborts(backend: FakeBackend, kind: str) -> None:
    backend.pause()

    @plait.function
    def plain(s: plait.State) -> None:
        s += plait.gen("x")

    program = ask.bind(question="q") if kind == "async" else plain

    async def main() -> None:
        task = asyncio.create_task(program.arun(backend=backend))
        await asyncio.to_thread(backend.until, lambda: bool(backend.ops(Gen)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(backend.aborts) == 1
    backend.until(lambda: backend.open_strands == 0)


def test_errors_of_ops_and_of_the_program(backend: FakeBackend) -> None:
    def fault(prompt: str, op: Op) -> Failed | None:
        return Failed(0, 0, message="it broke") if isinstance(op, Gen) else None

    backend.fault = fault
    with pytest.raises(GenerationError, match="it broke"):
        ask.run("a", backend=backend)

    @plait.function
    async def careless(s: plait.State) -> None:
        s += plait.gen("x")

    state = careless.run(backend=backend)
    assert isinstance(state.error(), GenerationError)


def test_async_programs_call_programs(backend: FakeBackend) -> None:
    @plait.function
    async def outer(s: plait.State) -> list[str]:
        states = await asyncio.gather(ask("a"), ask("b"))
        return [state.ret_value for state in states]

    first = outer.run(backend=backend, seed=3).ret_value
    assert first == outer.run(backend=backend, seed=3).ret_value and first[0] != first[1]


def test_an_async_program_streams(backend: FakeBackend) -> None:
    state = ask.stream("a", backend=backend)
    assert "".join(state.text_iter()) == state.text()
    assert state.ret_value == state["x"]
