"""One table of byte states for every lexeme of a vocabulary's constraints, filled row by row as they are met.

::

    Lexeme(language, json) --start()--> state s0          rows[s0]     -2 in its first cell until fill(s0)
    rows[s][byte] -> next state, or -1                    accept[s]    0 no, 1 may end, 2 ends (nothing follows)
    mask(s) -> bits: tokens that stay inside the lexeme or end it exactly
               exits, closes: trie nodes where the lexeme may end, must end; what follows it goes on below them

A row never leads to a state from which the lexeme cannot be completed. States are never given up: other tables hold
their numbers; a table past its bound is replaced whole (see :mod:`..lexicon`). Not thread safe.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError, Unfinished
from ..regular.language import Language
from ..vocabulary import Vocabulary
from . import encoding
from .encoding import Position
from .rules import Lexeme

if TYPE_CHECKING:
    from ..regular.languages import Languages
    from .native_library import Shared

_UNFILLED = -2
_CLOSED = -3
_FIRST_ROWS = 1024
#: bytes of Python objects behind one state (its position, its dict entry), as measured
_STATE_BYTES = 300
_SHAPE_BYTES = 4000
#: code points that a JSON string holds as they are
_JSON_RAW = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))


class LexemeMask(NamedTuple):
    """Tokens of one lexeme state; the arrays are read-only."""

    bits: NDArray[np.uint32]  # [words]: tokens that stay inside or end where the lexeme may end; no EOS
    exits: NDArray[np.int32]  # trie nodes (not the root) where accept is 1 and tokens go on below
    closes: NDArray[np.int32]  # trie nodes (not the root) where accept is 2, with or without tokens below

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes + self.exits.nbytes + self.closes.nbytes


class LexemeTable:
    """``rows``: int32[capacity, 256] and ``accept``: uint8[capacity], of which the first ``used`` states are in use.

    Growth moves both arrays and adds one to ``generation``: code that holds their addresses looks at it after every
    call that may make states (``start``, ``fill``, ``mask_key``, ``mask``). The arrays never move otherwise.

    The ``deadline`` (time.monotonic) is that of ``languages``: this table looks at it between rows and raises
    Unfinished, and so do the languages themselves. What was filled stays: the same call made again goes on.
    """

    def __init__(
        self,
        languages: Languages,
        vocabulary: Vocabulary,
        *,
        max_states: int = 1_000_000,
        max_mask_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Past ``max_states`` a new state raises ConstraintError."""
        self.languages = languages
        self.vocabulary = vocabulary
        self.trie = vocabulary.trie
        self.rows: NDArray[np.int32] = np.empty((_FIRST_ROWS, 256), np.int32)
        self.accept: NDArray[np.uint8] = np.zeros(_FIRST_ROWS, np.uint8)
        self.generation = 0
        self.used = 0
        self.cells = self.rows.reshape(-1).data  # rows as one memoryview: several times faster to index one by one
        #: per state: the one byte that may come, -1 for none, -2 for several, -3 while the row is not filled
        self.only: list[int] = []
        self._positions: list[Position] = []
        self._states: dict[Position, int] = {}
        self._mask_keys: dict[int, int] = {}
        self._masks: OrderedDict[int, LexemeMask] = OrderedDict()
        self._mask_bytes = 0
        self._max_states = max_states
        self._max_mask_bytes = max_mask_bytes
        missing = vocabulary.missing_bytes
        self._escapes = missing.isdisjoint(encoding.ESCAPE_BYTES)
        self._shapes = encoding.Shapes(sorted(missing), self._escapes)
        self._quote = ord('"') not in missing
        #: what native machines over this table share, once there is one
        self.native: Shared | None = None

    @property
    def nbytes(self) -> int:
        return (
            self.rows.nbytes
            + self.accept.nbytes
            + self.used * _STATE_BYTES
            + len(self._shapes) * _SHAPE_BYTES
            + self._mask_bytes
        )

    @property
    def held(self) -> int:
        """Bytes of what can never be dropped: states, with their rows, and the languages behind them."""
        return self.used * (_STATE_BYTES + 1024) + self.languages.nbytes

    def start(self, lexeme: Lexeme) -> int:
        """The state in which nothing of ``lexeme`` is written; -1 if this vocabulary cannot write it."""
        language = lexeme.language
        if lexeme.json:
            if not self._quote:
                return -1
            if not self._escapes:
                raw = self.languages.chars(_JSON_RAW)
                language = self.languages.intersect(language, self.languages.repeat(raw, 0, None))
        if not language.accepting and not language.edges():
            return -1
        return self._state((language, lexeme.json))

    def lexeme(self, state: int) -> Lexeme | None:
        """What may still be written from ``state``; None inside a character and after the quote."""
        language, json = self._positions[state]
        return Lexeme(language, json) if isinstance(language, Language) else None

    def fill(self, state: int) -> None:
        """Make the row of ``state``. May raise Unfinished or ConstraintError; then the row is as it was."""
        if self.only[state] != -3:
            return
        shape, targets = self._shapes.expand(self._positions[state])
        column = self._shapes.open(shape)
        states = [-1, *[self._state(encoding.place(shape, targets, child)) for child in shape.children]]
        self.rows[state] = np.array(states, np.int32)[column]
        self.only[state] = shape.only

    def next(self, state: int, byte: int) -> int:
        """The state after one byte; -1 if it may not come."""
        if self.only[state] == -3:
            self.fill(state)
        return self.cells[state << 8 | byte]

    def mask_key(self, state: int) -> int:
        """A state with the same token mask: counters cut down to what the longest token can reach."""
        key = self._mask_keys.get(state)
        if key is None:
            key = self._state(self._shapes.capped(self._positions[state], self.trie.max_depth))
            self._mask_keys[state] = self._mask_keys[key] = key
        return key

    def mask(self, state: int) -> LexemeMask:
        """The tokens of ``mask_key(state)``, kept. Honours the deadline."""
        key = self.mask_key(state)
        found = self._masks.get(key)
        if found is not None:
            self._masks.move_to_end(key)
            return found
        found = walk_mask(self, key)
        for array in found:
            array.flags.writeable = False
        self._masks[key] = found
        self._mask_bytes += found.nbytes
        while self._mask_bytes > self._max_mask_bytes and len(self._masks) > 1:
            _, old = self._masks.popitem(last=False)
            self._mask_bytes -= old.nbytes
        return found

    def _state(self, position: Position) -> int:
        state = self._states.get(position)
        if state is None:
            state = self.used
            if state == self._max_states:
                raise ConstraintError(
                    f"the constraints of this vocabulary need more than {state} lexeme states; use fewer or simpler "
                    "patterns, or split the schema"
                )
            if state == len(self.rows):
                self._grow()
            self.rows[state, 0] = _UNFILLED
            self.accept[state] = encoding.accepts(position)
            self._positions.append(position)
            self.only.append(-3)
            self._states[position] = state
            self.used += 1
        return state

    def _grow(self) -> None:
        rows = np.empty((2 * len(self.rows), 256), np.int32)
        rows[: self.used] = self.rows
        accept = np.zeros(len(rows), np.uint8)
        accept[: self.used] = self.accept
        self.rows, self.accept, self.cells = rows, accept, rows.reshape(-1).data
        self.generation += 1

    def check_deadline(self) -> None:
        """Raises Unfinished when the deadline has passed. Called after a unit of work, so that work always goes on."""
        deadline = self.languages.deadline
        if deadline is not None and time.monotonic() >= deadline:
            raise Unfinished


