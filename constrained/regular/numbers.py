"""JSON number texts as languages: what may be written, within exact bounds.

::

    written at all   -? digits                      up to 38 digits
                     -? digits . digits             up to 18 and 20: at most 40 characters in all
                     -? d(.d{1,17})? e [+-]? ddd    d from 1 to 9; what a 64-bit float can hold (json.dumps: 1.5e+300)

These texts are the *universe* of this module (:func:`number`). Every function gives a subset of it, exactly the texts
whose value, as an exact fraction, fits, unless its line in the table says "subset". Inside the universe a
negation is therefore written by its own function, and never as a complement of one that is a subset:

====================  ======  =====================================================================================
function              is      its negation
====================  ======  =====================================================================================
:func:`number`        exact   nothing
:func:`between`       exact   :func:`outside`
:func:`equal_to`      exact   :func:`unequal_to`
:func:`whole_valued`  exact   :func:`not_whole`          (1.0 and 1e3 are whole)
:func:`integer`       subset  :func:`not_whole`          (only digits; -0 is left out)
:func:`multiple_of`   subset  :func:`not_multiple_of`    (both leave exponent spellings out, and are exact otherwise)
:func:`written`       subset  :func:`unequal_to`         (the usual spellings of one value)
====================  ======  =====================================================================================

Bounds are fractions of any size; a text has finitely many places, so every bound is first moved to the nearest value
that a text can have, and closed. Languages are hash-consed, so equal calls give the same object.
"""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from ..interface import ConstraintError
from .decimals import (
    LARGEST,
    MANTISSA_PLACES,
    PLACES,
    PLAIN_DIGITS,
    SMALLEST,
    WHOLE_DIGITS,
    Decimals,
    Position,
    power,
)
from .exponents import exponent
from .language import Edges, Language

if TYPE_CHECKING:
    from .languages import Languages

Value = int | float | Fraction | Decimal
Bound = Fraction | None


