"""What a text most likely goes on with where a constraint leaves little open: a draft for speculative decoding.

::

    so far      {"name": "Ann",      what comes is certain but for the white space, which is guessed as it was last
    draft        "  age  ":          ids as the text comes by them if every guess is right
    the model    x        x  x       must draw these; the others are settled by jump-forward

A draft is verified in one forward pass with the row before it ("Fast Inference from Transformers via Speculative
Decoding", arXiv 2211.17192): each id that the model must draw is drawn as ever, and the first that differs ends it. So
a draft changes how many passes a text needs, and the text no more than the batch it is computed in.
"""

from __future__ import annotations

import string
import time
from collections.abc import Sequence
from typing import NamedTuple

from .interface import ConstraintError, Matcher
from .jump import settled_prefix
from .vocabulary import Vocabulary

#: a guess is cut to so many bytes: only its first token is used
_FIRST = 32
#: and what is forced to so many: the tokens of a draft are few
_RUN = 512
#: white space is guessed after these only: a word that is followed by a space says nothing of the next
_PUNCTUATION = frozenset(mark.encode() for mark in string.punctuation)
_SPACE = b" \t\r\n"
#: how likely a guess is taken to be that nothing is known of, and how much the last one counts (both not measured)
_FIRST_ODDS, _NEW = 0.7, 0.3


class Guess(NamedTuple):
    """``text``: what is likely; its white space from ``white`` on is what the constraint leaves open, after the byte
    ``after``. -1 and b"": it is forced, and open is only how the model cuts it into tokens."""

    text: bytes
    white: int
    after: bytes


class Draft(NamedTuple):
    """``ids``, and by index those that the model must draw. ``open``: it draws the one after the last, too; ``whole``:
    none comes after it."""

    ids: tuple[int, ...]
    drawn: dict[int, Guess]
    open: bool = False
    whole: bool = False


NOTHING = Draft((), {})


class Habits:
    """What a text did where the constraint left it open: the white space that it had after a byte the last time, and
    how often it did what was guessed."""

    __slots__ = ("_acceptance", "_white")

    def __init__(self) -> None:
        self._white: dict[bytes, bytes] = {}
        self._acceptance: dict[bytes, float] = {}

    def white(self, after: bytes) -> bytes:
        return self._white.get(after, b" ")

    def acceptance(self, guess: Guess) -> float:
        """How likely the model draws the token that was guessed, 0 to 1."""
        return self._acceptance.get(guess.after, _FIRST_ODDS)

    def learn(self, guess: Guess, data: bytes, *, right: bool) -> None:
        """The model drew a token of these bytes, the one that was guessed or not."""
        known = self.acceptance(guess)
        self._acceptance[guess.after] = known + _NEW * (right - known)
        if 0 <= guess.white <= len(data) and not guess.text.startswith(data):
            written = data[guess.white :]
            self._white[guess.after] = written[: len(written) - len(written.lstrip(_SPACE))]


def draft(
    matcher: Matcher,
    vocabulary: Vocabulary,
    habits: Habits,
    before: bytes,
    most: int,
    *,
    settled: Sequence[int] = (),
    seconds: float | None = None,
) -> Draft:
    """At most ``most`` ids behind ``matcher``, which is at a token edge where just ``settled`` is. ``before``: the
    token before it.

    Works for up to about ``seconds`` and gives what it found. Does not move ``matcher``.
    """
    until = None if seconds is None else time.monotonic() + seconds
    at = matcher.fork()
    ids: list[int] = []
    drawn: dict[int, Guess] = {}
    while True:
        for token in settled:
            if len(ids) == most:
                return Draft(tuple(ids), drawn)
            if not at.advance(token):
                raise ValueError(f"token {token} is settled, and not allowed")
            ids.append(token)
            before = vocabulary.bytes(token)
        try:
            if at.finished:
                return Draft(tuple(ids), drawn, whole=True)
            if not _ready(at, until):
                return Draft(tuple(ids), drawn)
            run = at.forced()[:_RUN]
            settled, _ = settled_prefix(at, vocabulary, run)
            if settled:
                continue
            guess = _likely(at, run, before, habits, until)
        except ConstraintError:  # a limit that the text itself may never meet
            return Draft(tuple(ids), drawn)
        if len(ids) == most or not guess.text:
            return Draft(tuple(ids), drawn, open=True)
        token = vocabulary.encode(guess.text)[0]
        if not at.allows(vocabulary.bytes(token)):
            return Draft(tuple(ids), drawn, open=True)
        drawn[len(ids)] = guess
        settled = (token,)


def _ready(matcher: Matcher, until: float | None) -> bool:
    """What is forced there is known, or was found out in time. (Not every matcher looks at the clock itself.)"""
    if until is None:
        return matcher.prepare()
    left = until - time.monotonic()
    return left > 0.0 and matcher.prepare(left)


def _likely(matcher: Matcher, run: bytes, before: bytes, habits: Habits, until: float | None) -> Guess:
    """``run`` is forced here; if white space may come after it, and what comes after that is forced, that too."""
    certain = Guess(run[:_FIRST], -1, b"")
    last = (run or before)[-1:]
    if len(run) >= _FIRST or last not in _PUNCTUATION:
        return certain
    beyond = matcher.fork()
    if run and not beyond.advance_bytes(run):
        return certain
    white = habits.white(last)
    behind = beyond.fork()
    if not behind.advance_bytes(white or b" ") or not _ready(behind, until):
        return certain
    rest = behind.forced()
    if not rest:
        return certain
    if not white:  # what comes without any may be shorter or longer than behind one
        if not beyond.advance_bytes(rest[:1]) or not _ready(beyond, until):
            return certain
        rest = rest[:1] + beyond.forced()
    return Guess((run + white + rest)[:_FIRST], len(run), last)
