"""Sets of code points as sorted ranges.

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


_LONG_SOURCE = 2000  # characters


def fold(ranges: Ranges, source: str, flags: int) -> Ranges:
    """What the character or class ``source`` means under IGNORECASE, where ``ranges`` is its plain meaning."""
    cased = _cased()
    matched = re.compile(source, flags).findall(cased)
    if len(source) > _LONG_SOURCE:
        re.purge()  # ``re`` keeps the last 512 patterns and their code, however long they are
    kept = intersect(ranges, complement(normalize((ord(c), ord(c)) for c in cased)))
    return normalize([*kept, *((ord(c), ord(c)) for c in matched)])


_ALIKE = {"i": "iI\u0130\u0131", "k": "kK\u212a", "s": "sS\u017f"}


_REMEMBERED = ((16, 4096), (2048, 64))  # so many results for sets of so many ranges: 12 MB at most, and 25


def folded(ranges: Ranges, ascii_only: bool) -> Ranges:
    """``ranges`` and all that differs from them only in case, as Python's IGNORECASE has it."""
    for (size, _), remembered in zip(_REMEMBERED, _folded_once):
        if len(ranges) <= size:
            return remembered(ranges, ascii_only)
    return _folded(ranges, ascii_only)


def _folded(ranges: Ranges, ascii_only: bool) -> Ranges:
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


_folded_once = tuple(lru_cache(maxsize=most)(_folded) for _, most in _REMEMBERED)
