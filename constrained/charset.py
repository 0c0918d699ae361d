"""Sets of code points as sorted ranges, and as small automata over UTF-8 bytes.

Surrogates are in no set: they have no UTF-8. What ``\\w``, ``\\d``, ``\\s`` and IGNORECASE mean is asked of Python's
own ``re`` (over strings made here, never over input), so the meaning is Python's by construction.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache

#: sorted, disjoint, not touching; both ends included
Ranges = tuple[tuple[int, int], ...]

ALL: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))


#: where anything but unassigned and private code points lies: planes 4 to 13 have never held anything
_ASSIGNED: Ranges = ((0, 0xD7FF), (0xE000, 0x3FFFF), (0xE0000, 0xE0FFF))


def normalize(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort, join what touches, cut surrogates out."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    kept: list[tuple[int, int]] = []
    for low, high in joined:
        if low < 0xD800:
            kept.append((low, min(high, 0xD7FF)))
        if high > 0xDFFF:
            kept.append((max(low, 0xE000), high))
    return tuple(kept)


def complement(ranges: Ranges) -> Ranges:
    """Every code point that is not in ``ranges``."""
    found = []
    at = 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    if at <= 0x10FFFF:
        found.append((at, 0x10FFFF))
    return normalize(found)


def intersect(a: Ranges, b: Ranges) -> Ranges:
    """What is in both; two pointers, linear."""
    found = []
    i = j = 0
    while i < len(a) and j < len(b):
        low = max(a[i][0], b[j][0])
        high = min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


@lru_cache(maxsize=64)
def category(letter: str, ascii_only: bool) -> Ranges:
    """The set of one of ``\\d \\D \\s \\S \\w \\W``."""
    if letter.isupper():
        return complement(category(letter.lower(), ascii_only))
    pattern = re.compile(rf"\{letter}+", re.ASCII if ascii_only else 0)
    return normalize(
        (ord(run[0]), ord(run[-1]))
        for low, high in _ASSIGNED
        for run in pattern.findall(array("I", range(low, high + 1)).tobytes().decode(f"utf-32-{sys.byteorder[0]}e"))
    )


@lru_cache(maxsize=1)
def _cased() -> str:
    """Every character that any case mapping touches."""
    letters = "".join(chr(c) for low, high in category("w", False) for c in range(low, high + 1))
    found: set[str] = set()
    for c in letters:
        low, high = c.lower(), c.upper()
        if low != high:
            found.update(c, low, high)
    # so-called circled letters are symbols, yet have case
    found.update(chr(c) for c in range(0x24B6, 0x24EA))
    found.update("\u0345")
    return "".join(sorted(c for c in found if len(c) == 1))


def fold(ranges: Ranges, source: str, flags: int) -> Ranges:
    """What the character or class ``source`` means under IGNORECASE, where ``ranges`` is its plain meaning."""
    cased = _cased()
    matched = re.compile(source, flags).findall(cased)
    kept = intersect(ranges, complement(normalize((ord(c), ord(c)) for c in cased)))
    return normalize([*kept, *((ord(c), ord(c)) for c in matched)])


_ALIKE = {"i": "iI\u0130\u0131", "k": "kK\u212a", "s": "sS\u017f"}


@lru_cache(maxsize=4096)
def folded(ranges: Ranges, ascii_only: bool) -> Ranges:
    """``ranges`` and all that differs from them only in case, as Python's IGNORECASE has it."""
    if not ranges:
        return ranges
    if ranges[-1][1] < 128:
        found = list(ranges)
        for low, high in ranges:
            for char in map(chr, range(low, high + 1)):
                if char.isalpha():
                    same = char.lower() + char.upper() if ascii_only else _ALIKE.get(char.lower(), char.swapcase())
                    found.extend((ord(one), ord(one)) for one in same)
        return normalize(found)
    source = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return fold(ranges, f"[{source}]", int(re.IGNORECASE | (re.ASCII if ascii_only else 0)))


# ---------------------------------------------------------------- UTF-8

#: one node: (lowest byte, highest byte, next node); next node 0 = a whole character has been read
Edges = tuple[tuple[int, int, int], ...]

_SPANS = ((0, 0x7F, 0, 0x00), (0x80, 0x7FF, 1, 0xC0), (0x800, 0xFFFF, 2, 0xE0), (0x10000, 0x10FFFF, 3, 0xF0))


@lru_cache(maxsize=256)
def utf8(ranges: Ranges) -> tuple[Edges, ...]:
    """A deterministic automaton over the UTF-8 of exactly these code points; the last node is where it starts.

    Equal nodes are one node, so a class of many ranges stays small (``\\w``: some 250 nodes).
    """
    nodes: list[Edges] = [()]
    known: dict[Edges, int] = {(): 0}

    def intern(edges: list[tuple[int, int, int]]) -> int:
        merged: list[tuple[int, int, int]] = []
        for low, high, child in edges:
            if merged and merged[-1][1] + 1 == low and merged[-1][2] == child:
                merged[-1] = (merged[-1][0], high, child)
            else:
                merged.append((low, high, child))
        key = tuple(merged)
        if key not in known:
            known[key] = len(nodes)
            nodes.append(key)
        return known[key]

    def edges_of(parts: list[tuple[int, int]], more: int, mark: int) -> list[tuple[int, int, int]]:
        """Edges by the top byte of values in ``parts`` (ascending), with ``more`` bytes of six bits below it."""
        shift = 6 * more
        block = 1 << shift
        edges: list[tuple[int, int, int]] = []
        inside: list[tuple[int, int]] = []
        top = -1

        def close() -> None:
            if inside:
                child = intern(edges_of(inside, more - 1, 0x80)) if more else 0
                edges.append((mark + top, mark + top, child))
                inside.clear()

        for low, high in parts:
            while low <= high:
                here = low >> shift
                if here != top:
                    close()
                    top = here
                end = min(high, ((here + 1) << shift) - 1)
                if low == here << shift and high - low + 1 >= block:
                    last = ((high + 1) >> shift) - 1  # whole blocks from here to last
                    full = intern(edges_of([(0, block - 1)], more - 1, 0x80)) if more else 0
                    edges.append((mark + here, mark + last, full))
                    low = (last + 1) << shift
                    top = last
                else:
                    inside.append((low - (here << shift), end - (here << shift)))
                    low = end + 1
        close()
        return edges

    start: list[tuple[int, int, int]] = []
    for first, last, more, mark in _SPANS:
        parts = [(max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first]
        if parts:
            start.extend(edges_of(parts, more, mark))
    nodes.append(tuple(start))
    return tuple(nodes)
