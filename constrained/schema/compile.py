"""JSON Schema -> rules. What each JSON type leaves of a goal, and the productions that write it.

::

    value(goal) -> "null" | "true" | "false" | number | '"' string | "[" items | "{" members

Every nonterminal is made when it is first needed and expanded when the machine first reaches it; a production is left
out unless something can be written for it (:mod:`.satisfy`), so there are no dead ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NoReturn

from ..interface import ConstraintError
from ..pushdown.rules import Lexeme, Production, Rules
from ..regular.language import Language
from ..regular.languages import Languages
from .arrays import ArrayClause, Place
from .clauses import ArrayAlgebra, Clauses, ObjectAlgebra
from .errors import SchemaError
from .formula import Formula, TooMany
from .goals import Goal, Goals, Literal, plainly_satisfiable
from .layout import Layout
from .node import TYPES, Node
from .objects import Key, ObjectClause, State, spelled
from .options import SchemaOptions
from .satisfy import Solver
from .scalars import ConstantAlgebra, Constants, NumberAlgebra, StringAlgebra

_TOO_DEEP = "the schema is nested too deeply; write fewer levels, or name parts of it in $defs"
_CONSTANTS = {None: b"null", True: b"true", False: b"false"}


def compile_schema(root: Node, options: SchemaOptions, languages: Languages, rules: Rules) -> int:
    """The nonterminal of one JSON value that satisfies ``root``. Raises ConstraintError if none does."""
    return Compiler(options, languages, rules).start(root)


class Compiler:
    """The tables of one schema. Its nonterminals keep it alive."""

    def __init__(self, options: SchemaOptions, languages: Languages, rules: Rules) -> None:
        self.languages = languages
        self.rules = rules
        self.options = options
        self.any_order = options.any_order
        self.goals = Goals()
        self.layout = Layout(rules, options.whitespace)
        self.solver = Solver(languages, self._check)
        #: goals whose values are being listed, for uniqueItems
        self.listing: set[Goal] = set()
        self._arrays = ArrayAlgebra(self.goals)
        self._objects = ObjectAlgebra(self.goals, languages)
        self.conflicts = self._objects.conflicts

    @cached_property
    def _nulls(self) -> Formula[Constants]:
        return Formula(self.goals, ConstantAlgebra("null", frozenset({None})))

    @cached_property
    def _booleans(self) -> Formula[Constants]:
        return Formula(self.goals, ConstantAlgebra("boolean", frozenset({True, False})))

    @cached_property
    def _numbers(self) -> Formula[Language]:
        return Formula(self.goals, NumberAlgebra(self.languages))

    @cached_property
    def _strings(self) -> Formula[Language]:
        return Formula(self.goals, StringAlgebra(self.languages))

    def start(self, root: Node) -> int:
        goal = self.goals.goal([self.goals.literal(root, ())])
        try:
            satisfiable = self.solver.ask(goal)
        except RecursionError:
            raise SchemaError("", root.pointer, _TOO_DEEP) from None
        if not satisfiable:
            raise SchemaError("", root.pointer, "no JSON value satisfies this schema")
        return self.value(goal, 0)

    def add(self, expand: Callable[[], Iterator[Production]]) -> int:
        """A nonterminal. A schema whose parts nest too deeply is an error of its own, wherever that shows."""

        def expanded() -> list[Production]:
            try:
                return list(expand())
            except RecursionError:
                raise SchemaError("", "#", _TOO_DEEP) from None

        return self.rules.add(expanded)

    def too_many(self, message: str) -> NoReturn:
        raise ConstraintError(f"JSON Schema: {message}; write fewer alternatives")

    # ------------------------------------------------------------ what a goal leaves of each type

    def types(self, goal: Goal) -> Iterable[str]:
        """The JSON types that the goal's own ``type`` keywords allow."""
        allowed: frozenset[str] | None = None
        for literal in goal.literals:
            if literal.positive and literal.node.types is not None:
                allowed = literal.node.types if allowed is None else allowed & literal.node.types
        return TYPES if allowed is None else [kind for kind in TYPES if kind in allowed]

    def shape(self, goal: Goal, kind: str) -> object:
        """Constants, a Language, or the possible clauses. Falsy, or EMPTY, if no value of this type satisfies it."""
        found = goal.shapes.get(kind)
        if found is None:
            found = goal.shapes[kind] = self._shape(goal, kind)
        return found

    def _shape(self, goal: Goal, kind: str) -> object:
        if kind == "object":
            return [ObjectClause(self, clause) for clause in self._clauses(self._objects.formula, goal)]
        if kind == "string":
            return self._scalar(self._strings, goal)
        if kind == "number":
            return self._scalar(self._numbers, goal)
        if kind == "array":
            return [ArrayClause(self, clause) for clause in self._clauses(self._arrays.formula, goal)]
        return self._scalar(self._nulls if kind == "null" else self._booleans, goal)

    def _scalar(self, formula: Formula, goal: Goal) -> object:  # type: ignore[type-arg]
        if len(goal.literals) == 1:
            return formula(goal.literals[0])
        return formula.algebra.meet([formula(literal) for literal in goal.literals])

    def _clauses(self, formula: Formula[Clauses], goal: Goal) -> Clauses:
        if len(goal.literals) == 1:
            return formula(goal.literals[0])
        try:
            return formula.algebra.meet([formula(literal) for literal in goal.literals])
        except TooMany as reason:
            raise SchemaError("", goal.literals[0].node.pointer, str(reason)) from None

    def _check(self, goal: Goal) -> bool:
        if len(goal.literals) == 1 and plainly_satisfiable(goal.literals[0]):
            return True
        return any(self._inhabited(goal, kind) for kind in self.types(goal))

    def _inhabited(self, goal: Goal, kind: str) -> bool:
        shape = self.shape(goal, kind)
        if isinstance(shape, Language):
            return not self.languages.is_empty(shape)
        if isinstance(shape, frozenset):
            return bool(shape)
        assert isinstance(shape, list)
        return any(clause.possible() for clause in shape)

    def string_of(self, literal: Literal) -> Language:
        """The strings that satisfy a literal (of propertyNames)."""
        return self._strings(literal)

    def can_write(self, name: str) -> bool:
        """Whether a key can be written at all."""
        return name.isascii() or self.languages.literal(name) is not self.languages.EMPTY

    # ------------------------------------------------------------ productions

    def value(self, goal: Goal, depth: int) -> int:
        found = goal.nonterminals.get(depth)
        if found is None:
            found = self.add(lambda: self._value(goal, depth))
            goal.nonterminals[depth] = found
        return found

    def _value(self, goal: Goal, depth: int) -> Iterator[Production]:
        for kind in self.types(goal):
            shape = self.shape(goal, kind)
            if isinstance(shape, Language):
                if not self.languages.is_empty(shape):
                    yield (b'"', Lexeme(shape, json=True)) if kind == "string" else (Lexeme(shape),)
            elif isinstance(shape, frozenset):
                for constant in shape:
                    yield (_CONSTANTS[constant],)
            else:
                assert isinstance(shape, list)
                for clause in shape:
                    if clause.possible():
                        yield from self._container(clause, depth)

    def _container(self, clause: ObjectClause | ArrayClause, depth: int) -> Iterator[Production]:
        layout = self.layout
        if isinstance(clause, ObjectClause):
            members = Members(self, clause, depth)
            if clause.may_end(clause.start):
                yield (b"{}",)
            first = members.keys(clause.start)
            if first is not None:
                yield (b"{", *layout.first(depth), first)
        else:
            row = Rows(self, clause, depth)
            if clause.may_end(clause.start):
                yield (b"[]",)
            item = row.items(clause.start)
            if item is not None:
                yield (b"[", *layout.first(depth), item)


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

        return self._compiler.rules.add_dependent(lambda: list(self._after(place)), resolve)

    def _after(self, place: Place) -> Iterator[Production]:
        layout = self._compiler.layout
        if self._clause.may_end(place):
            yield layout.close(b"]", self._depth)
        items = self.items(place)
        if items is not None:
            yield (*layout.comma(self._depth), items)
