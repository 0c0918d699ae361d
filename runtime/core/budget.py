"""Time of one step for what constraints must still find out, so that no constraint makes the other rows wait."""

from __future__ import annotations


class Budget:
    """Two purses, refilled for each step: ``first`` seconds for rows that look for the first time at their place in the
    text (most find out at once), ``more`` seconds for those that could not at their first look. One look gets at most
    ``share`` of either."""

    def __init__(self, first: float, more: float, share: float) -> None:
        self._full = (first, more)
        self._share = share
        self._left = [first, more]

    def renew(self) -> None:
        """A step begins."""
        self._left = list(self._full)

    def slice(self, again: bool) -> float:
        """Seconds that a row may have now; 0 when the purse is empty. ``again``: it is not its first look."""
        return max(0.0, min(self._share, self._left[again]))

    def spent(self, again: bool, seconds: float) -> None:
        self._left[again] -= seconds
