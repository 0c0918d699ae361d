"""Admission order policies."""

from dataclasses import dataclass

from plait.radix import FCFS, LongestPrefixFirst


@dataclass
class Item:
    arrival: int
    cached: int = 0
    priority: int = 0


def arrivals(items: list[Item]) -> list[int]:
    return [item.arrival for item in items]


def test_fcfs_within_priority() -> None:
    items = [Item(2), Item(0), Item(3, priority=1), Item(1)]
    assert arrivals(FCFS().order(items)) == [3, 0, 1, 2]


def test_longest_prefix_first_keeps_arrival_on_ties() -> None:
    items = [Item(0, 5), Item(1, 50), Item(2, 5), Item(3, 50)]
    assert arrivals(LongestPrefixFirst(lambda item: item.cached).order(items)) == [1, 3, 0, 2]


def test_priority_beats_prefix() -> None:
    items = [Item(0, 50), Item(1, 0, priority=1)]
    assert arrivals(LongestPrefixFirst(lambda item: item.cached).order(items)) == [1, 0]


def test_nobody_starves() -> None:
    """One item without a hit among a steady flow of hits: it is served once `patience` others have come after it."""
    policy = LongestPrefixFirst(lambda item: item.cached, patience=8)
    waiting = [Item(0, 0), Item(1, 9), Item(2, 9)]
    for arrival in range(3, 30):
        served = policy.order(waiting)[0]
        waiting.remove(served)
        if served.arrival == 0:
            break
        waiting.append(Item(arrival, 9))
    else:
        raise AssertionError("the first item starved")


def test_a_long_queue_is_not_measured() -> None:
    def measure(item: Item) -> int:
        raise AssertionError("measured")

    items = [Item(k) for k in range(5)]
    assert arrivals(LongestPrefixFirst(measure, limit=4).order(items[::-1])) == [0, 1, 2, 3, 4]


def test_empty_queue() -> None:
    assert LongestPrefixFirst(lambda item: 0).order([]) == []
