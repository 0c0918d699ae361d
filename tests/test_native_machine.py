"""The native machine against the reference machine, over random rules and vocabularies; its limits and its memory.

What both machines must do alike by hand-written cases stands in test_pushdown_machine.py.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pushdown_kit import (
    AnyMachine,
    bits,
    brute_mask,
    differing,
    json_rules,
    machine_of,
    mixed_vocabulary,
    small_vocabulary,
)

from plait.constrained.charset import ALL
from plait.constrained.interface import ConstraintError, Unfinished
from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown.machine import Machine
from plait.constrained.pushdown.native_library import available
from plait.constrained.pushdown.native_machine import NativeMachine
from plait.constrained.pushdown.rules import Lexeme, Production, Rules
from plait.constrained.pushdown.stacks import Limits
from plait.constrained.vocabulary import Vocabulary

pytestmark = pytest.mark.skipif(not available(), reason="there is no native library")
BYTES = [bytes((value,)) for value in range(256)]


def ids_of(mask: np.ndarray, vocabulary: Vocabulary) -> set[int]:
    return set(np.flatnonzero(bits(mask, vocabulary)).tolist())


def twins(lexicon: Lexicon, rules: Rules, start: int, limits: Limits | None = None) -> tuple[Machine, NativeMachine]:
    arguments = (rules, start, lexicon.lexemes, lexicon.vocabulary)
    return Machine(*arguments, MaskCache(), "a", limits), NativeMachine(*arguments, MaskCache(), "b", limits)


def walk_together(first: Machine, second: NativeMachine, draw: random.Random, steps: int) -> None:
    """Follow random tokens in both, and compare all that can be seen on the way."""
    tokens = first.vocabulary.tokens
    a, b = first.start, second.start
    for _ in range(steps):
        assert first.accepting(a) == second.accepting(b)
        assert first.last(a) == second.last(b)
        forced = first.forced(a)
        assert forced == second.forced(b)
        assert second.step(b, forced) >= 0
        assert set(first.markers(a)) == set(second.markers(b))
        mask = second.mask(b)
        allowed = ids_of(mask, first.vocabulary)
        assert allowed == ids_of(first.mask(a), first.vocabulary)
        assert not mask.flags.writeable
        assert first.doubtful(a).tolist() == second.doubtful(b).tolist() if first.dependent else True
        chosen = sorted(token for token in allowed if tokens[token])
        for token in draw.sample(range(len(tokens)), min(5, len(tokens))):
            if tokens[token]:
                assert (second.step(b, tokens[token]) >= 0) == (token in allowed)
        if not chosen:  # over, or a vocabulary that cannot write what the rules want
            return
        data = tokens[draw.choice(chosen)]
        a, b = first.step(a, data), second.step(b, data)
        assert a >= 0 and b >= 0


@pytest.mark.parametrize("seed", range(12))
def test_json(seed: int) -> None:
    lexicon, rules = Lexicon(mixed_vocabulary()), Rules()
    walk_together(*twins(lexicon, rules, json_rules(lexicon, rules)), random.Random(seed), 60)


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    """Up to three letters and a quote, words of those, half a character, an id without text, an EOS id."""
    letters = draw(st.sampled_from(['abc"', 'ab"', 'abc"\\']))
    words = draw(st.lists(st.text('abc"\\', min_size=2, max_size=4), max_size=25))
    tokens: list[bytes | None] = [letter.encode() for letter in letters]
    tokens += [word.encode() for word in words]
    tokens += [b"\xc3", b"\xa4", b"\xc3\xa4", b"a\xc3", None, b"<eos>"]
    return small_vocabulary(tokens, size=len(tokens) + draw(st.integers(0, 40)), eos=[len(tokens) - 1])


@st.composite
def constraints(draw: st.DrawFn) -> tuple[Lexicon, Rules, int]:
    """Nonterminals of literals, lexemes and each other; never left-recursive, all able to end."""
    lexicon, rules = Lexicon(draw(vocabularies())), Rules()
    languages = lexicon.languages
    letters = [languages.chars(((97 + at, 97 + at),)) for at in range(3)]
    some = [
        *letters,
        languages.repeat(letters[0], 0, 3),
        languages.repeat(languages.chars(((97, 98),)), 1, None),
        languages.repeat(languages.chars(ALL), 2, 90),
        languages.concat(letters[0], languages.repeat(letters[1], 0, None), letters[2]),
        languages.intersect(languages.ANY, languages.complement(languages.literals(["", "a", "ab", "b"]))),
        languages.literals(["abc", "b", ""]),
    ]
    some = [language for language in some if language is not languages.EMPTY]  # a letter that has no token
    count = draw(st.integers(1, 5))
    literal = st.text("abc", max_size=3).map(str.encode)
    lexeme = st.builds(Lexeme, st.sampled_from(some), st.booleans())
    dependent = draw(st.booleans())
    for at in range(count):
        productions: list[Production] = [draw(st.tuples(literal, lexeme) | st.tuples(lexeme) | st.tuples(literal))]
        later: st.SearchStrategy[bytes | int] = st.integers(at + 1, count - 1) if at + 1 < count else literal
        for _ in range(draw(st.integers(0, 3))):
            recursive = st.tuples(literal.filter(bool), st.integers(0, count - 1), literal | lexeme | later)
            others = st.tuples(later, later) | st.tuples(later, literal, later) | st.just(())
            productions.append(draw(recursive | others))

        def expand(productions: list[Production] = productions) -> list[Production]:
            return productions

        if dependent and at and draw(st.booleans()):
            rules.add_dependent(expand, lambda value: None)
        else:
            rules.add(expand)
    return lexicon, rules, 0


@given(constraints(), st.randoms())
@settings(max_examples=150, deadline=None)
def test_random_rules(made: tuple[Lexicon, Rules, int], draw: random.Random) -> None:
    first, second = twins(*made, Limits(stacks=500))
    try:
        begun = first.start
    except ConstraintError:
        with pytest.raises(ConstraintError):
            _ = second.start
        return
    assert begun >= 0
    try:
        walk_together(first, second, draw, 8)
    except ConstraintError as error:  # ambiguous recursion: more stacks with every byte
        assert "more than 500 ways" in str(error)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_strings_that_differ_little(data: st.DataObject) -> None:
    """Names left out, lengths bounded: native masks are made from those of other states, or counted."""
    text = st.text('abcé"\\n, ', min_size=2, max_size=5)
    words = data.draw(st.lists(text, min_size=10, max_size=40))
    tokens = [*BYTES, *(word.encode() for word in words), b"\\u00e9", b'\\ud83d\\ude00"', b'a"', b'b",', None]
    lexicon, rules = Lexicon(small_vocabulary(tokens, eos=[len(tokens) - 1])), Rules()
    languages = lexicon.languages
    low = data.draw(st.integers(0, 4))
    length = languages.repeat(languages.chars(ALL), low, data.draw(st.none() | st.integers(low, low + 4)))
    names = data.draw(st.lists(st.text("abcé", max_size=4), max_size=5))
    other = languages.complement(languages.literals(names))
    some = [
        length,
        languages.intersect(languages.ANY, other),
        languages.intersect(length, other),
        languages.concat(length, languages.literal("b"), languages.ANY),
        languages.union(languages.concat(languages.literals(names), languages.literal("a")), languages.ANY),
        languages.concat(languages.ANY, languages.literals([*names, "ab"]), languages.ANY),
        languages.concat(languages.ANY, languages.literal("b")),
        languages.intersect(other, languages.complement(languages.repeat(languages.chars(((97, 98),)), 1, 3))),
        languages.complement(languages.concat(languages.literal("a"), languages.ANY)),
    ]
    for language in data.draw(st.permutations(some)):
        if language is languages.EMPTY:
            continue

        lexeme = Lexeme(language, data.draw(st.booleans()))

        def expand(lexeme: Lexeme = lexeme) -> list[Production]:
            return [(b'"', lexeme, b",")]

        first, second = twins(lexicon, rules, rules.add(expand))
        written = [b'"xx', b'"x', b'"', *(b'"' + name.encode()[:end] for name in names for end in range(1, 6)), b'"aa']
        for prefix in written:
            a, b = first.step(first.start, prefix), second.step(second.start, prefix)
            assert (a < 0) == (b < 0)
            if a >= 0:
                assert ids_of(second.mask(b), first.vocabulary) == ids_of(first.mask(a), first.vocabulary)


def test_masks_over_a_real_size_of_vocabulary() -> None:
    """50,000 tokens, a trie of more than 100,000 nodes: masks equal what stepping every token says."""
    draw = random.Random(5)
    syllables = ["".join(draw.choice("aeiourstnlmdé ") for _ in range(draw.randint(1, 4))) for _ in range(400)]
    words = {"".join(draw.choice(syllables) for _ in range(draw.randint(1, 4))).encode()[:12] for _ in range(70_000)}
    marks = [b'"', b'",', b'":', b'"}', b'", "', b'"}, {"', b"1", b"], [", b"\\n", b"\\u00", b', "', b': "']
    mixed = {draw.choice(marks) + word for word in draw.sample(sorted(words), 4000)}
    mixed |= {word + draw.choice(marks) for word in draw.sample(sorted(words), 4000)}
    tokens: list[bytes | None] = [*BYTES, *sorted((words | mixed | set(marks)) - set(BYTES)), None]
    vocabulary = small_vocabulary(tokens, eos=[len(tokens) - 1])
    assert vocabulary.trie.nodes > 100_000
    machine = machine_of(NativeMachine, Lexicon(vocabulary), json_rules)
    for text in (b"", b'"', b'["a', b'{"', b'{"na', b'{"name": "x', b'{"a":1', b'[{"b":[]', b'[1,{"name":"\\u00'):
        config = machine.step(machine.start, text)
        assert not differing(bits(machine.mask(config), vocabulary), brute_mask(machine, config), vocabulary)


def test_dependent_tops_are_replaced() -> None:
    lexicon, rules = Lexicon(small_vocabulary([*BYTES, b"12", b"1,2", b"2]", b",3,", None], eos=[260])), Rules()
    languages = lexicon.languages
    number = Lexeme(languages.repeat(languages.chars(((48, 57),)), 1, 3))
    rest = rules.add_dependent(lambda: [(b",", tail), (b"]",)], lambda value: close if value == b"12" else None)
    tail = rules.add(lambda: [(number, rest)])
    close = rules.add(lambda: [(b"!",)])
    start = rules.add(lambda: [(b"[", tail)])
    for machine in twins(lexicon, rules, start):
        config = machine.step(machine.start, b"[1")
        assert machine.markers(config) == (rest,)
        assert machine.step(config, b",") >= 0 and machine.step(config, b"!") < 0
        after = machine.resolved(config, {rest: close})
        assert machine.markers(after) == ()
        assert machine.step(after, b"!") >= 0 and machine.step(after, b",") < 0
        assert machine.markers(machine.step(after, b"2")) == (rest,)  # the number went on: another one closes here
        assert machine.resolved(machine.step(machine.start, b"[123"), {rest: None}) == -1
        assert machine.doubtful(machine.step(machine.start, b"[")).tolist()


def test_it_stops_at_the_deadline_and_goes_on() -> None:
    text = b'{"b": "x'
    expected = machine_of(NativeMachine, Lexicon(mixed_vocabulary()), json_rules)
    want = expected.mask(expected.step(expected.start, text))
    machine = machine_of(NativeMachine, Lexicon(mixed_vocabulary()), json_rules)
    stops = 0
    for _ in range(1000):
        machine.deadline = time.monotonic() + 0.0002
        try:
            found = machine.mask(machine.step(machine.start, text))
            break
        except Unfinished:
            stops += 1
    else:
        pytest.fail("no progress")
    assert stops > 0
    assert found.tolist() == want.tolist()


@pytest.mark.parametrize("kind", [Machine, NativeMachine])
def test_limits_are_named(kind: type[AnyMachine]) -> None:
    lexicon, rules = Lexicon(small_vocabulary([*BYTES, None], eos=[256])), Rules()

    def build(start: int, limits: Limits) -> AnyMachine:
        return kind(rules, start, lexicon.lexemes, lexicon.vocabulary, MaskCache(), "key", limits)

    left = rules.add(lambda: [(left, b"a"), (b"b",)])
    with pytest.raises(ConstraintError, match=r"nested more than 100 levels"):
        _ = build(left, Limits(depth=100)).start
    wide = rules.add(lambda: [(b"a", str(at).encode()) for at in range(50)])
    with pytest.raises(ConstraintError, match=r"more than 20 ways"):
        _ = build(wide, Limits(stacks=20)).start
    deep = rules.add(lambda: [(b"[", deep, b"]"), (b"1",)])
    machine = build(deep, Limits(nbytes=2_000_000, depth=1_000_000))
    with pytest.raises(ConstraintError, match=r"states take more than 1 MB"):
        machine.step(machine.start, b"[" * 100_000)
    machine = build(deep, Limits(depth=50))
    with pytest.raises(ConstraintError, match=r"nested more than 50"):
        machine.step(machine.start, b"[" * 100)
    assert machine.step(machine.start, b"[[1]]") >= 0  # and the machine is as it was


def test_transitions_are_dropped_and_made_again() -> None:
    lexicon, rules = Lexicon(mixed_vocabulary()), Rules()
    start, vocabulary = json_rules(lexicon, rules), lexicon.vocabulary
    arguments = (rules, start, lexicon.lexemes, vocabulary)
    small = NativeMachine(*arguments, MaskCache(20_000), "a", Limits(cells=300))
    large = NativeMachine(*arguments, MaskCache(), "b")
    draw = random.Random(1)
    for _ in range(10):
        a, b = small.start, large.start
        for _ in range(40):
            mask = large.mask(b)
            assert small.mask(a).tolist() == mask.tolist()
            chosen = [token for token in ids_of(mask, vocabulary) if vocabulary.tokens[token]]
            if not chosen:
                break
            data = vocabulary.tokens[draw.choice(chosen)]
            a, b = small.step(a, data), large.step(b, data)


def test_long_chains_are_forced_up_to_the_limit() -> None:
    lexicon = Lexicon(small_vocabulary(list(BYTES)))
    machine = machine_of(NativeMachine, lexicon, lambda _, rules: rules.add(lambda: [(b"x" * 10_000, b"y")]))
    run = machine.forced(machine.start)
    assert run == b"x" * 4096
    config = machine.step(machine.start, run)
    config = machine.step(config, machine.forced(config))
    assert machine.forced(config) == b"x" * (10_000 - 2 * 4096) + b"y"


def test_native_memory_goes_with_its_owner() -> None:
    lexicon = Lexicon(mixed_vocabulary())

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096

    def use() -> None:
        machine = machine_of(NativeMachine, lexicon, json_rules)
        machine.step(machine.start, b"[" * 5000)
        assert machine.nbytes > 100_000

    for _ in range(20):
        use()
    gc.collect()
    before = resident()
    for _ in range(200):
        use()
    gc.collect()
    assert resident() - before < 20_000_000


def test_masks_of_equal_keys_are_not_mixed_up() -> None:
    """Configurations are numbered as they are met, so another machine's numbers mean something else."""
    lexicon, masks = Lexicon(mixed_vocabulary()), MaskCache()
    first = machine_of(NativeMachine, lexicon, json_rules, cache=masks)
    second = machine_of(NativeMachine, lexicon, json_rules, cache=masks)
    texts = (b"{", b'{"b', b'{"b":1', b"[")
    for data in texts:
        first.mask(first.step(first.start, data))
    for data in reversed(texts):
        want = first.mask(first.step(first.start, data))
        assert second.mask(second.step(second.start, data)).tolist() == want.tolist()


