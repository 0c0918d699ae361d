"""Ending within max_tokens: a constrained text is brought to a whole value before its tokens run out.

::

    tokens   0 ............................ limit
             | as the model writes           |
             |              | left: taken only if what completes the text after it still fits, or is nearer
             |              |    x  does not fit: the first token of the shortest completion is taken instead
             |              |    "}]}  and so on, until the text is whole; where it is, the gen ends

So a value that runs on without end (an open string, one more item, one more key) is closed in time, and what the
constraint still requires is written, as short as it allows where no more room is left. The ids a gen takes stay a
function of what it samples: a replay meets the same places.

A limit that the search for the way out passes is no reason to fail: the text goes on without, and may be cut.
"""

from __future__ import annotations

from ...constrained.interface import ConstraintError, Matcher, WayOut
from ...constrained.vocabulary import Vocabulary

#: the last tokens of a gen that are looked at: so many, or this part of all, or as many as a text needs that requires
#: much, which is asked after so many tokens, again and again
_LEAST, _PART, _OFTEN = 64, 4, 16
#: from the beginning in gens of so few tokens, else in the second half: asked for the first time, a constraint takes
#: longer than it took to build
_SHORT = 512
#: what completes a text must leave this part of itself, and so many tokens more, unused: tokens that the model cuts
#: otherwise than the tokenizer, and room for values that the constraint requires after it
_SPARE_PART, _SPARE = 4, 2
#: bytes of one token in a completion, at most worth looking at
_LONG = 8
#: bytes of a completion in which its first token lies, whatever follows
_FIRST = 64
#: in place of a token: the text ends here
END = -1


class Closing:
    """For one gen of at most ``limit`` tokens."""

    __slots__ = ("_counts", "_from", "_look", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, limit: int) -> None:
        self._vocabulary = vocabulary
        self._from = max(_LEAST, limit // _PART)
        self._look = limit if limit <= _SHORT else limit // 2  # left when what is required is asked next
        self._counts: dict[bytes, int] = {}

    def prepare(self, matcher: Matcher, left: int, seconds: float | None) -> None:
        """Find the way out from here, so that :meth:`instead` answers soon. Raises Unfinished after about ``seconds``:
        call again."""
        if left <= self._from:
            self._way_out(matcher, left, seconds)
        elif left <= self._look:
            way_out = self._way_out(matcher, left, seconds)
            self._look = left - _OFTEN
            if way_out is not None and self._from >= 0:
                self._from = max(self._from, _with_spare(self._tokens(way_out)) + 2 * _OFTEN)

    def instead(self, matcher: Matcher, token: int, left: int, seconds: float | None = None) -> int | None:
        """What to take in place of ``token``, of ``left`` tokens that may still come; END: nothing, the text is whole;
        None: the token itself. Raises Unfinished like :meth:`prepare`.

        A text that cannot be completed in time anyhow is left alone, and one that the token brings nearer to its end,
        or where it leaves nothing to choose.
        """
        if left > self._from:
            return None
        after = matcher.fork()
        if not after.advance(token):
            return None
        rest = self._way_out(after, left - 1, seconds)
        needed = None if rest is None else self._tokens(rest)
        if needed is not None and (not needed or _with_spare(needed) < left):
            return None
        way_out = self._way_out(matcher, left, seconds)
        if way_out is None or self._from < 0:
            return None
        tokens = self._tokens(way_out)
        if tokens - way_out.beyond > left:  # what is beyond may take fewer than a token for each byte
            return None
        if rest is not None and needed is not None and needed < left:
            nearer = needed < tokens
            if nearer or after.forced() == b"".join(rest.pieces):
                return None
        if not tokens:
            return END
        first = self._first(way_out)
        return first if first != token and matcher.fork().advance(first) else None

    def _way_out(self, matcher: Matcher, left: int, seconds: float | None) -> WayOut | None:
        try:
            return matcher.completion(left * _LONG, seconds)
        except ConstraintError:
            self._from = self._look = -1
            return None

    def _first(self, way_out: WayOut) -> int:
        text = bytearray()
        for piece in way_out.pieces:
            text += piece
            if len(text) >= _FIRST:
                break
        return self._vocabulary.encode(bytes(text))[0]

    def _tokens(self, way_out: WayOut) -> int:
        """At most so many, however the model cuts them: a token for each byte of what is not known."""
        counts, tokens = self._counts, way_out.beyond
        for piece in way_out.pieces:
            count = counts.get(piece)
            if count is None:
                count = counts[piece] = len(self._vocabulary.encode(piece))
            tokens += count
        return tokens


def _with_spare(tokens: int) -> int:
    return tokens + tokens // _SPARE_PART + _SPARE
