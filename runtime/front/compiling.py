"""The compiler children: ``python -m plait.constrained.compiler_child`` behind a memory limit and a clock.

::

    compile ──> quick lane (half a second each) ── verdict
                     │ not done by then
                     └──> slow lane (its whole time) ── verdict

So a constraint that takes long, or is meant to, keeps nobody waiting but others that take long. A child is started at
the first constraint it gets, answers one request after another, and is killed and started again when it takes too
long or dies. It holds nothing that could be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from ...constrained.compiler_child import MAX_FRAME_BYTES, Reply, Request, decode_reply, frame
from .constraints import Refused
from .settings import Settings


class Late(Refused):
    """It was not done in the time it had."""


class Compilers:
    """Two children, see above."""

    def __init__(self, settings: Settings) -> None:
        self._quick_s = settings.compile_quick
        self._quick = CompilerChild(settings)
        self._slow = CompilerChild(settings)

    async def compile(self, kind: str, source: str, backend: str) -> bytes:
        """The payload. Raises Refused: the specification is at fault, or costs more than the limits allow."""
        if backend == "plait":  # the libraries of others take seconds to import
            with contextlib.suppress(Late):
                return await self._quick.compile(kind, source, backend, self._quick_s)
        return await self._slow.compile(kind, source, backend)

    async def close(self) -> None:
        await self._quick.close()
        await self._slow.close()


_STARTS = 5  # tries, where somebody kills it before it is ready
_GRACE = 1.0  # seconds beyond twice its time after which a child that does not answer is killed


class CompilerChild:
    """One child at a time; requests queue on a lock."""

    def __init__(self, settings: Settings, command: tuple[str, ...] | None = None) -> None:
        self._settings = settings
        self._command = command or (
            sys.executable,
            "-P",
            "-m",
            "plait.constrained.compiler_child",
            "--memory-bytes",
            str(settings.compile_memory),
        )
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._next = 0
        self._closed = False

    async def compile(self, kind: str, source: str, backend: str = "plait", seconds: float | None = None) -> bytes:
        """The payload, within about ``seconds`` (None: half of what ``compile_timeout`` allows). Raises Refused, and
        Late, which is one, when the time was up.

        A child that dies may have been killed by somebody, so what it was asked is asked once more, in a fresh one.
        """
        given = self._settings.compile_timeout / 2 if seconds is None else seconds
        async with self._lock:
            for again in (False, True):
                try:
                    reply = await self._try(kind, source, backend, given)
                    break
                except asyncio.IncompleteReadError:
                    if again:
                        message = "compiling it took more memory or time than is allowed: make it smaller"
                        raise Refused(message) from None
        if not reply.ok:
            raise (Late if reply.late else Refused)(reply.error)
        return reply.payload

    async def _try(self, kind: str, source: str, backend: str, given: float) -> Reply:
        """Raises IncompleteReadError if the child dies, and Late if it does not answer."""
        if self._closed:
            raise Refused("the runtime is shutting down")
        await self._ensure()
        limit = self._settings.compile_timeout
        try:
            async with asyncio.timeout(min(limit, 2 * given + _GRACE)):
                return await self._ask(Request(self._next + 1, kind, source, given, backend))
        except TimeoutError:
            await self._kill()
            raise Late(f"compiling it took longer than {limit:g} s: make it smaller") from None
        except BaseException:
            await self._kill()  # it died, or was cancelled in the middle of an answer: the pipe is out of step
            raise

    async def close(self) -> None:
        self._closed = True
        await self._kill()

    async def _ensure(self) -> None:
        """Start it. That has a clock of its own: a slow start is not the fault of the constraint, and neither is
        somebody who kills it meanwhile."""
        if self._process is not None and self._process.returncode is None and not _stopped(self._process.pid):
            return
        await self._kill()
        for left in reversed(range(_STARTS)):
            status = await self._start()
            if status is None:
                return
            if status >= 0 or not left:
                raise RuntimeError(f"the compiler process ended with status {status} before it was ready")

    async def _start(self) -> int | None:
        """Its exit status if it ended before it was ready."""
        try:
            async with asyncio.timeout(self._settings.compiler_start_timeout):
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
                await self._read(0)  # it says when it can serve
        except TimeoutError as error:
            await self._kill()
            limit = self._settings.compiler_start_timeout
            raise RuntimeError(f"the compiler process does not start: it is not ready after {limit:g} s") from error
        except asyncio.IncompleteReadError:
            assert self._process is not None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 1)
            return await self._kill() or 0
        except OSError as error:
            await self._kill()
            raise RuntimeError(f"the compiler process does not start: {error}") from error
        except BaseException:
            await self._kill()
            raise
        return None

    async def _ask(self, request: Request) -> Reply:
        assert self._process is not None
        self._next = request.id
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(frame(request))
            await stdin.drain()
        except OSError as error:
            raise asyncio.IncompleteReadError(b"", None) from error
        return await self._read(self._next)

    async def _read(self, number: int) -> Reply:
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            length = int.from_bytes(await stdout.readexactly(4), "little")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"the compiler sent a frame of {length} bytes")
            reply = decode_reply(await stdout.readexactly(length))
            if reply.id == number:
                return reply

    async def _kill(self) -> int | None:
        """Its exit status, if it was there."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        return await process.wait()


def _stopped(pid: int) -> bool:
    """Somebody sent it SIGSTOP: it would answer nothing until its time is up."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] in (["T"], ["t"])
