"""The compiler child: ``python -m plait.constrained.compiler`` behind a memory limit and a clock.

It is started at the first constraint, answers one request after another, and is killed and started again when it
takes too long or dies. It holds nothing that could be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from ...constrained.compiler import MAX_FRAME_BYTES, Reply, Request, decode_reply, frame
from .constraints import Refused
from .settings import Settings


class CompilerChild:
    """One child at a time; requests queue on a lock."""

    def __init__(self, settings: Settings, command: tuple[str, ...] | None = None) -> None:
        self._settings = settings
        self._command = command or (
            sys.executable,
            "-P",
            "-m",
            "plait.constrained.compiler",
            "--memory-bytes",
            str(settings.compile_memory),
        )
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._next = 0
        self._closed = False

    async def compile(self, kind: str, source: str) -> bytes:
        """The payload. Raises Refused: the specification is at fault, or costs more than the limits allow."""
        async with self._lock:
            if self._closed:
                raise Refused("the runtime is shutting down")
            await self._ensure()
            try:
                async with asyncio.timeout(self._settings.compile_timeout):
                    reply = await self._ask(kind, source)
            except TimeoutError:
                await self._kill()
                limit = self._settings.compile_timeout
                raise Refused(f"compiling it took longer than {limit:g} s: write a smaller {kind}") from None
            except asyncio.IncompleteReadError:
                await self._kill()
                raise Refused(
                    f"compiling it took more memory or time than is allowed: write a smaller {kind}"
                ) from None
            except BaseException:
                await self._kill()  # cancelled in the middle of an answer: the pipe is out of step
                raise
        if not reply.ok:
            raise Refused(reply.error)
        return reply.payload

    async def close(self) -> None:
        self._closed = True
        await self._kill()

    async def _ensure(self) -> None:
        """Start it. That has a clock of its own: a slow start is not the fault of the constraint."""
        if self._process is not None and self._process.returncode is None:
            return
        await self._kill()
        try:
            async with asyncio.timeout(self._settings.compiler_start_timeout):
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
                await self._read(0)  # it says when it can serve
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            await self._kill()
            raise RuntimeError(f"the compiler process does not start: {error!r}") from error
        except BaseException:
            await self._kill()
            raise

    async def _ask(self, kind: str, source: str) -> Reply:
        assert self._process is not None
        self._next += 1
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(frame(Request(self._next, kind, source, self._settings.compile_timeout / 2)))
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

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
