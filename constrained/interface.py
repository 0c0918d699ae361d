"""What a compiled language and one sequence's position in it look like. Everything else here implements these.

::

    Constraint (immutable, shared)          Matcher (one per sequence)
    ┌──────────────────────────┐ matcher()  ┌─────────────────────────────────────────┐
    │ key: str   nbytes: int   │ ─────────> │ mask() advance() forced() rollback() …  │
    └──────────────────────────┘            └─────────────────────────────────────────┘
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: how a ConstraintError ends that the option ``strict`` of a schema would have prevented
RELAXABLE = " (strict=False drops what cannot be kept, and says so)"


class ConstraintError(ValueError):
    """A constraint that cannot be compiled. The message names what is wrong, where, and what to write instead."""


class Unfinished(Exception):
    """Work that stopped at its deadline. What was found so far is kept: the same call made again goes on from there."""


class WayOut(NamedTuple):
    """What completes a text: ``pieces`` end to end and, where what comes after them hangs on values not yet written, at
    least ``beyond`` bytes more."""

    pieces: tuple[bytes, ...]
    beyond: int


class Matcher(Protocol):
    """One sequence's position in a constraint."""

    def prepare(self, seconds: float | None = None) -> bool:
        """Work for up to about ``seconds`` (None: to the end) on what :meth:`mask` and :meth:`forced` will need here.

        True once both answer at once. False: call again; nothing is lost. May raise ConstraintError (a limit).
        """

    def mask(self) -> NDArray[np.uint32]:
        """Read-only uint32[ceil(V / 32)]; bit ``i % 32`` of word ``i // 32`` is set iff token i may come next.

        EOS bits are set iff :attr:`accepting`; padded ids are 0. Never all zero unless :attr:`finished`.
        Valid until the next call that moves this matcher.
        """

    def advance(self, token: int) -> bool:
        """Take one token. False (and no move) if it is not allowed. An EOS token finishes the matcher."""

    def advance_bytes(self, data: bytes) -> bool:
        """Take bytes without a token edge; counts as one move for :meth:`rollback`. False (no move) if refused."""

    def forced(self) -> bytes:
        """The longest byte string every continuation must begin with; b"" when there is a choice or it may end."""

    def allows(self, data: bytes) -> bool:
        """True if ``data`` is a prefix of some continuation from here. Does not move."""

    def completion(self, most: int, seconds: float | None = None) -> WayOut | None:
        """The shortest way, as far as known, to make the text so far a whole member; None if it is more than ``most``
        bytes, or not known. Does not move. Raises Unfinished after about ``seconds``: call again."""

    def rollback(self, moves: int) -> None:
        """Undo the last ``moves`` calls of advance/advance_bytes."""

    def fork(self) -> Matcher: ...

    @property
    def accepting(self) -> bool:
        """The bytes so far are a whole member of the language."""

    @property
    def finished(self) -> bool:
        """Accepting, and nothing more may follow (or EOS was taken)."""


class Constraint(Protocol):
    """A compiled language over one vocabulary."""

    key: str

    @property
    def nbytes(self) -> int:
        """Memory held, caches included."""

    def matcher(self) -> Matcher: ...
