"""JSON Schemas of Pydantic's types that say what its validation asks for.

Pydantic's own are wider in places: dates have no bounds, a ``Decimal`` of two places is any number or any string,
``dict[int, str]`` has any keys, ``HttpUrl`` any scheme, and formats such as ``uuid4`` or ``ipvanyaddress`` mean nothing
to a reader of schemas. A model writes what its schema allows, so what the validation would refuse is ruled out here, as
far as a schema can: by what other schemas would have said, or by a form that is narrower and always right (a network is
written with a prefix of 8, 16, 24 or 32 bits). What only code knows (a validator) is named by :mod:`.pydantic_notes`.
"""

from __future__ import annotations

import math
import re
import string
import zoneinfo
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

from . import temporal
from .json_text import STRIPPED, whole_numbers
from .json_text import pattern as json_pattern
from .patterns import ASCII, BASE64, BASE64_URL, DECIMAL, as_ecma
from .pydantic_notes import by_user
from .temporal import PYTHON_TIME

Schema = dict[str, Any]

_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(\.{_BYTE}){{3}}"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9]|-[A-Za-z0-9]){0,30}"
#: the last part of a host, which is a number's only if it begins with a digit
_LAST = "[A-Za-z]([A-Za-z0-9]|-[A-Za-z0-9]){0,30}"
_HOST = rf"({_LABEL}\.)*{_LAST}"
_USER, _PORT = r"([A-Za-z0-9._~-]{1,40}(:[A-Za-z0-9._~-]{1,40})?@)?", r"(:([1-9]\d{0,3}|[1-5]\d{4}))?"
#: one atom after another, which every reader of regular expressions takes
_ATOM = r"([A-Za-z0-9_ .,:;=@#~-]|\\[dws.]|\[[a-z0-9_]+\]|\[(a-z|A-Z|0-9)+\])"
#: of email-validator, which refuses domains without a point and those that are nobody's
_DOMAIN = rf"({_LABEL}\.)+(?!(arpa|invalid|local|localhost|onion|test)(>|$))[a-z]{{2,12}}"
_EMAIL = rf"[A-Za-z0-9]([A-Za-z0-9]|[._+'-][A-Za-z0-9]){{0,30}}@{_DOMAIN}"

_IP4: Schema = {"type": "string", "format": "ipv4"}
_IP6: Schema = {"type": "string", "format": "ipv6"}
_NETWORK: Schema = {
    "type": "string",
    "pattern": rf"^({_BYTE}\.0\.0\.0/8|{_BYTE}\.{_BYTE}\.0\.0/16|({_BYTE}\.){{3}}0/24|{_IPV4}(/32)?)$",
}
_INTERFACE: Schema = {"type": "string", "pattern": rf"^{_IPV4}(/([12]?\d|3[0-2]))?$"}
FORMATS: dict[str, Schema] = {
    "ipvanyaddress": {"anyOf": [_IP4, _IP6]},
    "ipvanynetwork": {"anyOf": [_NETWORK, _IP6]},
    "ipvanyinterface": {"anyOf": [_INTERFACE, _IP6]},
    "ipv4network": _NETWORK,
    "ipv6network": _IP6,
    "ipv4interface": _INTERFACE,
    "ipv6interface": _IP6,
    "base64": {"type": "string", "pattern": BASE64},
    "base64url": {"type": "string", "pattern": BASE64_URL},
    "regex": {"type": "string", "pattern": rf"^\^?({_ATOM}[*+?]?)*\$?$"},
    "name-email": {"type": "string", "pattern": rf"^([A-Za-z]+ ){{1,4}}<{_EMAIL}>$"},
    **{f"uuid{n}": {"type": "string", "format": "uuid", "pattern": f"^.{{14}}{n}.{{4}}[89abAB]"} for n in range(1, 9)},
    **{name: {"format": name, "pattern": PYTHON_TIME} for name in ("date", "date-time", "time")},
}
_KEYS: dict[str, Schema] = {
    "float": {"pattern": DECIMAL},
    "decimal": {"pattern": DECIMAL},
    "bool": {"enum": ["true", "false"]},
}
#: digits of a Decimal up to which its schema counts them
_MAX_DIGITS = 40
#: of a quotient that Decimal divides exactly
_SURE_DIGITS = 27


def json_schema(adapter: Any) -> Schema:
    """Of a TypeAdapter. Raises what Pydantic does."""
    found: Schema = adapter.json_schema(schema_generator=_generator())
    return found


