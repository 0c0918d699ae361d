"""The productions of objects and arrays: what the automata of :mod:`.objects` and :mod:`.arrays` allow, written out.

::

    "{" keys    keys -> key ":" value tail | ...    tail -> "}" | "," keys        one nonterminal per state

Where a name or a value decides what may follow, the nonterminal behind it depends on it (``Rules.add_dependent``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..pushdown.rules import Lexeme, Production
from .arrays import ArrayClause, Place
from .objects import Key, ObjectClause, State, spelled

if TYPE_CHECKING:
    from .compile import Compiler


class Members:
    """The productions of one clause's objects at one depth."""

    def __init__(self, compiler: Compiler, clause: ObjectClause, depth: int) -> None:
        self._compiler = compiler
        self._clause = clause
        self._depth = depth
        self._inside = compiler.layout.inside(depth)
        self._keys: dict[State, int | None] = {}
        self._tails: dict[State, int] = {}

    def keys(self, state: State) -> int | None:
        """What begins with a key; None if none may come."""
        if state not in self._keys:
            some = next(self._clause.keys(state), None)
            made = None if some is None else self._compiler.add(lambda: self._expand(state))
            self._keys[state] = made
        return self._keys[state]

    def tail(self, state: State) -> int:
        """What comes after a member: the end, or a comma and another one."""
        found = self._tails.get(state)
        if found is None:
            found = self._tails[state] = self._compiler.add(lambda: self._after(state))
        return found

    def _after(self, state: State) -> Iterator[Production]:
        layout = self._compiler.layout
        if self._clause.may_end(state):
            yield layout.close(b"}", self._depth)
        keys = self.keys(state)
        if keys is not None:
            yield (*layout.comma(self._depth), keys)

    def _expand(self, state: State) -> Iterator[Production]:
        colon = self._compiler.layout.colon
        first = colon[0]
        assert isinstance(first, bytes)
        for key in self._clause.keys(state):
            if key.name is not None:
                yield (spelled(key.name) + first, *colon[1:], *self._value(key, key.after))
                continue
            language = self._clause.language(key.cell, state)
            if language is self._compiler.languages.EMPTY:
                continue
            name = Lexeme(language, json=True)
            if key.remember:
                yield (b'"', name, self._remembered(key, state))
            else:
                yield (b'"', name, *colon, *self._value(key, key.after))

    def _value(self, key: Key, after: State) -> tuple[int, int]:
        return (self._compiler.value(key.goal, self._inside), self.tail(after))

    def _remembered(self, key: Key, state: State) -> int:
        """What follows an undeclared key that is not to come again."""
        rules, colon = self._compiler.rules, self._compiler.layout.colon
        rests: dict[str, int] = {}

        def resolve(text: bytes) -> int | None:
            name = json.loads(text)
            if not isinstance(name, str) or name in state.banned:
                return None
            if name not in rests:
                after = key.after._replace(banned=state.banned | {name})
                rests[name] = rules.add(lambda: ((*colon, *self._value(key, after)),))
            return rests[name]

        return rules.add_dependent(lambda: ((*colon, *self._value(key, key.after)),), resolve)


class Rows:
    """The productions of one clause's arrays at one depth."""

    def __init__(self, compiler: Compiler, clause: ArrayClause, depth: int) -> None:
        self._compiler = compiler
        self._clause = clause
        self._depth = depth
        self._inside = compiler.layout.inside(depth)
        self._items: dict[Place, int | None] = {}
        self._tails: dict[Place, int] = {}

    def items(self, place: Place) -> int | None:
        """What begins with an item; None if none may come."""
        if place not in self._items:
            some = next(self._clause.rows(place), None)
            made = None if some is None else self._compiler.add(lambda: self._expand(place))
            self._items[place] = made
        return self._items[place]

    def _expand(self, place: Place) -> Iterator[Production]:
        for row in self._clause.rows(place):
            after = self._dependent(row.after) if row.remember else self._tail(row.after)
            yield (self._compiler.value(row.goal, self._inside), after)

    def _tail(self, place: Place) -> int:
        found = self._tails.get(place)
        if found is None:
            found = self._tails[place] = self._compiler.add(lambda: self._after(place))
        return found

    def _dependent(self, place: Place) -> int:
        """What follows an item whose value is remembered."""

        def resolve(text: bytes) -> int | None:
            after = self._clause.follow(place, text)
            return None if after is None else self._tail(after)

        distinct = self._clause.distinct
        indifferent = None if distinct is None else lambda rest: distinct.indifferent(place, rest)
        return self._compiler.rules.add_dependent(lambda: list(self._after(place)), resolve, indifferent)

    def _after(self, place: Place) -> Iterator[Production]:
        layout = self._compiler.layout
        if self._clause.may_end(place):
            yield layout.close(b"]", self._depth)
        items = self.items(place)
        if items is not None:
            yield (*layout.comma(self._depth), items)
