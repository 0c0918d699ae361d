"""Grammars over single bytes: what a grammar or a specification accepts, samples of it, and texts by brute force."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import numpy as np
from pushdown_kit import AnyMachine

from plait.constrained import spec
from plait.constrained.grammar import parse
from plait.constrained.grammar.lower import lower
from plait.constrained.grammar.tree import Alt, Expression, Grammar, Ref, Repeat, Seq, Terminal
from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown.machine import Machine
from plait.constrained.pushdown.nearest import Nearest
from plait.constrained.pushdown.rules import Rules
from plait.constrained.vocabulary import Vocabulary

BYTES = Vocabulary([bytes((value,)) for value in range(256)], size=257, eos_ids=[256], encode=list)
LEXICON = Lexicon(BYTES)
LANGUAGES = LEXICON.languages
Kind = TypeVar("Kind", bound=AnyMachine)


def machine(rules: Rules, start: int) -> Machine:
    return machine_as(Machine, rules, start)


def machine_as(kind: type[Kind], rules: Rules, start: int) -> Kind:
    return kind(rules, start, LEXICON.lexemes, BYTES, MaskCache(), "test")


def of_grammar(text: str, **options: Any) -> Machine:
    return of_grammar_as(Machine, text, **options)


def of_grammar_as(kind: type[Kind], text: str, **options: Any) -> Kind:
    rules = Rules()
    return machine_as(kind, rules, start_of(text, rules, **options))


def start_of(text: str, rules: Rules, **options: Any) -> int:
    return lower(*parse(text, LANGUAGES, rules, **options), LANGUAGES, rules)


def of_spec(data: Any) -> Machine:
    rules = Rules()
    return machine(rules, spec.build(data, LANGUAGES, rules))


def of_tree(kind: type[Kind], grammar: Grammar, start: str) -> Kind:
    rules = Rules()
    return machine_as(kind, rules, lower(grammar, start, LANGUAGES, rules))


def accepts(made: AnyMachine, text: str) -> bool:
    config = made.step(made.start, text.encode())
    return config >= 0 and made.accepting(config)


def stacks(made: Machine) -> int:
    """The most stacks that any config met so far has."""
    return max(len(config) for config in made.stacks.configs)


def draw(made: Machine, rng: random.Random, most: int) -> str:
    """Random allowed bytes for a while (punctuation is half of them), then the way to the nearest end."""
    near = Nearest(made)
    config, written = made.start, bytearray()
    while True:
        if made.accepting(config) and (rng.random() < 0.1 or len(written) > most):
            return written.decode()
        if len(written) > most:
            way_out = near.way_out(config, 100_000)
            assert way_out is not None and not way_out.beyond
            return (written + b"".join(way_out.pieces)).decode()
        bits = np.unpackbits(made.mask(config).view(np.uint8), bitorder="little")[:256]
        allowed = np.flatnonzero(bits).tolist()
        if not allowed:
            assert made.accepting(config)
            return written.decode()
        plain = [value for value in allowed if value < 128] or allowed
        if rng.random() < 0.5:
            plain = [value for value in plain if not chr(value).isalnum()] or plain
        written.append(rng.choice(plain))
        config = made.step(config, bytes(written[-1:]))
        assert config >= 0


# ---------------------------------------------------------------- random grammars


def random_grammar(rng: random.Random) -> Grammar:
    names = ["S", "A", "B", "C"][: rng.randint(1, 4)]
    return Grammar({name: Alt(tuple(_expression(rng, names, 0) for _ in range(rng.randint(1, 3)))) for name in names})


def _expression(rng: random.Random, names: list[str], depth: int) -> Expression:
    kind = rng.random()
    if depth > 2 or kind < 0.35:
        text = rng.choice(["a", "b", "ab", "", None])
        if rng.random() < 0.5:
            return Ref(rng.choice(names))
        if text is None:
            return Terminal(LANGUAGES.chars(((97, 98),)))
        return Terminal.of(text, LANGUAGES.literal)
    if kind < 0.65:
        return Seq(tuple(_expression(rng, names, depth + 1) for _ in range(rng.randint(0, 3))))
    if kind < 0.85:
        return Alt(tuple(_expression(rng, names, depth + 1) for _ in range(rng.randint(1, 3))))
    low = rng.randint(0, 2)
    return Repeat(_expression(rng, names, depth + 1), low, rng.choice([None, low, low + 1, low + 2]))


def texts_of(grammar: Grammar, start: str, longest: int) -> set[str]:
    """The least fixpoint, by brute force: every text over a and b up to a length."""
    found: dict[Any, set[str]] = {name: set() for name in grammar.rules}
    while True:
        more = {name: _texts(rule, found, longest) for name, rule in grammar.rules.items()}
        if more == found:
            return found[start]
        found = more


def _joined(first: set[str], second: set[str], longest: int) -> set[str]:
    return {a + b for a in first for b in second if len(a) + len(b) <= longest}


def _texts(rule: Expression, known: dict[Any, set[str]], longest: int) -> set[str]:
    if isinstance(rule, Terminal):
        return {"a", "b"} if rule.text is None else {rule.text}
    if isinstance(rule, Ref):
        return known[rule.name]
    if isinstance(rule, Alt):
        return set().union(*(_texts(option, known, longest) for option in rule.options))
    found = {""}
    if isinstance(rule, Seq):
        for part in rule.parts:
            found = _joined(found, _texts(part, known, longest), longest)
        return found
    assert isinstance(rule, Repeat)
    body = _texts(rule.body, known, longest)
    for _ in range(rule.low):
        found = _joined(found, body, longest)
    every, count = set(found), rule.low
    while rule.high is None or count < rule.high:
        found = _joined(found, body, longest)
        if rule.high is None and found <= every:
            break
        every |= found
        count += 1
    return every


def shown(rule: Expression) -> str:
    """A rule as a person would write it, for messages."""
    if isinstance(rule, Terminal):
        return "[ab]" if rule.text is None else repr(rule.text)
    if isinstance(rule, Ref):
        return str(rule.name)
    if isinstance(rule, Seq):
        return f"({' '.join(map(shown, rule.parts))})"
    if isinstance(rule, Alt):
        return f"({' | '.join(map(shown, rule.options))})"
    assert isinstance(rule, Repeat)
    return f"{shown(rule.body)}{{{rule.low},{'' if rule.high is None else rule.high}}}"


def short_texts(made: AnyMachine, longest: int) -> set[str]:
    """What a machine accepts over a and b, up to a length; on the way, that no config is a dead end."""
    found = set()
    todo = [("", made.start)]
    while todo:
        text, config = todo.pop()
        if made.accepting(config):
            found.add(text)
        if len(text) < longest:
            after = [(text + char, made.step(config, char.encode())) for char in "ab"]
            after = [(more, target) for more, target in after if target >= 0]
            assert after or made.accepting(config), f"nothing may follow {text!r}"
            todo += after
    return found
