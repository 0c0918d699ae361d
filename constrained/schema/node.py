"""One schema of a document, with every keyword's value checked and every draft's spelling turned into one.

The reader (:mod:`.reader`) makes these; what they mean is said in :mod:`.goals` and its neighbours. A keyword that is
absent is None (or empty); a keyword whose assertion is trivially true may be left out by the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

TYPES = ("null", "boolean", "number", "string", "array", "object")


@dataclass(eq=False, slots=True)
class Node:
    """Identity is equality. ``pointer`` is for messages: ``#/properties/a`` or ``http://example.com/x#/items``.

    Numbers are exact: the reader parses them as Fraction. ``always``: True or False for a boolean schema (then nothing
    else is set). ``types`` holds members of :data:`TYPES`; ``integer`` says that among numbers only whole ones are meant
    (``"type": "integer"``; with ``["integer", "string"]``: types number and string, integer True).
    """

    pointer: str
    always: bool | None = None
    types: frozenset[str] | None = None
    integer: bool = False
    #: the values of enum or const, as parsed JSON (int, float kept as Fraction in containers too? no: see reader.Number)
    values: tuple[Any, ...] | None = None
    # numbers
    minimum: Fraction | None = None
    exclusive_minimum: Fraction | None = None
    maximum: Fraction | None = None
    exclusive_maximum: Fraction | None = None
    multiple_of: Fraction | None = None
    # strings: lengths in code points; pattern is ECMA-262, searched for; format only where it is to be asserted
    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    # arrays
    prefix_items: tuple[Node, ...] = ()
    items: Node | None = None
    min_items: int = 0
    max_items: int | None = None
    contains: Node | None = None
    min_contains: int = 1
    max_contains: int | None = None
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
    not_: Node | None = None
    if_: Node | None = None
    then: Node | None = None
    else_: Node | None = None
    #: resolved on first use: the target of $ref
    ref: Callable[[], Node] | None = None
    #: given the dynamic scope (resource identifiers, outermost first), the target of $dynamicRef / $recursiveRef
    dynamic_ref: Callable[[tuple[str, ...]], Node] | None = None
    #: the resource ($id) this schema belongs to; entering it by a reference extends the dynamic scope
    resource: str = ""
