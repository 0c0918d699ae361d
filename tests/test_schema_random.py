"""Random schemas against ``jsonschema``: with any order of keys, exactly the valid instances are written.

Numbers of the instances are ints, since an integer is written without a fraction though 1.0 is one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from schema_kit import Recognizer, lexicon

from plait.constrained.interface import ConstraintError, Unfinished
from plait.constrained.pushdown.rules import Rules
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read

KEYS = ["a", "b", "c", "ab"]
PATTERNS = ["^a", "b$", "^[a-c]$", "a|b", ".b", "^$"]
CONSTANTS: list[Any] = [0, 1, 2, -1, "a", "b", "ab", "", None, True, False, [], [1], {}, {"a": 1}, [1, "a"]]
TYPES: list[Any] = ["string", "integer", "object", "array", "boolean", "null", "number", ["object", "array"]]


class Schemas:
    """Any keywords beside each other, so that most of them apply where their siblings do not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.definitions: dict[str, Any] = {}

    def root(self, depth: int) -> Any:
        made = self.any(depth)
        return {**made, "$defs": self.definitions} if isinstance(made, dict) and self.definitions else made

    def any(self, depth: int) -> Any:
        draw = self.random
        if draw.random() < 0.06:
            return draw.random() < 0.6
        made: dict[str, Any] = {}
        if draw.random() < 0.35:
            made["type"] = draw.choice(TYPES)
        for _ in range(draw.choice([1, 1, 2, 2, 3])):
            if depth <= 0 or draw.random() < 0.35:
                draw.choice(ASSERTIONS)(self, made)
            else:
                draw.choice(APPLICATORS)(self, made, lambda: self.any(depth - 1))
        return made

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def names(self, *counts: int) -> list[str]:
        return self.random.sample(KEYS, self.pick(*counts))

    def reference(self, made: dict[str, Any], child: Callable[[], Any]) -> None:
        name = self.pick("x", "y")
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = child()
        made["$ref"] = f"#/$defs/{name}"


ASSERTIONS: list[Callable[[Schemas, dict[str, Any]], None]] = [
    lambda self, made: made.update(minimum=self.pick(0, 1, 2)),
    lambda self, made: made.update(exclusiveMaximum=self.pick(1, 2, 3)),
    lambda self, made: made.update(multipleOf=self.pick(1, 2, 3)),
    lambda self, made: made.update(minLength=self.pick(1, 2)),
    lambda self, made: made.update(maxLength=self.pick(0, 1, 2)),
    lambda self, made: made.update(pattern=self.pick(*PATTERNS)),
    lambda self, made: made.update(const=self.pick(*CONSTANTS)),
    lambda self, made: made.update(enum=self.random.sample(CONSTANTS, self.pick(1, 2, 3, 4))),
    lambda self, made: made.update(minItems=self.pick(1, 2)),
    lambda self, made: made.update(maxItems=self.pick(0, 1, 2)),
    lambda self, made: made.update(uniqueItems=True),
    lambda self, made: made.update(minProperties=self.pick(1, 2, 3)),
    lambda self, made: made.update(maxProperties=self.pick(0, 1, 2)),
    lambda self, made: made.update(required=self.names(1, 1, 2)),
    lambda self, made: made.update(dependentRequired={self.pick(*KEYS): self.names(1, 2)}),
]
APPLICATORS: list[Callable[[Schemas, dict[str, Any], Callable[[], Any]], None]] = [
    lambda self, made, child: made.update(properties={name: child() for name in self.names(1, 2, 3)}),
    lambda self, made, child: made.update(properties={name: child() for name in self.names(1, 2)}),
    lambda self, made, child: made.update(patternProperties={self.pick(*PATTERNS): child(), "^c": child()}),
    lambda self, made, child: made.update(additionalProperties=child()),
    lambda self, made, child: made.update(propertyNames=child()),
    lambda self, made, child: made.update(dependentSchemas={self.pick(*KEYS): child()}),
    lambda self, made, child: made.update(unevaluatedProperties=self.pick(False, child())),
    lambda self, made, child: made.update(prefixItems=[child() for _ in range(self.pick(1, 2))]),
    lambda self, made, child: made.update(items=child()),
    lambda self, made, child: made.update(contains=child()),
    lambda self, made, child: made.update(
        contains=child(), minContains=self.pick(0, 1, 2), maxContains=self.pick(1, 2)
    ),
    lambda self, made, child: made.update(unevaluatedItems=self.pick(False, child())),
    lambda self, made, child: made.update(allOf=[child() for _ in range(self.pick(1, 2))]),
    lambda self, made, child: made.update(anyOf=[child() for _ in range(self.pick(2, 3))]),
    lambda self, made, child: made.update(oneOf=[child() for _ in range(self.pick(2, 3))]),
    lambda self, made, child: made.update({"not": child()}),
    lambda self, made, child: made.update({"if": child(), "then": child(), "else": child()}),
    lambda self, made, child: made.update({"if": child(), self.pick("then", "else"): child()}),
    Schemas.reference,
]


