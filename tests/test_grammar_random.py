"""Random small grammars, full of left recursion, empty rules and ambiguity, against brute force on all short texts."""

from __future__ import annotations

import random

import pytest
from grammar_kit import (
    BYTES,
    LANGUAGES,
    LEXICON,
    accepts,
    of_grammar,
    of_grammar_as,
    of_tree,
    random_grammar,
    short_texts,
    shown,
    stacks,
    texts_of,
)
from pushdown_kit import MACHINES, AnyMachine

from plait.constrained import spec
from plait.constrained.interface import ConstraintError
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown import stacks as stacks_module
from plait.constrained.pushdown.rules import Rules

LONGEST = 5


def check(seed: int) -> None:
    grammar = random_grammar(random.Random(seed))
    expected = texts_of(grammar, "S", LONGEST)
    said = "; ".join(f"{name} ::= {shown(rule)}" for name, rule in grammar.rules.items())
    for kind in MACHINES:
        try:
            made = of_tree(kind, grammar, "S")
        except ConstraintError as error:
            assert "produces no text" in str(error), (seed, said)
            assert not expected, (seed, said)
            return
        found = short_texts(made, LONGEST)
        assert found == expected, (kind, seed, said, sorted(found ^ expected, key=len)[:5])


@pytest.mark.parametrize("block", range(10))
def test_random_grammars(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_grammars(block: int) -> None:
    for seed in range(1000 + block * 100, 1000 + block * 100 + 100):
        check(seed)


@pytest.mark.parametrize(
    ("rule", "valid", "invalid", "most"),
    [
        ('root ::= root root root | root root | "a" | ""', ["", "a" * 200], ["b"], 4),
        ('root ::= root root root | "a"', ["a" * 201], ["", "aa"], 4),
        ('root ::= root root | root "+" root | "(" root ")" | "a"', ["a+a(a)" * 60], ["a+", "(a"], 6),
        (
            'root ::= root [-+] root | "-" root | root "!" | "(" root ")" | [0-9]+',
            ["1+-2-(3!-4)" + "+1" * 99],
            ["1+"],
            6,
        ),
        ('root ::= a\na ::= b "x" | "1"\nb ::= a "y" | "2"', ["1" + "yx" * 99, "2x"], ["1x", "2"], 4),
        ('root ::= a\na ::= n a "x" | "1"\nn ::= "" | "n"', ["1" + "x" * 99, "nnn1xxx"], ["n1", "x"], 8),
        ('root ::= a\na ::= b b | "1"\nb ::= a a | a "y" | "2"', ["22", "2" * 20], ["222"], 40),
        ('root ::= a root b | a\na ::= "x" | "x" a\nb ::= "x" | b "x"', ["x" * 60], ["", "y"], 12),
        ('root ::= "a" root "a" | "b" root "b" | ""', ["ab" * 50 + "ba" * 50], ["ab"], 6),
        ('root ::= "i" root | "i" root "e" root | "s"', ["i" * 60 + "s" + "es" * 30], ["e", "i"], 8),
        (
            'root ::= "[" root "]" x | "[" root "]" y | "1"\nx ::= "x"\ny ::= "y"',
            ["[" * 60 + "1" + "]x]y" * 30],
            ["[1]"],
            6,
        ),
    ],
)
def test_ambiguity_does_not_grow(rule: str, valid: list[str], invalid: list[str], most: int) -> None:
    made = of_grammar(rule)
    for text in valid:
        assert accepts(made, text), text
    for text in invalid:
        assert not accepts(made, text), text
    assert stacks(made) <= most


AMBIGUOUS = [
    ('root ::= root root root | root root | "a" root "b" | "a"', "a"),
    ('root ::= b root | "a"\nb ::= root b | "a" | "b" | "a" "a"', "a"),
    ('root ::= (a | b | c)*\na ::= "x" root "y" | "x"\nb ::= "x" root "z" | "xx"\nc ::= "x" root', "x"),
    ('root ::= "i" root | "i" root "e" root | "x"', "iixe"),
    ('root ::= "i" root | "i" root "e" root | "x"', "i"),
    ('root ::= "a" root "a" | "a"', "a"),
    ('root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""', "ab"),
    ('root ::= root "+" root | root "*" root | "(" root ")" | [0-9]+ | root "?" root ":" root', "(1+2*3?4:"),
]


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize(("rule", "text"), AMBIGUOUS)
def test_what_a_byte_of_an_ambiguous_text_takes_does_not_grow(kind: type[AnyMachine], rule: str, text: str) -> None:
    """However many ways there are to read what was written: a byte far into a text makes as much as one before."""
    made = of_grammar_as(kind, rule)
    config, held = made.start, []
    for _ in range(3):
        config = made.step(config, (text * 120).encode())
        assert config >= 0
        made.mask(config)
        held.append(made.nbytes)
    assert held[2] - held[1] <= 1.1 * (held[1] - held[0]) + 2000


def test_stacks_that_are_not_joined_all_the_way_down_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "a", "aab", "ab", "aaabb", "abab", "iixex", "xxyz", "xxxzy", "aba", "1+(2*3)", "(1+2", "1?2:3"]
    expected = [[accepts(of_grammar(rule), text) for text in texts] for rule, _ in AMBIGUOUS]
    monkeypatch.setattr(stacks_module, "_UNIONS", 0)
    monkeypatch.setattr(stacks_module, "_UNIONS_EACH", 0)
    assert [[accepts(of_grammar(rule), text) for text in texts] for rule, _ in AMBIGUOUS] == expected


BRANCHES = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "anyOf": [
                {
                    "properties": {"x": {"$ref": "#/$defs/node"}, name: {"type": kind}},
                    "required": [name],
                    "type": "object",
                    "additionalProperties": False,
                }
                for name, kind in [("y", "integer"), ("z", "string")]
            ]
        }
    },
}


@pytest.mark.parametrize("kind", MACHINES)
def test_branches_with_a_common_beginning_do_not_double(kind: type[AnyMachine]) -> None:
    """At each of 300 levels both branches are still possible: 2**300 stacks, were they not joined."""
    rules = Rules()
    start = spec.build({"json_schema": BRANCHES}, LANGUAGES, rules)
    made = kind(rules, start, LEXICON.lexemes, BYTES, MaskCache(), "test")
    config = made.step(made.start, b'{"x":' * 300 + b'{"y":1}')
    for level in range(300):
        assert config >= 0 and not made.accepting(config)
        config = made.step(config, [b',"y":2}', b',"z":"a"}'][level % 2])
    assert made.last(config)
    assert made.configs < 6000