def test_python_side_does_not_grow_with_steps() -> None:
    machine = machine_of(NativeMachine, Lexicon(mixed_vocabulary()), json_rules)
    config = machine.step(machine.start, b'{"k0":"')
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for at in range(50_000):
            machine.step(config, b"b%d" % at)
        assert tracemalloc.get_traced_memory()[0] - before < 8_000_000
    finally:
        tracemalloc.stop()


def literal_machine(length: int) -> NativeMachine:
    """One lexeme of ``length`` characters: each needs a row of its own, which Python supplies."""
    lexicon = Lexicon(small_vocabulary(list(BYTES)))
    text = ("ab c" * length)[:length]
    made = machine_of(
        NativeMachine,
        lexicon,
        lambda lex, rules: rules.add(lambda: [(Lexeme(lex.languages.regex(text), False), b"!")]),
    )
    assert isinstance(made, NativeMachine)
    return made


def test_a_forced_run_that_was_broken_off_goes_on_whatever_is_asked_between() -> None:
    machine = literal_machine(600)
    whole = ("ab c" * 150).encode()
    second = machine.step(machine.start, whole[:1])
    found: dict[int, bytes] = {}
    broken = 0
    while len(found) < 2:
        config = second if broken % 5 == 4 else machine.start
        machine.deadline = time.monotonic() + 0.001  # each turn supplies a few rows and stops
        try:
            found[config] = machine.forced(config)
        except Unfinished:
            pass
        finally:
            machine.deadline = None
        broken += 1
    assert broken > 10 and found == {machine.start: whole + b"!", second: whole[1:] + b"!"}


def test_a_long_literal_costs_no_more_a_character_than_a_short_one() -> None:
    def cost(length: int) -> float:
        machine = literal_machine(length)
        begun = time.thread_time()
        assert len(machine.forced(machine.start)) == length + 1
        return (time.thread_time() - begun) / length

    short, long = (min(cost(length) for _ in range(3)) for length in (250, 4000))
    assert long < 4 * short  # each place walked from the beginning again: 9 x at this length
