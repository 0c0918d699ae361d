"""The machine, in Python and in native code: exact masks, forced runs, limits, deadlines, memory."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from pushdown_kit import (
    MACHINES,
    AnyMachine,
    bits,
    brute_mask,
    differing,
    json_rules,
    just,
    machine_of,
    mixed_vocabulary,
    small_vocabulary,
    wander,
)

from plait.constrained.interface import ConstraintError, Unfinished
from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown.machine import Machine
from plait.constrained.pushdown.rules import Lexeme, Rules
from plait.constrained.pushdown.stacks import Limits

every = pytest.mark.parametrize("kind", MACHINES)
VOCABULARY = mixed_vocabulary()


def check_mask(machine: AnyMachine, config: int, text: bytes = b"") -> None:
    got = bits(machine.mask(config), machine.vocabulary)
    want = brute_mask(machine, config)
    assert np.array_equal(got, want), f"after {text!r}: {differing(got, want, machine.vocabulary)[:9]}"


@every
@pytest.mark.parametrize("seed", range(12))
def test_masks_are_what_stepping_says(kind: type[AnyMachine], seed: int) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    for text, config in wander(machine, seed, 40):
        check_mask(machine, config, text)
        assert machine.step(machine.start, text) == config
        if run := machine.forced(config):
            assert not machine.accepting(config)
            assert machine.step(config, run) >= 0
            for end in range(len(run)):
                there = machine.step(config, run[:end])
                others = [value for value in range(256) if machine.step(there, bytes((value,))) >= 0]
                assert others == [run[end]]


@every
@pytest.mark.parametrize(
    "text", ['{"name": "é😀", "b": [1, {"a": -7}], "": null}', '"\\u00e9\\ud83d\\ude00\\n"', "[[], [true]]"]
)
def test_json_texts(kind: type[AnyMachine], text: str) -> None:
    json.loads(text)
    machine = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    config = machine.step(machine.start, text.encode())
    assert config >= 0 and machine.accepting(config) and machine.last(config)
    for end in range(len(text.encode())):
        there = machine.step(machine.start, text.encode()[:end])
        assert there >= 0 and not machine.last(there)
        check_mask(machine, there, text.encode()[:end])


@every
@pytest.mark.parametrize("text", ['{"a": "x"', "01", "[1,]", '{"name": ""', '"\\ud800"', "{,", "tru]", '{"a" 1'])
def test_what_is_not_allowed(kind: type[AnyMachine], text: str) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    assert machine.step(machine.start, text.encode()) == -1
    assert machine.step(-1, b"x") == -1


def test_both_machines_agree_on_every_mask() -> None:
    lexicon = Lexicon(VOCABULARY)
    reference = machine_of(Machine, lexicon, json_rules, "reference")
    others = [machine_of(kind, lexicon, json_rules, f"{kind.__name__}") for kind in MACHINES]
    for seed in range(20, 40):
        for text, config in wander(reference, seed, 60):
            for machine in others:
                there = machine.step(machine.start, text)
                assert np.array_equal(machine.mask(there), reference.mask(config)), text
                assert machine.forced(there) == reference.forced(config), text
                assert machine.accepting(there) == reference.accepting(config)
                assert machine.last(there) == reference.last(config)


@every
def test_end_tokens_and_padding(kind: type[AnyMachine]) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), just((b"1",), (b"1a",)))
    assert not bits(machine.mask(machine.start), VOCABULARY)[list(VOCABULARY.eos_ids)].any()
    config = machine.step(machine.start, b"1")
    assert machine.accepting(config) and not machine.last(config)
    allowed = np.flatnonzero(bits(machine.mask(config), VOCABULARY)).tolist()
    assert sorted(VOCABULARY.tokens[token] for token in allowed) == [b"", b"", b"a", b"a"]  # two ends, two ids for "a"
    assert machine.forced(config) == b""
    config = machine.step(config, b"a")
    assert machine.last(config)
    assert np.flatnonzero(bits(machine.mask(config), VOCABULARY)).tolist() == list(VOCABULARY.eos_ids)


@every
def test_masks_are_kept_and_read_only(kind: type[AnyMachine]) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    mask = machine.mask(machine.start)
    assert machine.mask(machine.start) is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = 1


@every
def test_far_away_bounds_share_one_mask(kind: type[AnyMachine]) -> None:
    """A bounded string is as cheap as a free one while its end is further away than the longest token."""
    lexicon = Lexicon(VOCABULARY)

    def build(lexicon: Lexicon, rules: Rules) -> int:
        text = lexicon.languages.repeat(lexicon.languages.chars(((32, 126),)), 0, 1000)
        return rules.add(lambda: [(b'"', Lexeme(text, True))])

    machine = machine_of(kind, lexicon, build)
    at = machine.step(machine.start, b'"abc')
    mask = machine.mask(at)
    for _ in range(500):
        at = machine.step(at, b"x")
        assert machine.mask(at) is mask
    at = machine.step(machine.start, b'"' + b"x" * 995)
    assert machine.mask(at) is not mask
    check_mask(machine, at)


@every
def test_hundreds_of_keys(kind: type[AnyMachine]) -> None:
    def build(lexicon: Lexicon, rules: Rules) -> int:
        ends = [just((f"{at}".encode(),))(lexicon, rules) for at in range(700)]
        return rules.add(lambda: [(f'"key{at:03}":'.encode(), ends[at]) for at in range(700)])

    machine = machine_of(kind, Lexicon(VOCABULARY), build)
    assert machine.forced(machine.start) == b'"key'
    began = time.monotonic()
    machine.mask(machine.start)
    config = machine.step(machine.start, b'"key31')
    assert machine.forced(config) == b""
    assert machine.forced(machine.step(config, b"5")) == b'":315'
    check_mask(machine, config)
    assert time.monotonic() - began < 1


@every
def test_a_byte_without_a_token_never_comes(kind: type[AnyMachine]) -> None:
    """Only what single tokens spell is allowed, so that there is always a token to go on with."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = small_vocabulary([*(c.encode() for c in letters), b'"', b"x1", b"\xc3\xa9", b"", b"\xc3"], eos=(29,))
    lexicon = Lexicon(vocabulary)
    free = Lexeme(lexicon.languages.ANY, True)
    machine = machine_of(kind, lexicon, just((b'"', free), (b"1",)))
    config = machine.start
    for text, config in wander(machine, 3, 30):
        check_mask(machine, config, text)
        assert bits(machine.mask(config), vocabulary).any()
    assert machine.step(machine.start, b"1") == -1
    assert machine.step(machine.start, b'"\xc3') == -1  # no continuation byte has a token
    assert machine.step(machine.start, b'"\\') == -1  # nor the digits of escapes
    with pytest.raises(ConstraintError, match="vocabulary"):
        _ = machine_of(kind, lexicon, just((Lexeme(lexicon.languages.EMPTY),))).start


