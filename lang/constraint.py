"""Constraints put together from parts: free text, literals, regexes, schemas and grammars in one.

::

    from plait import constraints as c
    c.lit("Answer: ") + (c.regex(r"[0-9]+") | "unknown") + c.json(Person).optional()

Expressions are immutable and may be used often. ``+`` and ``|`` take strings for literals. What an expression stands
for is plain data (:attr:`Constraint.data`), which the runtime compiles; nothing is checked against a model here.
"""

from __future__ import annotations

import json as _json
import re
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.errors import InvalidConstraint, InvalidValue
from ..runtime.protocol import without_surrogates
from .sampling import spelled
from .schemas import read_type

Data = Mapping[str, Any]
SYNTAXES = ("auto", "gbnf", "ebnf", "lark")
WHITESPACE = ("auto", "single", "compact", "spaced")
FORMATS = ("assert", "annotate")
#: where OpenAI's response_format and tools hold a schema; as keywords they would assert nothing
_WRAPPERS = ("schema", "parameters")
#: an escaped backslash, or \p{...}, which Plait knows and Python's re does not
_PROPERTY = re.compile(r"(\\\\)|\\[pP]\{[^{}]*\}")


class Constraint:
    """A set of texts. Made by the functions of this module; give it to ``gen(constraint=...)``."""

    __slots__ = ("_data",)

    def __init__(self, data: Data) -> None:
        self._data = data

    @property
    def data(self) -> Data:
        """What it says, as dicts, lists, strings and numbers; the forms are listed in docs/constraints.md."""
        return self._data

    def __add__(self, other: Constraint | str) -> Constraint:
        return _put_together("seq", self, other)

    def __radd__(self, other: str) -> Constraint:
        return _put_together("seq", other, self)

    def __or__(self, other: Constraint | str) -> Constraint:
        return _put_together("any_of", self, other)

    def __ror__(self, other: str) -> Constraint:
        return _put_together("any_of", other, self)

    def optional(self) -> Constraint:
        """It, or nothing."""
        return self.repeat(0, 1)

    def repeat(
        self, min: int | None = None, max: int | None = None, *, separator: Constraint | str | None = None
    ) -> Constraint:
        """It ``min`` to ``max`` times (None: as often as the model likes), with ``separator`` in between."""
        for name, count in (("min", min), ("max", max)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise InvalidValue(f"repeat: {name} must be a whole number of 0 or more, not {count!r}", name)
        min = 0 if min is None else min
        if max is not None and max < min:
            raise InvalidValue(f"repeat: max ({max}) must not be below min ({min})", "max")
        data: dict[str, Any] = {"repeat": self._data, "min": min, "max": max}
        if separator is not None:
            data["separator"] = as_constraint(separator).data
        return Constraint(data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and self._data == other._data

    def __hash__(self) -> int:
        return hash(_json.dumps(self._data, sort_keys=True))

    def __repr__(self) -> str:
        text = _json.dumps(self._data, ensure_ascii=False)
        return f"<Constraint {text if len(text) <= 200 else text[:197] + '...'}>"


def as_constraint(value: Constraint | str) -> Constraint:
    """A string is the literal of itself. Raises InvalidValue for anything else."""
    if isinstance(value, Constraint):
        return value
    if isinstance(value, str):
        return lit(value)
    raise InvalidValue(f"a constraint is put together from constraints and strings, not {value!r}", "constraint")


def _put_together(kind: str, left: Constraint | str, right: Constraint | str) -> Constraint:
    """Flat where it can be, so that a long sum is one list and not a deep nest."""
    parts: list[Data] = []
    for side in (left, right):
        data = as_constraint(side).data
        parts += data.get(kind, [data])
    return Constraint({kind: parts})


def lit(text: str) -> Constraint:
    """Exactly ``text``."""
    if not isinstance(text, str):
        raise InvalidValue(f"lit takes a string, not {text!r}", "text")
    spelled("lit", text)
    return Constraint({"literal": text})


def regex(pattern: str) -> Constraint:
    """Any text that ``pattern`` matches as a whole, in Python's syntax."""
    return Constraint({"regex": checked_regex(pattern)})


def choice(*options: Constraint | str | Sequence[Constraint | str]) -> Constraint:
    """One of the options; ``choice("yes", "no")``, or one list of them."""
    given: list[Any] = list(options)
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = list(given[0])
    if not given:
        raise InvalidValue("choice takes at least one option", "choice")
    if all(isinstance(option, str) for option in given):
        return Constraint({"choices": [lit(option).data["literal"] for option in given]})
    return Constraint({"any_of": [as_constraint(option).data for option in given]})


def sep_by(
    item: Constraint | str, separator: Constraint | str, min: int | None = None, max: int | None = None
) -> Constraint:
    """``item`` any number of times with ``separator`` in between."""
    return as_constraint(item).repeat(min, max, separator=separator)


def json(
    schema: Any = None,
    *,
    any_order: bool | None = None,
    undeclared: bool | None = None,
    whitespace: str | int | None = None,
    strict: bool | None = None,
    format: str | None = None,
    documents: Mapping[str, Any] | None = None,
) -> Constraint:
    """A JSON value: any (no argument), one of a JSON Schema (dict or JSON text), or one of a type."""
    options = json_options(any_order, undeclared, whitespace, strict, format)
    schema = True if schema is None else schema
    if not isinstance(schema, str | Mapping | bool):
        schema = read_type(schema).schema
    return Constraint(schema_data(schema, options, documents))


def grammar(text: str, *, syntax: str | None = None, start: str | None = None) -> Constraint:
    """A context-free grammar: GBNF (llama.cpp), EBNF (xgrammar, SGLang) or Lark (llguidance)."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue(f"grammar must be a non-empty string, not {text!r}", "grammar")
    syntax = "auto" if syntax is None else syntax
    if syntax not in SYNTAXES:
        raise InvalidValue(f"syntax must be one of {', '.join(SYNTAXES)}, not {syntax!r}", "syntax")
    if start is not None and (not isinstance(start, str) or not start):
        raise InvalidValue(f"start must be the name of a rule, not {start!r}", "start")
    return Constraint({"grammar": text, "syntax": syntax, **({} if start is None else {"start": start})})


def ready(name: str) -> Constraint:
    """A grammar that comes with Plait: json, sql_select, python_expression, arithmetic, xml, url, email, date,
    date_time, time, uuid."""
    if not isinstance(name, str) or not name:
        raise InvalidValue(f"ready takes the name of a grammar, not {name!r}", "ready")
    return Constraint({"ready": name})


# ---------------------------------------------------------------- what gen() shares


def checked_regex(pattern: object, field: str = "regex") -> str:
    """Raises InvalidConstraint for what is no pattern, as far as that can be seen without compiling it."""
    if not isinstance(pattern, str) or not pattern:
        how = "; give its .pattern, with its flags in front: (?i)" if isinstance(pattern, re.Pattern) else ""
        raise InvalidValue(f"{field} must be a non-empty string, not {pattern!r}{how}", field)
    spelled(field, pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set": the meaning is still today's
            re.compile(_PROPERTY.sub(lambda found: found[1] or "x", pattern))
    except re.error as error:
        raise InvalidConstraint(f"{field} {pattern!r} is not a regular expression: {error}", field) from error
    except (RecursionError, OverflowError):
        why = "it is nested too deeply, or a number in it is too large"
        raise InvalidConstraint(f"{field} {reprlib.repr(pattern)} cannot be used: {why}", field) from None
    return pattern


def json_options(
    any_order: object, undeclared: object, whitespace: object, strict: object, format: object
) -> dict[str, Any]:
    """Those that were given. Raises InvalidValue."""
    found: dict[str, Any] = {}
    for name, value in (("any_order", any_order), ("undeclared", undeclared), ("strict", strict)):
        if value is not None:
            if not isinstance(value, bool):
                raise InvalidValue(f"{name} must be True or False, not {value!r}", name)
            found[name] = value
    if whitespace is not None:
        columns = isinstance(whitespace, int) and not isinstance(whitespace, bool) and 0 <= whitespace <= 16
        if whitespace not in WHITESPACE and not columns:
            raise InvalidValue(
                f"whitespace must be one of {', '.join(WHITESPACE)} or a number of columns to indent by (0 to 16), "
                f"not {whitespace!r}",
                "whitespace",
            )
        found["whitespace"] = whitespace
    if format is not None:
        if format not in FORMATS:
            raise InvalidValue(f"format must be one of {', '.join(FORMATS)}, not {format!r}", "format")
        found["format"] = format
    return found


def schema_data(
    schema: object, options: Mapping[str, Any], documents: Mapping[str, Any] | None, field: str = "json_schema"
) -> dict[str, Any]:
    """The plain data of a JSON Schema (a dict, a bool, or the JSON text of one). Raises InvalidConstraint."""
    data: dict[str, Any] = {"json_schema": parsed_schema(schema, field)}
    if options:
        data["options"] = dict(options)
    if documents is not None:
        if not isinstance(documents, Mapping):
            raise InvalidValue(f"documents must map addresses to JSON Schemas, not {documents!r}", "documents")
        data["documents"] = {
            address: parsed_schema(document, f"documents[{address!r}]") for address, document in documents.items()
        }
    return data


def parsed_schema(schema: object, field: str) -> Any:
    if isinstance(schema, str):
        try:
            schema = _json.loads(schema)
        except RecursionError:
            raise InvalidConstraint(f"{field} cannot be read: its JSON is nested too deeply", field) from None
        except ValueError as error:
            raise InvalidConstraint(f"{field} is not JSON: {error}", field) from error
    if not isinstance(schema, Mapping | bool):
        what = "a list" if isinstance(schema, Sequence) and not isinstance(schema, str) else repr(schema)
        how = "; a type goes into schema=" if field == "json_schema" and callable(schema) else ""
        raise InvalidConstraint(f"{field} must be a JSON Schema (a dict, or JSON text of one), not {what}{how}", field)
    if isinstance(schema, Mapping):
        for inside in _WRAPPERS:
            if isinstance(schema.get(inside), Mapping) and schema.keys() <= {"name", "description", "strict", inside}:
                raise InvalidConstraint(f"{field} has its schema one deeper: give what stands at {inside!r}", field)
    return schema


def as_json(data: Data, field: str) -> str:
    """``data`` as it travels. Raises InvalidConstraint for what JSON cannot hold."""
    try:
        text = _json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        if without_surrogates(text) != text:  # a schema may speak of half a pair; UTF-8 cannot
            text = _json.dumps(data, allow_nan=False, separators=(",", ":"), default=_plain)
        return text
    except RecursionError:
        raise InvalidConstraint(f"{field} is nested too deeply", field) from None
    except (TypeError, ValueError) as error:
        raise InvalidConstraint(f"{field} cannot be written as JSON: {error}", field) from error


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")
