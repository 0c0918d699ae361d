"""Type hints of the standard library as JSON Schema, and JSON values as instances of them.

::

    @dataclass
    class Person:                        {"type": "object", "required": ["name"], "additionalProperties": false,
        name: str                         "properties": {"name": {"type": "string"},
        tags: list[str] = field(...)                     "tags": {"type": "array", "items": {"type": "string"}}}}

Bounds stand in ``Annotated``: any object with attributes named ge, gt, le, lt, multiple_of, min_length, max_length or
pattern (``msgspec.Meta``, those of ``annotated_types``). A field with a default may be left out by the model.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import datetime
import types as builtin
import typing
import uuid
from enum import Enum
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, Union, get_args, get_origin, is_typeddict

from .pydantic_types import PYTHON_TIME

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
    datetime.datetime: {"type": "string", "format": "date-time", "pattern": PYTHON_TIME},
    datetime.date: {"type": "string", "format": "date", "pattern": PYTHON_TIME},
    datetime.time: {"type": "string", "format": "time", "pattern": PYTHON_TIME},
    uuid.UUID: {"type": "string", "format": "uuid"},
}
_FROM_TEXT: dict[Any, typing.Callable[[str], Any]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    uuid.UUID: uuid.UUID,
}
_LISTS: dict[Any, typing.Callable[[list[Any]], Any]] = {
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
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


class Unknown(TypeError):
    """A type that is not of the standard library, or that JSON cannot hold."""


def derive(hint: Any) -> Schema:
    """The JSON Schema of ``hint``. Raises Unknown, naming the type."""
    reader = _Reader()
    schema = reader.schema(hint)
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
        if _is_record(one):
            todo += _hints(one).values()
    return found


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (is_typeddict(hint) or dataclasses.is_dataclass(hint) or _is_named_tuple(hint))


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_field_defaults")


def _hints(record: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(record, include_extras=True)
    except NameError as error:
        raise Unknown(
            f"the annotations of {record.__name__} cannot be read: {error}; define it at module level"
        ) from None


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or repr(hint)


def _unwrapped(hint: Any) -> Any:
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
        self._named: dict[Any, str] = {}

    def schema(self, hint: Any) -> Schema:
        hint = _unwrapped(hint)
        origin, args = get_origin(hint), get_args(hint)
        if _hashable(hint) and hint in _PLAIN:
            return dict(_PLAIN[hint])
        if origin is Annotated:
            return _noted(self.schema(args[0]), args[1:])
        if origin is Literal:
            return {"enum": [_constant(value) for value in args]}
        if origin is Union or origin is builtin.UnionType:
            return {"anyOf": [self.schema(arg) for arg in args]}
        kind = origin or hint
        if kind is tuple:
            return self._tuple(args)
        if kind in _LISTS:
            unique = {"uniqueItems": True} if kind in _SETS else {}
            return {"type": "array", **({"items": self.schema(args[0])} if args else {}), **unique}
        if kind in _DICTS:
            return self._dict(args)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [_constant(member.value) for member in hint]}
        if _is_record(hint):
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
        key = _unwrapped(args[0])
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
            self.defs[known].update(self._fields(record))
        return {"$ref": f"#/$defs/{known.replace('~', '~0').replace('/', '~1')}"}

    def _fields(self, record: type) -> Schema:
        hints = _hints(record)
        if _is_named_tuple(record):
            return self._tuple(tuple(hints.values()))
        if is_typeddict(record):
            needed = _required(record, hints)
        else:
            fields = {field.name: field for field in dataclasses.fields(record) if field.init}
            hints = {name: hints[name] for name in fields}
            needed = [name for name, field in fields.items() if not _has_default(field)]
        properties = {name: self.schema(hint) for name, hint in hints.items()}
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _required(record: type, hints: dict[str, Any]) -> list[str]:
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
            if isinstance(bound, int | float) and not (name == "min_length" and bound == 0):
                added[keyword] = bound
        pattern = getattr(note, "pattern", None)
        if isinstance(pattern, str):
            added["pattern"] = pattern
    if "$ref" in schema and added:
        return {"allOf": [schema], **added}
    return {**schema, **added}


# ---------------------------------------------------------------- values


def convert(value: Any, hint: Any) -> Any:
    """A parsed JSON value as ``hint`` says. Raises ValueError if it is none."""
    hint = _unwrapped(hint)
    origin, args = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return value
    if origin is Annotated:
        return convert(value, args[0])
    if origin is Literal:
        return _one_of(value, args)
    if origin is Union or origin is builtin.UnionType:
        return _first(value, args)
    kind = origin or hint
    if kind is tuple:
        return _to_tuple(value, args)
    if kind in _LISTS:
        items = _checked(value, list)
        return _LISTS[kind]([convert(item, args[0]) for item in items] if args else items)
    if kind in _DICTS:
        entries = _checked(value, dict)
        return {convert(key, args[0]): convert(item, args[1]) for key, item in entries.items()} if args else entries
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(value, hint)
    if _is_record(hint):
        return _to_record(value, hint)
    if hint in _FROM_TEXT:
        return _FROM_TEXT[hint](_checked(value, str))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 is an integer in JSON Schema
    return _checked(value, type(None) if hint is None else hint)


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value


def _one_of(value: Any, args: tuple[Any, ...]) -> Any:
    for arg in args:
        plain = arg.value if isinstance(arg, Enum) else arg
        if plain == value and isinstance(plain, bool) == isinstance(value, bool):
            return arg
    raise ValueError(f"{value!r} is none of {', '.join(map(repr, args))}")


def _member(value: Any, kind: type[Enum]) -> Any:
    for member in kind:
        if member.value == value and isinstance(member.value, bool) == isinstance(value, bool):
            return member
    raise ValueError(f"{value!r} is no {kind.__name__}")


def _first(value: Any, options: tuple[Any, ...]) -> Any:
    problems = []
    exact = [option for option in options if _unwrapped(option) is type(value)]  # True is no int, 1 no float
    for option in (*exact, *options):
        try:
            return convert(value, option)
        except (ValueError, TypeError) as error:
            problems.append(str(error))
    raise ValueError("; ".join(dict.fromkeys(problems)))


def _to_tuple(value: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    items = _checked(value, list)
    if not args:
        return tuple(items)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(convert(item, args[0]) for item in items)
    if len(items) != len(args):
        raise ValueError(f"{len(items)} items where {len(args)} belong")
    return tuple(convert(item, arg) for item, arg in zip(items, args, strict=True))


def _to_record(value: Any, record: type) -> Any:
    hints = _hints(record)
    if _is_named_tuple(record):
        return record(*_to_tuple(value, tuple(hints.values())))
    entries = _checked(value, dict)
    unknown = [name for name in entries if name not in hints]
    if unknown:
        raise ValueError(f"{record.__name__} has no field {unknown[0]!r}")
    found = {name: convert(item, hints[name]) for name, item in entries.items()}
    if is_typeddict(record):
        missing = [name for name in _required(record, hints) if name not in found]
        if missing:
            raise ValueError(f"{record.__name__} lacks {missing[0]!r}")
        return found
    try:
        return record(**found)
    except TypeError as error:
        raise ValueError(str(error)) from error
