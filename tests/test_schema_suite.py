"""Cases of the JSON-Schema-Test-Suite through the compiled constraint, byte by byte: what it lets through is valid."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plait.constrained.interface import ConstraintError
from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown import machine
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.rules import Rules
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.vocabulary import Vocabulary

SUITE = json.loads(gzip.decompress((Path(__file__).parent / "json_schema_suite" / "cases.json.gz").read_bytes()))
REMOTES = {f"http://localhost:1234/{name}": schema for name, schema in SUITE["remotes"].items()}

#: suites where a valid text is not written, and why
NARROWER = {
    "const": "a value is written one way: 1, not 1.0",
    "enum": "a value is written one way: 1, not 1.0",
    "type": "an integer is written without a fraction",
    "optional/bignum": "numbers have a bounded number of digits",
    "optional/float-overflow": "numbers have a bounded number of digits",
    "optional/format/duration": "numbers have a bounded number of digits",
    "not": "what not leaves is kept to the part that is sure to be right",
    "optional/format/hostname": "labels in punycode are left out",
    "optional/format/idn-hostname": "labels in punycode are left out",
}
#: suites where an invalid text is allowed, and why
WIDER = {"optional/content": "contentEncoding and contentMediaType are annotations (since 2019-09 everywhere)"}
#: only in declared order, the default: where a valid text is not written, and why
ORDERED = {"const": "the members of a constant object come in its order"}


@dataclass
class Outcome:
    groups: int = 0
    right: int = 0
    narrower: Counter[str] = field(default_factory=Counter)
    wider: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    tokens: list[bytes | None] = [None, *(bytes([value]) for value in range(256))]
    return Lexicon(Vocabulary(tokens, size=len(tokens), eos_ids=[0], encode=lambda data: [one + 1 for one in data]))


def compiled(schema: Any, options: SchemaOptions, lexicon: Lexicon) -> PushdownConstraint | None:
    """None: nothing satisfies the schema, and that was said."""
    rules = Rules()
    try:
        start = compile_schema(read(schema, documents=REMOTES, options=options), options, lexicon.languages, rules)
    except ConstraintError as error:
        assert "no JSON value satisfies" in str(error)
        return None
    return PushdownConstraint(machine.build(rules, start, lexicon.lexemes, lexicon.vocabulary, lexicon.masks, "suite"))


def accepts(constraint: PushdownConstraint | None, text: bytes) -> bool:
    if constraint is None:
        return False
    matcher = constraint.matcher()
    return all(matcher.advance_bytes(text[at : at + 1]) for at in range(len(text))) and matcher.accepting


def run(draft: str, any_order: bool, lexicon: Lexicon) -> Outcome:
    outcome = Outcome()
    for group in SUITE["groups"]:
        if group["draft"] != draft:
            continue
        suite = group["suite"]
        form = "assert" if suite.startswith("optional/format") else "annotate"
        options = SchemaOptions(draft=draft, format=form, any_order=any_order)
        constraint = compiled(group["schema"], options, lexicon)
        outcome.groups += 1
        wrong = 0
        for test in group["tests"]:
            text = json.dumps(test["data"], ensure_ascii=False, separators=(",", ":")).encode()
            got = accepts(constraint, text)
            if got != test["valid"]:
                wrong += 1
                (outcome.wider if got else outcome.narrower)[suite] += 1
                if suite not in (WIDER if got else NARROWER | ({} if any_order else ORDERED)):
                    outcome.unexplained.append(f"{suite}: {group['description']}: {test['description']}: {text!r}")
        outcome.right += wrong == 0
    return outcome


@pytest.mark.parametrize("any_order", [False, True], ids=["declared-order", "any-order"])
@pytest.mark.parametrize("draft", ["2020-12", "7"])
def test_the_suites_groups(draft: str, any_order: bool, lexicon: Lexicon) -> None:
    outcome = run(draft, any_order, lexicon)
    print(f"draft {draft}: {outcome.right} of {outcome.groups} groups right; narrower in {outcome.narrower}")
    assert outcome.unexplained == []
    assert outcome.right >= 0.94 * outcome.groups
