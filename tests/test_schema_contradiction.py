"""A schema that nothing satisfies is refused with the part of it that is to blame."""

from __future__ import annotations

from typing import Any

import pytest
from grammar_kit import of_spec

from plait.constrained.interface import ConstraintError


def nested(inner: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/it"}, "minItems": 1}},
        "required": ["a"],
        "$defs": {"it": inner},
    }


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 4}, "'minimum' at #: .*minimum is above maximum"),
        (
            nested({"type": "string", "minLength": 5, "maxLength": 4}),
            "'minLength' at #/\\$defs/it: .*# cannot do without",
        ),
        (nested({"type": "string", "enum": [1]}), "#/\\$defs/it: no JSON value"),
        (
            nested({"type": "object", "properties": {"x": {}}, "required": ["y"], "additionalProperties": False}),
            "'required' at #/\\$defs/it: .*'y' is required, but additionalProperties is false",
        ),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "#: no JSON value satisfies this schema$"),
        (
            {"type": "object", "properties": {"a": False}, "required": ["a"]},
            "'required' at #: .*'a' is required, and its schema is false",
        ),
        ({"anyOf": [{"type": "string", "enum": [1]}]}, "#/anyOf/0: no JSON value"),
    ],
)
def test_the_part_to_blame_is_named(schema: object, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        of_spec({"json_schema": schema})


def test_a_part_that_refers_to_itself_ends_the_search() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    with pytest.raises(ConstraintError, match="no JSON value satisfies this schema"):
        of_spec({"json_schema": endless})
