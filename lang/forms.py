"""What a gen's text must be: from the keyword that says it to the specification that travels, and back to a value.

::

    gen(json_schema=...)  ──form_of──> Form(spec, value, partial)      one of regex, json_schema, schema, grammar,
                                        │      │      │                 constraint, dtype
                                 the front   a text   a text that was cut
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..runtime.errors import InvalidConstraint, InvalidValue
from ..runtime.protocol import MAX_CONSTRAINT_BYTES, ConstraintSpec, Regex, Spec
from .constraint import Constraint, Data, as_json, checked_regex, grammar, json_options, schema_data
from .dtypes import dtype_of
from .partial import parse_partial
from .sampling import spelled
from .schemas import read_type


@dataclass(frozen=True, slots=True)
class Form:
    """``value`` reads a whole text, and raises what its type's code raises. ``partial`` reads a text that was cut, and
    raises nothing. ``stops`` end the text and are no part of it. ``notes``: what its type asks for beyond that.
    """

    kind: str  # the keyword
    name: str  # for messages: "an int", "a Person"
    regex: str | None  # instead of ``source``
    source: str | None  # JSON
    value: Callable[[str], Any]
    partial: Callable[[str], Any]
    stops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def spec(self, backend: str) -> ConstraintSpec:
        if self.regex is not None:
            return Regex(self.regex, backend)
        assert self.source is not None
        return Spec(self.source, backend, self.kind)


def _text(text: str) -> str:
    return text


def form_of(
    *,
    regex: object = None,
    json_schema: object = None,
    schema: Any = None,
    grammar_text: object = None,
    constraint: object = None,
    dtype: object = None,
    syntax: object = None,
    start: object = None,
    json_layout: Mapping[str, object],
    documents: object = None,
) -> Form | None:
    """None: any text. Raises InvalidValue or InvalidConstraint; at most one kind may be given, and options only with
    the kind they belong to."""
    kinds = {
        "regex": regex,
        "json_schema": json_schema,
        "schema": schema,
        "grammar": grammar_text,
        "constraint": constraint,
        "dtype": dtype,
    }
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) > 1:
        raise InvalidValue(f"give {given[0]} or {given[1]}, not both: each says what the whole text must be", given[1])
    kind = given[0] if given else None
    for name, value in {**json_layout, "documents": documents}.items():
        if value is not None and kind not in ("json_schema", "schema"):
            raise InvalidValue(f"{name} belongs to json_schema= or schema=, which is not given", name)
    for name, value in {"syntax": syntax, "start": start}.items():
        if value is not None and kind != "grammar":
            raise InvalidValue(f"{name} belongs to grammar=, which is not given", name)
    if kind == "regex":
        return Form("regex", "a match of its regex", checked_regex(regex), None, _text, _text)
    if kind == "dtype":
        found = dtype_of(dtype)
        return Form("dtype", f"a complete {found.name}", found.regex, None, found.parse, found.partial, found.stops)
    if kind == "constraint":
        if not isinstance(constraint, Constraint):
            raise InvalidValue(f"constraint must be made with plait.constraints, not {constraint!r}", "constraint")
        return _form("constraint", "a text of its constraint", constraint.data, _text, _text)
    if kind == "grammar":
        made = grammar(grammar_text, syntax=syntax, start=start)  # type: ignore[arg-type]  # it checks them
        return _form("grammar", "a text of its grammar", made.data, _text, _text)
    if kind is None:
        return None
    options = json_options(**json_layout)
    if kind == "json_schema":
        data = schema_data(json_schema, options, documents)  # type: ignore[arg-type]  # it checks them
        text = json_schema if isinstance(json_schema, str) else None
        return _form("json_schema", "a value of its schema", data, json.loads, parse_partial, text)
    typed = read_type(schema)
    data = schema_data(typed.schema, options, documents, "schema")  # type: ignore[arg-type]  # as above
    return replace(_form("schema", f"a {typed.name}", data, typed.parse, parse_partial), notes=typed.notes)


def _form(
    kind: str,
    name: str,
    data: Data,
    value: Callable[[str], Any],
    partial: Callable[[str], Any],
    text: str | None = None,
) -> Form:
    """``text``: the JSON Schema of ``data`` as the caller wrote it; it travels so, with every digit of its numbers."""
    if text is None:
        source = as_json(data, kind)
    else:
        spelled(kind, text)
        rest = as_json({name: part for name, part in data.items() if name != "json_schema"}, kind)
        source = f'{{"json_schema":{text}{"," if len(rest) > 2 else ""}{rest[1:]}'
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_CONSTRAINT_BYTES:
        raise InvalidConstraint(f"{kind} has {size:,} bytes; at most {MAX_CONSTRAINT_BYTES:,} fit", kind)
    return Form(kind, name, None, source, value, partial)
