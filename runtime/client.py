"""The backend behind a socket: one thread, one DEALER. Needs no engine, only msgspec and pyzmq."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import zmq

from . import address as addresses
from .backend import Listener
from .descriptors import check_spare
from .dispatch import Dispatch, packed
from .errors import BackendClosed, BackendError, ConnectTimeout, InvalidValue, ProtocolMismatch
from .protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Abort,
    Action,
    Batch,
    Hello,
    Info,
    Lost,
    Ping,
    Welcome,
    decode_front,
    encode,
)


def connect(address: str, timeout: float | None = None) -> Client:
    """The runtime that listens at ``address``: ``ipc:///path`` or ``tcp://host:port[?curve=KEY]``.

    Raises ConnectTimeout if nobody answers within ``timeout`` (10) seconds, ProtocolMismatch if the server is of
    another version, InvalidValue for an address or a timeout that cannot be right.
    """
    timeout = 10 if timeout is None else timeout
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= threading.TIMEOUT_MAX:
        raise InvalidValue(f"timeout must be a number of seconds above 0, not {timeout!r}", "timeout")
    return Client(address, timeout)


@dataclass(frozen=True)
class Pulse:
    """A server that leaves ``misses`` pings, ``interval`` seconds apart, without any answer is lost."""

    interval: float = 5.0
    misses: int = 4


class Client:
    """A ``Backend``. Listeners are called on its thread. Also a context manager."""

    def __init__(self, address: str, timeout: float = 10, *, pulse: Pulse | None = None) -> None:
        self._pid = os.getpid()
        self._name = address
        self._pulse = pulse or Pulse()
        self._dispatch = Dispatch()
        self._out: deque[bytes] = deque()
        self._info: Info | None = None
        self._failures: list[BackendError] = []  # of the greeting; at most one
        self._answered = threading.Event()
        self._closing = False
        self._closed = threading.Event()
        parsed = addresses.parse(address)
        check_spare()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.RECONNECT_IVL, 50),
            (zmq.RECONNECT_IVL_MAX, 500),
        ):
            self._socket.setsockopt(option, value)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._lock = threading.Lock()
        self._monitor: zmq.Socket[bytes] | None = None
        try:
            self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            addresses.connect(self._socket, parsed)
        except BaseException:
            self._release()
            raise
        self._out.append(encode(Hello(PROTOCOL_VERSION, secrets.token_hex(16))))
        self._thread = threading.Thread(target=self._run, name="plait-client", daemon=True)
        self._thread.start()
        try:
            answered = self._answered.wait(timeout)
        except BaseException:
            self.close()
            raise
        if not answered:
            self.close()
            raise ConnectTimeout(
                f"nobody answered at {address} within {timeout:g} s: is `plait serve` running there, "
                "and is the key right?"
            )
        if self._failures:
            self.close()
            raise self._failures[0]

    # ------------------------------------------------------------ Backend

    def allocate(self) -> int:
        return self._dispatch.allocate()

    def submit(self, actions: Sequence[Action], listener: Listener) -> None:
        """Also raises RequestError for what the server could not read: it would hang up on all we have there."""
        self._check()
        _, frame = packed(actions)
        self._dispatch.add(actions, listener)
        self._send(frame)

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None:
        self._check()
        self._send(encode(Abort(strand, program)))

    def info(self) -> Info:
        self._check()
        assert self._info is not None
        return self._info

    def close(self) -> None:
        """Abort what runs, then leave. Idempotent; live listeners get Lost."""
        if os.getpid() != self._pid:
            return
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._closed.wait()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------ from any thread

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise BackendError(
                "this connection was made before os.fork() and belongs to the parent process: connect() again here"
            )
        if self._closing or self._closed.is_set():
            raise BackendClosed(f"the connection to {self._name} is closed")

    def _send(self, frame: bytes) -> None:
        self._out.append(frame)
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._wake_write < 0:
                return
            with contextlib.suppress(BlockingIOError):  # the pipe is full of reasons to wake already
                os.write(self._wake_write, b"x")

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        lost = Lost("shutdown", f"the connection to {self._name} was closed")
        try:
            lost = self._loop() or lost
        except Exception as error:  # whatever it is, nobody may wait for ever
            lost = Lost("internal", f"the connection to {self._name} broke: {type(error).__name__}: {error}")
        finally:
            if not self._answered.is_set():
                self._fail(lost)
            self._release()
            self._dispatch.end(lost)
            self._closed.set()

    def _loop(self) -> Lost | None:
        assert self._monitor is not None
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        next_ping = time.monotonic() + self._pulse.interval
        misses = 0
        while True:
            jammed = not self._drain_out()
            if self._closing:
                self._farewell()
                return None
            poller.modify(self._socket, zmq.POLLIN | (zmq.POLLOUT if jammed else 0))
            ready = dict(poller.poll(max(0, round((next_ping - time.monotonic()) * 1000))))
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            # What has arrived is heard before any clock is asked: a listener may have held this thread for long.
            heard, lost = self._drain_in()
            if lost is not None:
                return lost
            if heard:
                misses = 0
            if self._monitor in ready and self._disconnected(self._monitor):
                return Lost("internal", f"the server at {self._name} went away")
            if time.monotonic() >= next_ping and self._info is not None:
                if misses >= self._pulse.misses:
                    seconds = self._pulse.misses * self._pulse.interval
                    return Lost("internal", f"the server at {self._name} has not answered for {seconds:g} s")
                misses += 1
                self._out.append(encode(Ping(misses)))
            if time.monotonic() >= next_ping:
                next_ping = time.monotonic() + self._pulse.interval

    def _drain_out(self) -> bool:
        """False when the socket takes no more for now."""
        while self._out:
            try:
                self._socket.send(self._out[0], zmq.NOBLOCK)
            except zmq.Again:
                return False
            self._out.popleft()
        return True

    def _drain_in(self) -> tuple[bool, Lost | None]:
        heard = False
        while True:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return heard, None
            heard = True
            try:
                message = decode_front(frame)
            except (msgspec.DecodeError, ValueError) as error:
                return True, Lost("internal", f"the server at {self._name} sent a frame that cannot be read: {error}")
            if isinstance(message, Batch):
                self._dispatch.take(message.events)
            elif isinstance(message, Welcome):
                self._info = message.info
                self._answered.set()
            elif isinstance(message, Lost):
                return True, message

    def _disconnected(self, monitor: zmq.Socket[bytes]) -> bool:
        from zmq.utils.monitor import recv_monitor_message

        gone = False
        while monitor.poll(0):
            recv_monitor_message(monitor)
            gone = True
        return gone and self._info is not None

    def _fail(self, lost: Lost) -> None:
        mismatch = lost.code == "invalid_request" and "protocol" in lost.message
        self._failures.append((ProtocolMismatch if mismatch else BackendError)(lost.message))
        self._answered.set()

    def _farewell(self) -> None:
        """Free what is still running on the server without waiting for its lease."""
        for strand in self._dispatch.strands:
            self._out.append(encode(Abort(strand=strand)))
        self._drain_out()
        self._socket.linger = 500

    def _release(self) -> None:
        with self._lock:
            for descriptor in (self._wake_read, self._wake_write):
                if descriptor >= 0:
                    os.close(descriptor)
            self._wake_read = self._wake_write = -1
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        self._socket.close()  # with its own linger
        self._context.term()
