"""Many independent alternatives beside each other: one clause of violated groups instead of 2^n clauses."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from node_validator import valid
from schema_kit import Written

from plait.constrained.interface import ConstraintError
from plait.constrained.schema import clauses
from plait.constrained.schema.reader import read

N = 13  # 2^13 clauses would be refused


def takes(written: Written | None, instance: Any) -> bool:
    if written is None:
        return False
    matcher = written.constraint.matcher()
    return matcher.advance_bytes(json.dumps(instance, separators=(",", ":")).encode()) and matcher.accepting


def alternatives(kind: str, at: int) -> dict[str, Any]:
    a, b = f"p{at}", f"p{at + N}"
    if kind == "if":
        return {"if": {"properties": {a: {"const": "x"}}, "required": [a]}, "then": {"required": [b]}}
    if kind == "if else":
        return {"if": {"required": [a]}, "then": {"properties": {b: {"const": "x"}}}, "else": {"required": [b]}}
    if kind == "anyOf":
        return {"anyOf": [{"required": [a]}, {"required": [b]}]}
    return {"oneOf": [{"required": [a]}, {"required": [b]}]}


@pytest.mark.parametrize("kind", ["if", "if else", "anyOf", "oneOf"])
def test_many_of_a_kind(kind: str) -> None:
    schema = {
        "type": "object",
        "properties": {f"p{at}": {"enum": ["x", "y"]} for at in range(2 * N)},
        "allOf": [alternatives(kind, at) for at in range(N)],
    }
    written = Written(schema, any_order=True)
    node = read(schema)
    draw = random.Random(kind)
    seen = set()
    for likely in itertools.chain([0.0, 1.0], (draw.choice([0.1, 0.9]) for _ in range(10))):
        instance = {
            f"p{at + side * N}": draw.choice("xy")
            for at in range(N)
            for side in (0, 1)
            if (draw.random() < likely) == (side == 0) or draw.random() < 0.02
        }
        wanted = valid(node, instance)
        seen.add(wanted)
        assert takes(written, instance) == wanted, instance
    assert seen == {True, False}


class Draw(random.Random):
    def group(self) -> dict[str, Any]:
        kinds: list[dict[str, Any]] = [
            {"required": self.sample("abc", self.randint(1, 2))},
            {"properties": {self.choice("abc"): self.choice([{"const": 1}, {"type": "string"}, False, True])}},
            {"properties": {"a": {"const": 1}}, "required": ["a"]},
            {"additionalProperties": self.choice([False, {"type": "string"}])},
            {"patternProperties": {"^a": {"type": "string"}}},
            {self.choice(["minProperties", "maxProperties"]): self.randint(1, 2)},
            {"dependentRequired": {self.choice("abc"): [self.choice("abc")]}},
        ]
        made: dict[str, Any] = {}
        for one in self.choices(kinds, [6, 6, 4, 1, 1, 1, 1], k=self.randint(1, 2)):
            made.update(one)
        return made

    def alternatives(self) -> dict[str, Any]:
        kind = self.randrange(4)
        if kind == 0:
            return {"if": self.group(), "then": self.group()}
        if kind == 1:
            return {"if": self.group(), "then": self.group(), "else": self.group()}
        return {self.choice(["anyOf", "oneOf"]): [self.group(), self.group()]}


def test_merged_groups_mean_what_their_alternatives_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clauses, "MANY_CLAUSES", 0)
    draw = Draw(3)
    names = ["a", "b", "c", "zz"]
    outcomes = set()
    for _ in range(150):
        schema = {"type": "object", "allOf": [draw.alternatives() for _ in range(draw.randint(2, 4))]}
        node = read(schema)
        written: Written | None = None
        try:
            written = Written(schema, any_order=True)
        except ConstraintError as error:
            assert "no JSON value satisfies" in str(error)
        for _ in range(25):
            instance = {name: draw.choice([1, 2, "a"]) for name in draw.sample(names, draw.randint(0, 4))}
            wanted = valid(node, instance)
            outcomes.add(wanted)
            assert takes(written, instance) == wanted, (json.dumps(schema), instance)
    assert outcomes == {True, False}
