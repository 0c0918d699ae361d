"""Time of one step for what constraints must still find out, so that no constraint makes the other rows wait."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Purse(IntEnum):
    """What seconds of a step may be spent on: rows that look for the first time at their place in the text (most find
    out at once), those that could not at their first look, and drafts, which no text needs."""

    FIRST = 0
    MORE = 1
    DRAFT = 2


class Budget:
    """One purse for each kind of work, refilled for each step. ``full``: seconds in each, by :class:`Purse`;
    ``shares``: of these, what one look gets at most."""

    def __init__(self, full: Sequence[float], shares: Sequence[float]) -> None:
        self._full, self._shares = tuple(full), tuple(shares)
        self._left = list(self._full)

    def renew(self) -> None:
        """A step begins."""
        self._left = list(self._full)

    def slice(self, purse: Purse) -> float:
        """Seconds that a row may have now; 0 when the purse is empty."""
        return max(0.0, min(self._shares[purse], self._left[purse]))

    def share(self, purse: Purse) -> float:
        """Seconds that a row may have at most."""
        return self._shares[purse]

    def spent(self, purse: Purse, seconds: float) -> None:
        self._left[purse] -= seconds
