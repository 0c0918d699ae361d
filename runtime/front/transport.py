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
from .pump import SocketPump
from .session import Session

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)

_RETRY, _RETRY_MOST = 0.01, 0.16  # seconds until full clients are tried again; doubles while one stays full
_BATCH = 2_000  # events of one frame after a jam
_HEARTBEAT_MS = 10_000

WireEvent = Delta | PromptLogprobs | Done | Failed | Closed


class Waiting:
    """What a client could not be sent yet. Grows with its strands, not with time: deltas of one gen merge."""

    def __init__(self) -> None:
        self._messages: list[FrontMessage] = []
        self._events: list[WireEvent] = []
        self._delta: dict[tuple[int, int, int], int] = {}  # where the open delta of a gen stands

    def __bool__(self) -> bool:
        return bool(self._messages or self._events)

    def add(self, message: FrontMessage) -> None:
        if not isinstance(message, Batch):
            if not isinstance(message, Pong) or message not in self._messages:
                self._messages.append(message)
            return
        for event in message.events:
            if isinstance(event, Closed | PromptLogprobs):
                self._events.append(event)
                continue
            key = (event.strand, event.op, event.choice)
            if not isinstance(event, Delta):
                self._delta.pop(key, None)
                self._events.append(event)
                continue
            at = self._delta.get(key)
            if at is None:
                self._delta[key] = len(self._events)
                self._events.append(event)
                continue
            first = self._events[at]
            assert isinstance(first, Delta)
            self._events[at] = msgspec.structs.replace(
                first,
                text=first.text + event.text,
                ids=first.ids + event.ids,
                logprobs=first.logprobs + event.logprobs,
            )

    def take(self) -> list[FrontMessage]:
        """Everything, as messages; Welcome and Pong first, Lost last."""
        batches = [Batch(tuple(self._events[at : at + _BATCH])) for at in range(0, len(self._events), _BATCH)]
        last = [message for message in self._messages if isinstance(message, Lost)]
        messages = [*(m for m in self._messages if not isinstance(m, Lost)), *batches, *last]
        self._messages, self._events, self._delta = [], [], {}
        return messages


class Peer:
    """One client: its connection, its session, what waits for it."""

    def __init__(self, transport: Transport, identity: bytes, now: float) -> None:
        self._transport = transport
        self.identity = identity
        self.session: Session | None = None
        self.heard = now
        self.waiting = Waiting()

    def deliver(self, message: FrontMessage) -> None:
        if self.waiting:
            self.waiting.add(message)
        elif isinstance(message, Batch):
            self._events(message.events)
        elif not self._transport.push(self, encode(message)):
            self.waiting.add(message)

    def _events(self, events: tuple[WireEvent, ...]) -> None:
        while events:
            frame, count = fill(Batch, events)
            if not self._transport.push(self, frame):
                self.waiting.add(Batch(events))
                return
            events = events[count:]


class Transport:
    """Serves one front at one address."""

    def __init__(self, front: Front, address: str) -> None:
        self._front = front
        self._address = addresses.parse(address)
        self._peers: dict[bytes, Peer] = {}  # by connection
        self._by_session: dict[str, Peer] = {}
        self._gone: list[Peer] = []
        self._retry: asyncio.TimerHandle | None = None
        self._pause = _RETRY
        self._probe: asyncio.TimerHandle | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._pump: SocketPump | None = None
        self.endpoint = ""

    def start(self) -> None:
        """Bind. Raises BackendError or InvalidValue. Call it on the front's loop."""
        self._context = zmq.Context()
        socket = self._context.socket(zmq.ROUTER)
        lease = self._front.settings.lease
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            # A paused process answers no heartbeat either: its lease, not the wire, must end it.
            (zmq.HEARTBEAT_TIMEOUT, int(lease * 1000) + _HEARTBEAT_MS),
        ):
            socket.setsockopt(option, value)
        try:
            self.endpoint = addresses.bind(socket, self._address)
        except BaseException:
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
            self._gone.append(peer)
            asyncio.get_running_loop().call_soon(self._bury)
        return True

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
        waiting = [peer for peer in self._by_session.values() if peer.waiting]
        for peer in waiting:
            for message in peer.waiting.take():
                peer.deliver(message)
        if not any(peer.waiting for peer in waiting):
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
            else:
                peer.deliver(Pong(0))
        self._bury()
        self._schedule_probe()

    def _bury(self) -> None:
        gone, self._gone = self._gone, []
        for peer in gone:
            if self._peers.get(peer.identity) is peer:
                self._end(peer, "lease_expired", "the client is gone")

    def _end(self, peer: Peer, code: str, message: str) -> None:
        session = peer.session
        self._peers.pop(peer.identity, None)
        if session is not None:
            self._by_session.pop(session.id, None)
            session.end(code, message)
