"""The front's record of a strand: what it holds, what the core was asked, what the client still waits for.

::

    queue     ops not lowered yet (a VarRef, a Join, a compiler or the parent's fork is awaited)
    segments  text lowered but not encoded: no hard token edge came yet
    inflight  core ops sent and not answered, in order; Appends are silent and go with the next answer
    ids       every id before ``inflight``; None until the parent's ForkAt is answered
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .. import wire
from ..protocol import MAX_N, Close, Failed, Fork, Gen, Op, Usage
from .chat import Part, Wrap
from .text import TextStream

if TYPE_CHECKING:
    from .encoding import Job
    from .session import Session


@dataclass(frozen=True, slots=True)
class Barrier:
    """A Join, with the last op that each child had when the Join arrived."""

    op: int
    targets: tuple[tuple[int, int], ...]  # (child, last op)
    append: bool


Answered = Op | Fork | Barrier  # has an op number
Item = Answered | Close


class OpError(Exception):
    """An op is refused or fails; becomes its Failed."""

    def __init__(self, code: str, message: str, field: str | None = None, cause_op: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.cause_op = cause_op


@dataclass(slots=True)
class Running:
    """What one Sample produced so far."""

    stream: bool
    text: TextStream = field(default_factory=TextStream)
    sampled: list[int] = field(default_factory=list)  # every id, sampled or forced, in order: the replay record
    settled: int = 0  # of sampled: can no longer be cut
    wrapped: int = 0  # of sampled: stand in place of others, see Usage
    shown: int = 0  # of sampled: sent in deltas
    logprobs: list[wire.CoreLogprob] = field(default_factory=list)


@dataclass(slots=True)
class Inflight:
    """One core op and how far it is."""

    op: wire.CoreOp
    started: Usage | None = None
    running: Running | None = None
    notes: tuple[str, ...] = ()  # of a Sample: what its constraint relaxes
    field: str = "constraint"  # of a Sample: as what its client sent the constraint
    choices: tuple[str, ...] = ()  # of a Select
    children: tuple[Strand, ...] = ()  # of a ForkAt
    hidden: bool = False  # a ForkAt that n > 1 made, a ScorePrompt: the client is not told
    before: Usage | None = None  # what hidden ops before it (ScorePrompt, ForkAt) computed of its prompt
    told: int = 0  # of a ScorePrompt: numbers that the client has
    heard: int = 0  # ... and that the core of now has said

    @property
    def answered(self) -> bool:
        """The core answers it (an Append is silent)."""
        return not isinstance(self.op, wire.Append)


@dataclass(slots=True)
class Turn:
    """One message of a conversation; ``content`` has the text of gens once they are done."""

    role: str
    content: list[str | tuple[int, int, int]]  # text, or (strand, op, choice) of a gen or select
    wrap: Wrap | None = None  # how it is written; None where the conversation is rendered anew


@dataclass(slots=True)
class Chat:
    """Where a strand stands in its conversation."""

    turns: list[Turn] = field(default_factory=list)
    open: bool = False  # inside the last turn
    suffix: str = ""  # how the open turn will end
    strips: bool = False  # the template strips whitespace around contents
    fresh: bool = False  # nothing of the open turn's content came yet
    rerender: bool = False  # the template does not extend: render everything again at each gen
    lead: list[Part] = field(default_factory=list)  # raw text before the first turn, kept for re-rendering
    mixed: bool = False  # raw text or ids after the first turn, outside of one
    #: prefixes, contents and suffixes, joined what the conversation came to; None once a gen is among them
    plain: list[str] | None = field(default_factory=list)
    #: an assistant's turn began, and nobody has looked whether the template writes what came to stand before it:
    #: (turns before it, pieces of `plain` up to its content)
    unseen: tuple[int, int] | None = None
    guessed: bool = False  # a turn was written as in a shorter conversation, and nobody has looked since

    def copy(self) -> Chat:
        turns = [replace(turn, content=list(turn.content)) for turn in self.turns]
        plain = None if self.plain is None else list(self.plain)
        return replace(self, turns=turns, lead=list(self.lead), plain=plain)


@dataclass(slots=True)
class Program:
    """All strands of one run. A VarRef may ask for a text until the last strand is forgotten, and may read it later."""

    number: int
    strands: dict[int, Strand] = field(default_factory=dict)
    texts: dict[tuple[int, int, int], str | OpError] = field(default_factory=dict)
    gone: dict[int, Gone] = field(default_factory=dict)


@dataclass(slots=True)
class Gone:
    """What a Join may still ask of a strand that is closed."""

    parent: Strand | None
    added: list[int]
    cause: OpError | None


class Strand:
    """One strand of a client, or one hidden child of a gen with n > 1 (``choice`` > 0)."""

    __slots__ = (
        "aborting",
        "born",
        "cause",
        "chat",
        "choice",
        "close_sent",
        "closing",
        "empty",
        "encoding",
        "fork_length",
        "gone",
        "ids",
        "inflight",
        "key",
        "known",
        "last_death",
        "last_op",
        "namespace",
        "number",
        "parent",
        "priority",
        "program",
        "queue",
        "referred",
        "segments",
        "session",
        "sid",
        "trials",
        "unfinished",
        "waits",
        "watchers",
    )

    def __init__(
        self,
        session: Session,
        program: Program,
        number: int,
        sid: int,
        key: bytes,
        *,
        parent: Strand | None = None,
        namespace: str = "",
        priority: int = 0,
        choice: int = 0,
    ) -> None:
        self.session = session
        self.program = program
        self.number = number
        self.sid = sid
        self.key = key
        self.parent = parent
        self.namespace = namespace
        self.priority = priority
        self.choice = choice
        self.queue: deque[Item] = deque()
        self.referred: dict[
            int, Program
        ] = {}  # op of a VarRef in the queue -> whose text it wants, even once that ended
        self.segments: list[Part] = []
        self.inflight: deque[Inflight] = deque()
        self.ids: list[int] | None = [] if parent is None else None
        self.fork_length = 0  # ids taken over from the parent
        self.known = 0  # tokens that are certain: ids and Appends; running gens may add more
        self.empty = True  # holds no ids, even when everything sent is done
        self.born = parent is None  # its ForkAt is on its way to the core: ops may be lowered
        self.chat = Chat()
        self.encoding: dict[Hashable, Job] = {}  # what is encoded beside the loop
        self.cause: OpError | None = None  # why later ops fail
        self.last_op = -1
        self.unfinished: dict[int, set[int]] = {}  # op -> choices not answered
        self.watchers: dict[Strand, None] = {}  # strands whose next op waits for something of this one
        self.waits: tuple[tuple[Strand, int], ...] = ()  # whose progress the op at the head of the queue waits for
        self.closing = False
        self.close_sent = False
        self.aborting = False
        self.gone = False
        self.last_death = float("-inf")
        self.trials = 0  # how often it was alone in the core, to see whether it kills

    @property
    def hidden(self) -> bool:
        return self.choice > 0

    @property
    def head(self) -> Inflight | None:
        """The core op that is answered next."""
        for entry in self.inflight:
            if entry.answered:
                return entry
        return None

    @property
    def running(self) -> bool:
        """The core may be computing for it now."""
        return self.ids is not None and self.head is not None

    def first_pending(self) -> int | None:
        """The earliest op that is neither done nor failed, or lowered if it is silent."""
        ops = [*self.unfinished, *(item.op for item in self.queue if not isinstance(item, Close))]
        return min(ops, default=None)

    def added(self) -> list[int]:
        """Ids since the fork, up to the first core op that is not answered yet."""
        ids = list((self.ids or [])[self.fork_length :])
        for entry in self.inflight:
            if not isinstance(entry.op, wire.Append):
                break
            ids += entry.op.ids
        return ids

    def recount(self) -> None:
        """Bring ``known`` up to date once an answer said how long something was."""
        self.known = len(self.ids or ())
        for entry in self.inflight:
            if isinstance(entry.op, wire.Append):
                self.known += len(entry.op.ids)
            elif isinstance(entry.op, wire.Score):
                self.known += min(len(ids) for ids in entry.op.choices)


def choices_of(item: Item) -> range:
    """The choices that are answered one by one. An ``n`` that cannot be right must not make us count to it."""
    return range(item.n) if isinstance(item, Gen) and 1 <= item.n <= MAX_N else range(1)


def failure(strand: int, op: int, choice: int, error: OpError) -> Failed:
    return Failed(
        strand=strand,
        op=op,
        choice=choice,
        code=error.code,
        field=error.field,
        message=error.message,
        cause_op=error.cause_op if error.code == "upstream" else None,
    )


def consequence(cause: OpError) -> OpError:
    """How a later op fails once ``cause`` is why the strand ended."""
    if cause.cause_op is None or cause.code == "upstream":
        return cause
    return OpError("upstream", f"op {cause.cause_op} failed: {cause.message}", None, cause.cause_op)


def opening(strand: Strand) -> wire.OpenStrand:
    return wire.OpenStrand(sid=strand.sid, namespace=strand.namespace, priority=strand.priority)
