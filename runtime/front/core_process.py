"""One epoch of the core as a process of its own, on a socket of its own.

``subprocess.Popen``, never multiprocessing: a script without a ``__main__`` guard and a notebook must work. The core
exits when the pipe it inherits closes, so it never outlives us, however we end. Its end is noticed by a thread that
reads its stderr to the end and reaps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import zmq

from .. import wire
from ..descriptors import check_spare
from ..errors import BackendError, ModelError
from ..protocol import MAX_FRAME_BYTES
from .link import CoreItem, OnDeath, OnEvents
from .pump import SocketPump

log = logging.getLogger(__name__)

_TAIL_LINES = 40
_RETRY = 0.005  # seconds until a full socket is tried again
_GRACE = 5.0  # seconds for a core that was told to stop


@dataclass(frozen=True)
class CoreCommand:
    """What a core is started with. ``extra``: further arguments of ``plait.runtime.core``."""

    model: Path
    mode: str
    kv_tokens: int | None = None  # None: the core's rule
    threads: int | None = None
    device: str = "auto"
    extra: tuple[str, ...] = ()
    kv_before: int | None = None  # the pool of the first core: those after it are to have the same
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "plait.runtime.core")

    def arguments(self, address: str, pipe: int) -> list[str]:
        threads = () if self.threads is None else ("--threads", str(self.threads))
        pools = (("--kv-tokens", self.kv_tokens), ("--kv-before", self.kv_before))
        tokens = [part for name, size in pools if size is not None for part in (name, str(size))]
        model = ("--model", str(self.model), "--mode", self.mode, "--device", self.device)
        return [*self.program, "--connect", address, *model, *tokens, *threads, "--pipe", str(pipe), *self.extra]


class CoreProcesses:
    """A LinkFactory: one core after another, each with the pool that the first one had."""

    def __init__(self, command: CoreCommand, timeout: float) -> None:
        self._command = command
        self._timeout = timeout

    def __call__(self) -> CoreProcess:
        return CoreProcess(self._command, self._timeout, on_ready=self._started)

    def _started(self, ready: wire.Ready) -> None:
        if self._command.kv_before is None:
            self._command = replace(self._command, kv_before=ready.kv_tokens)


class CoreProcess:
    """A CoreLink. Made per epoch, used once."""

    def __init__(
        self,
        command: CoreCommand,
        timeout: float,
        *,
        max_frame: int = MAX_FRAME_BYTES,
        on_ready: Callable[[wire.Ready], None] | None = None,
    ) -> None:
        self._command = command
        self._timeout = timeout
        self._started = on_ready
        self._max_frame = max_frame
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._pump: SocketPump | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._pipe = -1
        self._outbox: list[CoreItem] = []
        self._retry: asyncio.TimerHandle | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._fatal: str | None = None
        self._ended = asyncio.Event()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    # ------------------------------------------------------------ life

    async def start(self, on_events: OnEvents, on_death: OnDeath) -> wire.Ready:
        self._on_events, self._on_death = on_events, on_death
        loop = self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[wire.Ready] = loop.create_future()
        check_spare()
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="plait-"))  # mode 0700; short enough for a socket's path
        except OSError as error:
            raise BackendError(
                f"no temporary folder can be made ({error}): free some disk space, or name another folder in TMPDIR"
            ) from error
        address = f"ipc://{self._folder}/core"
        self._context = zmq.Context()
        socket = self._context.socket(zmq.PAIR)
        socket.linger = 0
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        socket.bind(address)
        self._pump = SocketPump(socket, self._frame)
        read, self._pipe = os.pipe()
        try:
            os.set_inheritable(read, True)
            environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
            self._process = subprocess.Popen(
                self._command.arguments(address, read),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(read,),
                env=environment,
                start_new_session=True,  # Ctrl-C is ours to handle; the core ends with the pipe
            )
        except OSError as error:
            raise BackendError(f"the core process cannot be started: {error}") from error
        finally:
            os.close(read)
        threading.Thread(target=self._watch, name="plait-core-watch", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout):
                ready = await self._ready
        except TimeoutError:
            raise BackendError(f"the core was not ready within {self._timeout:g} s{self._said()}") from None
        self._remove_folder()  # both ends are connected; a kill -9 of us must not leave it behind
        return ready

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        process = self._process
        if process is not None and not self._ended.is_set():
            with contextlib.suppress(zmq.ZMQError):
                if self._pump is not None:
                    self._pump.send([wire.encode(wire.ToCore(items=(wire.Stop(),)))])
            self._close_pipe()
            try:
                async with asyncio.timeout(_GRACE):
                    await self._ended.wait()
            except TimeoutError:
                process.kill()
                with contextlib.suppress(TimeoutError):  # its thread is a daemon; nothing of ours needs its end
                    async with asyncio.timeout(_GRACE):
                        await self._ended.wait()
        self._release()

    def _release(self) -> None:
        self._close_pipe()
        if self._retry is not None:
            self._retry.cancel()
        if self._pump is not None:
            self._pump.close()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None
        self._remove_folder()

    def _remove_folder(self) -> None:
        if (
            self._folder is not None
        ):  # by names alone: walking through it needs a descriptor, which may be what is short
            with contextlib.suppress(OSError):
                (self._folder / "core").unlink(missing_ok=True)
                self._folder.rmdir()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    # ------------------------------------------------------------ its end

    def _watch(self) -> None:
        process = self._process
        assert process is not None and process.stderr is not None
        with process.stderr as stream:
            for line in stream:
                text = line.decode("utf-8", "replace").rstrip()
                self._tail.append(text)
                log.info("core: %s", text)
        code = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._died, code)

    def _died(self, code: int) -> None:
        self._ended.set()
        if self._closed:
            return
        if self._pump is not None:
            self._pump.drain()  # its last words may still be in the socket
        cause = f"the core process {_how(code)}{self._said()}"
        if not self._ready.done():
            self._ready.set_exception(ModelError(self._fatal) if self._fatal else BackendError(cause))
            return
        self._on_death(self._fatal or cause)

    def _said(self) -> str:
        text = "\n".join(self._tail).strip()
        return f"; its last words:\n{text}" if text else ""

    # ------------------------------------------------------------ frames

    def _frame(self, frames: list[bytes]) -> None:
        try:
            events = wire.decode_to_front(frames[0]).events
        except (msgspec.DecodeError, ValueError) as error:
            log.error("the core sent a frame that cannot be read: %s", error)
            if self._process is not None:
                self._process.kill()  # replay makes it good; going on would lose answers
            return
        for event in events:
            if isinstance(event, wire.Ready) and not self._ready.done():
                self._ready.set_result(event)
                if self._started is not None:
                    self._started(event)
            elif isinstance(event, wire.Fatal):
                self._fatal = event.message
        if not self._closed:
            self._on_events(events)

    def send(self, items: Sequence[CoreItem]) -> None:
        self._outbox += items
        if self._retry is None:
            self._flush()

    def _flush(self) -> None:
        self._retry = None
        if self._pump is None or self._closed or self._ended.is_set():
            return
        while self._outbox:
            frame, count = wire.fill(wire.ToCore, self._outbox, self._max_frame)
            try:
                self._pump.send([frame])
            except zmq.Again:
                self._retry = self._loop.call_later(_RETRY, self._flush)
                return
            del self._outbox[:count]


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
