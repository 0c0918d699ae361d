"""uniqueItems: no two items are equal as JSON (1 and 1.0 are; true and 1 are not).

::

    ["a", "b"   the state of the array knows the values used; the next item satisfies its schema and none of them

The values come from the text as it is written (``Rules.add_dependent``), so any schema of items will do. So that there
are no dead ends, a value is also kept out where it would take the last one from a later item: items with few possible
values are worked through, all others can always find another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from ..regular.language import Language
from .arrays import ArrayClause, Place, Row
from .goals import Goal, Literal
from .instances import Values, instances, load
from .node import Node
from .values import json_key

if TYPE_CHECKING:
    from .compile import Compiler

#: items with more possible values than this never run out of them, beyond those that minItems asks for
FEW = 64
_SPACE = b" \t\n"
#: so many items may minItems ask for where they are to be unique: as many values are looked for
MAX_UNIQUE = 1_000


class UniqueItems:
    """The uniqueness of one clause's items."""

    def __init__(self, compiler: Compiler, clause: ArrayClause) -> None:
        self._compiler = compiler
        self._clause = clause
        self._values: Values = {}
        self._few: dict[Goal, Values | None] = {}
        self._many: dict[tuple[Goal, int], bool] = {}
        self._scarce: Values | None = None
        self._excluded: dict[frozenset[Hashable], Literal] = {}

    def few(self, goal: Goal) -> Values | None:
        if goal not in self._few:
            self._few[goal] = instances(self._compiler, goal, max(FEW, self._clause.low))
        return self._few[goal]

    def rows(self, place: Place) -> Iterator[Row]:
        """The cases of the next item, each with every value left out that may not stand here."""
        for row in self._clause.moves(place):
            if self.few(row.goal) is None and not self._clause.live(row.after._replace(used=place.used)):
                continue
            goal = self._without(row.goal, place.used | self._fatal(row, place.used))
            if self._compiler.solver.ask(goal):
                yield Row(goal, row.after._replace(used=place.used), remember=True)

    def indifferent(self, place: Place, rest: bytes) -> bool:
        """Whether ``rest``, behind an item whose next place is ``place``, is possible whatever the item was, if it is
        at all. It closes no other item, so only what it leaves of the next one matters: values that are not used yet.
        """
        if self._all_scarce():
            return False
        rest = rest.lstrip(_SPACE)  # of the layout
        if not rest or rest[:1] == b"]":
            return self._clause.may_end(place)
        item = rest[1:].lstrip(_SPACE)
        most = FEW
        while most < len(place.used) + 2:
            most *= 2
        return rest[:1] == b"," and all(self._plenty(row.goal, item, most) for row in self._clause.moves(place))

    def _plenty(self, goal: Goal, begun: bytes, most: int) -> bool:
        """Whether more than ``most`` values of ``goal`` begin as ``begun`` does (which closes none), or none at all."""
        compiler = self._compiler
        if not self._more(goal, most):
            return False
        if not begun:
            return True  # values are not scarce
        if begun[:1] != b'"':
            kinds = [kind for kind in compiler.types(goal) if kind != "null"]
            return len(kinds) == 1 and begun in (b"[", b"{", b'{"')
        strings = compiler.shape(goal, "string")
        assert isinstance(strings, Language)
        languages = compiler.languages
        if strings is languages.EMPTY or strings is languages.ANY:
            return True
        return begun == b'"' and languages.finite(strings, most) is None

    def _more(self, goal: Goal, most: int) -> bool:
        """Whether ``goal`` has more values than that."""
        if most <= FEW:
            return self.few(goal) is None
        found = self._many.get((goal, most))
        if found is None:
            found = self._many[goal, most] = instances(self._compiler, goal, most) is None
        return found

    def follow(self, place: Place, text: bytes) -> Place:
        """The state after an item that was written as ``text``."""
        value = load(text)
        key = json_key(value)
        self._values[key] = value
        return place._replace(used=place.used | {key})

    def steps(self, place: Place) -> Iterator[Place]:
        """What may follow an item, for the search whether the array can be completed: a value out of few is
        one of them; out of many it can be one that matters to nobody."""
        for row in self._clause.moves(place):
            values = self.few(row.goal)
            if values is None:
                yield row.after._replace(used=place.used)
            else:
                self._values.update(values)
                for key in values:
                    if key not in place.used:
                        yield row.after._replace(used=place.used | {key})

    def _fatal(self, row: Row, used: frozenset[Hashable]) -> frozenset[Hashable]:
        """Values that, used here, would leave a later item without any."""
        after = row.after
        scarce = {**self._all_scarce(), **(self.few(row.goal) or {})}
        self._values.update(scarce)
        live = self._clause.live
        return frozenset(key for key in scarce if key not in used and not live(after._replace(used=used | {key})))

    def _all_scarce(self) -> Values:
        """Every value of the items that have few."""
        if self._scarce is None:
            clause, found = self._clause, Values()
            goals = [clause.base(at) for at in range(clause.prefix + 1)]
            for goal in goals:
                found.update(self.few(goal) or {})
                for one in clause.contains:
                    found.update(self.few(self._compiler.goals.goal((*goal.literals, one.literal))) or {})
            self._scarce = found
        return self._scarce

    def _without(self, goal: Goal, keys: frozenset[Hashable]) -> Goal:
        """``goal`` without these values: those with parts are a literal each, which later items share."""
        if not keys:
            return goal
        whole = [key for key in keys if isinstance(self._values[key], (dict, list))]
        others = keys.difference(whole) if whole else keys
        literals = [self._excluding(frozenset((key,))) for key in whole]
        if others:
            literals.append(self._excluding(others))
        return self._compiler.goals.goal((*goal.literals, *literals))

    def _excluding(self, keys: frozenset[Hashable]) -> Literal:
        literal = self._excluded.get(keys)
        if literal is None:
            values: tuple[Any, ...] = tuple(self._values[key] for key in keys)
            literal = self._compiler.goals.literal(Node("#", values=values), (), False)
            self._excluded[keys] = literal
        return literal
