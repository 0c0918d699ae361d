"""A constraint run by a machine, and one sequence's position in it.

Where rules depend on values already written (:meth:`Rules.add_dependent`), the matcher finds the text of the value that
was closed last and puts what it resolves to into the config, byte by byte; and it tries the few tokens that run through
such a place one by one. Other constraints pay nothing for that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..interface import ConstraintError, Unfinished, WayOut
from ..masks import Mask
from ..vocabulary import Vocabulary
from .json_text import last_value
from .machine import Machine
from .native_machine import NativeMachine
from .nearest import Nearest
from .stacks import DEAD

#: the config after an EOS token
_ENDED = -2
#: bytes of resolved values that are kept; past it all are dropped
_VALUE_BYTES = 4 * 1024 * 1024
#: dependent rules that may resolve to one another at one place
_NESTED = 64
#: bytes looked at first for the value closed last
_TAIL = 256
#: how much longer the next turn gets after one that left nothing behind; after one that left something, though perhaps
#: nothing of use; and the longest such turn, in seconds
_PATIENCE, _GROWING, _LONGEST_TURN = 1.5, 1.01, 0.3
#: bytes by which one sequence may make what all constraints of its vocabulary share grow
_GROWTH = 256 * 1024 * 1024
#: nonterminals, and states of one lexeme, that are looked at for the shortest way to the end of a text
_NEAREST = (2_000, 500)


class Patience:
    """How long a turn of one kind of work may really take: more, once turns that long were in vain.

    Some work is kept only when it is whole (the productions of a rule, the edges of a position, distances): a turn that
    is too short for it leaves nothing behind, so the next one is longer.
    """

    __slots__ = ("_held", "factor")

    def __init__(self) -> None:
        self.factor, self._held = 1.0, 0

    def turn(self, seconds: float) -> float:
        return seconds if self.factor == 1.0 else max(seconds, min(seconds * self.factor, _LONGEST_TURN))

    def in_vain(self, held: int) -> None:
        """After a turn that ended too soon, with ``held`` bytes left behind by all of them."""
        self.factor = min(self.factor * (_PATIENCE if held == self._held else _GROWING), 1e6)
        self._held = held

    def done(self) -> None:
        self.factor = 1.0


class PushdownConstraint:
    """Immutable but for what the machine finds out as texts reach it."""

    def __init__(self, machine: Machine | NativeMachine) -> None:
        """May raise ConstraintError: nothing of it can be written with the vocabulary."""
        self.machine = machine
        self.key = machine.key
        self.vocabulary: Vocabulary = machine.vocabulary
        self.start = machine.start
        self._resolved: dict[tuple[int, bytes], int | None] = {}
        self._settled: dict[tuple[int, bytes], int] = {}
        self._value_bytes = 0
        self._nearest: Nearest | None = None  # few constraints are ever asked for it
        #: of :meth:`PushdownMatcher.prepare` and of :meth:`PushdownMatcher.completion`: a text asks for both in turn,
        #: and what one of them has finished says nothing of the other
        self.looks, self.ways = Patience(), Patience()

    @cached_property
    def nothing(self) -> Mask:
        """The mask behind the end."""
        mask = np.zeros(self.vocabulary.mask_words, np.uint32)
        mask.flags.writeable = False
        return mask

    @property
    def held(self) -> int:
        """Bytes of all that turns of work leave behind."""
        lexemes = self.machine.lexemes
        return self.nbytes + lexemes.nbytes + lexemes.languages.nbytes

    @property
    def nbytes(self) -> int:
        """The machine's own memory; masks and lexeme rows belong to the vocabulary's :class:`..lexicon.Lexicon`."""
        return self.machine.nbytes + self._value_bytes + (self._nearest.nbytes if self._nearest is not None else 0)

    @property
    def nearest(self) -> Nearest:
        """The ways to the end of a text."""
        if self._nearest is None:
            self._nearest = Nearest(self.machine, *_NEAREST)
        return self._nearest

    def matcher(self) -> PushdownMatcher:
        return PushdownMatcher(self, _Move(self.start, b"", None))

    def resolve(self, nonterminal: int, value: bytes) -> int | None:
        """What stands in the place of a dependent nonterminal behind ``value``."""
        key = (nonterminal, value)
        if key not in self._resolved:
            found = self.machine.rules.resolve[nonterminal](value)
            self._keep(value)
            self._resolved[key] = found
        return self._resolved[key]

    def settled(self, config: int, value: bytes) -> int:
        """``config`` behind ``value`` without markers; -1 if nothing is left."""
        key = (config, value)
        known = self._settled.get(key)
        if known is None:
            for _ in range(_NESTED):
                if config < 0 or not (markers := self.machine.markers(config)):
                    break
                found = {marker: self.resolve(marker, value) for marker in markers}
                config = self.machine.resolved(config, found)
            else:
                raise ConstraintError("a rule that depends on a value resolves to others like it without end")
            self._keep(value)
            known = self._settled[key] = config
        return known

    def _keep(self, value: bytes) -> None:
        """Make room for one more."""
        if self._value_bytes > _VALUE_BYTES:
            self._value_bytes = 0
            self._resolved.clear()
            self._settled.clear()
        self._value_bytes += len(value) + 200


class _Move:
    """Where one advance led. Moves are linked backwards, so that forks and rollbacks share them."""

    __slots__ = ("before", "config", "data", "mask", "tail", "verdicts")

    def __init__(self, config: int, data: bytes, before: _Move | None) -> None:
        self.config = config
        self.data = data
        self.before = before
        # only where values decide: the exact mask, which tokens are possible, the text's end as far as it was asked for
        self.mask: Mask | None = None
        self.verdicts: dict[int, bool] | None = None
        self.tail = b""

    def ending(self, wanted: int) -> tuple[bytes, bool]:
        """At least the last ``wanted`` bytes of the text, and whether that is all of it."""
        if len(self.tail) >= wanted:
            return self.tail, False
        pieces, length = [], 0
        at: _Move | None = self
        while at is not None and length < wanted:
            pieces.append(at.data)
            length += len(at.data)
            at = at.before
        self.tail = b"".join(reversed(pieces))
        return self.tail, at is None


class PushdownMatcher:
    """Implements :class:`..interface.Matcher`. Forks and rollbacks copy nothing."""

    __slots__ = ("_at", "_constraint", "_grown", "_machine")

    def __init__(self, constraint: PushdownConstraint, at: _Move, grown: int = 0) -> None:
        self._constraint = constraint
        self._machine = constraint.machine
        self._at = at
        self._grown = grown  # bytes, see _GROWTH

    def prepare(self, seconds: float | None = None) -> bool:
        if self._at.config == _ENDED:
            return True
        machine, constraint = self._machine, self._constraint
        lexemes = machine.lexemes
        before = lexemes.held
        machine.deadline = None if seconds is None else time.monotonic() + constraint.looks.turn(seconds)
        try:
            self.mask()
            machine.forced(self._at.config)
        except Unfinished:
            constraint.looks.in_vain(constraint.held)
            return False
        finally:
            machine.deadline = None
            self._grown += lexemes.held - before
            if self._grown > _GROWTH:
                raise ConstraintError(
                    f"this text needs more than {_GROWTH >> 20} MB of automata; simplify the nested or overlapping "
                    "repeats of its patterns"
                )
        constraint.looks.done()
        return True

    def mask(self) -> Mask:
        at = self._at
        if at.config == _ENDED:
            return self._constraint.nothing
        mask = at.mask
        if mask is None:
            mask = self._machine.mask(at.config)
            if self._machine.dependent:  # asked last: that may have met the first dependent rule
                mask = at.mask = self._exact_mask(mask)
        return mask

    def advance(self, token: int) -> bool:
        vocabulary = self._constraint.vocabulary
        if not 0 <= token < vocabulary.size:
            return False
        data = vocabulary.tokens[token]
        if data:
            return self.advance_bytes(data)
        if token in vocabulary.eos_ids and self._at.config != _ENDED and self._machine.accepting(self._at.config):
            self._at = _Move(_ENDED, b"", self._at)
            return True
        return False

    def advance_bytes(self, data: bytes) -> bool:
        after = self._step(data)
        if after < 0:
            return False
        self._at = _Move(after, data, self._at)
        return True

    def forced(self) -> bytes:
        return b"" if self._at.config == _ENDED else self._machine.forced(self._at.config)

    def allows(self, data: bytes) -> bool:
        return self._step(data) >= 0

    def completion(self, most: int, seconds: float | None = None) -> WayOut | None:
        machine, constraint = self._machine, self._constraint
        if self._at.config == _ENDED:
            return WayOut((), 0)
        machine.deadline = None if seconds is None else time.monotonic() + constraint.ways.turn(seconds)
        try:
            found = constraint.nearest.way_out(self._at.config, most)
        except Unfinished:
            constraint.ways.in_vain(constraint.held)
            raise
        finally:
            machine.deadline = None
        constraint.ways.done()
        return found

    def rollback(self, moves: int) -> None:
        """Raises ValueError if fewer moves were made."""
        at = self._at
        for _ in range(moves):
            if at.before is None:
                raise ValueError(f"cannot roll back {moves} moves: fewer were made")
            at = at.before
        self._at = at

    def fork(self) -> PushdownMatcher:
        return PushdownMatcher(self._constraint, self._at, self._grown)

    @property
    def config(self) -> int:
        """The machine's config here; negative behind EOS."""
        return self._at.config

    @property
    def accepting(self) -> bool:
        config = self._at.config
        return config == _ENDED or self._machine.accepting(config)

    @property
    def finished(self) -> bool:
        config = self._at.config
        return config == _ENDED or self._machine.last(config)

    # ---- rules that depend on values

    def _step(self, data: bytes) -> int:
        """The config after ``data``; negative if it is not allowed."""
        config = self._at.config
        if config < 0:
            return config if not data else DEAD
        after = self._machine.step(config, data)
        if after >= 0 and self._machine.dependent:
            return self._follow(data)
        return after

    def _follow(self, data: bytes) -> int:
        """:meth:`_step` byte by byte, with everything resolved on the way."""
        machine, config = self._machine, self._at.config
        for end in range(1, len(data) + 1):
            config = machine.step(config, data[end - 1 : end])
            if config >= 0 and machine.markers(config):
                config = self._resolve(config, data[:end])
            if config < 0:
                return DEAD
        return config

    def _resolve(self, config: int, written: bytes) -> int:
        """``config``, reached by ``written`` from here, without markers. As it is if no JSON value ends here."""
        value = self._value_before(written)
        return config if value is None else self._constraint.settled(config, value)

    def _value_before(self, written: bytes) -> bytes | None:
        """The JSON value that the whole text ends with after ``written``."""
        if (value := last_value(written, whole=False)) is not None:
            return value
        wanted, whole = _TAIL, False
        while not whole:
            ending, whole = self._at.ending(wanted)
            if (value := last_value(ending + written, whole)) is not None:
                return value
            wanted *= 4
        return None

    def _exact_mask(self, mask: Mask) -> Mask:
        """``mask``, the config's own, without the tokens that are wrong once values behind them are resolved."""
        machine, config = self._machine, self._at.config
        doubtful = machine.doubtful(config)
        if not len(doubtful):
            return mask
        tokens, deadline = self._constraint.vocabulary.tokens, machine.deadline
        verdicts = self._at.verdicts
        if verdicts is None:
            verdicts = self._at.verdicts = {}
        for token in doubtful.tolist():
            if token not in verdicts:
                verdicts[token] = self._possible(config, tokens[token], 0)
                if deadline is not None and time.monotonic() >= deadline:
                    raise Unfinished
        wrong = [token for token, possible in verdicts.items() if not possible]
        self._at.verdicts = None
        if not wrong:
            return mask
        exact = mask.copy()
        for token in wrong:
            exact[token // 32] &= ~np.uint32(1 << token % 32)
        exact.flags.writeable = False
        return exact

    def _possible(self, config: int, data: bytes, start: int) -> bool:
        """Whether ``data[start:]`` may follow where ``data[:start]`` led to ``config``. Resolves no more than it must:
        stacks that need no value are tried first, and what a value resolves to is not opened where ``data`` ends."""
        machine = self._machine
        for end in range(start + 1, len(data) + 1):
            config = machine.step(config, data[end - 1 : end])
            if config < 0:
                return False
            markers = machine.markers(config)
            if not markers:
                continue
            if self._indifferent(config, markers, data, end):
                return True
            certain = machine.resolved(config, dict.fromkeys(markers))
            if certain >= 0 and (end == len(data) or self._possible(certain, data, end)):
                return True
            if end < len(data):
                config = self._resolve(config, data[:end])
                if config < 0:
                    return False
            elif (value := self._value_before(data)) is not None:
                return any(self._constraint.resolve(marker, value) is not None for marker in markers)
        return True

    def _indifferent(self, config: int, markers: Sequence[int], data: bytes, start: int) -> bool:
        """Whether ``data[start:]`` may follow in ``config`` whatever value was closed there: the rules say so, and no
        other value is closed on the way."""
        machine, known = self._machine, self._machine.rules.indifferent
        rest = data[start:]
        for marker in markers:
            indifferent = known.get(marker)
            if indifferent is None or not indifferent(rest):
                return False
        for at in range(len(rest)):
            config = machine.step(config, rest[at : at + 1])
            if config < 0 or machine.markers(config):
                return False
        return True
