"""Stop regexes, searched for in text as it comes. Each character moves a handful of automaton positions along.

::

    text so far     The total is 12 EUR,
    regex           [0-9]+ (EUR|USD)       begun: {8: " (EUR|USD)..."}   at 8, "12 " has been read of it
                            `---- held back

A position is a :class:`plait.constrained.regular.language.Language`; equal positions are one object, so two beginnings
that stand at the same position can only go on alike, and the earlier one is kept. The match that ends first wins; of
those that end there, the one that began first.

Patterns are over characters. Bytes that are not UTF-8 belong to no match, and end those that have begun.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from ...constrained.regular.language import Language
from ...constrained.regular.languages import Languages
from ...constrained.regular.states import State

#: ways to read the text so far that may be open at a time, over all beginnings; more cost too much at each character
#: (about 2 us each, on the loop that everybody shares)
MAX_OPEN = 1024
#: what all stop regexes have met so far; past it they begin anew
_MAX_BYTES = 32 * 1024 * 1024


class Found(NamedTuple):
    """In bytes after the first byte ever fed."""

    end: int
    start: int


class StopSearch:
    """One gen's position in its stop regexes. Raises ValueError where more than MAX_OPEN readings are open."""

    __slots__ = ("_open", "_starts", "_tail", "_where")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._starts = tuple(_start(pattern) for pattern in patterns)
        self._open: dict[Language, int] = {}  # position -> where it began
        self._tail = b""  # of a character that is not whole yet
        self._where = 0  # bytes fed, without the tail

    @property
    def hold(self) -> int:
        """Where the earliest thing begins that may still become a match."""
        return min(self._open.values(), default=self._where)

    def scan(self, data: bytes) -> Found | None:
        """Take the next bytes; the first match that ends in them."""
        data = self._tail + data
        at, self._tail = 0, b""
        while at < len(data):
            length = _length(data[at])
            piece = data[at : at + length]
            char = _decoded(piece)
            if char is None and length > len(piece) and _may_begin(piece):
                self._tail = piece
                return None
            if char is None:
                self._open.clear()
                length = 1
            else:
                start = self._step(ord(char), length)
                if start is not None:
                    return Found(self._where, start)
                at += length
                continue
            at += length
            self._where += length
        return None

    def _step(self, code: int, length: int) -> int | None:
        """Take one character. Where a match began that ends with it."""
        moved: dict[Language, int] = {}
        ended: int | None = None
        for position, start in (*self._open.items(), *((start, self._where) for start in self._starts)):
            after = _after(position, code)
            if after is None:
                continue
            if after.accepting and (ended is None or start < ended):
                ended = start
            if moved.get(after, start) >= start:
                moved[after] = start
        self._where += length
        if ended is None and sum(map(_readings, moved)) > MAX_OPEN:
            raise ValueError(
                f"stop_regex keeps more than {MAX_OPEN} possible readings of the text open: make it shorter, or its "
                "repeats less alike"
            )
        self._open = moved
        return ended


def _after(position: Language, code: int) -> Language | None:
    layout, targets = position.layout()
    at = bisect_right(layout, code, key=itemgetter(0)) - 1
    return targets[layout[at][2]] if at >= 0 and layout[at][1] >= code else None


def _readings(position: Language) -> int:
    return position.size if isinstance(position, State) else 1


def _length(lead: int) -> int:
    """Bytes of the character that begins with ``lead``; 1 where none does."""
    return 1 if lead < 0xC2 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4 if lead < 0xF5 else 1


def _decoded(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def _may_begin(piece: bytes) -> bool:
    """Whether some character begins with these bytes."""
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


class _Shared:
    languages = Languages()


def _start(pattern: str) -> Language:
    if _Shared.languages.nbytes > _MAX_BYTES:
        _Shared.languages = Languages()  # what runs keeps its own alive
    return _Shared.languages.regex(pattern, "python")
