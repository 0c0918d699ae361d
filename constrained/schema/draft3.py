"""The keywords of draft 3 that later drafts gave up. Only a ``$schema`` that names draft 3 turns them on.

::

    {"properties": {"a": {"required": true}}}      required: ["a"] of the object around
    divisibleBy, extends, disallow                 multipleOf, allOf, not type
    type: ["string", {...}], type: "any"           anyOf; nothing
    format: host-name, ip-address, time            hostname, ipv4; hh:mm:ss without a zone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dispatch import by_name, flag, keyword, many, number, one, text, wrong
from .drafts import D3
from .formats import asserted
from .keywords import asserts_formats, types_of
from .node import Node
from .text import shown

if TYPE_CHECKING:
    from .references import Resource

#: formats that later drafts have under another name
_FORMATS = {"host-name": "hostname", "ip-address": "ipv4"}
_TIME = "^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]$"


@keyword("properties", "applicator", until=D3)
def _properties(node: Node, value: Any, at: Resource) -> None:
    node.properties = by_name(node, "properties", value, at)
    node.required = tuple(name for name, raw in value.items() if isinstance(raw, dict) and raw.get("required") is True)


@keyword("required", "validation", until=D3)
def _required(node: Node, value: Any, at: Resource) -> None:
    if isinstance(value, list):
        raise wrong(node, "required", "is true or false in draft 3, beside the property's schema; a list is draft 4")
    flag(node, "required", value)


@keyword("divisibleBy", "validation", until=D3)
def _divisible_by(node: Node, value: Any, at: Resource) -> None:
    node.multiple_of = number(node, "divisibleBy", value)
    if node.multiple_of <= 0:
        raise wrong(node, "divisibleBy", f"is a number above 0, not {shown(value)}")


@keyword("extends", "applicator", until=D3)
def _extends(node: Node, value: Any, at: Resource) -> None:
    listed = many(node, "extends", value, at) if isinstance(value, list) else (one(node, "extends", value, at),)
    node.all_of = (*node.all_of, *listed)


@keyword("type", "validation", until=D3)
def _type(node: Node, value: Any, at: Resource) -> None:
    allowed = _one_of_types(node, "type", value, at)
    if allowed is not None:
        if allowed.any_of is None:
            node.types, node.integer = allowed.types, allowed.integer
        else:
            node.any_of = allowed.any_of


@keyword("disallow", "validation", until=D3)
def _disallow(node: Node, value: Any, at: Resource) -> None:
    node.not_ = _one_of_types(node, "disallow", value, at) or Node(node.pointer, always=True)


@keyword("format", "format", until=D3)
def _format(node: Node, value: Any, at: Resource) -> None:
    name = _FORMATS.get(given := text(node, "format", value), given)
    if not asserts_formats(at):
        return
    if name == "time":
        node.all_of = (*node.all_of, Node(node.pointer, pattern=_TIME))
    elif asserted(name):
        node.format = name


def _one_of_types(node: Node, name: str, value: Any, at: Resource) -> Node | None:
    """A schema for a type or a union of types and schemas; None for "any"."""
    listed = value if isinstance(value, list) else [value]
    if "any" in listed:
        return None
    names = [given for given in listed if not isinstance(given, dict)]
    made = Node(f"{node.pointer}/{name}")
    if names or not listed:
        made.types, made.integer = types_of(node, name, names)
    if len(names) == len(listed):
        return made
    depth = node.source[2] + 1
    schemas = [
        at.child(given, f"{made.pointer}/{index}", depth)
        for index, given in enumerate(listed)
        if isinstance(given, dict)
    ]
    return Node(made.pointer, any_of=(*([made] if names else []), *schemas))
