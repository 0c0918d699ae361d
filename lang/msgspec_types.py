"""JSON Schemas of msgspec's Structs, and of all that may stand in one.

msgspec's own leave most of what is no plain JSON open: a datetime, ``Decimal`` or bytes is any string, and
``dict[int, ...]`` has any keys. Here they are what its decoder takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from . import temporal
from .json_text import whole_numbers
from .patterns import BASE64, DECIMAL, as_ecma

Schema = dict[str, Any]

#: it reads neither weeks nor months, and takes a sign
_DURATION: Schema = {**temporal.durations({"ge": temporal.NO_TIME}), "pattern": "^[^W]*$"}


def json_schema(hint: Any, notes: list[str]) -> Schema:
    """Raises TypeError for what has no schema. ``notes`` gets what the type asks for beyond it."""
    reader = _Reader(notes)
    found = reader.schema(inspect.type_info(hint))
    return {**found, "$defs": reader.defs} if reader.defs else found


class _Reader:
    def __init__(self, notes: list[str]) -> None:
        self.defs: dict[str, Schema] = {}
        self._notes = notes
        self._named: dict[Any, str] = {}

    def schema(self, info: inspect.Type) -> Schema:
        if isinstance(info, inspect.Metadata):
            inner, more = self.schema(info.type), info.extra_json_schema or {}
            return {"allOf": [inner], **more} if "$ref" in inner and more else {**inner, **more}
        cls = getattr(info, "cls", None)
        if isinstance(
            info, inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
        ):
            return self._referred(info.cls, lambda: self._record(info))
        read = _KINDS.get(type(info))
        if read is not None:
            return read(info)
        if isinstance(info, inspect.CollectionType):
            unique = {"uniqueItems": True} if isinstance(info, inspect.SetType | inspect.FrozenSetType) else {}
            items = self.schema(info.item_type)
            return {"type": "array", "items": items, **unique, **_lengths(info, "Items")}
        if isinstance(info, inspect.TupleType):
            return _row([self.schema(part) for part in info.item_types], len(info.item_types))
        if isinstance(info, inspect.UnionType):
            return {"anyOf": [self.schema(part) for part in info.types]}
        if isinstance(info, inspect.DictType | getattr(inspect, "FrozenDictType", inspect.DictType)):
            names = self._names(info.key_type)
            found = {"type": "object", "additionalProperties": self.schema(info.value_type)}
            return {**found, **({"propertyNames": names} if names else {}), **_lengths(info, "Properties")}
        name = getattr(cls, "__name__", type(info).__name__)
        raise TypeError(f"{name} has no JSON Schema")

    def _referred(self, cls: type, make: Callable[[], Schema]) -> Schema:
        name = self._named.get(cls)
        if name is None:
            name = cls.__name__.replace("~", "").replace("/", "")
            while name in self.defs:
                name += "_"
            self._named[cls] = name
            self.defs[name] = {}  # it may hold itself
            if hasattr(cls, "__post_init__"):
                self._notes.append(f"{cls.__name__}: what {cls.__name__}.__post_init__ asks for")
            self.defs[name].update(make())
        return {"$ref": f"#/$defs/{name}"}

    def _record(self, info: Any) -> Schema:
        tagged = getattr(info, "tag_field", None)
        if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
            parts = [self.schema(field.type) for field in info.fields]
            needed = max((at for at, field in enumerate(info.fields, 1) if field.required), default=0)
            return _row([{"enum": [info.tag]}, *parts], needed + 1) if tagged else _row(parts, needed)
        properties: Schema = {tagged: {"enum": [info.tag]}} if tagged else {}
        properties.update({field.encode_name: self.schema(field.type) for field in info.fields})
        needed_names = [field.encode_name for field in info.fields if field.required]
        return {
            "type": "object",
            "properties": properties,
            "required": [tagged, *needed_names] if tagged else needed_names,
            "additionalProperties": False,
        }

    def _names(self, info: inspect.Type) -> Schema:
        """What may be a key."""
        if isinstance(info, inspect.Metadata):
            return self._names(info.type)
        if isinstance(info, inspect.AnyType):
            return {}
        if isinstance(info, inspect.UnionType):
            return {"anyOf": [self._names(part) for part in info.types]}
        if isinstance(info, inspect.IntType):
            lows = [bound + step for bound, step in ((info.ge, 0), (info.gt, 1)) if bound is not None]
            highs = [bound - step for bound, step in ((info.le, 0), (info.lt, 1)) if bound is not None]
            return {"pattern": f"^{whole_numbers(max(lows, default=None), min(highs, default=None)) or '(?!)'}$"}
        if isinstance(info, inspect.FloatType | inspect.DecimalType):
            return {"pattern": DECIMAL}
        found = self.schema(info)
        if "enum" in found:
            return {"enum": [str(value) for value in found["enum"]]}
        if found.get("type") != "string":
            raise TypeError(f"a dict with keys of {type(info).__name__} is no JSON object")
        return {name: value for name, value in found.items() if name != "type"}


def _row(parts: list[Schema], least: int) -> Schema:
    return {"type": "array", "prefixItems": parts, "items": False, "minItems": least, "maxItems": len(parts)}


def _lengths(info: Any, of: str) -> Schema:
    return dict(_given(((f"min{of}", info.min_length or None), (f"max{of}", info.max_length))))


def _given(pairs: tuple[tuple[str, Any], ...]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in pairs if value is not None)


def _number(kind: str) -> Callable[[Any], Schema]:
    def read(info: Any) -> Schema:
        bounds = (
            *(("minimum", info.ge), ("exclusiveMinimum", info.gt), ("maximum", info.le)),
            *(("exclusiveMaximum", info.lt), ("multipleOf", info.multiple_of)),
        )
        return {"type": kind, **dict(_given(bounds))}

    return read


def _string(info: Any) -> Schema:
    pattern = {} if info.pattern is None else {"pattern": as_ecma(info.pattern)}
    return {"type": "string", **_lengths(info, "Length"), **pattern}


def _bytes(info: Any) -> Schema:
    """Lengths are of what the text stands for."""
    found: Schema = {"type": "string", "pattern": BASE64}
    if info.min_length:
        found["minLength"] = -(-info.min_length // 3) * 4
    if info.max_length is not None:
        found["maxLength"] = info.max_length // 3 * 4
    return found


def _enum(info: Any) -> Schema:
    values = dict.fromkeys(member.value for member in info.cls)
    if not all(isinstance(value, str | int) for value in values):
        raise TypeError(f"{info.cls.__name__} has values that are no strings or whole numbers")
    return {"enum": list(values)}


def _moment(name: Any) -> Callable[[Any], Schema]:
    return lambda info: temporal.moments(name, {}, "naive" if info.tz is False else "aware")


_KINDS: dict[type, Callable[[Any], Schema]] = {
    inspect.AnyType: lambda info: {},
    inspect.RawType: lambda info: {},
    inspect.NoneType: lambda info: {"type": "null"},
    inspect.BoolType: lambda info: {"type": "boolean"},
    inspect.IntType: _number("integer"),
    inspect.FloatType: _number("number"),
    inspect.DecimalType: lambda info: {"type": "number"},
    inspect.StrType: _string,
    inspect.BytesType: _bytes,
    inspect.ByteArrayType: _bytes,
    inspect.MemoryViewType: _bytes,
    inspect.DateTimeType: _moment("date-time"),
    inspect.TimeType: _moment("time"),
    inspect.DateType: lambda info: temporal.dates({}),
    inspect.TimeDeltaType: lambda info: dict(_DURATION),
    inspect.UUIDType: lambda info: {"type": "string", "format": "uuid"},
    inspect.LiteralType: lambda info: {"enum": list(info.values)},
    inspect.EnumType: _enum,
}


def decoder(hint: Any) -> Callable[[str], Any]:
    made = msgspec.json.Decoder(hint)
    return lambda text: made.decode(text.encode())
