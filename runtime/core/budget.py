"""Time of one step for what constraints must still find out, so that no constraint makes the other rows wait."""

from __future__ import annotations

from enum import IntEnum


class Purse(IntEnum):
    """What seconds of a step may be spent on: rows that look for the first time at their place in the text (most find
    out at once), those that could not at their first look, and drafts, which nobody waits for."""

    FIRST = 0
    MORE = 1
    DRAFT = 2


class Budget:
    """One purse for each kind of work, refilled for each step. One look gets at most ``share`` of any."""

    def __init__(self, first: float, more: float, draft: float, share: float) -> None:
        self._full = (first, more, draft)
        self._share = share
        self._left = list(self._full)

    def renew(self) -> None:
        """A step begins."""
        self._left = list(self._full)

    def slice(self, purse: Purse) -> float:
        """Seconds that a row may have now; 0 when the purse is empty."""
        return max(0.0, min(self._share, self._left[purse]))

    def spent(self, purse: Purse, seconds: float) -> None:
        self._left[purse] -= seconds
