"""What cannot be kept: refused with its keyword and place; with strict=False dropped, and said so."""

from __future__ import annotations

from typing import Any

import pytest

from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown import machine
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.rules import Rules
from plait.constrained.schema.check import check
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.errors import Unsupported
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.vocabulary import Vocabulary

BACK = r"(a)\1"
CASES: list[tuple[dict[str, Any], str, str, list[str], list[str]]] = [
    # schema, keyword, pointer, texts that relaxing allows, texts that stay out
    ({"type": "string", "pattern": BACK, "maxLength": 2}, "pattern", "#", ['"b"'], ['"bbb"', "1"]),
    ({"type": "object", "propertyNames": {"pattern": BACK}}, "pattern", "#/propertyNames", ['{"b":1}'], ["1"]),
    (
        {"type": "object", "properties": {"x": {"pattern": BACK}}, "required": ["x"]},
        "pattern",
        "#/properties/x",
        ['{"x":"b"}'],
        ["{}"],
    ),
    (
        {"type": "object", "patternProperties": {BACK: {"type": "null"}, "^n": {"type": "null"}}},
        "patternProperties",
        "#",
        ['{"aa":1,"n":null}'],
        ['{"n":1}'],
    ),
]


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    tokens: list[bytes | None] = [None, *(bytes([value]) for value in range(256))]
    return Lexicon(Vocabulary(tokens, size=len(tokens), eos_ids=[0], encode=lambda data: [one + 1 for one in data]))


def accepts(schema: Any, options: SchemaOptions, lexicon: Lexicon, texts: list[str]) -> list[bool]:
    rules = Rules()
    start = compile_schema(read(schema, options=options), options, lexicon.languages, rules)
    built = machine.build(rules, start, lexicon.lexemes, lexicon.vocabulary, lexicon.masks, "relaxed")
    made = []
    for text in texts:
        matcher = PushdownConstraint(built).matcher()
        made.append(matcher.advance_bytes(text.encode()) and matcher.accepting)
    return made


@pytest.mark.parametrize("case", CASES, ids=[f"{case[1]} {case[2]}" for case in CASES])
def test_refused_in_strict_and_dropped_by_name_otherwise(case: tuple[Any, ...], lexicon: Lexicon) -> None:
    schema, keyword, pointer, allowed, refused = case
    with pytest.raises(Unsupported) as error:
        accepts(schema, SchemaOptions(), lexicon, allowed)
    assert (error.value.problem.keyword, error.value.problem.pointer) == (keyword, pointer)
    options = SchemaOptions(strict=False)
    assert accepts(schema, options, lexicon, allowed + refused) == [True] * len(allowed) + [False] * len(refused)
    assert [(one.keyword, one.pointer) for one in options.relaxed] == [(keyword, pointer)]
    assert [one.keyword for one in check(schema).unsupported] == [keyword]
    assert [one.pointer for one in check(schema, SchemaOptions(strict=False)).relaxed] == [pointer]
