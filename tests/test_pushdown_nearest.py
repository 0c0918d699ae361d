"""The shortest way to the end of a text, on both machines: as long as it says, it leads there, nothing is shorter."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from pushdown_kit import MACHINES, AnyMachine, bits, json_rules, machine_of, mixed_vocabulary

from plait.constrained.interface import Unfinished
from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown.lexemes import LexemeTable
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.nearest import FAR, Nearest
from plait.constrained.pushdown.rules import Lexeme, Rules


def made(kind: type[AnyMachine], *, pattern: str | None = None) -> AnyMachine:
    def one_lexeme(lexicon: Lexicon, rules: Rules) -> int:
        assert pattern is not None
        lexeme = Lexeme(lexicon.languages.regex(pattern, "python"))
        return rules.add(lambda: [(lexeme,)])

    return machine_of(kind, Lexicon(mixed_vocabulary()), json_rules if pattern is None else one_lexeme)


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize(
    ("pattern", "shortest"), [("abc", 3), ("(ab){3}x*", 6), ('"[^"]{4,9}"', 6), ("a|bb|", 0), ("[0-9]{600}", 600)]
)
def test_distances_of_patterns(kind: type[AnyMachine], pattern: str, shortest: int) -> None:
    machine = made(kind, pattern=pattern)
    nearest = Nearest(machine)
    assert nearest.distance(machine.start) == shortest
    way_out = nearest.way_out(machine.start, 1000)
    assert way_out is not None and (len(b"".join(way_out.pieces)), way_out.beyond) == (shortest, 0)
    assert nearest.distance(-1) == FAR
    rough = Nearest(machine, 10, 5)  # estimated from the expression: never too large
    assert rough.distance(machine.start) <= shortest


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("seed", range(5))
def test_the_way_out_of_any_text(kind: type[AnyMachine], seed: int) -> None:
    draw = random.Random(seed)
    constraint = PushdownConstraint(made(kind))
    matcher, machine = constraint.matcher(), constraint.machine
    nearest = Nearest(machine)
    for _ in range(40):
        distance = nearest.distance(matcher.config)
        way_out = matcher.completion(distance)
        assert way_out is not None and not way_out.beyond
        text = b"".join(way_out.pieces)
        assert len(text) == distance
        assert matcher.completion(distance - 1) is None or not distance
        ended = matcher.fork()
        assert ended.advance_bytes(text) and ended.accepting
        tokens = np.flatnonzero(bits(matcher.mask(), machine.vocabulary)).tolist()
        texts = [token for token in tokens if machine.vocabulary.tokens[token]]
        if not texts:
            break
        token = draw.choice(texts)
        assert matcher.advance(token)
        spelled = machine.vocabulary.tokens[token]
        assert spelled is not None and nearest.distance(matcher.config) >= distance - len(spelled)


@pytest.mark.parametrize("kind", MACHINES)
def test_the_search_stops_at_its_deadline_and_goes_on(kind: type[AnyMachine]) -> None:
    constraint = PushdownConstraint(made(kind, pattern="([ab]{3}[^a]){40}z"))
    matcher = constraint.matcher()
    stopped, way_out = 0, None
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            way_out = matcher.completion(1000, 0.0005)
            break
        except Unfinished:
            stopped += 1
    assert way_out is not None and len(b"".join(way_out.pieces)) == 161 and stopped
    assert constraint.machine.deadline is None
    assert constraint.nbytes > constraint.machine.nbytes, "what is remembered is counted"


@pytest.mark.parametrize("kind", MACHINES)
def test_a_machine_looks_at_so_many_states_and_no_more(kind: type[AnyMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    """From each state of a lexeme of many another few hundred would be found, and so on through all of them."""
    machine = made(kind, pattern="([ab]*a[ab]{12}c){2}")
    nearest = Nearest(machine, 10, 20)
    draw, filled = random.Random(1), 0
    fill = LexemeTable.fill

    def counted(self: LexemeTable, state: int) -> None:
        nonlocal filled
        filled += 1
        fill(self, state)

    config = machine.start
    for _ in range(300):
        config = machine.step(config, draw.choice((b"a", b"b")))
        with monkeypatch.context() as patch:
            patch.setattr(LexemeTable, "fill", counted)
            assert nearest.distance(config) < FAR
    assert 20 <= filled <= 80