def exact(value: Value) -> Fraction:
    """The fraction that the JSON text of ``value`` says (0.1 is one tenth, not the nearest binary fraction)."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


# ---------------------------------------------------------------- what the outside asks for


def number(languages: Languages) -> Language:
    """Every number text that is ever written."""
    return between(languages)


def between(
    languages: Languages, low: Bound = None, low_open: bool = False, high: Bound = None, high_open: bool = False
) -> Language:
    """Texts with ``low <= value <= high`` (``<`` where open; None: unbounded). EMPTY if there is none."""
    key = ("numbers", low, low_open, high, high_open)
    return languages.intern(key, lambda: _between(languages, low, low_open, high, high_open, 1, PLACES, False, True))


def outside(
    languages: Languages, low: Bound = None, low_open: bool = False, high: Bound = None, high_open: bool = False
) -> Language:
    """The texts that :func:`between` leaves out."""
    parts = []
    if low is not None:
        parts.append(between(languages, None, False, low, not low_open))
    if high is not None:
        parts.append(between(languages, high, not high_open, None, False))
    return languages.union(*parts)


def integer(
    languages: Languages, low: Bound = None, low_open: bool = False, high: Bound = None, high_open: bool = False
) -> Language:
    """Whole numbers without fraction and exponent, up to 38 digits, within the bounds: ``-12``, never ``-0``."""
    least, most = _whole_bounds(low, low_open, high, high_open, 10**WHOLE_DIGITS - 1)
    bounds = Fraction(least), False, Fraction(most), False
    return languages.intern(("numbers.integer", least, most), lambda: _between(languages, *bounds, 1, 0, True, False))


def whole_valued(languages: Languages) -> Language:
    """Every text whose value is whole: ``1``, ``1.0``, ``-0.0``, ``1.5e1``."""

    def make() -> Language:
        plain = _unsigned(languages, (0, 10**WHOLE_DIGITS - 1), 1, 0, False, None)
        return _signed(languages, languages.union(plain, _exponents_by_places(languages, whole=True)))

    return languages.intern("numbers.whole_valued", make)


def not_whole(languages: Languages) -> Language:
    """Every text whose value is not whole: ``0.5``, ``1e-3``."""

    def make() -> Language:
        digit, lead, zero = _digits_of(languages)
        more = languages.repeat(digit, 0, PLAIN_DIGITS - 1)
        integer = languages.union(zero, languages.concat(lead, more))
        tail = lead
        for left in range(1, PLACES):
            some = languages.concat(lead, languages.repeat(digit, 0, left))
            tail = languages.union(some, languages.concat(zero, tail))
        plain = languages.concat(integer, languages.literal("."), tail)
        return _signed(languages, languages.union(plain, _exponents_by_places(languages, whole=False)))

    return languages.intern("numbers.not_whole", make)


def multiple_of(
    languages: Languages,
    divisor: Fraction,
    low: Bound = None,
    low_open: bool = False,
    high: Bound = None,
    high_open: bool = False,
    whole: bool = False,
) -> Language:
    """Texts without an exponent whose value is a multiple of ``divisor`` (> 0) within the bounds; EMPTY if there is
    none. ``whole``: integers without a fraction, as :func:`integer` has them."""
    if whole:
        divisor = Fraction(divisor.numerator)
    # with PLACES decimals, value = n / 10**PLACES is a multiple iff n is a multiple of this
    step = (divisor * 10**PLACES).numerator
    places = PLACES
    while places and step % 10 == 0:
        step //= 10
        places -= 1
    key = ("numbers.multiple", step, places, low, low_open, high, high_open, whole)
    return languages.intern(
        key, lambda: _between(languages, low, low_open, high, high_open, step, places, whole, False)
    )


def not_multiple_of(languages: Languages, divisor: Fraction) -> Language:
    """Texts without an exponent whose value is not a multiple of ``divisor``."""
    plain = languages.intern(
        "numbers.plain", lambda: _between(languages, None, False, None, False, 1, PLACES, False, False)
    )
    return languages.intersect(plain, languages.complement(multiple_of(languages, divisor)))


def equal_to(languages: Languages, value: Value) -> Language:
    """Every spelling of one value: ``2``, ``2.0``, ``2.00``, ``2e0``, ``2.0E+00``."""
    return between(languages, exact(value), False, exact(value), False)


def unequal_to(languages: Languages, value: Value) -> Language:
    """Every text with another value."""
    return outside(languages, exact(value), False, exact(value), False)


def written(languages: Languages, value: Value) -> Language:
    """The usual spellings of one value, of any size: 2 as ``2``, 2.0 as ``2.0`` or ``2``, 0.5 as ``0.5``, 1e300 as
    ``1e+300``. An int is only ever written as an int. EMPTY for a fraction that has no finite decimal."""
    return languages.literals(sorted(spellings(value)))


def spellings(value: Value) -> set[str]:
    """What :func:`written` accepts, as texts."""
    if isinstance(value, int):
        return {_digits(value)}
    fraction = exact(value)
    found: set[str] = set()
    if abs(fraction) <= LARGEST:
        shortest = json.dumps(float(fraction))
        if Fraction(shortest) == fraction:
            found.add(shortest)
    if fraction.denominator == 1:
        if not found or abs(fraction) < 10**WHOLE_DIGITS:
            found.add(_digits(fraction.numerator))
    elif not found:
        places = _places(fraction.denominator)
        if places is not None:
            digits = _digits(abs(fraction.numerator) * 10**places // fraction.denominator).rjust(places + 1, "0")
            found.add(("-" if fraction < 0 else "") + digits[:-places] + "." + digits[-places:])
    return found


# ---------------------------------------------------------------- automata


class Signed(Language):
    """A minus sign and one bounded language, or another."""

    __slots__ = ("_edges", "accepting", "longest", "shortest")

    def __init__(self, negative: Language, positive: Language) -> None:
        self.accepting = False
        self.shortest = 1
        assert negative.longest is not None and positive.longest is not None
        self.longest = max(negative.longest + 1, positive.longest)
        self._edges: Edges = ((45, 45, negative), *positive.edges())

    def edges(self) -> Edges:
        return self._edges

    def capped(self, length: int) -> Language:
        return self


def _between(
    languages: Languages,
    low: Bound,
    low_open: bool,
    high: Bound,
    high_open: bool,
    step: int,
    places: int,
    whole: bool,
    scientific: bool,
) -> Language:
    least, most = _whole_bounds(
        None if low is None else low * 10**places,
        low_open,
        None if high is None else high * 10**places,
        high_open,
        10 ** (WHOLE_DIGITS + places) - 1,
    )
    positive = negative = languages.EMPTY
    if most >= 0 or (scientific and (high is None or high > 0)):
        plain = (max(least, 0), most) if most >= 0 else None
        reach = (low or Fraction(0), low_open, LARGEST if high is None else high, high_open)
        positive = _unsigned(languages, plain, step, places, whole, reach if scientific else None)
    if least < 0 or (least == 0 and not whole) or (scientific and (low is None or low < 0)):
        first = max(-most, 1 if whole else 0)
        plain = (first, -least) if first <= -least else None
        reach = (-(high or Fraction(0)), high_open, LARGEST if low is None else -low, low_open)
        negative = _unsigned(languages, plain, step, places, whole, reach if scientific else None)
    return positive if negative is languages.EMPTY else Signed(negative, positive)


def _unsigned(
    languages: Languages,
    plain: tuple[int, int] | None,
    step: int,
    places: int,
    whole: bool,
    scientific: tuple[Fraction, bool, Fraction, bool] | None,
) -> Language:
    """Texts without a sign; EMPTY if there are none. Bounds of ``scientific`` may be negative, which is to say 0."""
    if plain is not None and plain[0] > plain[1]:
        plain = None
    if scientific is not None:
        low, low_open, high, high_open = scientific
        low, low_open = (low, low_open) if low >= SMALLEST else (SMALLEST, False)
        high, high_open = (high, high_open) if high <= LARGEST else (LARGEST, False)
        scientific = (low, low_open, high, high_open) if low <= high else None

    def exponents(least: int, most: int) -> Language:
        return exponent(languages, least, most)

    def make() -> Language:
        _writable(languages)
        free = None
        every = (0, 10 ** (WHOLE_DIGITS + places) - 1)
        if step == 1 and places == (0 if whole else PLACES) and (plain, scientific) != (every, None):
            start = _unsigned(languages, every, 1, places, whole, None)
            assert isinstance(start, Position)
            free = start.decimals
        return Decimals(plain, step, places, whole, scientific, exponents, free).start() or languages.EMPTY

    return languages.intern(("numbers.unsigned", plain, step, places, whole, scientific), make)


def _writable(languages: Languages) -> None:
    missing = [char for char in "+-.0123456789Ee" if not languages.alphabet.one(ord(char)).ranges]
    if missing:
        raise ConstraintError(f"the vocabulary cannot write numbers: it has no {', '.join(missing)}")


def _signed(languages: Languages, magnitude: Language) -> Language:
    return languages.concat(languages.repeat(languages.literal("-"), 0, 1), magnitude)


def _whole_bounds(low: Bound, low_open: bool, high: Bound, high_open: bool, top: int) -> tuple[int, int]:
    """The least and the greatest whole number within the bounds and within -top to top."""
    least, most = -top, top
    if low is not None:
        least = max(least, low.__floor__() + 1 if low_open else low.__ceil__())
    if high is not None:
        most = min(most, high.__ceil__() - 1 if high_open else high.__floor__())
    return least, most


# ---------------------------------------------------------------- exponents


def _digits_of(languages: Languages) -> tuple[Language, Language, Language]:
    """Any digit, one that is not 0, 0."""
    return languages.chars(((48, 57),)), languages.chars(((49, 57),)), languages.chars(((48, 48),))


def _exponents_by_places(languages: Languages, whole: bool) -> Language:
    """Unsigned exponent spellings whose value is (not) whole: whole iff the exponent covers the fraction's places."""
    digit, lead, zero = _digits_of(languages)
    letter, point = languages.chars(((69, 69), (101, 101))), languages.literal(".")
    parts = []
    for places in range(MANTISSA_PLACES + 1):
        if places == 0:
            zeros = languages.concat(point, languages.repeat(zero, 1, MANTISSA_PLACES))
            mantissa = languages.concat(lead, languages.repeat(zeros, 0, 1))
        else:
            few = languages.repeat(digit, places - 1, places - 1)
            mantissa = languages.concat(lead, point, few, lead, languages.repeat(zero, 0, MANTISSA_PLACES - places))
        exponents = exponent(languages, *((places, 307) if whole else (-323, places - 1)))
        parts.append(languages.concat(mantissa, letter, exponents))
    # the ends of the floats' range, where the mantissa is bounded too
    ends = (power(308), False, LARGEST, False) if whole else (SMALLEST, False, power(-323), True)
    end = _unsigned(languages, None, 1, 0, True, ends)
    return languages.union(*parts, end)


# ---------------------------------------------------------------- spellings of one value


def _digits(value: int) -> str:
    """str() without its limit on digits."""
    if abs(value) < 10**4000:
        return str(value)
    text = ""
    rest = abs(value)
    while rest:
        rest, part = divmod(rest, 10**4000)
        text = (str(part).rjust(4000, "0") if rest else str(part)) + text
    return "-" + text if value < 0 else text


def _places(denominator: int) -> int | None:
    """Decimal places of a fraction with this denominator; None if it has no finite decimal."""
    twos = fives = 0
    while denominator % 2 == 0:
        denominator //= 2
        twos += 1
    while denominator % 5 == 0:
        denominator //= 5
        fives += 1
    return max(twos, fives) if denominator == 1 else None
