"""One matcher for every library: what each offers (:class:`Session`) turned into the protocol of :mod:`..interface`."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..interface import WayOut
from ..vocabulary import Vocabulary


class Session(Protocol):
    """One sequence in a library. A step is one token, or one call of :meth:`take_bytes`."""

    def fill(self, out: NDArray[np.int32]) -> None:
        """Write the mask of text tokens; other bits may be anything. ConstraintError: a limit of the library."""

    def take(self, token: int) -> bool:
        """One text token. False, and nothing has changed, if it is not allowed."""

    def take_bytes(self, data: bytes) -> int:
        """Bytes. The number of steps taken; 0, and nothing has changed, if they are not allowed."""

    def undo(self, steps: int) -> None: ...

    def copy(self) -> Session: ...

    def forced(self) -> bytes: ...

    def accepting(self) -> bool: ...


class Texts:
    """What masks of one vocabulary have in common: ``text`` has the bits of all ids that spell something."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = np.array([bool(data) for data in vocabulary.tokens] + [False] * (-vocabulary.size % 32))
        self.text: NDArray[np.uint32] = np.packbits(ids, bitorder="little").view(np.uint32)
        self.eos = vocabulary.eos_mask


class LibraryConstraint:
    """What a library compiled; ``start`` makes a session at its beginning."""

    def __init__(
        self, key: str, vocabulary: Vocabulary, start: Callable[[], Session], nbytes: Callable[[], int]
    ) -> None:
        self.key = key
        self.vocabulary = vocabulary
        self.texts = Texts(vocabulary)
        self.start = start
        self._nbytes = nbytes

    @property
    def nbytes(self) -> int:
        """As far as it is known: what the library says, or what the process grew by while it was built."""
        return self._nbytes()

    def matcher(self) -> LibraryMatcher:
        return LibraryMatcher(self, self.start())


class LibraryMatcher:
    """Implements :class:`..interface.Matcher` over a session."""

    def __init__(self, constraint: LibraryConstraint, session: Session) -> None:
        self._constraint = constraint
        self._session = session
        self._moves: list[int] = []  # steps of the session that each move took; -1: EOS
        self._mask: NDArray[np.uint32] | None = None

    def prepare(self, seconds: float | None = None) -> bool:
        """Fills the mask, however long the library takes for it. Raises ConstraintError (a limit of the library)."""
        self.mask()
        return True

    def mask(self) -> NDArray[np.uint32]:
        if self._mask is None:
            texts = self._constraint.texts
            found = np.zeros(len(texts.text), np.int32)
            if not self._ended:
                self._session.fill(found)
            mask = found.view(np.uint32) & texts.text
            if not self._ended and self._session.accepting():
                mask |= texts.eos
            mask.flags.writeable = False
            self._mask = mask
        return self._mask

    def advance(self, token: int) -> bool:
        vocabulary = self._constraint.vocabulary
        if self._ended or not 0 <= token < vocabulary.size:
            return False
        if token in vocabulary.eos_ids:
            if not self._session.accepting():
                return False
            self._moves.append(-1)
        elif vocabulary.tokens[token] and self._session.take(token):
            self._moves.append(1)
        else:
            return False
        self._mask = None
        return True

    def advance_bytes(self, data: bytes) -> bool:
        if self._ended:
            return False
        steps = self._session.take_bytes(data) if data else 0
        if data and not steps:
            return False
        self._moves.append(steps)
        self._mask = None
        return True

    def forced(self) -> bytes:
        if self._ended or self._session.accepting():
            return b""
        return self._session.forced()

    def allows(self, data: bytes) -> bool:
        if not data:
            return True
        if self._ended:
            return False
        steps = self._session.take_bytes(data)
        if steps:
            self._session.undo(steps)
        return steps > 0

    def completion(self, most: int, seconds: float | None = None) -> WayOut | None:
        """Libraries say nothing of it."""
        return WayOut((), 0) if self.accepting else None

    def rollback(self, moves: int) -> None:
        if not 0 <= moves <= len(self._moves):
            raise ValueError(f"cannot undo {moves} moves of {len(self._moves)}")
        if moves:
            steps = sum(max(taken, 0) for taken in self._moves[-moves:])
            del self._moves[-moves:]
            if steps:
                self._session.undo(steps)
            self._mask = None

    def fork(self) -> LibraryMatcher:
        twin = LibraryMatcher(self._constraint, self._session.copy())
        twin._moves = self._moves[:]
        twin._mask = self._mask
        return twin

    @property
    def accepting(self) -> bool:
        return self._ended or self._session.accepting()

    @property
    def finished(self) -> bool:
        return self._ended or (
            self._session.accepting() and not bool((self.mask() & self._constraint.texts.text).any())
        )

    @property
    def _ended(self) -> bool:
        return bool(self._moves) and self._moves[-1] == -1


def resident_bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
