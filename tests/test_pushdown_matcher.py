"""The matcher: moves, rollback, forks, ends, budgets, jump-forward, and rules that depend on values."""

from __future__ import annotations

import contextlib
import json
import random
import time

import numpy as np
import pytest
from pushdown_kit import (
    MACHINES,
    AnyMachine,
    bits,
    constraint_of,
    differing,
    json_rules,
    just,
    mixed_vocabulary,
    small_vocabulary,
)

from plait.constrained.interface import ConstraintError, Unfinished, WayOut
from plait.constrained.jump import settled_prefix
from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown.json_text import last_value
from plait.constrained.pushdown.matcher import PushdownMatcher
from plait.constrained.pushdown.native_machine import NativeMachine
from plait.constrained.pushdown.nearest import Nearest
from plait.constrained.pushdown.rules import Lexeme, Rules
from plait.constrained.vocabulary import Vocabulary

every = pytest.mark.parametrize("kind", MACHINES)
VOCABULARY = mixed_vocabulary()


def texts(matcher: PushdownMatcher, vocabulary: Vocabulary) -> set[bytes]:
    """The bytes of all allowed tokens; b"" stands for the end."""
    return {vocabulary.tokens[token] for token in np.flatnonzero(bits(matcher.mask(), vocabulary)).tolist()}


def check_exact(matcher: PushdownMatcher, vocabulary: Vocabulary) -> None:
    """The mask against advance on forks; `allows` too."""
    got = bits(matcher.mask(), vocabulary)
    want = np.zeros(vocabulary.size, bool)
    for token in range(vocabulary.size):
        want[token] = matcher.fork().advance(token)
        if data := vocabulary.tokens[token]:
            assert matcher.allows(data) == want[token]
    assert np.array_equal(got, want), differing(got, want, vocabulary)[:9]
    assert matcher.finished or got.any()


@every
def test_moves_are_undone_and_shared(kind: type[AnyMachine]) -> None:
    matcher = constraint_of(kind, Lexicon(VOCABULARY), json_rules).matcher()
    assert matcher.advance_bytes(b'["x"')
    there = matcher.mask()
    other = matcher.fork()
    assert matcher.advance(VOCABULARY.id_of[b"]"])
    assert matcher.accepting and matcher.finished
    assert not other.accepting
    assert matcher.advance(VOCABULARY.eos_ids[1])
    assert matcher.finished and matcher.accepting
    assert not matcher.mask().any() and matcher.forced() == b"" and matcher.prepare(0.1)
    assert not matcher.advance(VOCABULARY.eos_ids[0]) and not matcher.advance_bytes(b"]") and not matcher.allows(b"x")
    matcher.rollback(2)
    assert matcher.mask() is there
    with pytest.raises(ValueError, match="cannot roll back"):
        matcher.rollback(2)
    assert other.advance_bytes(b",1]") and other.finished


@every
def test_what_is_not_taken_moves_nothing(kind: type[AnyMachine]) -> None:
    matcher = constraint_of(kind, Lexicon(VOCABULARY), json_rules).matcher()
    for token in (0, VOCABULARY.eos_ids[0], VOCABULARY.size - 1, VOCABULARY.size, -1, VOCABULARY.id_of[b"x"]):
        assert not matcher.advance(token)
    assert not matcher.advance_bytes(b"tru,")
    with pytest.raises(ValueError, match="cannot roll back"):
        matcher.rollback(1)
    assert matcher.advance_bytes(b"true")


@every
def test_budgets_are_kept_and_work_goes_on(kind: type[AnyMachine]) -> None:
    matcher = constraint_of(kind, Lexicon(VOCABULARY), json_rules).matcher()
    assert matcher.advance_bytes(b'{"name": "')
    calls = 1
    while not matcher.prepare(0.0001):
        calls += 1
        assert calls < 100_000
    assert calls > 2
    check_exact(matcher, VOCABULARY)
    assert matcher.prepare()


