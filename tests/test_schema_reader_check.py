"""check(): the whole schema is looked at, and everything about it is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.interface import ConstraintError
from plait.constrained.schema.check import Report, check
from plait.constrained.schema.dispatch import KEYWORDS
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read


def refuse_lookbehind(pattern: str) -> None:
    if "(?<" in pattern:
        raise ConstraintError("lookbehind is not supported")


def checked(schema: Any, **options: Any) -> Report:
    return check(schema, SchemaOptions(**options), pattern=refuse_lookbehind)


def test_a_good_schema_is_counted() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"items": {"type": "string", "pattern": "^x"}}},
        "$defs": {"n": {"type": "integer"}, "never reached": {"type": "objekt"}},
    }
    report = checked(schema)
    assert report.ok and report.notes == [] and report.documents == []
    assert (report.schemas, report.references, report.depth, report.draft) == (5, 1, 2, "2020-12")
    assert report.keywords["type"] == 3


def test_every_error_is_listed_with_its_place() -> None:
    report = checked(
        {
            "properties": {"a": {"minLength": -1, "enum": {}}, "b": {"$ref": "#/nowhere"}, "c": {"type": "objekt"}},
            "items": {"$ref": "http://example.com/x"},
        }
    )
    assert not report.ok
    assert {(one.keyword, one.pointer) for one in report.errors} == {
        ("$ref", "#/properties/b"),
        ("minLength", "#/properties/a"),
        ("enum", "#/properties/a"),
        ("type", "#/properties/c"),
        ("$ref", "#/items"),
    }
    assert len(report.errors) == 5


@pytest.mark.parametrize("schema", ["{", 4, {"type": "x"}, {"$id": 1}, [], {"$ref": 4}])
def test_nothing_in_a_schema_makes_it_raise(schema: Any) -> None:
    assert len(checked(schema).errors) == 1


def test_patterns_are_tried_where_they_stand() -> None:
    schema = {"pattern": "(?<=a)b", "patternProperties": {"(?<!x)": {"pattern": "ok"}}}
    report = checked(schema)
    assert [(one.keyword, one.pointer) for one in report.unsupported] == [("pattern", "#"), ("patternProperties", "#")]
    assert "lookbehind is not supported" in report.unsupported[0].message and not report.ok
    report = checked(schema, strict=False)
    assert report.unsupported == [] and len(report.relaxed) == 2 and report.ok


def test_recursion_and_dynamic_scopes_end() -> None:
    tree = {"$id": "http://x/tree", "$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}
    strict = {"$id": "http://x/strict", "$dynamicAnchor": "n", "$ref": "tree", "maxItems": "2"}
    report = check(strict, documents={"http://x/tree": tree}, pattern=refuse_lookbehind)
    assert [(one.keyword, one.pointer) for one in report.errors] == [("maxItems", "#")]
    report = check({**strict, "maxItems": 2}, documents={"http://x/tree": tree}, pattern=refuse_lookbehind)
    assert report.ok and report.documents == ["http://x/tree"] and report.schemas == 3
    assert check(read({"items": {"$ref": "#"}}), pattern=refuse_lookbehind).schemas == 2


NAMES = sorted({one.name for one in KEYWORDS} | {"$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$defs", "x"})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 2, 0.5, float("nan"), "", "a", "#", "#/x", "#a", "u:1", "string", "integer", "date"])
    | st.sampled_from(["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_json_is_judged_and_never_raises(schema: Any) -> None:
    report = checked(schema)
    assert report.schemas + len(report.errors) > 0 or schema == {}
    if report.ok:  # then reading it lazily finds nothing either
        todo, seen = [read(schema)], set()
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += [*node.children(), *([node.ref()] if node.ref else [])]


NOTES: list[tuple[Any, str]] = [
    ({"name": "x", "schema": {}}, r"'schema' at #: is not a keyword and asserts nothing; if it holds the schema"),
    ({"minLenght": 1}, r"'minLenght' at #: is not a keyword and asserts nothing; did you mean 'minLength'\?"),
    ({"extends": {}}, "is draft 3 and not asserted; write allOf"),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}, "a keyword since draft 6, an annotation in 4"),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/a",
            "maxLength": 1,
            "definitions": {"a": {}},
        },
        "'maxLength' at #: is hidden by .ref beside it in draft 7",
    ),
    ({"$schema": "http://example.com/mine"}, "is no draft's metaschema and not given; read as draft 2020-12"),
    ({"type": "string", "nullable": True}, "add 'null' to type, or set openapi"),
    ({"format": "int32"}, "'int32' is no standard format: an annotation"),
    ({"type": "number", "maxLength": 1}, "'maxLength' at #: speaks of strings, which type does not allow"),
    ({"then": {"type": "string"}}, "says nothing without if"),
    ({"maxContains": 1}, "says nothing without contains"),
    ({"items": {}, "additionalItems": False}, "says nothing without items as a list"),
]


@pytest.mark.parametrize(("schema", "note"), NOTES, ids=[str(one[0])[:40] for one in NOTES])
def test_what_asserts_nothing_is_noted(schema: Any, note: str) -> None:
    import re

    report = checked(schema)
    assert report.ok and len(report.notes) == 1
    assert re.search(note, str(report.notes[0])), report.notes


def test_what_an_author_writes_every_day_is_not_noted() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "http://example.com/x",
        "title": "T",
        "description": "D",
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "maxLength": 3, "default": None, "examples": ["a"], "x-order": 1}
        },
        "additionalProperties": False,
        "example": {},
        "discriminator": {"propertyName": "a"},
        "definitions": {},
        "readOnly": True,
        "contentEncoding": "base64",
    }
    assert checked(schema).notes == []


def test_a_vocabulary_that_is_off_is_noted() -> None:
    meta = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$vocabulary": {"https://json-schema.org/draft/2020-12/vocab/applicator": True},
    }
    report = check(
        {"$schema": "http://x/meta", "properties": {"a": {"maxLength": 1}}},
        documents={"http://x/meta": meta},
        pattern=refuse_lookbehind,
    )
    assert [str(one) for one in report.notes] == [
        "'maxLength' at #/properties/a: is switched off by the vocabularies of the metaschema"
    ]