@every
def test_too_many_readings_are_refused_by_name(kind: type[AnyMachine]) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), just(*((b"x%d" % at,) for at in range(70_000))))
    with pytest.raises(ConstraintError, match="ways"):
        machine.step(machine.start, b"x")


@every
def test_left_recursion_ends_with_an_error(kind: type[AnyMachine]) -> None:
    def build(lexicon: Lexicon, rules: Rules) -> int:
        at = rules.add(lambda: [(at, b"x"), (b"y",)])
        return at

    with pytest.raises(ConstraintError, match=r"left.recursive|ways|deep"):
        machine = machine_of(kind, Lexicon(VOCABULARY), build)
        machine.step(machine.start, b"y")


@every
def test_depth_is_bounded(kind: type[AnyMachine]) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    config = machine.step(machine.start, b"[" * 2000)
    assert config >= 0
    with pytest.raises(ConstraintError, match="deep"):
        machine.step(config, b"[" * 100_000)
    assert machine.step(config, b"]" * 2000) >= 0


@every
def test_work_stops_at_the_deadline_and_goes_on(kind: type[AnyMachine]) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    config = machine.step(machine.start, b'{"name": "')
    calls = 0
    while True:
        machine.deadline = time.monotonic() + 0.0001
        calls += 1
        assert calls < 100_000
        try:
            mask = machine.mask(config)
            run = machine.forced(config)
            break
        except Unfinished:
            continue
    machine.deadline = None
    assert calls > 1
    assert run == b""
    fresh = machine_of(kind, Lexicon(VOCABULARY), json_rules)
    assert np.array_equal(fresh.mask(fresh.step(fresh.start, b'{"name": "')), mask)


def test_transitions_are_dropped_past_their_bound() -> None:
    lexicon = Lexicon(VOCABULARY)
    rules = Rules()
    start = json_rules(lexicon, rules)
    machine = Machine(rules, start, lexicon.lexemes, VOCABULARY, lexicon.masks, "dropped", Limits(cells=200))
    other = machine_of(Machine, lexicon, json_rules, "kept")
    for seed in range(4):
        for text, config in wander(machine, seed, 30):
            assert machine.step(machine.start, text) == config
            there = other.step(other.start, text)
            assert np.array_equal(machine.mask(config), other.mask(there))
            assert machine.forced(config) == other.forced(there)


def test_memory_is_bounded_by_name() -> None:
    lexicon = Lexicon(VOCABULARY)
    rules = Rules()
    start = json_rules(lexicon, rules)
    machine = Machine(rules, start, lexicon.lexemes, VOCABULARY, lexicon.masks, "small", Limits(nbytes=200_000))
    with pytest.raises(ConstraintError, match="MB"):
        machine.step(machine.start, b"[" * 5000)


@every
def test_forced_runs_of_any_length(kind: type[AnyMachine]) -> None:
    machine = machine_of(kind, Lexicon(VOCABULARY), just((b"x" * 10_000 + b"y",), (b"x" * 10_000 + b"z",)))
    run, at = b"", machine.start
    while piece := machine.forced(at):
        run += piece
        at = machine.step(at, piece)
    assert run == b"x" * 10_000
    assert machine.nbytes > 0


@every
def test_what_is_kept_of_forced_runs_is_bounded(kind: type[AnyMachine]) -> None:
    lexicon, rules = Lexicon(VOCABULARY), Rules()
    start = just((b"x" * 3_000,))(lexicon, rules)
    limits = Limits(kept=20_000)
    machine = kind(rules, start, lexicon.lexemes, VOCABULARY, lexicon.masks, "kept", limits)
    at, before = machine.start, 0
    for left in range(3_000, 0, -1):
        assert machine.forced(at) == b"x" * left
        at = machine.step(at, b"x")
        if left == 2_000:
            before = machine.nbytes
    assert machine.nbytes - before < 2_000 * 1_200, "2 MB of runs were asked for since, and each has a config"


@every
def test_machines_of_one_name_keep_their_masks_apart(kind: type[AnyMachine]) -> None:
    """The same constraint compiled again meets its texts in another order, so its configs have other numbers."""
    lexicon = Lexicon(VOCABULARY)
    texts = [b"[1", b'{"na', b'"x', b"-", b"[[]"]
    for order in (texts, texts[::-1], texts[2:] + texts[:2]):
        machine = machine_of(kind, lexicon, json_rules, "same", lexicon.masks)
        for text in order:
            check_mask(machine, machine.step(machine.start, text), text)