@every
def test_settled_tokens_of_a_forced_run(kind: type[AnyMachine]) -> None:
    productions = ((b'{"name": "', Lexeme(Lexicon(VOCABULARY).languages.ANY, True), b"}"),)
    matcher = constraint_of(kind, Lexicon(VOCABULARY), just(*productions)).matcher()
    run = matcher.forced()
    assert run == b'{"name": "'
    ids, held = settled_prefix(matcher, VOCABULARY, run)
    assert VOCABULARY.decode(ids) + held == run
    assert VOCABULARY.encode(run)[: len(ids)] == ids
    assert held == b' "' or held == b'"'  # the quote may begin a longer token
    for token in ids:
        assert bits(matcher.mask(), VOCABULARY)[token]
        assert matcher.advance(token)
    assert matcher.forced() == held


@every
def test_a_run_that_ends_inside_a_character(kind: type[AnyMachine]) -> None:
    matcher = constraint_of(kind, Lexicon(VOCABULARY), just(("xé".encode(),), ("xè".encode(),))).matcher()
    run = matcher.forced()
    assert run == b"x\xc3"
    ids, held = settled_prefix(matcher, VOCABULARY, run)
    assert VOCABULARY.decode(ids) == b"x" and held == b"\xc3"  # b"\xc3\xa9" is one token


@every
def test_forced_runs_wherever_a_text_goes(kind: type[AnyMachine]) -> None:
    lexicon = Lexicon(VOCABULARY)

    def build(lexicon: Lexicon, rules: Rules) -> int:
        free = Lexeme(lexicon.languages.ANY, True)
        short = Lexeme(lexicon.languages.literals(["abab", "ababx", "éé"]), True)
        return rules.add(lambda: [(b'{"name": "', free, b', "x": ["', short, b'], "a": true}')])

    constraint = constraint_of(kind, lexicon, build)
    for seed in range(10):
        chance = random.Random(seed)
        matcher, text = constraint.matcher(), b""
        while not matcher.finished:
            check_exact(matcher, VOCABULARY)
            if run := matcher.forced():
                ids, held = settled_prefix(matcher, VOCABULARY, run)
                assert VOCABULARY.decode(ids) + held == run and VOCABULARY.encode(run)[: len(ids)] == ids
                for token in ids:
                    assert bits(matcher.mask(), VOCABULARY)[token] and matcher.advance(token)
                    text += VOCABULARY.tokens[token]
                if ids:
                    continue
            allowed = [t for t in np.flatnonzero(bits(matcher.mask(), VOCABULARY)).tolist() if VOCABULARY.tokens[t]]
            quotes = [t for t in allowed if b'"' in VOCABULARY.tokens[t]]
            token = chance.choice(quotes if quotes and chance.random() < 0.4 else allowed)
            assert matcher.advance(token)
            text += VOCABULARY.tokens[token]
        json.loads(text)


# ---- rules that depend on values


def unique_rules(lexicon: Lexicon, rules: Rules) -> int:
    """[item, item, ...] without repeats; an item is a number, a string of a few letters, or an array of such."""
    languages = lexicon.languages
    digits = languages.concat(languages.chars(((49, 57),)), languages.repeat(languages.chars(((48, 57),)), 0, None))
    words = languages.union(languages.literal("ab"), languages.repeat(languages.literal("a"), 1, None))

    def item(used: frozenset[bytes]) -> int:
        number = languages.intersect(digits, languages.complement(languages.literals([u.decode() for u in used])))
        texts = [json.loads(u) for u in used if u.startswith(b'"')]
        word = languages.intersect(words, languages.complement(languages.literals(texts)))
        return rules.add(lambda: [(Lexeme(number),), (b'"', Lexeme(word, True)), (b"[", ends(frozenset()))])

    def more(used: frozenset[bytes]) -> int:
        return rules.add(lambda: [(b"]",), (b",", item(used), after(used)), (b", ", item(used), after(used))])

    def after(used: frozenset[bytes]) -> int:
        """Behind an item."""

        def resolve(value: bytes) -> int | None:
            return None if value in used else more(used | {value})

        return rules.add_dependent(lambda: [(more(used),)], resolve)

    def ends(used: frozenset[bytes]) -> int:
        return rules.add(lambda: [(b"]",), (item(used), after(used))])

    return rules.add(lambda: [(b"x[", ends(frozenset()))])


