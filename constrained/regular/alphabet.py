"""Interned sets of code points and the questions asked about several of them at once.

Sets are objects, so tables are keyed by identity; Unicode's ``\\w`` has some 770 ranges, and every answer about it is
worked out once per :class:`Alphabet`, however many positions of a counter ask.
"""

from __future__ import annotations

from ..charset import ALL, Ranges, intersect, normalize
from .language import Layout


class CharSet:
    """A set of code points; equal sets of one :class:`Alphabet` are the same object."""

    __slots__ = ("ranges", "single")

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        #: the code point if there is just one, else -1
        self.single = ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else -1

    def __repr__(self) -> str:
        return f"CharSet({self.ranges[:4]}{'...' if len(self.ranges) > 4 else ''})"


#: one cell: these code points belong to exactly the sets of these numbers
Cell = tuple[CharSet, tuple[int, ...]]


class Alphabet:
    """All sets of code points over one ``universe``: what may ever be written."""

    def __init__(self, universe: Ranges = ALL) -> None:
        self._whole = universe == ALL
        self._sets: dict[Ranges, CharSet] = {}
        self._singles: dict[int, CharSet] = {}
        self._meets: dict[tuple[CharSet, CharSet], CharSet] = {}
        self._joins: dict[frozenset[CharSet], CharSet] = {}
        self._outsides: dict[CharSet, CharSet] = {}
        self._cells: dict[tuple[CharSet, ...], tuple[Cell, ...]] = {}
        self._layouts: dict[tuple[CharSet, ...], tuple[Layout, tuple[int, ...]]] = {}
        self._same: dict[Layout, Layout] = {}
        #: ranges held in the tables, for the memory estimate
        self.held = 0
        self.none = self._intern(())
        self.all = self._intern(normalize(universe))

    def make(self, ranges: Ranges) -> CharSet:
        """The set of ``ranges`` (sorted, disjoint, surrogate-free) within the universe."""
        return self._intern(ranges if self._whole else intersect(ranges, self.all.ranges))

    def _intern(self, ranges: Ranges) -> CharSet:
        found = self._sets.get(ranges)
        if found is None:
            found = self._sets[ranges] = CharSet(ranges)
            self.held += len(ranges)
        return found

    def one(self, code: int) -> CharSet:
        """The set of one code point; empty if it is outside of the universe or a surrogate."""
        found = self._singles.get(code)
        if found is None:
            found = self._singles[code] = self.make(normalize([(code, code)]))
        return found

    def meet(self, a: CharSet, b: CharSet) -> CharSet:
        if a is b or b is self.all:
            return a
        if a is self.all:
            return b
        found = self._meets.get((a, b))
        if found is None:
            found = self._meets[a, b] = self._meets[b, a] = self._intern(intersect(a.ranges, b.ranges))
        return found

    def join(self, sets: list[CharSet]) -> CharSet:
        """Their union."""
        key = frozenset(sets)
        if len(key) == 1:
            return sets[0]
        found = self._joins.get(key)
        if found is None:
            found = self._joins[key] = self._intern(normalize([r for s in key for r in s.ranges]))
        return found

    def outside(self, inner: CharSet) -> CharSet:
        """What the universe holds beside ``inner``."""
        found = self._outsides.get(inner)
        if found is None:
            rest = [cell for cell, members in self.cells((self.all, inner)) if members == (0,)]
            found = self._outsides[inner] = rest[0] if rest else self.none
        return found

    def cells(self, sets: tuple[CharSet, ...]) -> tuple[Cell, ...]:
        """The coarsest partition of their union in which every set is a union of cells; none is empty."""
        found = self._cells.get(sets)
        if found is None:
            found = self._cells[sets] = self._partition(sets)
            self.held += len(found) * 4
        return found

    def layout(self, sets: tuple[CharSet, ...]) -> tuple[Layout, tuple[int, ...]]:
        """The ranges of disjoint ``sets`` in order, with the number of their set; sets are renumbered as they come,
        and the second part says which of ``sets`` each number is. Equal layouts are the same object."""
        found = self._layouts.get(sets)
        if found is None:
            spans = sorted((low, high, number) for number, one in enumerate(sets) for low, high in one.ranges)
            order: dict[int, int] = {}
            layout = tuple([(low, high, order.setdefault(number, len(order))) for low, high, number in spans])
            found = self._layouts[sets] = (self._same.setdefault(layout, layout), tuple(order))
            self.held += len(layout)
        return found

    def _partition(self, sets: tuple[CharSet, ...]) -> tuple[Cell, ...]:
        changes: dict[int, int] = {}
        for number, one in enumerate(sets):
            bit = 1 << number
            for low, high in one.ranges:
                changes[low] = changes.get(low, 0) ^ bit
                changes[high + 1] = changes.get(high + 1, 0) ^ bit
        parts: dict[int, list[tuple[int, int]]] = {}
        active = start = 0
        for at in sorted(changes):
            if active:
                part = parts.get(active)
                if part is None:
                    parts[active] = [(start, at - 1)]
                else:
                    part.append((start, at - 1))
            active ^= changes[at]
            start = at
        return tuple((self._intern(tuple(part)), _bits(members)) for members, part in parts.items())


def _bits(mask: int) -> tuple[int, ...]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)
