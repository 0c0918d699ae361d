"""Many single values that something must not be: it is one of them, or none, and never two.

::

    not [1, …], not [1, …], not [2, …]      the first item is 1 (two are left to violate), 2 (one is), or neither (none)

So n of them are n + 1 cases at most, found in one go. What uniqueItems leaves out of items that are arrays or objects
is of this kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from .goals import Goal, Goals, Literal


def cases(
    goals: Goals, goal: Goal, pending: frozenset[int], touched: Mapping[int, Literal], due: frozenset[int] = frozenset()
) -> list[tuple[Goal, frozenset[int]]]:
    """The cases of a value of ``goal``, each with what is still ``pending`` then. ``touched``: of those that speak of
    it the one value (in :attr:`Goals.singles`) that it must not be. ``due``: those that cannot be violated later."""
    same: dict[Hashable, list[int]] = {}
    for at, literal in touched.items():
        same.setdefault(goals.singles[literal.node], []).append(at)
    nodes = {goals.singles[literal.node]: literal.node for literal in touched.values()}
    left = pending.difference(touched)
    found = [(goals.goal((*goal.literals, goals.none_of(nodes))), left)]
    for holding in same.values():
        if due.isdisjoint(holding):
            found.append((goals.goal((*goal.literals, touched[holding[0]])), left.union(holding)))
    return found
