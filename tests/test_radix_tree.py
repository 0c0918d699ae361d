"""The prefix tree: what is found, what is freed, and who owns a slot."""

from collections.abc import Sequence

import numpy as np
import pytest

from plait.radix import IntegrityError, Node, RadixTree, SlotPool


def array(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


class House:
    """A pool and a tree, with inserts that take their slots from the pool."""

    def __init__(self, size: int = 64) -> None:
        self.pool = SlotPool(size)
        self.tree = RadixTree(self.pool)

    def add(self, ids: Sequence[int], namespace: str = "") -> Node:
        found = self.tree.match(array(ids), namespace)
        slots = np.concatenate((found.slots, self.pool.allocate(len(ids) - found.length)))
        return self.tree.insert(array(ids), slots, namespace).node

    def length(self, ids: Sequence[int], namespace: str = "") -> int:
        return self.tree.prefix_length(array(ids), namespace)


def test_an_empty_tree_matches_nothing_and_remembers_no_namespace() -> None:
    house = House()
    match = house.tree.match(array([1, 2]), "tenant")
    assert (match.length, match.slots.tolist()) == (0, [])
    house.tree.lock(match.node)
    house.tree.unlock(match.node)
    house.tree.check(0)


def test_match_gives_the_slots_along_the_path() -> None:
    house = House()
    house.add([1, 2, 3, 4])
    house.add([1, 2, 7, 8])
    match = house.tree.match(array([1, 2, 7, 9]))
    assert match.length == 3
    assert match.slots.tolist() == [0, 1, 4]
    assert house.tree.edge_tokens() == house.tree.cached == 6
    house.tree.check(0)


def test_a_match_inside_an_edge_ends_exactly_there() -> None:
    house = House()
    whole = house.add([1, 2, 3, 4, 5])
    match = house.tree.match(array([1, 2, 3]))
    assert match.length == match.node.depth == 3
    assert whole.depth == 5, "the node that was split still ends the same path"
    house.tree.lock(match.node)
    assert house.tree.evict(99) == 2
    assert house.length([1, 2, 3, 4, 5]) == 3
    house.tree.unlock(match.node)
    house.tree.check(0)


def test_prefix_length_changes_nothing() -> None:
    house = House()
    node = house.add([1, 2, 3, 4])
    before = node.last_access
    assert house.length([1, 2, 9]) == 2
    assert (node.last_access, node.depth, len(node.tokens)) == (before, 4, 4)


def test_the_caller_may_reuse_its_arrays() -> None:
    house = House()
    ids, slots = array([5, 6, 7]), house.pool.allocate(3)
    house.tree.insert(ids, slots)
    ids[:] = 0
    slots[:] = 0
    assert house.tree.match(array([5, 6, 7])).slots.tolist() == [0, 1, 2]
    house.tree.check(0)


def test_duplicates_go_back_and_the_tree_keeps_its_own() -> None:
    house = House(16)
    house.add([1, 2, 3])
    mine = house.pool.allocate(5)
    node, duplicate, slots = house.tree.insert(array([1, 2, 3, 4, 5]), mine)
    assert duplicate == 3
    assert slots.tolist() == [0, 1, 2]
    mine[:duplicate] = slots
    assert house.tree.match(array([1, 2, 3, 4, 5])).slots.tolist() == mine.tolist()
    assert node.depth == 5
    assert house.pool.free == 16 - 5
    house.tree.check(0)


def test_half_of_a_prefix_mine_half_the_trees() -> None:
    house = House(16)
    house.add([1, 2])
    found = house.tree.match(array([1, 2])).slots  # a first strand: matched 2, computes 2 more
    first = np.concatenate((found, house.pool.allocate(2)))
    second = np.concatenate((found, house.pool.allocate(2)))
    house.tree.insert(array([1, 2, 3, 4]), first)
    result = house.tree.insert(array([1, 2, 3, 4]), second)
    assert result.duplicate == 4
    assert result.slots.tolist() == first.tolist()
    house.tree.check(0)


def test_namespaces_share_nothing_and_leave_no_trace() -> None:
    house = House()
    house.add([1, 2, 3], "a")
    house.add([1, 2, 3], "b")
    assert house.tree.cached == 6
    assert house.length([1, 2, 3]) == 0
    assert house.length([1, 2, 3], "a") == 3
    house.tree.check(0)
    assert house.tree.evict(99) == 6
    house.tree.check(0)  # would name an empty root that was kept


@pytest.mark.parametrize("kind", ["free", "twice", "owned", "outside"])
def test_insert_refuses_slots_that_are_not_the_callers(kind: str) -> None:
    house = House(8)
    house.add([9, 9])
    mine = house.pool.allocate(2)
    bad = {"free": [mine[0], 7], "twice": [mine[0], mine[0]], "owned": [mine[0], 0], "outside": [mine[0], 8]}[kind]
    with pytest.raises(IntegrityError, match="insert: slot"):
        house.tree.insert(array([1, 2]), array(bad))
    assert house.length([1, 2]) == 0
    house.tree.check(mine)


def test_insert_of_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="2 ids but 1 slots"):
        House().tree.insert(array([1, 2]), array([0]))


