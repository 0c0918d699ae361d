"""Dates, times and durations within bounds: what ``formatMinimum`` and its kin leave of a format.

::

    date             2024-02-29                       as the format has it
    time             09:30:00.5Z   09:30:00+02:00     in UTC or at the offset of a bound; fractions up to 6 digits,
    date-time        2024-02-29T09:30:00Z             no leap seconds, capital T and Z
    time-local       09:30:00.5                       the same without an offset
    date-time-local  2024-02-29T09:30:00
    duration         P3D   PT36H   P1DT2H30M          without years and months, whose lengths differ; the first unit
                                                      counts on (PT36H), those after it stay below the next larger one

Each form is a row of *places* (hours, minutes, ...), so that texts compare as their numbers do, one after another:
between two bounds lie the texts that follow the lower bound's numbers for a while, those that follow the upper one's,
and in between everything. Times compare as instants, by the microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .language import Language

if TYPE_CHECKING:
    from .languages import Languages

#: the formats that have an order
ORDERED = frozenset({"date", "time", "date-time", "time-local", "date-time-local", "duration"})
KEYWORDS = ("formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum")
SECOND = 10**6
_DAY = 86_400 * SECOND
_LAST_DAY = date.max.toordinal()
#: most digits of one number of a duration: all together stay below the 999,999,999 days that a timedelta holds, and the
#: time of day below 2**32 seconds, which is what Pydantic reads. (Years, months, hours and minutes have the fewer.)
DURATION_DIGITS, FEW_DURATION_DIGITS = 8, 6


class Bounds(NamedTuple):
    """Texts of one format."""

    minimum: str | None = None
    exclusive_minimum: str | None = None
    maximum: str | None = None
    exclusive_maximum: str | None = None


class _Point(NamedTuple):
    """A bound as a number: days (date), microseconds (times, in UTC), seconds (durations). ``offset``: minutes."""

    value: Fraction
    offset: int = 0


# ---------------------------------------------------------------- what bounds say

_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))?", re.ASCII)
_DURATION = re.compile(
    r"P(?=[\dT])(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)
_EXAMPLES = {
    "date": "2024-12-31",
    "time": "23:59:59Z",
    "date-time": "2024-12-31T23:59:59Z",
    "time-local": "23:59:59",
    "date-time-local": "2024-12-31T23:59:59",
    "duration": "P3DT12H (weeks, days, hours, minutes, seconds; years and months differ in length)",
}


def read(name: str, text: str) -> _Point:
    """The value of a bound of the format ``name``. Raises ValueError."""
    found = _duration(text) if name == "duration" else _date(text) if name == "date" else _moment(name, text)
    if found is None:
        raise ValueError(f"is a {name} such as {_EXAMPLES[name]}, not {text!r}")
    return found


def _date(text: str) -> _Point | None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return None
    try:
        return _Point(Fraction(date.fromisoformat(text).toordinal()))
    except ValueError:
        return None


def _moment(name: str, text: str) -> _Point | None:
    day = _Point(Fraction(0))
    if name.startswith("date"):
        found = _date(text[:10]) if text[10:11] in ("T", "t", " ") else None
        if found is None:
            return None
        day, text = found, text[11:]
    parts = _TIME.fullmatch(text)
    if parts is None or (text[-1] in "Zz" or parts[5] is not None) == name.endswith("local"):
        return None
    hour, minute, second = (int(parts[at]) for at in (1, 2, 3))
    ahead = 60 * int(parts[6] or 0) + int(parts[7] or 0)
    if hour > 23 or minute > 59 or second > 60 or int(parts[6] or 0) > 23 or int(parts[7] or 0) > 59:
        return None
    offset = -ahead if parts[5] == "-" else ahead
    seconds = day.value * 86_400 + 3600 * hour + 60 * (minute - offset) + second + Fraction(parts[4] or 0)
    return _Point(seconds * SECOND, offset)


def _duration(text: str) -> _Point | None:
    parts = _DURATION.fullmatch(text)
    if parts is None:
        return None
    units = (604_800, 86_400, 3600, 60, 1)
    return _Point(
        sum((Fraction(part or 0) * unit for part, unit in zip(parts.groups(), units, strict=True)), Fraction())
    )


def _ends(name: str, bounds: Bounds) -> tuple[int | None, int | None]:
    """The least and the greatest whole value."""
    low = [read(name, text).value.__ceil__() for text in (bounds.minimum,) if text is not None]
    low += [read(name, text).value.__floor__() + 1 for text in (bounds.exclusive_minimum,) if text is not None]
    high = [read(name, text).value.__floor__() for text in (bounds.maximum,) if text is not None]
    high += [read(name, text).value.__ceil__() - 1 for text in (bounds.exclusive_maximum,) if text is not None]
    return max(low, default=None), min(high, default=None)


def crossed(name: str, bounds: Bounds) -> bool:
    """Whether the bounds leave no value between them."""
    low, high = _ends(name, bounds)
    return high is not None and (high < low if low is not None else name == "duration" and high < 0)


def beyond(bounds: Bounds) -> list[Bounds]:
    """What lies outside each bound."""
    ways = [
        Bounds(exclusive_maximum=bounds.minimum),
        Bounds(maximum=bounds.exclusive_minimum),
        Bounds(exclusive_minimum=bounds.maximum),
        Bounds(minimum=bounds.exclusive_maximum),
    ]
    return [way for way in ways if any(text is not None for text in way)]


# ---------------------------------------------------------------- languages


def within(languages: Languages, name: str, bounds: Bounds, dates: Language) -> Language:
    """Texts of the format ``name`` within ``bounds``; EMPTY if there are none. ``dates``: every date."""
    low, high = _ends(name, bounds)
    if name == "date":
        return _dates(languages, dates, 1 if low is None else max(low, 1), _LAST_DAY if high is None else high)
    if name == "duration":
        return _durations(languages, max(low or 0, 0), high)
    offsets = {0} if name.endswith("local") else {0, *(read(name, text).offset for text in bounds if text is not None)}
    dated = name.startswith("date")
    return languages.union(
        *(_moments(languages, dates if dated else None, low, high, at, name) for at in sorted(offsets))
    )


class _Place(NamedTuple):
    """One number of a text. ``texts``: those from one value to another, with the mark before or behind it."""

    least: int
    most: int
    texts: Callable[[int, int], Language]


def _between(languages: Languages, places: list[_Place], low: list[int] | None, high: list[int] | None) -> Language:
    """Rows of numbers from ``low`` to ``high`` (None: no bound), compared from the first on."""
    if not places:
        return languages.EPSILON
    first, rest = places[0], places[1:]
    start, end = first.least, first.most
    parts: list[Language] = []

    def add(least: int, most: int, from_: list[int] | None, to: list[int] | None) -> None:
        if least <= most:
            parts.append(languages.concat(first.texts(least, most), _between(languages, rest, from_, to)))

    if low is not None:
        start = low[0]
        if low[1:] == [place.least for place in rest]:
            low = None
    if high is not None:
        end = high[0]
        if high[1:] == [place.most for place in rest]:
            high = None
    if start == end:
        add(start, end, low and low[1:], high and high[1:])
        return languages.union(*parts)
    if low is not None:
        add(start, start, low[1:], None)
        start += 1
    if high is not None:
        add(end, end, None, high[1:])
        end -= 1
    add(start, end, None, None)
    return languages.union(*parts)


def _dates(languages: Languages, dates: Language, low: int, high: int) -> Language:
    if low > high or low > _LAST_DAY:
        return languages.EMPTY
    if low == high:
        return languages.literal(date.fromordinal(low).isoformat())
    if low == 1 and high == _LAST_DAY:
        return dates

    def digit(mark: str, least: int, most: int) -> Language:
        return languages.regex(f"{mark}[{least}-{most}]", ours=True)

    places = [_Place(0, 9, partial(digit, mark)) for mark in ("", "", "", "", "-", "", "-", "")]
    texts = [date.fromordinal(day).isoformat().replace("-", "") for day in (low, high)]
    first, last = ([int(char) for char in text] for text in texts)
    return languages.intersect(dates, _between(languages, places, first, last))


def _moments(
    languages: Languages, dates: Language | None, low: int | None, high: int | None, offset: int, name: str
) -> Language:
    """Times (``dates`` None) or dates with times, at one offset from UTC in minutes."""

    def two_digits(mark: str, least: int, most: int) -> Language:
        return languages.literals([f"{mark}{value:02}" for value in range(least, most + 1)])

    places = [
        _Place(0, 23, partial(two_digits, "" if dates is None else "T")),
        _Place(0, 59, partial(two_digits, ":")),
        _Place(0, 59, partial(two_digits, ":")),
        _Place(0, SECOND - 1, partial(_fraction, languages)),
    ]
    begin, end = 0, _DAY - 1
    if dates is not None:
        places = [_Place(1, _LAST_DAY, partial(_dates, languages, dates)), *places]
        begin, end = _DAY, (_LAST_DAY + 1) * _DAY - 1
    shift = offset * 60 * SECOND
    begin = begin if low is None else max(begin, low + shift)
    end = end if high is None else min(end, high + shift)
    if begin > end:
        return languages.EMPTY

    def numbers(value: int) -> list[int]:
        day, value = divmod(value, _DAY)
        row = [value // (3600 * SECOND), value // (60 * SECOND) % 60, value // SECOND % 60, value % SECOND]
        return row if dates is None else [day, *row]

    zone = "" if name.endswith("local") else "Z" if not offset else f"{'-' if offset < 0 else '+'}{_clock(abs(offset))}"
    return languages.concat(_between(languages, places, numbers(begin), numbers(end)), languages.literal(zone))


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _fraction(languages: Languages, low: int, high: int) -> Language:
    """Nothing, or a point and up to six digits, which stand for millionths with zeros behind them."""

    def digits(room: int, least: int, most: int, more: bool) -> Language:
        """``more``: a digit must come."""
        scale = 10**room
        if least == 0 and most == scale - 1:
            return languages.regex(f"[0-9]{{{int(more)},{room}}}", ours=True)
        parts = [languages.EPSILON] if least == 0 and not more else []
        unit = scale // 10
        for digit in range(least // unit, most // unit + 1) if room else ():
            from_, to = max(least - digit * unit, 0), min(most - digit * unit, unit - 1)
            parts.append(languages.concat(languages.literal(str(digit)), digits(room - 1, from_, to, False)))
        return languages.union(*parts)

    written = languages.concat(languages.literal("."), digits(6, low, high, True))
    return languages.union(languages.EPSILON, written) if low == 0 else written


#: the units that a duration may have beside each other (RFC 3339 appendix A), with their seconds
_UNITS = {"W": 604_800, "D": 86_400, "H": 3600, "M": 60, "S": 1}
_SHAPES = ("W", "D", "DH", "DHM", "DHMS", "DM", "DMS", "DS", "H", "HM", "HMS", "M", "MS", "S")


def _durations(languages: Languages, low: int, high: int | None) -> Language:
    from .numbers import integer

    def count(mark: str, unit: str, least: int, most: int) -> Language:
        value = integer(languages, Fraction(least), False, Fraction(most), False)
        return languages.concat(languages.literal(mark), value, languages.literal(unit))

    found = []
    for shape in _SHAPES:
        lengths = [_UNITS[unit] for unit in shape]
        digits = FEW_DURATION_DIGITS if shape[0] in "HM" else DURATION_DIGITS
        mosts = [10**digits - 1, *(one // other - 1 for one, other in pairwise(lengths))]
        places = []
        timed = False
        for unit, most in zip(shape, mosts, strict=True):
            mark = "T" if unit in "HMS" and not timed else ""
            timed = timed or bool(mark)
            places.append(_Place(0, most, partial(count, mark, unit)))
        top = mosts[0] * lengths[0] + lengths[0] - lengths[-1]
        least, most = -(-low // lengths[-1]) * lengths[-1], top if high is None else min(high, top)
        if least > most:
            continue

        def numbers(seconds: int, lengths: list[int] = lengths) -> list[int]:
            row = []
            for length in lengths:
                value, seconds = divmod(seconds, length)
                row.append(value)
            return row

        found.append(_between(languages, places, numbers(least), numbers(most)))
    return languages.concat(languages.literal("P"), languages.union(*found)) if found else languages.EMPTY
