"""What runs in this step: three actions that fill a :class:`Turn`, in this order. (What they leave, drafts may have.)

::

    Preempt    a waiting strand of strictly higher priority takes the place of lower ones
    Continue   running strands get their next rows, decode rows first; retraction when the pool is full
    Admit      waiting strands join while rows and slots last
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .batch import Op, Segment
from .capacity import Capacity
from .forking import Forking
from .kit import OpError
from .scoring import Scoring
from .state import State
from .strand import Strand

if TYPE_CHECKING:
    import torch

_WINDOW = 256  # waiting strands that one step looks at, so that a long queue costs a step no more than a short one


@dataclass(slots=True)
class Turn:
    """One step in the making."""

    segments: list[Segment] = field(default_factory=list)
    rows: int = 0  # scheduled
    budget: int = 0  # rows still to give
    closed: bool = False  # no admission any more in this step
    logits: torch.Tensor | None = None
    slices: list[slice] = field(default_factory=list)  # of the logits, by segment


class Preempt:
    """Only a strictly higher priority preempts, so equals never take turns at it."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    def run(self, state: State, turn: Turn) -> None:
        if not state.waiting or not state.running:
            return
        head = state.waiting[0]
        while (victim := self._capacity.victim(below=head.priority)) is not None and self._blocked(state, head):
            state.retract(victim)

    def _blocked(self, state: State, head: Strand) -> bool:
        if not state.running:
            return False
        if len(state.running) >= state.settings.max_running:
            return True
        seq = head.seq
        cached = state.tree.prefix_length(seq.ids[: max(0, seq.n - 1)], seq.namespace)
        return self._capacity.wanted(head) - max(0, cached - seq.kv_len) > self._capacity.room()


class Continue:
    """Every running strand that decodes gets its row; prompts share what is left of the budget, oldest first."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    def run(self, state: State, turn: Turn) -> None:
        self._capacity.relax()
        for strand in list(state.running):
            self._catch_up(state, strand)
        decoding: list[Strand] = []
        filling: list[Strand] = []
        for strand in state.running:
            assert strand.current is not None
            (decoding if strand.current.rows() == 1 else filling).append(strand)
        filling.sort(key=lambda strand: (-strand.priority, strand.arrival))
        turn.budget = state.settings.mixed_tokens if decoding else state.settings.step_tokens
        grants = dict.fromkeys(decoding, 1)
        left = turn.budget - len(decoding)
        for strand in filling:
            assert strand.current is not None
            rows = min(strand.current.rows(), left)
            if rows > 0:
                grants[strand] = rows
                left -= rows
        self._make_room(state, turn, grants)
        for strand, rows in grants.items():
            self._catch_up(state, strand)  # with what an earlier one has put into the tree in this very loop
            op = strand.current
            if op is not None and (rows := min(rows, op.rows())):
                turn.segments += op.schedule(rows, state.pool)
                turn.rows += rows
        turn.budget = max(0, turn.budget - turn.rows)

    def _catch_up(self, state: State, strand: Strand) -> None:
        """A strand in the middle of its prompt takes what another has cached meanwhile. It must: of what two put into
        the tree for the same ids, the tree keeps the first and frees the other's slots, which its rows would write."""
        seq = strand.seq
        if seq.committed == seq.kv_len and seq.n - seq.kv_len > 1 and strand.current is not None:
            seq.attach()
            if isinstance(strand.current, Forking) and not strand.current.rows():
                state.end_fork(strand.current)

    def _make_room(self, state: State, turn: Turn, grants: dict[Strand, int]) -> None:
        """Retract the youngest of the lowest priority until the grants fit. A strand alone that does not fit fails."""
        while grants and not self._capacity.make_room(sum(grants.values())):
            victim = self._capacity.victim()
            assert victim is not None
            if len(state.running) == 1:
                state.fail(victim, exhausted(state, victim))
            else:
                state.retract(victim)
                self._capacity.strained()
            grants.pop(victim, None)
            turn.closed = True


class Admit:
    """Waiting strands join in the order of the policy, retracted ones first. The first that does not fit ends it."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    def run(self, state: State, turn: Turn) -> None:
        full = turn.budget < 1 or len(state.running) >= state.settings.max_running
        if turn.closed or full or not state.waiting:
            return
        order = state.order.order(state.waiting[:_WINDOW])
        order.sort(key=lambda strand: (-strand.priority, not strand.retracted))
        for strand in order:
            if turn.budget < 1 or len(state.running) >= state.settings.max_running:
                return
            op = strand.current
            assert op is not None
            cached = strand.seq.attach()
            if not self._fits(strand):
                strand.seq.shelve()
                if state.running:
                    return
                state.fail(strand, exhausted(state, strand))
                continue
            state.admit(strand, cached)
            self._schedule(state, turn, op)

    def _fits(self, strand: Strand) -> bool:
        wanted = self._capacity.wanted(strand)
        return self._capacity.drop_locks(lambda: wanted <= self._capacity.room(), but=strand)

    def _schedule(self, state: State, turn: Turn, op: Op) -> None:
        rows = min(op.rows(), turn.budget)
        if not rows:  # a fork that is cached whole, or a gen that does not know yet what may come
            if isinstance(op, Forking):
                state.end_fork(op)
            return
        fits = self._capacity.make_room(rows)
        assert fits, "admitted without room"
        turn.segments += op.schedule(rows, state.pool)
        turn.rows += rows
        turn.budget -= rows


def exhausted(state: State, strand: Strand) -> OpError:
    op = strand.current
    tokens = strand.seq.kv_len
    if op is not None:
        tokens += op.need() + sum(map(len, op.held()))
    return OpError(
        "kv_exhausted",
        f"{tokens} tokens of this strand alone do not fit the KV pool of {state.pool.total} tokens; shorten the "
        f"prompt or {'the choices' if isinstance(op, Scoring) else 'max_tokens'}, or start the runtime with more "
        "kv_tokens",
    )
