"""The algebras of the types whose values have no parts: null and boolean, numbers, strings.

What a positive schema *writes* may be less than what it means (an integer is written without a fraction, though 1.0
is one; some formats are not written in full), so a negation is a language of its own and a complement only where the
language is exact. Numbers stay within the texts that :mod:`..regular.numbers` writes at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..interface import ConstraintError
from ..regular import formats, numbers
from ..regular.language import Language
from .errors import Unsupported
from .formula import all_others
from .goals import Literal
from .node import Node

if TYPE_CHECKING:
    from ..regular.languages import Languages

Constants = frozenset[Any]
Bound = Fraction | None
Bounds = tuple[Bound, bool, Bound, bool]
#: from here on a 64-bit float does not keep every whole number
EXACT_WHOLE = 2**53
#: digits that a 64-bit float keeps
SURE_DIGITS = 15


class ConstantAlgebra:
    """null and boolean: a set of the type's constants."""

    def __init__(self, kind: str, constants: Constants) -> None:
        self.kind = kind
        self.top = constants
        self.bottom: Constants = frozenset()

    def meet(self, parts: list[Constants]) -> Constants:
        return self.top.intersection(*parts)

    def join(self, parts: list[Constants]) -> Constants:
        return self.bottom.union(*parts)

    def own(self, literal: Literal) -> Constants | None:
        return None

    def values(self, literal: Literal) -> Constants:
        assert literal.node.values is not None
        named = frozenset(value for value in literal.node.values if value is None or value is True or value is False)
        return named & self.top if literal.positive else self.top - named

    def present(self, name: str, there: bool) -> Constants:
        return self.top

    def unevaluated(self, literal: Literal, rest: Callable[[Literal], Constants]) -> Constants:
        return rest(literal)

    def overlaps(self, branches: list[Literal]) -> list[list[int]]:
        return all_others(branches)


class LanguageAlgebra:
    """What strings and numbers share: regular languages."""

    kind: str
    top: Language

    def __init__(self, languages: Languages) -> None:
        self.languages = languages
        self.bottom: Language = languages.EMPTY

    def meet(self, parts: list[Language]) -> Language:
        kept = [part for part in parts if part is not self.top]
        if len(kept) < 2:
            return kept[0] if kept else self.top
        return self.languages.intersect(*kept)

    def join(self, parts: list[Language]) -> Language:
        if len(parts) == 1:
            return parts[0]
        return self.languages.union(*parts)

    def present(self, name: str, there: bool) -> Language:
        return self.top

    def unevaluated(self, literal: Literal, rest: Callable[[Literal], Language]) -> Language:
        return rest(literal)

    def overlaps(self, branches: list[Literal]) -> list[list[int]]:
        return all_others(branches)


class StringAlgebra(LanguageAlgebra):
    """Strings as sequences of code points."""

    kind = "string"

    def __init__(self, languages: Languages) -> None:
        super().__init__(languages)
        self.top = languages.ANY

    def values(self, literal: Literal) -> Language:
        assert literal.node.values is not None
        named = self.languages.literals([value for value in literal.node.values if isinstance(value, str)])
        return named if literal.positive else self.languages.complement(named)

    def own(self, literal: Literal) -> Language | None:
        node, languages = literal.node, self.languages
        exact: list[Language] = []
        if node.min_length or node.max_length is not None:
            if node.max_length is not None and node.max_length < node.min_length:
                exact.append(languages.EMPTY)
            else:
                exact.append(_of_length(languages, node.min_length, node.max_length))
        if node.pattern is not None:
            exact.append(kept_pattern(languages, node.pattern, "pattern", node.pointer))
        if literal.positive:
            if node.format is not None:
                exact.append(formats.language(languages, node.format, node.format_bounds or formats.UNBOUNDED))
            return self.meet(exact) if exact else None
        parts = [languages.complement(one) for one in exact]
        if node.format is not None:
            parts.append(formats.outside(languages, node.format, node.format_bounds or formats.UNBOUNDED))
        return self.join(parts) if parts else None


def _of_length(languages: Languages, low: int, high: int | None) -> Language:
    """So many characters."""
    return languages.intern(
        ("length", low, high), lambda: languages.repeat(languages.chars(((0, 0x10FFFF),)), low, high)
    )


def kept_pattern(languages: Languages, source: str, keyword: str, pointer: str) -> Language:
    """The language of a pattern. Raises Unsupported where it is not regular, and says where it stands.

    With ``strict=False`` the reader has left such patterns out.
    """
    try:
        return languages.regex(source, "ecma")
    except ConstraintError as error:
        raise Unsupported(keyword, pointer, f"the pattern {source[:80]!r} cannot be kept: {error}") from None


