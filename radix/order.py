"""Who is admitted first, as policy objects with one method.

All policies put a higher priority first. Ties keep the order of arrival, so equal work never swaps places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """What a policy may look at: bigger ``priority`` first; ``arrival`` rises by one with each newcomer."""

    @property
    def priority(self) -> int: ...

    @property
    def arrival(self) -> int: ...


W = TypeVar("W", bound=Waiting)


class Order(Protocol[W]):
    def order(self, waiting: Sequence[W]) -> list[W]: ...


class FCFS:
    """First come, first served, within a priority."""

    def order(self, waiting: Sequence[W]) -> list[W]:
        return sorted(waiting, key=lambda item: (-item.priority, item.arrival))


class LongestPrefixFirst(Order[W]):
    """Longest cached prefix first, within a priority: what shares KV runs together, before it can be evicted.

    ``measure`` gives an item's cached prefix in tokens (:meth:`RadixTree.prefix_length`). Two bounds keep it safe:
    an item that more than ``patience`` others arrived after is served in order of arrival, so nothing starves; and
    a queue longer than ``limit`` is served first come, first served, since measuring it would cost more than it wins.
    """

    def __init__(self, measure: Callable[[W], int], *, patience: int = 64, limit: int = 256) -> None:
        self._measure = measure
        self._patience = patience
        self._limit = limit

    def order(self, waiting: Sequence[W]) -> list[W]:
        if len(waiting) > self._limit:
            return FCFS().order(waiting)
        newest = max((item.arrival for item in waiting), default=0)

        def key(item: W) -> tuple[int, int, int, int]:
            overdue = newest - item.arrival > self._patience
            return (-item.priority, 0 if overdue else 1, 0 if overdue else -self._measure(item), item.arrival)

        return sorted(waiting, key=key)
