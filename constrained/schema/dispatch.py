"""Which keyword is read by what, in which dialect; and the checks of their values.

A reader of a keyword registers itself with :func:`keyword` (:mod:`.keywords`, :mod:`.draft3`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .drafts import D3, D2020, Dialect
from .errors import SchemaError
from .node import Node
from .text import shown
from .values import exact

if TYPE_CHECKING:
    from .references import Resource

Handler = Callable[[Node, Any, "Resource"], None]


class Keyword(NamedTuple):
    name: str
    group: str
    since: int
    until: int
    handler: Handler


KEYWORDS: list[Keyword] = []


def keyword(name: str, group: str, since: int = D3, until: int = D2020) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        KEYWORDS.append(Keyword(name, group, since, until, handler))
        return handler

    return add


@cache
def handlers(dialect: Dialect) -> dict[str, Handler]:
    """Keyword -> what reads it, in this dialect."""
    on = dialect.vocabularies
    return {
        one.name: one.handler
        for one in KEYWORDS
        if one.since <= dialect.draft <= one.until
        and (one.group == "core" or one.group in on or (one.group == "format" and "format-assertion" in on))
    }


# ---------------------------------------------------------------- values


def wrong(node: Node, name: str, message: str) -> SchemaError:
    return SchemaError(name, node.pointer, message)


def number(node: Node, name: str, value: Any) -> Fraction:
    made = exact(value)
    if made is None:
        hint = "; write it without quotes" if isinstance(value, str) else ""
        raise wrong(node, name, f"is a finite number, not {shown(value)}{hint}")
    return made


def count(node: Node, name: str, value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    made = exact(value)
    if made is None or made.denominator != 1 or made < 0:
        hint = (
            "; write it without quotes" if isinstance(value, str) else "; the smallest is 0" if made is not None else ""
        )
        raise wrong(node, name, f"is a whole number of at least 0, not {shown(value)}{hint}")
    return made.numerator


_STRINGS = {str}


def names(node: Node, name: str, value: Any) -> tuple[str, ...]:
    if type(value) is not list or not set(map(type, value)) <= _STRINGS:
        raise wrong(node, name, f"is a list of names (strings), not {shown(value)}")
    return tuple(value) if len(set(value)) == len(value) else tuple(dict.fromkeys(value))


def mapping(node: Node, name: str, value: Any, what: str = "schemas by name") -> dict[str, Any]:
    if type(value) is not dict:
        raise wrong(node, name, f"is an object ({what}), not {shown(value)}")
    if not set(map(type, value)) <= _STRINGS:
        raise wrong(node, name, f"has a key that is not a string: {[key for key in value if type(key) is not str][:3]}")
    return value


def one(node: Node, name: str, value: Any, at: Resource) -> Node:
    return at.child(value, f"{node.pointer}/{name}", node.source[2] + 1)


def many(node: Node, name: str, value: Any, at: Resource, least: int = 1) -> tuple[Node, ...]:
    if type(value) is not list or len(value) < least:
        raise wrong(
            node, name, f"is a list of at least one schema, not {'an empty one' if value == [] else shown(value)}"
        )
    depth = node.source[2] + 1
    return tuple([at.child(raw, f"{node.pointer}/{name}/{index}", depth) for index, raw in enumerate(value)])


def by_name(node: Node, name: str, value: Any, at: Resource) -> dict[str, Node]:
    return at.children(mapping(node, name, value), f"{node.pointer}/{name}", node.source[2] + 1)


def text(node: Node, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(node, name, f"is a string, not {shown(value)}")
    return value


def flag(node: Node, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        hint = "; write it without quotes" if isinstance(value, str) else ""
        raise wrong(node, name, f"is true or false, not {shown(value)}{hint}")
    return value
