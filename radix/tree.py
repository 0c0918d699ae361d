"""A radix tree over token ids whose edges own KV slots.

::

    namespace ""                                   namespace "tenant 7"
       root                                           root
        │ 5 9 2 4          (slots 0 1 2 3)             └ ...
        ├──── 7 7          (slots 4 5)     locks = 1   a strand runs below here
        │      └── 3       (slot 9)        locks = 1
        └──── 8 1 6        (slots 6 7 8)   locks = 0   evictable, this leaf first

An edge is a run of tokens and, one for one, the slots that hold their keys and values. A child is found by the
first token of its edge, the rest of the edge by one vectorised comparison. Two edges below one node differ in
their first token, so each cached sequence has exactly one path.

A slot has one owner at any time, and code that moves slots says between whom::

    pool ──allocate──> strand ──insert──> tree ──evict, last unlock of a detached node──> pool
                         │
                         └──release (aborted tail)──> pool        free + cached + in use == total

A node keeps its identity while it is split: the new node is the upper part, so whoever holds the node still holds
the end of the same path. Locks and pins count on the whole path up to (not including) the root, so a node's count
is never below a child's and whatever is unlocked has only unlocked nodes below it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .eviction import LRU, Eviction
from .pool import IntArray, IntegrityError, SlotPool

_EMPTY: IntArray = np.empty(0, dtype=np.int32)
_EMPTY.flags.writeable = False


class State(Enum):
    """Where a node stands. ROOT owns nothing; DETACHED still owns slots but no match finds it; GONE owns nothing."""

    ROOT = "root"
    ATTACHED = "attached"
    DETACHED = "detached"
    GONE = "gone"


class Node:
    """The end of an edge. Fields are read-only to everyone but the tree."""

    __slots__ = ("children", "last_access", "locks", "parent", "pins", "slots", "state", "ticket", "tokens")

    def __init__(self, parent: Node | None, tokens: IntArray, slots: IntArray, state: State) -> None:
        self.parent = parent
        self.tokens = tokens  # int32[n], the edge from the parent
        self.slots = slots  # int32[n]
        self.children: dict[int, Node] = {}
        self.locks = 0
        self.pins = 0
        self.last_access: int | float = 0
        self.state = state
        self.ticket = 0  # the only entry of the eviction queue that counts for this node; 0 = none

    @property
    def detached(self) -> bool:
        """No future match finds this node. A strand that still holds it must not insert its path again."""
        return self.state is State.DETACHED or self.state is State.GONE

    @property
    def depth(self) -> int:
        """Tokens from the root to the end of this node's edge."""
        return sum(len(node.tokens) for node in _path(self))

    def __repr__(self) -> str:
        return f"<Node {self.state.value} {self.tokens[:4].tolist()}… n={len(self.tokens)} locks={self.locks}>"


class Match(NamedTuple):
    """The longest cached prefix: it ends exactly at ``node``; ``slots`` is int32[length], a copy."""

    node: Node
    length: int
    slots: IntArray


class Insert(NamedTuple):
    """``node`` ends the inserted ids. The first ``duplicate`` positions were there already; ``slots`` (int32
    [duplicate]) are the tree's for them: the caller overwrites its own with these, since its own were released.
    """

    node: Node
    duplicate: int
    slots: IntArray


