"""Whether an object or an array can still be completed from a state: a search for a state in which it may end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from .satisfy import Solver

S = TypeVar("S", bound=Hashable)


class Completion(Generic[S]):
    """Depth first, with a memo. ``steps``: the states that may come next; ``may_end``: the value is whole."""

    def __init__(self, solver: Solver, steps: Callable[[S], Iterator[S]], may_end: Callable[[S], bool]) -> None:
        self._solver = solver
        self._steps = steps
        self._may_end = may_end
        self._known: dict[S, bool] = {}

    def __call__(self, state: S) -> bool:
        known = self._known.get(state)
        return self._search(state) if known is None else known

    def _search(self, start: S) -> bool:
        known, solver = self._known, self._solver
        path = [(start, self._steps(start))]
        seen = {start}
        outer = solver.begin()
        try:
            found = self._may_end(start)
            while path and not found:
                after = next(path[-1][1], None)
                if after is None:
                    path.pop()
                elif after not in seen:
                    seen.add(after)
                    solver.work()
                    before = known.get(after)
                    if before is None:
                        path.append((after, self._steps(after)))
                        found = self._may_end(after)
                    else:
                        found = before
        finally:
            final = solver.end(outer)
        if found:
            known.update(dict.fromkeys((one for one, _ in path), True))
            known[start] = True
        elif final:
            known.update(dict.fromkeys(seen, False))
        return found
