"""One schema of a document, with every keyword's value checked and every draft's spelling turned into one.

The reader (:mod:`.reader`) makes these; what they mean is said in :mod:`.goals` and its neighbours. A keyword that is
absent is None (or empty); a keyword whose assertion is trivially true may be left out by the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..regular.ranges import Bounds
    from .references import Resource

TYPES = ("null", "boolean", "number", "string", "array", "object")


@dataclass(eq=False, repr=False, slots=True)
class Node:
    """Identity is equality. ``pointer`` is for messages: ``#/properties/a`` or ``http://example.com/x#/items``.

    Numbers are exact: the reader parses them as Fraction. ``always``: True or False for a boolean schema (then nothing
    else is set). ``types`` holds members of :data:`TYPES`; ``integer`` says that among numbers only whole ones are
    meant (``"type": "integer"``; with ``["integer", "string"]``: types number and string, integer True).

    The reader makes a Node as an empty shell (only ``pointer`` is set) and reads the schema when another field is first
    looked at. That look may raise :class:`.errors.SchemaError`, and does so again at every look.
    """

    pointer: str
    always: bool | None = None
    types: frozenset[str] | None = None
    integer: bool = False
    #: the values of enum or const, as parsed JSON; numbers are int, float or Decimal (see :mod:`.values`). Compare them
    #: by values.json_key. Empty: nothing is allowed
    values: tuple[Any, ...] | None = None
    # numbers
    minimum: Fraction | None = None
    exclusive_minimum: Fraction | None = None
    maximum: Fraction | None = None
    exclusive_maximum: Fraction | None = None
    multiple_of: Fraction | None = None
    # strings: lengths in code points; pattern is ECMA-262, searched for; format and its bounds only
    # where they are to be asserted
    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    format_bounds: Bounds | None = None
    # arrays
    prefix_items: tuple[Node, ...] = ()
    items: Node | None = None
    min_items: int = 0
    max_items: int | None = None
    contains: Node | None = None
    min_contains: int = 1
    max_contains: int | None = None
    #: an item that ``contains`` matches counts as evaluated (2020-12; not in 2019-09)
    contains_evaluates: bool = True
    unique_items: bool = False
    unevaluated_items: Node | None = None
    # objects
    properties: dict[str, Node] = field(default_factory=dict)
    pattern_properties: dict[str, Node] = field(default_factory=dict)
    additional_properties: Node | None = None
    property_names: Node | None = None
    required: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    dependent_required: dict[str, tuple[str, ...]] = field(default_factory=dict)
    dependent_schemas: dict[str, Node] = field(default_factory=dict)
    unevaluated_properties: Node | None = None
    # in place
    all_of: tuple[Node, ...] = ()
    any_of: tuple[Node, ...] | None = None
    one_of: tuple[Node, ...] | None = None
    #: OpenAPI's, beside oneOf: every object has this key, and its value tells which branch is meant
    discriminator: str | None = None
    not_: Node | None = None
    if_: Node | None = None
    then: Node | None = None
    else_: Node | None = None
    #: resolved on first use: the target of $ref
    ref: Callable[[], Node] | None = None
    #: given the dynamic scope (resource identifiers, outermost first), the target of $dynamicRef / $recursiveRef
    dynamic_ref: Callable[[tuple[str, ...]], Node] | None = None
    #: the resource ($id) this schema belongs to, if it has a dynamic anchor; else "": it cannot matter to dynamic_ref
    resource: str = ""
    #: what the reader made this from: the JSON, the resource around it, levels of schema above it
    source: tuple[Any, Resource, int] = field(init=False)

    def __repr__(self) -> str:
        return f"Node({self.pointer})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A field of a shell: read the schema now."""
            if name == "source" or name not in FIELDS:
                raise AttributeError(name)
            self.source[1].fill(self)
            return object.__getattribute__(self, name)

    def within(self, scope: tuple[str, ...]) -> tuple[str, ...]:
        """The dynamic scope inside this schema: ``scope`` (resources, outermost first) and its own resource.

        A resource that is in it already is not added: only the outermost one is ever asked for.
        """
        return (*scope, self.resource) if self.resource and self.resource not in scope else scope

    def children(self) -> Iterator[Node]:
        """The schemas that stand in this one (not the targets of references)."""
        yield from self.prefix_items
        yield from self.properties.values()
        yield from self.pattern_properties.values()
        yield from self.dependent_schemas.values()
        yield from self.all_of
        yield from self.any_of or ()
        yield from self.one_of or ()
        for one in (
            self.items,
            self.contains,
            self.unevaluated_items,
            self.additional_properties,
            self.property_names,
            self.unevaluated_properties,
            self.not_,
            self.if_,
            self.then,
            self.else_,
        ):
            if one is not None:
                yield one


#: every field that a shell has not set
FIELDS = frozenset(one.name for one in fields(Node)) - {"pointer"}


def says_only(*names: str) -> Callable[[Node], bool]:
    """Whether a schema has nothing but these fields."""
    others = attrgetter(*sorted(FIELDS - {*names, "resource", "source"}))
    blank = others(Node(""))
    return lambda node: bool(others(node) == blank)
