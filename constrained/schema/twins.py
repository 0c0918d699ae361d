"""uniqueItems violated: some two items are equal.

::

    [3, "a", 3      "a twin is still to come" -> this item is the first of the two, with its position -> they are equal

Which item is the first, and where its twin stands, is guessed, and the machine keeps all guesses at once. The first
one must satisfy what is asked at both positions; its value is read from the text (``Rules.add_dependent``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from .arrays import TWIN, ArrayClause, Place, Row
from .goals import Goal
from .instances import load, single
from .values import json_key

if TYPE_CHECKING:
    from .compile import Compiler


class TwinItems:
    """The equality of some two items of a clause that says nothing else but lengths and schemas by position."""

    def __init__(self, compiler: Compiler, clause: ArrayClause) -> None:
        self._compiler = compiler
        self._clause = clause
        self._values: dict[Hashable, Any] = {}
        self._end: int | None = None

    def live(self, place: Place) -> bool:
        """Whether the array can be completed from here."""
        clause, end = self._clause, self._last()
        if end < clause.low:
            return False
        if TWIN not in place.pending:
            return True
        if place.twin >= 0:
            return self._reaches(place.twin, place.at)
        return any(self._seconds(at) for at in range(place.at, min(end, clause.prefix + 1)))

    def rows(self, place: Place) -> Iterator[Row]:
        clause, goals, ask = self._clause, self._compiler.goals, self._compiler.solver.ask
        if place.at >= self._last():
            return
        goal = clause.base(place.at)
        after = place._replace(at=clause.next(place.at))
        if self.live(after):
            yield Row(goal, after)
        if TWIN not in place.pending:
            return
        if place.twin < 0:
            for second, both in self._seconds(place.at):
                yield Row(both, after._replace(twin=second), remember=True)
        elif self._class(place.at) == place.twin:
            # no value yet: what would be written if one did not look at the first (Rules.add_dependent's expand)
            equal = [goals.literal(single(self._values[key]), ()) for key in place.used]
            same = goals.goal((*goal.literals, *equal))
            if ask(same):
                yield Row(same, after._replace(pending=place.pending - {TWIN}, used=frozenset(), twin=-1))

    def follow(self, place: Place, text: bytes) -> Place:
        """The state after the first of the two was written as ``text``."""
        value = load(text)
        key = json_key(value)
        self._values[key] = value
        return place._replace(used=frozenset((key,)))

    def _class(self, index: int) -> int:
        return min(index, self._clause.prefix)

    def _last(self) -> int:
        """The largest number of items; far above the prefix where there is no bound."""
        if self._end is None:
            clause = self._clause
            far = max(clause.prefix, clause.low) + 3
            end = far if clause.high is None else clause.high
            ask = self._compiler.solver.ask
            for at in range(min(end, clause.prefix + 1)):
                if not ask(clause.base(at)):
                    end = at
                    break
            if not self._compiler.solver.definite:
                return end
            self._end = end
        return self._end

    def _reaches(self, second: int, index: int) -> bool:
        """Whether a position of that class is still to come."""
        if second < self._clause.prefix:
            return index <= second < self._last()
        return max(index, second) < self._last()

    def _seconds(self, first: int) -> list[tuple[int, Goal]]:
        """(where the twin of this position may stand, what both must satisfy)."""
        clause, goals, ask = self._clause, self._compiler.goals, self._compiler.solver.ask
        found = []
        for second in range(min(first + 1, clause.prefix), clause.prefix + 1):
            if self._reaches(second, first + 1):
                both = goals.goal((*clause.base(first).literals, *clause.base(second).literals))
                if ask(both):
                    found.append((second, both))
        return found
