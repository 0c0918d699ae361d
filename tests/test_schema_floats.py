"""A reader of JSON that keeps numbers as 64-bit floats finds the bounds kept: 0.99999999999999999999 is 1 to it."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from schema_kit import Written

from plait.constrained.regular.language import Language
from plait.constrained.regular.languages import Languages
from plait.constrained.regular.states import Both
from plait.constrained.schema.goals import Goals
from plait.constrained.schema.node import Node
from plait.constrained.schema.scalars import NumberAlgebra

BOUNDS = [1, 0, -1, 100, 0.1, -0.5, 2.5, 1e300, 1e-7, 2**53, 2**60 + 1, 123456789.125]


def near(draw: random.Random, bound: float) -> str:
    """The text of a number about as far from ``bound`` as its neighbours among the floats, or nearer."""
    scale = abs(Fraction(repr(bound))) or Fraction(1)
    distance = draw.choice([0, 1, -1]) * scale * Fraction(1, 10 ** draw.randrange(14, 24))
    value = Fraction(repr(bound)) + distance
    digits = draw.randrange(15, 21)
    if abs(value) >= 10**18:
        mantissa = f"{int(value):d}"
        return f"{mantissa[0]}.{mantissa[1:17]}e{len(mantissa) - 1}"
    sign, scaled = "-" if value < 0 else "", str(abs(round(value * 10**digits))).rjust(digits + 1, "0")
    return f"{sign}{scaled[:-digits]}.{scaled[-digits:]}"


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("keyword", ["exclusiveMinimum", "exclusiveMaximum", "not minimum", "not maximum", "not const"])
def test_what_is_beyond_a_bound_is_beyond_it_as_a_float(bound: float, keyword: str) -> None:
    schema: dict[str, Any] = {"not": {keyword[4:]: bound}} if keyword.startswith("not ") else {keyword: bound}
    written, validator = Written({"type": "number", **schema}), jsonschema.Draft202012Validator(schema)
    draw = random.Random(keyword)
    for _ in range(60):
        text = near(draw, bound)
        if written.accepts(text):
            assert validator.is_valid(json.loads(text)), text


def test_floats_next_to_a_bound_are_written() -> None:
    assert Written({"type": "number", "exclusiveMaximum": 1}).accepts("0.9999999999999999")
    assert Written({"type": "number", "exclusiveMinimum": 0.1}).accepts("0.10000000000000002")
    assert Written({"type": "number", "not": {"const": 1}}).accepts("1.0000000000000002")


def test_whole_numbers_next_to_a_bound_are_written_at_any_size() -> None:
    assert Written({"type": "number", "exclusiveMinimum": 2**53}).accepts(str(2**53 + 1))
    assert Written({"uniqueItems": True}).accepts("[1234567890123456789,1234567890123456790]")


def test_unique_numbers_differ_as_floats() -> None:
    written = Written({"uniqueItems": True, "items": {"type": "number"}})
    assert not written.accepts("[1,1.00000000000000000001]")
    assert not written.accepts("[1234567890123456789,1234567890123456789.5]")
    assert written.accepts("[0.30000000000000004,0.3]")


def test_many_values_are_left_out_as_one_and_as_each_is_alone() -> None:
    languages = Languages()
    algebra, goals = NumberAlgebra(languages), Goals()

    def without(*values: float) -> Language:
        return algebra.values(goals.literal(Node("#", values=values), (), False))

    values = [0, 7, -12, 0.1, -0.5, 1e20, -1e300, 2**53, 2**53 - 1, 2**60 + 1, 1e-7, *range(100, 130)]
    found, each = without(*values), languages.intersect(*(without(value) for value in values))
    assert languages.is_empty(languages.intersect(found, languages.complement(each)))
    assert languages.is_empty(languages.intersect(each, languages.complement(found)))
    many = without(*range(1000))
    assert isinstance(many, Both) and len(many.parts) == 2
    assert not many.matches("999") and many.matches("1000") and many.matches("999.5")


def test_what_is_not_whole_is_not_whole_as_a_float() -> None:
    """And what Python writes for a float that is not whole is written, with its 17 digits."""
    schema: dict[str, Any] = {"type": "number", "not": {"type": "integer"}}
    written, draw = Written(schema), random.Random(0)
    for _ in range(300):
        digits = "".join(draw.choice("0099123456789") for _ in range(draw.randrange(1, 18)))
        text = f"{draw.randrange(10 ** draw.randrange(1, 18))}.{draw.choice(['', '9' * 12, '0' * 12])}{digits}"
        if written.accepts(text):
            assert not float(text).is_integer(), text
        value = draw.uniform(-1, 1) * 10.0 ** draw.randrange(-9, 10)
        assert value.is_integer() or written.accepts(repr(value)), value
    for text in ("0.30000000000000004", "5.00000000000001", "123.45678901234567", "5.1234567890123456e-05"):
        assert written.accepts(text), text
