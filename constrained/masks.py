"""Token masks in a cache bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint32]


class MaskCache:
    """Least recently used masks go first. May be shared by many constraints; not thread safe."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._kept: OrderedDict[Hashable, Mask] = OrderedDict()

    def find(self, key: Hashable) -> Mask | None:
        """The mask under ``key`` if it is here."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def get(self, key: Hashable, fill: Callable[[], Mask]) -> Mask:
        """The read-only mask under ``key``, made by ``fill`` if it is not here."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        made = fill()
        made.flags.writeable = False
        self._kept[key] = made
        self.nbytes += made.nbytes
        while self.nbytes > self.max_bytes and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self.nbytes -= old.nbytes
        return made

    def forget(self, owned: Mapping[int, Hashable]) -> None:
        """Drop the masks under the values of ``owned``: nobody will ask for them again."""
        for key in set(owned.values()):
            old = self._kept.pop(key, None)
            if old is not None:
                self.nbytes -= old.nbytes
