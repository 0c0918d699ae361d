"""Can it fit: the budget of KV slots. (Whether it runs now is the step's row budget, see :mod:`.schedule`.)"""

from __future__ import annotations

import math
from collections.abc import Callable

from .state import State
from .strand import Status, Strand

_CALM = 0.98  # per step


class Capacity:
    """Room is what is free or evictable. Admission also keeps a share of each running sample's growth reserved.

    The share rises to all of it when a retraction shows it was too small, and sinks back step by step, so that a
    pool under pressure does not retract and admit the same strand in turns.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._share = state.settings.reserve_share

    def room(self) -> int:
        return self._state.pool.free + self._state.tree.evictable

    def make_room(self, n: int) -> bool:
        """Have ``n`` slots free, by eviction, then by dropping locks of strands that do not run. False if not."""
        state = self._state
        if not self.drop_locks(lambda: self.room() >= n):
            return False
        if state.pool.free < n:
            state.counters.evicted_tokens += state.tree.evict(n - state.pool.free)
        return state.pool.free >= n

    def drop_locks(self, enough: Callable[[], bool], but: Strand | None = None) -> bool:
        """Let the KV of strands (``but`` one) that do not run become evictable until it is ``enough``: the longest
        idle first, those that wait to run last. False if it never is."""
        if enough():
            return True
        resting = self._state.resting
        for strand in sorted(resting, key=lambda strand: strand.status is Status.WAITING):
            if strand is but:
                continue
            del resting[strand]
            strand.seq.shelve()
            if enough():
                return True
        return False

    def reserved(self) -> int:
        """Slots that running strands are expected to need beyond what they hold."""
        return sum(self.claim(strand) for strand in self._state.running)

    def claim(self, strand: Strand) -> int:
        op = strand.current
        assert op is not None
        settings = self._state.settings
        return op.need() + math.ceil(self._share * min(op.growth(), settings.reserve_cap))

    def wanted(self, strand: Strand) -> int:
        """Room to admit ``strand``: its claim and everyone's; alone, just its first result."""
        op = strand.current
        assert op is not None
        if not self._state.running:
            return op.need()
        return self.claim(strand) + self.reserved()

    def strained(self) -> None:
        """A retraction happened."""
        self._share = 1.0

    def relax(self) -> None:
        """A step went by."""
        base = self._state.settings.reserve_share
        self._share = base + (self._share - base) * _CALM

    def victim(self, below: int | None = None) -> Strand | None:
        """Whom to retract next: the youngest of the lowest priority. ``below``: only of a strictly lower one."""
        running = self._state.running
        candidates = running if below is None else [strand for strand in running if strand.priority < below]
        return min(candidates, key=lambda strand: (strand.priority, -strand.arrival), default=None)
