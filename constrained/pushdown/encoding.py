"""From edges over code points to edges over bytes: UTF-8, and the spellings that a JSON string allows.

::

    Position (language, json)      between two characters
    Position (shape, targets)      inside a character: shape says which bytes may come and where they lead, in terms of
                                   0, 1, 2, ...; targets are the languages that these numbers stand for

    ANY, any string up to 20 characters, ...   one shape: "a free character, then 0"        made once
    [a-z], then 0; digits, then 1              another

So the work on ranges of code points is done once per shape and not once per state. The kinds of shapes:

    RAW, STRING, CLOSABLE  a whole character; in JSON, where the closing quote may come too (CLOSABLE)
    TAIL                   ``left`` continuation bytes of UTF-8 are missing; pieces over the 6 x left bits they spell
    ESCAPE                 after the backslash; pieces over code points
    HEX                    ``left`` hex digits are missing; pieces over the 4 x left bits they spell
    LOW                    after a high surrogate: backslash (left = 2), u (1) are missing; pieces over the low 10 bits
    END                    after the closing quote

JSON text is written as :rfc:`8259` section 7 has it: every code point raw except ``"``, ``\\`` and controls;
``\\uXXXX`` in either case, astral characters as a surrogate pair, never a lone surrogate. Escapes that nobody needs are
left out where they would cost a forced byte: printable ASCII by ``\\u00XX`` only where all of it leads to one place (a
free character), ``\\/`` only where the slash is not the only character that leads to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..regular.language import Language

RAW, STRING, CLOSABLE, TAIL, ESCAPE, HEX, LOW, END = range(8)
#: (language, json) or (shape, targets)
Position = tuple[Any, Any]
#: sorted, disjoint (lowest, highest, place); a place is a number, or (shape, numbers): into another character
Pieces = Sequence[tuple[int, int, Any]]
#: the shape after a byte (None: the character is over), and what its numbers are in the shape before
Child = tuple["Shape | None", tuple[int, ...]]
#: lowest byte, highest byte, where they lead
ByteEdge = tuple[int, int, Child]

_QUOTE, _SLASH, _BACKSLASH, _U = 0x22, 0x2F, 0x5C, 0x75
#: what may stand after the backslash, and the code point it spells
_SHORT = {_QUOTE: 0x22, _BACKSLASH: 0x5C, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}
#: bytes that every escape can be written with; without them a vocabulary writes no escapes at all
ESCAPE_BYTES = b"\\u0123456789abcdef"


class Shape:
    """What may stand in one place of a character. Interned: equal shapes of one :class:`Shapes` are one object."""

    __slots__ = ("children", "column", "json", "kind", "left", "only", "pieces")

    def __init__(self, kind: int, json: bool, left: int, pieces: Pieces) -> None:
        self.kind = kind
        self.json = json
        self.left = left
        self.pieces = pieces
        # by Shapes.open:
        self.children: tuple[Child, ...] = ()
        self.column: NDArray[np.intp] | None = None  # [256]: byte -> 1 + number of its child, or 0
        self.only = -1  # the one byte that may come, -1 for none, -2 for several


class Shapes:
    """All shapes of one lexeme table. Bytes that are ``missing`` lead nowhere; without ``escapes``, JSON has none."""

    def __init__(self, missing: Sequence[int] = (), escapes: bool = True) -> None:
        self._missing = list(missing)
        self._escapes = escapes
        self._known: dict[tuple[int, bool, int, Pieces], Shape] = {}
        #: by identity of the layout (which is kept, so that its id stays its own)
        self._by_layout: dict[tuple[int, bool, int], tuple[Pieces, Shape]] = {}
        self.closed = self.make(END, True, 0, ())[0]

    def __len__(self) -> int:
        return len(self._known)

    def make(self, kind: int, json: bool, left: int, pieces: Pieces) -> tuple[Shape, tuple[int, ...]]:
        """The shape with its places numbered in the order they come, and what number each has in ``pieces``. That is a
        Child of the shape that ``pieces`` are taken from."""
        order: dict[int, int] = {}
        normal: list[tuple[int, int, Any]] = []
        for low, high, term in pieces:
            if type(term) is int:
                term = order.setdefault(term, len(order))
            else:
                term = (term[0], tuple([order.setdefault(number, len(order)) for number in term[1]]))
            if normal and normal[-1][1] + 1 == low and normal[-1][2] == term:
                normal[-1] = (normal[-1][0], high, term)
            else:
                normal.append((low, high, term))
        key = (kind, json, left, tuple(normal))
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = Shape(*key)
        return shape, tuple(order)

    def expand(self, position: Position) -> tuple[Shape, Sequence[Language]]:
        """A position as shape and targets. May raise what :meth:`Language.edges` raises."""
        first, second = position
        if type(first) is Shape:
            return first, second
        language: Language = first
        layout, targets = language.layout()
        kind = (CLOSABLE if language.accepting else STRING) if second else RAW
        key = (kind, second, id(layout))
        known = self._by_layout.get(key)
        if known is None or known[0] is not layout:
            shape, _ = self.make(kind, second, 0, layout)  # numbered in order already
            known = (layout, shape)
            if len(layout) > 16:  # a short one is as soon compared as looked up
                self._by_layout[key] = known
        return known[1], targets

    def open(self, shape: Shape) -> NDArray[np.intp]:
        """Work out ``children``, ``column`` (given back) and ``only``."""
        if shape.column is None:
            numbers: dict[Child, int] = {}
            column = np.zeros(256, np.intp)
            for low, high, child in self._edges(shape):
                column[low : high + 1] = numbers.setdefault(child, len(numbers) + 1)
            column[self._missing] = 0
            live = np.flatnonzero(column)
            shape.only = -2 if len(live) > 1 else int(live[0]) if len(live) else -1
            shape.children = tuple(numbers)
            shape.column = column
        return shape.column

    def after(self, position: Position, byte: int) -> Position | None:
        """The position after one byte; None if it may not come."""
        shape, targets = self.expand(position)
        number = int(self.open(shape)[byte])
        return place(shape, targets, shape.children[number - 1]) if number else None

    def capped(self, position: Position, length: int) -> Position:
        """The position in the languages capped to ``length`` code points (:meth:`Language.capped`)."""
        first, second = position
        if type(first) is not Shape:
            return (first.capped(length), second)
        targets = tuple(target.capped(length) for target in second)
        places: dict[Language, int] = {}
        numbers = [places.setdefault(target, len(places)) for target in targets]
        if len(places) == len(targets):
            return (first, targets)
        pieces = [(low, high, _renumbered(term, numbers)) for low, high, term in first.pieces]
        shape, order = self.make(first.kind, first.json, first.left, pieces)
        kept = list(places)
        return (shape, tuple(kept[number] for number in order))

    def _edges(self, shape: Shape) -> list[ByteEdge]:
        kind, left, pieces = shape.kind, shape.left, shape.pieces
        if kind == RAW:
            return self._utf8(pieces, False)
        if kind in (STRING, CLOSABLE):
            found = self._utf8(
                [*clip(pieces, 0x20, 0x21), *clip(pieces, 0x23, 0x5B), *clip(pieces, 0x5D, 0x10FFFF)], True
            )
            if kind == CLOSABLE:
                found.append((_QUOTE, _QUOTE, (self.closed, ())))
            if self._escapes and _may_escape(pieces):
                found.append((_BACKSLASH, _BACKSLASH, self.make(ESCAPE, True, 0, pieces)))
            return found
        if kind == TAIL:
            if left == 1:
                return [(0x80 + low, 0x80 + high, _leaf(term)) for low, high, term in pieces]
            parts = split(pieces, 6 * (left - 1))
            return [(0x80 + low, 0x80 + high, self.make(TAIL, shape.json, left - 1, rest)) for low, high, rest in parts]
        if kind == ESCAPE:
            return self._escape(pieces)
        if kind == HEX:
            if left == 1:
                return [edge for low, high, term in pieces for edge in _hex_digits(low, high, _leaf(term))]
            parts = split(pieces, 4 * (left - 1))
            return [
                e for low, high, rest in parts for e in _hex_digits(low, high, self.make(HEX, True, left - 1, rest))
            ]
        if kind == LOW:
            if left == 2:
                return [(_BACKSLASH, _BACKSLASH, self.make(LOW, True, 1, pieces))]
            units = [(0xDC00 + low, 0xDC00 + high, term) for low, high, term in pieces]
            return [(_U, _U, self.make(HEX, True, 4, units))]
        return []

    def _utf8(self, pieces: Pieces, json: bool) -> list[ByteEdge]:
        found = [(low, high, _leaf(term)) for low, high, term in clip(pieces, 0, 0x7F)]
        if pieces and pieces[-1][1] >= 0x80:
            for lowest, highest, bits, lead in (
                (0x80, 0x7FF, 6, 0xC0),
                (0x800, 0xFFFF, 12, 0xE0),
                (0x10000, 0x10FFFF, 18, 0xF0),
            ):
                for low, high, rest in split(clip(pieces, lowest, highest), bits):
                    found.append((lead + low, lead + high, self.make(TAIL, json, bits // 6, rest)))
        return found

    def _escape(self, pieces: Pieces) -> list[ByteEdge]:
        found: list[ByteEdge] = []
        for byte, code in _SHORT.items():
            found.extend((byte, byte, _leaf(term)) for low, high, term in pieces if low <= code <= high)
        units: list[tuple[int, int, Any]] = []
        for low, high, term in pieces:
            if low <= _SLASH <= high and _several(pieces, term):
                found.append((_SLASH, _SLASH, _leaf(term)))
            if low <= 0x20 and high >= 0x7E:  # a free character: printable ASCII by its number too
                units.append((low, min(high, 0xFFFF), term))
            else:
                for lowest, highest in ((0, 0x1F), (_QUOTE, _QUOTE), (_BACKSLASH, _BACKSLASH), (0x7F, 0xFFFF)):
                    units.extend(clip(((low, high, term),), lowest, highest))
        for low, high, rest in split(clip(pieces, 0x10000, 0x10FFFF, -0x10000), 10):
            units.append((0xD800 + low, 0xD800 + high, self.make(LOW, True, 2, rest)))
        if units:
            units.sort(key=lambda piece: piece[0])
            found.append((_U, _U, self.make(HEX, True, 4, units)))
        return found


def place(shape: Shape, targets: Sequence[Language], child: Child) -> Position:
    """What a child of ``shape`` is where its numbers stand for ``targets``."""
    then, take = child
    if then is None:
        return (targets[take[0]], shape.json)
    return (then, tuple([targets[number] for number in take]))


def accepts(position: Position) -> int:
    """0: more must follow; 1: a whole member, more may follow; 2: a whole member, nothing may follow."""
    first, second = position
    if type(first) is Shape:
        return 2 if first.kind == END else 0
    if second or not first.accepting:
        return 0
    return 2 if first.longest == 0 else 1


def split(pieces: Pieces, bits: int) -> list[tuple[int, int, Pieces]]:
    """Pieces cut by ``value >> bits``: (lowest, highest, pieces over the low bits). Runs that are filled wholly by one
    piece stay one run, so the work follows the pieces and not the values."""
    full = (1 << bits) - 1
    found: list[tuple[int, int, Pieces]] = []
    part: list[tuple[int, int, Any]] = []  # what is known of the value `at`
    at = -1
    for low, high, term in pieces:
        first, last = low >> bits, high >> bits
        if part and first != at:
            found.append((at, at, part))
            part = []
        at = first
        if first == last:
            part.append((low & full, high & full, term))
            continue
        if part or low & full:
            part.append((low & full, full, term))
            found.append((first, first, part))
            part = []
            first += 1
        whole = last if high & full == full else last - 1
        if first <= whole:
            found.append((first, whole, [(0, full, term)]))
        if whole < last:
            part = [(0, high & full, term)]
        at = last
    if part:
        found.append((at, at, part))
    return found


def clip(pieces: Pieces, lowest: int, highest: int, shift: int = 0) -> list[tuple[int, int, Any]]:
    """What of ``pieces`` lies between two values, moved by ``shift``."""
    return [
        (max(low, lowest) + shift, min(high, highest) + shift, term)
        for low, high, term in pieces
        if low <= highest and high >= lowest
    ]


def _leaf(term: Any) -> Child:
    return (None, (term,)) if type(term) is int else term


def _renumbered(term: Any, numbers: Sequence[int]) -> Any:
    if type(term) is int:
        return numbers[term]
    return (term[0], tuple(numbers[number] for number in term[1]))


def _hex_digits(low: int, high: int, child: Child) -> list[ByteEdge]:
    found: list[ByteEdge] = []
    if low <= 9:
        found.append((0x30 + low, 0x30 + min(high, 9), child))
    if high >= 10:
        for letter in (0x41, 0x61):
            found.append((letter + max(low, 10) - 10, letter + high - 10, child))
    return found


def _may_escape(pieces: Pieces) -> bool:
    for low, high, term in pieces:
        if high >= 0x7F or low < 0x20 or low <= _QUOTE <= high or low <= _BACKSLASH <= high:
            return True
        if low <= _SLASH <= high and _several(pieces, term):
            return True
    return False


def _several(pieces: Pieces, term: Any) -> bool:
    """More than one code point leads to ``term``."""
    return sum(high - low + 1 for low, high, other in pieces if other == term) > 1