def walk_mask(table: LexemeTable, state: int) -> LexemeMask:
    """One numpy step per depth of the trie. Stopped by Unfinished it starts again next time, with more rows filled."""
    trie = table.trie
    at = np.full(trie.nodes, -1, np.int32)  # the state at each node; _CLOSED where the lexeme must end
    at[0] = state
    for nodes, parents in trie.levels:
        before = at[parents]
        alive = before >= 0
        before, here = before[alive], nodes[alive]
        if not len(here):
            break
        for unfilled in np.unique(before[table.rows[before, 0] == _UNFILLED]).tolist():
            table.fill(unfilled)
            table.check_deadline()
        after = table.rows[before, trie.byte[here]]
        at[here] = np.where(table.accept[np.maximum(after, 0)] == 2, np.where(after >= 0, _CLOSED, -1), after)
    reached = at != -1
    reached[0] = False
    bits = np.zeros(trie.words * 32, np.uint8)
    bits[trie.token_ids[np.repeat(reached, np.diff(trie.first))]] = 1
    mask = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
    goes_on = trie.skip > np.arange(1, trie.nodes + 1)
    may_end = (at >= 0) & (table.accept[np.maximum(at, 0)] == 1) & goes_on
    may_end[0] = False
    return LexemeMask(mask, *(np.flatnonzero(which).astype(np.int32) for which in (may_end, at == _CLOSED)))
