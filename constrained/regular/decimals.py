"""Unsigned decimals within bounds, read digit by digit: an automaton whose liveness is arithmetic and needs no search.

::

    multiples of 7 from 10 to 99      after "3": residue 3, the text so far is inside the bounds' first digits
                                      "5" is an edge: 35 = 0 (mod 7)       "6" is none: neither 36 nor 36d is wanted

A plain text is ``digits`` or ``digits . digits``: its value times ``10**places`` is a whole number that must be a
multiple of ``step`` and lie between ``low`` and ``high``. A prefix knows its residue and how it compares with the
bounds' own prefixes; with i digits to come it covers 10**i numbers, so whether one is a multiple is a division.

A scientific text is ``d.ddd e ±ddd`` with d from 1 to 9: its mantissa is compared with those of the bounds, which
decides what exponents may follow. Both readings run side by side until the text decides for one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from .language import Edges, Language

#: most integer digits; most integer digits where a fraction follows; most fraction digits; those of a mantissa
WHOLE_DIGITS, PLAIN_DIGITS, PLACES, MANTISSA_PLACES = 38, 18, 20, 17
#: what scientific texts reach: the ends of the 64-bit floats
LARGEST, SMALLEST = Fraction(17976931348623157 * 10**292), Fraction(5, 10**324)

POWERS: tuple[int, ...] = tuple(10**i for i in range(WHOLE_DIGITS + PLACES + 2))


class Plain(NamedTuple):
    """``stage``: start, zero (the integer part is 0), integer, fraction, zeros (only zeros may follow).

    ``read`` digits of that stage were read. ``below`` / ``above``: how the integer digits so far compare with as
    many first digits of the bound (-1, 0, 1); in a fraction 0 means tied to the bound and 1 / -1 free of it.
    """

    stage: str
    read: int = 0
    residue: int = 0
    below: int = 0
    above: int = 0


class Mantissa(NamedTuple):
    """``read`` fraction digits there are (-1: nothing yet; ``point``: the point was), and how they compare."""

    read: int
    point: bool
    below: int
    above: int


State = tuple[Plain | None, Mantissa | None]

START = Plain("start")


class Position(Language):
    """One position of :class:`Decimals`; see the module."""

    __slots__ = ("_edges", "_state", "accepting", "decimals", "longest", "shortest")

    def __init__(self, decimals: Decimals, state: State) -> None:
        self.decimals = decimals
        self._state = state
        self._edges: Edges | None = None
        plain, mantissa = state
        self.accepting = plain is not None and decimals.accepts(plain)
        self.shortest = 0 if self.accepting else 1
        longest = 0 if plain is None else decimals.longest(plain)
        self.longest = longest if mantissa is None else max(longest, MANTISSA_PLACES + 7 - mantissa.read)

    def edges(self) -> Edges:
        edges = self._edges
        if edges is None:
            merged: list[tuple[int, int, Language]] = []
            for code, target in self.decimals.moves(self._state):
                if merged and merged[-1][1] + 1 == code and merged[-1][2] is target:
                    merged[-1] = (merged[-1][0], code, target)
                else:
                    merged.append((code, code, target))
            edges = self._edges = tuple(merged)
        return edges

    def capped(self, length: int) -> Language:
        return self


class Decimals:
    """Unsigned texts. ``low`` and ``high`` are in units of 10**-places, None: no plain text at all.

    ``whole``: without a fraction. ``scientific``: bounds of the scientific texts, None: none of those.
    ``exponents``: the language of the exponents from least to most. ``free``: the decimals without bounds, whose
    positions are shared by all others where the bounds do not matter any more; None: this is it.
    """

    def __init__(
        self,
        plain: tuple[int, int] | None,
        step: int,
        places: int,
        whole: bool,
        scientific: tuple[Fraction, bool, Fraction, bool] | None,
        exponents: Callable[[int, int], Language],
        free: Decimals | None,
    ) -> None:
        self.step, self.places, self.whole = step, places, whole
        self.scale = POWERS[places]
        if plain is not None and plain[0] + -plain[0] % step > plain[1]:
            plain = None
        self.plain = plain is not None
        self.low, self.high = plain or (0, 0)
        self.lows, self.highs = str(self.low // self.scale), str(self.high // self.scale)
        self.exponents = exponents
        self.free = free if step == 1 and places == PLACES and not whole else None
        self.unbounded = self.high >= POWERS[WHOLE_DIGITS + places] - 1
        self.positions: dict[State, Position] = {}
        self._bare_step = 0
        self.scientific = False
        self.least: tuple[int, str] = (0, "")
        self.most: tuple[int, str] = (0, "")
        if scientific is not None:
            self._scientific(*scientific)

    def start(self) -> Position | None:
        """Where a text begins; None if there is none."""
        mantissa = Mantissa(-1, False, 0, 0) if self.scientific else None
        found = self.position((START if self.plain else None, mantissa))
        return found if found.edges() else None

    def position(self, state: State) -> Position:
        plain, mantissa = state
        if mantissa is None and plain is not None and self.free is not None and self._is_free(plain):
            return self.free.position((plain._replace(below=1, above=-1), None))
        found = self.positions.get(state)
        if found is None:
            found = self.positions[state] = Position(self, state)
        return found

    def _is_free(self, plain: Plain) -> bool:
        if plain.stage == "fraction":
            return plain.below > 0 and plain.above < 0
        if plain.stage == "integer":
            over = plain.read > len(self.lows) or (plain.read == len(self.lows) and plain.below > 0)
            return over and self.unbounded
        return plain.stage == "zeros" and self.places == PLACES

    # ------------------------------------------------------------ what may still come

    def _multiple(self, residue: int, first: int, last: int, step: int) -> bool:
        """Whether residue + o is a multiple of ``step`` for some o from first to last."""
        return first <= last and (step == 1 or first + (-residue - first) % step <= last)

    def _reaches(self, plain: Plain, more: int) -> bool:
        """Whether ``more`` further integer digits, and a fraction where there is room for one, can make it."""
        count, total = plain.read, plain.read + more
        bare = self.whole or total > PLAIN_DIGITS
        power = POWERS[more] if bare else POWERS[more + self.places]
        first, last = 0, power - 1
        if total <= len(self.lows) and plain.below <= 0:
            if plain.below or total < len(self.lows):
                return False
            # the prefix is the bound's own, so the offset is what the bound has behind it
            low = -(-self.low // self.scale) if bare else self.low
            first = low - int(self.lows[:count]) * power
        elif total < len(self.lows):
            return False
        if total >= len(self.highs) and plain.above >= 0:
            if plain.above or total > len(self.highs):
                return False
            high = self.high // self.scale if bare else self.high
            last = min(last, high - int(self.highs[:count]) * power)
        elif total > len(self.highs):
            return False
        if self.step == 1 and not self.places:
            return first <= last
        step = self.bare_step if bare else self.step
        return self._multiple(plain.residue * power % step, first, last, step)

    @property
    def bare_step(self) -> int:
        """What a number without a fraction must be a multiple of."""
        if not self._bare_step:
            step = self.step
            for factor in (2, 5):
                for _ in range(self.places):
                    if step % factor:
                        break
                    step //= factor
            self._bare_step = step
        return self._bare_step

    def _live(self, plain: Plain) -> bool:
        if plain.stage == "integer":
            shortest = max(len(self.lows) - plain.read, 0)
            longest = min(WHOLE_DIGITS, len(self.highs)) - plain.read
            return any(self._reaches(plain, more) for more in range(shortest, longest + 1))
        if plain.stage == "zero":
            return self._reaches(plain, 0)
        if plain.stage == "zeros":
            return True
        power = POWERS[self.places - plain.read]
        first = self.low % power if plain.below == 0 else 0
        last = self.high % power if plain.above == 0 else power - 1
        return self._multiple(plain.residue * power % self.step, first, last, self.step)

    # ------------------------------------------------------------ plain texts

    def accepts(self, plain: Plain) -> bool:
        if plain.stage == "zeros":
            return plain.read > 0
        if plain.stage == "fraction":
            power = POWERS[self.places - plain.read]
            tied = plain.below == 0 and self.low % power
            return plain.read > 0 and not tied and plain.residue * power % self.step == 0
        if plain.stage == "start" or not self._ends(plain):
            return False
        tied = plain.read == len(self.lows) and plain.below == 0 and self.low % self.scale
        return not tied and plain.residue * self.scale % self.step == 0

    def _ends(self, plain: Plain) -> bool:
        """Whether the integer part may end here, as far as its length and first digits go."""
        if plain.read < len(self.lows) or (plain.read == len(self.lows) and plain.below < 0):
            return False
        return plain.read < len(self.highs) or (plain.read == len(self.highs) and plain.above <= 0)

    def longest(self, plain: Plain) -> int:
        if plain.stage in ("fraction", "zeros"):
            return PLACES - plain.read
        digits = min(WHOLE_DIGITS, len(self.highs)) - plain.read
        return digits if self.whole else max(digits, min(digits, max(PLAIN_DIGITS - plain.read, 0)) + 1 + PLACES)

    def moves(self, state: State) -> list[tuple[int, Language]]:
        """(code point, target) in ascending order."""
        plain, mantissa = state
        found: list[tuple[int, Language]] = []
        plain_point = self._point(plain) if plain is not None else None
        mantissa_point = mantissa is not None and mantissa.read == 0 and not mantissa.point
        if plain_point is not None or mantissa_point:
            after = mantissa._replace(point=True) if mantissa is not None and mantissa_point else None
            found.append((46, self.position((plain_point, after))))
        for digit in range(10):
            next_plain = self._digit(plain, digit) if plain is not None else None
            next_mantissa = self._mantissa_digit(mantissa, digit) if mantissa is not None else None
            if next_plain is not None or next_mantissa is not None:
                found.append((48 + digit, self.position((next_plain, next_mantissa))))
        exponents = self._exponents(mantissa) if mantissa is not None else None
        if exponents is not None:
            found += [(69, exponents), (101, exponents)]
        return found

    def _point(self, plain: Plain) -> Plain | None:
        if self.whole or plain.stage not in ("zero", "integer") or plain.read > PLAIN_DIGITS or not self._ends(plain):
            return None
        below = 0 if plain.read == len(self.lows) and plain.below == 0 else 1
        above = 0 if plain.read == len(self.highs) and plain.above == 0 else -1
        return self._fraction(0, plain.residue, below, above)

    def _digit(self, plain: Plain, digit: int) -> Plain | None:
        """What follows one more digit; None if nothing does."""
        if plain.stage == "zeros":
            return plain._replace(read=plain.read + 1) if digit == 0 and plain.read < PLACES else None
        residue = (plain.residue * 10 + digit) % self.step if self.step > 1 else 0
        below, above = plain.below, plain.above
        if plain.stage == "fraction":
            power = POWERS[self.places - plain.read - 1]
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
            return self._fraction(plain.read + 1, residue, below, above)
        at = plain.read
        if plain.stage == "zero" or at >= len(self.highs):
            return None
        if at >= len(self.lows):
            below = 1
        elif below == 0:
            below = _sign(digit - int(self.lows[at]))
        if above == 0:
            above = _sign(digit - int(self.highs[at]))
        found = Plain("zero" if at == 0 and digit == 0 else "integer", at + 1, residue, below, above)
        return found if self._live(found) else None

    def _fraction(self, count: int, residue: int, below: int, above: int) -> Plain | None:
        if count >= self.places:
            return Plain("zeros", count) if residue == 0 else None
        power = POWERS[self.places - count]
        if below == 0 and self.low % power == 0:
            below = 1
        if above == 0 and self.high % power == power - 1:
            above = -1
        found = Plain("fraction", count, residue, below, above)
        return found if self.step == 1 or self._live(found) else None

    # ------------------------------------------------------------ scientific texts

    def _scientific(self, low: Fraction, low_open: bool, high: Fraction, high_open: bool) -> None:
        """Bounds as (exponent, digits of the mantissa), closed."""
        if low < SMALLEST:
            low, low_open = SMALLEST, False
        if high > LARGEST:
            high, high_open = LARGEST, False
        if low > high:
            return
        unit = 10**MANTISSA_PLACES
        least, most = _exponent(low), _exponent(high)
        from_low, from_high = low * power(MANTISSA_PLACES - least), high * power(MANTISSA_PLACES - most)
        first = from_low.__floor__() + 1 if low_open else from_low.__ceil__()
        last = from_high.__ceil__() - 1 if high_open else from_high.__floor__()
        if first >= 10 * unit:
            first, least = unit, least + 1
        if last < unit:
            last, most = 10 * unit - 1, most - 1
        self.scientific = least < most or (least == most and first <= last)
        self.least, self.most = (least, str(first)), (most, str(last))

    def _mantissa_digit(self, mantissa: Mantissa, digit: int) -> Mantissa | None:
        if mantissa.read < 0:
            if digit == 0:
                return None
        elif not mantissa.point or mantissa.read == MANTISSA_PLACES:
            return None
        at = mantissa.read + 1
        below = mantissa.below or _sign(digit - int(self.least[1][at]))
        above = mantissa.above or _sign(digit - int(self.most[1][at]))
        least, most = self.least[0] + (below < 0), self.most[0] - (above > 0)
        return Mantissa(at, mantissa.point, below, above) if least <= most else None

    def _exponents(self, mantissa: Mantissa) -> Language | None:
        if mantissa.read < 0 or (mantissa.point and mantissa.read == 0):
            return None
        tied = mantissa.below == 0 and self.least[1][mantissa.read + 1 :].strip("0")
        least = self.least[0] + (mantissa.below < 0 or bool(tied))
        most = self.most[0] - (mantissa.above > 0)
        return self.exponents(least, most) if least <= most else None


def power(exponent: int) -> Fraction:
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


def _exponent(value: Fraction) -> int:
    """e with 10**e <= value < 10**(e + 1)."""
    guess = len(str(value.numerator)) - len(str(value.denominator))
    return guess if value >= power(guess) else guess - 1


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
