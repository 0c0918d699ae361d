"""A small vocabulary, JSON rules over it, and brute force: what the machines are held against."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown.machine import Machine
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.native_library import available
from plait.constrained.pushdown.native_machine import NativeMachine
from plait.constrained.pushdown.rules import Lexeme, Production, Rules
from plait.constrained.vocabulary import Vocabulary

AnyMachine = Machine | NativeMachine
#: both implementations, where there is a compiler
MACHINES: list[type[AnyMachine]] = [Machine, NativeMachine] if available() else [Machine]

#: tokens that run through several structures, hold half characters, or spell escapes by pieces
MIXED = [
    *(b'"]}', b'",', b'":"', b'": "', b'","', b'"a', b'{"a', b"}}", b'"}', b'",\n', b'a"', b'"a"', b'["', b"[1", b"1]"),
    *(b"12", b"1,", b"1,2", b",1", b", 1", b"true", b"tr", b"ull", b"[[", b"]]", b"-1", b'x":1', b'x": 1', b'","a","'),
    *(b"\\u", b"\\u00", b'e9"', b"\\ud8", b"3d\\", b"\\ude0", b'\\"', b'\\\\"', b"\\n", b"00", b"dE"),
    *(b"\xc3\xa9", b'\xa9"', 'é"'.encode(), "😀".encode()[:3], "😀".encode()[2:] + b'"', "日本".encode()[1:], b'"\xc3'),
    *(b"ab", b"abab", b"aba", b"name", b'name":', b' "', b"\xc3\xa9\xc3"),
]


def small_vocabulary(
    tokens: Sequence[bytes | None], size: int | None = None, eos: Sequence[int] = (), known: str = "latin-1"
) -> Vocabulary:
    """A vocabulary that encodes with the longest tokens from the left."""
    longest = max(len(data or b"") for data in tokens)
    by_bytes = {data: at for at, data in reversed(list(enumerate(tokens))) if data and at not in eos}

    def encode(data: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(data):
            end = next(e for e in range(min(len(data), at + longest), at, -1) if data[at:e] in by_bytes)
            ids.append(by_bytes[data[at:end]])
            at = end
        return ids

    return Vocabulary(tokens, size=size or len(tokens), eos_ids=eos, encode=encode)


def mixed_vocabulary() -> Vocabulary:
    """All bytes, ``MIXED``, two ids more for some bytes, two EOS ids, holes and padding."""
    tokens: list[bytes | None] = [None, b"<eos>", *(bytes((value,)) for value in range(256)), *MIXED]
    tokens += [b'"', b"1", None, b'","', b"a", b"<end>"]
    return small_vocabulary(tokens, size=len(tokens) + 9, eos=(1, len(tokens) - 1))


def json_rules(lexicon: Lexicon, rules: Rules) -> int:
    """Any JSON, with free strings, keys that exclude each other, and a bounded string under one key."""
    languages = lexicon.languages
    digit, nonzero = languages.chars(((48, 57),)), languages.chars(((49, 57),))
    whole = languages.union(languages.literal("0"), languages.concat(nonzero, languages.repeat(digit, 0, None)))
    number = Lexeme(languages.concat(languages.repeat(languages.literal("-"), 0, 1), whole))
    names = languages.literals(["a", "name"])
    other = Lexeme(languages.intersect(languages.ANY, languages.complement(names)), json=True)
    short = Lexeme(languages.repeat(languages.chars(((0, 0xD7FF), (0xE000, 0x10FFFF))), 1, 300), json=True)
    add = rules.add
    value = add(
        lambda: [(b'"', Lexeme(languages.ANY, True)), (number,), (b"true",), (b"null",), (b"[", items), (b"{", members)]
    )
    comma = add(lambda: [(b",",), (b", ",)])
    items = add(lambda: [(b"]",), (value, more)])
    more = add(lambda: [(b"]",), (comma, value, more)])
    members = add(lambda: [(b"}",), (pair, pairs)])
    pairs = add(lambda: [(b"}",), (comma, pair, pairs)])
    colon = add(lambda: [(b":",), (b": ",)])
    pair = add(lambda: [(b'"', other, colon, value), (b'"a"', colon, number), (b'"name"', colon, b'"', short)])
    return value


def machine_of(
    kind: type[AnyMachine],
    lexicon: Lexicon,
    build: Callable[[Lexicon, Rules], int],
    key: str = "test",
    cache: MaskCache | None = None,
) -> AnyMachine:
    rules = Rules()
    start = build(lexicon, rules)
    return kind(rules, start, lexicon.lexemes, lexicon.vocabulary, cache or MaskCache(), key)


def constraint_of(
    kind: type[AnyMachine], lexicon: Lexicon, build: Callable[[Lexicon, Rules], int], key: str = "test"
) -> PushdownConstraint:
    return PushdownConstraint(machine_of(kind, lexicon, build, key))


def just(*productions: Production) -> Callable[[Lexicon, Rules], int]:
    return lambda lexicon, rules: rules.add(lambda: productions)


def bits(mask: NDArray[np.uint32], vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """bool[size]; fails if a bit past the end is set."""
    found = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little").astype(bool)
    assert not found[vocabulary.size :].any()
    return found[: vocabulary.size]


def brute_mask(machine: AnyMachine, config: int) -> NDArray[np.bool_]:
    """What the mask must be, by stepping every token."""
    vocabulary = machine.vocabulary
    want = np.zeros(vocabulary.size, bool)
    for token, data in enumerate(vocabulary.tokens):
        want[token] = bool(data) and machine.step(config, data) >= 0
    want[list(vocabulary.eos_ids)] = machine.accepting(config)
    return want


def differing(got: NDArray[np.bool_], want: NDArray[np.bool_], vocabulary: Vocabulary) -> list[tuple[int, bytes, bool]]:
    """(id, bytes, wanted) of what differs, for messages."""
    return [(token, vocabulary.tokens[token], bool(want[token])) for token in np.flatnonzero(got != want).tolist()]


def wander(machine: AnyMachine, seed: int, steps: int) -> list[tuple[bytes, int]]:
    """(text so far, config) of a random walk over allowed tokens, the start included."""
    chance = random.Random(seed)
    vocabulary = machine.vocabulary
    text, config = b"", machine.start
    found = [(text, config)]
    for _ in range(steps):
        allowed = [t for t in np.flatnonzero(bits(machine.mask(config), vocabulary)).tolist() if vocabulary.tokens[t]]
        if not allowed:
            break
        # long tokens, which cross structures, are rare by number
        allowed.sort(key=lambda token: len(vocabulary.tokens[token]), reverse=True)
        token = chance.choice(allowed[: chance.choice((5, 40, len(allowed)))])
        text += vocabulary.tokens[token]
        config = machine.step(config, vocabulary.tokens[token])
        found.append((text, config))
    return found
