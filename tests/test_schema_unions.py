"""oneOf of many objects: branches that a discriminator tells apart are not multiplied with one another."""

from __future__ import annotations

import time
from typing import Any

import pytest
from schema_kit import Written


def branch(at: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": {"const": f"k{at}"}, f"p{at}": {"type": "integer"}, "same": {"type": "string"}},
        **more,
    }


def named(count: int, **more: Any) -> dict[str, Any]:
    """As Pydantic writes a union with Field(discriminator="kind") where each kind has a default."""
    return {
        "$defs": {f"T{at}": branch(at, **more) for at in range(count)},
        "discriminator": {"propertyName": "kind", "mapping": {f"k{at}": f"#/$defs/T{at}" for at in range(count)}},
        "oneOf": [{"$ref": f"#/$defs/T{at}"} for at in range(count)],
    }


def inherited(count: int) -> dict[str, Any]:
    """As OpenAPI writes it: what all need is in a schema of its own."""
    return {
        "$defs": {"Base": {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}}},
        "oneOf": [{"allOf": [{"$ref": "#/$defs/Base"}, branch(at)]} for at in range(count)],
    }


def around(count: int) -> dict[str, Any]:
    """What is needed stands beside the oneOf."""
    return {"type": "object", "required": ["kind"], "oneOf": [branch(at) for at in range(count)]}


UNIONS = {
    "required": lambda count: {"oneOf": [branch(at, required=["kind"]) for at in range(count)]},
    "discriminator": named,
    "discriminator and closed": lambda count: named(count, additionalProperties=False),
    "inherited": inherited,
    "around": around,
    "one of them open": lambda count: {
        "oneOf": [*(branch(at, required=["kind"]) for at in range(count)), {"type": "null"}]
    },
}


@pytest.mark.parametrize("name", UNIONS)
def test_work_grows_with_the_branches(name: str) -> None:
    """200 branches are half a thousand rules and no product. (Without: half a minute, and refused.)"""
    begun = time.process_time()
    written = Written(UNIONS[name](200))
    assert written.accepts('{"kind":"k150","p150":7}')
    assert not written.accepts('{"kind":"k150","p150":"7"}')
    assert written.accepts('{"kind":"k199","same":"x"}')
    assert not written.accepts('{"kind":"k200"}')
    assert time.process_time() - begun < 5


def test_a_discriminator_is_written() -> None:
    """OpenAPI has it required, and readers need it: Pydantic refuses a union's value without its tag."""
    written = Written(named(2, required=["same"]))
    assert written.accepts('{"kind":"k1","same":"x"}')
    assert not written.accepts('{"same":"x"}')
    assert not written.accepts('{"kind":"k2","same":"x"}')


def test_a_discriminator_makes_no_excluded_value_narrower() -> None:
    union = named(1)
    schema = {"$defs": union.pop("$defs"), "properties": {"p0": {"type": "integer"}}, "not": union}
    assert not Written(schema).accepts('{"p0":1}')  # the branch holds without its kind


@pytest.mark.parametrize("word", ["kind", {"propertyName": 3}, {}, None])
def test_another_discriminator_is_an_annotation(word: Any) -> None:
    written = Written({"discriminator": word, "oneOf": [branch(0), {"type": "null"}]})
    assert written.accepts('{"p0":1}')


def test_branches_of_one_value_still_overlap() -> None:
    """The same kind in two branches, one of a pattern and one without any: what both allow is left out."""
    first, second = branch(0, required=["kind"]), branch(0, required=["kind", "same"])
    other = {"type": "object", "properties": {"kind": {"type": "string", "maxLength": 2}}, "required": ["kind", "z"]}
    written = Written({"oneOf": [first, second, branch(1, required=["kind"]), other]})
    assert written.accepts('{"kind":"k0"}')
    assert not written.accepts('{"kind":"k0","same":"x"}')
    assert written.accepts('{"kind":"k1"}')
    assert not written.accepts('{"kind":"k1","z":1}')
    assert written.accepts('{"kind":"k2","z":1}')


def test_a_kind_that_only_one_of_two_needs_tells_them_apart() -> None:
    written = Written({"oneOf": [branch(0, required=["kind"]), branch(1)]})
    assert written.accepts('{"kind":"k0"}')
    assert written.accepts('{"kind":"k1"}')
    assert written.accepts('{"p1":1}')


def test_kinds_that_nobody_needs_tell_nothing_apart() -> None:
    written = Written({"oneOf": [branch(0), branch(1)]})
    assert written.accepts('{"kind":"k0"}')
    assert not written.accepts('{"same":"x"}')
    assert written.accepts('{"p1":"x"}')


def test_a_discriminator_that_a_branch_knows_nothing_of_is_an_annotation() -> None:
    closed = {"type": "object", "properties": {"p9": {"type": "integer"}}, "additionalProperties": False}
    union = {"discriminator": {"propertyName": "kind"}, "oneOf": [branch(0, required=["kind"]), closed]}
    written = Written(union)
    assert written.accepts('{"p9":1}')
    assert written.accepts('{"kind":"k0"}')
