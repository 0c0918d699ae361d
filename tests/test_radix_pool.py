"""Slot accounting: nothing is handed out twice, nothing is taken back twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.radix import IntegrityError, PoolExhausted, SlotPool


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_fresh_pool_hands_out_ascending_slots() -> None:
    pool = SlotPool(6)
    assert pool.allocate(3).tolist() == [0, 1, 2]
    assert pool.allocate(2).tolist() == [3, 4]
    assert (pool.total, pool.free) == (6, 1)


def test_a_released_run_comes_back_in_order() -> None:
    pool = SlotPool(8)
    run = pool.allocate(5)
    pool.release(run)
    assert pool.allocate(5).tolist() == run.tolist()


def test_exhaustion_takes_nothing() -> None:
    pool = SlotPool(4)
    pool.allocate(3)
    with pytest.raises(PoolExhausted, match="2 slots wanted, 1 of 4 free"):
        pool.allocate(2)
    assert pool.free == 1
    pool.check()


@pytest.mark.parametrize(
    ("slots", "fault"),
    [
        (array(0, 1), "slot 1 is free"),  # never handed out
        (array(0, 0), "slot 0 is named twice"),
        (array(0, 9), "slot 9 is not one of this pool's 4"),
        (array(-1, 0), "slot -1 is not one"),
    ],
)
def test_bad_release_is_refused_whole(slots: np.ndarray, fault: str) -> None:
    pool = SlotPool(4)
    pool.allocate(1)
    with pytest.raises(IntegrityError, match=fault):
        pool.release(slots)
    assert pool.free == 3
    pool.check()


def test_double_free() -> None:
    pool = SlotPool(4)
    slots = pool.allocate(2)
    pool.release(slots)
    with pytest.raises(IntegrityError, match="is free"):
        pool.release(slots)


def test_empty_calls_and_negative_sizes() -> None:
    pool = SlotPool(0)
    pool.release(pool.allocate(0))
    pool.check()
    with pytest.raises(ValueError, match="cannot allocate -1"):
        pool.allocate(-1)
    with pytest.raises(ValueError, match="0 or more slots"):
        SlotPool(-1)


@given(st.integers(1, 40), st.data())
def test_random_traffic_keeps_every_slot_in_one_hand(size: int, data: st.DataObject) -> None:
    pool = SlotPool(size)
    hands: list[np.ndarray] = []
    most = 0
    for _ in range(12):
        if hands and data.draw(st.booleans()):
            pool.release(hands.pop(data.draw(st.integers(0, len(hands) - 1))))
        else:
            n = data.draw(st.integers(0, size))
            if n <= pool.free:
                hands.append(pool.allocate(n))
        held = np.concatenate(hands) if hands else array()
        assert len(set(held.tolist())) == len(held) == size - pool.free
        most = max(most, len(held))
        assert held.max(initial=-1) < most, "a slot that was never used costs memory: those that were used come first"
        pool.check()
