"""The vocabulary as one flat prefix tree, in the order a walk visits it.

::

    tokens        "a"=5 "ab"=7 "b"=1                    node   0    1    2    3
                                                        byte   -    a    b    b
    depth-first:  root, a, ab, b                        depth  0    1    2    1
                                                        skip   4    3    3    4     first node after the subtree
                                                        first  0    0    1    2     token_ids[first[n]:first[n+1]]
                                                                                    end at node n
    token_ids     [5, 7, 1]

Because nodes stand in depth-first order, the tokens of a whole subtree are one run of ``token_ids``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Level(NamedTuple):
    """All nodes of one depth, for a walk without native code."""

    nodes: NDArray[np.int32]
    parents: NDArray[np.int32]  # node numbers, all one level up


class TokenTrie:
    """Flat arrays over N nodes; node 0 is the root. ``tokens[id]`` is the id's bytes, b"" for ids that are not text."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        ids = sorted((token for token, data in enumerate(tokens) if data), key=tokens.__getitem__)
        groups = _Groups([tokens[token] for token in ids])  # tokens of the same bytes
        # A group begins `length - shared` nodes, one below the other; its tokens stand at the last of them. Every new
        # node starts where the list of ids stands then.
        fresh = groups.length - groups.shared
        start = np.concatenate([[1], 1 + np.cumsum(fresh)])  # first node of each group, and the end
        nodes = int(start[-1])
        group = np.repeat(np.arange(len(fresh)), fresh)
        level = np.arange(1, nodes) - start[group] + groups.shared[group]  # depth - 1
        self.byte: NDArray[np.uint8] = np.zeros(nodes, np.uint8)
        self.byte[1:] = groups.flat[groups.offset[group] + level]
        self.depth: NDArray[np.int32] = np.zeros(nodes, np.int32)
        self.depth[1:] = level + 1
        self.first: NDArray[np.int32] = np.zeros(nodes + 1, np.int32)
        self.first[1:-1] = groups.first[group]
        self.first[-1] = len(ids)
        self.skip: NDArray[np.int32] = _skips(self.depth, start, groups.shared)
        self.token_ids: NDArray[np.int32] = np.array(ids, np.int32)
        ends = np.diff(self.first)
        one = self.token_ids[np.minimum(self.first[:-1], max(len(ids) - 1, 0))] if ids else -ends
        #: the node's one token; -1 if none ends here, -2 if several do
        self.token: NDArray[np.int32] = np.where(ends == 1, one, np.where(ends == 0, -1, -2)).astype(np.int32)
        # the same for code that looks at single nodes, where indexing numpy arrays would be slow
        self.byte_at = self.byte.tobytes()
        self.skip_at = self.skip.data
        self.first_at = self.first.data
        self.depth_at = self.depth.data
        self.max_depth = int(self.depth.max())
        self._children: dict[int, dict[int, int]] = {}  # of nodes asked for; no more than there are nodes
        self.words = (len(tokens) + 31) // 32

    @property
    def nodes(self) -> int:
        return len(self.byte)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.byte, self.depth, self.skip, self.first, self.token, self.token_ids))

    def node(self, data: bytes) -> int | None:
        """The node that spells ``data``, or None if no token begins with it."""
        at: int | None = 0
        for value in data:
            if at is None:
                return None
            at = self.children(at).get(value)
        return at

    def children(self, node: int) -> dict[int, int]:
        """Byte -> child of ``node``."""
        found = self._children.get(node)
        if found is None:
            found = {}
            child, end = node + 1, self.skip_at[node]
            while child < end:
                found[self.byte_at[child]] = child
                child = self.skip_at[child]
            self._children[node] = found
        return found

    def tokens_at(self, nodes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The ids that end at any of ``nodes``, in their order."""
        counts = self.first[nodes + 1] - self.first[nodes]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        return self.token_ids[np.repeat(self.first[nodes] - (ends - counts), counts) + np.arange(total)]

    @cached_property
    def below(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """first, child: the children of node n are ``child[first[n]:first[n + 1]]``."""
        parent = np.full(self.nodes, -1, np.int32)
        for level in self.levels:
            parent[level.nodes] = level.parents
        first = np.zeros(self.nodes + 1, np.int32)
        np.cumsum(np.bincount(parent[1:], minlength=self.nodes), out=first[1:])
        return first, (np.argsort(parent[1:], kind="stable") + 1).astype(np.int32)

    @cached_property
    def levels(self) -> list[Level]:
        """Nodes by depth (1, 2, ...), each with its parent."""
        at = [np.flatnonzero(self.depth == level).astype(np.int32) for level in range(self.max_depth + 1)]
        # depth-first order: a node's parent is the last one before it that stands one level up
        return [Level(here, up[np.searchsorted(up, here) - 1]) for up, here in itertools.pairwise(at)]


class _Groups:
    """Sorted tokens, those of the same bytes taken together. ``shared`` is what a group has in common with the one
    before it."""

    def __init__(self, texts: list[bytes]) -> None:
        self.flat = np.frombuffer(b"".join(texts), np.uint8)
        length = np.array([len(data) for data in texts], np.int64)
        offset = np.cumsum(length) - length
        same = np.zeros(len(texts), np.int64)
        # pairs of neighbours that agree so far
        least = np.minimum(length[1:], length[:-1])
        pairs = np.arange(1, len(texts))
        level = 0
        while len(pairs):
            pairs = pairs[least[pairs - 1] > level]
            pairs = pairs[self.flat[offset[pairs] + level] == self.flat[offset[pairs - 1] + level]]
            same[pairs] += 1
            level += 1
        new = np.ones(len(texts), bool)
        new[1:] = (same[1:] < length[1:]) | (length[1:] != length[:-1])
        self.first = np.flatnonzero(new)  # the group's first token in sorted order
        self.length, self.offset, self.shared = length[self.first], offset[self.first], same[self.first]


def _skips(depth: NDArray[np.int32], start: NDArray[np.int64], shared: NDArray[np.int64]) -> NDArray[np.int32]:
    """First node after each subtree: where the next group begins that shares less than the node's depth."""
    skip = np.full(len(depth), len(depth), np.int32)
    by_depth = np.argsort(depth, kind="stable")
    ends = np.cumsum(np.bincount(depth))
    begins = start[:-1]
    for level in range(1, len(ends)):
        nodes = by_depth[ends[level - 1] : ends[level]]
        breaks = begins[shared < level]
        where = np.searchsorted(breaks, nodes, side="right")
        inside = where < len(breaks)
        skip[nodes[inside]] = breaks[where[inside]]
    return skip
