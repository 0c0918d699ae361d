"""Keywords that assert nothing where they stand, though their author may think so."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from .dispatch import KEYWORDS, handlers
from .drafts import D3, D7, DRAFT_NAMES
from .errors import Problem
from .formats import asserted, ordered
from .node import Node
from .text import shown

if TYPE_CHECKING:
    from .references import Resource

#: annotations and containers of the drafts, and what OpenAPI and editors put beside them
_SILENT = frozenset(
    (
        *("$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "$vocabulary"),
        *("contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "deprecated"),
        *("description", "example", "examples", "id", "readOnly", "title", "writeOnly", "additionalItems"),
        *("discriminator", "externalDocs", "xml", "links", "nullable"),
    )
)

_DRAFT_3 = {"divisibleBy": "write multipleOf", "disallow": "write not", "extends": "write allOf"}

_FORMAT_BOUNDS = ("formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum")

#: keyword -> the type that it speaks of
_SPEAKS_OF = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", *_FORMAT_BOUNDS), "string"),
    **dict.fromkeys(
        ("prefixItems", "items", "contains", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"), "array"
    ),
    **dict.fromkeys(
        (
            *("properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties"),
            *("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
        ),
        "object",
    ),
}

#: keyword -> without which other keyword it says nothing
_NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}


@cache
def _since() -> dict[str, int]:
    return {one.name: one.since for one in KEYWORDS if one.until > D3}


def notes_on(node: Node, raw: dict[Any, Any], at: Resource) -> Iterator[Problem]:
    """The notes on one schema. ``raw``: its JSON."""
    table = handlers(at.dialect)
    draft = DRAFT_NAMES[at.dialect.draft]
    pointer = node.pointer
    hidden = at.dialect.draft <= D7 and "$ref" in raw
    for keyword, value in raw.items():
        if not isinstance(keyword, str):
            continue
        if keyword == "$schema" and at.raw is raw and not at.dialect.known:
            yield Problem(keyword, pointer, f"{value!r} is no draft's metaschema and not given; read as draft {draft}")
        elif hidden and keyword in table and keyword not in _SILENT and keyword != "$ref":
            yield Problem(keyword, pointer, f"is hidden by $ref beside it in draft {draft}; put $ref into an allOf")
        elif keyword == "nullable" and value is True and not at.registry.options.openapi:
            yield Problem(keyword, pointer, "is OpenAPI's and not asserted; add 'null' to type, or set openapi")
        elif keyword == "additionalItems" and type(raw.get("items")) is not list:
            yield Problem(keyword, pointer, "says nothing without items as a list")
        elif keyword == "format" and keyword in table:
            if not isinstance(value, str):
                continue  # an error, and said so
            if not asserted(value):
                yield Problem(keyword, pointer, f"{shown(value)} is no standard format: an annotation")
            elif node.types is not None and "string" not in node.types:
                yield Problem(keyword, pointer, "speaks of strings, which type does not allow")
        elif keyword in table:
            yield from _idle(node, raw, keyword)
        elif keyword not in _SILENT and not keyword.startswith(("_", "x-")):
            yield from _unknown(keyword, pointer, draft, at)


def _idle(node: Node, raw: dict[str, Any], keyword: str) -> Iterator[Problem]:
    needed = _NEEDS.get(keyword)
    if needed is not None and needed not in raw:
        yield Problem(keyword, node.pointer, f"says nothing without {needed}")
    if keyword in _FORMAT_BOUNDS and not ordered(raw.get("format")):
        yield Problem(
            keyword, node.pointer, "says nothing without a format that has an order (date, time, duration, ...)"
        )
    of = _SPEAKS_OF.get(keyword)
    if of is not None and node.types is not None and of not in node.types:
        yield Problem(keyword, node.pointer, f"speaks of {of}s, which type does not allow")


#: where others keep a schema: OpenAI's response_format, its tools
_WRAPPERS = ("schema", "json_schema", "parameters")


def _unknown(keyword: str, pointer: str, draft: str, at: Resource) -> Iterator[Problem]:
    since = _since().get(keyword)
    if keyword in _DRAFT_3:
        yield Problem(keyword, pointer, f"is draft 3 and not asserted; {_DRAFT_3[keyword]}")
    elif since is not None and since > at.dialect.draft:
        newer = DRAFT_NAMES[since]
        yield Problem(keyword, pointer, f"is a keyword since draft {newer}, an annotation in {draft}; change $schema")
    elif since is not None:
        yield Problem(keyword, pointer, "is switched off by the vocabularies of the metaschema")
    elif keyword in _WRAPPERS:
        yield Problem(keyword, pointer, "is not a keyword and asserts nothing; if it holds the schema, give that alone")
    else:
        close = difflib.get_close_matches(keyword, [*_since(), "$defs"], 1, 0.85)
        if close:
            yield Problem(keyword, pointer, f"is not a keyword and asserts nothing; did you mean {close[0]!r}?")
