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
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from .language import Language
from .residues import residues

if TYPE_CHECKING:
    from .languages import Languages

Value = int | float | Fraction | Decimal

#: digits of a number without a fraction; integer digits of one with a fraction; its fraction digits
WHOLE_DIGITS, PLAIN_DIGITS, PLACES = 38, 18, 20
#: fraction digits of a mantissa
MANTISSA_PLACES = 17
#: what exponent spellings reach: the ends of the 64-bit floats
LARGEST, SMALLEST = Fraction(17976931348623157 * 10**292), Fraction(5, 10**324)

_DIGIT = ((48, 57),)


def exact(value: Value) -> Fraction:
    """The fraction that the JSON text of ``value`` says (0.1 is one tenth, not the nearest binary fraction)."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


# ---------------------------------------------------------------- what the outside asks for


def number(languages: Languages) -> Language:
    """Every number text that is ever written."""
    return between(languages)


def between(
    languages: Languages,
    low: Fraction | None = None,
    low_open: bool = False,
    high: Fraction | None = None,
    high_open: bool = False,
) -> Language:
    """Texts with ``low <= value <= high`` (``<`` where open; None: unbounded). EMPTY if there is none."""
    parts = []
    if high is None or high > 0 or (high == 0 and not high_open):
        floor = low if low is not None and low >= 0 else None
        parts.append(_magnitudes(languages, floor, low_open and floor is not None, high, high_open))
    if low is None or low < 0 or (low == 0 and not low_open):
        floor = -high if high is not None and high <= 0 else None
        ceiling = None if low is None else -low
        negative = _magnitudes(languages, floor, high_open and floor is not None, ceiling, low_open)
        parts.append(languages.concat(languages.literal("-"), negative))
    return languages.union(*parts)


def outside(
    languages: Languages,
    low: Fraction | None = None,
    low_open: bool = False,
    high: Fraction | None = None,
    high_open: bool = False,
) -> Language:
    """The texts that :func:`between` leaves out."""
    parts = []
    if low is not None:
        parts.append(between(languages, None, False, low, not low_open))
    if high is not None:
        parts.append(between(languages, high, not high_open, None, False))
    return languages.union(*parts)


def integer(
    languages: Languages,
    low: Fraction | None = None,
    low_open: bool = False,
    high: Fraction | None = None,
    high_open: bool = False,
) -> Language:
    """Whole numbers without fraction and exponent, up to 38 digits, within the bounds: ``-12``, never ``-0``."""
    top = 10**WHOLE_DIGITS - 1
    least, most = _whole_bounds(low, low_open, high, high_open, top)
    parts = []
    if most >= 0:
        parts.append(_integers(languages, max(least, 0), most, languages.EPSILON))
    if least < 0:
        negative = _integers(languages, max(1, -most), -least, languages.EPSILON)
        parts.append(languages.concat(languages.literal("-"), negative))
    return languages.union(*parts)


def whole_valued(languages: Languages) -> Language:
    """Every text whose value is whole: ``1``, ``1.0``, ``-0.0``, ``1.5e1``."""
    zeros = languages.chars(((48, 48),))
    fraction = languages.concat(languages.literal("."), languages.repeat(zeros, 1, PLACES))
    plain = languages.union(
        _integers(languages, 0, 10**PLAIN_DIGITS - 1, languages.union(languages.EPSILON, fraction)),
        _integers(languages, 10**PLAIN_DIGITS, 10**WHOLE_DIGITS - 1, languages.EPSILON),
    )
    return _signed(languages, languages.union(plain, _exponents_by_places(languages, whole=True)))


def not_whole(languages: Languages) -> Language:
    """Every text whose value is not whole: ``0.5``, ``1e-3``."""
    digit, free = languages.chars(_DIGIT), languages.chars(((49, 57),))
    tail = free
    for left in range(1, PLACES):
        some = languages.concat(free, languages.repeat(digit, 0, left))
        tail = languages.union(some, languages.concat(languages.literal("0"), tail))
    fraction = languages.concat(languages.literal("."), tail)
    plain = _integers(languages, 0, 10**PLAIN_DIGITS - 1, fraction)
    return _signed(languages, languages.union(plain, _exponents_by_places(languages, whole=False)))


def multiple_of(
    languages: Languages,
    divisor: Fraction,
    low: Fraction | None = None,
    low_open: bool = False,
    high: Fraction | None = None,
    high_open: bool = False,
    whole: bool = False,
) -> Language:
    """Texts without an exponent whose value is a multiple of ``divisor`` (> 0) within the bounds; EMPTY if there is
    none. ``whole``: integers without a fraction, as :func:`integer` has them."""
    if whole:
        divisor = Fraction(divisor.numerator)
    # on the grid of PLACES decimals, value = n / 10**PLACES is a multiple iff n is a multiple of this
    grid = Fraction(10**PLACES)
    step = (divisor * grid).numerator
    places = PLACES
    while places and step % 10 == 0:
        step //= 10
        places -= 1
    scale = 10**places
    top = 10 ** (WHOLE_DIGITS + places) - 1
    least, most = _whole_bounds(_times(low, scale), low_open, _times(high, scale), high_open, top)
    parts = []
    if most >= 0:
        parts.append(residues(languages, step, places, max(least, 0), most, whole))
    if least < 0 or (least == 0 and not whole):
        floor = max(-most, 1 if whole else 0)
        parts.append(languages.concat(languages.literal("-"), residues(languages, step, places, floor, -least, whole)))
    return languages.union(*parts)


def not_multiple_of(languages: Languages, divisor: Fraction) -> Language:
    """Texts without an exponent whose value is not a multiple of ``divisor``."""
    return languages.intersect(_plain(languages), languages.complement(multiple_of(languages, divisor)))


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


# ---------------------------------------------------------------- plain decimals


def _signed(languages: Languages, magnitude: Language) -> Language:
    return languages.concat(languages.repeat(languages.literal("-"), 0, 1), magnitude)


def _times(bound: Fraction | None, scale: int) -> Fraction | None:
    return None if bound is None else bound * scale


def _whole_bounds(
    low: Fraction | None, low_open: bool, high: Fraction | None, high_open: bool, top: int
) -> tuple[int, int]:
    """The least and the greatest whole number within the bounds and within -top to top."""
    least, most = -top, top
    if low is not None:
        least = max(least, low.__floor__() + 1 if low_open else low.__ceil__())
    if high is not None:
        most = min(most, high.__ceil__() - 1 if high_open else high.__floor__())
    return least, most


def _magnitudes(
    languages: Languages, low: Fraction | None, low_open: bool, high: Fraction | None, high_open: bool
) -> Language:
    """Unsigned texts within bounds that are not negative (low None: from 0)."""
    unit = 10**PLACES
    least, most = _whole_bounds(
        _times(low, unit), low_open, _times(high, unit), high_open, 10 ** (WHOLE_DIGITS + PLACES) - 1
    )
    plain = _decimals(languages, max(least, 0), most)
    return languages.union(plain, _exponents(languages, low, low_open, high, high_open))


def _plain(languages: Languages) -> Language:
    return _signed(languages, _decimals(languages, 0, 10 ** (WHOLE_DIGITS + PLACES) - 1))


def _decimals(languages: Languages, low: int, high: int) -> Language:
    """Texts without sign and exponent; the bounds are in units of 10**-PLACES."""
    if low > high:
        return languages.EMPTY
    unit = 10**PLACES
    (first, first_part), (last, last_part) = divmod(low, unit), divmod(high, unit)
    if first == last:
        return _point(languages, first, first_part, last_part)
    parts = []
    if first_part:
        parts.append(_point(languages, first, first_part, unit - 1))
        first += 1
    if last_part != unit - 1:
        parts.append(_point(languages, last, 0, last_part))
        last -= 1
    short = 10**PLAIN_DIGITS - 1
    free = _suffix(languages, PLACES, 0, unit - 1)
    parts.append(_integers(languages, first, min(last, short), free))
    parts.append(_integers(languages, max(first, short + 1), last, languages.EPSILON))
    return languages.union(*parts)


def _point(languages: Languages, whole: int, low: int, high: int) -> Language:
    """``whole`` with a fraction from low to high (units of 10**-PLACES), which may be missing if low is 0."""
    if whole >= 10**PLAIN_DIGITS:
        return languages.EMPTY if low else languages.literal(str(whole))
    return languages.concat(languages.literal(str(whole)), _suffix(languages, PLACES, low, high))


def _integers(languages: Languages, low: int, high: int, tail: Language) -> Language:
    """Digits without leading zeros, from low to high, then ``tail``."""
    if low > high:
        return languages.EMPTY
    parts = []
    if low == 0:
        parts.append(languages.concat(languages.literal("0"), tail))
        low = 1
        if high == 0:
            return parts[0]
    shortest, longest = len(str(low)), len(str(high))
    full_from, full_to = shortest, longest
    if low != 10 ** (shortest - 1):
        full_from += 1
    if high != 10**longest - 1:
        full_to -= 1
    if full_from <= full_to:
        lead, digit = languages.chars(((49, 57),)), languages.chars(_DIGIT)
        parts.append(languages.concat(lead, languages.repeat(digit, full_from - 1, full_to - 1), tail))
    if shortest == longest:
        if full_from > full_to:
            parts.append(_same_length(languages, str(low), str(high), tail))
    else:
        if full_from > shortest:
            parts.append(_same_length(languages, str(low), "9" * shortest, tail))
        if full_to < longest:
            parts.append(_same_length(languages, "1" + "0" * (longest - 1), str(high), tail))
    return languages.union(*parts)


def _same_length(languages: Languages, low: str, high: str, tail: Language) -> Language:
    """Digit strings of the bounds' length between them, leading zeros included, then ``tail``."""
    digit = languages.chars(_DIGIT)
    length = len(low)

    def build(at: int, tied_low: bool, tied_high: bool) -> Language:
        if tied_low and not low[at:].strip("0"):
            tied_low = False
        if tied_high and not high[at:].strip("9"):
            tied_high = False
        if not (tied_low or tied_high):
            return languages.concat(languages.repeat(digit, length - at, length - at), tail)
        first = int(low[at]) if tied_low else 0
        last = int(high[at]) if tied_high else 9
        return _branch(languages, first, last, tied_low, tied_high, lambda a, b: build(at + 1, a, b))

    return build(0, True, True)


