"""How much memory events take, for the bounds on what waits to be sent; and many deltas as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from .protocol import Delta, Event

_EVENT, _LOGPROB = 400, 200  # bytes, about


def size_of(event: Event) -> int:
    numbers = sum(1 + len(entry.top) for entry in getattr(event, "logprobs", None) or ())
    return _EVENT + len(getattr(event, "text", "")) + 8 * len(getattr(event, "ids", ())) + _LOGPROB * numbers


def merged(deltas: Sequence[Delta]) -> Delta:
    """One delta for those of one gen, in time that grows with their sum."""
    if len(deltas) == 1:
        return deltas[0]
    last = deltas[-1]
    return Delta(
        last.strand,
        last.op,
        last.choice,
        "".join(delta.text for delta in deltas),
        tuple(chain.from_iterable(delta.ids for delta in deltas)),
        tuple(chain.from_iterable(delta.logprobs for delta in deltas)),
    )
