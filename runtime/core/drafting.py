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


class Draft:
    """After everything else was scheduled, so that no prompt or newcomer is put off and nobody is retracted for a
    draft. The step itself begins later by the time that its drafts take."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    def run(self, state: State, turn: Turn) -> None:
        if turn.closed:  # somebody was retracted: slots are scarce
            return
        settings = state.settings
        worth = settings.forward_rows / max(1, len({id(segment.op) for segment in turn.segments}))
        left = min(turn.budget, settings.score_rows)
        for segment in turn.segments:
            if left <= 0 or worth < _LEAST_WORTH:
                return
            gen = segment.op
            if not isinstance(gen, Gen) or not segment.wanted:
                continue
            if gen.undrafted and (seconds := state.budget.slice(Purse.DRAFT)) > 0.0:
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
        if took < seconds or seconds == state.budget.share(Purse.DRAFT):  # a late one had all it may have
            gen.ahead.timed(late=took >= seconds)
