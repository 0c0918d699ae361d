"""One TCP connection: uvicorn's h11 protocol, with a bound on how long it may wait for its client.

::

    waiting    for a request's head, or for the rest of a body that nobody reads any more
    receiving  a body that a route reads (Bodies has its clock)
    stuck      written to, and the client takes nothing

A sweep once a second (:meth:`Connections.sweep`) ends what waits or is stuck too long. Where all places are taken, a
newcomer gets that of whoever waits longest; only if nobody waits is it turned away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
_FULL_BODY = (
    b'{"error":{"message":"as many connections are open as this server takes: try again later",'
    b'"type":"rate_limit_error","param":null,"code":"too_many_connections"}}'
)
#: A client takes at least this much of what is written, or this part of it, within the time, or is cut off.
_LEAST_TAKEN = 16 * 1024
_LEAST_PART = 100


class Connections:
    """What the connections of one server share. ``most``: open at once. ``head_s``: how long one may wait for a
    request, or the rest of one. ``write_s``: how long one may take nothing of what is written to it."""

    def __init__(self, most: int, head_s: float, write_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.head_s = head_s
        self.write_s = write_s
        self.clock = clock

    def protocol(self) -> type[H11Protocol]:
        """For uvicorn's ``Config(http=...)``."""
        return type("BoundConnection", (Connection,), {"shared": self})

    def sweep(self, connections: Iterable[Any]) -> None:
        now = self.clock()
        for connection in list(connections):
            if isinstance(connection, Connection):
                connection.look(now)

    def make_room(self, newcomer: Connection) -> bool:
        """Ends the one that has waited longest, if all places are taken; False: nobody waits."""
        others = [one for one in newcomer.connections if isinstance(one, Connection) and one is not newcomer]
        others = [one for one in others if not one.ended]
        if len(others) < self.most:
            return True
        idle = [one for one in others if one.waiting] or [one for one in others if one.receiving]
        if idle:
            min(idle, key=lambda one: one.since).end()
        return bool(idle)


class Connection(H11Protocol):
    shared: ClassVar[Connections]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.ended = False
        self.since = self.shared.clock()  # when it began to wait, or to receive
        self._waited = True
        self._left: tuple[int, float] | None = None  # unsent bytes when the client last took some, and when that was
        self.app_state = {**self.app_state, "abort": self.end}
        if not self.shared.make_room(self):
            transport.write(_FULL + b"content-length: %d\r\n\r\n" % len(_FULL_BODY) + _FULL_BODY)
            self.ended = True
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def end(self) -> None:
        """At once, whatever is unsent."""
        self.ended = True
        self.transport.abort()

    @property
    def waiting(self) -> bool:
        theirs = self.conn.their_state
        return theirs is h11.IDLE or (self.conn.our_state is h11.DONE and theirs is h11.SEND_BODY)

    @property
    def receiving(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _note(self) -> None:
        """A wait begins when it was none before: bytes that trickle in do not begin it anew."""
        if self.waiting != self._waited:
            self._waited = self.waiting
            self.since = self.shared.clock()

    def look(self, now: float) -> None:
        if self.waiting and not self.transport.is_closing() and now - self.since > self.shared.head_s:
            self.end()
        elif not (self.flow.write_paused or self.transport.is_closing()):
            self._left = None
        else:
            size = self.transport.get_write_buffer_size()
            if self._left is None or size <= self._left[0] - max(_LEAST_TAKEN, self._left[0] // _LEAST_PART):
                self._left = size, now
            elif now - self._left[1] > self.shared.write_s:
                self.end()
