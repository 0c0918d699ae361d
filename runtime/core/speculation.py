"""Rows computed ahead of what a gen has drawn: its draft, in the same forward as the row before it.

::

    ids      ... kv_len ........... n                     one segment: own rows, then the draft's
    rows          own rows          | d0 d1 d2 d3
    logits                        x     x     x           where the model must draw: d0, d2 and what follows d3
    drawn                        d0    e                  (d1 was forced) e is not d2: d0 and d1 were right

A draft is proposed for one place in the text, goes along with a forward, and is accepted as far as it was right in the
same step. Until then its slots are scratch: neither the sequence nor the tree knows of them.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids

import numpy as np

from ...constrained.draft import NOTHING, Habits, draft
from ...constrained.interface import Matcher
from ...constrained.vocabulary import Vocabulary
from ...radix import SlotPool
from .batch import IntArray, Segment
from .sequence import Sequence

#: a forward of as many rows costs a CPU two to three times as much as one of a single row
_MAX_DRAFT_TOKENS = 16
#: drafts, one after the other, that were not found in time: then there are no more of that gen
_PATIENCE = 3
_NO_SLOTS: IntArray = np.empty(0, dtype=np.int32)


class Speculation:
    """Of one gen, whose ids stand at the end of ``seq``. ``scored``: forced ids want logits too, for their logprobs."""

    __slots__ = (
        "_draft",
        "_habits",
        "_late",
        "_logit_rows",
        "_scored",
        "_seq",
        "_start",
        "_vocabulary",
        "off",
        "slots",
    )

    def __init__(self, seq: Sequence, vocabulary: Vocabulary, *, scored: bool) -> None:
        self.slots = _NO_SLOTS  # int32[rows that go along with this step's forward]
        self.off = False  # no drafts any more
        self._late = 0  # drafts, one after the other, that were not found in time
        self._seq = seq
        self._vocabulary = vocabulary
        self._scored = scored
        self._habits = Habits()
        self._draft = NOTHING
        self._start = -1  # ids of the sequence when the draft was proposed
        # ids of the draft that have proved right -> which of the segment's wanted rows is then the next
        self._logit_rows: dict[int, int] = {}

    @property
    def proposed(self) -> bool:
        """What comes next was drafted, though that may be nothing. (Ids only grow while a gen lives.)"""
        return self._start == self._seq.n

    def propose(self, matcher: Matcher, before: bytes, pending: Ids[int], left: int, seconds: float) -> None:
        """Draft what follows, for up to about ``seconds``. ``before``: the gen's last token; ``pending``: the ids that
        come next in any case; ``left``: how many ids it may still get."""
        self._learn()
        self._start, self._draft = self._seq.n, NOTHING
        most = min(_MAX_DRAFT_TOKENS, left - 1)
        self._draft = draft(matcher, self._vocabulary, self._habits, before, most, settled=pending, seconds=seconds)

    def timed(self, *, late: bool) -> None:
        """Whether the last draft was found in the time that it should take."""
        self._late = self._late + 1 if late else 0
        self.off |= self._late == _PATIENCE

    def rows(self, worth: float, most: int) -> int:
        """How many rows of the draft, at most ``most``, are expected to save more than they cost. ``worth``: of one
        forward less, in rows computed in vain."""
        if not self.proposed:
            return 0
        best = balance = 0.0
        rows, odds = 0, 1.0
        for index in range(min(most, len(self._draft.ids))):
            guess = self._draft.drawn.get(index)
            if guess is not None:
                odds *= self._habits.acceptance(guess)
            balance -= 1.0 - odds
            if self._goes_on(index + 1):
                balance += odds * worth
            if balance > best:
                best, rows = balance, index + 1
        return rows

    def append_to(self, segment: Segment, rows: int, pool: SlotPool) -> None:
        """The first ``rows`` of the draft go along with ``segment``, which ends with the last id of the sequence, in
        slots of ``pool``, which has them free."""
        assert self.proposed
        places = [0, *(place for place in range(1, rows + 1) if self._goes_on(place))]
        last = len(segment.ids) - 1
        self._logit_rows = {place: row for row, place in enumerate(places)}
        self.slots = pool.allocate(rows)
        segment.ids = np.concatenate((segment.ids, np.asarray(self._draft.ids[:rows], dtype=np.int32)))
        segment.out = np.concatenate((segment.out, self.slots))
        segment.visible = np.concatenate((segment.visible, self.slots))
        segment.wanted = [last + place for place in places]

    def next_row(self) -> int | None:
        """Which of the segment's wanted rows has the logits after the last id of the sequence; None: none has."""
        gained = self._seq.n - self._start
        return self._logit_rows.get(gained) if self._logit_rows and self._right() == gained else None

    def accept(self, pool: SlotPool) -> tuple[int, int]:
        """The sequence takes the slots of the ids that were right, but of its last id, whose row is computed for its
        logits; the others go back. How many rows went along, and how many were right."""
        rows = len(self.slots)
        if not rows:
            return 0, 0
        right = min(self._right(), rows)
        kept = max(0, min(right, self._seq.n - self._start - 1))
        self._seq.take(self.slots[:kept])
        pool.release(self.slots[kept:])
        self.forget()
        return rows, right

    def forget(self) -> None:
        """What went along is lost; its slots are the caller's to release."""
        self.slots = _NO_SLOTS
        self._logit_rows = {}

    def _goes_on(self, place: int) -> bool:
        """The logits after the first ``place`` ids are of use."""
        ids, drawn, more, whole = self._draft
        if place == len(ids):
            return more or (self._scored and not whole)
        return self._scored or place in drawn

    def _learn(self) -> None:
        """From what became of the draft, whether it went along or not."""
        right = self._right()
        for index, guess in self._draft.drawn.items():
            if index <= right and self._start + index < self._seq.n:
                data = self._vocabulary.bytes(int(self._seq.ids[self._start + index]))
                self._habits.learn(guess, data, right=index < right)

    def _right(self) -> int:
        """How many ids of the draft the sequence has gained, one after the other from the first."""
        gained = self._seq.ids[self._start :][: len(self._draft.ids)]
        wrong = np.flatnonzero(gained != np.asarray(self._draft.ids[: len(gained)], dtype=np.int32))
        return int(wrong[0]) if len(wrong) else len(gained)
