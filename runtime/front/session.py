"""One client's strands and programs, and the events it has not been sent yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..protocol import (
    Abort,
    Batch,
    ClientMessage,
    Closed,
    Delta,
    Done,
    Failed,
    Fragment,
    FrontMessage,
    Hello,
    Lost,
    Ping,
    Pong,
    PromptLogprobs,
    Welcome,
)
from .strand import Program, Strand

if TYPE_CHECKING:
    from .front import Front

#: Called on the front's event loop, in order; must return quickly and never raise.
Deliver = Callable[[FrontMessage], None]


class Session:
    """Made by :meth:`Front.open_session`. All methods run on the front's event loop."""

    def __init__(self, front: Front, number: int, session_id: str, deliver: Deliver) -> None:
        self._front = front
        self.number = number
        self.id = session_id
        self.deliver = deliver
        self.strands: dict[int, Strand] = {}
        self.programs: dict[int, Program] = {}
        self.program_of: dict[int, Program] = {}  # of live strands and of closed ones whose program lives
        self.hidden: dict[Strand, None] = {}  # children that n > 1 made, still running
        self.closed = False
        self._out: list[Delta | PromptLogprobs | Done | Failed | Closed] = []

    def receive(self, message: ClientMessage) -> None:
        """Take one message of the client. Bad requests are answered by Failed; nothing is raised."""
        match message:
            case Fragment():
                self._front.intake.apply(self, message.actions)
            case Abort():
                self._front.intake.abort(self, message)
            case Ping():
                self.deliver(Pong(message.token))
            case Hello():
                self.deliver(Welcome(self._front.info))

    def emit(self, event: Delta | PromptLogprobs | Done | Failed | Closed) -> None:
        if not self._out:
            self._front.unsent.append(self)
        self._out.append(event)

    def flush(self) -> None:
        events = tuple(self._out)
        self._out.clear()
        if events and not self.closed:
            self.deliver(Batch(events))

    def end(self, code: str, message: str) -> None:
        """Abort everything this session has and tell the client that it is over. Idempotent."""
        if self.closed:
            return
        self.flush()
        self.closed = True
        self._front.end_session(self)
        self.deliver(Lost(code, message))
