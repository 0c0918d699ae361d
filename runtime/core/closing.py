"""Ending within max_tokens: a constrained text is brought to a whole value before its tokens run out.

::

    tokens   0 ............................ limit
             | as the model writes           |
             |              | left: taken only if what completes the text after it still fits
             |              |    x  does not fit: the first token of the shortest completion is taken instead
             |              |    "}]}  and so on, until the text is whole

So a value that runs on without end (an open string, one more item, one more key) is closed in time, and what the
constraint still requires is written, as short as it allows where no more room is left. The ids a gen takes stay a
function of what it samples: a replay meets the same places.
"""

from __future__ import annotations

from ...constrained.interface import Matcher
from ...constrained.vocabulary import Vocabulary

#: the last tokens of a gen that are looked at: so many, or this part of all
_LEAST, _PART = 64, 4
#: what completes a text must leave this part of itself, and so many tokens more, unused: tokens that the model cuts
#: otherwise than the tokenizer, and room for values that the constraint requires after it
_SPARE_PART, _SPARE = 4, 2
#: bytes of one token in a completion, at most worth looking at
_LONG = 8


class Closing:
    """For one gen of at most ``limit`` tokens."""

    __slots__ = ("_from", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, limit: int) -> None:
        self._vocabulary = vocabulary
        self._from = max(_LEAST, limit // _PART)

    def prepare(self, matcher: Matcher, left: int, seconds: float | None) -> None:
        """Find the way out from here, so that :meth:`instead` answers soon. Raises Unfinished after about ``seconds``:
        call again."""
        if left <= self._from:
            matcher.completion(left * _LONG, seconds)

    def instead(self, matcher: Matcher, token: int, left: int) -> int | None:
        """What to take in place of ``token``, of ``left`` tokens that may still come; None: the token itself.

        A text that cannot be completed in time anyhow is left alone.
        """
        if left > self._from:
            return None
        after = matcher.fork()
        if not after.advance(token) or self._fits(after.completion((left - 1) * _LONG), left - 1):
            return None
        way_out = matcher.completion(left * _LONG)
        if not way_out or self._tokens(way_out) > left:
            return None
        first = self._vocabulary.encode(way_out)[0]
        return first if first != token and matcher.fork().advance(first) else None

    def _fits(self, completion: bytes | None, left: int) -> bool:
        if completion is None:
            return False
        if not completion:
            return True
        tokens = self._tokens(completion)
        return tokens + tokens // _SPARE_PART + _SPARE <= left

    def _tokens(self, completion: bytes) -> int:
        return len(self._vocabulary.encode(completion))
