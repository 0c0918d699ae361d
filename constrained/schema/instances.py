"""All values that satisfy a goal, where they are few: what uniqueItems has to know to leave no dead ends."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..regular.language import Language
from .arrays import ArrayClause, Place
from .goals import Goal
from .node import Node
from .objects import ObjectClause, State
from .values import json_key

if TYPE_CHECKING:
    from .compile import Compiler

#: values of values that are looked into
MAX_DEPTH = 4


class _TooMany(Exception):
    pass


Values = dict[Hashable, Any]


def load(text: bytes) -> Any:
    """A written JSON value; of a key that stands twice the last value, as every reader of JSON takes it."""
    return json.loads(text, parse_float=Decimal)


def single(value: Any) -> Node:
    """A schema that only this value satisfies."""
    return Node("#", values=(value,))


def instances(compiler: Compiler, goal: Goal, limit: int) -> Values | None:
    """The values by :func:`.values.json_key`, or None if they are more than ``limit`` (or not easily known)."""
    if goal in compiler.listing:
        return None  # its values hold values of its own kind: as many as one likes
    compiler.listing.add(goal)
    try:
        return _instances(compiler, goal, limit, 0)
    except _TooMany:
        return None
    finally:
        compiler.listing.discard(goal)


def _instances(compiler: Compiler, goal: Goal, limit: int, depth: int) -> Values:
    listed = [literal.node.values for literal in goal.literals if literal.positive and literal.node.values is not None]
    if listed:
        found: Values = {}
        for value in min(listed, key=len):
            literal = compiler.goals.literal(single(value), ())
            if compiler.solver.ask(compiler.goals.goal((*goal.literals, literal))):
                found[json_key(value)] = value
        return _checked(found, limit)
    if not goal.literals or depth > MAX_DEPTH:
        raise _TooMany
    found = {}
    for kind in compiler.types(goal):
        for value in _of_kind(compiler, goal, kind, limit, depth):
            found[json_key(value)] = value
            _checked(found, limit)
    return found


def _checked(found: Values, limit: int) -> Values:
    if len(found) > limit:
        raise _TooMany
    return found


def _of_kind(compiler: Compiler, goal: Goal, kind: str, limit: int, depth: int) -> Iterator[Any]:
    shape = compiler.shape(goal, kind)
    if isinstance(shape, Language):
        # a value may be spelled in many ways, but a few values of unbounded texts are not told apart here
        texts = compiler.languages.finite(shape, limit if kind == "string" else 4 * limit)
        if texts is None:
            raise _TooMany
        yield from texts if kind == "string" else map(Decimal, texts)
    elif isinstance(shape, frozenset):
        yield from shape
    else:
        assert isinstance(shape, list)
        for clause in shape:
            if clause.possible():
                yield from _of_clause(compiler, clause, limit, depth)


def _of_clause(compiler: Compiler, clause: ArrayClause | ObjectClause, limit: int, depth: int) -> Iterator[Any]:
    """Every array or object, shortest first. Stops with _TooMany rather than run on."""
    if isinstance(clause, ArrayClause):
        return _arrays(compiler, clause, limit, depth)
    return _objects(compiler, clause, limit, depth)


def _arrays(compiler: Compiler, clause: ArrayClause, limit: int, depth: int) -> Iterator[list[Any]]:
    if clause.unique is not None:
        raise _TooMany
    begun: list[tuple[list[Any], Place]] = [([], clause.start)]
    for items, place in begun:
        if clause.may_end(place):
            yield items
        for row in clause.rows(place):
            for value in _instances(compiler, row.goal, limit, depth + 1).values():
                begun.append(([*items, value], row.after))
        if len(begun) > 4 * limit:
            raise _TooMany


def _objects(compiler: Compiler, clause: ObjectClause, limit: int, depth: int) -> Iterator[dict[str, Any]]:
    begun: list[tuple[dict[str, Any], State]] = [({}, clause.start)]
    for written, state in begun:
        if clause.may_end(state):
            yield written
        for key in clause.keys(state):
            if key.name is None:
                raise _TooMany
            for value in _instances(compiler, key.goal, limit, depth + 1).values():
                begun.append(({**written, key.name: value}, key.after))
        if len(begun) > 4 * limit:
            raise _TooMany
