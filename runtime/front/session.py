"""One client's strands and programs, and the events it has not been sent yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..protocol import (
    Abort,
    Batch,
    ClientMessage,
    Closed,
    Delta,
    Done,
    Extend,
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

_STEPS = 64  # of one client before the next has its turn
_OVER = object()

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
        self.backlog = 0  # ops and actions that were sent and are not done with
        self._inbox: deque[Fragment | Abort] = deque()
        self._message: Fragment | Abort = Fragment(())  # at work
        self._steps: Iterator[None] | None = None  # of it
        self._out: list[Delta | PromptLogprobs | Done | Failed | Closed] = []

    def receive(self, message: ClientMessage) -> None:
        """Take one message of the client. Bad requests are answered by Failed; nothing is raised."""
        match message:
            case Fragment() | Abort():
                if not self.closed:
                    self._inbox.append(message)
                    self.backlog += _ops(message)
                    self._front.ask(self)
            case Ping():
                self.deliver(Pong(message.token))
            case Hello():
                self.deliver(Welcome(self._front.info))

    def work(self) -> bool:
        """Do some of what the client asks; whether there is more."""
        for _ in range(_STEPS):
            if self._steps is None:
                if not self._inbox:
                    return False
                self._message = self._inbox.popleft()
                self._steps = self._front.intake.steps(self, self._message)
            if next(self._steps, _OVER) is _OVER:
                self._steps = None
                self.backlog -= _ops(self._message)
        return True

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
        self._inbox.clear()
        self._steps = None
        self.backlog = 0
        self._front.end_session(self)
        self.deliver(Lost(code, message))


def _ops(message: Fragment | Abort) -> int:
    if isinstance(message, Abort):
        return 1
    return sum(1 + len(action.ops) if isinstance(action, Extend) else 1 for action in message.actions)
