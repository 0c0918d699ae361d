"""Clauses of an object that clearly contradict themselves: a look at required names, without going into values.

::

    {"kind" is "a"} and {"kind" is "b"} and "kind" is required     impossible

This keeps products of many if/then and oneOf small; whether what is left is possible is decided in
:mod:`.satisfy`. It says "impossible" only for what is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .goals import Goals, Literal
from .in_place import beside, conjuncts
from .node import TYPES, Node, says_only
from .scalars import kept_pattern
from .values import json_key

if TYPE_CHECKING:
    from ..regular.languages import Languages

#: texts of a pattern that are looked at
FEW = 8
#: schemas beside each other in which a discriminator is looked for
FEW_PARTS = 16
_ALL, _STRING = frozenset(TYPES), frozenset({"string"})


class _Kind(NamedTuple):
    """The few values that a schema allows of a name, and whether the object has it where the schema holds."""

    values: frozenset[Hashable]
    needed: bool


def _apart(mine: dict[str, _Kind], its: dict[str, _Kind]) -> bool:
    return any(
        (mine[name].needed or its[name].needed) and mine[name].values.isdisjoint(its[name].values)
        for name in mine.keys() & its.keys()
    )


class Conflicts:
    """Answers :meth:`impossible` for sets of atoms."""

    def __init__(self, goals: Goals, languages: Languages) -> None:
        self._goals = goals
        self._languages = languages
        self._keys: dict[Node, frozenset[Hashable] | None] = {}
        # asked again for every clause of a product
        self._excluded: dict[Literal, tuple[str, Node] | None] = {}
        self._exact: dict[Node, frozenset[Hashable]] = {}

    def impossible(self, held: list[Literal], violated: list[Literal], there: set[str], absent: set[str]) -> bool:
        """``held`` and ``violated``: schemas whose object keywords hold or do not; names that are there, or absent."""
        excluded: dict[str, list[Node]] = {}
        for literal in held:
            there.update(literal.node.required)
        for literal in violated:
            known = self._excluded[literal] if literal in self._excluded else self._exclude(literal)
            if known is not None:
                there.add(known[0])
                excluded.setdefault(known[0], []).append(known[1])
        if not absent.isdisjoint(there):
            return True
        return any(self._no_value(name, held, excluded.get(name, ())) for name in there)

    def _exclude(self, literal: Literal) -> tuple[str, Node] | None:
        """The one name by whose value alone it can be violated, and what that value must not satisfy."""
        name = _only_name(literal.node)
        found = None if name is None else (name, self._goals.literal(literal.node.properties[name], literal.scope).node)
        self._excluded[literal] = found
        return found

    def not_told_apart(self, branches: list[Literal], there: frozenset[str]) -> Iterator[tuple[int, int]]:
        """The pairs of schemas that may hold for one object, but for those told apart by a name that the object has if
        both hold, and of which they allow other values: a discriminator. ``there``: names that the object has."""
        kinds = [self._kinds(branch, there) for branch in branches]
        counts = Counter(name for mine in kinds for name, kind in mine.items() if kind.needed)
        usual = max(counts, key=counts.__getitem__, default="")
        anybody: list[int] = []  # without values of that name, and with values but without the need to have it
        optional: list[int] = []
        by_value: dict[Hashable, list[int]] = {}
        for at, mine in enumerate(kinds):
            kind = mine.get(usual)
            if kind is None:
                others: Iterable[int] = range(at)
                anybody.append(at)
            else:
                others = {*anybody, *(one for value in kind.values for one in by_value.get(value, ()))}
                if not kind.needed:
                    others |= set(optional)
                    optional.append(at)
                for value in kind.values:
                    by_value.setdefault(value, []).append(at)
            for one in others:
                if not _apart(mine, kinds[one]):
                    yield one, at

    def _kinds(self, literal: Literal, there: frozenset[str]) -> dict[str, _Kind]:
        """What the schema says of names with few values, by name."""
        parts = list(islice(beside(literal.node, conjuncts), FEW_PARTS))
        needed = there.union(*(part.required for part in parts))
        found: dict[str, _Kind] = {}
        for part in parts:
            for name, child in part.properties.items():
                listed = self.listed(self._goals.literal(child, literal.scope).node)
                if listed is not None:
                    known = found.get(name)
                    found[name] = _Kind(listed if known is None else known.values & listed, name in needed)
        return found

    def _no_value(self, name: str, held: list[Literal], excluded: Iterable[Node]) -> bool:
        kinds = _ALL
        values: frozenset[Hashable] | None = None
        barred = list(excluded)
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
            exact = self._exact.get(node)
            values -= self._exactly(node) if exact is None else exact
        return not any(_kind(value) in kinds for value in values)

    def _exactly(self, node: Node) -> frozenset[Hashable]:
        """The values of an enum or const that is the whole schema; else none."""
        listed = self.listed(node)
        found = self._exact[node] = listed if listed is not None and _only_values(node) else frozenset()
        return found

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


#: enum or const is the whole schema: every value listed satisfies it
_only_values = says_only("values")


def _kind(key: Hashable) -> str:
    """The JSON type of a value, from its key."""
    if key is None:
        return "null"
    if isinstance(key, str):
        return "string"
    if isinstance(key, tuple):
        return {"b": "boolean", "a": "array", "o": "object"}[key[0]]
    return "number"