def test_an_insert_of_nothing() -> None:
    house = House()
    result = house.tree.insert(array([]), array([]))
    assert (result.duplicate, result.node.depth) == (0, 0)
    house.tree.check(0)


# ---------------------------------------------------------------- eviction


def test_least_recently_used_leaf_goes_first() -> None:
    house = House()
    house.add([1, 1, 1])
    house.add([2, 2, 2])
    house.add([3, 3, 3])
    house.tree.match(array([1, 1, 1]))
    assert house.tree.evict(3) == 3
    assert [house.length([k] * 3) for k in (1, 2, 3)] == [3, 0, 3]
    assert house.tree.evict(3) == 3
    assert [house.length([k] * 3) for k in (1, 2, 3)] == [3, 0, 0]
    house.tree.check(0)


def test_eviction_takes_only_the_tail_it_needs() -> None:
    house = House()
    house.add(range(10))
    assert house.tree.evict(3) == 3
    assert house.length(range(10)) == 7
    house.tree.check(0)


def test_a_parent_goes_after_its_children() -> None:
    house = House()
    house.add([1, 2, 3, 4])
    house.add([1, 2, 8, 9])
    assert house.tree.evict(4) == 4
    assert house.length([1, 2]) == 2
    assert house.tree.evict(2) == 2
    assert (house.tree.cached, house.pool.free) == (0, 64)
    house.tree.check(0)


def test_locked_paths_stay() -> None:
    house = House()
    node = house.add([1, 2, 3])
    house.add([1, 2, 9])
    house.tree.lock(node)
    assert (house.tree.locked, house.tree.evictable) == (3, 1)
    assert house.tree.evict(99) == 1
    assert house.length([1, 2, 3]) == 3
    house.tree.unlock(node)
    assert house.tree.evict(99) == 3
    house.tree.check(0)


def test_locking_an_evicted_node_is_an_error() -> None:
    house = House()
    whole, part = house.add([1, 2, 3]), House().add([1])
    house.tree.evict(1)  # the tail: the handle held the end of the whole path, and that is gone
    with pytest.raises(IntegrityError, match="no longer in the tree"):
        house.tree.lock(whole)
    assert not part.detached


def test_unlock_and_unpin_below_zero() -> None:
    house = House()
    node = house.add([1])
    with pytest.raises(IntegrityError, match="not locked"):
        house.tree.unlock(node)
    with pytest.raises(IntegrityError, match="not pinned"):
        house.tree.unpin(node)


def test_pinned_prefixes_go_last_and_may_go() -> None:
    house = House()
    pinned = house.add([1, 1])
    house.tree.pin(pinned)
    house.add([2, 2])
    assert house.tree.evict(2) == 2
    assert (house.length([1, 1]), house.length([2, 2])) == (2, 0)
    assert house.tree.evict(1) == 1
    assert house.length([1, 1]) == 1
    house.tree.unpin(pinned)  # its tail is gone, the rest of its path is not
    house.add([2, 2])
    assert house.tree.evict(1) == 1
    assert (house.length([1, 1]), house.length([2, 2])) == (0, 2)
    house.tree.check(0)


def test_the_queue_of_leaves_stays_bounded() -> None:
    house = House(8)
    node = house.add([1, 2, 3])
    for _ in range(2_000):
        house.tree.lock(node)
        house.tree.unlock(node)
    assert len(house.tree._queue) <= 2 * 1 + 66
    assert house.tree.evict(3) == 3


