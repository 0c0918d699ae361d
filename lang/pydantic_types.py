"""JSON Schemas of Pydantic's types that say what its validation asks for.

Pydantic's own are wider in places: a ``Decimal`` of two places is any number or any string, ``dict[int, str]`` has any
keys, ``HttpUrl`` any scheme, and formats such as ``uuid4`` or ``ipvanyaddress`` mean nothing to a reader of schemas. A
model writes what its schema allows, so what the validation would refuse is ruled out here, as far as a schema can: by
what other schemas would have said, or by a form that is narrower and always right (a network is written with a prefix
of 8, 16, 24 or 32 bits). What only code knows (a validator, a date in the past) stays an error of the value.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(\.{_BYTE}){{3}}"
_BASE64 = "^([{0}]{{4}})*([{0}][AQgw]==|[{0}]{{2}}[AEIMQUYcgkosw048]=)?$"
_DAY = r"((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
_NAIVE = rf"^(?!0000)\d{{4}}-{_DAY}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{{1,6}})?$"
#: of a date or a time: RFC 3339 has a year 0, leap seconds and small letters; Python's classes have none of them
PYTHON_TIME = "^(?!0000|.*[tz]|.*:60)"

_IP4: Schema = {"type": "string", "format": "ipv4"}
_IP6: Schema = {"type": "string", "format": "ipv6"}
_NETWORK: Schema = {
    "type": "string",
    "pattern": rf"^({_BYTE}\.0\.0\.0/8|{_BYTE}\.{_BYTE}\.0\.0/16|({_BYTE}\.){{3}}0/24|{_IPV4}(/32)?)$",
}
_INTERFACE: Schema = {"type": "string", "pattern": rf"^{_IPV4}(/([12]?\d|3[0-2]))?$"}
_FORMATS: dict[str, Schema] = {
    "ipvanyaddress": {"anyOf": [_IP4, _IP6]},
    "ipvanynetwork": {"anyOf": [_NETWORK, _IP6]},
    "ipvanyinterface": {"anyOf": [_INTERFACE, _IP6]},
    "ipv4network": _NETWORK,
    "ipv6network": _IP6,
    "ipv4interface": _INTERFACE,
    "ipv6interface": _IP6,
    "base64": {"type": "string", "pattern": _BASE64.format("A-Za-z0-9+/")},
    "base64url": {"type": "string", "pattern": _BASE64.format("A-Za-z0-9_-")},
    **{f"uuid{n}": {"type": "string", "format": "uuid", "pattern": f"^.{{14}}{n}.{{4}}[89abAB]"} for n in range(1, 9)},
    **{name: {"format": name, "pattern": PYTHON_TIME} for name in ("date", "date-time", "time")},
}
_KEYS: dict[str, Schema] = {
    "int": {"pattern": r"^(0|-?[1-9]\d{0,17})$"},
    "float": {"pattern": r"^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$"},
    "decimal": {"pattern": r"^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$"},
    "bool": {"enum": ["true", "false"]},
}
#: digits of a Decimal up to which its schema counts them
_MAX_DIGITS = 40


def json_schema(adapter: Any) -> Schema:
    """Of a TypeAdapter. Raises what Pydantic does."""
    found: Schema = adapter.json_schema(schema_generator=_generator())
    return found


def exact(schema: Schema) -> None:
    """Say in ``schema`` itself (not in its parts) what its format means to Pydantic."""
    known = _FORMATS.get(schema.get("format", "")) if isinstance(schema.get("format"), str) else None
    if known is not None and ("pattern" not in schema or "pattern" not in known):
        schema.pop("format")
        schema.update(known)


def _generator() -> type:
    from pydantic.json_schema import GenerateJsonSchema

    class Exact(GenerateJsonSchema):
        def decimal_schema(self, schema: Any) -> Schema:
            return _decimal(schema)

        def complex_schema(self, schema: Any) -> Schema:
            number = r"\d{1,15}(\.\d{1,15})?"
            return {"type": "string", "pattern": rf"^-?{number}[+-]{number}j$"}

        def url_schema(self, schema: Any) -> Schema:
            return self._address(super().url_schema(schema), schema)

        def multi_host_url_schema(self, schema: Any) -> Schema:
            return self._address(super().multi_host_url_schema(schema), schema)

        def _address(self, found: Schema, schema: Any) -> Schema:
            schemes = schema.get("allowed_schemes") or ["https?", "ftp"]
            host = r"[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
            return {**found, "format": "uri", "pattern": rf"^({'|'.join(schemes)})://{host}(\.{host})*([/?#]|$)"}

        def datetime_schema(self, schema: Any) -> Schema:
            if schema.get("tz_constraint") == "naive":
                return {"type": "string", "pattern": _NAIVE}
            return super().datetime_schema(schema)

        def dict_schema(self, schema: Any) -> Schema:
            found = super().dict_schema(schema)
            names = _KEYS.get(schema.get("keys_schema", {}).get("type", ""))
            return found if names is None else {**found, "propertyNames": names}

    return Exact


def _decimal(schema: Any) -> Schema:
    """A number. (Pydantic takes a string of one too.)"""
    bounds = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    found: Schema = {"type": "number"}
    found.update({keyword: float(schema[name]) for name, keyword in bounds.items() if schema.get(name) is not None})
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    more: list[Schema] = []
    if schema.get("multiple_of") is not None:
        more.append({"multipleOf": float(schema["multiple_of"])})
    if digits is not None and digits <= _MAX_DIGITS:
        fits = range(digits + 1) if places is None else (min(places, digits),)
        ways = [_fixed(point) | _below(digits - point) for point in fits]
        more.append(ways[0] if len(ways) == 1 else {"anyOf": ways})
    elif places is not None:
        more.append(_fixed(places))
    return {**found, "allOf": more} if more else found


def _fixed(places: int) -> Schema:
    return {"multipleOf": float(f"1e-{places}")}


def _below(whole: int) -> Schema:
    return {"exclusiveMinimum": -(10**whole), "exclusiveMaximum": 10**whole}
