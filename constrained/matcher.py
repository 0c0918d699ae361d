"""A constraint backed by a deterministic automaton, and a sequence's position in it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .dfa import Dfa, prune
from .interface import ConstraintError
from .masks import Mask, MaskCache, Walk
from .vocabulary import Vocabulary

#: the state after an EOS token
_ENDED = -2


class DfaConstraint:
    """Immutable but for its mask cache. ``cache`` may be shared between constraints of one vocabulary.

    Bytes that no token spells alone are taken out of the language, so that every live state has a token to go on
    with. Raises ConstraintError if nothing is left.
    """

    def __init__(self, dfa: Dfa, vocabulary: Vocabulary, key: str, cache: MaskCache | None = None) -> None:
        self.key = key
        self.vocabulary = vocabulary
        self.cache = cache if cache is not None else MaskCache()
        self._shared = cache is not None
        self.dfa = _spellable(dfa, vocabulary)
        self.classes = self.dfa.table.shape[1]
        # plain ints and memoryviews: several times faster to index one by one than numpy arrays
        self.byte_class = self.dfa.byte_class.tobytes()
        self.table = self.dfa.table.reshape(-1).data
        self.accepting = self.dfa.accepting.tobytes()
        self._walk = Walk(self.dfa, vocabulary.trie)
        self._eos = np.zeros(vocabulary.mask_words, np.uint32)
        for token in vocabulary.eos_ids:
            self._eos[token // 32] |= np.uint32(1 << token % 32)

    @property
    def nbytes(self) -> int:
        """The automaton, and the mask cache unless it is shared."""
        return self.dfa.table.nbytes + 3 * self.dfa.states + (0 if self._shared else self.cache.nbytes)

    def matcher(self) -> DfaMatcher:
        return DfaMatcher(self, (0, None))

    def mask(self, state: int) -> Mask:
        return self.cache.get((self.key, state), lambda: self._fill(state))

    def _fill(self, state: int) -> Mask:
        if state == _ENDED:
            return np.zeros(self.vocabulary.mask_words, np.uint32)
        mask = self._walk.fill(state)
        if self.accepting[state]:
            mask |= self._eos
        return mask

    def step(self, state: int, data: bytes) -> int:
        """The state after ``data``; negative if it leaves the language."""
        table, classes, byte_class = self.table, self.classes, self.byte_class
        for value in data:
            if state < 0:
                return -1
            state = table[state * classes + byte_class[value]]
        return state

    @cached_property
    def only_byte(self) -> NDArray[np.int16]:
        """int16[S]: the one byte that may come in a state that neither accepts nor offers a choice; else -1."""
        width = np.bincount(self.dfa.byte_class, minlength=self.classes)
        lowest = np.zeros(self.classes, np.int16)
        lowest[self.dfa.byte_class[::-1]] = np.arange(255, -1, -1, dtype=np.int16)
        live = self.dfa.table >= 0
        found = np.where(live @ width == 1, lowest[live.argmax(axis=1)], np.int16(-1))
        found[self.dfa.accepting] = -1
        return found.astype(np.int16)

    @cached_property
    def _only(self) -> list[int]:
        only: list[int] = self.only_byte.tolist()
        return only

    def forced(self, state: int) -> bytes:
        """The bytes of the one-way chain that starts in ``state``."""
        if state < 0 or self._only[state] < 0:
            return b""
        run = bytearray()
        while (value := self._only[state]) >= 0:
            run.append(value)
            state = self.table[state * self.classes + self.byte_class[value]]
        return bytes(run)

    @cached_property
    def last(self) -> bytes:
        """uint8[S]: 1 where nothing may follow."""
        return np.asarray(self.dfa.table.max(axis=1) < 0).tobytes()


class DfaMatcher:
    """Implements :class:`.interface.Matcher`. Moves are a linked list, so fork and rollback copy nothing."""

    __slots__ = ("_moves", "constraint")

    def __init__(self, constraint: DfaConstraint, moves: tuple[int, object | None]) -> None:
        self.constraint = constraint
        self._moves = moves  # (state, earlier moves)

    @property
    def state(self) -> int:
        return self._moves[0]

    def prepare(self, seconds: float | None = None) -> bool:
        return True

    def mask(self) -> Mask:
        return self.constraint.mask(self._moves[0])

    def advance(self, token: int) -> bool:
        constraint, state = self.constraint, self._moves[0]
        vocabulary = constraint.vocabulary
        if not 0 <= token < vocabulary.size:
            return False
        data = vocabulary.tokens[token]
        if data:
            after = constraint.step(state, data)
            if after < 0:
                return False
        elif token in vocabulary.eos_ids and state >= 0 and constraint.accepting[state]:
            after = _ENDED
        else:
            return False
        self._moves = (after, self._moves)
        return True

    def advance_bytes(self, data: bytes) -> bool:
        after = self.constraint.step(self._moves[0], data)
        if after < 0:
            return False
        self._moves = (after, self._moves)
        return True

    def forced(self) -> bytes:
        return self.constraint.forced(self._moves[0])

    def allows(self, data: bytes) -> bool:
        return self.constraint.step(self._moves[0], data) >= 0

    def rollback(self, moves: int) -> None:
        """Raises ValueError if fewer moves were made."""
        at = self._moves
        for _ in range(moves):
            if at[1] is None:
                raise ValueError(f"cannot roll back {moves} moves: fewer were made")
            at = at[1]  # type: ignore[assignment]  # a recursive tuple type that mypy cannot spell
        self._moves = at

    def fork(self) -> DfaMatcher:
        return DfaMatcher(self.constraint, self._moves)

    @property
    def accepting(self) -> bool:
        state = self._moves[0]
        return state == _ENDED or bool(self.constraint.accepting[state])

    @property
    def finished(self) -> bool:
        state = self._moves[0]
        return state == _ENDED or bool(self.constraint.last[state])


def _spellable(dfa: Dfa, vocabulary: Vocabulary) -> Dfa:
    missing = [value for value in range(256) if bytes([value]) not in vocabulary.id_of]
    if not missing:
        return dfa
    # one dead column more, for the missing bytes
    byte_class = dfa.byte_class.astype(np.int32)
    byte_class[missing] = dfa.table.shape[1]
    used, column = np.unique(byte_class, return_inverse=True)
    table = np.column_stack([dfa.table, np.full(dfa.states, -1, np.int32)])[:, used]
    kept = prune(Dfa(column.reshape(-1).astype(np.uint8), np.ascontiguousarray(table, np.int32), dfa.accepting))
    if kept is None:
        raise ConstraintError(
            "nothing that matches can be written with this model's vocabulary: it has no token for a byte that every "
            "match contains"
        )
    return Dfa(kept.byte_class, np.ascontiguousarray(kept.table, np.int32), kept.accepting)