class NumberAlgebra(LanguageAlgebra):
    """Numbers as their JSON texts."""

    kind = "number"

    def __init__(self, languages: Languages) -> None:
        super().__init__(languages)
        self.top = numbers.number(languages)

    def values(self, literal: Literal) -> Language:
        assert literal.node.values is not None
        named = [value for value in literal.node.values if is_number(value)]
        if literal.positive:
            texts = set[str]().union(*map(numbers.spellings, named))
            return self.languages.literals(sorted(texts))
        fractions = [numbers.exact(value) for value in named]
        # many values are one language to leave out: of that little is left after a digit or two, but not of each alone
        near = [self._taken_for(value) for value in fractions if abs(value) < EXACT_WHOLE]
        parts = [self._outside(value, False, value, False) for value in fractions if abs(value) >= EXACT_WHOLE]
        if near:
            parts.append(self.languages.intersect(self.top, self.languages.complement(self.languages.union(*near))))
        return self.meet(parts)

    def own(self, literal: Literal) -> Language | None:
        node, languages = literal.node, self.languages
        bounds = _bounds(node)
        bounded = bounds[0] is not None or bounds[2] is not None
        if literal.positive:
            if node.multiple_of is not None:
                return self._multiple_of(node.multiple_of, bounds, node.integer)
            if node.integer:
                return numbers.integer(languages, *bounds)
            return self._between(*bounds) if bounded else None
        parts: list[Language] = []
        if bounded:
            parts.append(self._outside(*bounds))
        if node.integer:
            parts.append(self.meet([numbers.not_whole(languages), self._far_from_whole]))
        if node.multiple_of is not None:
            parts.append(self.meet([numbers.not_multiple_of(languages, node.multiple_of), self._few_digits]))
        return self.join(parts) if parts else None

    # A reader of JSON may keep a number with a fraction as a 64-bit float, of which 15 digits are sure: 1e17 + 0.5 is
    # whole to it. So what is not whole, or a multiple with a fraction, is written with no more digits than that.

    @cached_property
    def _few_digits(self) -> Language:
        return self.languages.regex(f"^-?(?:[0-9][.]?){{1,{SURE_DIGITS}}}(?:[eE][+-]?[0-9]{{1,3}})?$", "ecma")

    @cached_property
    def _far_from_whole(self) -> Language:
        """More digits where that is no matter: 0.30000000000000004. With ``before`` digits before the point, what
        differs from a whole number in the first 15 - ``before`` digits after it is not rounded to one."""
        parts = ["[0-9](?:[.][0-9]+)?[eE]-0*(?:[2-9]|[1-9][0-9]+)"]
        for before in range(1, 10):
            near = SURE_DIGITS - before - 1
            after = f"[1-8][0-9]*|0{{1,{near}}}[1-9][0-9]*|9{{1,{near}}}(?:[0-8][0-9]*)?"
            parts.append(f"[0-9]{{{before}}}[.](?:{after})")
        return self.join([self._few_digits, self.languages.regex(f"^-?(?:{'|'.join(parts)})$", "ecma")])

    # Nor does 0.99999999999999999999 stay below 1 then: beyond a bound is what is beyond it as a float too.

    def _between(self, low: Bound, low_open: bool, high: Bound, high_open: bool) -> Language:
        start = _beyond(low, math.inf) if low is not None and low_open else low
        end = _beyond(high, -math.inf) if high is not None and high_open else high
        found = numbers.between(self.languages, start, low_open, end, high_open)
        if any(bound is not None and abs(bound) >= EXACT_WHOLE for bound in (low, high)):
            # whole numbers are kept as they are
            return self.join([found, numbers.integer(self.languages, low, low_open, high, high_open)])
        return found

    def _outside(self, low: Bound, low_open: bool, high: Bound, high_open: bool) -> Language:
        parts = []
        if low is not None:
            parts.append(self._between(None, False, low, not low_open))
        if high is not None:
            parts.append(self._between(high, not high_open, None, False))
        return self.join(parts)

    def _taken_for(self, value: Fraction) -> Language:
        """What :meth:`_outside` leaves out, where a float tells whole numbers apart: what is read as this value."""
        return numbers.between(self.languages, _beyond(value, -math.inf), False, _beyond(value, math.inf), False)

    def _multiple_of(self, divisor: Fraction, bounds: Bounds, whole: bool) -> Language:
        integers = numbers.multiple_of(self.languages, divisor, *bounds, whole=True)
        if whole:
            return integers
        places = next((at for at in range(SURE_DIGITS) if (divisor * 10**at).denominator == 1), SURE_DIGITS)
        low, low_open, high, high_open = bounds
        most = Fraction(10 ** (SURE_DIGITS - places))
        if low is None or low < -most:
            low, low_open = -most, True
        if high is None or high > most:
            high, high_open = most, True
        return self.join([integers, numbers.multiple_of(self.languages, divisor, low, low_open, high, high_open)])


def _beyond(bound: Fraction, towards: float) -> Fraction:
    """Numbers beyond this are rounded to another float than ``bound`` is, in that direction."""
    try:
        nearest = float(bound)
    except OverflowError:
        return bound
    following = math.nextafter(nearest, towards)
    if not nearest or math.isinf(following):
        return bound  # no text is as small as half the least float
    return (Fraction(nearest) + Fraction(following)) / 2


def _bounds(node: Node) -> Bounds:
    """(low, low is left out, high, high is left out): the tighter of the inclusive and the exclusive bound."""
    low, low_open = node.minimum, False
    if node.exclusive_minimum is not None and (low is None or node.exclusive_minimum >= low):
        low, low_open = node.exclusive_minimum, True
    high, high_open = node.maximum, False
    if node.exclusive_maximum is not None and (high is None or node.exclusive_maximum <= high):
        high, high_open = node.exclusive_maximum, True
    return low, low_open, high, high_open


def is_number(value: object) -> bool:
    return not isinstance(value, (bool, str, list, dict)) and value is not None
