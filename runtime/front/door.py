"""How many may be connected to a ZeroMQ socket at once.

libzmq accepts whoever comes, and ends the process when no descriptor is left. It tells of each connection that it
accepts, by descriptor: what is too much is shut down there and then, on a thread, since the loop may be busy.
"""

from __future__ import annotations

import contextlib
import logging
import socket as sockets
import struct
import threading

import zmq

log = logging.getLogger(__name__)

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
_FORM = struct.Struct("=HI")  # what happened, and the descriptor


class Door:
    """Watches ``socket`` until :meth:`close`; made before it is bound. ``most``: connections at once."""

    def __init__(self, socket: zmq.Socket[bytes], most: int) -> None:
        self.refused = 0
        self._socket = socket
        self._most = most
        self._inside: set[int] = set()
        self._name: object = None
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self._thread = threading.Thread(target=self._watch, name="plait-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Before the socket is closed."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disable_monitor()
        self._thread.join(5)

    def _watch(self) -> None:
        with contextlib.suppress(zmq.ZMQError):  # the context went
            while True:
                event, descriptor = _FORM.unpack(self._monitor.recv_multipart()[0])
                if event == zmq.EVENT_MONITOR_STOPPED:
                    break
                if event == zmq.EVENT_DISCONNECTED:
                    self._inside.discard(descriptor)
                elif len(self._inside) < self._most:
                    self._inside.add(descriptor)
                    self._name = self._name or _name_of(descriptor)
                else:
                    self._refuse(descriptor)
        self._monitor.close(linger=0)

    def _refuse(self, descriptor: int) -> None:
        """The number may be somebody else's by now, so it is looked at first."""
        if _name_of(descriptor) != self._name:
            return
        if not self.refused:
            log.warning("%d clients are connected, as many as can be: more are turned away", self._most)
        self.refused += 1
        with contextlib.suppress(OSError), sockets.socket(fileno=descriptor) as found:
            try:
                found.shutdown(sockets.SHUT_RDWR)
            finally:
                found.detach()  # libzmq closes it


def _name_of(descriptor: int) -> object:
    """What a connection was made to; None if there is none."""
    try:
        found = sockets.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        return found.getsockname()
    except OSError:
        return None
    finally:
        found.detach()