def exact(schema: Schema, defs: Mapping[str, Any]) -> bool:
    """Say in ``schema`` itself (not in its parts, which come first) what its format, and JSON in a string, mean to
    Pydantic. False: what the JSON in a string is cannot be said."""
    name = schema.get("format")
    if schema.get("contentMediaType") == "application/json" and "contentSchema" in schema:
        inside = json_pattern(schema.pop("contentSchema"), defs)
        if inside is None:
            return False
        schema["pattern"] = inside
    if name == "zoneinfo":
        schema.update(_zones())
        return True
    if not isinstance(name, str) or any(keyword in schema for keyword in temporal.BOUNDS.values()):
        return True
    known = FORMATS.get(name)
    if known is not None and ("pattern" not in schema or "pattern" not in known):
        schema.pop("format")
        schema.update(known)
    return True


@cache
def _zones() -> Schema:
    return {"enum": sorted(zoneinfo.available_timezones())}


@cache
def _generator() -> type:
    from pydantic.json_schema import GenerateJsonSchema

    class Exact(GenerateJsonSchema):
        def decimal_schema(self, schema: Any) -> Schema:
            return _decimal(schema)

        def complex_schema(self, schema: Any) -> Schema:
            number = r"\d{1,15}(\.\d{1,15})?"
            return {"type": "string", "pattern": rf"^-?{number}[+-]{number}j$"}

        def fraction_schema(self, schema: Any) -> Schema:
            return _decimal(schema)

        def url_schema(self, schema: Any) -> Schema:
            return self._address(super().url_schema(schema), schema)

        def multi_host_url_schema(self, schema: Any) -> Schema:
            return self._address(super().multi_host_url_schema(schema), schema)

        def _address(self, found: Schema, schema: Any) -> Schema:
            schemes = schema.get("allowed_schemes") or ["http", "https", "ftp"]
            user, port = ("", "") if "file" in schemes else (_USER, _PORT)
            begin = f"({'|'.join(map(re.escape, schemes))})://{user}({_HOST}|{_IPV4}){port}"
            return {**found, "format": "uri", "pattern": rf"^{begin}([/?#]|$)"}

        def str_schema(self, schema: Any) -> Schema:
            config = self._config.config_dict
            found = super().str_schema(schema)
            more = []
            if "pattern" in found:
                found["pattern"] = as_ecma(found["pattern"])
            if schema.get("strip_whitespace") or config.get("str_strip_whitespace"):
                more.append(STRIPPED)
            if schema.get("ascii_only"):
                more.append({"pattern": ASCII})
            return {**found, "allOf": more} if more else found

        def bytes_schema(self, schema: Any) -> Schema:
            found = super().bytes_schema(schema)
            how = self._config.config_dict.get("val_json_bytes", "utf8")
            if how == "base64":
                found["pattern"] = BASE64_URL
            elif how == "hex":
                found["pattern"] = "^([0-9a-f]{2})*$"
            elif "maxLength" in found:  # counts bytes
                found["pattern"] = ASCII
            if how != "utf8":
                found.update(_of_bytes(found, *((2, 1) if how == "hex" else (4, 3))))
            return {**found, "format": "binary"}

        def date_schema(self, schema: Any) -> Schema:
            return temporal.dates(self._bounds(schema, "date", None))

        def datetime_schema(self, schema: Any) -> Schema:
            zone = _zone(schema)
            return temporal.moments("date-time", self._bounds(schema, "date-time", zone), zone)

        def time_schema(self, schema: Any) -> Schema:
            return temporal.moments("time", {key: schema.get(key) for key in temporal.BOUNDS}, _zone(schema))

        def timedelta_schema(self, schema: Any) -> Schema:
            return temporal.durations({key: schema.get(key) for key in temporal.BOUNDS})

        def _bounds(self, schema: Any, kind: Any, zone: temporal.Zone) -> dict[str, Any]:
            bounds = {key: schema.get(key) for key in temporal.BOUNDS}
            if schema.get("now_op") is None:
                return bounds
            now = temporal.beside_now(kind, schema["now_op"], schema.get("now_utc_offset"), zone)
            return temporal.tighter(bounds, now)

        def function_after_schema(self, schema: Any) -> Schema:
            found = super().function_after_schema(schema)
            function = schema["function"].get("function")
            name = getattr(getattr(function, "func", function), "__qualname__", "")
            if name == "max_length_validator" and _read_from(schema) == "bytes":
                return {**found, "pattern": ASCII}
            if name == "EncodedStr.decode_str":
                encoder = getattr(function.__self__, "encoder", None)
                return {
                    **found,
                    "pattern": _base64_of_ascii("-_" if "Url" in getattr(encoder, "__name__", "") else "+/"),
                }
            if name == "EmailStr._validate":
                return {**found, "pattern": f"^{_EMAIL}$"}
            if name == "ByteSize._validate":
                return {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _BYTE_SIZE}]}
            return found

        def chain_schema(self, schema: Any) -> Schema:
            """A string and what was said of it later: Pydantic's own schema has the first alone."""
            first, *rest = schema["steps"]
            found = [self.generate_inner(first)]
            for step in rest if not by_user(first) else ():
                inner = step.get("schema", {})
                if step["type"] == "function-wrap" and inner.get("type") == "str":
                    found.append(self.generate_inner(inner))
            return found[0] if len(found) == 1 else {"allOf": found}

        def dict_schema(self, schema: Any) -> Schema:
            found = super().dict_schema(schema)
            names = _keys(schema.get("keys_schema", {}))
            return found if names is None else {**found, "propertyNames": names}

    return Exact


