"""The machine that runs every constraint: sets of stacks, determinized byte by byte as texts reach them.

::

    config     a set of stacks, by number (see :mod:`.stacks`)
    step       every top reads the byte; what is on top then is opened until each top can read again
    row        config -> byte -> config, filled cell by cell as texts need it

This module is the reference; :mod:`.native_machine` has the same surface and must give the same answers. That surface
is what stands in :class:`Machine` without an underscore; the numbers of configs are the machine's own.

Dependent nonterminals (:attr:`Rules.resolve`) stay in a config as *markers*. A config that has some steps as if they
were opened as their ``expand`` says (a superset). A matcher looks at
:meth:`Machine.markers` after each byte and goes on from :meth:`Machine.resolved`; :meth:`Machine.doubtful` names the
tokens whose bytes meet a marker on their way, which are the only ones that :meth:`Machine.mask` may allow wrongly.

Token masks: the OR of the lexeme masks of all lexemes on top (:meth:`LexemeTable.mask`), of walks below the trie nodes
where those lexemes may end, and of one walk from the root for all literals on top. A config whose lexemes differ
only in far-away counters has the mask of the config with capped lexemes.

The native twin takes rows and capped states from the LexemeTable (it watches ``generation``), productions and
``resolve`` from the Rules; everything else, masks of lexemes included, it makes itself.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError, Unfinished
from ..masks import Mask, MaskCache
from ..vocabulary import Vocabulary
from . import native_library
from .lexemes import LexemeTable
from .mask_walk import MaskWalk
from .native_machine import NativeMachine
from .rules import Rules
from .stacks import DEAD, LEXEME, LITERAL, NONTERMINAL, Limits, Node, Stacks

#: bytes of Python objects behind one filled cell and the tops of one config
_CELL_BYTES, _MOVES_BYTES = 100, 500
#: masks begun and not finished that are kept
_BEGUN = 16
_serials = itertools.count()


class _Moves(NamedTuple):
    """The tops of one config by what they read."""

    literals: dict[int, list[int]]  # byte -> nodes with that literal byte on top
    lexemes: tuple[tuple[int, int], ...]  # (lexeme state, rest)


class Machine:
    """One constraint over one vocabulary. ``rules`` may grow while it runs. Not thread safe.

    ``masks`` and ``lexemes`` are shared with other machines of the vocabulary; ``key`` is the constraint's name.
    Everything that may take long honours ``deadline`` by raising Unfinished between units of work; the same call made
    again goes on.
    """

    def __init__(
        self,
        rules: Rules,
        start: int,
        lexemes: LexemeTable,
        vocabulary: Vocabulary,
        masks: MaskCache,
        key: str,
        limits: Limits | None = None,
    ) -> None:
        self.rules = rules
        self.lexemes = lexemes
        self.vocabulary = vocabulary
        self.masks = masks
        self.key = key
        self.limits = limits if limits is not None else Limits()
        # configs are numbered as texts reach them: those of another machine under the same key are not the same
        self._serial = ("python", next(_serials))
        self._start_nonterminal = start
        self._start: int | None = None
        self.stacks = Stacks(rules, lexemes, self.limits)
        self._rows: defaultdict[int, dict[int, int]] = defaultdict(dict)  # config -> byte -> config
        self._moves: dict[int, _Moves] = {}
        self._cells = 0
        self._capped: dict[int, int] = {}
        self._forced: dict[int, bytes] = {}
        self._doubtful: dict[int, NDArray[np.int32]] = {}
        self._kept = 0  # bytes of the two above
        self._walks: dict[int, MaskWalk] = {}

    # ---- the surface

    @property
    def deadline(self) -> float | None:
        """time.monotonic at which work stops by raising Unfinished; None: never. Shared through the languages."""
        return self.lexemes.languages.deadline

    @deadline.setter
    def deadline(self, value: float | None) -> None:
        self.lexemes.languages.deadline = value

    @property
    def start(self) -> int:
        """The config in which nothing is written. ConstraintError if this vocabulary cannot write anything."""
        if self._start is None:
            config = self.stacks.config(
                self.stacks.closure([self.stacks.node(self._start_nonterminal << 2 | NONTERMINAL, 0)])
            )
            if config == DEAD:
                raise ConstraintError("no text satisfies this constraint with this model's vocabulary")
            self._start = config
        return self._start

    def step(self, config: int, data: bytes) -> int:
        """The config after ``data``; -1 if some byte of it may not come. ``config`` may be -1."""
        rows = self._rows
        for value in data:
            if config < 0:
                return DEAD
            after = rows[config].get(value)
            config = self._fill_cell(config, value) if after is None else after
        return config

    def mask(self, config: int) -> Mask:
        """Read-only uint32[words]: bit i is set iff ``step(config, tokens[i]) >= 0``; EOS bits iff accepting."""
        capped = self._capped_config(config)
        return self.masks.get((self._serial, capped), lambda: self._make_mask(capped))

    @property
    def configs(self) -> int:
        """How many were met so far."""
        return len(self.stacks.configs)

    def accepting(self, config: int) -> bool:
        """The text may end here."""
        return self.stacks.configs[self.stacks.loosened(config)][0] == 0

    def last(self, config: int) -> bool:
        """The text may end here and nothing may follow."""
        return self.stacks.configs[self.stacks.loosened(config)] == (0,)

    def forced(self, config: int) -> bytes:
        """The bytes of the one-way chain that starts here, up to the first accepting config or ``limits.forced``."""
        known = self._forced.get(config)
        if known is None:
            known = self._chain(config)
            self._keep(len(known))
            self._forced[config] = known
        return known

    def markers(self, config: int) -> tuple[int, ...]:
        """The dependent nonterminals on top of stacks of ``config``; () in all but a few constraints."""
        return self.stacks.markers(config)

    def resolved(self, config: int, found: dict[int, int | None]) -> int:
        """``config`` with each of its :meth:`markers` replaced by the nonterminal ``found`` gives (None: its stacks are
        taken out). -1 if nothing is left. May have markers of its own."""
        return self.stacks.resolved(config, found)

    def stacks_of(self, config: int) -> tuple[int, ...]:
        """Its stacks, by their top nodes; 0 (the empty stack) among them if it accepts."""
        return self.stacks.configs[config]

    def look(self, node: int) -> Node:
        """What stands on a stack."""
        return self.stacks.look(node)

    def doubtful(self, config: int) -> NDArray[np.int32]:
        """The ids allowed by :meth:`mask` whose bytes lead from ``config`` through or to a config with markers."""
        capped = self._capped_config(config)
        known = self._doubtful.get(capped)
        if known is None:
            self._make_mask(capped)
            known = self._doubtful[capped]
        return known

    @property
    def dependent(self) -> bool:
        """Whether any dependent nonterminal can be met. May turn true while the machine runs, never false again."""
        return bool(self.rules.resolve)

    @property
    def nbytes(self) -> int:
        """Memory held, without masks and lexeme rows (they are shared)."""
        return self.stacks.nbytes + self._cells * _CELL_BYTES + len(self._moves) * _MOVES_BYTES + self._kept

    # ---- moves

    def _capped_config(self, config: int) -> int:
        capped = self._capped.get(config)
        if capped is None:
            nodes = set()
            for node in self.stacks.configs[self.stacks.loosened(config)]:
                item = self.stacks.item[node]
                if node and item & 3 == LEXEME:
                    node = self.stacks.node(self.lexemes.mask_key(item >> 2) << 2 | LEXEME, self.stacks.rest[node])
                nodes.add(node)
            capped = self.stacks.config(nodes)
            self._capped[config] = self._capped[capped] = capped
        return capped

    def _tops(self, config: int) -> _Moves:
        """The tops of a config without markers."""
        moves = self._moves.get(config)
        if moves is None:
            literals: dict[int, list[int]] = {}
            lexemes = []
            missing = self.vocabulary.missing_bytes
            for node in self.stacks.configs[config]:
                if node == 0:
                    continue
                item = self.stacks.item[node]
                if item & 3 == LITERAL:
                    value = self.stacks.literal_bytes[item >> 2]
                    if value not in missing:
                        literals.setdefault(value, []).append(node)
                else:
                    lexemes.append((item >> 2, self.stacks.rest[node]))
            moves = self._moves[config] = _Moves(literals, tuple(lexemes))
        return moves

    def _fill_cell(self, config: int, value: int) -> int:
        literals, lexemes = self._tops(self.stacks.loosened(config))
        opened = []
        for node in literals.get(value, ()):
            item, rest = self.stacks.item[node], self.stacks.rest[node]
            opened.append(rest if self.stacks.literal_last[item >> 2] else self.stacks.node(item + 4, rest))
        for state, rest in lexemes:
            after = self.lexemes.next(state, value)
            if after >= 0:
                opened.append(self.stacks.node(after << 2 | LEXEME, rest))
        after = self.stacks.config(self.stacks.closure(opened)) if opened else DEAD
        if self._cells >= self.limits.cells:
            self._drop()
        self._rows[config][value] = after
        self._cells += 1
        self.check_deadline()
        return after

    # for MaskWalk

    def cell(self, config: int, value: int) -> int:
        """:meth:`step` by one byte."""
        after = self._rows[config].get(value)
        return self._fill_cell(config, value) if after is None else after

    def tops(self, config: int) -> tuple[list[tuple[int, list[int]]], int | None]:
        """(lexeme state, what is below it on each of its stacks) of a config without markers, and the config of its
        literals alone (None: there are none)."""
        literals, lexemes = self._tops(config)
        rests: dict[int, list[int]] = {}
        for state, rest in lexemes:
            rests.setdefault(state, []).append(rest)
        tops = {node for nodes in literals.values() for node in nodes}
        return list(rests.items()), self.stacks.config(tops) if tops else None

    def few_bytes(self, config: int) -> Iterable[int] | None:
        """The bytes that may come, if no lexeme is on top; else None."""
        literals, lexemes = self._tops(self.stacks.loosened(config))
        return None if lexemes else literals

    def behind(self, rests: list[int]) -> int:
        """The config in which all of ``rests`` are on top."""
        return self.stacks.config(self.stacks.closure(list(rests)))

    def _drop(self) -> None:
        """Give up everything that can be made again. Nodes and configs keep their numbers."""
        self._cells = 0
        self._rows.clear()
        self._moves.clear()

    def _keep(self, nbytes: int) -> None:
        """Make room for a forced run or doubtful tokens."""
        if self._kept > self.limits.kept:
            self._kept = 0
            self._forced.clear()
            self._doubtful.clear()
        self._kept += nbytes

    def _chain(self, config: int) -> bytes:
        run = bytearray()
        while len(run) < self.limits.forced:
            loose = self.stacks.loosened(config)
            if self.stacks.configs[loose][0] == 0:
                break
            literals, lexemes = self._tops(loose)
            if len(literals) > 1:
                break
            values = set(literals)
            for state, _ in lexemes:
                self.lexemes.fill(state)
                values.add(self.lexemes.only[state])
            values.discard(-1)
            if len(values) != 1 or (value := values.pop()) < 0:
                break
            run.append(value)
            config = self.step(config, bytes(run[-1:]))
        return bytes(run)

    def check_deadline(self) -> None:
        """Raises Unfinished when the deadline has passed."""
        deadline = self.lexemes.languages.deadline
        if deadline is not None and time.monotonic() >= deadline:
            raise Unfinished

    # ---- masks

    def _make_mask(self, capped: int) -> Mask:
        walk = self._walks.get(capped)
        if walk is None:
            if len(self._walks) >= _BEGUN:
                del self._walks[next(iter(self._walks))]
            walk = self._walks[capped] = MaskWalk(self, capped)
        try:
            bits, doubtful = walk.run()
        except ConstraintError:
            del self._walks[capped]
            raise
        del self._walks[capped]
        self._keep(doubtful.nbytes)
        self._doubtful[capped] = doubtful
        if self.stacks.configs[capped][0] == 0:
            bits |= self.vocabulary.eos_mask
        return bits


def build(
    rules: Rules,
    start: int,
    lexemes: LexemeTable,
    vocabulary: Vocabulary,
    masks: MaskCache,
    key: str,
) -> Machine | NativeMachine:
    """The native machine where there is a native library, else the Python one."""
    return (NativeMachine if native_library.available() else Machine)(rules, start, lexemes, vocabulary, masks, key)
