"""Sampling never runs into a dead end: random schemas, random tokens, then the nearest way out, then jsonschema.

10,000 samples over 500 schemas, half of them on the machine in native code, half on its reference in Python.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

import jsonschema
import numpy as np
import pytest
from random_schemas import RandomSchemas

from plait.constrained.interface import ConstraintError
from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown import machine as machines
from plait.constrained.pushdown.matcher import PushdownConstraint, PushdownMatcher
from plait.constrained.pushdown.nearest import Nearest
from plait.constrained.pushdown.rules import Rules
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.vocabulary import Vocabulary

EOS = 0
PIECES = [
    *("ab", "abc", "true", "false", "null", '{"', '":', '": ', '","', '", "', '"}', '"]', "}]", "}}", "],", "[["),
    *("[]", "{}", "12", "00", "10", "0.", "  ", ", ", '["', "é", "日本", "\\u", "\\n", "name", "na", '"name":', "a b"),
    *('"a":', '"b":', "-1", "e1", "202", "-0", "1.", "xyz"),
]
SCHEMAS, SAMPLES = 500, 20
RANDOM_TOKENS, LAST_TOKENS = 200, 200


def vocabulary() -> Vocabulary:
    tokens: list[bytes | None] = [None, *(bytes([value]) for value in range(256))]
    tokens += [piece.encode() for piece in PIECES] + [b"\xc3", b"\xa9\xc3", b"\x97\xa5", b'"\xe6']
    made = Vocabulary(tokens, size=len(tokens) + 9, eos_ids=[EOS], encode=lambda data: made.longest_tokens(data))
    return made


@dataclass
class Outcome:
    """What became of the samples; ``wrong`` names every one that broke a promise."""

    compiled: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    random_ends: int = 0
    longest_way_out: int = 0
    wrong: list[str] = field(default_factory=list)


class Sampler:
    """One schema on one machine."""

    def __init__(self, schema: object, lexicon: Lexicon, native: bool, key: str) -> None:
        options = SchemaOptions()
        rules = Rules()
        start = compile_schema(read(schema, options=options), options, lexicon.languages, rules)
        over = lexicon.vocabulary
        self.reference = machines.Machine(rules, start, lexicon.lexemes, over, lexicon.masks, f"{key} reference")
        self.nearest = Nearest(self.reference, 2_000)
        build = machines.build if native else machines.Machine
        self.vocabulary = over
        self.constraint = PushdownConstraint(build(rules, start, lexicon.lexemes, over, lexicon.masks, key))
        self.shadow = PushdownConstraint(self.reference)
        self._best: dict[int, list[int]] = {}

    def sample(self, draw: random.Random, go_on: bool) -> tuple[bytes, int, int]:
        """The text, how many tokens were random, how many led out. ``go_on``: no EOS while anything else may come.
        Raises AssertionError for a dead end."""
        matcher = self.constraint.matcher()
        text = bytearray()
        taken: list[int] = []
        for count in range(RANDOM_TOKENS):
            tokens = allowed(matcher)
            if go_on and len(tokens) > 1 and tokens[0] == EOS:
                del tokens[0]
            token = draw.choice(tokens)
            assert matcher.advance(token), f"refuses a token it allowed after {bytes(text)!r}"
            if token == EOS:
                return bytes(text), count, 0
            text += self.vocabulary.tokens[token]
            taken.append(token)
        shadow = self.shadow.matcher()
        assert all(map(shadow.advance, taken)), f"the reference refuses {bytes(text)!r}"
        for count in range(LAST_TOKENS):
            if matcher.accepting:
                return bytes(text), RANDOM_TOKENS, count
            token = self.way_out(shadow)
            assert matcher.advance(token), f"refuses the way out after {bytes(text)!r}"
            text += self.vocabulary.tokens[token]
        raise AssertionError(f"no end within {LAST_TOKENS} tokens: {bytes(text)!r}")

    def way_out(self, shadow: PushdownMatcher) -> int:
        """The allowed token that leads nearest to acceptance; ``shadow`` takes it."""
        at = shadow.config
        ranked = self._best.get(at)
        if ranked is None:
            reached = [(self.after(at, token), token) for token in allowed(shadow)]
            ranked = self._best[at] = [token for _, token in sorted(reached)[:20]]
        for token in ranked:
            if shadow.advance(token):
                return token
        raise AssertionError("none of the nearest tokens is taken")

    def after(self, config: int, token: int) -> int:
        return self.nearest.distance(self.reference.step(config, self.vocabulary.tokens[token]))


def allowed(matcher: PushdownMatcher) -> list[int]:
    mask = matcher.mask()
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    assert found, "a dead end: no token is allowed"
    assert (EOS in found) == matcher.accepting
    return found


def exact(text: str) -> Any:
    """JSON with the numbers it says: as a float, 634220242021852012.3 is a multiple of 0.5."""
    return json.loads(text, parse_float=Decimal)


def run(schemas: int, samples: int, seed: int) -> Outcome:
    outcome = Outcome()
    over = vocabulary()
    lexicon = Lexicon(over)
    number = seed
    while outcome.compiled < schemas:
        number += 1
        if lexicon.full:
            lexicon = Lexicon(over)
        schema = RandomSchemas(number).schema()
        try:
            sampler = Sampler(schema, lexicon, native=number % 2 == 0, key=str(number))
        except ConstraintError as error:
            reason = str(error).rsplit(": ", 1)[-1]
            outcome.refused[reason] = outcome.refused.get(reason, 0) + 1
            continue
        outcome.compiled += 1
        kind = jsonschema.Draft202012Validator
        validator = kind(exact(json.dumps(schema)), format_checker=kind.FORMAT_CHECKER)
        draw = random.Random(number)
        for count in range(samples):
            outcome.samples += 1
            try:
                text, _, led = sampler.sample(draw, go_on=count % 2 == 0)
                outcome.random_ends += led == 0
                outcome.longest_way_out = max(outcome.longest_way_out, led)
                with localcontext(prec=400):
                    validator.validate(exact(text.decode()))
            except (AssertionError, ConstraintError, ValueError, jsonschema.ValidationError) as error:
                said = getattr(error, "message", None) or str(error)
                outcome.wrong.append(f"{number}: {json.dumps(schema, ensure_ascii=False)}: {said[:300]}")
                break
    return outcome


def test_a_few_samples() -> None:
    outcome = run(25, 4, seed=1_000_000)
    assert outcome.wrong == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_samples() -> None:
    outcome = run(SCHEMAS, SAMPLES, seed=0)
    assert outcome.wrong == []
    assert outcome.samples == SCHEMAS * SAMPLES
    assert sum(outcome.refused.values()) < SCHEMAS // 2, outcome.refused
