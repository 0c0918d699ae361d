"""Random traffic on the tree against a model that is a plain dict of sequences, checked after every rule."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from plait.radix import Node, RadixTree, SlotPool

SIZE = 48
ids_of = st.lists(st.integers(0, 2), max_size=14).map(tuple)
spaces = st.sampled_from(["", "salt"])


class Held:
    """A strand's lock: while it lives, its ids and slots must stay exactly as they were."""

    def __init__(self, node: Node, space: str, ids: tuple[int, ...], slots: np.ndarray) -> None:
        self.node, self.space, self.ids, self.slots = node, space, ids, slots


class Tree(RuleBasedStateMachine):
    held = Bundle("held")
    pinned = Bundle("pinned")

    @initialize()
    def start(self) -> None:
        self.pool = SlotPool(SIZE)
        self.tree = RadixTree(self.pool)
        # (namespace, prefix) -> the slot of its last token: what a match may find, at most.
        self.model: dict[tuple[str, tuple[int, ...]], int] = {}
        self.locks: list[Held] = []

    def _found(self, space: str, ids: tuple[int, ...]) -> int:
        return self.tree.prefix_length(np.array(ids, dtype=np.int32), space)

    def _prune(self) -> None:
        """Forget what eviction took; what is left must be closed under prefixes (prefix_length says so)."""
        for space, ids in list(self.model):
            if self._found(space, ids) < len(ids):
                del self.model[space, ids]

    @rule(target=held, ids=ids_of, space=spaces)
    def match_and_lock(self, ids: tuple[int, ...], space: str) -> Held:
        match = self.tree.match(np.array(ids, dtype=np.int32), space)
        expected = 0
        while expected < len(ids) and (space, ids[: expected + 1]) in self.model:
            expected += 1
        assert match.length == expected == match.node.depth
        assert match.slots.tolist() == [self.model[space, ids[: i + 1]] for i in range(expected)]
        self.tree.lock(match.node)
        lock = Held(match.node, space, ids[:expected], match.slots)
        self.locks.append(lock)
        return lock

    @rule(target=held, lock=held, tail=ids_of, reuse=st.booleans())
    def extend_and_insert(self, lock: Held, tail: tuple[int, ...], reuse: bool) -> Held | object:
        """A strand computes ``tail`` after what it holds (or everything anew) and commits."""
        if lock not in self.locks or lock.node.detached:
            return multiple()
        ids = lock.ids + tail
        fresh = len(tail) if reuse else len(ids)
        if fresh > self.pool.free:
            self.tree.evict(fresh - self.pool.free)
            self._prune()
        if fresh > self.pool.free:
            return multiple()
        mine = self.pool.allocate(fresh)
        slots = np.concatenate((lock.slots, mine)) if reuse else mine
        result = self.tree.insert(np.array(ids, dtype=np.int32), slots, lock.space)
        assert result.node.depth == len(ids)
        slots[: result.duplicate] = result.slots
        for i in range(len(ids)):
            known = self.model.setdefault((lock.space, ids[: i + 1]), int(slots[i]))
            assert known == slots[i], "the tree's slot for a known prefix must not change"
        self.tree.lock(result.node)
        new = Held(result.node, lock.space, ids, slots)
        self.locks.append(new)
        return new

    @rule(target=pinned, lock=held)
    def pin(self, lock: Held) -> Node | object:
        if lock not in self.locks:
            return multiple()
        self.tree.pin(lock.node)
        return lock.node

    @rule(node=consumes(pinned))
    def unpin(self, node: Node) -> None:
        self.tree.unpin(node)

    @rule(lock=consumes(held))
    def unlock(self, lock: Held) -> None:
        if lock in self.locks:
            self.locks.remove(lock)
            self.tree.unlock(lock.node)

    @rule(n=st.integers(0, SIZE))
    def evict(self, n: int) -> None:
        free, evictable = self.pool.free, self.tree.evictable
        freed = self.tree.evict(n)
        assert freed == min(n, evictable) == self.pool.free - free
        self._prune()

    @rule(lock=held)
    def detach(self, lock: Held) -> None:
        if lock not in self.locks or not lock.ids:
            return
        attached = not lock.node.detached
        start = lock.node.depth - len(lock.node.tokens)
        self.tree.detach(lock.node)
        if attached:
            prefix = lock.ids[: start + 1]
            assert self._found(lock.space, lock.ids) == start
            self.model = {
                key: slot
                for key, slot in self.model.items()
                if not (key[0] == lock.space and key[1][: start + 1] == prefix)
            }

    @invariant()
    def accounts_balance(self) -> None:
        self.tree.check(0)
        assert self.tree.edge_tokens() == len(self.model)
        assert self.tree.cached == self.tree.locked + self.tree.evictable

    @invariant()
    def held_slots_are_untouched(self) -> None:
        for lock in self.locks:
            parts, node = [], lock.node
            while node.parent is not None:
                parts.append(node.slots)
                node = node.parent
            slots = np.concatenate(parts[::-1]) if parts else np.empty(0, dtype=np.int32)
            assert slots.tolist() == lock.slots.tolist()

    def teardown(self) -> None:
        for lock in self.locks:
            self.tree.unlock(lock.node)
        self.tree.evict(SIZE)
        assert (self.tree.cached, self.pool.free) == (0, SIZE), "nothing may leak"
        self.tree.check(0)


Tree.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_random_traffic = Tree.TestCase
