"""Patterns of JSON in a string: what they hold is JSON of the schema."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from plait.lang.json_text import STRIPPED, pattern, whole_numbers

NUMBERS = st.one_of(st.integers(-30, 30), st.integers(-(10**9), 10**9), st.sampled_from([0, 9, 10, 99, 100, 1000]))


@given(st.none() | NUMBERS, st.none() | NUMBERS, NUMBERS)
def test_whole_numbers(low: int | None, high: int | None, value: int) -> None:
    found = whole_numbers(low, high)
    for one in (value, *(bound + step for bound in (low, high) if bound is not None for step in (-1, 0, 1))):
        fits = (low is None or one >= low) and (high is None or one <= high)
        assert (found is not None and re.fullmatch(found, str(one)) is not None) is fits
    if found is not None:
        assert not re.fullmatch(found, "-0") and not re.fullmatch(found, "01")
    assert (found is None) is (low is not None and high is not None and low > high)


def matches(schema: object, value: object, defs: dict[str, object] | None = None) -> bool:
    found = pattern(schema, defs or {})
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return found is not None and re.search(found, text) is not None


def test_kinds() -> None:
    point = {
        "type": "object",
        "properties": {"x": {"type": "integer", "exclusiveMinimum": 0}, "y": {"enum": ["a.b", None]}},
        "required": ["x"],
    }
    assert matches(point, {"x": 1}) and matches(point, {"x": 1, "y": "a.b"}) and matches(point, {"x": 1, "y": None})
    assert not matches(point, {"x": 0}) and not matches(point, {"x": 1, "y": "aXb"}) and not matches(point, {"y": None})
    row = {"type": "array", "items": {"$ref": "#/$defs/P"}, "minItems": 1, "maxItems": 2}
    assert matches(row, [{"x": 1}], {"P": point}) and matches(row, [{"x": 1}] * 2, {"P": point})
    assert not matches(row, [], {"P": point}) and not matches(row, [{"x": 1}] * 3, {"P": point})
    pair = {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string", "maxLength": 2}]}
    assert matches(pair, [None, "ab"]) and not matches(pair, [None, "abc"]) and not matches(pair, [None])
    ages = {"type": "object", "additionalProperties": {"type": "number"}, "propertyNames": {"pattern": r"^\d$"}}
    assert matches(ages, {"1": 0.5}) and matches(ages, {}) and not matches(ages, {"a": 1})
    clean = {"type": "string", "minLength": 1, "allOf": [STRIPPED]}
    assert matches(clean, "ab") and not matches(clean, " ") and not matches(clean, "")
    assert all(matches({}, value) for value in (None, 1, "a", [1, "b"], {"a": True}))


def test_what_cannot_be_said() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}}, "required": ["next"]}
    for schema in (
        {"type": "string", "pattern": "x"},
        {"type": "integer", "multipleOf": 3},
        {"$ref": "#/$defs/T"},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2},
        {"type": "integer", "minimum": 2, "maximum": 1},
    ):
        assert pattern(schema, {"T": tree}) is None
    ended = {**tree, "required": []}
    assert re.search(str(pattern(ended, {"T": ended})), "{}")
