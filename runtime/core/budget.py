"""Time of one step for what constraints must still find out, so that no constraint makes the other rows wait."""

from __future__ import annotations

import time


class Budget:
    """``seconds`` for all rows of a step together, in slices: what takes long gives way to what does not."""

    def __init__(self, seconds: float, share: float) -> None:
        self._seconds = seconds
        self._share = share
        self._end = 0.0
        self.renew()

    def renew(self) -> None:
        """A step begins."""
        self._end = time.monotonic() + self._seconds

    def slice(self) -> float:
        """Seconds for one row now; 0 when the step's are used up."""
        return max(0.0, min(self._share, self._end - time.monotonic()))
