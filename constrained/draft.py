"""What a text most likely goes on with where a constraint leaves little open: a draft for speculative decoding.

::

    so far      {"name": "Ann",      what comes is certain but for the white space, which is guessed as it was last
    draft        "  age  ":          ids as the text comes by them if every guess is right
    the model    x        x  x       must draw these; the others are settled by jump-forward

A draft is verified in one forward pass with the row before it ("Fast Inference from Transformers via Speculative
Decoding", arXiv 2211.17192): each id that the model must draw is drawn as ever, and the first that differs ends it. So
a draft changes how many passes a text needs, never the text.
"""

from __future__ import annotations

import string
import time
from collections.abc import Sequence
from typing import NamedTuple

from .interface import ConstraintError, Matcher
from .jump import settled_prefix
from .vocabulary import Vocabulary

#: bytes from which on the first token of a text is told, whatever follows
_FIRST = 32
#: white space is guessed after these only: a word that is followed by a space says nothing of the next
_PUNCTUATION = frozenset(mark.encode() for mark in string.punctuation)
_SPACE = b" \t\r\n"
#: how likely a guess is that nothing is known of, and what part of the odds the last one makes
_FIRST_ODDS, _NEW = 0.7, 0.3


class Guess(NamedTuple):
    """``text``: what is likely; its white space from ``white`` on (-1: none) is what the constraint leaves open, after
    the byte ``after``."""

    text: bytes
    white: int
    after: bytes


class Draft(NamedTuple):
    """``ids``, and by index those that the model must draw. ``open``: it draws the one after the last, too."""

    ids: tuple[int, ...]
    drawn: dict[int, Guess]
    open: bool


NOTHING = Draft((), {}, False)


class Habits:
    """What a text did where the constraint left it open: the white space that it had after a byte the last time, and
    how often it did what was guessed."""

    __slots__ = ("_odds", "_white")

    def __init__(self) -> None:
        self._white: dict[bytes, bytes] = {}
        self._odds: dict[bytes, float] = {}

    def white(self, after: bytes) -> bytes:
        return self._white.get(after, b" ")

    def odds(self, guess: Guess) -> float:
        """How likely the model draws the token that was guessed, 0 to 1."""
        return self._odds.get(guess.after, _FIRST_ODDS)

    def learn(self, guess: Guess, data: bytes, *, right: bool) -> None:
        """The model drew a token of these bytes, the one that was guessed or not."""
        odds = self.odds(guess)
        self._odds[guess.after] = odds + _NEW * (right - odds)
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
                return Draft(tuple(ids), drawn, False)
            at.advance(token)
            ids.append(token)
            before = vocabulary.bytes(token)
        try:
            if at.finished or not at.prepare(None if until is None else max(0.0, until - time.monotonic())):
                return Draft(tuple(ids), drawn, False)
            run = at.forced()
            settled, _ = settled_prefix(at, vocabulary, run)
            if settled:
                continue
            guess = _likely(at, run, before, habits)
        except ConstraintError:  # a limit that the text itself may never meet
            return Draft(tuple(ids), drawn, False)
        if len(ids) == most or not guess.text:
            return Draft(tuple(ids), drawn, True)
        token = vocabulary.encode(guess.text)[0]
        if not at.allows(vocabulary.bytes(token)):
            return Draft(tuple(ids), drawn, True)
        drawn[len(ids)] = guess
        settled = (token,)


def _likely(matcher: Matcher, run: bytes, before: bytes, habits: Habits) -> Guess:
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
    if not behind.advance_bytes(white or b" "):
        return certain
    rest = behind.forced()
    if not rest:
        return certain
    if not white:  # what comes without any may be shorter or longer than behind one
        if not beyond.advance_bytes(rest[:1]):
            return certain
        rest = rest[:1] + beyond.forced()
    return Guess((run + white + rest)[:_FIRST], len(run), last)
