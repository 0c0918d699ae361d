"""One strand's token ids and the KV slots behind them: who owns which slot, and every way a slot changes hands.

::

    ids     0 .............. committed ............ kv_len ............ n
            |  the tree's, below  |  this strand's    |  no KV yet      |
            |  our locked node    |  own tail         |  (at least the  |
            |                     |                   |  last sampled)  |

``committed <= kv_len <= n``. The tail belongs to exactly one strand; :meth:`Sequence.publish` hands it to the tree.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids

import numpy as np
from numpy.typing import NDArray

from ...radix import Node, RadixTree, SlotPool

IntArray = NDArray[np.int32]
_FIRST_ROOM = 64


class Sequence:
    """Ids and slots of one strand. Holds one lock on its node for as long as ``node`` is set."""

    __slots__ = (
        "_ids",
        "_pool",
        "_slots",
        "_tree",
        "committed",
        "fresh",
        "kv_len",
        "n",
        "namespace",
        "node",
        "shelved",
    )

    def __init__(self, tree: RadixTree, pool: SlotPool, namespace: str = "") -> None:
        self._tree = tree
        self._pool = pool
        self.namespace = namespace
        self._ids: IntArray = np.empty(_FIRST_ROOM, dtype=np.int32)
        self._slots: IntArray = np.empty(_FIRST_ROOM, dtype=np.int32)
        self.n = 0
        self.kv_len = 0
        self.committed = 0
        self.fresh = -1  # first position whose KV this strand itself put into the tree since forget_fresh; -1: none
        self.node: Node | None = None
        self.shelved: Node | None = None  # pinned: where our KV was when we had to let go of it

    # ------------------------------------------------------------ views

    @property
    def ids(self) -> IntArray:
        """int32[n], a view: valid until the next append."""
        return self._ids[: self.n]

    @property
    def slots(self) -> IntArray:
        """int32[kv_len], a view: valid until the next call that moves KV."""
        return self._slots[: self.kv_len]

    @property
    def tail(self) -> IntArray:
        """int32[kv_len - committed]: the slots this strand owns."""
        return self._slots[self.committed : self.kv_len]

    # ------------------------------------------------------------ ids

    def append(self, ids: Ids[int] | IntArray) -> None:
        end = self.n + len(ids)
        if end > len(self._ids):
            self._ids = _grown(self._ids, self.n, end)
        self._ids[self.n : end] = ids
        self.n = end

    def push(self, token: int) -> None:
        """Append one id (the decode path)."""
        if self.n == len(self._ids):
            self._ids = _grown(self._ids, self.n, self.n + 1)
        self._ids[self.n] = token
        self.n += 1

    def cut(self, n: int) -> None:
        """Keep the first ``n`` ids; slots of the tail beyond go back to the pool."""
        if n >= self.n:
            return
        self.n = n
        if self.kv_len <= n:
            return
        if self.committed > n:
            # A retraction had committed what is cut now. The lock moves up to where the strand ends.
            self._pool.release(self.tail)
            self.kv_len = self.committed = n
            if self.node is not None and not self.node.detached:
                match = self._tree.match(self.ids, self.namespace)
                self._hold(match.node)
        else:
            self._pool.release(self._slots[n : self.kv_len])
            self.kv_len = n

    # ------------------------------------------------------------ KV

    def attach(self) -> int:
        """Take the longest cached prefix of all ids but the last, and lock it. Returns its length.

        The last id is always left to compute, so that there are logits to go on from. Needs an empty tail.
        """
        assert self.kv_len == self.committed, "attach with a tail"
        match = self._tree.match(self.ids[: max(self.n - 1, 0)], self.namespace)
        self._hold(match.node)
        self._unpin()
        self._room(self.n)
        self._slots[: match.length] = match.slots
        self.kv_len = self.committed = match.length
        return match.length

    def inherit(self, parent: Sequence) -> None:
        """Start as a fork of ``parent``: its ids, and a lock on what it has committed."""
        self.append(parent.ids)
        if parent.node is None or parent.node.detached:
            return
        self._hold(parent.node)
        self._room(self.n)
        self.kv_len = self.committed = parent.committed
        self._slots[: self.committed] = parent._slots[: self.committed]

    def take(self, slots: IntArray) -> None:
        """The next ``len(slots)`` ids get these slots, allocated by the caller; they join the tail."""
        end = self.kv_len + len(slots)
        if end > len(self._slots):
            self._room(end)
        self._slots[self.kv_len : end] = slots
        self.kv_len = end

    def publish(self, upto: int) -> None:
        """Hand the tail's first slots to the tree, so that ids[:upto] can be found. Duplicates are freed there."""
        upto = min(upto, self.kv_len)
        if upto <= self.committed or (self.node is not None and self.node.detached):
            return
        insert = self._tree.insert(self._ids[:upto], self._slots[:upto], self.namespace)
        self._slots[: insert.duplicate] = insert.slots
        if insert.duplicate < upto and self.fresh < 0:
            self.fresh = insert.duplicate
        self.committed = upto
        self._hold(insert.node)

    def release(self, *, keep: bool) -> None:
        """Let go of all KV. ``keep``: commit the tail first, so that it can be found until it is evicted."""
        if keep:
            self.publish(self.kv_len)
        self._unpin()
        self._pool.release(self.tail)
        self.kv_len = self.committed = 0
        self.fresh = -1
        self._hold(None)

    def shelve(self) -> None:
        """Let go of all KV to make room. It can be found again, and is evicted after what no live strand will miss."""
        self.publish(self.kv_len)
        node = self.node
        self.release(keep=False)
        if node is not None and not node.detached:
            self._tree.pin(node)
            self.shelved = node

    def poison(self) -> None:
        """The KV this strand put into the tree since :meth:`forget_fresh` is wrong: hide it, then let go of all."""
        if self.fresh >= 0 and self.node is not None:
            node, start = self.node, self.node.depth - len(self.node.tokens)
            while start > self.fresh and node.parent is not None:
                node = node.parent
                start -= len(node.tokens)
            if len(node.tokens):
                self._tree.detach(node)
        self.release(keep=False)

    def forget_fresh(self) -> None:
        """What was published so far has proved sound."""
        self.fresh = -1

    @property
    def stale(self) -> bool:
        """Our committed KV was found to be wrong, by the strand that computed it."""
        return self.node is not None and self.node.detached

    # ------------------------------------------------------------ inside

    def _unpin(self) -> None:
        if self.shelved is not None:
            self._tree.unpin(self.shelved)
            self.shelved = None

    def _hold(self, node: Node | None) -> None:
        if node is self.node:
            return
        if node is not None:
            self._tree.lock(node)
        if self.node is not None:
            self._tree.unlock(self.node)
        self.node = node

    def _room(self, n: int) -> None:
        if n > len(self._slots):
            self._slots = _grown(self._slots, self.kv_len, n)


def _grown(array: IntArray, used: int, need: int) -> IntArray:
    bigger = np.empty(max(need, 2 * len(array)), dtype=np.int32)
    bigger[:used] = array[:used]
    return bigger
