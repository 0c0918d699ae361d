"""How a gen ends, and where a constrained text ends that could go on.

::

    text             24         whole, and could go on (240, 24.5): the model draws from all its tokens here
    it draws          0         goes on, and is taken
                      ␣hours    does not: the text ends
                      5,␣       does not; of its bytes the longest beginning that leaves a whole text belongs to it: 245

Where a text may not end yet, the mask rules. Held to the mask at a place where it may end, a model could only go on or
write its end token, which in the middle of a sentence it never does: 24 became 24000000000000000000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...constrained.interface import ConstraintError, Matcher
from ...constrained.vocabulary import Vocabulary
from ..protocol import Reason
from ..wire import SampleParams
from .stops import Match


@dataclass(frozen=True, slots=True)
class End:
    """``start``: where a stop string begins, in bytes from the op's first; -1 when nothing is cut. ``tail``: ids that
    still belong to the text, and were not drawn."""

    reason: Reason
    matched: str | int | None = None
    start: int = -1
    tail: tuple[int, ...] = ()


def draws_freely(matcher: Matcher, params: SampleParams, tokens: int, size: int) -> bool:
    """The next draw of a text of ``tokens`` tokens and ``size`` bytes is held to no mask."""
    return params.end == "natural" and size > 0 and tokens >= params.min_tokens and matcher.accepting


def mask_of(matcher: Matcher, params: SampleParams, vocabulary: Vocabulary) -> NDArray[np.uint32]:
    """What the next draw is held to: uint32[ceil(V / 32)]. No end token where none may end a text that can go on."""
    mask = matcher.mask()
    if params.end != "never" or not matcher.accepting:
        return mask
    goes_on = mask & ~vocabulary.eos_mask
    return goes_on if goes_on.any() else mask


def fits(matcher: Matcher, token: int) -> bool:
    """The text can go on with ``token``."""
    return bool(int(matcher.mask()[token // 32]) >> token % 32 & 1)


def natural_end(matcher: Matcher, vocabulary: Vocabulary, data: bytes, stop: Match | None, size: int, left: int) -> End:
    """The end of a whole text of ``size`` bytes that does not go on with a token of the bytes ``data``, which complete
    ``stop``. ``left``: how many ids the text may still gain."""
    if stop is None:
        return End("stop", tail=_whole_beginning(matcher, vocabulary, data, left))
    matched = stop.stop.decode("utf-8", "replace")
    if stop.start < size:
        return End("stop", matched, stop.start)
    return End("stop", matched, tail=_whole_beginning(matcher, vocabulary, data[: stop.start - size], left))


def _whole_beginning(matcher: Matcher, vocabulary: Vocabulary, data: bytes, left: int) -> tuple[int, ...]:
    """The longest beginning of ``data`` that leaves the text whole, in at most ``left`` ids of its own."""
    for end in range(len(data), 0, -1):
        after = matcher.fork()
        try:
            whole = after.advance_bytes(data[:end]) and after.accepting
        except ConstraintError:  # a limit that the text itself need not meet
            continue
        if whole and len(ids := vocabulary.encode(data[:end])) <= left:
            return tuple(ids)
    return ()
