"""Schemas that speak of the same value as the schema in which they stand: allOf, anyOf, $ref, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .node import Node


def applies_in_place(node: Node) -> bool:
    """Whether there are any."""
    return (
        node.ref is not None
        or node.any_of is not None
        or node.one_of is not None
        or node.not_ is not None
        or node.if_ is not None
        or node.dynamic_ref is not None
        or bool(node.all_of)
        or bool(node.dependent_schemas)
    )


def conjuncts(node: Node) -> Iterable[Node]:
    """The schemas that hold where it does."""
    return node.all_of if node.ref is None else (node.ref(), *node.all_of)


def branches(node: Node) -> Iterable[Node]:
    """The schemas that may apply to the same value."""
    yield from conjuncts(node)
    yield from node.any_of or ()
    yield from node.one_of or ()
    yield from node.dependent_schemas.values()
    for one in (node.not_, node.if_, node.then, node.else_):
        if one is not None:
            yield one


def beside(node: Node, within: Callable[[Node], Iterable[Node]]) -> Iterable[Node]:
    """It, and schemas that apply to the same value. (No literals: their order of creation means something.)"""
    queue, seen = [node], {node}
    for one in queue:
        yield one
        for child in within(one):
            if child not in seen:
                seen.add(child)
                queue.append(child)
