"""JSON in a string: a pattern (ECMA-262) of texts that are JSON of a schema.

No pattern can hold all JSON of a schema, whose brackets nest. It holds some: compact ones, parts that refer to
themselves left out, strings without escapes. None where a part that must come cannot be said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_SYNTAX = frozenset("^$\\.*+?()[]{}|/")
_STRING = r'"[^"\\\u0000-\u001f]{0,200}"'
_NUMBER = r"-?(0|[1-9]\d{0,14})(\.\d{1,6})?"
_SCALAR = f"(null|true|false|{_NUMBER}|{_STRING})"
_KEY = '"[A-Za-z_][A-Za-z0-9_]{0,40}"'
_ANY = rf"({_SCALAR}|\[({_SCALAR}(,{_SCALAR})*)?\]|\{{({_KEY}:{_SCALAR}(,{_KEY}:{_SCALAR})*)?\}})"
_SCALARS = {
    "null": "null",
    "boolean": "(true|false)",
    "integer": r"(0|-?[1-9]\d{0,17})",
    "number": _NUMBER,
    "string": _STRING,
}
_FORMATS = {
    "date": r'"[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"',
    "uuid": r'"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"',
}
#: strings without white space (of Unicode, and of Python) at their ends
NO_SPACE = r"[^\s\u0085\u001c-\u001f]"
STRIPPED: Schema = {"pattern": rf"^({NO_SPACE}([\s\S]*{NO_SPACE})?)?$"}
#: what says nothing about values
_SILENT = frozenset(("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$defs"))
#: references inside one another; characters of a pattern
_DEEP, _LONG = 6, 20_000


def pattern(schema: Any, defs: Mapping[str, Any]) -> str | None:
    found = _Texts(defs).of(schema, 0)
    return None if found is None or len(found) > _LONG else f"^{found}$"


def whole_numbers(low: int | None, high: int | None) -> str | None:
    """The texts of the whole numbers from ``low`` to ``high``, of up to 18 digits; None: there are none."""
    low, high = max(-(10**18) + 1, -(10**18) if low is None else low), min(10**18 - 1, 10**18 if high is None else high)
    if low > high:
        return None
    ways = _positive(max(low, 0), high) if high >= 0 else []
    if low < 0:
        ways.append(f"-({'|'.join(_positive(max(1, -high), -low))})")
    return f"({'|'.join(ways)})"


def _positive(low: int, high: int) -> list[str]:
    """By the number of digits; then the digits that both have in front, and what is between the rest."""
    ways: list[str] = []
    if low == 0:
        ways.append("0")
        low = 1
    while low <= high:
        digits = len(str(low))
        longest = len(str(high + 1)) - 1  # of which every number fits
        if low == 10 ** (digits - 1) and longest >= digits:
            ways.append(rf"[1-9]\d{{{digits - 1},{longest - 1}}}")
            low = 10**longest
            continue
        most = min(high, 10**digits - 1)
        ways.append(_between(str(low), str(most)))
        low = most + 1
    return ways


def _between(low: str, high: str) -> str:
    if not low:
        return ""
    rest = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(low):
        return rf"\d{{{len(low)}}}"
    if low[0] == high[0]:
        return low[0] + _between(low[1:], high[1:])
    ways = []
    first, last = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        ways.append(low[0] + _between(low[1:], "9" * rest))
        first += 1
    if high[1:].strip("9"):
        ways.append(high[0] + _between("0" * rest, high[1:]))
        last -= 1
    if first <= last:
        ways.append(f"[{first}-{last}]" + (rf"\d{{{rest}}}" if rest else ""))
    return f"({'|'.join(ways)})"


def _quoted(text: str) -> str:
    return "".join("\\" + char if char in _SYNTAX else char for char in text)


class _Texts:
    def __init__(self, defs: Mapping[str, Any]) -> None:
        self._defs = defs

    def of(self, schema: Any, depth: int) -> str | None:
        if schema is True or schema == {}:
            return _ANY
        if not isinstance(schema, dict) or depth > _DEEP:
            return None
        says = schema.keys() - _SILENT
        if not says:
            return _ANY
        for name in ("enum", "const"):
            if name in says:
                return (
                    None if says - {name, "type"} else self._values(schema[name] if name == "enum" else [schema[name]])
                )
        for name in ("anyOf", "oneOf"):
            if name in says:
                if says - {name, "discriminator"}:
                    return None
                ways = [way for way in (self.of(part, depth + 1) for part in schema[name]) if way is not None]
                return f"({'|'.join(ways)})" if ways else None
        if "$ref" in says:
            target = self._defs.get(str(schema["$ref"]).removeprefix("#/$defs/"))
            return None if len(says) > 1 or target is None else self.of(target, depth + 1)
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return self._scalar(kind, schema, says - {"type"})

    def _values(self, values: list[Any]) -> str:
        texts = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)
        return f"({'|'.join(map(_quoted, texts))})"

    def _scalar(self, kind: Any, schema: Schema, says: set[str]) -> str | None:
        if not says:
            return _SCALARS.get(str(kind))
        stripped = schema.get("allOf") == [STRIPPED]
        if kind == "string" and says <= {"minLength", "maxLength", *(("allOf",) if stripped else ())}:
            least = schema.get("minLength", 0)
            most = min(schema.get("maxLength", max(200, least)), 1000)
            space = r"\s\u0085" if stripped else ""
            return rf'"[^"\\{space}\u0000-\u001f]{{{least},{most}}}"' if least <= most else None
        if kind == "string" and says <= {"format", "pattern"} and schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        bounds = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
        if kind in ("integer", "number") and says <= bounds:
            lows = [_ceil(schema[name]) for name in ("minimum",) if name in says]
            lows += [_floor(schema[name]) + 1 for name in ("exclusiveMinimum",) if name in says]
            highs = [_floor(schema[name]) for name in ("maximum",) if name in says]
            highs += [_ceil(schema[name]) - 1 for name in ("exclusiveMaximum",) if name in says]
            return whole_numbers(max(lows, default=None), min(highs, default=None))
        return None

    def _array(self, schema: Schema, depth: int) -> str | None:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        known = {"type", "items", "prefixItems", "minItems", "maxItems", "uniqueItems"}
        if schema.keys() - _SILENT - known:
            return None
        if "prefixItems" in schema:
            parts = [self.of(part, depth + 1) for part in schema["prefixItems"]]
            fits = least <= len(parts) and (most is None or most >= len(parts))
            return None if None in parts or not fits else rf"\[{','.join(map(str, parts))}\]"
        if schema.get("uniqueItems"):
            most = min(1, 1 if most is None else most)
        item = self.of(schema.get("items", {}), depth + 1)
        if (most is not None and least > most) or (item is None and least):
            return None
        if item is None or most == 0:
            return r"\[\]"
        more = f"(,{item}){{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        some = f"{item}{more}"
        return rf"\[{some}\]" if least else rf"\[({some})?\]"

    def _object(self, schema: Schema, depth: int) -> str | None:
        known = {"type", "properties", "required", "additionalProperties", "minProperties", "propertyNames"}
        if schema.keys() - _SILENT - known:
            return None
        needed = schema.get("required", [])
        found = {name: self.of(part, depth + 1) for name, part in schema.get("properties", {}).items()}
        texts = {name: f'"{_quoted(name)}":{part}' for name, part in found.items() if part is not None}
        if any(name not in texts for name in needed):
            return None
        if "properties" in schema:
            if schema.get("minProperties", 0) > len(needed):
                return None
            row = ",".join(texts[name] for name in texts if name in needed)
            rest = [f"(,{text})?" for name, text in texts.items() if name not in needed]
            return rf"\{{{row}{''.join(rest)}\}}" if row else r"\{\}"
        least = schema.get("minProperties", 0)
        other = schema.get("additionalProperties", {})
        value = None if other is False else self.of(other, depth + 1)
        key = self._key(schema.get("propertyNames", {}))
        if value is None or key is None or least > 1:
            return None if least else r"\{\}"
        entry = f"{key}:{value}"
        return rf"\{{{entry}\}}" if least else rf"\{{({entry}(,{entry})*)?\}}"

    def _key(self, schema: Any) -> str | None:
        says = schema.keys() - _SILENT - {"type"}
        if not says or (says == {"allOf"} and schema["allOf"] == [STRIPPED]):
            return _KEY
        if says == {"enum"}:
            return self._values(schema["enum"])
        whole = schema["pattern"] if says == {"pattern"} else ""
        return f'"({whole[1:-1]})"' if whole[:1] == "^" and whole[-1:] == "$" and "(?" not in whole else None


def _floor(number: float) -> int:
    return int(number // 1)


def _ceil(number: float) -> int:
    return -int(-number // 1)
