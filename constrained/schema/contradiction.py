"""Which part of a schema makes that nothing satisfies it, for the message: the deepest one that is needed and empty.

A part is needed where every value has it: a required key's schema, one of allOf, $ref's target, all of anyOf or oneOf,
items that must come. It is looked at alone, so what is found is a cause by itself; where parts only contradict each
other, the schema that holds them is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .formats import crossed
from .in_place import conjuncts
from .node import Node

#: schemas looked at, at most
_MOST = 200


def contradiction(root: Node, possible: Callable[[Node], bool]) -> tuple[str, str, str]:
    """(keyword, pointer, message). ``possible``: whether something satisfies a schema alone."""
    at, seen = root, {root}
    while True:
        for child in _needed(at):
            if child not in seen and child.always is None and len(seen) < _MOST:
                seen.add(child)
                if not possible(child):
                    at = child
                    break
        else:
            return _said(at, root)


def _needed(node: Node) -> Iterator[Node]:
    if node.always is not None:
        return
    yield from conjuncts(node)
    if _is(node, "object"):
        for name in node.required:
            if name in node.properties:
                yield node.properties[name]
    if _is(node, "array"):
        yield from node.prefix_items[: node.min_items]
        if node.items is not None and node.min_items > len(node.prefix_items):
            yield node.items
    for branches in (node.any_of, node.one_of):
        if branches is not None and len(branches) == 1:
            yield from branches


def _is(node: Node, kind: str) -> bool:
    return node.types is not None and node.types == frozenset((kind,))


def _said(node: Node, root: Node) -> tuple[str, str, str]:
    message = "no JSON value satisfies this schema"
    if node is not root:
        message += f", and {root.pointer} cannot do without it"
    for low, high, names in _BOUNDS:
        least, most = getattr(node, low), getattr(node, high)
        if least is not None and most is not None and least > most:
            return names[0], node.pointer, f"{message}: {names[0]} is above {names[1]}"
    if node.format is not None and node.format_bounds is not None and crossed(node.format, node.format_bounds):
        return "format", node.pointer, f"{message}: its bounds leave no {node.format}"
    for name in node.required if _is(node, "object") else ():
        if name in node.properties and node.properties[name].always is False:
            return "required", node.pointer, f"{message}: {name!r} is required, and its schema is false"
    closed = node.additional_properties is not None and node.additional_properties.always is False
    if closed and not node.pattern_properties and _is(node, "object"):
        missing = [name for name in node.required if name not in node.properties]
        if missing:
            why = f"{missing[0]!r} is required, but additionalProperties is false and properties does not list it"
            return "required", node.pointer, f"{message}: {why}"
    return "", node.pointer, message


_BOUNDS = (
    ("minimum", "maximum", ("minimum", "maximum")),
    ("min_length", "max_length", ("minLength", "maxLength")),
    ("min_items", "max_items", ("minItems", "maxItems")),
    ("min_properties", "max_properties", ("minProperties", "maxProperties")),
)
