"""Multiples of a number, read digit by digit: an automaton whose liveness is arithmetic and needs no search.

::

    multiples of 7 from 10 to 99      after "3": residue 3, the text so far is inside the bounds' first digits
                                      "5" is an edge: 35 = 0 (mod 7)       "6" is none: neither 36 nor 36d is wanted

A text is ``digits`` or ``digits . digits``; its value times ``10**places`` is a whole number that must be a multiple of
``step`` and lie between ``low`` and ``high``. A prefix knows its residue and how it compares with the bounds' own
prefixes; with i digits to come it covers 10**i numbers, so whether one of them is a multiple is a division.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from .language import Edges, Language

if TYPE_CHECKING:
    from .languages import Languages

#: most integer digits; most integer digits where a fraction follows; most fraction digits
WHOLE_DIGITS, PLAIN_DIGITS, PLACES = 38, 18, 20

_POWERS = tuple(10**i for i in range(WHOLE_DIGITS + PLACES + 2))


class _State(NamedTuple):
    """``stage``: start, zero (the integer part is 0), integer, fraction, zeros (only zeros may follow).

    ``count`` digits of that stage were read. ``below`` / ``above``: how the integer digits so far compare with as
    many first digits of the bound (-1, 0, 1); in a fraction 0 means tied to the bound and 1 / -1 free of it.
    """

    stage: str
    count: int = 0
    residue: int = 0
    below: int = 0
    above: int = 0


class Multiples(Language):
    """One position; see the module."""

    def __init__(self, problem: _Problem, state: _State) -> None:
        self._problem = problem
        self._state = state
        self.accepting = problem.accepts(state)
        self.shortest = 0 if self.accepting else 1
        self.longest = problem.longest(state)

    @cached_property
    def _edges(self) -> Edges:
        merged: list[tuple[int, int, Language]] = []
        for code, state in self._problem.moves(self._state):
            target = self._problem.position(state)
            if merged and merged[-1][1] + 1 == code and merged[-1][2] is target:
                merged[-1] = (merged[-1][0], code, target)
            else:
                merged.append((code, code, target))
        return tuple(merged)

    def edges(self) -> Edges:
        return self._edges

    def capped(self, length: int) -> Language:
        return self


class _Problem:
    def __init__(self, step: int, places: int, low: int, high: int, whole: bool) -> None:
        self.step, self.places, self.low, self.high, self.whole = step, places, low, high, whole
        self.scale = _POWERS[places]
        self.lows, self.highs = str(low // self.scale), str(high // self.scale)
        self.positions: dict[_State, Multiples] = {}

    def position(self, state: _State) -> Multiples:
        found = self.positions.get(state)
        if found is None:
            found = self.positions[state] = Multiples(self, state)
        return found

    # ------------------------------------------------------------ what may still come

    def _multiple(self, residue: int, first: int, last: int, step: int) -> bool:
        """Whether residue + o is a multiple of ``step`` for some o from first to last."""
        return first <= last and first + -(residue + first) % step <= last

    def _reaches(self, count: int, residue: int, below: int, above: int, more: int) -> bool:
        """Whether ``more`` further integer digits, and a fraction where there is room for one, can make it."""
        total = count + more
        bare = self.whole or total > PLAIN_DIGITS
        power = _POWERS[more] if bare else _POWERS[more + self.places]
        first, last = 0, power - 1
        if total == len(self.lows) and below <= 0:
            if below:
                return False
            # the prefix is the bound's own, so the offset is what the bound has behind it
            low = -(-self.low // self.scale) if bare else self.low
            first = low - int(self.lows[:count]) * power
        elif total < len(self.lows):
            return False
        if total == len(self.highs) and above >= 0:
            if above:
                return False
            high = self.high // self.scale if bare else self.high
            last = min(last, high - int(self.highs[:count]) * power)
        elif total > len(self.highs):
            return False
        step = self.bare_step if bare else self.step
        return self._multiple(residue * power % step, first, last, step)

    @cached_property
    def bare_step(self) -> int:
        """What a number without a fraction must be a multiple of."""
        step = self.step
        for factor in (2, 5):
            for _ in range(self.places):
                if step % factor == 0:
                    step //= factor
        return step

    def _live(self, state: _State) -> bool:
        if state.stage == "integer":
            longest = min(WHOLE_DIGITS, len(self.highs)) - state.count
            return any(
                self._reaches(state.count, state.residue, state.below, state.above, i) for i in range(longest + 1)
            )
        if state.stage == "zero":
            return self._reaches(1, 0, state.below, state.above, 0)
        if state.stage == "zeros":
            return True
        left = self.places - state.count
        power = _POWERS[left]
        first = self.low % power if state.below == 0 else 0
        last = self.high % power if state.above == 0 else power - 1
        return self._multiple(state.residue * power % self.step, first, last, self.step)

    # ------------------------------------------------------------ the automaton

    def accepts(self, state: _State) -> bool:
        if state.stage == "zeros":
            return state.count > 0
        if state.stage == "fraction":
            power = _POWERS[self.places - state.count]
            tied = state.below == 0 and self.low % power
            return state.count > 0 and not tied and state.residue * power % self.step == 0
        if state.stage == "start" or not self._ends(state):
            return False
        tied = state.count == len(self.lows) and state.below == 0 and self.low % self.scale
        return not tied and state.residue * self.scale % self.step == 0

    def _ends(self, state: _State) -> bool:
        """Whether the integer part may end here, as far as its length and first digits go."""
        if state.count < len(self.lows) or (state.count == len(self.lows) and state.below < 0):
            return False
        return state.count < len(self.highs) or (state.count == len(self.highs) and state.above <= 0)

    def longest(self, state: _State) -> int:
        if state.stage in ("fraction", "zeros"):
            return PLACES - state.count
        return WHOLE_DIGITS + 1 - state.count + PLACES

    def moves(self, state: _State) -> list[tuple[int, _State]]:
        found = []
        if state.stage in ("zero", "integer") and not self.whole and state.count <= PLAIN_DIGITS and self._ends(state):
            below = 0 if state.count == len(self.lows) and state.below == 0 else 1
            above = 0 if state.count == len(self.highs) and state.above == 0 else -1
            point = self._fraction(0, state.residue, below, above)
            if self._live(point):
                found.append((46, point))
        if state.stage == "zeros":
            return [(48, state._replace(count=state.count + 1))] if state.count < PLACES else []
        for digit in range(10):
            target = self._digit(state, digit)
            if target is not None and self._live(target):
                found.append((48 + digit, target))
        return found

    def _digit(self, state: _State, digit: int) -> _State | None:
        residue = (state.residue * 10 + digit) % self.step
        if state.stage == "fraction":
            power = _POWERS[self.places - state.count - 1]
            below, above = state.below, state.above
            if below == 0:
                bound = self.low // power % 10
                if digit < bound:
                    return None
                below = int(digit > bound)
            if above == 0:
                bound = self.high // power % 10
                if digit > bound:
                    return None
                above = -int(digit < bound)
            return self._fraction(state.count + 1, residue, below, above)
        if state.stage == "zero" or state.count >= len(self.highs):
            return None
        at = state.count
        below = state.below or (1 if at >= len(self.lows) else _sign(digit - int(self.lows[at])))
        above = state.above or _sign(digit - int(self.highs[at]))
        if at >= len(self.lows):
            below = 1
        return _State("zero" if at == 0 and digit == 0 else "integer", at + 1, residue, below, above)

    def _fraction(self, count: int, residue: int, below: int, above: int) -> _State:
        if count >= self.places:
            # a residue other than 0 is never live, so it need not be kept
            return _State("zeros", count) if residue == 0 else _State("fraction", self.places, residue, below, above)
        power = _POWERS[self.places - count]
        if self.low % power == 0:
            below = 1
        if self.high % power == power - 1:
            above = -1
        return _State("fraction", count, residue, below, above)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


_known: WeakKeyDictionary[Languages, dict[tuple[int, int, int, int, bool], Language]] = WeakKeyDictionary()


def residues(languages: Languages, step: int, places: int, low: int, high: int, whole: bool) -> Language:
    """Unsigned texts whose value times ``10**places`` is a multiple of ``step`` from low to high; EMPTY if none is.

    ``whole``: without a fraction; else any zeros may follow the last place, up to 20 places in all.
    """
    if low > high or low + -low % step > high:
        return languages.EMPTY
    table = _known.setdefault(languages, {})
    key = (step, places, low, high, whole)
    found = table.get(key)
    if found is None:
        start = _Problem(step, places, low, high, whole).position(_State("start"))
        found = table[key] = languages.EMPTY if not start.edges() else start
    return found
