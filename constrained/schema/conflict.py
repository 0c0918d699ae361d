"""Clauses of an object that clearly contradict themselves: a look at required names, without going into values.

::

    {"kind" is "a"} and {"kind" is "b"} and "kind" is required     impossible

This keeps products of many if/then and oneOf small; whether what is left is possible is decided in
:mod:`.satisfy`. It says "impossible" only for what is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from .goals import Goals, Literal
from .node import FIELDS, TYPES, Node
from .scalars import kept_pattern
from .values import json_key

if TYPE_CHECKING:
    from ..regular.languages import Languages

#: texts of a pattern that are looked at
FEW = 8
_ALL, _STRING = frozenset(TYPES), frozenset({"string"})


class Conflicts:
    """Answers :meth:`impossible` for sets of atoms."""

    def __init__(self, goals: Goals, languages: Languages) -> None:
        self._goals = goals
        self._languages = languages
        self._keys: dict[Node, frozenset[Hashable] | None] = {}

    def impossible(self, held: list[Literal], violated: list[Literal], there: set[str], absent: set[str]) -> bool:
        """``held`` and ``violated``: schemas whose object keywords hold or do not; names that are there, or absent."""
        excluded: dict[str, list[Literal]] = {}
        for literal in held:
            there.update(literal.node.required)
        for literal in violated:
            name = _only_name(literal.node)
            if name is not None:
                there.add(name)
                excluded.setdefault(name, []).append(self._goals.literal(literal.node.properties[name], literal.scope))
        if not absent.isdisjoint(there):
            return True
        return any(self._no_value(name, held, excluded.get(name, ())) for name in there)

    def apart(self, one: Literal, other: Literal, there: frozenset[str]) -> bool:
        """Whether a name that the object has if both hold has disjoint values in the two. ``there``: names it has."""
        mine, its = one.node.properties, other.node.properties
        for name in mine.keys() & its.keys():
            if name in there or name in one.node.required or name in other.node.required:
                values = self._values(mine[name], one)
                if values is not None:
                    others = self._values(its[name], other)
                    if others is not None and values.isdisjoint(others):
                        return True
        return False

    def _values(self, child: Node, around: Literal) -> frozenset[Hashable] | None:
        return self.listed(self._goals.literal(child, around.scope).node)

    def _no_value(self, name: str, held: list[Literal], excluded: Iterable[Literal]) -> bool:
        kinds = _ALL
        values: frozenset[Hashable] | None = None
        barred = [literal.node for literal in excluded]
        for literal in held:
            node = literal.node
            child = node.properties.get(name)
            if child is None:
                if node.additional_properties is None or node.pattern_properties:
                    continue
                child = node.additional_properties
            inner = self._goals.literal(child, literal.scope).node
            if inner.always is False:
                return True
            if inner.types is not None:
                kinds &= inner.types
            if inner.not_ is not None:
                barred.append(inner.not_)
            listed = self.listed(inner)
            if listed is not None:
                values = listed if values is None else values & listed
        if not kinds or (values is not None and not values):
            return True
        if values is None:
            return False
        for node in barred:
            listed = self.listed(node)
            if listed is not None and _only_values(node):
                values -= listed
        return not any(_kind(value) in kinds for value in values)

    def listed(self, node: Node) -> frozenset[Hashable] | None:
        """The values of enum or const, or the few texts of a pattern like ^this$; None: not that few."""
        if node not in self._keys:
            self._keys[node] = self._list(node)
        return self._keys[node]

    def _list(self, node: Node) -> frozenset[Hashable] | None:
        if node.values is not None:
            return frozenset(map(json_key, node.values))
        pattern = node.pattern
        if pattern and pattern[0] == "^" and pattern[-1] == "$" and node.types == _STRING:
            texts = self._languages.finite(kept_pattern(self._languages, pattern, "pattern", node.pointer), FEW)
            return None if texts is None else frozenset(texts)
        return None


def _only_name(node: Node) -> str | None:
    """The one name by whose value alone a schema's object keywords can be violated."""
    if len(node.properties) != 1:
        return None
    if (
        node.required
        or node.min_properties
        or node.max_properties is not None
        or node.pattern_properties
        or node.additional_properties is not None
        or node.property_names is not None
        or node.dependent_required
    ):
        return None
    return next(iter(node.properties))


_BESIDE_VALUES = attrgetter(*sorted(FIELDS - {"values", "resource", "source"}))
_BLANK = _BESIDE_VALUES(Node(""))


def _only_values(node: Node) -> bool:
    """enum or const is the whole schema: every value listed satisfies it."""
    return bool(_BESIDE_VALUES(node) == _BLANK)


def _kind(key: Hashable) -> str:
    """The JSON type of a value, from its key."""
    if key is None:
        return "null"
    if isinstance(key, str):
        return "string"
    if isinstance(key, tuple):
        return {"b": "boolean", "a": "array", "o": "object"}[key[0]]
    return "number"
