"""The productions of objects and arrays: what the automata of :mod:`.objects` and :mod:`.arrays` allow, written out.

::

    "{" keys    keys -> names | last    names -> "a" ":" value tail | ... | names of the next block
                                                                                           tail -> "}" | "," keys
    "[" items   items -> item tail | ...                                                   tail -> "]" | "," items

There is one nonterminal per state. The names of a list that may come stand in it up to the end of their block, and the
blocks behind are said once: with all names in each state, n optional keys would be n * n productions.

Where a name or a value decides what may follow, the nonterminal behind it depends on it (``Rules.add_dependent``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..pushdown.rules import Lexeme, Production
from .arrays import ArrayClause, Place, Row
from .objects import Key, ObjectClause, State, spelled

if TYPE_CHECKING:
    from .compile import Compiler
    from .goals import Goal
    from .layout import Layout

#: names of a list that stand beside each other. A machine opens one block after another, which costs it a turn each
BLOCK = 32


class Members:
    """The productions of one clause's objects in one layout. ``quote``: what a key begins with that is not written
    yet."""

    def __init__(self, compiler: Compiler, clause: ObjectClause, layout: Layout, quote: bytes = b'"') -> None:
        self._compiler = compiler
        self._clause = clause
        self._layout = layout
        self._quote = quote
        self._keys: dict[State, int | None] = {}
        self._lists: dict[tuple[int, State], int] = {}
        self._lasts: dict[State, int | None] = {}
        self._tails: dict[State, int] = {}

    def keys(self, state: State) -> int | None:
        """What begins with a key; None if none may come."""
        if state not in self._keys:
            self._keys[state] = self._find_keys(state)
        return self._keys[state]

    def _find_keys(self, state: State) -> int | None:
        clause = self._clause
        ended = clause.past_lists(state)
        found = [self._listed(state, which) for which in range(len(state.at))]
        parts = [part for part in (*found, None if ended is None else self._last(ended)) if part is not None]
        if not _any(clause.free(state)) and len(parts) < 2:
            return parts[0] if parts else None
        return self._add(lambda: [*((part,) for part in parts), *self._expand(state, clause.free(state))])

    def _listed(self, state: State, which: int) -> int | None:
        """What begins with a name of one list: the next that may come, or what may come without it."""
        clause = self._clause
        here: State | None = state
        while here is not None and not _any(clause.next_listed(here, which)):
            here = clause.without_next(here, which)
        if here is None:
            return None
        found = self._lists.get((which, here))
        if found is None:
            found = self._lists[which, here] = self._add(self._expand_listed, here, which)
        return found

    def _expand_listed(self, state: State, which: int) -> list[Production]:
        made: list[Production] = []
        here: State | None = state
        while here is not None:
            made += self._expand(here, self._clause.next_listed(here, which))
            here = self._clause.without_next(here, which)
            if here is not None and here.at[which] % BLOCK == 0:
                rest = self._listed(here, which)
                return made if rest is None else [*made, (rest,)]
        return made

    def _last(self, state: State) -> int | None:
        """What begins with a key behind all lists."""
        if state not in self._lasts:
            some = _any(self._clause.last(state))
            made = self._add(lambda: self._expand(state, self._clause.last(state))) if some else None
            self._lasts[state] = made
        return self._lasts[state]

    def tail(self, state: State) -> int:
        """What comes after a member: the end, or a comma and another one."""
        found = self._tails.get(state)
        if found is None:
            found = self._tails[state] = self._add(self._after, state)
        return found

    def _after(self, state: State) -> Iterator[Production]:
        if self._clause.may_end(state):
            yield (self._layout.close(b"}"),)
        keys = self.keys(state)
        if keys is not None:
            yield (*self._layout.comma, keys)

    def _expand(self, state: State, keys: Iterable[Key]) -> list[Production]:
        colon, quote = self._layout.colon, self._quote
        first, *space = colon
        assert isinstance(first, bytes)
        written = 1 - len(quote)
        made: list[Production] = []
        for key in keys:
            if key.name is not None:
                made.append((spelled(key.name)[written:] + first, *space, *self._value(key.goal, key.after)))
                continue
            language = self._clause.language(key.cell, state)
            if language is self._compiler.languages.EMPTY:
                continue
            name = Lexeme(language, json=True)
            if key.remember:
                made.append((quote, name, self._remembered(key, state)))
            else:
                made.append((quote, name, *colon, *self._value(key.goal, key.after)))
        return made

    def _value(self, goal: Goal, after: State) -> Production:
        return (self._compiler.value(goal, self._layout.inside), self.tail(after))

    def _add(self, expand: Callable[..., Iterable[Production]], *arguments: Any) -> int:
        return self._compiler.add(expand, *arguments, again=self._layout.again)

    def _remembered(self, key: Key, state: State) -> int:
        """What follows an undeclared key that is not to come again."""
        rules, colon, again = self._compiler.rules, self._layout.colon, self._layout.again
        rests: dict[str, int] = {}

        def resolve(text: bytes) -> int | None:
            name = json.loads(text)
            if not isinstance(name, str) or name in state.banned:
                return None
            if name not in rests:
                after = key.after._replace(banned=state.banned | {name})
                rests[name] = rules.add(lambda: ((*colon, *self._value(key.goal, after)),), again=again)
            return rests[name]

        # of few names key.after bans one that stands for whichever it was; behind another one that one may still come
        any_name = key.after._replace(banned=state.banned)
        return rules.add_dependent(lambda: ((*colon, *self._value(key.goal, any_name)),), resolve, again=again)


class FirstMember(Members):
    """The productions of a first member. ``behind``: what follows its key and colon, for the value's goal and the state
    after it."""

    def __init__(
        self,
        compiler: Compiler,
        clause: ObjectClause,
        layout: Layout,
        behind: Callable[[Goal, State], Production],
        quote: bytes = b'"',
    ) -> None:
        super().__init__(compiler, clause, layout, quote)
        self._behind = behind

    def _value(self, goal: Goal, after: State) -> Production:
        return self._behind(goal, after)


class Rows:
    """The productions of one clause's arrays in one layout."""

    def __init__(self, compiler: Compiler, clause: ArrayClause, layout: Layout) -> None:
        self._compiler = compiler
        self._clause = clause
        self._layout = layout
        self._items: dict[Place, int | None] = {}
        self._tails: dict[Place, int] = {}

    def items(self, place: Place) -> int | None:
        """What begins with an item; None if none may come."""
        if place not in self._items:
            some = next(self._clause.rows(place), None)
            made = None if some is None else self._add(self._expand, place)
            self._items[place] = made
        return self._items[place]

    def _expand(self, place: Place) -> Iterator[Production]:
        for row in self._clause.rows(place):
            yield (self._compiler.value(row.goal, self._layout.inside), self.behind(row))

    def behind(self, row: Row) -> int:
        """What comes after an item: the end, or a comma and another one. Made anew where the item is remembered."""
        if not row.remember:
            return self.tail(row.after)
        clause = self._clause

        def resolve(text: bytes) -> int | None:
            after = clause.follow(row.after, text)
            return None if after is None else self.tail(after)

        return self._compiler.rules.add_dependent(
            lambda: list(self._after(row.after)), resolve, clause.indifference(row.after), again=self._layout.again
        )

    def tail(self, place: Place) -> int:
        """The same, for the place after the item."""
        found = self._tails.get(place)
        if found is None:
            found = self._tails[place] = self._add(self._after, place)
        return found

    def _add(self, expand: Callable[..., Iterable[Production]], *arguments: Any) -> int:
        return self._compiler.add(expand, *arguments, again=self._layout.again)

    def _after(self, place: Place) -> Iterator[Production]:
        if self._clause.may_end(place):
            yield (self._layout.close(b"]"),)
        items = self.items(place)
        if items is not None:
            yield (*self._layout.comma, items)


def _any(some: Iterable[object]) -> bool:
    """Whether there is at least one; the others are not looked for."""
    return next(iter(some), None) is not None
