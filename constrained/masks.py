"""Token masks: filled by a walk of the token trie beside the automaton, kept in a cache bounded by bytes."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..native import loader
from .dfa import Dfa
from .trie import TokenTrie

Mask = NDArray[np.uint32]


class MaskCache:
    """Least recently used masks go first. May be shared by many constraints; not thread safe."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._kept: OrderedDict[Hashable, Mask] = OrderedDict()

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


class Walk:
    """Fills masks for the states of one automaton over one vocabulary's trie."""

    def __init__(self, dfa: Dfa, trie: TokenTrie) -> None:
        self.dfa = dfa
        self.trie = trie
        self._native = _native_walk()
        if self._native is not None:
            self._stack = np.empty(trie.max_depth + 1, np.int32)
            self._trie_arguments = (
                *(a.ctypes.data for a in (trie.byte, trie.depth, trie.skip, trie.token, trie.first, trie.token_ids)),
                trie.nodes,
                dfa.byte_class.ctypes.data,
                dfa.table.ctypes.data,
                dfa.table.shape[1],
            )

    def fill(self, state: int) -> Mask:
        """A fresh mask: every token whose bytes lead from ``state`` to a live state. EOS ids are not text: 0 here."""
        mask = np.zeros(self.trie.words, np.uint32)
        if self._native is not None:
            self._native(*self._trie_arguments, state, self._stack.ctypes.data, mask.ctypes.data)
            return mask
        return self.fill_by_levels(state, mask)

    def fill_by_levels(self, state: int, mask: Mask) -> Mask:
        """The same without native code: one numpy step per depth of the trie."""
        trie, dfa = self.trie, self.dfa
        at = np.full(trie.nodes, -1, np.int32)
        at[0] = state
        for nodes, parents in trie.levels:
            before = at[parents]
            alive = before >= 0
            if not alive.any():
                break
            here = nodes[alive]
            at[here] = dfa.table[before[alive], dfa.byte_class[trie.byte[here]]]
        alive_nodes = at[1:] >= 0
        tokens = trie.token_ids[np.repeat(alive_nodes, np.diff(trie.first[1:]))]
        bits = np.zeros(len(mask) * 32, np.uint8)
        bits[tokens] = 1
        mask[:] = np.packbits(bits, bitorder="little").view("<u4")
        return mask


@lru_cache(maxsize=1)
def _native_walk() -> Callable[..., int] | None:
    library = loader.load()
    if library is None:
        return None
    walk = library.plait_trie_mask
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    walk.argtypes = [*[pointer] * 6, number, pointer, pointer, number, number, pointer, pointer]
    walk.restype = number
    found: Callable[..., int] = walk
    return found
