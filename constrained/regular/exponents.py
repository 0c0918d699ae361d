"""The exponents of number texts: signed digits between bounds. Made when a text gets there, which is seldom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .language import Edges, Language

if TYPE_CHECKING:
    from .languages import Languages


class Deferred(Language):
    """A language that is made when its edges are asked for; not empty, without the empty text."""

    __slots__ = ("_make", "accepting", "longest", "shortest")

    def __init__(self, make: Callable[[], Language], longest: int) -> None:
        self._make = make
        self.accepting = False
        self.shortest = 1
        self.longest = longest

    def edges(self) -> Edges:
        return self._make().edges()

    def capped(self, length: int) -> Language:
        return self


def exponent(languages: Languages, least: int, most: int) -> Language:
    """Exponents from least to most: an optional sign and up to three digits, with or without leading zeros."""

    def digits() -> Language:
        key = ("numbers.exponent.digits", least, most)
        return languages.intern(key, lambda: _digits(languages, least, most))

    return languages.intern(("numbers.exponent", least, most), lambda: Deferred(digits, 4))


def _digits(languages: Languages, least: int, most: int) -> Language:
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
            parts.append(_same_length(languages, str(low).rjust(width, "0"), str(most).rjust(width, "0")))
    return languages.union(*parts)


def _same_length(languages: Languages, low: str, high: str) -> Language:
    """Digit strings of the bounds' length between them, leading zeros included."""
    length = len(low)

    def build(at: int, tied_low: bool, tied_high: bool) -> Language:
        tied_low = tied_low and bool(low[at:].strip("0"))
        tied_high = tied_high and bool(high[at:].strip("9"))
        if not (tied_low or tied_high):
            return languages.repeat(languages.chars(((48, 57),)), length - at, length - at)
        first, last = int(low[at]) if tied_low else 0, int(high[at]) if tied_high else 9
        if first == last:
            return languages.concat(languages.literal(str(first)), build(at + 1, tied_low, tied_high))
        parts = []
        if tied_low:
            parts.append(languages.concat(languages.literal(str(first)), build(at + 1, True, False)))
            first += 1
        if tied_high:
            parts.append(languages.concat(languages.literal(str(last)), build(at + 1, False, True)))
            last -= 1
        if first <= last:
            inside = languages.chars(((48 + first, 48 + last),))
            parts.append(languages.concat(inside, build(at + 1, False, False)))
        return languages.union(*parts)

    return build(0, True, True)
