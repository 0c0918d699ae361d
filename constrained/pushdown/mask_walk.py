"""One token mask of the Python machine in the making.

::

    lexemes on top   -> OR of their masks; below each trie node where one may end, the walk goes on with what follows it
    literals on top  -> the walk begins at the root

    front = trie nodes, all of one round, each with the config in which it is reached
    round = the children of the front; each pair of config and byte among them is stepped once; what lives is the next

Wide rounds (any word may end here) are made with numpy: a fixed cost and little per node. Narrow ones node by node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..masks import Mask

if TYPE_CHECKING:
    from .machine import Machine


#: nodes in front up to which a round is made node by node
_NARROW = 24


class _Front(NamedTuple):
    nodes: NDArray[np.int32]
    configs: NDArray[np.int64]
    met: NDArray[np.bool_]  # a marker was met on the way here


class MaskWalk:
    """May be stopped by Unfinished; :meth:`run` called again goes on with the lexeme or round it was at."""

    def __init__(self, machine: Machine, config: int) -> None:
        """``config`` has no markers."""
        self._machine = machine
        self._bits = np.zeros(machine.vocabulary.mask_words, np.uint32)
        self._lexemes, literals = machine.tops(config)
        self._fronts: list[_Front] = []
        if literals is not None:
            self._fronts.append(_front(np.zeros(1, np.int32), literals, False))
        #: nodes whose tokens are allowed, and those of them that are reached through or at a marker
        self._reached: list[NDArray[np.int32]] = []
        self._doubtful: list[NDArray[np.int32]] = []

    def run(self) -> tuple[Mask, NDArray[np.int32]]:
        """The mask without EOS, and the doubtful tokens, rising."""
        machine = self._machine
        while self._lexemes:
            state, rests = self._lexemes[-1]
            mask = machine.lexemes.mask(state)
            if len(mask.exits) or len(mask.closes):
                after = machine.behind(rests)
                marked = after in machine.stacks.marked
                for nodes in (mask.exits, mask.closes):
                    self._fronts.append(_front(nodes, after, marked))
                if marked:
                    self._doubtful.append(mask.closes)
            self._bits |= mask.bits
            self._lexemes.pop()
        while self._fronts:
            front = _joined(self._fronts)
            front = self._narrow_round(front) if len(front.nodes) <= _NARROW else self._round(front)
            self._fronts = [front] if len(front.nodes) else []
        trie = machine.vocabulary.trie
        bits = np.zeros(trie.words * 32, np.uint8)
        bits[trie.tokens_at(_merged(self._reached))] = 1
        self._bits |= np.packbits(bits, bitorder="little").view("<u4")
        return self._bits, np.unique(trie.tokens_at(_merged(self._doubtful)))

    def _round(self, front: _Front) -> _Front:
        machine = self._machine
        trie = machine.vocabulary.trie
        first, child = trie.below
        counts = first[front.nodes + 1] - first[front.nodes]
        ends = np.cumsum(counts)
        nodes = child[np.repeat(first[front.nodes] - (ends - counts), counts) + np.arange(ends[-1])]
        pairs, which = np.unique(np.repeat(front.configs, counts) << 8 | trie.byte[nodes], return_inverse=True)
        after = np.array([machine.cell(pair >> 8, pair & 255) for pair in pairs.tolist()], np.int64)
        marked = np.array([config in machine.stacks.marked for config in after.tolist()], np.bool_)
        after, marked = after[which], marked[which]
        alive = after >= 0
        nodes, met = nodes[alive], (np.repeat(front.met, counts) | marked)[alive]
        self._reached.append(nodes)
        self._doubtful.append(nodes[met])
        machine.check_deadline()
        inner = trie.skip[nodes] > nodes + 1
        return _Front(nodes[inner], after[alive][inner], met[inner])

    def _narrow_round(self, front: _Front) -> _Front:
        machine, trie = self._machine, self._machine.vocabulary.trie
        reached: list[tuple[int, int, bool]] = []
        for node, config, met in zip(front.nodes.tolist(), front.configs.tolist(), front.met.tolist(), strict=True):
            children, few = trie.children(node), machine.few_bytes(config)
            for value in children if few is None else few:
                child = children.get(value)
                if child is not None and (after := machine.cell(config, value)) >= 0:
                    reached.append((child, after, met or after in machine.stacks.marked))
        machine.check_deadline()
        self._reached.append(np.array([node for node, _, _ in reached], np.int32))
        self._doubtful.append(np.array([node for node, _, met in reached if met], np.int32))
        inner = [entry for entry in reached if trie.skip_at[entry[0]] > entry[0] + 1]
        return _Front(
            np.array([node for node, _, _ in inner], np.int32),
            np.array([config for _, config, _ in inner], np.int64),
            np.array([met for _, _, met in inner], np.bool_),
        )


def _front(nodes: NDArray[np.int32], config: int, met: bool) -> _Front:
    return _Front(nodes, np.full(len(nodes), config, np.int64), np.full(len(nodes), met, np.bool_))


def _joined(fronts: list[_Front]) -> _Front:
    if len(fronts) == 1:
        return fronts[0]
    return _Front(*(np.concatenate(arrays) for arrays in zip(*fronts, strict=True)))


def _merged(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)
