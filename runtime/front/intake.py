"""What clients ask for: strands opened, extended, forked, joined, closed and aborted. Refusals happen here, early."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .. import salt, wire
from ..protocol import Abort, Action, Close, Closed, Extend, Fork, Fragment, Gen, Ids, Join, Open, Text, VarRef
from . import seeds
from .strand import Answered, Barrier, OpError, Program, Strand, choices_of, consequence, failure
from .validate import check

if TYPE_CHECKING:
    from .front import Front
    from .session import Session


log = logging.getLogger(__name__)


class Intake:
    """Applies clients' messages to the front's records."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def steps(self, session: Session, message: Fragment | Abort) -> Iterator[None]:
        """Apply a client's message, in steps that each take next to no time."""
        if isinstance(message, Abort):
            yield from self._abort_all(session, message)
            return
        for action in message.actions:
            try:
                if isinstance(action, Extend):
                    for op in action.ops:
                        self._accept(session, action.strand, op)
                        yield
                else:
                    self._apply(session, action)
            except Exception as error:  # a malformed action of a client in this process; the codec catches others
                log.exception("%s could not be applied", type(action).__name__)
                self._malformed(session, action, error)
            yield

    def _apply(self, session: Session, action: Action) -> None:
        match action:
            case Open():
                self._open(session, action)
            case Fork():
                self._fork(session, action)
            case Join():
                self._join(session, action)
            case Close():
                self._close(session, action)
            case _:
                raise TypeError(f"{type(action).__name__} is not an action")

    def _malformed(self, session: Session, action: Action, error: Exception) -> None:
        """The strand takes nothing more, and says why at the op that cannot be read."""
        strand = session.strands.get(getattr(action, "strand", 0))
        if strand is None:
            return
        strand.last_op += 1
        self._front.fail(strand, strand.last_op, OpError("invalid_request", f"malformed: {error}"))

    def _open(self, session: Session, action: Open) -> None:
        front = self._front
        if action.strand in session.program_of:
            found = session.strands.get(action.strand)
            if found is not None and found.cause is None:  # an Open has no answer: its next op tells
                found.cause = OpError("invalid_request", f"strand {action.strand} was opened twice", "strand")
            return
        if self._overflows:
            return
        seed = seeds.draw() if action.seed is None else action.seed
        valid = -(2**63) <= seed < 2**64
        program = self._program(session, action.program)
        strand = front.new_strand(session, program, action.strand, seeds.root_key(seed if valid else 0))
        strand.priority = action.priority
        unfit = salt.problem(action.salt, "salt")
        if front.live > front.settings.max_strands:
            strand.cause = self._full()
        elif not valid:
            strand.cause = OpError("invalid_value", f"seed must be a 64-bit whole number, not {seed!r}", "seed")
        elif unfit is not None:
            strand.cause = OpError("invalid_value", unfit, "salt")
        else:
            strand.namespace = salt.digest(action.salt)
            front.open_core(strand)

    def _program(self, session: Session, number: int) -> Program:
        program = session.programs.get(number)
        if program is None:
            program = session.programs[number] = Program(number)
        return program

    @property
    def _overflows(self) -> bool:
        """So many strands were refused, and not closed yet, that no more are even recorded as refused."""
        return self._front.live >= 2 * self._front.settings.max_strands

    def _full(self) -> OpError:
        limit = self._front.settings.max_strands
        return OpError("queue_full", f"the server already holds {limit} strands: try again later")

    # ------------------------------------------------------------ ops

    def _accept(self, session: Session, number: int, item: Answered, problem: OpError | None = None) -> bool:
        """Queue one op, or say at once what is wrong with it (``problem``: what the caller found)."""
        front = self._front
        strand = session.strands.get(number)
        if strand is None or strand.closing or (strand.queue and isinstance(strand.queue[-1], Close)):
            state = "is closed" if number in session.program_of else "does not exist in this session: open it first"
            error = OpError("invalid_request", f"strand {number} {state}", "strand")
            if strand is None and self._overflows:
                error = self._full()
        elif item.op <= strand.last_op:
            error = OpError(
                "invalid_request", f"ops of a strand must rise: op {item.op} came after op {strand.last_op}", "op"
            )
        else:
            return self._queue(strand, item, problem)
        for choice in choices_of(item):
            session.emit(failure(number, item.op, choice, error))
        front.metrics.failed[error.code] += 1
        return False

    def _queue(self, strand: Strand, item: Answered, problem: OpError | None) -> bool:
        front = self._front
        strand.last_op = item.op
        if not isinstance(item, Text | Ids | VarRef):
            strand.unfinished[item.op] = set(choices_of(item))
            front.pending += len(strand.unfinished[item.op])
        if strand.cause is not None:  # as did every op since, so nothing else has to be ended
            for choice in choices_of(item):
                front.failed(strand, item.op, choice, consequence(strand.cause))
            return False
        error = problem or check(item, front.model, front.settings)
        if error is None and len(strand.queue) + len(strand.inflight) >= front.settings.max_strand_ops:
            limit = front.settings.max_strand_ops
            error = OpError("queue_full", f"{limit} ops of this strand are waiting already: read something first")
        if error is None and front.pending > front.settings.max_pending_ops:
            limit = front.settings.max_pending_ops
            error = OpError("queue_full", f"{limit} answers are owed already: try again later")
        if error is not None:
            front.fail(strand, item.op, error)
            return False
        if isinstance(item, Gen):
            front.constraints.prefetch(item.constraint, item.sampling, strand)
        if isinstance(item, VarRef) and (program := strand.session.program_of.get(item.strand)) is not None:
            strand.referred[item.op] = program
        strand.queue.append(item)
        front.wake(strand)
        return True

    def _fork(self, session: Session, fork: Fork) -> None:
        front = self._front
        parent = session.strands.get(fork.strand)
        problem: OpError | None = None
        taken = [number for number in fork.children if number in session.program_of]
        if taken or len(set(fork.children)) < len(fork.children):
            again = taken[0] if taken else "of one number twice"
            problem = OpError("invalid_request", f"cannot fork into strand {again}: it exists already", "children")
        children: list[Strand] = []
        program = parent.program if parent is not None else self._program(session, 0)
        for index, number in enumerate(dict.fromkeys(fork.children)):
            if number not in taken and not self._overflows:
                key = seeds.child_key(parent.key if parent is not None else b"", fork.op, index)
                children.append(front.new_strand(session, program, number, key, parent))
        if problem is None and front.live > front.settings.max_strands:
            problem = self._full()
        if not self._accept(session, fork.strand, fork, problem):
            why = OpError("upstream", f"the fork of strand {fork.strand} failed", None, fork.op)
            if parent is not None and parent.cause is not None:
                why = consequence(parent.cause)
            for child in children:
                front.kill(child, why)

    def _join(self, session: Session, join: Join) -> None:
        parent = session.strands.get(join.strand)
        targets: list[tuple[int, int]] = []
        problem: OpError | None = None
        for number in join.children if parent is not None else ():
            program = session.program_of.get(number)
            child = session.strands.get(number)
            origin = child.parent if child is not None else program.gone[number].parent if program is not None else None
            while origin is not None and origin is not parent:
                origin = origin.parent
            if origin is None:
                problem = OpError("invalid_request", f"strand {number} is no child of {join.strand}", "children")
            targets.append((number, child.last_op if child is not None else -1))
        self._accept(session, join.strand, Barrier(join.op, tuple(targets), join.append), problem)

    def _close(self, session: Session, close: Close) -> None:
        strand = session.strands.get(close.strand)
        if strand is None:
            session.emit(Closed(close.strand))
        elif strand.cause is not None and not strand.queue:
            self._front.shut(strand)
        elif not strand.closing and not (strand.queue and isinstance(strand.queue[-1], Close)):
            strand.queue.append(close)
            self._front.wake(strand)

    # ------------------------------------------------------------ abort

    def _abort_all(self, session: Session, message: Abort) -> Iterator[None]:
        strands: list[Strand | None] = []
        if message.strand is not None:
            strands.append(session.strands.get(message.strand))
        if message.program is not None:
            program = session.programs.get(message.program)
            strands += program.strands.values() if program is not None else ()
        hidden: dict[Strand, list[Strand]] = {}
        for child in session.hidden:
            if child.parent is not None:
                hidden.setdefault(child.parent, []).append(child)
        for strand in strands:
            if strand is not None and not strand.gone:
                self._abort(strand, hidden.get(strand, ()))
            yield

    def _abort(self, strand: Strand, hidden: Sequence[Strand]) -> None:
        """The running op ends with reason "abort", queued ops fail, the strand closes; live children go on."""
        front = self._front
        why = OpError("aborted", "the strand was aborted")
        if strand.cause is None:
            strand.cause = why
        keep = self._stop(strand)
        for child in hidden:
            if not child.gone:
                self._stop(child)
        front.drop_after(strand, keep, why)
        front.constraints.unwanted(strand)
        front.shut(strand)

    def _stop(self, strand: Strand) -> int:
        """Tell the core; the op that will still be answered (with reason "abort"), or -1."""
        front = self._front
        head = strand.head
        if strand.aborting:
            return head.op.op if head is not None else -1
        strand.aborting = True
        if strand.sid in front.sids:
            front.send(wire.AbortStrand(sid=strand.sid))
            strand.close_sent = True
        if head is not None and head.started is not None and isinstance(head.op, wire.Sample):
            return head.op.op
        front.sids.pop(strand.sid, None)
        if strand.hidden:
            front.kill(strand, OpError("aborted", "the strand was aborted"))
        return -1
