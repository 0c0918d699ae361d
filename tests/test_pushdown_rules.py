"""The machines against a naive reader of rules: plain stacks in plain sets, over random grammars."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from pushdown_kit import MACHINES, AnyMachine, bits, brute_mask, small_vocabulary

from plait.constrained.interface import ConstraintError
from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown.rules import Lexeme, Production, Rules

ALPHABET = 'abé"'
#: ("text", what is still to come), ("words", what may still come), or a nonterminal
Item = tuple[str, bytes] | tuple[str, frozenset[bytes]] | int
Stack = tuple[Item, ...]
Grammar = list[list[tuple[Item, ...]]]


def random_grammar(chance: random.Random) -> Grammar:
    """Nonterminals only call later ones first, so there is no left recursion; the last production is always plain."""
    count = chance.randrange(1, 6)

    def text() -> str:
        return "".join(chance.choice(ALPHABET) for _ in range(chance.randrange(1, 4)))

    def terminal() -> Item:
        if chance.random() < 0.5:
            return ("text", text().encode())
        return ("words", frozenset(text()[: chance.randrange(4)].encode() for _ in range(3)) | {b"a"})

    grammar: Grammar = []
    for at in range(count):
        productions: list[tuple[Item, ...]] = []
        for _ in range(chance.randrange(0, 4)):
            production: list[Item] = []
            begun = False  # something that is never empty came before: any nonterminal may follow
            for _ in range(chance.randrange(0, 4)):
                calls = range(count) if begun else range(at + 1, count)
                if calls and chance.random() < 0.5:
                    production.append(chance.choice(calls))
                else:
                    item = terminal()
                    begun = begun or not (item[0] == "words" and b"" in item[1])  # type: ignore[index, operator]
                    production.append(item)
            productions.append(tuple(production))
        productions.append((("text", text().encode()),))
        grammar.append(productions)
    return grammar


def rules_of(grammar: Grammar, lexicon: Lexicon, rules: Rules) -> int:
    def item(found: Item) -> bytes | int | Lexeme:
        if isinstance(found, int):
            return found
        if found[0] == "text":
            return found[1]  # type: ignore[return-value]
        return Lexeme(lexicon.languages.literals(word.decode() for word in found[1]))  # type: ignore[union-attr]

    made: list[list[Production]] = [[tuple(map(item, production)) for production in found] for found in grammar]
    numbers = [rules.add(lambda at=at: made[at]) for at in range(len(grammar))]
    assert numbers == list(range(len(grammar)))
    return 0


def opened(stacks: set[Stack], grammar: Grammar) -> set[Stack]:
    found: set[Stack] = set()
    todo = list(stacks)
    while todo:
        stack = todo.pop()
        if stack in found:
            continue
        found.add(stack)
        if not stack:
            continue
        top, rest = stack[0], stack[1:]
        if isinstance(top, int):
            todo.extend(production + rest for production in grammar[top])
        elif b"" in (top[1] if top[0] == "words" else (top[1],)):  # type: ignore[operator]
            todo.append(rest)
    return found


def read(stacks: set[Stack], value: int, grammar: Grammar) -> set[Stack]:
    after: set[Stack] = set()
    for stack in opened(stacks, grammar):
        if not stack or isinstance(stack[0], int):
            continue
        kind, data = stack[0]
        if kind == "text":
            if data[:1] == bytes((value,)):  # type: ignore[index]
                after.add((("text", data[1:]), *stack[1:]))  # type: ignore[index]
        else:
            left = frozenset(word[1:] for word in data if word[:1] == bytes((value,)))  # type: ignore[union-attr, index]
            if left:
                after.add((("words", left), *stack[1:]))
    return after


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("seed", range(30))
def test_random_grammars(kind: type[AnyMachine], seed: int) -> None:
    chance = random.Random(seed)
    grammar = random_grammar(chance)
    pieces = ["".join(p) for n in (1, 2, 3) for p in itertools.product(ALPHABET, repeat=n)]
    tokens = [bytes((value,)) for value in range(256)] + [piece.encode() for piece in chance.sample(pieces, 30)]
    tokens += ["é".encode()[1:] + b"a", b"a\xc3", b"\xa9\xc3\xa9"]
    vocabulary = small_vocabulary([*tokens, b"<e>"], eos=(len(tokens),))
    lexicon, rules = Lexicon(vocabulary), Rules()
    start = rules_of(grammar, lexicon, rules)
    machine = kind(rules, start, lexicon.lexemes, vocabulary, MaskCache(), "random")
    for _ in range(6):
        config, stacks = machine.start, {(0,)}
        for _ in range(8):
            whole = opened(stacks, grammar)
            assert machine.accepting(config) == (() in whole)
            live = [value for value in range(256) if read(stacks, value, grammar)]
            assert live == [value for value in range(256) if machine.step(config, bytes((value,))) >= 0]
            assert machine.last(config) == (not live)
            run = machine.forced(config)
            assert bool(run) == (len(live) == 1 and () not in whole) and (not run or run[0] == live[0])
            assert np.array_equal(bits(machine.mask(config), vocabulary), brute_mask(machine, config))
            if not live or len(whole) > 3000:
                break
            value = chance.choice(live)
            stacks, config = read(stacks, value, grammar), machine.step(config, bytes((value,)))


@pytest.mark.parametrize("kind", MACHINES)
def test_two_readings_at_every_level_stay_few(kind: type[AnyMachine]) -> None:
    """a -> "(" b ")" | "(" c ")" with b and c both going on with a: 2**n stacks, were they not joined."""
    vocabulary = small_vocabulary([*(bytes((value,)) for value in range(256)), b"<e>"], eos=(256,))
    lexicon, rules = Lexicon(vocabulary), Rules()
    top = rules.add(lambda: [(b"(", one, b")"), (b"(", two, b")"), (b"x",)])
    one = rules.add(lambda: [(top,), (b"1",)])
    two = rules.add(lambda: [(top, b"!"), (top,), (b"2",)])
    machine = kind(rules, top, lexicon.lexemes, vocabulary, MaskCache(), "wide")
    config = machine.step(machine.start, b"(" * 300 + b"x")
    assert config >= 0
    assert machine.step(config, b")!" * 200 + b")" * 99) >= 0
    assert machine.accepting(machine.step(config, b")" * 300))
    assert machine.step(config, b")" * 301) == -1
    with pytest.raises(ConstraintError, match=r"deep|ways"):
        machine.step(machine.start, b"(" * 40_000)
