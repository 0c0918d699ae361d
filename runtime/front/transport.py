"""Clients over ZeroMQ: a ROUTER that never blocks and never drops, sessions with leases.

::

    deliver ── nothing waits ──> send ── EAGAIN ──> waiting: deltas of one gen merge, everything else queues
                                      ── EHOSTUNREACH ──> the client is gone: its session ends at once

A client that is merely paused (a debugger, a stopped process) keeps its connection, and its strands, until a lease
without a sign of life ends them. ``Hello`` with the id of a live session takes it up again, from any connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING

import msgspec
import zmq

from .. import address as addresses
from ..descriptors import check_spare, clients_that_fit
from ..protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Batch,
    ClientMessage,
    Closed,
    Delta,
    Done,
    Failed,
    FrontMessage,
    Hello,
    Lost,
    Pong,
    PromptLogprobs,
    Welcome,
    decode_client,
    encode,
    fill,
)
from ..sizes import merged, size_of
from .door import Door
from .pump import SocketPump
from .session import Session

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)

_RETRY, _RETRY_MOST = 0.01, 0.16  # seconds until full clients are tried again; doubles while one stays full
_BATCH = 256  # events of one frame after a jam
_FRAMES = 256  # that the library keeps of one client before it says that it is full
_HEARTBEAT_MS = 10_000
_TOLD = 16  # more connections than sessions: whoever finds all taken is told so
_HANDSHAKE_MS = 10_000  # a connection that says nothing is closed

WireEvent = Delta | PromptLogprobs | Done | Failed | Closed


class Waiting:
    """What a client could not be sent yet. Deltas of one gen merge, so that it grows with their text alone."""

    def __init__(self) -> None:
        self.size = 0  # bytes, about
        self._messages: list[FrontMessage] = []
        self._events: list[WireEvent | list[Delta]] = []
        self._delta: dict[tuple[int, int, int], list[Delta]] = {}  # the open deltas of a gen

    def __bool__(self) -> bool:
        return bool(self._messages or self._events)

    def add(self, message: FrontMessage) -> None:
        if not isinstance(message, Batch):
            if not isinstance(message, Pong) or message not in self._messages:
                self._messages.append(message)
            return
        for event in message.events:
            self.size += size_of(event)
            if isinstance(event, Closed | PromptLogprobs):
                self._events.append(event)
                continue
            key = (event.strand, event.op, event.choice)
            if not isinstance(event, Delta):
                self._delta.pop(key, None)
                self._events.append(event)
                continue
            found = self._delta.get(key)
            if found is None:
                found = self._delta[key] = []
                self._events.append(found)
            found.append(event)

    def take(self) -> list[FrontMessage]:
        """Everything, as messages; Welcome and Pong first, Lost last."""
        events = [merged(item) if isinstance(item, list) else item for item in self._events]
        batches = [Batch(tuple(events[at : at + _BATCH])) for at in range(0, len(events), _BATCH)]
        last = [message for message in self._messages if isinstance(message, Lost)]
        messages = [*(m for m in self._messages if not isinstance(m, Lost)), *batches, *last]
        self._messages, self._events, self._delta, self.size = [], [], {}, 0
        return messages


class Peer:
    """One client: its connection, its session, what waits for it."""

    def __init__(self, transport: Transport, identity: bytes, now: float) -> None:
        self._transport = transport
        self.identity = identity
        self.session: Session | None = None
        self.heard = now
        self.waiting = Waiting()
        self.held: bytes | None = None  # a frame that the connection did not take; what waits is behind it
        self.stuck = now  # since when it takes nothing

    @property
    def blocked(self) -> bool:
        return self.held is not None or bool(self.waiting)

    @property
    def unread(self) -> int:
        return len(self.held or b"") + self.waiting.size

    def deliver(self, message: FrontMessage) -> None:
        if self.blocked:
            self.waiting.add(message)
            self._transport.bound(self)
        elif isinstance(message, Batch):
            self._events(message.events)
        else:
            self._send(encode(message))

    def flush(self) -> None:
        """Try again what waits."""
        if self.held is not None:
            frame, self.held = self.held, None
            if not self._send(frame):
                return
        for message in self.waiting.take():
            self.deliver(message)

    def _events(self, events: tuple[WireEvent, ...]) -> None:
        while events:
            frame, count = fill(Batch, events)
            events = events[count:]
            if not self._send(frame):
                if events:
                    self.waiting.add(Batch(events))
                self._transport.bound(self)
                return

    def _send(self, frame: bytes) -> bool:
        if self._transport.push(self, frame):
            self.stuck = self._transport.now()
            return True
        self.held = frame
        return False


class Transport:
    """Serves one front at one address."""

    def __init__(self, front: Front, address: str) -> None:
        self._front = front
        self._address = addresses.parse(address)
        self._peers: dict[bytes, Peer] = {}  # by connection
        self._by_session: dict[str, Peer] = {}
        self._gone: list[tuple[Peer, str]] = []  # with what to say of them
        self._retry: asyncio.TimerHandle | None = None
        self._pause = _RETRY
        self._probe: asyncio.TimerHandle | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._pump: SocketPump | None = None
        self._door: Door | None = None
        self.endpoint = ""

    def start(self) -> None:
        """Bind. Raises BackendError or InvalidValue. Call it on the front's loop."""
        check_spare()
        self._context = zmq.Context()
        socket = self._context.socket(zmq.ROUTER)
        lease = self._front.settings.lease
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, _FRAMES),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE_MS),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            # A paused process answers no heartbeat either: its lease, not the wire, must end it.
            (zmq.HEARTBEAT_TIMEOUT, int(lease * 1000) + _HEARTBEAT_MS),
        ):
            socket.setsockopt(option, value)
        self._door = Door(socket, clients_that_fit(self._front.settings.max_sessions + _TOLD))
        try:
            self.endpoint = addresses.bind(socket, self._address)
        except BaseException:
            self._door.close()
            socket.close(linger=0)
            self._context.destroy(linger=0)
            raise
        self._pump = SocketPump(socket, self._receive)
        self._schedule_probe()

    def close(self) -> None:
        """End every session and the socket. Idempotent."""
        for peer in list(self._by_session.values()):
            if peer.session is not None:
                peer.session.end("shutdown", "the runtime was shut down")
        for handle in (self._retry, self._probe):
            if handle is not None:
                handle.cancel()
        if self._pump is not None and self._context is not None:
            if self._door is not None:
                self._door.close()
            self._pump.close(linger_ms=200)  # the last word, Lost, should leave
            self._context.term()
            self._context = None
            if self._address.path is not None:
                self._address.path.unlink(missing_ok=True)

    # ------------------------------------------------------------ from clients

    def _receive(self, frames: list[bytes]) -> None:
        identity, payload = frames[0], frames[-1]
        peer = self._peers.get(identity)
        try:
            message = decode_client(payload)
        except (msgspec.DecodeError, ValueError) as error:  # ValidationError is a DecodeError
            self._refuse(identity, f"a frame cannot be read: {error}")
            return
        if isinstance(message, Hello):
            self._hello(identity, message)
        elif peer is None or peer.session is None or peer.session.closed:
            self._say(identity, Lost("lease_expired", "this session is over (or never said Hello): connect again"))
        else:
            self._take(peer, message)

    def _take(self, peer: Peer, message: ClientMessage) -> None:
        peer.heard = self._front.settings.clock()
        assert peer.session is not None
        peer.session.receive(message)
        most = self._front.settings.max_backlog_ops
        if peer.session.backlog > most:
            self._end(peer, "queue_full", f"{most:,} ops wait to be looked at already: send them later")
        self._bury()

    def _hello(self, identity: bytes, hello: Hello) -> None:
        if hello.protocol != PROTOCOL_VERSION:
            self._say(
                identity,
                Lost(
                    "invalid_request",
                    f"the server speaks protocol {PROTOCOL_VERSION}, the client protocol {hello.protocol}: "
                    "install the same version of plait on both sides",
                ),
            )
            return
        if not 8 <= len(hello.session) <= 128:
            self._say(identity, Lost("invalid_request", "a session id has 8 to 128 characters"))
            return
        if hello.session not in self._by_session and len(self._by_session) >= self._front.settings.max_sessions:
            self._say(identity, Lost("queue_full", "the server has as many clients as it can take"))
            return
        held = self._peers.get(identity)
        if held is not None and held.session is not None and held.session.id != hello.session:
            self._end(held, "invalid_request", "this connection said Hello for another session")
        peer = self._by_session.get(hello.session)
        if peer is None:
            peer = Peer(self, identity, self._front.settings.clock())
            self._by_session[hello.session] = peer
            peer.session = self._front.open_session(peer.deliver, hello.session)
        else:
            self._peers.pop(peer.identity, None)  # taken up from another connection
            peer.identity = identity
        self._peers[identity] = peer
        peer.heard = self._front.settings.clock()
        peer.deliver(Welcome(self._front.info))
        self._flush()

    def _refuse(self, identity: bytes, message: str) -> None:
        """A client that sends rubbish cannot be trusted to hear answers: its session ends."""
        peer = self._peers.get(identity)
        if peer is not None:
            self._end(peer, "invalid_request", message)
        else:
            self._say(identity, Lost("invalid_request", message))

    # ------------------------------------------------------------ to clients

    def push(self, peer: Peer, frame: bytes) -> bool:
        """Send now. False: the client is full, keep it. A client that is gone takes everything, unread."""
        if self._pump is None:
            return True
        try:
            self._pump.send([peer.identity, frame])
        except zmq.Again:
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(self._pause, self._flush)
            return False
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                log.warning("sending to a client failed: %s", error)
            self._give_up(peer, "the client is gone")
        return True

    def now(self) -> float:
        return self._front.settings.clock()

    def bound(self, peer: Peer) -> None:
        """End a client for which more waits than may."""
        most = self._front.settings.max_unread
        if peer.unread > most:
            self._give_up(peer, f"the client left {most:,} bytes unread: read faster, or ask for less at once")

    def _give_up(self, peer: Peer, message: str) -> None:
        if not self._gone:
            asyncio.get_running_loop().call_soon(self._bury)
        self._gone.append((peer, message))

    def _say(self, identity: bytes, message: FrontMessage) -> None:
        """To somebody without a session; lost if it cannot be sent."""
        try:
            assert self._pump is not None
            self._pump.send([identity, encode(message)])
        except zmq.ZMQError as error:
            log.debug("a stranger could not be answered: %s", error)

    def _flush(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._pause = min(2 * self._pause, _RETRY_MOST)
        blocked = [peer for peer in self._by_session.values() if peer.blocked]
        for peer in blocked:
            peer.flush()
        if not any(peer.blocked for peer in blocked):
            self._pause = _RETRY
        self._bury()

    # ------------------------------------------------------------ leases

    def _schedule_probe(self) -> None:
        self._probe = asyncio.get_running_loop().call_later(self._front.settings.probe, self.probe)

    def probe(self) -> None:
        """Knock at every client: who is gone is noticed even when nothing else is sent; end expired leases."""
        settings = self._front.settings
        now = settings.clock()
        for peer in list(self._by_session.values()):
            if now - peer.heard > settings.lease:
                self._end(
                    peer, "lease_expired", f"the client gave no sign of life for {settings.lease:g} s: run it again"
                )
            elif peer.blocked and now - peer.stuck > settings.lease:
                self._end(peer, "lease_expired", f"the client read nothing for {settings.lease:g} s: run it again")
            else:
                peer.deliver(Pong(0))
        self._bury()
        self._schedule_probe()

    def _bury(self) -> None:
        gone, self._gone = self._gone, []
        for peer, message in gone:
            if self._peers.get(peer.identity) is peer:
                self._end(peer, "lease_expired", message)

    def _end(self, peer: Peer, code: str, message: str) -> None:
        session = peer.session
        self._peers.pop(peer.identity, None)
        if session is not None:
            self._by_session.pop(session.id, None)
            session.end(code, message)