def unique(text: str) -> bool:
    value = json.loads(text)

    def fine(value: object) -> bool:
        if not isinstance(value, list):
            return True
        return len({json.dumps(v) for v in value}) == len(value) and all(map(fine, value))

    return fine(value)


@every
@pytest.mark.parametrize(
    "text",
    [
        '["a","ab","aa"]',
        "[1,2,12]",
        "[1, 12, 121]",
        '[["a"],["ab"]]',
        '[[1],1,"a"]',
        "[[], [1,2], [2,1]]",
        '[["a"],"a"]',
    ],
)
def test_unique_items_are_taken(kind: type[AnyMachine], text: str) -> None:
    assert unique(text)
    constraint = constraint_of(kind, Lexicon(VOCABULARY), unique_rules)
    for piece in (1, 3, 100):
        matcher = constraint.matcher()
        assert matcher.advance_bytes(b"x")
        for at in range(0, len(text), piece):
            assert matcher.advance_bytes(text[at : at + piece].encode()), text[: at + piece]
        assert matcher.finished


@every
@pytest.mark.parametrize("text", ['["a","a"]', "[1,1]", "[1,12, 1]", '["ab","a","ab"]', '["x', '["a","ab","ab'])
def test_repeated_items_are_not(kind: type[AnyMachine], text: str) -> None:
    constraint = constraint_of(kind, Lexicon(VOCABULARY), unique_rules)
    assert not constraint.matcher().advance_bytes(b"x" + text.encode())
    matcher = constraint.matcher()
    assert matcher.advance_bytes(b"x")
    taken = [matcher.advance_bytes(char.encode()) for char in text]
    assert not all(taken)


@every
def test_masks_where_values_decide(kind: type[AnyMachine]) -> None:
    """b'","a","' and b'1,1' run through a dependent point and begin another value behind it."""
    tokens: list[bytes | None] = [*(bytes((value,)) for value in range(256)), b'"a","a', b'"a","a"', b'"a","ab', b"1,1"]
    tokens += [
        b"1,1]",
        b"1,12]",
        b"1,2,1,",
        b'a","a',
        b'b","a',
        b'","',
        b'"ab","ab"',
        b'"]',
        b'"],',
        b'x["a","a"]',
        b"<e>",
    ]
    vocabulary = small_vocabulary(tokens, eos=(len(tokens) - 1,))
    constraint = constraint_of(kind, Lexicon(vocabulary), unique_rules)
    matcher = constraint.matcher()
    assert b'x["a","a"]' in vocabulary.tokens and b'x["a","a"]' not in texts(matcher, vocabulary)  # met in this mask
    assert matcher.advance_bytes(b"x[")
    allowed = texts(matcher, vocabulary)
    assert {b'"a","a', b'"a","ab', b"1,1", b"1,12]"} <= allowed  # a second value that may still differ
    assert not {b'"a","a"', b"1,1]", b"1,2,1,", b'"ab","ab"'} & allowed
    check_exact(matcher, vocabulary)
    assert matcher.advance_bytes(b'"a"')
    check_exact(matcher, vocabulary)
    assert matcher.advance_bytes(b',"')
    assert {b"a", b'a","a'} & texts(matcher, vocabulary) == {b"a"}  # "aa" or "ab" may come; "a" again may not
    for seed in range(12):
        chance = random.Random(seed)
        matcher, text = constraint.matcher(), b""
        for _ in range(25):
            while not matcher.prepare(0.0001):
                pass
            check_exact(matcher, vocabulary)
            ids = [t for t in np.flatnonzero(bits(matcher.mask(), vocabulary)).tolist() if vocabulary.tokens[t]]
            if not ids:
                break
            ids.sort(key=lambda token: len(vocabulary.tokens[token]), reverse=True)
            token = chance.choice(ids[: chance.choice((3, 10, len(ids)))])
            assert matcher.advance(token)
            text += vocabulary.tokens[token]
        if matcher.finished:
            assert unique(text[1:].decode())


