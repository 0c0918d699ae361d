"""The last rows of a step: drafts of what most likely comes next go along where rows, slots and time are left."""

from __future__ import annotations

import logging
import time

from .budget import Purse
from .capacity import Capacity
from .gen import Gen
from .schedule import Turn
from .state import State

log = logging.getLogger("plait.core")

#: a draft takes about as long to find as a tenth of a row
_LEAST_WORTH = 0.1
#: drafts of one gen that were not found in time, and it gets no more
_PATIENCE = 3


class Draft:
    """After everything that somebody waits for was scheduled, so nobody waits or is retracted for a draft."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    def run(self, state: State, turn: Turn) -> None:
        settings = state.settings
        worth = settings.forward_rows / max(1, len(turn.segments))
        left = min(turn.budget, settings.score_rows)
        if worth < _LEAST_WORTH:
            return
        for segment in turn.segments:
            gen = segment.op
            if not isinstance(gen, Gen) or not segment.wanted or not gen.constrained:
                continue
            seconds = state.budget.slice(Purse.DRAFT)
            if seconds <= 0.0 or left <= 0:
                return
            self._propose(state, gen, seconds)
            rows = gen.ahead.rows(worth, min(left, self._capacity.room()))
            if rows and self._capacity.make_room(rows):
                gen.ahead.append_to(segment, rows, state.pool)
                turn.rows += rows
                left -= rows

    def _propose(self, state: State, gen: Gen, seconds: float) -> None:
        began = time.monotonic()
        try:
            gen.propose(seconds)
        except Exception:  # whatever is wrong with a guess, the text does not need it
            log.exception("strand %d has no drafts from here on", gen.strand.sid)
            gen.ahead.off = True
        took = time.monotonic() - began
        state.budget.spent(Purse.DRAFT, took)
        if took >= seconds:
            gen.ahead.late += 1
            gen.ahead.off |= gen.ahead.late == _PATIENCE
