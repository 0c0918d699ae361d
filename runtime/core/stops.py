"""Stop strings and stop regexes, matched on bytes as they come, holding back only what may be the start of one.

::

    bytes so far      The answer is 42.\\nQues|
    stops             "\\nQuestion:"   "###"
                      `------ released -'`held' the longest suffix that begins a stop

The match that ends first wins; of several that end at one byte, the longest, since the others lie inside it. Strings
are found by an Aho-Corasick automaton (Aho, Corasick: "Efficient string matching", CACM 18, 1975), which has one state
for each prefix of a stop, and stands at the longest suffix of the bytes so far that is such a prefix: its depth is the
number of bytes to hold back. Linear in the bytes fed, however they are cut into pieces. Regexes: :mod:`.stop_search`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .stop_search import Found, StopSearch

_SHARED_BYTES = 4096  # automata of larger stop lists are not kept for the next gen


class Match(NamedTuple):
    """``stop``, what matched, begins ``start`` bytes after the first byte ever fed."""

    stop: bytes
    start: int


class StopScanner:
    """One gen's position in its stops. Raises ValueError for an empty stop."""

    __slots__ = ("_fed", "_held", "_matched", "_parts")

    def __init__(self, stop: Sequence[bytes] = (), patterns: Sequence[str] = ()) -> None:
        self._parts: list[_Strings | StopSearch] = []
        if stop:
            self._parts.append(_Strings(tuple(stop)))
        if patterns:
            self._parts.append(StopSearch(patterns))
        self._held = b""
        self._fed = 0
        self._matched = False

    def feed(self, data: bytes) -> tuple[bytes, Match | None]:
        """Take the next bytes: (what can be released now, the match if one ended in ``data``).

        After a match the scanner is spent: what was fed after its end is dropped, and another feed is a ValueError.
        """
        if self._matched:
            raise ValueError("the stop scanner has matched already")
        pending = self._held + data
        base = self._fed - len(self._held)
        self._fed += len(data)
        first = self._scan(data)
        if first is not None:
            self._matched, self._held = True, b""
            return pending[: first.start - base], Match(pending[first.start - base : first.end - base], first.start)
        hold = min([self._fed, *(part.hold for part in self._parts)])
        self._held = pending[hold - base :]
        return pending[: hold - base], None

    def completes(self, data: bytes) -> Match | None:
        """The stop that the bytes so far and ``data``, which is not one of them, end with or hold. The scanner is
        spent: only :meth:`flush` may follow."""
        if self._matched:
            raise ValueError("the stop scanner has matched already")
        self._matched = True
        pending, base = self._held + data, self._fed - len(self._held)
        first = self._scan(data)
        return None if first is None else Match(pending[first.start - base : first.end - base], first.start)

    def _scan(self, data: bytes) -> Found | None:
        """The first of all parts' matches that ends in ``data``."""
        found = [match for part in self._parts if (match := part.scan(data)) is not None]
        return min(found, default=None)

    def flush(self) -> bytes:
        """The bytes still held back: nothing more will come, so they are no stop. b"" after a match."""
        held, self._held = self._held, b""
        return held


class _Strings:
    """One gen's position in its stop strings; the surface of :class:`.stop_search.StopSearch`."""

    __slots__ = ("_automaton", "_fed", "_state")

    def __init__(self, stops: tuple[bytes, ...]) -> None:
        small = sum(map(len, stops)) <= _SHARED_BYTES
        self._automaton = _shared_automaton(stops) if small else _Automaton(stops)
        self._state = 0
        self._fed = 0

    @property
    def hold(self) -> int:
        return self._fed - self._automaton.depth[self._state]

    def scan(self, data: bytes) -> Found | None:
        goto, fail, ends = self._automaton.goto, self._automaton.fail, self._automaton.ends
        state = self._state
        for index, byte in enumerate(data):
            following = goto.get(state << 8 | byte)
            while following is None and state:
                state = fail[state]
                following = goto.get(state << 8 | byte)
            state = following or 0
            stop = ends[state]
            if stop is not None:
                end = self._fed + index + 1
                return Found(end, end - len(stop))
        self._state = state
        self._fed += len(data)
        return None


class _Automaton:
    """State 0 is the empty prefix. ``goto[state << 8 | byte]``; where it has no entry, ``fail`` gives the next state
    to try. ``ends[state]`` is the longest stop that ends there."""

    __slots__ = ("depth", "ends", "fail", "goto")

    def __init__(self, stops: tuple[bytes, ...]) -> None:
        self.goto: dict[int, int] = {}
        self.depth = [0]
        self.ends: list[bytes | None] = [None]
        children: list[list[tuple[int, int]]] = [[]]
        for stop in stops:
            if not stop:
                raise ValueError("a stop string must not be empty")
            state = 0
            for byte in stop:
                following = self.goto.get(state << 8 | byte)
                if following is None:
                    following = len(self.depth)
                    self.goto[state << 8 | byte] = following
                    self.depth.append(self.depth[state] + 1)
                    self.ends.append(None)
                    children[state].append((byte, following))
                    children.append([])
                state = following
            self.ends[state] = stop
        self.fail = [0] * len(self.depth)
        queue = deque([0])
        while queue:
            state = queue.popleft()
            for byte, child in children[state]:
                self.fail[child] = self._fall(state, byte)
                if self.ends[child] is None:
                    self.ends[child] = self.ends[self.fail[child]]
                queue.append(child)

    def _fall(self, state: int, byte: int) -> int:
        """The longest proper suffix of (state + byte) that is a state."""
        while state:
            state = self.fail[state]
            following = self.goto.get(state << 8 | byte)
            if following is not None:
                return following
        return 0


@lru_cache(maxsize=64)
def _shared_automaton(stops: tuple[bytes, ...]) -> _Automaton:
    return _Automaton(stops)


def cut_tokens(token_bytes: Sequence[bytes], start: int) -> tuple[int, bytes]:
    """Where to cut an op's tokens so that nothing from byte ``start`` on remains.

    Returns how many tokens end at or before ``start``, and the bytes between the last of them and ``start``.
    """
    end = 0
    for kept, piece in enumerate(token_bytes):
        if end + len(piece) > start:
            return kept, piece[: start - end]
        end += len(piece)
    return len(token_bytes), b""