@every
def test_rollback_over_dependent_values(kind: type[AnyMachine]) -> None:
    matcher = constraint_of(kind, Lexicon(VOCABULARY), unique_rules).matcher()
    assert matcher.advance_bytes(b"x[1") and matcher.advance_bytes(b",")
    other = matcher.fork()
    assert not matcher.allows(b"1]") and matcher.allows(b"2]")
    matcher.rollback(2)
    assert matcher.advance_bytes(b"x[2,") and matcher.allows(b"1]") and not matcher.allows(b"2]")
    assert not other.allows(b"1]") and other.allows(b"2]")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, "x]"]}', '{"a": [1, "x]"]}'),
        ('["a\\"b"', '"a\\"b"'),
        ('["a\\\\"', '"a\\\\"'),
        ('[true, {"b\\"": "}"}', '{"b\\"": "}"}'),
        ("[-1.5e+3", "-1.5e+3"),
        ("[1,null  ", "null"),
        ('It\'s "quoted: [["]"]', '["]"]'),
    ],
)
def test_the_value_that_a_text_ends_with(text: str, value: str) -> None:
    assert last_value(text.encode(), whole=True) == value.encode()
    for cut in range(len(text)):
        assert last_value(text[cut:].encode(), whole=False) in (None, value.encode())


@pytest.mark.parametrize("text", ["", "  ", "[", "[1,", 'a"', "]]", "{}}"])
def test_texts_that_end_with_no_value(text: str) -> None:
    assert last_value(text.encode(), whole=True) is None


@every
def test_what_one_text_makes_grow_is_bounded(kind: type[AnyMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern with a state for every text must not fill up what the others of its vocabulary work with."""
    monkeypatch.setattr("plait.constrained.pushdown.matcher._GROWTH", 4_000_000)
    lexicon = Lexicon(VOCABULARY)
    other = constraint_of(kind, lexicon, json_rules).matcher()
    regex = lexicon.languages.regex("(?:[ab]*a[ab]{12}|[ab]*b[ab]{11}b)*c")
    greedy = constraint_of(kind, lexicon, just((Lexeme(regex),)), "greedy").matcher()
    chance = random.Random(1)
    with pytest.raises(ConstraintError, match="this text needs more than 3 MB of automata"):
        for _ in range(20_000):
            assert greedy.prepare() and greedy.advance_bytes(chance.choice((b"a", b"b")))
    assert other.advance_bytes(b'{"name": ') and other.prepare()


@every
def test_work_that_is_kept_only_when_whole_gets_longer_turns(kind: type[AnyMachine]) -> None:
    """The productions of a rule that take 30 ms, asked for in turns of 2 ms (for tokens such as "ab")."""
    lexicon = Lexicon(VOCABULARY)

    def rules_of(made: Rules) -> int:
        def slowly() -> list[tuple[bytes, ...]]:
            began = time.monotonic()
            while time.monotonic() - began < 0.03:
                lexicon.languages.tick()
            return [(b"b",)]

        slow = made.add(slowly)
        return made.add(lambda: ((b"a", slow),))

    matcher = constraint_of(kind, lexicon, lambda _, made: rules_of(made)).matcher()
    turns = 1
    while not matcher.prepare(0.002):
        turns += 1
        assert turns < 40
    assert turns > 1
    assert b"a" in texts(matcher, VOCABULARY)


def test_a_way_out_that_is_kept_only_when_whole_gets_longer_turns_whatever_is_asked_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gen looks at what may come before it asks for the way out, each time: that look is done at once."""
    real = Nearest.way_out

    def slow(self: Nearest, config: int, most: int) -> WayOut | None:
        """Takes 20 ms, and leaves nothing behind before."""
        deadline = self.machine.deadline
        if deadline is not None and deadline - time.monotonic() < 0.02:
            raise Unfinished
        return real(self, config, most)

    monkeypatch.setattr(Nearest, "way_out", slow)
    rules = [(b"a", b"a")]
    matcher = constraint_of(NativeMachine, Lexicon(VOCABULARY), lambda _, made: made.add(lambda: rules)).matcher()
    found, turns = None, 0
    while found is None and turns < 40:
        assert matcher.prepare(0.002)
        turns += 1
        with contextlib.suppress(Unfinished):
            found = matcher.completion(100, 0.002)
    assert turns > 2 and found == WayOut((b"aa",), 0)