def _branch(
    languages: Languages,
    first: int,
    last: int,
    tied_low: bool,
    tied_high: bool,
    build: Callable[[bool, bool], Language],
) -> Language:
    """One digit from first to last; what follows is tied to a bound only after the digit that equals it."""
    if first == last:
        return languages.concat(languages.chars(((48 + first, 48 + first),)), build(tied_low, tied_high))
    parts = []
    if tied_low:
        parts.append(languages.concat(languages.chars(((48 + first, 48 + first),)), build(True, False)))
        first += 1
    if tied_high:
        parts.append(languages.concat(languages.chars(((48 + last, 48 + last),)), build(False, True)))
        last -= 1
    if first <= last:
        parts.append(languages.concat(languages.chars(((48 + first, 48 + last),)), build(False, False)))
    return languages.union(*parts)


def _suffix(languages: Languages, places: int, low: int, high: int) -> Language:
    """``.digits`` with up to ``places`` digits, or nothing: the bounds are in units of 10**-places, 0 if missing."""
    lows, highs = str(low).rjust(places, "0"), str(high).rjust(places, "0")
    digit, zero = languages.chars(_DIGIT), languages.chars(((48, 48),))

    def build(at: int, tied_low: bool, tied_high: bool) -> Language:
        """What may follow ``at`` digits."""
        if tied_low and not lows[at:].strip("0"):
            tied_low = False
        if tied_high and not highs[at:].strip("9"):
            tied_high = False
        if not tied_low:
            if not tied_high:
                return languages.repeat(digit, 0 if at else 1, places - at)
            if at and not highs[at:].strip("0"):
                return languages.repeat(zero, 0, places - at)
        first = int(lows[at]) if tied_low else 0
        last = int(highs[at]) if tied_high else 9
        more = _branch(languages, first, last, tied_low, tied_high, lambda a, b: build(at + 1, a, b))
        return languages.union(languages.EPSILON, more) if at and not tied_low else more

    fraction = languages.concat(languages.literal("."), build(0, True, True))
    return languages.union(languages.EPSILON, fraction) if low == 0 else fraction


