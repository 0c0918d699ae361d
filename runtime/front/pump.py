"""A ZeroMQ socket on an asyncio loop, without a task or a future per message.

ZeroMQ's descriptor is edge-triggered: after every send and every receive the socket's events must be looked at
again, or a message may lie unnoticed. This class is the one place that knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import zmq

log = logging.getLogger(__name__)

_AT_ONCE = 256  # frames taken before other work of the loop has its turn


class SocketPump:
    """Calls ``on_frames`` with each message (a list of frames), on the running loop."""

    def __init__(self, socket: zmq.Socket[bytes], on_frames: Callable[[list[bytes]], None]) -> None:
        self.socket = socket
        self._on_frames = on_frames
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._scheduled = False
        self._closed = False
        self._loop.add_reader(self._descriptor, self.drain)
        self._again()

    def drain(self) -> None:
        """Take what has arrived."""
        self._scheduled = False
        for _ in range(_AT_ONCE):
            if self._closed:
                return
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError as error:
                if error.errno in (zmq.ETERM, zmq.ENOTSOCK):
                    return
                raise
            try:
                self._on_frames(frames)
            except Exception:  # one frame's fault must not stop the socket
                log.exception("a frame could not be handled")
        self._again()

    def send(self, frames: list[bytes]) -> None:
        """Raises zmq.Again when the peer's queue is full, and what else the socket raises."""
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        finally:
            self._again()

    def close(self, linger_ms: int = 0) -> None:
        """Idempotent; what was not sent after ``linger_ms`` is dropped."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
            self.socket.close(linger=linger_ms)

    def _again(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self.drain)