def instance(draw: random.Random, depth: int) -> Any:
    kind = draw.random()
    if depth <= 0 or kind < 0.45:
        return draw.choice([0, 1, 2, 3, -1, "a", "b", "ab", "", "c", None, True, False])
    if kind < 0.7:
        return [instance(draw, depth - 1) for _ in range(draw.choice([0, 1, 1, 2, 2, 3]))]
    return {name: instance(draw, depth - 1) for name in draw.sample([*KEYS, "z"], draw.choice([0, 1, 1, 2, 2, 3]))}


def compiled(schema: Any, options: SchemaOptions) -> tuple[Rules, int]:
    rules = Rules()
    return rules, compile_schema(read(schema, options=options), options, lexicon().languages, rules)


def writes(rules: Rules, start: int, value: Any) -> bool:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    written = len(text) in Recognizer(rules, text).ends(start, 0)
    if written:
        assert len(text) in Recognizer(rules, text, blind=True).ends(start, 0), text
    return written


def compare(seeds: range, depth: int, any_order: bool = True) -> tuple[int, int]:
    """(instances judged alike, schemas refused). In declared order only invalid ones that are written are wrong."""
    judged = refused = 0
    for seed in seeds:
        schema = Schemas(seed).root(depth)
        draw = random.Random(seed)
        values = [instance(draw, draw.choice([1, 2, 3])) for _ in range(40)]
        validator = jsonschema.Draft202012Validator(schema)
        try:
            valid = [validator.is_valid(value) for value in values]
        except RecursionError:
            continue  # a reference to itself, in place
        try:
            rules, start = compiled(schema, SchemaOptions(any_order=any_order, whitespace="compact"))
            for value, right in zip(values, valid, strict=True):
                written = writes(rules, start, value)
                assert written is right or (right and not any_order), (seed, schema, value, right)
                judged += 1
        except ConstraintError as error:
            refused += 1
            assert "no JSON value" not in str(error) or not any(valid), (seed, schema)
    return judged, refused


def test_exactly_the_valid_instances_are_written() -> None:
    judged, _ = compare(range(150), depth=2)
    assert judged > 4_000


def test_only_valid_instances_are_written_in_declared_order() -> None:
    judged, _ = compare(range(10_000, 10_100), depth=2, any_order=False)
    assert judged > 3_000


def test_what_depends_on_values_only_takes_away() -> None:
    """uniqueItems, its negation and remembered keys, beside declared names: what :func:`writes` checks."""
    for seed in range(60):
        draw = random.Random(seed)
        items = {"type": "object", "properties": {name: {} for name in draw.sample(KEYS, 2)}}
        unique = {"uniqueItems": True} if seed % 2 else {"not": {"uniqueItems": True}}
        rules, start = compiled({"type": "array", "items": items, **unique}, SchemaOptions(whitespace="compact"))
        for _ in range(60):
            values = [
                {name: draw.choice([1, 2]) for name in draw.sample([*KEYS, "z"], draw.choice([1, 2]))} for _ in "ab"
            ]
            right = (values[0] != values[1]) is (seed % 2 == 1)
            assert not writes(rules, start, values) or right, (items, values)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("first", "depth"), [(100_000, 2), (200_000, 3)])
def test_thousands_of_schemas(first: int, depth: int) -> None:
    judged, refused = compare(range(first, first + 1_500), depth)
    assert judged > 45_000
    assert refused < 300


def test_a_deadline_leaves_the_tables_right() -> None:
    """Work that is stopped again and again ends with the same rules."""
    languages = lexicon().languages
    for seed in range(40):
        schema = Schemas(seed).root(2)
        draw = random.Random(seed)
        values = [instance(draw, 2) for _ in range(10)]
        try:
            whole = compiled(schema, SchemaOptions(any_order=True, whitespace="compact"))
            expected = [writes(*whole, value) for value in values]
        except ConstraintError:
            continue
        rules, options = Rules(), SchemaOptions(any_order=True, whitespace="compact")
        root = read(schema, options=options)
        start = unhurried(
            lambda root=root, options=options, rules=rules: compile_schema(root, options, languages, rules)
        )  # type: ignore[misc]
        for value, right in zip(values, expected, strict=True):
            assert unhurried(lambda rules=rules, start=start, value=value: writes(rules, start, value)) is right  # type: ignore[misc]


def unhurried(call: Callable[[], Any]) -> Any:
    """The answer of a call that gets a little more time whenever it stops."""
    languages = lexicon().languages
    allowed = 0.00002
    try:
        while True:
            languages.deadline = time.monotonic() + allowed
            try:
                return call()
            except Unfinished:
                allowed *= 1.3
    finally:
        languages.deadline = None
