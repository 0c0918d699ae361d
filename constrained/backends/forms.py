"""A constraint's plain data in the forms that libraries read: a regex, a JSON schema with its layout, or a grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..interface import ConstraintError
from ..regular.ranges import KEYWORDS, ORDERED

_DTYPES = {
    "int": r"-?(0|[1-9][0-9]{0,18})",
    "float": r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?",
    "bool": "(True|False)",
}


@dataclass(frozen=True)
class Regex:
    """Full match."""

    pattern: str


@dataclass(frozen=True)
class Schema:
    """``whitespace``: "single", "compact", "spaced" or the number of columns to indent."""

    text: str
    whitespace: str | int
    strict: bool


@dataclass(frozen=True)
class Grammar:
    """``syntax``: "gbnf", "ebnf", "lark" or "auto"."""

    text: str
    syntax: str
    start: str | None


def read(spec: Mapping[str, Any]) -> Regex | Schema | Grammar:
    """The one form that a library gets. Raises ConstraintError for what only the default engine can do."""
    if "regex" in spec:
        return Regex(_text(spec, "regex"))
    if "literal" in spec:
        return Regex(escape(_text(spec, "literal")))
    if "choices" in spec:
        return Regex("(" + "|".join(escape(choice) for choice in spec["choices"]) + ")")
    if "dtype" in spec and spec["dtype"] in _DTYPES:
        return Regex(_DTYPES[spec["dtype"]])
    if "grammar" in spec:
        return Grammar(_text(spec, "grammar"), str(spec.get("syntax", "auto")), spec.get("start"))
    if "json_schema" in spec:
        return _schema(spec)
    kind = next(iter(spec), "nothing")
    raise ConstraintError(f"{kind!r} is not supported there; the default, constraint_backend='plait', has it")


def escape(text: str) -> str:
    """A regex that matches ``text``, in the syntax that Rust's regex crate and ECMA-262 share."""
    return "".join(_escaped(char) for char in text)


def _escaped(char: str) -> str:
    if char in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[char]
    return "\\" + char if char in r"\.^$*+?()[]{}|/-" else char


def _text(spec: Mapping[str, Any], name: str) -> str:
    value = spec[name]
    if not isinstance(value, str):
        raise ConstraintError(f"{name} must be a string, not {type(value).__name__}")
    return value


def _schema(spec: Mapping[str, Any]) -> Schema:
    options = dict(spec.get("options") or {})
    if spec.get("documents"):
        raise ConstraintError("documents are not supported there: put them into the schema's $defs")
    whitespace = options.pop("whitespace", "compact")
    strict = options.pop("strict", True)
    draft = options.pop("draft", None)
    for name, default in (("format", "assert"), ("any_order", False), ("undeclared", True)):
        if options.pop(name, default) != default:
            raise ConstraintError(f"the option {name} cannot be changed there")
    if options:
        raise ConstraintError(f"the option {next(iter(options))} is not supported there")
    schema = spec["json_schema"]
    if _has_format_bounds(schema):
        raise ConstraintError("bounds of a format (formatMinimum, ...) are not supported there")
    if draft is not None and isinstance(schema, Mapping) and "$schema" not in schema:
        schema = {"$schema": draft, **schema}
    return Schema(json.dumps(schema, ensure_ascii=False, default=_number), whitespace, bool(strict))


def _has_format_bounds(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_has_format_bounds, schema))
    if not isinstance(schema, Mapping):
        return False
    bounded = schema.get("format") in ORDERED if isinstance(schema.get("format"), str) else False
    return (bounded and any(name in schema for name in KEYWORDS)) or any(map(_has_format_bounds, schema.values()))


def _number(value: Any) -> float:
    """Numbers that came as text are Decimals; the libraries read floats anyway."""
    if isinstance(value, Decimal):
        return float(value)
    raise ConstraintError(f"a schema is JSON; {type(value).__name__} is not")
