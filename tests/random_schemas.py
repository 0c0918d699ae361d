"""Seeded JSON schemas over every keyword, small enough that some value usually satisfies them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

PATTERNS = ["^[a-c]+$", "b", "^x?y", r"^\d{2,3}$", "(ab|cd)*e", r"^\S+ \S+$", "^(?!ab)[a-d]{2,4}$", "é|ü"]
KEYS = ["a", "b", "ab", "name", "x y", "é"]
CONSTANTS: list[Any] = [0, 1, -3, 2.5, "a", "ab", "", None, True, [], [1], {"a": 1}]


class RandomSchemas:
    """``schema()`` is a function of the seed. Sizes shrink with depth."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.definitions: dict[str, Any] = {}

    def schema(self) -> Any:
        root = self.random.choice([self.object, self.array, self.combined, self.any])(3)
        if self.definitions and isinstance(root, dict):
            root = {**root, "$defs": self.definitions}
        return root

    def any(self, depth: int) -> Any:
        kinds: list[Callable[[int], Any]] = [self.string, self.number, self.integer, self.constant, self.loose]
        if depth > 0:
            kinds += [self.object, self.object, self.object, self.array, self.array, self.combined, self.reference]
        return self.random.choice(kinds)(depth)

    def maybe(self, chance: float = 0.4) -> bool:
        return self.random.random() < chance

    def string(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "string"}
        kind = self.random.randrange(4)
        if kind == 0:
            made["minLength"] = low = self.random.randrange(4)
            made["maxLength"] = low + self.random.randrange(6)
        elif kind == 1:
            made["pattern"] = self.random.choice(PATTERNS)
            made["maxLength"] = self.random.randrange(5, 12)
        elif kind == 2:
            made["format"] = self.random.choice(["date", "ipv4", "uuid", "shoe-size"])
        return made

    def number(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "number"}
        if self.maybe(0.6):
            low = self.random.choice([-10, -1.5, 0, 0.25, 7])
            made[self.random.choice(["minimum", "exclusiveMinimum"])] = low
            made[self.random.choice(["maximum", "exclusiveMaximum"])] = low + self.random.choice([0.5, 3, 100.75])
        if self.maybe(0.2):
            made["multipleOf"] = self.random.choice([0.25, 0.5, 2])
        return made

    def integer(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "integer"}
        if self.maybe(0.6):
            low = self.random.choice([-100, -3, 0, 1, 12, 999])
            made["minimum"] = low
            made["maximum"] = low + self.random.choice([4, 9, 1500])
        if self.maybe(0.2):
            made["multipleOf"] = self.random.choice([2, 3])
        return made

    def constant(self, depth: int) -> dict[str, Any]:
        if self.maybe():
            return {"const": self.random.choice(CONSTANTS)}
        return {"enum": self.random.sample(CONSTANTS, self.random.randrange(1, 5))}

    def loose(self, depth: int) -> Any:
        return self.random.choice(
            [
                {"type": ["integer", "null"]},
                {"type": "boolean"},
                {"maxLength": 3},
                {"minimum": 5},
                {"type": ["string", "number"]},
            ]
        )

    def object(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(KEYS, self.random.randrange(1, 4))
        made: dict[str, Any] = {"type": "object", "properties": {name: self.any(depth - 1) for name in names}}
        if self.maybe(0.7):
            made["required"] = self.random.sample(names, self.random.randrange(len(names) + 1))
        if self.maybe(0.1):
            made["required"] = [*made.get("required", []), "z"]
        choice = self.random.randrange(4)
        if choice < 2:
            made["additionalProperties"] = False if "z" not in made.get("required", []) else self.any(0)
        elif choice == 2:
            made["additionalProperties"] = self.any(0)
        if self.maybe(0.15):
            made["patternProperties"] = {self.random.choice(["^a", "b$", "^[a-z]$"]): self.any(0)}
        if self.maybe(0.1):
            made["propertyNames"] = {"maxLength": 4}
        if self.maybe(0.15):
            made["maxProperties"] = len(made.get("required", [])) + self.random.randrange(1, 3)
        if self.maybe(0.15):
            made["minProperties"] = self.random.randrange(1, 3)
        if len(names) > 1 and self.maybe(0.2):
            made["dependentRequired"] = {names[0]: [names[1]]}
        if self.maybe(0.1):
            made["dependentSchemas"] = {names[0]: {"properties": {names[-1]: self.any(0)}}}
        if self.maybe(0.1):
            made["unevaluatedProperties"] = self.random.choice([False, {"type": "integer"}])
        return made

    def array(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "array"}
        if self.maybe(0.3):
            made["prefixItems"] = [self.any(depth - 1) for _ in range(self.random.randrange(1, 3))]
        if self.maybe(0.8):
            made["items"] = self.any(depth - 1)
        if self.maybe():
            made["minItems"] = self.random.randrange(3)
        if self.maybe():
            made["maxItems"] = made.get("minItems", 0) + self.random.randrange(3)
        if self.maybe(0.15):
            made["uniqueItems"] = True
        if self.maybe(0.15):
            made["contains"] = self.any(0)
            if self.maybe():
                made["maxContains"] = self.random.randrange(1, 3)
        if self.maybe(0.1):
            made["unevaluatedItems"] = False
        return made

    def combined(self, depth: int) -> dict[str, Any]:
        kind = self.random.randrange(5)
        if kind == 0:
            return {"anyOf": [self.any(depth - 1), self.any(depth - 1)]}
        if kind == 1:
            return {"oneOf": [self.any(depth - 1), self.any(depth - 1)]}
        if kind == 2:
            base = self.object(depth)
            return {"allOf": [base, {"properties": {"a": self.any(0)}}]}
        if kind == 3:
            return {**self.any_typed(depth), "not": self.any(0)}
        base = self.object(depth)
        name = next(iter(base["properties"]))
        return {
            **base,
            "if": {"properties": {name: self.any(0)}, "required": [name]},
            "then": {"properties": {"b": self.any(0)}},
            "else": {"maxProperties": 3},
        }

    def any_typed(self, depth: int) -> dict[str, Any]:
        return self.random.choice([self.string, self.number, self.integer, self.object, self.array])(depth)

    def reference(self, depth: int) -> dict[str, Any]:
        name = f"d{self.random.randrange(3)}"
        if name not in self.definitions:
            self.definitions[name] = {}  # what refers to it meanwhile may be recursive
            self.definitions[name] = self.any(depth - 1)
        return {"$ref": f"#/$defs/{name}"}
