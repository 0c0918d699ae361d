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
        order = sorted((data, token) for token, data in enumerate(tokens) if data)
        byte, depth, first = [0], [0], [0]
        ids: list[int] = []
        before = b""
        for data, token in order:
            if data != before:
                shared = _common_prefix(before, data)
                # a node's own tokens follow it at once, so every new node starts where the list stands now
                for at in range(shared, len(data)):
                    byte.append(data[at])
                    depth.append(at + 1)
                    first.append(len(ids))
                before = data
            ids.append(token)
        first.append(len(ids))
        skip = [0] * len(byte)
        open_nodes: list[int] = []
        for node, level in enumerate(depth):
            while len(open_nodes) > level:
                skip[open_nodes.pop()] = node
            open_nodes.append(node)
        for node in open_nodes:
            skip[node] = len(byte)
        self.byte: NDArray[np.uint8] = np.array(byte, np.uint8)
        self.depth: NDArray[np.int32] = np.array(depth, np.int32)
        self.skip: NDArray[np.int32] = np.array(skip, np.int32)
        self.first: NDArray[np.int32] = np.array(first, np.int32)
        self.token_ids: NDArray[np.int32] = np.array(ids, np.int32)
        ends = np.diff(self.first)
        one = self.token_ids[np.minimum(self.first[:-1], max(len(ids) - 1, 0))] if ids else -ends
        #: the node's one token; -1 if none ends here, -2 if several do
        self.token: NDArray[np.int32] = np.where(ends == 1, one, np.where(ends == 0, -1, -2)).astype(np.int32)
        # the same for code that looks at single nodes, where indexing numpy arrays would be slow
        self.byte_at = bytes(byte)
        self.skip_at = self.skip.data
        self.first_at = self.first.data
        self.depth_at = self.depth.data
        self.max_depth = max(depth)
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

    @cached_property
    def levels(self) -> list[Level]:
        """Nodes by depth (1, 2, ...), each with its parent."""
        parent = np.zeros(self.nodes, np.int32)
        path = np.zeros(self.max_depth + 1, np.int32)
        for node in range(1, self.nodes):
            level = self.depth[node]
            path[level] = node
            parent[node] = path[level - 1]
        found = []
        for level in range(1, self.max_depth + 1):
            nodes = np.flatnonzero(self.depth == level).astype(np.int32)
            found.append(Level(nodes, parent[nodes]))
        return found


def _common_prefix(a: bytes, b: bytes) -> int:
    length = min(len(a), len(b))
    for at in range(length):
        if a[at] != b[at]:
            return at
    return length
