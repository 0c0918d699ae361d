"""Lookahead anywhere in a regex: subset construction over places that carry obligations.

Passing ``(?=X)`` starts a second automaton for ``X`` followed by anything, which from then on reads the same bytes as
the main one; the place carries that automaton's state as an obligation. It is met once X has matched, broken once its
state is empty, and otherwise decided where the text ends; ``(?!X)`` the other way round. A state is a set of places
with their obligations, so the construction stays exact in loops and for lookaheads inside lookaheads.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .dfa import Budget, Dfa
from .nfa import AFTER_NEWLINE, ENDED, FREE, MIDDLE, NEWLINE, START, Nfa

#: (number of the lookahead in its Nfa, negative, state of its own automaton)
Obligation = tuple[int, bool, "State"]
#: a place, and all that must also hold of the text from here
Config = tuple[int, frozenset[Obligation]]
State = frozenset[Config]

_NONE: frozenset[Obligation] = frozenset()


class _Subsets:
    """States of one Nfa, and of those of its lookaheads."""

    def __init__(self, nfa: Nfa) -> None:
        self.nfa = nfa
        self.inner = [_Subsets(inner) for inner in nfa.look_bodies]
        self._steps: dict[tuple[State, int], State] = {}
        self._closures: dict[tuple[Config, int], State] = {}
        self._cuts: dict[State, frozenset[int]] = {}

    def start(self, before: int) -> State:
        return self.close((self.nfa.start * 4, _NONE), before)

    def close(self, config: Config, before: int) -> State:
        """What ``config`` reaches by reading nothing."""
        found = self._closures.get((config, before))
        if found is None:
            found = self._closures[config, before] = self._close(config, before)
        return found

    def _close(self, config: Config, before: int) -> State:
        nfa = self.nfa
        seen = {config}
        todo = [config]
        kept = set()
        while todo:
            here = place, duties = todo.pop()
            node, mode = divmod(place, 4)
            if (mode != ENDED and nfa.edges[node]) or nfa.accepts(place):
                kept.add(here)
            following = [(there, duties) for there in nfa.passes(place, before)]
            look = nfa.looks.get(node)
            if look:
                number, negative, target = look
                more = self.judge(duties, number, negative, self.inner[number].start(before))
                if more is not None:
                    following.append((target * 4 + mode, more))
            for there in following:
                if there not in seen:
                    seen.add(there)
                    todo.append(there)
        return frozenset(kept)

    def judge(
        self, duties: frozenset[Obligation], number: int, negative: bool, state: State
    ) -> frozenset[Obligation] | None:
        """``duties`` with one more, unless it is already decided; None if it is broken."""
        matched = self.inner[number].has_matched(state)
        if matched or not state:
            return duties if matched != negative else None
        return duties | {(number, negative, state)}

    def has_matched(self, state: State) -> bool:
        """The lookahead's body is complete, whatever follows."""
        return (self.nfa.accept * 4 + FREE, _NONE) in state

    def accepts(self, state: State) -> bool:
        """The text may end here."""
        return any(
            self.nfa.accepts(place)
            and all(self.inner[number].accepts(inner) != negative for number, negative, inner in duties)
            for place, duties in state
        )

    def cuts(self, state: State) -> frozenset[int]:
        """Bytes where the step out of ``state`` may change."""
        found = self._cuts.get(state)
        if found is None:
            made: set[int] = set()
            for place, duties in state:
                for low, high, _ in self.nfa.moves(place):
                    made.add(low)
                    made.add(high + 1)
                for number, _, inner in duties:
                    made |= self.inner[number].cuts(inner)
            found = self._cuts[state] = frozenset(made)
        return found

    def step(self, state: State, byte: int) -> State:
        found = self._steps.get((state, byte))
        if found is None:
            found = self._steps[state, byte] = self._step(state, byte)
        return found

    def _step(self, state: State, byte: int) -> State:
        before = AFTER_NEWLINE if byte == NEWLINE else MIDDLE
        reached: set[Config] = set()
        for place, duties in state:
            targets = [target for low, high, target in self.nfa.moves(place) if low <= byte <= high]
            if not targets:
                continue
            kept = self._carry(duties, byte)
            if kept is not None:
                for target in targets:
                    reached |= self.close((target, kept), before)
        return frozenset(reached)

    def _carry(self, duties: frozenset[Obligation], byte: int) -> frozenset[Obligation] | None:
        """``duties`` after ``byte``; None if one is broken."""
        kept = _NONE
        for number, negative, inner in duties:
            more = self.judge(kept, number, negative, self.inner[number].step(inner, byte))
            if more is None:
                return None
            kept = more
        return kept


def determinize_with_lookaheads(nfa: Nfa, budget: Budget) -> Dfa:
    """As :func:`.dfa.determinize`, for an Nfa with lookaheads; slower, so used only there."""
    edges = {0, NEWLINE, NEWLINE + 1, 256}
    cuts = set(edges)
    todo = [nfa]
    while todo:
        here = todo.pop()
        todo.extend(here.look_bodies)
        cuts.update(cut for moves in here.edges for low, high, _ in moves for cut in (low, high + 1))
    bounds = sorted(cuts)
    byte_class = np.repeat(np.arange(len(bounds) - 1, dtype=np.uint8), np.diff(bounds))
    column = {byte: at for at, byte in enumerate(bounds)}
    subsets = _Subsets(nfa)
    states = [subsets.start(START)]
    known = {states[0]: 0}
    rows: list[list[int]] = []
    while len(rows) < len(states):
        state = states[len(rows)]
        row: list[int] = []
        for low, high in pairwise(sorted(subsets.cuts(state) | edges)):
            following = subsets.step(state, low)
            number = known.get(following, -1)
            if number < 0 and following:
                number = known[following] = len(states)
                states.append(following)
                budget.spend(number + 1, len(bounds) - 1)
            row.extend([number] * (column[high] - column[low]))
        rows.append(row)
    return Dfa(byte_class, np.array(rows, np.int32), np.array([subsets.accepts(state) for state in states], bool))
