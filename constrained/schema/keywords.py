"""What each keyword says: its value is checked, and put into the one form of :class:`.node.Node`.

A keyword that its draft does not know is an annotation, except for what people write and what can mean only one thing:
ajv's ``formatMinimum`` and its kin, and, of other drafts, ``dependencies``, ``items`` as a list with
``additionalItems``, ``exclusiveMinimum`` and ``exclusiveMaximum`` as booleans, and ``$recursiveRef``. They are
asserted in every draft.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .dispatch import Handler, by_name, count, flag, keyword, many, mapping, names, number, one, text, wrong
from .drafts import D3, D4, D6, D7, D2019, D2020
from .formats import asserted, ordered, with_bound
from .node import TYPES, Node
from .text import escaped, shown
from .values import json_key

if TYPE_CHECKING:
    from .references import Resource


# ---------------------------------------------------------------- a value for a field, and no more

#: keyword, field of the Node, first draft
_COUNTS = (
    ("minLength", "min_length", D3),
    ("maxLength", "max_length", D3),
    ("minItems", "min_items", D3),
    ("maxItems", "max_items", D3),
    ("minContains", "min_contains", D2019),
    ("maxContains", "max_contains", D2019),
    ("minProperties", "min_properties", D4),
    ("maxProperties", "max_properties", D4),
)
#: keyword, field, group, first draft
_SCHEMAS = (
    ("additionalProperties", "additional_properties", "applicator", D3),
    ("propertyNames", "property_names", "applicator", D6),
    ("unevaluatedItems", "unevaluated_items", "unevaluated", D2019),
    ("unevaluatedProperties", "unevaluated_properties", "unevaluated", D2019),
    ("not", "not_", "applicator", D4),
    ("if", "if_", "applicator", D7),
)
_LISTS_OF_SCHEMAS = (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of"))


def _value(name: str, field: str, read: Callable[[Node, str, Any], Any]) -> Handler:
    def handler(node: Node, value: Any, at: Resource) -> None:
        setattr(node, field, read(node, name, value))

    return handler


def _schemas(name: str, field: str, read: Callable[[Node, str, Any, Resource], Any]) -> Handler:
    def handler(node: Node, value: Any, at: Resource) -> None:
        setattr(node, field, read(node, name, value, at))

    return handler


for _name, _field, _since in _COUNTS:
    keyword(_name, "validation", _since)(_value(_name, _field, count))
keyword("uniqueItems", "validation")(_value("uniqueItems", "unique_items", flag))
for _name, _field, _group, _since in _SCHEMAS:
    keyword(_name, _group, _since)(_schemas(_name, _field, one))
for _name, _field in _LISTS_OF_SCHEMAS:
    keyword(_name, "applicator", D4)(_schemas(_name, _field, many))


# ---------------------------------------------------------------- any type


_ALONE = {name: frozenset((name,)) for name in TYPES}
_ALONE["integer"] = _ALONE["number"]


@keyword("type", "validation", since=D4)
def _type(node: Node, value: Any, at: Resource) -> None:
    if isinstance(value, str) and value in _ALONE and not at.registry.options.openapi:
        node.types = _ALONE[value]
        node.integer = value == "integer"
        return
    node.types, node.integer = types_of(node, "type", value)
    if at.registry.options.openapi and node.source[0].get("nullable") is True:
        node.types |= {"null"}


def types_of(node: Node, keyword: str, value: Any) -> tuple[frozenset[str], bool]:
    """The types, and whether numbers are to be whole."""
    listed = [value] if isinstance(value, str) else value
    if type(listed) is not list or not listed:
        raise wrong(node, keyword, f"is the name of a type or a list of them, not {shown(value)}")
    types: set[str] = set()
    for name in listed:
        if name == "integer":
            continue
        if name not in TYPES:
            raise wrong(node, keyword, _unknown_type(name))
        types.add(name)
    whole = "integer" in listed and "number" not in types
    return frozenset(types | {"number"} if whole else types), whole


def _unknown_type(name: Any) -> str:
    if not isinstance(name, str):
        return f"{shown(name)} is not the name of a type" + (
            "; a schema as a type is draft 3: write anyOf" if isinstance(name, dict) else ""
        )
    if name == "any":
        return "'any' is draft 3: leave type out"
    close = difflib.get_close_matches(name.lower(), [*TYPES, "integer"], 1, 0.5)
    usual = {"int": "integer", "float": "number", "double": "number", "str": "string", "bool": "boolean"}
    usual |= {"dict": "object", "list": "array", "none": "null", "date": "string", "text": "string"}
    hint = usual.get(name.lower()) or (close[0] if close else None)
    told = f"; did you mean {hint!r}?" if hint else f" (they are {', '.join([*TYPES, 'integer'])})"
    return f"{name!r} is not a type of JSON{told}"


@keyword("enum", "validation")
def _enum(node: Node, value: Any, at: Resource) -> None:
    if type(value) is not list:
        raise wrong(node, "enum", f"is a list of values, not {shown(value)}")
    _values(node, "enum", value)


@keyword("const", "validation", since=D6)
def _const(node: Node, value: Any, at: Resource) -> None:
    _values(node, "const", [value])


def _values(node: Node, name: str, values: list[Any]) -> None:
    """Each value once; of enum and const beside each other, what both allow."""
    if node.values is None and len(values) == 1 and type(values[0]) is str:
        node.values = (values[0],)
        return
    try:
        keyed = {json_key(one): one for one in reversed(values)}
        if node.values is not None:
            both = {json_key(one) for one in node.values}
            keyed = {key: one for key, one in keyed.items() if key in both}
    except ValueError as error:
        raise wrong(node, name, str(error)) from None
    node.values = tuple(reversed(keyed.values()))


# ---------------------------------------------------------------- numbers


def _bound(name: str, exclusive: str) -> Handler:
    def handler(node: Node, value: Any, at: Resource) -> None:
        field = f"exclusive_{name}" if node.source[0].get(exclusive) is True else name
        setattr(node, field, number(node, name, value))

    return handler


def _exclusive_bound(name: str, inclusive: str) -> Handler:
    def handler(node: Node, value: Any, at: Resource) -> None:
        if not isinstance(value, bool):
            setattr(node, f"exclusive_{inclusive}", number(node, name, value))
        elif value and inclusive not in node.source[0]:
            raise wrong(node, name, f"true says nothing without {inclusive}; write the bound itself, as a number")

    return handler


for _name, _exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
    keyword(_name, "validation")(_bound(_name, _exclusive))
    keyword(_exclusive, "validation")(_exclusive_bound(_exclusive, _name))


@keyword("multipleOf", "validation", since=D4)
def _multiple_of(node: Node, value: Any, at: Resource) -> None:
    node.multiple_of = number(node, "multipleOf", value)
    if node.multiple_of <= 0:
        raise wrong(node, "multipleOf", f"is a number above 0, not {shown(value)}")


# ---------------------------------------------------------------- strings


@keyword("pattern", "validation")
def _pattern(node: Node, value: Any, at: Resource) -> None:
    source = text(node, "pattern", value)
    if at.registry.options.strict or at.registry.keeps(source, "pattern", node.pointer):
        node.pattern = source


@keyword("format", "format")
def _format(node: Node, value: Any, at: Resource) -> None:
    name = text(node, "format", value)
    if asserts_formats(at) and asserted(name):
        node.format = name


def _format_bound(name: str, field: str, exclusive: str | None = None) -> Handler:
    """ajv's. A bound of a format that has no order says nothing. ``exclusive``: the keyword that, if it is true, makes
    this bound exclusive."""

    def handler(node: Node, value: Any, at: Resource) -> None:
        raw = node.source[0]
        if not asserts_formats(at) or not ordered(raw.get("format")):
            return
        if exclusive is None and isinstance(value, bool):
            return
        end = f"exclusive_{field}" if exclusive is None or raw.get(exclusive) is True else field
        try:
            node.format_bounds = with_bound(node.format_bounds, end, raw["format"], text(node, name, value))
        except ValueError as error:
            raise wrong(node, name, str(error)) from None

    return handler


for _name in ("Minimum", "Maximum"):
    keyword(f"format{_name}", "format", D4)(_format_bound(f"format{_name}", _name.lower(), f"formatExclusive{_name}"))
    keyword(f"formatExclusive{_name}", "format", D4)(_format_bound(f"formatExclusive{_name}", _name.lower()))


def asserts_formats(at: Resource) -> bool:
    return at.registry.options.format == "assert" or "format-assertion" in at.dialect.vocabularies


# ---------------------------------------------------------------- arrays


@keyword("prefixItems", "applicator", since=D2020)
def _prefix_items(node: Node, value: Any, at: Resource) -> None:
    if node.prefix_items:
        raise wrong(
            node, "prefixItems", "stands beside items as a list, which says the same in draft 2019-09; keep one"
        )
    node.prefix_items = many(node, "prefixItems", value, at)


@keyword("items", "applicator")
def _items(node: Node, value: Any, at: Resource) -> None:
    if type(value) is not list:
        node.items = one(node, "items", value, at)
        return
    if node.prefix_items:
        raise wrong(node, "items", "is a list beside prefixItems; the schema of the items after them is an object")
    node.prefix_items = many(node, "items", value, at, least=0)
    if "additionalItems" in node.source[0]:
        node.items = one(node, "additionalItems", node.source[0]["additionalItems"], at)


@keyword("contains", "applicator", since=D6)
def _contains(node: Node, value: Any, at: Resource) -> None:
    node.contains = one(node, "contains", value, at)
    node.contains_evaluates = at.dialect.draft >= D2020


# ---------------------------------------------------------------- objects


@keyword("properties", "applicator", since=D4)
def _properties(node: Node, value: Any, at: Resource) -> None:
    node.properties = by_name(node, "properties", value, at)


@keyword("patternProperties", "applicator")
def _pattern_properties(node: Node, value: Any, at: Resource) -> None:
    found = by_name(node, "patternProperties", value, at)
    if not at.registry.options.strict:
        keeps = at.registry.keeps
        found = {source: one for source, one in found.items() if keeps(source, "patternProperties", node.pointer)}
    node.pattern_properties = found


@keyword("required", "validation", since=D4)
def _required(node: Node, value: Any, at: Resource) -> None:
    if isinstance(value, bool):
        raise wrong(
            node,
            "required",
            f"is a list of names, not {shown(value)} (draft 3); list this name in 'required' of the object around it",
        )
    node.required = names(node, "required", value)


@keyword("dependentRequired", "validation", since=D2019)
def _dependent_required(node: Node, value: Any, at: Resource) -> None:
    for name, needed in mapping(node, "dependentRequired", value, "lists of names by name").items():
        _depends(node, name, names(node, "dependentRequired", needed))


@keyword("dependentSchemas", "applicator", since=D2019)
def _dependent_schemas(node: Node, value: Any, at: Resource) -> None:
    for name, needed in by_name(node, "dependentSchemas", value, at).items():
        _depends_on_schema(node, name, needed)


@keyword("dependencies", "applicator")
def _dependencies(node: Node, value: Any, at: Resource) -> None:
    depth = node.source[2] + 1
    for name, needed in mapping(node, "dependencies", value, "schemas or lists of names by name").items():
        if type(needed) is list:
            _depends(node, name, names(node, "dependencies", needed))
        elif isinstance(needed, str):
            _depends(node, name, (needed,))
        else:
            _depends_on_schema(node, name, at.child(needed, f"{node.pointer}/dependencies/{escaped(name)}", depth))


def _depends(node: Node, name: str, needed: tuple[str, ...]) -> None:
    node.dependent_required[name] = tuple(dict.fromkeys((*node.dependent_required.get(name, ()), *needed)))


def _depends_on_schema(node: Node, name: str, needed: Node) -> None:
    other = node.dependent_schemas.get(name)
    node.dependent_schemas[name] = needed if other is None else Node(node.pointer, all_of=(other, needed))


# ---------------------------------------------------------------- in place


@keyword("discriminator", "applicator", since=D4)
def _discriminator(node: Node, value: Any, at: Resource) -> None:
    """OpenAPI's; whatever else is called so is an annotation."""
    name = value.get("propertyName") if isinstance(value, dict) else None
    if isinstance(name, str) and "oneOf" in node.source[0]:
        node.discriminator = name


