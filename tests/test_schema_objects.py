"""Objects: how many productions declared keys make, and undeclared keys that are remembered."""

from __future__ import annotations

from typing import Any

import pytest
from schema_kit import Written

from plait.constrained.interface import ConstraintError


def opened(schema: Any, **options: Any) -> int:
    """How many productions all rules have together."""
    written = Written(schema, **options)
    at = count = 0
    while at < len(written.rules):
        count += len(written.rules.productions(at))
        at += 1
    return count


@pytest.mark.parametrize("undeclared", [True, False])
@pytest.mark.parametrize("more", [{}, {"minProperties": 1}, {"required": ["k7"]}])
def test_optional_keys_make_productions_in_proportion(undeclared: bool, more: dict[str, Any]) -> None:
    def keys(n: int) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {f"k{at}": {"type": "string" if at % 2 else "integer"} for at in range(n)},
            "additionalProperties": undeclared,
            **more,
        }

    assert opened(keys(640)) <= 4.5 * opened(keys(160))


def test_a_key_may_be_passed_over_up_to_one_that_is_needed() -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in "abcd"} | {"never": False},
        "required": ["c"],
        "additionalProperties": False,
    }
    written = Written(schema)
    for text, wanted in (
        ('{"c":1}', True),
        ('{"b":1,"c":1}', True),
        ('{"a":1,"c":1,"d":1}', True),
        ('{"a":1}', False),
        ('{"d":1}', False),
        ('{"b":1,"d":1}', False),
        ('{"c":1,"b":1}', False),
        ('{"a":1,"c":1,"never":1}', False),
        ("{}", False),
    ):
        assert written.accepts(text) is wanted, text


def test_a_name_that_violated_something_stays_banned_behind_a_declared_key() -> None:
    """A declared key in between made it forget them: the second "x" undid what the first was there for."""
    schema = {"properties": {"a": {}}, "not": {"properties": {"a": True}, "additionalProperties": {"type": "integer"}}}
    written = Written(schema, any_order=True)
    assert written.accepts('{"x":"s","a":1}')
    assert not written.accepts('{"x":"s","x":1}')
    assert not written.accepts('{"x":"s","a":1,"x":1}')


def test_more_violations_than_there_are_names_for() -> None:
    """Three values are asked for and two names can have one: it was begun, and could not be ended."""

    def asked(*values: int) -> dict[str, Any]:
        return {
            "type": "object",
            "patternProperties": {"^[xy]$": {"type": "integer"}},
            "additionalProperties": False,
            "allOf": [{"not": {"patternProperties": {"^[xy]$": {"not": {"const": value}}}}} for value in values],
        }

    assert Written(asked(1, 2)).accepts('{"y":1,"x":2}')
    with pytest.raises(ConstraintError, match="no JSON value"):
        Written(asked(1, 2, 3))


def test_any_of_a_few_remembered_names_may_come_first() -> None:
    """The machine, which looks ahead as if it did not know the name, took every first name for the same one."""
    written = Written({"minProperties": 2, "patternProperties": {"^[xy]$": True}, "additionalProperties": False})
    assert written.accepts('{"y":1,"x":2}')
    assert written.accepts('{"x":1,"y":2}')
    assert not written.accepts('{"y":1,"y":2}')
    assert not written.accepts('{"y":1}')


def test_a_pattern_is_never_taken_for_a_violated_property_names() -> None:
    schema = {"patternProperties": {"\x000": {"type": "integer"}}, "not": {"propertyNames": {"pattern": "^a"}}}
    written = Written(schema)
    assert written.accepts(r'{"\u00000":1}')
    assert not written.accepts(r'{"\u00000":"s"}')
    assert not written.accepts('{"ab":"s"}')
    assert written.accepts('{"b":"s"}')


def test_undeclared_names_are_remembered_only_while_they_are_counted() -> None:
    written = Written({"type": "object", "minProperties": 3, "additionalProperties": {"type": "integer"}})
    assert not written.accepts('{"a":1,"b":1,"a":1}')
    assert written.accepts('{"a":1,"b":1,"c":1,"a":1}')
    matcher = written.constraint.matcher()
    assert matcher.advance_bytes(b'{"a":1,"b":1,"c":1')
    many = "".join(f',"k{at}":1' for at in range(30))
    before = len(written.rules)
    assert matcher.advance_bytes(many.encode() + b"}")
    assert len(written.rules) < before + 10


def test_every_pair_of_many_optional_keys() -> None:
    """Whichever block they are in, and however many blocks lie between them."""
    names = [f"k{at}" for at in range(100)]
    written = Written({"properties": {key: {"const": 1} for key in names}, "additionalProperties": False})
    matcher = written.constraint.matcher
    for first in range(0, 100, 7):
        for second in range(0, 100, 9):
            text = f'{{"k{first}":1,"k{second}":1}}'.encode()
            assert matcher().advance_bytes(text) is (first < second), text


@pytest.mark.parametrize("any_order", [True, False])
def test_conditions_that_need_each_other_take_no_subsets_of_their_keys(any_order: bool) -> None:
    """The masks behind the first key took more than 100,000 steps, and were refused in the middle of a text."""
    known = {"a": {"type": "string"}} if not any_order else {f"k{at}": {"type": "integer"} for at in range(25)}
    written = Written(
        {
            "type": "object",
            "properties": known,
            "allOf": [
                {
                    "if": {"properties": {f"k{at}": {"const": 1}}, "required": [f"k{at}"]},
                    "then": {"properties": {f"k{at + 1}": {"const": 1}}, "required": [f"k{at + 1}"]},
                }
                for at in range(24)
            ],
        },
        any_order=any_order,
    )
    chain = [f'"k{at}":1' for at in range(24, 4, -1)]
    assert written.accepts('{"k3":2,' + ",".join(chain) + "}")
    assert not written.accepts('{"k4":1,' + ",".join(chain[:-1]) + "}")