def _base64_of_ascii(last: str) -> str:
    """Text is UTF-8, of which ASCII's bytes have no first bit."""
    digits = string.ascii_uppercase + string.ascii_lowercase + string.digits + last
    first, second, third = (
        "[" + "".join(char for at, char in enumerate(digits) if not at & bit).replace("-", r"\-") + "]"
        for bit in (32, 8, 2)
    )
    every = "[" + digits.replace("-", r"\-") + "]"
    return f"^({first}{second}{third}{every})*({first}[AQgw]==|{first}{second}[AEIMQUYcgkosw048]=)?$"


_BYTE_SIZE = r"^\d{1,6}(\.\d{1,3})? ?([kmgtp]i?)?b$"


def _read_from(schema: Any) -> str:
    """The type in JSON, below what is made of it."""
    while True:
        inner = schema.get("lax_schema") or schema.get("json_schema") or schema.get("schema")
        if inner is None:
            return str(schema["type"])
        schema = inner


def _zone(schema: Any) -> temporal.Zone:
    found = schema.get("tz_constraint")
    return "naive" if found == "naive" else None if found is None else "aware"


def _keys(schema: Any) -> Schema | None:
    kind = schema.get("type", "")
    if kind == "int" and schema.get("multiple_of") is None:
        lows = [schema[key] + step for key, step in (("ge", 0), ("gt", 1)) if schema.get(key) is not None]
        highs = [schema[key] - step for key, step in (("le", 0), ("lt", 1)) if schema.get(key) is not None]
        fits = whole_numbers(max(lows, default=None), min(highs, default=None))
        return {"pattern": "^(?!)$" if fits is None else f"^{fits}$"}
    return _KEYS.get(kind)


def _of_bytes(found: Schema, texts: int, bytes_: int) -> Schema:
    """Lengths of the bytes as those of their text."""
    names = {"minLength": -(-found.get("minLength", 0) // bytes_) * texts}
    if "maxLength" in found:
        names["maxLength"] = found["maxLength"] // bytes_ * texts
    return names


def _decimal(schema: Any) -> Schema:
    """A number. (Pydantic takes a string of one too.)"""
    bounds = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    found: Schema = {"type": "number"}
    found.update(
        {
            keyword: _inward(schema[name], name[0] == "g")
            for name, keyword in bounds.items()
            if schema.get(name) is not None
        }
    )
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    more: list[Schema] = []
    step = schema.get("multiple_of")
    if step is not None:
        more.append({"multipleOf": float(step)})
        places = max(0, -int(Decimal(str(step)).as_tuple().exponent))
        more.append(_below(max(1, _SURE_DIGITS - places)))
    if digits is not None and digits <= _MAX_DIGITS:
        fits = range(digits + 1) if places is None else (min(places, digits),)
        ways = [_fixed(point) | _below(digits - point) for point in fits]
        more.append(ways[0] if len(ways) == 1 else {"anyOf": ways})
    elif places is not None:
        more.append(_fixed(places))
    return {**found, "allOf": more} if more else found


def _inward(bound: Any, low: bool) -> float:
    """The nearest float that is no wider a bound, of numbers as they are written."""
    found = float(bound)
    if math.isfinite(found) and (Fraction(repr(found)) < bound if low else Fraction(repr(found)) > bound):
        found = math.nextafter(found, math.inf if low else -math.inf)
    return found


def _fixed(places: int) -> Schema:
    return {"multipleOf": float(f"1e-{places}")}


def _below(whole: int) -> Schema:
    """So many digits before the point. (None: 0 has one.)"""
    more: Schema = {} if whole else {"not": {"const": 0}}
    return {**more, "exclusiveMinimum": -(10**whole), "exclusiveMaximum": 10**whole}
