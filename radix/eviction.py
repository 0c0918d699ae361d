"""What is evicted first, as a policy object. The tree asks it only about unlocked leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .tree import Node


class Eviction(Protocol):
    """A node with a smaller key is evicted earlier.

    The tree reads a key when a node becomes an evictable leaf and again when it comes up for eviction. In between
    the key may rise (a touch); only :meth:`RadixTree.unpin` may make it fall, and that re-reads it.
    """

    def key(self, node: Node) -> tuple[int | float, ...]: ...


class LRU:
    """Least recently used first; prefixes that a live program pinned come last."""

    def key(self, node: Node) -> tuple[int | float, ...]:
        return (1 if node.pins else 0, node.last_access)