# ---------------------------------------------------------------- detach


def test_detached_slots_return_when_the_last_lock_goes() -> None:
    house = House(16)
    house.add([1, 2])
    poisoned = house.add([1, 2, 3, 4])
    house.add([1, 2, 3, 4, 5])
    house.tree.lock(poisoned)
    house.tree.lock(poisoned)
    house.tree.detach(poisoned)
    assert poisoned.detached
    assert house.length([1, 2, 3, 4, 5]) == 2
    assert (house.tree.cached, house.tree.edge_tokens()) == (4, 2)
    house.tree.check(0)
    house.tree.unlock(poisoned)
    assert house.tree.cached == 4
    house.tree.detach(poisoned)
    house.tree.unlock(poisoned)
    assert (house.tree.cached, house.tree.evictable, house.pool.free) == (2, 2, 14)
    house.tree.check(0)


def test_the_path_above_a_detached_node_stays_locked() -> None:
    house = House(16)
    house.add([1, 2, 3])
    below = house.add([1, 2, 3, 4])
    house.tree.lock(below)
    house.tree.detach(below)
    house.tree.match(array([1, 2]))  # splits the parent
    assert house.tree.evict(99) == 0
    house.tree.check(0)
    house.tree.unlock(below)
    assert house.tree.evict(99) == 3
    house.tree.check(0)


def test_fresh_slots_may_take_the_place_of_a_detached_node() -> None:
    house = House(16)
    node = house.add([1, 2])
    house.tree.lock(node)
    house.tree.detach(node)
    assert house.add([1, 2]) is not node
    house.tree.check(0)
    with pytest.raises(IntegrityError, match="belongs to another node"):
        house.tree.insert(array([1, 2, 3]), np.concatenate((node.slots, house.pool.allocate(1))), "other")


def test_detach_of_an_outer_node_after_an_inner_one() -> None:
    house = House(16)
    outer = house.add([1, 2])
    inner = house.add([1, 2, 3])
    house.tree.lock(inner)
    house.tree.detach(inner)
    house.tree.detach(outer)
    assert (house.tree.cached, house.tree.edge_tokens()) == (3, 0)
    house.tree.check(0)
    house.tree.unlock(inner)
    assert (house.tree.cached, house.pool.free) == (0, 16)
    house.tree.check(0)


def test_a_root_cannot_be_detached() -> None:
    house = House()
    with pytest.raises(ValueError, match="root"):
        house.tree.detach(house.tree.match(array([1])).node)


# ---------------------------------------------------------------- check names faults


def test_check_names_a_lost_slot() -> None:
    house = House(8)
    house.add([1, 2])
    house.pool.allocate(1)
    with pytest.raises(IntegrityError, match=r"5 free \+ 2 cached \+ 0 in use != 8 slots"):
        house.tree.check(0)


def test_check_names_a_slot_with_two_owners() -> None:
    house = House(8)
    node = house.add([1, 2])
    node.slots[0] = node.slots[1]
    with pytest.raises(IntegrityError, match="slot 1 is named twice"):
        house.tree.check(0)


def test_check_names_a_slot_that_a_strand_still_claims() -> None:
    house = House(8)
    house.add([1, 2])
    house.pool.allocate(1)
    with pytest.raises(IntegrityError, match="in use by a strand and owned by the tree"):
        house.tree.check(array([0]))


def test_check_names_wrong_locks() -> None:
    house = House(8)
    house.add([1])
    node = house.add([1, 2])
    house.tree.lock(node)
    assert node.parent is not None
    node.locks = 2
    with pytest.raises(IntegrityError, match="fewer locks"):
        house.tree.check(0)


def test_optimal_hit_rate_from_edge_lengths() -> None:
    """1 - edges / prompt tokens, for the prompts of a fork(3) over a prefix of 6."""
    house = House()
    prompts = [[*range(6), 10 + k, 20 + k] for k in range(3)]
    for prompt in prompts:
        house.add(prompt)
    assert house.tree.edge_tokens() == 6 + 3 * 2
    assert 1 - house.tree.edge_tokens() / sum(map(len, prompts)) == pytest.approx(0.5)
