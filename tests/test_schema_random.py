"""Random schemas of every keyword, random instances: the compiled constraint against a plain reading of the Nodes.

In any order of keys what it takes is exactly what is valid; in declared order nothing invalid. Instances are written
canonically, so what the engine leaves out on purpose (1.0 for an integer) does not come up.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from node_validator import valid

from plait.constrained.interface import ConstraintError
from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown import machine
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.rules import Rules
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.errors import Unsupported
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.vocabulary import Vocabulary

KEYS = ["a", "b", "c", "ab"]
SCALARS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    -1,
    10,
    0.5,
    0.1,
    2.25,
    -0.25,
    "",
    "a",
    "b",
    "ab",
    "bca",
    "é",
    '"\\',
    "\n",
]
PATTERNS = ["a", "^b", "^.$", "c$", "^(a|b)+$", "^[^a]*$", r"^\S{1,2}$", "^(?!a)", "^a|c$", "é", r"\n"]
TYPES: list[Any] = [
    "string",
    "number",
    "integer",
    "object",
    "array",
    "boolean",
    "null",
    ["string", "integer"],
    ["object", "null"],
]
INSTANCES = 50


class Draw(random.Random):
    """Values and schemas of a few levels."""

    def value(self, depth: int) -> Any:
        roll = self.random()
        if depth == 0 or roll < 0.4:
            return self.choice(SCALARS)
        if roll < 0.65:
            return [self.value(depth - 1) for _ in range(self.randint(0, 3))]
        return {key: self.value(depth - 1) for key in self.sample(KEYS, self.randint(0, 3))}

    def schema(self, depth: int) -> Any:
        if self.random() < 0.06:
            return self.random() < 0.7
        made: dict[str, Any] = {}
        for _ in range(self.randint(1, 3)):
            kinds = [self.assertion, self.assertion, self.of_object]
            if depth:
                kinds += [self.in_place, self.in_place, self.inside, self.inside, self.of_properties]
            made.update(self.choice(kinds)(depth - 1))
        return made

    def assertion(self, depth: int) -> dict[str, Any]:
        name = self.choice(
            ["type", "enum", "const", "bound", "length", "items", "properties", "pattern", "unique", "multiple"]
        )
        if name == "type":
            return {"type": self.choice(TYPES)}
        if name == "enum":
            return {"enum": [self.value(1) for _ in range(self.randint(1, 4))]}
        if name == "const":
            return {"const": self.value(1)}
        if name == "bound":
            bound = self.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
            return {bound: self.choice([-1, 0, 1, 0.5, 2.25])}
        if name == "pattern":
            return {"pattern": self.choice(PATTERNS)}
        if name == "unique":
            return {"uniqueItems": True}
        if name == "multiple":
            return {"multipleOf": self.choice([1, 2, 0.5, 0.1])}
        what = {"length": "Length", "items": "Items", "properties": "Properties"}[name]
        return {f"{self.choice(['min', 'max'])}{what}": self.randint(0, 2)}

    def of_object(self, depth: int) -> dict[str, Any]:
        return self.choice(
            [{"required": self.sample(KEYS, 2)}, {"dependentRequired": {self.choice(KEYS): [self.choice(KEYS)]}}]
        )

    def of_properties(self, depth: int) -> dict[str, Any]:
        return {"properties": {name: self.schema(depth) for name in self.sample(KEYS, self.randint(1, 2))}}

    def in_place(self, depth: int) -> dict[str, Any]:
        name = self.choice(["allOf", "anyOf", "oneOf", "not", "if", "$ref"])
        if name == "not":
            return {"not": self.schema(depth)}
        if name == "$ref":
            return {"$ref": self.choice(["#", "#/$defs/x"])}
        if name == "if":
            return {"if": self.schema(depth), "then": self.schema(depth), "else": self.schema(depth)}
        return {name: [self.schema(depth) for _ in range(self.randint(1, 3))]}

    def inside(self, depth: int) -> dict[str, Any]:
        name = self.choice(
            [
                *("items", "prefixItems", "contains", "additionalProperties", "patternProperties", "propertyNames"),
                *("dependentSchemas", "unevaluatedProperties", "unevaluatedItems"),
            ]
        )
        if name == "prefixItems":
            return {name: [self.schema(depth) for _ in range(self.randint(1, 2))]}
        if name == "contains":
            return {name: self.schema(depth), self.choice(["minContains", "maxContains"]): self.randint(1, 2)}
        if name == "patternProperties":
            return {name: {self.choice(PATTERNS): self.schema(depth)}}
        if name == "propertyNames":
            return {
                name: self.choice([{"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a", "b"]}, {"not": {"const": "a"}}])
            }
        if name == "dependentSchemas":
            return {name: {self.choice(KEYS): self.schema(depth)}}
        return {name: self.choice([False, self.schema(depth)])}


def compiled(schema: Any, any_order: bool, lexicon: Lexicon) -> PushdownConstraint | None:
    options = SchemaOptions(any_order=any_order)
    rules = Rules()
    try:
        start = compile_schema(read(schema, options=options), options, lexicon.languages, rules)
    except ConstraintError as error:
        if isinstance(error, Unsupported):
            raise
        assert "no JSON value satisfies" in str(error)
        return None
    return PushdownConstraint(machine.build(rules, start, lexicon.lexemes, lexicon.vocabulary, lexicon.masks, "random"))


def takes(constraint: PushdownConstraint | None, text: bytes) -> bool:
    if constraint is None:
        return False
    matcher = constraint.matcher()
    return matcher.advance_bytes(text) and matcher.accepting


def compare(seed: int, schemas: int) -> tuple[int, int]:
    """(instances that are valid and taken, instances that are invalid and refused). Asserts what must hold."""
    draw = Draw(seed)
    tokens: list[bytes | None] = [None, *(bytes([value]) for value in range(256))]
    vocabulary = Vocabulary(tokens, size=len(tokens), eos_ids=[0], encode=lambda data: [one + 1 for one in data])
    lexicon = Lexicon(vocabulary)
    taken = refused = 0
    for _ in range(schemas):
        schema = draw.schema(draw.choice([1, 2, 2, 3]))
        if isinstance(schema, bool):
            continue
        schema["$defs"] = {"x": draw.schema(1)}
        node = read(schema)
        try:
            anyhow, declared = (compiled(schema, any_order, lexicon) for any_order in (True, False))
            for _ in range(INSTANCES):
                value = draw.value(draw.choice([2, 2, 3]))
                text = json.dumps(value, separators=(",", ":"), ensure_ascii=draw.random() < 0.5).encode()
                try:
                    wanted = valid(node, value)
                except (AssertionError, RecursionError):
                    break  # a schema that needs itself, in place
                assert takes(anyhow, text) == wanted, (wanted, json.dumps(schema), value)
                assert wanted or not takes(declared, text), (json.dumps(schema), value)
                taken += wanted
                refused += not wanted
        except Unsupported as error:
            assert error.problem.keyword == "uniqueItems", error  # two equal items, wanted
    return taken, refused


def test_random_schemas_take_what_is_valid() -> None:
    taken, refused = compare(seed=20261130, schemas=250)
    assert taken > 3_000 and refused > 3_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_many_random_schemas_take_what_is_valid(seed: int) -> None:
    compare(seed, 1_500)