# ---------------------------------------------------------------- exponent spellings


def _exponents(
    languages: Languages, low: Fraction | None, low_open: bool, high: Fraction | None, high_open: bool
) -> Language:
    """Unsigned exponent spellings within bounds that are not negative (low None: from 0, which has none itself)."""
    if low is None or low < SMALLEST:
        low, low_open = SMALLEST, False
    if high is None or high > LARGEST:
        high, high_open = LARGEST, False
    if low > high:
        return languages.EMPTY
    unit = 10**MANTISSA_PLACES
    least_exponent, most_exponent = _exponent(low), _exponent(high)
    least, most = low * _power(MANTISSA_PLACES - least_exponent), high * _power(MANTISSA_PLACES - most_exponent)
    first = least.__floor__() + 1 if low_open else least.__ceil__()
    last = most.__ceil__() - 1 if high_open else most.__floor__()
    if first >= 10 * unit:
        first, least_exponent = unit, least_exponent + 1
    if last < unit:
        last, most_exponent = 10 * unit - 1, most_exponent - 1
    if least_exponent > most_exponent:
        return languages.EMPTY
    if least_exponent == most_exponent:
        return _scientific(languages, first, last, least_exponent, most_exponent)
    parts = []
    if first != unit:
        parts.append(_scientific(languages, first, 10 * unit - 1, least_exponent, least_exponent))
        least_exponent += 1
    if last != 10 * unit - 1:
        parts.append(_scientific(languages, unit, last, most_exponent, most_exponent))
        most_exponent -= 1
    parts.append(_scientific(languages, unit, 10 * unit - 1, least_exponent, most_exponent))
    return languages.union(*parts)


