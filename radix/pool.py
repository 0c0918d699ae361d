"""Which KV slots are free. Numbers only: the keys and values themselves live with the model.

::

    stack   [ 9 8 7 | 4 2 . . ]      free slots, the next one to hand out on top
                     ^ free
    is_free [ 0 0 1 0 1 0 0 1 1 1 ]  the same set by slot number, so that a double free is seen in O(n)

A fresh pool hands out 0, 1, 2, ... and a released run comes back in its old order, so runs of slots tend to stay
contiguous (kernels gather them faster), but nothing relies on it. What was released lies above what was never handed
out: no slot above the most that were ever held at once is touched, and the memory behind it is never taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]


class PoolExhausted(RuntimeError):
    """More slots were asked for than are free."""


class IntegrityError(RuntimeError):
    """The accounting of slots is broken: a double free, a foreign slot, a slot with two owners. Always a bug."""


class SlotPool:
    """Exact accounting of ``size`` slots, numbered 0 to size - 1. All operations are O(n) in the slots moved."""

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError(f"a pool needs 0 or more slots, not {size}")
        self.total = size
        self.free = size
        self._stack = np.arange(size - 1, -1, -1, dtype=np.int32)
        self._is_free = np.ones(size, dtype=np.bool_)
        self._scratch = np.zeros(size, dtype=np.int32)

    def allocate(self, n: int) -> IntArray:
        """``n`` slots, int32[n]. Raises :class:`PoolExhausted` (and takes none) if fewer are free."""
        if n < 0:
            raise ValueError(f"cannot allocate {n} slots")
        if n > self.free:
            raise PoolExhausted(f"{n} slots wanted, {self.free} of {self.total} free")
        slots = self._stack[self.free - n : self.free][::-1].copy()
        self.free -= n
        self._is_free[slots] = False
        return slots

    def release(self, slots: IntArray) -> None:
        """Give slots back. Raises :class:`IntegrityError` (and takes none) if one is free already or not the pool's."""
        if not len(slots):
            return
        self.require_held(slots, "release")
        self._is_free[slots] = True
        self._stack[self.free : self.free + len(slots)] = slots[::-1]
        self.free += len(slots)

    def require_held(self, slots: IntArray, action: str) -> None:
        """Raise :class:`IntegrityError` unless all of ``slots`` are handed out, and each is named once."""
        if not len(slots):
            return
        low, high = int(slots.min()), int(slots.max())
        if low < 0 or high >= self.total:
            raise IntegrityError(f"{action}: slot {low if low < 0 else high} is not one of this pool's {self.total}")
        free = self._is_free[slots]
        if free.any():
            raise IntegrityError(f"{action}: slot {int(slots[free.argmax()])} is free")
        # Each slot remembers the last index that named it; a slot named twice remembers only the later one.
        index = np.arange(len(slots), dtype=np.int32)
        self._scratch[slots] = index
        twice = self._scratch[slots] != index
        if twice.any():
            raise IntegrityError(f"{action}: slot {int(slots[twice.argmax()])} is named twice")

    def check(self) -> None:
        """Raise :class:`IntegrityError` unless the stack and the bitmap name the same free slots."""
        stack = self._stack[: self.free]
        marked = int(np.count_nonzero(self._is_free))
        if marked != self.free:
            raise IntegrityError(f"{self.free} slots on the free stack but {marked} marked free")
        if not np.array_equal(np.sort(stack), np.flatnonzero(self._is_free)):
            raise IntegrityError("the free stack and the free bitmap name different slots")
