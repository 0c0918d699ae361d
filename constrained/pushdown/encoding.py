"""From edges over code points to edges over bytes: UTF-8, and the spellings that a JSON string allows.

A *position* says where in the writing of a character a text stands; positions are plain tuples, equal iff they allow
the same bytes to follow (as far as it is cheap to see), so they can be interned:

::

    (TEXT, language, json)      between two characters
    (TAIL, n, pieces)           n continuation bytes of UTF-8 are missing; pieces over the 6n bits that they spell
    (ESCAPE, language)          after the backslash
    (HEX, n, pieces)            n hex digits are missing; pieces over the 4n bits that they spell
    (LOW, 0|1, pieces)          after the escape of a high surrogate: backslash, then u; pieces over the low 10 bits
    (END,)                      after the closing quote

``pieces`` are sorted, disjoint (lowest, highest, position) triples. JSON text is written as :rfc:`8259` section 7 has
it: every code point raw except ``"``, ``\\`` and controls; ``\\uXXXX`` in either case, astral characters as a surrogate
pair, never a lone surrogate. Escapes that nobody needs are left out where they would cost a forced byte: printable
ASCII by ``\\u00XX`` only where all of it leads to one place (a free character), ``\\/`` only where the slash is not the
only character of its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..regular.language import Language

TEXT, TAIL, ESCAPE, HEX, LOW, END = range(6)
Position = tuple[Any, ...]
Piece = tuple[int, int, Position]
Pieces = tuple[Piece, ...]
#: (lowest byte, highest byte, position after it)
ByteEdge = tuple[int, int, Position]

AFTER_QUOTE: Position = (END,)
_QUOTE, _SLASH, _BACKSLASH, _U = 0x22, 0x2F, 0x5C, 0x75
#: what may stand after the backslash, and the code point it spells
_SHORT = {_QUOTE: 0x22, _BACKSLASH: 0x5C, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}
#: bytes that every escape can be written with; without them a vocabulary writes no escapes at all
ESCAPE_BYTES = b"\\u0123456789abcdef"


def byte_edges(position: Position) -> list[ByteEdge]:
    """Where each next byte leads; disjoint, in no order. May raise what :meth:`Language.edges` raises."""
    tag = position[0]
    if tag == TEXT:
        return _text(position[1], position[2])
    if tag == TAIL:
        left, pieces = position[1], position[2]
        if left == 1:
            return [(0x80 + low, 0x80 + high, target) for low, high, target in pieces]
        return [(0x80 + low, 0x80 + high, (TAIL, left - 1, rest)) for low, high, rest in split(pieces, 6 * (left - 1))]
    if tag == ESCAPE:
        return _escape(position[1])
    if tag == HEX:
        left, pieces = position[1], position[2]
        if left == 1:
            return [edge for low, high, target in pieces for edge in _hex_digits(low, high, target)]
        found = split(pieces, 4 * (left - 1))
        return [edge for low, high, rest in found for edge in _hex_digits(low, high, (HEX, left - 1, rest))]
    if tag == LOW:
        if position[1] == 0:
            return [(_BACKSLASH, _BACKSLASH, (LOW, 1, position[2]))]
        units = tuple((0xDC00 + low, 0xDC00 + high, target) for low, high, target in position[2])
        return [(_U, _U, (HEX, 4, units))]
    return []


def accepts(position: Position) -> int:
    """0: more must follow; 1: a whole member, more may follow; 2: a whole member, nothing may follow."""
    if position[0] == TEXT and not position[2]:
        language: Language = position[1]
        if language.accepting:
            return 2 if language.longest == 0 else 1
        return 0
    return 2 if position[0] == END else 0


def capped(position: Position, length: int) -> Position:
    """The position in the languages capped to ``length`` code points (:meth:`Language.capped`)."""
    tag = position[0]
    if tag == TEXT:
        return (TEXT, position[1].capped(length), position[2])
    if tag == ESCAPE:
        return (ESCAPE, position[1].capped(length))
    if tag == END:
        return position
    return (tag, position[1], _merged((low, high, capped(target, length)) for low, high, target in position[2]))


def split(pieces: Iterable[Piece], bits: int) -> list[tuple[int, int, Pieces]]:
    """Pieces cut by ``value >> bits``: (lowest, highest, pieces over the low bits). Runs that are filled wholly by one
    piece stay one run, so the work follows the pieces and not the values."""
    full = (1 << bits) - 1
    found: list[tuple[int, int, Pieces]] = []
    part: list[Piece] = []  # what is known of the value `at`
    at = -1
    for low, high, target in pieces:
        first, last = low >> bits, high >> bits
        if part and first != at:
            found.append((at, at, tuple(part)))
            part = []
        at = first
        if first == last:
            _append(part, low & full, high & full, target)
            continue
        if part or low & full:
            _append(part, low & full, full, target)
            found.append((first, first, tuple(part)))
            part = []
            first += 1
        whole = last if high & full == full else last - 1
        if first <= whole:
            found.append((first, whole, ((0, full, target),)))
        if whole < last:
            part = [(0, high & full, target)]
        at = last
    if part:
        found.append((at, at, tuple(part)))
    return found


def clip(pieces: Iterable[Piece], lowest: int, highest: int, shift: int = 0) -> list[Piece]:
    """What of ``pieces`` lies between two values, moved by ``shift``."""
    return [
        (max(low, lowest) + shift, min(high, highest) + shift, target)
        for low, high, target in pieces
        if low <= highest and high >= lowest
    ]


def _append(part: list[Piece], low: int, high: int, target: Position) -> None:
    if part and part[-1][1] + 1 == low and part[-1][2] == target:
        part[-1] = (part[-1][0], high, target)
    else:
        part.append((low, high, target))


def _merged(pieces: Iterable[Piece]) -> Pieces:
    part: list[Piece] = []
    for low, high, target in pieces:
        _append(part, low, high, target)
    return tuple(part)


def _pieces(language: Language, json: bool) -> Pieces:
    positions: dict[Language, Position] = {}
    return _merged(
        (low, high, positions.get(target) or positions.setdefault(target, (TEXT, target, json)))
        for low, high, target in language.edges()
    )


def _text(language: Language, json: bool) -> list[ByteEdge]:
    pieces = _pieces(language, json)
    if not json:
        return _utf8(pieces)
    raw = [*clip(pieces, 0x20, 0x21), *clip(pieces, 0x23, 0x5B), *clip(pieces, 0x5D, 0x10FFFF)]
    found = _utf8(raw)
    if language.accepting:
        found.append((_QUOTE, _QUOTE, AFTER_QUOTE))
    if _may_escape(pieces):
        found.append((_BACKSLASH, _BACKSLASH, (ESCAPE, language)))
    return found


def _utf8(pieces: Sequence[Piece]) -> list[ByteEdge]:
    found: list[ByteEdge] = clip(pieces, 0, 0x7F)
    if pieces and pieces[-1][1] >= 0x80:
        for lowest, highest, bits, lead in (
            (0x80, 0x7FF, 6, 0xC0),
            (0x800, 0xFFFF, 12, 0xE0),
            (0x10000, 0x10FFFF, 18, 0xF0),
        ):
            for low, high, rest in split(clip(pieces, lowest, highest), bits):
                found.append((lead + low, lead + high, (TAIL, bits // 6, rest)))
    return found


def _hex_digits(low: int, high: int, target: Position) -> list[ByteEdge]:
    found: list[ByteEdge] = []
    if low <= 9:
        found.append((0x30 + low, 0x30 + min(high, 9), target))
    if high >= 10:
        for letter in (0x41, 0x61):
            found.append((letter + max(low, 10) - 10, letter + high - 10, target))
    return found


def _may_escape(pieces: Pieces) -> bool:
    for low, high, target in pieces:
        if high >= 0x7F or low < 0x20 or low <= _QUOTE <= high or low <= _BACKSLASH <= high:
            return True
        if low <= _SLASH <= high and _several(pieces, target):
            return True
    return False


def _several(pieces: Pieces, target: Position) -> bool:
    """More than one code point leads to ``target``."""
    return sum(high - low + 1 for low, high, other in pieces if other == target) > 1


def _escape(language: Language) -> list[ByteEdge]:
    pieces = _pieces(language, True)
    found: list[ByteEdge] = []
    for byte, code in _SHORT.items():
        found.extend((byte, byte, target) for low, high, target in pieces if low <= code <= high)
    units: list[Piece] = []
    for low, high, target in pieces:
        if low <= _SLASH <= high and _several(pieces, target):
            found.append((_SLASH, _SLASH, target))
        if low <= 0x20 and high >= 0x7E:  # a free character: printable ASCII by its number too
            units.append((low, min(high, 0xFFFF), target))
        else:
            for lowest, highest in ((0, 0x1F), (_QUOTE, _QUOTE), (_BACKSLASH, _BACKSLASH), (0x7F, 0xFFFF)):
                units.extend(clip(((low, high, target),), lowest, highest))
    for low, high, rest in split(clip(pieces, 0x10000, 0x10FFFF, -0x10000), 10):
        units.append((0xD800 + low, 0xD800 + high, (LOW, 0, rest)))
    if units:
        units.sort(key=lambda piece: piece[0])
        found.append((_U, _U, (HEX, 4, _merged(units))))
    return found