def _power(exponent: int) -> Fraction:
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


def _exponent(value: Fraction) -> int:
    """e with 10**e <= value < 10**(e + 1)."""
    guess = len(str(value.numerator)) - len(str(value.denominator))
    return guess if value >= _power(guess) else guess - 1


def _scientific(languages: Languages, low: int, high: int, least_exponent: int, most_exponent: int) -> Language:
    """Mantissa (units of 10**-17, from 1 to below 10) and exponent in their ranges."""
    if low > high or least_exponent > most_exponent:
        return languages.EMPTY
    unit = 10**MANTISSA_PLACES
    (first, first_part), (last, last_part) = divmod(low, unit), divmod(high, unit)
    letter = languages.chars(((69, 69), (101, 101)))
    tail = languages.concat(letter, _exponent_digits(languages, least_exponent, most_exponent))
    parts = []

    def lead(first: int, last: int, low: int, high: int) -> None:
        fraction = _suffix(languages, MANTISSA_PLACES, low, high)
        parts.append(languages.concat(languages.chars(((48 + first, 48 + last),)), fraction, tail))

    if first == last:
        lead(first, first, first_part, last_part)
    else:
        if first_part:
            lead(first, first, first_part, unit - 1)
            first += 1
        if last_part != unit - 1:
            lead(last, last, 0, last_part)
            last -= 1
        if first <= last:
            lead(first, last, 0, unit - 1)
    return languages.union(*parts)


def _exponent_digits(languages: Languages, least: int, most: int) -> Language:
    """Exponents from least to most: an optional sign and up to three digits, with or without leading zeros."""
    parts = []
    if most >= 0:
        plus = languages.repeat(languages.literal("+"), 0, 1)
        parts.append(languages.concat(plus, _padded(languages, max(least, 0), most)))
    if least <= 0:
        parts.append(languages.concat(languages.literal("-"), _padded(languages, max(-most, 0), -least)))
    return languages.union(*parts)


def _padded(languages: Languages, low: int, high: int) -> Language:
    parts = []
    for width in (1, 2, 3):
        if low < 10**width:
            most = min(high, 10**width - 1)
            parts.append(
                _same_length(languages, str(low).rjust(width, "0"), str(most).rjust(width, "0"), languages.EPSILON)
            )
    return languages.union(*parts)


def _exponents_by_places(languages: Languages, whole: bool) -> Language:
    """Unsigned exponent spellings whose value is (not) whole: whole iff the exponent covers the fraction's places."""
    unit = 10**MANTISSA_PLACES
    digit, zero, lead = languages.chars(_DIGIT), languages.chars(((48, 48),)), languages.chars(((49, 57),))
    letter, point = languages.chars(((69, 69), (101, 101))), languages.literal(".")
    parts = []
    for places in range(MANTISSA_PLACES + 1):
        if places == 0:
            zeros = languages.concat(point, languages.repeat(zero, 1, MANTISSA_PLACES))
            mantissa = languages.concat(lead, languages.repeat(zeros, 0, 1))
        else:
            few = languages.repeat(digit, places - 1, places - 1)
            mantissa = languages.concat(lead, point, few, lead, languages.repeat(zero, 0, MANTISSA_PLACES - places))
        exponents = _exponent_digits(languages, *((places, 307) if whole else (-323, places - 1)))
        parts.append(languages.concat(mantissa, letter, exponents))
    if whole:
        parts.append(_scientific(languages, unit, LARGEST.numerator // 10**291, 308, 308))
    else:
        parts.append(_scientific(languages, 5 * unit, 10 * unit - 1, -324, -324))
    return languages.union(*parts)


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
