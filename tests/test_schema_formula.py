"""Schemas that need themselves in place: the least that satisfies them, found in so many steps as there are schemas."""

from __future__ import annotations

import time
from typing import Any

import pytest
from schema_kit import Written

from plait.constrained.interface import ConstraintError


def chain(length: int, end: Any) -> dict[str, Any]:
    """Each schema has the next one twice; the last one has the first."""
    parts: dict[str, Any] = {
        f"a{at}": {"anyOf": [{"$ref": f"#/$defs/a{at + 1}"}, {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}, end]}]}
        for at in range(length)
    }
    parts[f"a{length}"] = {"anyOf": [{"$ref": "#/$defs/a0"}, end]}
    return {"$ref": "#/$defs/a0", "$defs": parts}


def test_two_ways_to_the_next_are_not_walked_twice_each() -> None:
    begun = time.process_time()
    written = Written(chain(40, {"type": "object", "minProperties": 1}))
    assert written.accepts('{"a":1}')
    assert not written.accepts("{}")
    assert time.process_time() - begun < 5


def test_circles_inside_circles() -> None:
    schema = {
        "$defs": {
            "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"const": 1}]},
            "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/c"}, {"const": 2}]},
            "c": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/c"}, {"const": 3}]},
        },
        "prefixItems": [{"$ref": f"#/$defs/{name}"} for name in "abc"],
        "minItems": 3,
        "items": False,
        "type": "array",
    }
    written = Written(schema)
    for value in (1, 2, 3):
        assert written.accepts(f"[{value},{value},{value}]")
    assert not written.accepts("[1,2,4]")


def test_nothing_that_only_leads_to_itself() -> None:
    with pytest.raises(ConstraintError, match="no JSON value"):
        Written(
            {
                "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
                "$ref": "#/$defs/a",
            }
        )
