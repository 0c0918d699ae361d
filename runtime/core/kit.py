"""What every op of one core shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...constrained.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Kit:
    vocabulary: Vocabulary
    context_length: int
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of ops that score given ids. ``rows``: whose logits one step may hold. ``numbers``: of one answer."""

    rows: int
    numbers: int


class OpError(Exception):
    """This op, and with it its strand, fails. ``code`` is one of :data:`plait.runtime.protocol.CODES`."""

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