class RadixTree:
    """``(namespace, ids) -> slots``. Not thread-safe. See the module for the picture.

    ``cached`` counts every slot the tree owns, detached ones included; ``evictable`` those that :meth:`evict` could
    free now; ``locked`` the rest.
    """

    def __init__(
        self,
        pool: SlotPool,
        eviction: Eviction | None = None,
        clock: Callable[[], int | float] | None = None,
    ) -> None:
        self.cached = 0
        self.evictable = 0
        self._pool = pool
        self._eviction = LRU() if eviction is None else eviction
        self._clock = itertools.count(1).__next__ if clock is None else clock
        self._roots: dict[str, Node] = {}
        self._namespaces: dict[Node, str] = {}
        self._detached: set[Node] = set()
        self._owned = np.zeros(pool.total, dtype=np.bool_)  # by slot: the tree owns it
        self._queue: list[tuple[tuple[int | float, ...], int, Node]] = []
        self._tickets = itertools.count(1)
        self._nodes = 0  # attached, roots not counted

    @property
    def locked(self) -> int:
        return self.cached - self.evictable

    # ------------------------------------------------------------ look up

    def match(self, ids: IntArray, namespace: str = "") -> Match:
        """The longest cached prefix of ``ids``. Splits an edge where the match ends inside it; touches the path.

        Nothing is locked: :meth:`lock` the node before the next evict or detach.
        """
        ids = _as_tokens(ids)
        root = self._roots.get(namespace)
        if root is None:
            # Not remembered: a root holds nothing, and a lock on one is without effect.
            return Match(Node(None, _EMPTY, _EMPTY, State.ROOT), 0, _EMPTY)
        node, length = self._descend(root, ids)
        return Match(node, length, self._path_slots(node))

    def prefix_length(self, ids: IntArray, namespace: str = "") -> int:
        """Tokens :meth:`match` would find. Neither splits nor touches: for admission order and estimates."""
        node = self._roots.get(namespace)
        if node is None:
            return 0
        ids = _as_tokens(ids)
        length = 0
        while length < len(ids):
            child = node.children.get(int(ids[length]))
            if child is None:
                break
            common = _common_prefix(child.tokens, ids[length:])
            length += common
            if common < len(child.tokens):
                break
            node = child
        return length

    def insert(self, ids: IntArray, slots: IntArray, namespace: str = "") -> Insert:
        """Make ``ids`` findable. The tree takes over ``slots`` (int32, one per id), which the caller must hold.

        Where a prefix is cached already, the caller's slots for it may be the tree's own (from an earlier match),
        and are left alone, or others, which are duplicates and go back to the pool. Raises ValueError if the
        lengths differ, :class:`IntegrityError` (and changes no ownership) if a slot is not the caller's to give.
        """
        ids = _as_tokens(ids)
        slots = _as_tokens(slots)
        if len(ids) != len(slots):
            raise ValueError(f"{len(ids)} ids but {len(slots)} slots")
        root = self._roots.get(namespace)
        fresh = root is None
        if root is None:
            root = Node(None, _EMPTY, _EMPTY, State.ROOT)
        node, length = self._descend(root, ids)
        present = self._path_slots(node)

        duplicates = slots[:length][slots[:length] != present]
        given = np.concatenate((duplicates, slots[length:])) if len(duplicates) else slots[length:]
        self._pool.require_held(given, "insert")
        foreign = self._owned[given]
        if foreign.any():
            raise IntegrityError(f"insert: slot {int(given[foreign.argmax()])} belongs to another node of the tree")

        self._pool.release(duplicates)
        if length < len(ids):
            if fresh:
                self._roots[namespace] = root
                self._namespaces[root] = namespace
            node = self._add_leaf(node, ids[length:].copy(), slots[length:].copy())
        return Insert(node, length, present)

    # ------------------------------------------------------------ protect

    def lock(self, node: Node) -> None:
        """Keep the path to ``node`` from eviction. Raises IntegrityError if the node was evicted meanwhile."""
        if node.state is State.GONE:
            raise IntegrityError("lock: the node is no longer in the tree; match again")
        for step in _path(node):
            step.locks += 1
            if step.locks == 1 and step.state is State.ATTACHED:
                self.evictable -= len(step.tokens)

    def unlock(self, node: Node) -> None:
        """Undo one :meth:`lock`. Slots of a detached node go back to the pool with its last lock."""
        for step in _path(node):
            if step.locks <= 0:
                raise IntegrityError("unlock: the node is not locked")
            step.locks -= 1
            if step.locks:
                continue
            if step.state is State.DETACHED:
                self._detached.discard(step)
                self._free(step)
            else:
                self.evictable += len(step.tokens)
                self._enqueue(step)

    def pin(self, node: Node) -> None:
        """Evict the path to ``node`` only after everything unpinned: a live program will come back to it."""
        for step in _path(node):
            step.pins += 1

    def unpin(self, node: Node) -> None:
        """Undo one :meth:`pin`. The node may have been evicted in the meantime."""
        for step in _path(node):
            if step.pins <= 0:
                raise IntegrityError("unpin: the node is not pinned")
            step.pins -= 1
            if not step.pins:
                self._enqueue(step)

    # ------------------------------------------------------------ give up

    def evict(self, n: int) -> int:
        """Free at least ``n`` slots if that many are evictable, and return how many were freed.

        Leaves go first, in the order of the policy; of the last one only as much of its tail as is needed.
        Costs O(freed + evicted nodes · log nodes).
        """
        freed = 0
        while freed < n and self._queue:
            key, ticket, node = heapq.heappop(self._queue)
            if ticket != node.ticket:
                continue
            node.ticket = 0
            if node.state is not State.ATTACHED or node.locks or node.children:
                continue
            if self._eviction.key(node) > key:  # touched since it was queued
                self._enqueue(node)
                continue
            surplus = len(node.tokens) - (n - freed)
            if surplus > 0:
                self._split(node, surplus)  # keep the head; whoever holds the node holds the tail that goes
            freed += len(node.tokens)
            self.evictable -= len(node.tokens)
            self._remove_leaf(node)
        return freed

    def detach(self, node: Node) -> None:
        """Hide ``node`` and all below it from every future match (its KV is wrong: a failed forward, a NaN).

        Unlocked slots of the subtree go back to the pool now, locked ones when their locks are gone. Detaching
        twice is harmless. Raises ValueError for a root.
        """
        if node.state is State.ROOT:
            raise ValueError("a root cannot be detached")
        if node.state is not State.ATTACHED:
            return
        parent = node.parent
        assert parent is not None
        del parent.children[int(node.tokens[0])]
        stack = [node]
        while stack:
            step = stack.pop()
            stack.extend(step.children.values())
            step.children = {}
            self._nodes -= 1
            if step.locks:
                step.state = State.DETACHED
                self._detached.add(step)
            else:
                self.evictable -= len(step.tokens)
                self._free(step)
        self._left_childless(parent)

    # ------------------------------------------------------------ measure and check

    def edge_tokens(self) -> int:
        """Sum of the edge lengths that matches can find: what serving these sequences must compute at least."""
        return self.cached - sum(len(node.tokens) for node in self._detached)

    def check(self, in_use: int | NDArray[np.int32]) -> None:
        """Raise :class:`IntegrityError` naming the fault unless every slot is owned once and all counts are right.

        ``in_use``: how many slots the strands hold outside the tree, or, for a sharper check, which.
        """
        self._pool.check()
        held = len(in_use) if isinstance(in_use, np.ndarray) else in_use
        free, total = self._pool.free, self._pool.total
        if free + self.cached + held != total:
            raise IntegrityError(f"{free} free + {self.cached} cached + {held} in use != {total} slots")
        attached = list(self._walk())
        everything = attached + list(self._detached)
        slots = np.concatenate([node.slots for node in everything]) if everything else _EMPTY
        if len(slots) != self.cached:
            raise IntegrityError(f"cached is {self.cached}, but the nodes hold {len(slots)} slots")
        self._pool.require_held(slots, "check of the tree")
        if int(np.count_nonzero(self._owned)) != len(slots) or not self._owned[slots].all():
            raise IntegrityError("the ownership map and the nodes name different slots")
        if isinstance(in_use, np.ndarray):
            self._pool.require_held(in_use, "check of the strands")
            if self._owned[in_use].any():
                raise IntegrityError("a slot is in use by a strand and owned by the tree")
        evictable = sum(len(node.tokens) for node in attached if not node.locks)
        if evictable != self.evictable:
            raise IntegrityError(f"evictable is {self.evictable}, but unlocked nodes hold {evictable} slots")
        if len(attached) != self._nodes:
            raise IntegrityError(f"{self._nodes} nodes counted, {len(attached)} found")
        self._check_links(attached)

    def _check_links(self, attached: list[Node]) -> None:
        locks_below: dict[Node, int] = {}
        for node in attached + list(self._detached):
            if len(node.tokens) != len(node.slots) or not len(node.tokens):
                raise IntegrityError(f"{node} has {len(node.tokens)} tokens and {len(node.slots)} slots")
            if node.state is State.DETACHED and not node.locks:
                raise IntegrityError(f"{node} is detached and unlocked but still owns slots")
            if node.parent is not None:
                locks_below[node.parent] = locks_below.get(node.parent, 0) + node.locks
        for parent, below in locks_below.items():
            if parent.state is not State.ROOT and parent.locks < below:
                raise IntegrityError(f"{parent} has fewer locks than the {below} of its children")
        live = {(node, ticket) for _, ticket, node in self._queue if ticket == node.ticket}
        queued = {node for node, _ in live}
        for node in attached:
            if not node.children and not node.locks and node not in queued:
                raise IntegrityError(f"{node} could be evicted but is not queued")
        for namespace, root in self._roots.items():
            if not root.children:
                raise IntegrityError(f"the empty root of namespace {namespace!r} was kept")

    # ------------------------------------------------------------ inside

    def _descend(self, root: Node, ids: IntArray) -> tuple[Node, int]:
        """Follow ``ids`` down, splitting where they leave an edge; touch the path. (last node, tokens matched)."""
        now = self._clock()
        node, length = root, 0
        while length < len(ids):
            child = node.children.get(int(ids[length]))
            if child is None:
                break
            common = _common_prefix(child.tokens, ids[length:])
            length += common
            if common < len(child.tokens):
                node = self._split(child, common)
                node.last_access = now
                break
            node = child
            node.last_access = now
        return node, length

    def _split(self, node: Node, at: int) -> Node:
        """Cut the edge of ``node`` after ``at`` tokens. The new node is the upper part; copies free the old arrays."""
        parent = node.parent
        assert parent is not None
        upper = Node(parent, node.tokens[:at].copy(), node.slots[:at].copy(), State.ATTACHED)
        upper.locks, upper.pins, upper.last_access = node.locks, node.pins, node.last_access
        node.tokens, node.slots, node.parent = node.tokens[at:].copy(), node.slots[at:].copy(), upper
        upper.children[int(node.tokens[0])] = node
        parent.children[int(upper.tokens[0])] = upper
        self._nodes += 1
        return upper

    def _add_leaf(self, parent: Node, tokens: IntArray, slots: IntArray) -> Node:
        leaf = Node(parent, tokens, slots, State.ATTACHED)
        leaf.last_access = self._clock()
        parent.children[int(tokens[0])] = leaf
        self._owned[slots] = True
        self._nodes += 1
        self.cached += len(slots)
        self.evictable += len(slots)
        self._enqueue(leaf)
        return leaf

    def _remove_leaf(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        del parent.children[int(node.tokens[0])]
        self._nodes -= 1
        self._free(node)
        self._left_childless(parent)

    def _left_childless(self, parent: Node) -> None:
        """A child is gone: the parent may have become a leaf, or an empty root, which is forgotten."""
        if parent.children:
            return
        if parent.state is State.ROOT:
            del self._roots[self._namespaces.pop(parent)]
        else:
            self._enqueue(parent)

    def _free(self, node: Node) -> None:
        """Slots of a node that is out of the tree go back to the pool. Its parent stays known, for unpin."""
        self._owned[node.slots] = False
        self._pool.release(node.slots)
        self.cached -= len(node.slots)
        node.tokens, node.slots, node.state, node.ticket = _EMPTY, _EMPTY, State.GONE, 0

    def _enqueue(self, node: Node) -> None:
        """Queue an evictable leaf under its present key. An older entry of it no longer counts."""
        if node.state is not State.ATTACHED or node.locks or node.children:
            return
        if len(self._queue) > 2 * self._nodes + 64:
            self._queue = [entry for entry in self._queue if entry[1] == entry[2].ticket]
            heapq.heapify(self._queue)
        node.ticket = next(self._tickets)
        heapq.heappush(self._queue, (self._eviction.key(node), node.ticket, node))

    def _path_slots(self, node: Node) -> IntArray:
        parts = [step.slots for step in _path(node)]
        if not parts:
            return _EMPTY
        return np.concatenate(parts[::-1])

    def _walk(self) -> Iterator[Node]:
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if node.state is not State.ROOT:
                yield node
            for first, child in node.children.items():
                if child.parent is not node or child.state is not State.ATTACHED or int(child.tokens[0]) != first:
                    raise IntegrityError(f"{child} is linked wrongly below {node}")
            stack.extend(node.children.values())


def _path(node: Node) -> Iterator[Node]:
    """``node`` and its ancestors, bottom up, without the root."""
    step: Node | None = node
    while step is not None and step.state is not State.ROOT:
        yield step
        step = step.parent


def _common_prefix(edge: IntArray, ids: IntArray) -> int:
    n = min(len(edge), len(ids))
    differs = edge[:n] != ids[:n]
    first = int(differs.argmax())
    return first if differs[first] else n


def _as_tokens(values: IntArray) -> IntArray:
    return np.asarray(values, dtype=np.int32)