@keyword("then", "applicator", since=D7)
def _then(node: Node, value: Any, at: Resource) -> None:
    if "if" in node.source[0]:
        node.then = one(node, "then", value, at)


@keyword("else", "applicator", since=D7)
def _else(node: Node, value: Any, at: Resource) -> None:
    if "if" in node.source[0]:
        node.else_ = one(node, "else", value, at)


def _places(name: str) -> Handler:
    def check(node: Node, value: Any, at: Resource) -> None:
        mapping(node, name, value)  # read when a reference leads there

    return check


def _anchor(name: str) -> Handler:
    def check(node: Node, value: Any, at: Resource) -> None:
        text(node, name, value)

    return check


for _name in ("$defs", "definitions"):
    keyword(_name, "core")(_places(_name))
keyword("$anchor", "core", since=D2019)(_anchor("$anchor"))
keyword("$dynamicAnchor", "core", since=D2020)(_anchor("$dynamicAnchor"))


@keyword("$recursiveAnchor", "core", since=D2019)
def _recursive_anchor(node: Node, value: Any, at: Resource) -> None:
    flag(node, "$recursiveAnchor", value)


@keyword("$ref", "core")
def _ref(node: Node, value: Any, at: Resource) -> None:
    node.ref = partial(at.target, text(node, "$ref", value), node.pointer)


@keyword("$dynamicRef", "core", since=D2020)
def _dynamic_ref(node: Node, value: Any, at: Resource) -> None:
    node.dynamic_ref = partial(at.dynamic_target, text(node, "$dynamicRef", value), node.pointer)


@keyword("$recursiveRef", "core", since=D2019)
def _recursive_ref(node: Node, value: Any, at: Resource) -> None:
    if node.dynamic_ref is None:
        node.dynamic_ref = partial(at.recursive_target, text(node, "$recursiveRef", value), node.pointer)
