"""Validates an instance against a Node by reading the Node's fields: what they mean, without any compiling.

An independent second reading of the Node form, for tests of the schema reader and as an oracle for its compiler.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from plait.constrained.schema.node import Node
from plait.constrained.schema.values import exact, json_key


class Seen(NamedTuple):
    """A valid instance: the property names and the item positions that were evaluated."""

    names: frozenset[str] = frozenset()
    items: frozenset[int] = frozenset()

    def __or__(self, other: Seen) -> Seen:  # type: ignore[override]
        return Seen(self.names | other.names, self.items | other.items)


def valid(node: Node, instance: Any) -> bool:
    return evaluate(node, instance, ()) is not None


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    return {str: "string", list: "array", dict: "object"}[type(value)]


def evaluate(node: Node, value: Any, scope: tuple[str, ...], depth: int = 0) -> Seen | None:
    """What was evaluated; None if invalid. ``scope``: the dynamic scope outside of ``node``."""
    if node.always is not None:
        return Seen() if node.always else None
    assert depth < 150, "the schema goes in circles"
    scope = node.within(scope)
    of = kind(value)
    if node.types is not None and of not in node.types:
        return None
    if node.values is not None and json_key(value) not in {json_key(one) for one in node.values}:
        return None
    if of == "number" and not _number(node, exact(value)):
        return None
    if of == "string" and not _string(node, value):
        return None
    seen = Seen()

    def down(one: Node, part: Any) -> bool:
        return evaluate(one, part, scope, depth + 1) is not None

    if of == "array":
        got = _array(node, value, down)
        if got is None:
            return None
        seen |= Seen(items=got)
    if of == "object":
        names = _object(node, value, down)
        if names is None:
            return None
        seen |= Seen(names)
    placed = _in_place(node, value, scope, depth)
    if placed is None:
        return None
    seen |= placed
    if of == "array" and node.unevaluated_items is not None:
        for at, item in enumerate(value):
            if at not in seen.items and not down(node.unevaluated_items, item):
                return None
        seen |= Seen(items=frozenset(range(len(value))))
    if of == "object" and node.unevaluated_properties is not None:
        for key, item in value.items():
            if key not in seen.names and not down(node.unevaluated_properties, item):
                return None
        seen |= Seen(frozenset(value))
    return seen


def _number(node: Node, value: Fraction | None) -> bool:
    assert value is not None
    return (
        (not node.integer or value.denominator == 1)
        and (node.minimum is None or value >= node.minimum)
        and (node.maximum is None or value <= node.maximum)
        and (node.exclusive_minimum is None or value > node.exclusive_minimum)
        and (node.exclusive_maximum is None or value < node.exclusive_maximum)
        and (node.multiple_of is None or (value / node.multiple_of).denominator == 1)
    )


def _string(node: Node, value: str) -> bool:
    return (
        node.min_length <= len(value)
        and (node.max_length is None or len(value) <= node.max_length)
        and (node.pattern is None or searched(node.pattern, value))
    )


def searched(pattern: str, value: str) -> bool:
    """ECMA-262 search, near enough for tests."""
    return re.search(re.sub(r"(?<!\\)\$", r"\\Z", pattern), value, re.ASCII) is not None


def _array(node: Node, value: list[Any], down: Any) -> frozenset[int] | None:
    if len(value) < node.min_items or (node.max_items is not None and len(value) > node.max_items):
        return None
    if node.unique_items and len({json_key(one) for one in value}) < len(value):
        return None
    got: set[int] = set()
    for at, item in enumerate(value):
        one = node.prefix_items[at] if at < len(node.prefix_items) else node.items
        if one is not None:
            if not down(one, item):
                return None
            got.add(at)
    if node.contains is not None:
        matching = [at for at, item in enumerate(value) if down(node.contains, item)]
        if len(matching) < node.min_contains or (node.max_contains is not None and len(matching) > node.max_contains):
            return None
        if node.contains_evaluates:
            got.update(matching)
    return frozenset(got)


def _object(node: Node, value: dict[str, Any], down: Any) -> frozenset[str] | None:
    if len(value) < node.min_properties or (node.max_properties is not None and len(value) > node.max_properties):
        return None
    if any(name not in value for name in node.required):
        return None
    for name, needed in node.dependent_required.items():
        if name in value and any(other not in value for other in needed):
            return None
    got: set[str] = set()
    for key, item in value.items():
        if node.property_names is not None and not down(node.property_names, key):
            return None
        found = [one for pattern, one in node.pattern_properties.items() if searched(pattern, key)]
        if key in node.properties:
            found.append(node.properties[key])
        if not found and node.additional_properties is not None:
            found.append(node.additional_properties)
        if not all(down(one, item) for one in found):
            return None
        if found:
            got.add(key)
    return frozenset(got)


def _in_place(node: Node, value: Any, scope: tuple[str, ...], depth: int) -> Seen | None:
    seen = Seen()

    def here(one: Node) -> Seen | None:
        return evaluate(one, value, scope, depth + 1)

    must = list(node.all_of)
    if node.ref is not None:
        must.append(node.ref())
    if node.dynamic_ref is not None:
        must.append(node.dynamic_ref(scope))
    if isinstance(value, dict):
        must += [one for name, one in node.dependent_schemas.items() if name in value]
    if node.if_ is not None:
        tested = here(node.if_)
        if tested is not None:
            seen |= tested
        then = node.then if tested is not None else node.else_
        if then is not None:
            must.append(then)
    for one in must:
        got = here(one)
        if got is None:
            return None
        seen |= got
    for options, exactly in ((node.any_of, False), (node.one_of, True)):
        if options is not None:
            held = [got for got in map(here, options) if got is not None]
            if not held or (exactly and len(held) > 1):
                return None
            for got in held:
                seen |= got
    if node.not_ is not None and here(node.not_) is not None:
        return None
    return seen
