"""Type hints of the standard library as JSON Schema.

::

    @dataclass
    class Person:                        {"type": "object", "required": ["name"], "additionalProperties": false,
        name: str                         "properties": {"name": {"type": "string"},
        tags: list[str] = field(...)                     "tags": {"type": "array", "items": {"type": "string"}}}}

Bounds stand in ``Annotated``: any object with attributes named ge, gt, le, lt, multiple_of, min_length, max_length or
pattern (``msgspec.Meta``, those of ``annotated_types``); of dates, times and durations too. A field with a default may
be left out by the model.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import datetime
import ipaddress
import pathlib
import types as builtin
import typing
import uuid
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, Union, get_args, get_origin, is_typeddict

from . import temporal
from .pydantic_types import FORMATS

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    datetime.datetime: temporal.moments("date-time", {}),
    datetime.date: temporal.dates({}),
    datetime.time: temporal.moments("time", {}),
    datetime.timedelta: temporal.durations({}),
    Decimal: {"type": "number"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    pathlib.Path: {"type": "string"},
    pathlib.PurePath: {"type": "string"},
    pathlib.PurePosixPath: {"type": "string"},
    ipaddress.IPv4Address: {"type": "string", "format": "ipv4"},
    ipaddress.IPv6Address: {"type": "string", "format": "ipv6"},
    ipaddress.IPv4Network: FORMATS["ipv4network"],
    ipaddress.IPv6Network: FORMATS["ipv6network"],
    ipaddress.IPv4Interface: FORMATS["ipv4interface"],
    ipaddress.IPv6Interface: FORMATS["ipv6interface"],
}
LISTS: dict[Any, typing.Callable[[list[Any]], Any]] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Iterable: list,
    abc.Collection: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_SETS = (set, abc.Set, abc.MutableSet, frozenset)
DICTS = (dict, abc.Mapping, abc.MutableMapping)
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


class Unknown(TypeError):
    """A type that is not of the standard library, or that JSON cannot hold."""


def derive(hint: Any, notes: list[str] | None = None) -> Schema:
    """The JSON Schema of ``hint``. Raises Unknown, naming the type. ``notes`` gets what it asks for beyond that."""
    reader = _Reader()
    schema = reader.schema(hint)
    if notes is not None:
        notes += dict.fromkeys(reader.notes)
    return {**schema, "$defs": reader.defs} if reader.defs else schema


def foreign(hint: Any) -> Literal["pydantic", "msgspec"] | None:
    """The library whose classes (or notes) stand anywhere in ``hint``, if there is one."""
    seen: set[int] = set()
    todo = [hint]
    found: Literal["pydantic", "msgspec"] | None = None
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        module = type(one).__module__.split(".")[0]
        if hasattr(one, "__get_pydantic_core_schema__") or hasattr(one, "__pydantic_validator__"):
            return "pydantic"
        if module == "pydantic":
            return "pydantic"
        if isinstance(one, type) and hasattr(one, "__struct_fields__"):
            found = "msgspec"
            continue
        todo += get_args(one) if get_origin(one) is not Literal else ()
        todo += getattr(one, "__metadata__", ())
        if is_record(one):
            todo += hints_of(one).values()
    return found


def is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (is_typeddict(hint) or dataclasses.is_dataclass(hint) or is_named_tuple(hint))


def is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_field_defaults")


def hints_of(record: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(record, include_extras=True)
    except NameError as error:
        raise Unknown(
            f"the annotations of {record.__name__} cannot be read: {error}; define it at module level"
        ) from None


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or repr(hint)


def unwrapped(hint: Any) -> Any:
    """Without NewType and aliases, which are only other names."""
    while True:
        if isinstance(hint, NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif get_origin(hint) in (Required, NotRequired):
            hint = get_args(hint)[0]
        else:
            return hint


class _Reader:
    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self.notes: list[str] = []
        self._named: dict[Any, str] = {}

    def schema(self, hint: Any) -> Schema:
        hint = unwrapped(hint)
        origin, args = get_origin(hint), get_args(hint)
        if _hashable(hint) and hint in _PLAIN:
            return dict(_PLAIN[hint])
        if origin is Annotated:
            self.notes += [
                f"a predicate of {_name(args[0])}" for note in args[1:] if callable(getattr(note, "func", None))
            ]
            return _noted(self.schema(args[0]), args[1:])
        if origin is Literal:
            return {"enum": [_constant(value) for value in args]}
        if origin is Union or origin is builtin.UnionType:
            return {"anyOf": [self.schema(arg) for arg in args]}
        kind = origin or hint
        if kind is tuple:
            return self._tuple(args)
        if kind in LISTS:
            unique = {"uniqueItems": True} if kind in _SETS else {}
            return {"type": "array", **({"items": self.schema(args[0])} if args else {}), **unique}
        if kind in DICTS:
            return self._dict(args)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [_constant(member.value) for member in hint]}
        if is_record(hint):
            return self._record(hint)
        raise Unknown(f"{_name(hint)} has no JSON Schema; see the types that schema= takes in docs/language.md")

    def _tuple(self, args: tuple[Any, ...]) -> Schema:
        if not args:
            return {"type": "array"}
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.schema(args[0])}
        parts = [self.schema(arg) for arg in args if arg != ()]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts), "maxItems": len(parts)}

    def _dict(self, args: tuple[Any, ...]) -> Schema:
        if not args:
            return {"type": "object"}
        key = unwrapped(args[0])
        names = {} if key in (str, Any) else {"propertyNames": self.schema(key)}
        if names and names["propertyNames"].get("type", "string") != "string":
            raise Unknown(f"a dict with keys of type {_name(key)} is no JSON object: keys are strings")
        return {"type": "object", "additionalProperties": self.schema(args[1]), **names}

    def _record(self, record: type) -> Schema:
        known = self._named.get(record)
        if known is None:
            known = record.__name__
            while known in self.defs:
                known += "_"
            self._named[record] = known
            self.defs[known] = {}  # it may hold itself
            if dataclasses.is_dataclass(record) and hasattr(record, "__post_init__"):
                self.notes.append(f"{record.__name__}: what {record.__name__}.__post_init__ asks for")
            self.defs[known].update(self._fields(record))
        return {"$ref": f"#/$defs/{known.replace('~', '~0').replace('/', '~1')}"}

    def _fields(self, record: type) -> Schema:
        hints = hints_of(record)
        if is_named_tuple(record):
            return self._tuple(tuple(hints.values()))
        if is_typeddict(record):
            needed = required_keys(record, hints)
        else:
            fields = {field.name: field for field in dataclasses.fields(record) if field.init}
            hints = {name: hints[name] for name in fields}
            needed = [name for name, field in fields.items() if not _has_default(field)]
        properties = {name: self.schema(hint) for name, hint in hints.items()}
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def required_keys(record: type, hints: dict[str, Any]) -> list[str]:
    """Keys that a TypedDict must have. (Its own ``__required_keys__`` misses marks in annotations kept as strings.)"""
    marks = {name: get_origin(hint) for name, hint in hints.items()}
    total: frozenset[str] = record.__required_keys__  # type: ignore[attr-defined]  # a TypedDict has it
    return [name for name, mark in marks.items() if mark is Required or (mark is not NotRequired and name in total)]


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True


def _constant(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise Unknown(f"{value!r} cannot stand in JSON as a choice; strings, numbers, booleans and None can")


def _noted(schema: Schema, notes: tuple[Any, ...]) -> Schema:
    added: Schema = {}
    lengths = ("minItems", "maxItems") if schema.get("type") == "array" else ("minLength", "maxLength")
    for note in notes:
        if isinstance(note, str):
            added["description"] = note
            continue
        for name, keyword in (*_BOUNDS.items(), ("min_length", lengths[0]), ("max_length", lengths[1])):
            bound = getattr(note, name, None)
            if isinstance(bound, Decimal):
                bound = float(bound)
            if isinstance(bound, int | float) and not (name == "min_length" and bound == 0):
                added[keyword] = bound
        pattern = getattr(note, "pattern", None)
        if isinstance(pattern, str):
            added["pattern"] = pattern
    schema = _within(schema, notes)
    if "$ref" in schema and added:
        return {"allOf": [schema], **added}
    return {**schema, **added}


def _within(schema: Schema, notes: tuple[Any, ...]) -> Schema:
    """Bounds of dates, times and durations, in ``schema`` or in the alternatives that it has."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_within(part, notes) for part in schema["anyOf"]]}
    kinds: dict[Any, Any] = {
        "date": datetime.date,
        "date-time": datetime.datetime,
        "time": datetime.time,
        "duration": datetime.timedelta,
    }
    kind = kinds.get(schema.get("format"))
    if kind is None:
        return schema
    bounds: dict[str, Any] = {}
    zone: temporal.Zone = None
    for note in notes:
        given = {name: getattr(note, name, None) for name in temporal.BOUNDS}
        for name, bound in given.items():
            if isinstance(bound, temporal.KINDS) and type(bound) is not kind:
                raise Unknown(f"{name}={bound!r} is no {kind.__name__}")
        bounds = temporal.tighter(bounds, {name: bound for name, bound in given.items() if bound is not None})
        if type(note).__name__ == "Timezone":  # annotated_types'
            zone = "naive" if note.tz is None else "aware"
        elif isinstance(getattr(note, "tz", None), bool):  # msgspec's
            zone = "aware" if note.tz else "naive"
    if not bounds and zone is None:
        return schema
    if kind is datetime.date:
        return temporal.dates(bounds)
    if kind is datetime.timedelta:
        return temporal.durations(bounds)
    return temporal.moments(schema["format"], bounds, zone)
