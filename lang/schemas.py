"""``gen(schema=...)``: a Python type -> its JSON Schema, and the model's text -> a value of that type.

Types of the standard library are read here; what holds Pydantic's models (or msgspec's Structs) is handed to that
library as a whole. An object has the fields that its type declares and no others, in the order of their declaration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..runtime.errors import InvalidConstraint
from . import conversion, hints, msgspec_types, pydantic_notes, pydantic_types
from .temporal import hour

Schema = dict[str, Any]


class Typed(NamedTuple):
    """``parse`` raises ValueError (Pydantic's ValidationError is one) for a text that is no such value. ``notes``: what
    the type asks for beyond its schema."""

    name: str
    schema: Schema
    parse: Callable[[str], Any]
    notes: tuple[str, ...] = ()


def read_type(schema: Any) -> Typed:
    """Raises InvalidConstraint for what no schema says. What is hashable is read once an hour: it may speak of the past
    or the future."""
    try:
        return _read_once(schema, hour())
    except TypeError:  # not hashable
        return _read(schema)


@lru_cache(maxsize=256)
def _read_once(schema: Any, hour: int) -> Typed:
    return _read(schema)


def _read(schema: Any) -> Typed:
    if isinstance(schema, str | Mapping | bool):
        raise InvalidConstraint("schema takes a type; a JSON Schema itself goes into json_schema=", "schema")
    name = getattr(schema, "__name__", None) or repr(schema)
    if _is_adapter(schema):
        return _pydantic(name, schema)
    try:
        owner = hints.foreign(schema)
        if owner is None:
            notes: list[str] = []
            derived = hints.derive(schema, notes)
            return Typed(name, derived, lambda text: conversion.convert(json.loads(text), schema), tuple(notes))
    except hints.Unknown as error:
        if _pydantic_module() is None:
            raise InvalidConstraint(f"schema: {error}", "schema") from None
        owner = "pydantic"
    if owner == "msgspec":
        return _msgspec(name, schema)
    pydantic = _pydantic_module()
    if pydantic is None:
        raise InvalidConstraint(f"schema: {name} needs pydantic, which is not installed", "schema")
    try:
        adapter = pydantic.TypeAdapter(schema)
    except Exception as error:  # of several kinds, none of them a base of the others
        raise InvalidConstraint(f"schema: {name} cannot be read: {_short(error)}", "schema") from error
    return _pydantic(name, adapter)


def _pydantic(name: str, adapter: Any) -> Typed:
    try:
        schema = pydantic_types.json_schema(adapter)
    except Exception as error:  # as above
        raise InvalidConstraint(f"schema: {name} has no JSON Schema: {_short(error)}", "schema") from error
    notes = pydantic_notes.notes(adapter.core_schema)
    for part in reversed(list(_parts(schema))):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
        if not pydantic_types.exact(part, schema.get("$defs", {})):
            notes += ("what the JSON in a string holds",)
    return Typed(name, schema, adapter.validate_json, tuple(dict.fromkeys(notes)))


def _msgspec(name: str, schema: Any) -> Typed:
    notes: list[str] = []
    try:
        found = msgspec_types.json_schema(schema, notes)
    except (TypeError, ValueError) as error:
        raise InvalidConstraint(f"schema: {name} has no JSON Schema: {_short(error)}", "schema") from error
    return Typed(name, found, msgspec_types.decoder(schema), tuple(dict.fromkeys(notes)))


def _pydantic_module() -> Any:
    try:
        import pydantic
    except ImportError:
        return None
    return pydantic if hasattr(pydantic, "TypeAdapter") else None


def _is_adapter(schema: object) -> bool:
    pydantic = sys.modules.get("pydantic")  # whoever made an adapter has imported it
    adapter = getattr(pydantic, "TypeAdapter", None)
    return adapter is not None and isinstance(schema, adapter)


def _parts(schema: Any) -> Iterator[Schema]:
    """``schema`` and every schema inside it."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, dict):
            continue
        yield part
        for name in ("$defs", "properties", "patternProperties"):
            todo += part.get(name, {}).values()
        for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            todo += part.get(name, ())
        todo += [part.get(name) for name in ("items", "additionalProperties", "propertyNames", "contentSchema")]


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."
