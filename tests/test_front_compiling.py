"""The compiler child: verdicts, limits, and what happens when it hangs or dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from plait.constrained.compiler import notes_of, read_payload
from plait.runtime.front import compiling
from plait.runtime.front.compiling import CompilerChild
from plait.runtime.front.constraints import Refused
from plait.runtime.front.settings import Settings

# A child that answers like the real one, but hangs on "hang" and dies on "die".
SCRIPT = """
import os, struct, sys, time
import msgspec
from plait.constrained.compiler_child import Reply, Request
out, inp = sys.stdout.buffer, sys.stdin.buffer
def say(reply):
    frame = msgspec.msgpack.encode(reply)
    out.write(struct.pack("<I", len(frame)) + frame)
    out.flush()
say(Reply(id=0, ok=True))
while head := inp.read(4):
    request = msgspec.msgpack.decode(inp.read(struct.unpack("<I", head)[0]), type=Request)
    if request.source == "hang":
        time.sleep(600)
    if request.source == "die":
        os._exit(9)
    say(Reply(id=request.id, ok=True, payload=str(os.getpid()).encode()))
"""


def play(body: Callable[[CompilerChild], Awaitable[None]], settings: Settings, *command: str) -> None:
    async def main() -> None:
        child = CompilerChild(settings, command or None)
        try:
            async with asyncio.timeout(60):
                await body(child)
        finally:
            await child.close()

    asyncio.run(main())


def test_the_real_child() -> None:
    async def body(child: CompilerChild) -> None:
        payload, again = await asyncio.gather(child.compile("regex", "[a-z]+x"), child.compile("regex", "[a-z]+x"))
        assert {notes_of(payload), notes_of(again)} == {()}
        assert read_payload(payload).source == read_payload(again).source == "[a-z]+x"
        with pytest.raises(Refused, match=r"position|\("):
            await child.compile("regex", "a(b")
        assert await child.compile("regex", "next")

    play(body, Settings())


def test_a_child_that_hangs_is_killed_and_the_next_request_served() -> None:
    async def body(child: CompilerChild) -> None:
        first = await child.compile("regex", "a")
        with pytest.raises(Refused, match=r"longer than 0\.5 s"):
            await child.compile("regex", "hang")
        second = await child.compile("regex", "a")
        assert first != second  # another process

    play(body, Settings(compile_timeout=0.5), sys.executable, "-c", "import msgspec\n" + SCRIPT)


def test_what_a_killed_child_was_asked_is_asked_once_more(tmp_path: Path) -> None:
    """It dies the first time only: somebody else killed it."""
    once = tmp_path / "once"
    script = SCRIPT.replace(
        'if request.source == "die":',
        f'if request.source == "killed" and not os.path.exists({str(once)!r}):\n'
        f"        open({str(once)!r}, 'w').close()\n"
        "        os._exit(9)\n"
        '    if request.source == "die":',
    )

    async def body(child: CompilerChild) -> None:
        first = await child.compile("regex", "a")
        assert await child.compile("regex", "killed") != first, "another process answered"
        with pytest.raises(Refused, match="memory or time"):
            await child.compile("regex", "die")

    play(body, Settings(), sys.executable, "-c", script)


def test_a_child_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def script(deaths: int) -> str:
        dying = f"""
import os, signal
with open({str(tries)!r}, "a") as file:
    file.write("x")
if os.path.getsize({str(tries)!r}) <= {deaths}:
    os.kill(os.getpid(), signal.SIGKILL)
"""
        return dying + SCRIPT

    async def served(child: CompilerChild) -> None:
        assert await child.compile("regex", "a")

    async def given_up(child: CompilerChild) -> None:
        with pytest.raises(RuntimeError, match="status -9 before it was ready"):
            await child.compile("regex", "a")

    play(served, Settings(), sys.executable, "-c", script(3))
    assert len(tries.read_text()) == 4
    tries.unlink()
    play(given_up, Settings(), sys.executable, "-c", script(99))
    assert len(tries.read_text()) == 5


def test_a_child_that_somebody_stopped_is_replaced_at_once() -> None:
    async def body(child: CompilerChild) -> None:
        first = await child.compile("regex", "a")
        os.kill(int(first), signal.SIGSTOP)
        while not compiling._stopped(int(first)):
            await asyncio.sleep(0.001)
        assert await child.compile("regex", "a") != first
        assert not Path(f"/proc/{int(first)}").exists(), "and it is gone"

    play(body, Settings(compile_timeout=600), sys.executable, "-c", SCRIPT)


def test_a_child_that_dies_is_replaced() -> None:
    async def body(child: CompilerChild) -> None:
        await child.compile("regex", "a")
        with pytest.raises(Refused, match="memory or time"):
            await child.compile("regex", "die")
        assert await child.compile("regex", "a")

    play(body, Settings(), sys.executable, "-c", SCRIPT)


def test_a_cancelled_request_does_not_confuse_the_next() -> None:
    async def body(child: CompilerChild) -> None:
        await child.compile("regex", "a")
        task = asyncio.create_task(child.compile("regex", "hang"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await child.compile("regex", "a")

    play(body, Settings(), sys.executable, "-c", SCRIPT)


def test_a_child_that_does_not_start_says_how_it_ended() -> None:
    async def body(child: CompilerChild) -> None:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="ended with status 3 before it was ready"):
                await child.compile("regex", "a")

    play(body, Settings(), sys.executable, "-c", "raise SystemExit(3)")
