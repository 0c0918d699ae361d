"""uniqueItems over values that are not few: what saves looking at a value must change no mask."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from pushdown_kit import mixed_vocabulary
from schema_kit import Written

from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown.machine import build
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.rules import Indifferent, Rules
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.errors import Unsupported
from plait.constrained.schema.goals import Goal
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.schema.satisfy import Solver


class _AlwaysLook(dict[int, Indifferent]):
    def __setitem__(self, key: int, value: Indifferent) -> None:
        pass


@cache
def lexicon() -> Lexicon:
    return Lexicon(mixed_vocabulary())


def constraint(schema: Any, look: bool) -> PushdownConstraint:
    rules, options, over = Rules(), SchemaOptions(whitespace="single"), lexicon()
    if look:
        rules.indifferent = _AlwaysLook()
    start = compile_schema(read(schema, options=options), options, over.languages, rules)
    return PushdownConstraint(build(rules, start, over.lexemes, over.vocabulary, over.masks, f"{schema}{look}"))


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ({"type": "string"}, '["a","ab", "é","","a1"]'),
        ({"type": "string", "maxLength": 2}, '["a","ab","b"]'),
        ({"type": "string", "pattern": "^(a|a[0-9]+|b*)$"}, '["a","a1","b", ""]'),
        ({"type": "string", "enum": ["a", "ab", "b"]}, '["a","b"]'),
        ({"type": "integer"}, "[1,12, 0,2]"),
        ({"type": "integer", "minimum": 0, "maximum": 200}, "[1,12,2]"),
        ({"type": ["number", "string", "null"]}, '[1,"1",1.5,"a"]'),
        ({}, '[1,[1],"a",["a"],[],{"a":1}]'),
        ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, '[{"a":1},{"a":12}]'),
        ({"type": "object", "properties": {"a": {"enum": ["a", "ab"]}}, "additionalProperties": False}, '[{"a":"a"}]'),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, '[["a","ab"],["a"]]'),
        ({"anyOf": [{"type": "string"}, {"const": {"a": 1}}]}, '["a",{"a":1},"ab"]'),
    ],
)
def test_masks_are_those_of_looking_at_every_value(items: Any, text: str) -> None:
    schema = {"type": "object", "properties": {"x": {"items": items, "type": "array", "uniqueItems": True}}}
    quick, exact = constraint(schema, False).matcher(), constraint(schema, True).matcher()
    for value in b'{"x":' + text.encode() + b"}":
        ours, theirs = quick.mask(), exact.mask()
        assert ours.tolist() == theirs.tolist()
        data = bytes((value,))
        assert quick.advance_bytes(data) and exact.advance_bytes(data)
    assert quick.accepting


@pytest.mark.parametrize(
    "items",
    [
        {"type": "string"},
        {"type": "string", "pattern": "^[a-h]?[a-h]$"},
        {"type": "string", "pattern": "^[a-i][a-h]$"},
        {"type": "string", "maxLength": 1},
        {"type": "integer", "minimum": 0, "maximum": 90},
        {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [*range(40)]}}},
    ],
)
def test_masks_behind_many_items_are_those_of_looking_at_every_value(items: Any) -> None:
    """With 72 strings, nearly all are used up; of others there are always more."""
    schema = {"type": "array", "items": items, "uniqueItems": True}
    quick, exact = constraint(schema, False).matcher(), constraint(schema, True).matcher()
    if items["type"] == "string":
        values = ['"' + a + b + '"' for a in "abcdefghi" for b in "abcdefgh"] if "maxLength" not in items else []
        values = values or [f'"{chr(48 + at)}"' for at in range(70) if chr(48 + at) != "\\"]
        values = [value for value in values if "i" not in value] if "?" in items.get("pattern", "") else values
    elif items["type"] == "object":
        values = [f'{{"b":{at}}}' for at in range(40)] + [f'{{"a":true,"b":{at}}}' for at in range(30)]
    else:
        values = [str(at) for at in range(80)]
    written = ("[" + ",".join(values[:-2])).encode()
    assert quick.advance_bytes(written) and exact.advance_bytes(written)
    for value in ("," + values[-2] + "," + values[-1]).encode():
        assert quick.mask().tolist() == exact.mask().tolist()
        assert quick.advance_bytes(bytes((value,))) and exact.advance_bytes(bytes((value,)))
    assert quick.mask().tolist() == exact.mask().tolist()


@pytest.mark.parametrize("before", [1, 100])
def test_a_free_string_needs_no_look(before: int) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    made = constraint(schema, False)
    matcher = made.matcher()
    assert matcher.advance_bytes(('["a",' + "".join(f'"a{at}",' for at in range(1, before)) + '"').encode())
    rules = len(made.machine.rules)
    for value in b"some longer text":
        matcher.mask()
        assert matcher.advance_bytes(bytes((value,)))
    assert len(made.machine.rules) == rules


PAIRS = [
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}, "[{},{}]"),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        '{{"a":{},"b":{}}}',
    ),
]


@pytest.mark.parametrize(("items", "item"), PAIRS)
def test_what_an_item_of_parts_takes_grows_with_the_items_before_and_not_with_their_square(
    items: Any, item: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = constraint({"type": "array", "items": items, "uniqueItems": True}, False).matcher()
    asked: list[Goal] = []
    ask = Solver.ask
    monkeypatch.setattr(Solver, "ask", lambda solver, goal: (asked.append(goal), ask(solver, goal))[1])
    took = []
    assert matcher.advance_bytes(b"[")
    for at in range(41):
        before = len(asked)
        assert matcher.advance_bytes(item.format(at, at).encode() + b",")
        matcher.mask()
        took.append(len(asked) - before)
    assert sum(took[36:41]) <= 2.5 * sum(took[16:21])
    assert not matcher.allows(item.format(7, 7).encode()) and matcher.allows(item.format(7, 8).encode())


def test_what_is_found_of_a_value_serves_all_items_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item asked anew of every value before it: 300 objects took 36 s, and now 13."""
    items, item = PAIRS[1]
    matcher = constraint({"type": "array", "items": items, "uniqueItems": True}, False).matcher()
    answered: list[Goal] = []
    answer = Solver._answer
    monkeypatch.setattr(Solver, "_answer", lambda solver, goal: (answered.append(goal), answer(solver, goal))[1])
    took = []
    assert matcher.advance_bytes(b"[")
    for at in range(31):
        before = len(answered)
        assert matcher.advance_bytes(item.format(at, 1).encode() + b",")
        matcher.mask()
        took.append(len(answered) - before)
    assert sum(took[26:31]) <= 1.3 * sum(took[11:16])


def test_more_unique_items_than_can_be_looked_for_are_refused_at_once() -> None:
    """All ten million values were listed first, without a look at the deadline."""
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 10**8}, "uniqueItems": True}
    with pytest.raises(Unsupported, match="minItems of more than 1,000"):
        Written(schema | {"minItems": 10**7})
    written = Written(schema | {"minItems": 10**7}, strict=False)
    assert [problem.keyword for problem in written.options.relaxed] == ["uniqueItems"]
    assert Written(schema | {"minItems": 2}).accepts("[1,2]")
