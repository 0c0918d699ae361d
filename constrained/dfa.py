"""Deterministic automata over bytes: subset construction, pruning of dead states, merging of equal ones.

::

    byte_class  uint8[256]          which column a byte uses
    table       int32[S, C]         next state, -1 where nothing that begins so is in the language
    accepting   bool[S]
    start = 0

Every state of a finished :class:`Dfa` can still reach acceptance, so a walk that meets no -1 is never a dead end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .interface import ConstraintError
from .nfa import AFTER_NEWLINE, MIDDLE, NEWLINE, START, Nfa


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one compilation. Beyond them a ConstraintError says which one, and what to write instead."""

    states: int = 100_000
    entries: int = 12_000_000  # states times byte classes: 48 MB
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Dfa:
    byte_class: NDArray[np.uint8]
    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]

    @property
    def states(self) -> int:
        return len(self.accepting)

    def matches(self, data: bytes) -> bool:
        """True if ``data`` is in the language."""
        state = 0
        for value in data:
            state = int(self.table[state, self.byte_class[value]])
            if state < 0:
                return False
        return bool(self.accepting[state])


class Budget:
    """Counts down one compilation's :class:`Limits`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.deadline = time.monotonic() + limits.seconds

    def spend(self, states: int, classes: int) -> None:
        """Called as states are made. Raises ConstraintError when a bound is passed."""
        limits = self.limits
        most = min(limits.states, limits.entries // max(classes, 1))
        if states > most:
            raise ConstraintError(
                f"the regex needs more than {most:,} automaton states; lower the counts of its repeats, or use "
                "narrower classes ([A-Za-z0-9_] or (?a)\\w instead of \\w)"
            )
        if states % 256 == 0 and time.monotonic() > self.deadline:
            raise ConstraintError(
                f"the regex takes more than {limits.seconds:g} seconds to compile; lower the counts of its repeats"
            )


def determinize(nfa: Nfa, budget: Budget) -> Dfa:
    """Subset construction over byte classes (bytes that no edge of ``nfa`` tells apart are one column)."""
    cuts = {0, 256}
    if nfa.anchors:
        cuts.update((NEWLINE, NEWLINE + 1))
    for edges in nfa.edges:
        for low, high, _ in edges:
            cuts.add(low)
            cuts.add(high + 1)
    bounds = sorted(cuts)
    column = {byte: at for at, byte in enumerate(bounds)}
    classes = len(bounds) - 1
    byte_class = np.repeat(np.arange(classes, dtype=np.uint8), np.diff(bounds))
    newline = int(byte_class[NEWLINE])

    known: dict[tuple[int, ...], int] = {}
    sets: list[tuple[int, ...]] = []

    def state(places: tuple[int, ...]) -> int:
        number = known.get(places)
        if number is None:
            number = known[places] = len(sets)
            sets.append(places)
            budget.spend(number + 1, classes)
        return number

    def state_after(targets: tuple[int, ...], at: int) -> int:
        before = AFTER_NEWLINE if at == newline else MIDDLE
        if len(targets) == 1:
            return state(nfa.closure(targets[0], before))
        places: set[int] = set()
        for target in targets:
            places.update(nfa.closure(target, before))
        return state(tuple(sorted(places)))

    state(nfa.closure(nfa.start * 4, START))
    rows: list[NDArray[np.int32]] = []
    anchored = bool(nfa.anchors)
    after: dict[int, int] = {}
    while len(rows) < len(sets):
        row = np.full(classes, -1, np.int32)
        places = sets[len(rows)]
        moves = [move for place in places for move in nfa.moves(place)]
        if len(places) == 1 and not anchored:  # one node's edges never overlap
            for low, high, target in moves:
                number = after.get(target)
                if number is None:
                    number = after[target] = state_after((target,), -1)
                row[column[low] : column[high + 1]] = number
        elif moves:
            reached: list[list[int]] = [[] for _ in range(classes)]
            for low, high, target in moves:
                for at in range(column[low], column[high + 1]):
                    reached[at].append(target)
            local: dict[tuple[tuple[int, ...], bool], int] = {}
            for at, targets in enumerate(reached):
                if targets:
                    key = (tuple(targets), at == newline)
                    number = local.get(key)
                    if number is None:
                        number = local[key] = state_after(key[0], at)
                    row[at] = number
        rows.append(row)
    accepting = np.array([any(map(nfa.accepts, places)) for places in sets], bool)
    return Dfa(byte_class, np.stack(rows), accepting)


def prune(dfa: Dfa) -> Dfa | None:
    """Without states that cannot reach acceptance or cannot be reached; None if the language is empty."""
    states = dfa.states
    edges = dfa.table >= 0
    edges[:, 1:] &= dfa.table[:, 1:] != dfa.table[:, :-1]  # one edge for a run of classes
    source, at = np.nonzero(edges)
    target = dfa.table[source, at].astype(np.int64)
    live = _reach(states, np.flatnonzero(dfa.accepting), target, source)
    if not live[0]:
        return None
    kept = live[source] & live[target]
    live &= _reach(states, np.array([0]), source[kept], target[kept])
    if live.all():
        return dfa
    number = np.full(states + 1, -1, np.int32)
    number[:-1][live] = np.arange(live.sum(), dtype=np.int32)
    return Dfa(dfa.byte_class, number[dfa.table[live]], dfa.accepting[live])


def merge_equal(dfa: Dfa, rounds: int = 64) -> Dfa:
    """Merge states that accept alike and go to the same states, until nothing changes (or ``rounds`` are over).

    Each round is sound by itself. States that are equal only because of a cycle stay apart: a mask may then be
    computed twice, which is cheaper than full minimization of long counted repeats.
    """
    table, accepting = dfa.table, dfa.accepting
    for _ in range(rounds):
        first, group = _equal_rows(np.column_stack([table, accepting.astype(np.int32)]))
        if len(first) == len(table):
            break
        number = np.append(group, -1).astype(np.int32)
        table, accepting = number[table[first]], accepting[first]
    # columns that no state tells apart
    first, column = _equal_rows(table.T)
    return Dfa(column.astype(np.uint8)[dfa.byte_class], np.ascontiguousarray(table[:, first], np.int32), accepting)


def _equal_rows(rows: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(first row of each group of equal rows, group of each row); groups are numbered by first appearance.

    Rows are told apart by a seeded 64-bit hash and then compared, so that a collision costs a merge, never the truth.
    """
    factors = np.random.default_rng(0).integers(-(2**63), 2**63, rows.shape[1], np.int64)
    hashes = rows.astype(np.int64) @ factors
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    first, group = first[order], rank[group.reshape(-1)]
    if not np.array_equal(rows, rows[first[group]]):
        every = np.arange(len(rows))
        return every, every
    return first, group


def _reach(
    states: int, start: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """States reached from ``start`` along edges source -> target."""
    order = np.argsort(source, kind="stable")
    following = np.asarray(target)[order]
    first = np.searchsorted(np.asarray(source)[order], np.arange(states + 1))
    seen = np.zeros(states, bool)
    seen[start] = True
    todo: list[int] = start.tolist()
    while todo:
        here = todo.pop()
        for there in following[first[here] : first[here + 1]].tolist():
            if not seen[there]:
                seen[there] = True
                todo.append(there)
    return seen
