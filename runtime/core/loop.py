"""The core's loop: poll, drain, step, send. It never waits for the front, and ends with the pipe it inherited.

::

    front ── ToCore ──> [socket] ──> Core.receive     Core.step ──> Outbox ──> [socket] ── ToFront ──> front
    parent's end of the pipe closes ──> the loop ends
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import zmq

from ..wire import CoreEvent, decode_to_core
from .core import Core
from .outbox import Outbox

_CHECK_AFTER_MS = 1000  # idle this long, the core checks its slots and collects garbage


class SocketSender:
    """A connected socket as the outbox sees it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def ready(self) -> bool:
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def send(self, frame: bytes) -> bool:
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


class Loop:
    """Drives a core from ``socket`` until Stop, or until ``pipe`` (a readable fd, or None) is closed by the parent."""

    def __init__(
        self,
        core: Core,
        socket: zmq.Socket[bytes],
        pipe: int | None,
        outbox: Outbox | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._socket = socket
        self._pipe = pipe
        self._outbox = Outbox(SocketSender(socket)) if outbox is None else outbox
        self._clock = clock
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        if pipe is not None:
            self._poller.register(pipe, zmq.POLLIN)
        self._stats_due = 0.0
        self._writable = False  # the poller also waits for room to send
        self._unchecked = False  # the core has worked since the last check of its slots

    def run(self) -> None:
        core = self._core
        while self._receive(wait=core.idle) and not core.stopped:
            if core.idle:
                self._outbox.flush()
                continue
            self._unchecked = True
            self._emit(core.step())
        self._outbox.flush()

    def _receive(self, *, wait: bool) -> bool:
        """Take in what is there; ``wait`` for something first. False when the parent is gone."""
        writable = wait and self._outbox.pending > 0
        if writable != self._writable:
            self._writable = writable
            self._poller.modify(self._socket, zmq.POLLIN | zmq.POLLOUT if writable else zmq.POLLIN)
        events = dict(self._poller.poll(self._patience() if wait else 0))
        if not events and wait and self._unchecked:
            self._core.check()  # raises, and so ends the core, rather than go on with wrong slots
            gc.collect()
            self._unchecked = False
        if self._pipe is not None and self._pipe in events:
            return False
        if events.get(self._socket, 0) & zmq.POLLIN:
            while True:
                try:
                    frame = self._socket.recv(zmq.NOBLOCK)
                except zmq.Again:
                    break
                self._core.receive(decode_to_core(frame))
        return True

    def _patience(self) -> int | None:
        """Milliseconds to wait for work: a check of the slots is due when none came for a while."""
        return _CHECK_AFTER_MS if self._unchecked else None

    def _emit(self, events: list[CoreEvent]) -> None:
        began = time.perf_counter()
        now = self._clock()
        if now >= self._stats_due or self._core.idle:
            self._stats_due = now + self._core.state.settings.stats_interval_s
            events = [*events, self._core.stats()]
        self._outbox.add(events)
        self._outbox.flush()
        self._core.timings.emit += time.perf_counter() - began
