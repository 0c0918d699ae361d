"""The machine that runs every constraint: sets of stacks, determinized byte by byte as texts reach them.

::

    stack node = (item, rest)          "{" · members · "}" · nothing        shared tails: a tree of nodes
    config     = set of stack nodes whose top can read a byte, and whether the empty stack is among them
    step       = every top reads the byte; what is on top then is opened until each top can read again (`closure`)
    join       = a node that stands for a set of stacks: stacks with the same top become one, on a join of their rests,
                 so a grammar that can be read in two ways at each of n levels has 2 n nodes and not 2**n stacks

This module is the reference; :mod:`.native_machine` has the same surface and must give the same answers. That surface
is what stands in :class:`Machine` without an underscore; the numbers of configs are the machine's own.

Dependent nonterminals (:attr:`Rules.resolve`) are never opened by a closure: they stay in the config as *markers*. A
config that has some steps as if they were opened as their ``expand`` says (a superset). A matcher looks at
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
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError, Unfinished
from ..masks import Mask, MaskCache
from ..vocabulary import Vocabulary
from .lexemes import LexemeTable
from .mask_walk import MaskWalk
from .rules import Lexeme, Rules

if TYPE_CHECKING:
    from .native_machine import NativeMachine

_LITERAL, _LEXEME, _NONTERMINAL, _JOIN = range(4)
#: the config that no text reaches
DEAD = -1
#: bytes of Python objects behind one node, one config, one stack of a config, one filled cell, one config's tops
_NODE_BYTES, _CONFIG_BYTES, _STACK_BYTES, _CELL_BYTES, _MOVES_BYTES = 250, 400, 16, 100, 500
_serials = itertools.count()


class Limits(NamedTuple):
    """Bounds of one machine. Passing one of the first three raises ConstraintError that names it."""

    stacks: int = 16_384  # stack nodes opened by one closure
    depth: int = 20_000  # items on one stack
    nbytes: int = 256 * 1024 * 1024  # everything, after dropping what can be made again
    cells: int = 400_000  # filled transitions; past it all are dropped and made again as needed
    forced: int = 4_096  # bytes given by one call of forced


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
        self._missing = frozenset(value for value in range(256) if bytes((value,)) not in vocabulary.id_of)
        self._eos = np.zeros(vocabulary.mask_words, np.uint32)
        for token in vocabulary.eos_ids:
            self._eos[token // 32] |= np.uint32(1 << token % 32)
        # literals: byte q of all that were met, one after another; the last byte of each is marked
        self._literals: dict[bytes, int] = {}
        self._literal_bytes = bytearray()
        self._literal_last = bytearray()
        # nodes; 0 is the empty stack. An item is its number << 2 | its kind
        self._item = [-1]
        self._rest = [-1]
        self._depth = [0]
        self._nodes: dict[int, int] = {}
        # the stacks that joins stand for, and the node of each such set
        self._joined: list[tuple[int, ...]] = []
        self._joins: dict[tuple[int, ...], int] = {}
        # configs: sorted node numbers
        self._configs: list[tuple[int, ...]] = []
        self._config_ids: dict[tuple[int, ...], int] = {}
        self._stacks = 0  # in all configs together
        self._rows: list[dict[int, int]] = []
        self._moves: dict[int, _Moves] = {}
        self._cells = 0
        self._capped: dict[int, int] = {}
        self._loose: dict[int, int] = {}
        self._forced: dict[int, bytes] = {}
        self._doubtful: dict[int, NDArray[np.int32]] = {}
        self._walks: dict[int, MaskWalk] = {}
        #: configs with markers
        self.marked: set[int] = set()

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
            config = self._config(self._closure([self._node(self._start_nonterminal << 2 | _NONTERMINAL, 0)]))
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
        return len(self._configs)

    def accepting(self, config: int) -> bool:
        """The text may end here."""
        return self._configs[self._loosened(config)][0] == 0

    def last(self, config: int) -> bool:
        """The text may end here and nothing may follow."""
        return self._configs[self._loosened(config)] == (0,)

    def forced(self, config: int) -> bytes:
        """The bytes of the one-way chain that starts here, up to the first accepting config or ``limits.forced``."""
        known = self._forced.get(config)
        if known is None:
            known = self._chain(config)
            self._forced[config] = known
        return known

    def markers(self, config: int) -> tuple[int, ...]:
        """The dependent nonterminals on top of stacks of ``config``; () in all but a few constraints."""
        if config not in self.marked:
            return ()
        return tuple({self._item[node] >> 2 for node in self._configs[config] if self._is_marker(node)})

    def resolved(self, config: int, found: dict[int, int | None]) -> int:
        """``config`` with each of its :meth:`markers` replaced by the nonterminal ``found`` gives (None: its stacks are
        taken out). -1 if nothing is left. May have markers of its own."""
        kept = set()  # closed already: a lexeme that may end here would bring its marker back
        opened = []
        for node in self._configs[config]:
            if not self._is_marker(node):
                kept.add(node)
            elif (instead := found[self._item[node] >> 2]) is not None:
                opened.append(self._node(instead << 2 | _NONTERMINAL, self._rest[node]))
        return self._config(kept | self._closure(opened))

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
        kept = len(self._item) * _NODE_BYTES + len(self._configs) * _CONFIG_BYTES + self._stacks * _STACK_BYTES
        return kept + self._cells * _CELL_BYTES + len(self._moves) * _MOVES_BYTES + 2 * len(self._literal_bytes)

    # ---- nodes and configs

    def _node(self, item: int, rest: int) -> int:
        key = item << 32 | rest
        node = self._nodes.get(key)
        if node is None:
            depth = self._depth[rest] + 1
            if depth > self.limits.depth:
                raise ConstraintError(
                    f"the text is nested more than {self.limits.depth} levels deep, or the grammar is left-recursive; "
                    "bound the recursion of the schema or grammar"
                )
            node = len(self._item)
            self._item.append(item)
            self._rest.append(rest)
            self._depth.append(depth)
            self._nodes[key] = node
        return node

    def _literal(self, data: bytes) -> int:
        at = self._literals.get(data)
        if at is None:
            at = len(self._literal_bytes)
            self._literal_bytes += data
            self._literal_last += bytes(len(data) - 1) + b"\1"
            self._literals[data] = at
        return at

    def _closure(self, todo: list[int], open_markers: bool = False) -> set[int]:
        """The nodes that ``todo`` opens into: each reads a byte, is a marker, or is 0 (the empty stack)."""
        item_of, rest_of, accept, rules = self._item, self._rest, self.lexemes.accept, self.rules
        seen: set[int] = set()
        found: dict[int, list[int]] = {}  # item -> rests
        waiting: dict[int, list[int]] = {}  # nonterminal's item -> rests, to be opened as one
        while True:
            while todo:
                node = todo.pop()
                if node in seen:
                    continue
                seen.add(node)
                if len(seen) > self.limits.stacks:
                    raise ConstraintError(
                        f"the text can be read in more than {self.limits.stacks} ways at one place; make the "
                        "alternatives of the schema or grammar differ earlier, or join them into one pattern"
                    )
                item = item_of[node]
                kind = item & 3
                if node == 0 or kind == _LITERAL:
                    found.setdefault(item, []).append(rest_of[node])
                elif kind == _LEXEME:
                    ends = accept[item >> 2]
                    if ends:
                        todo.append(rest_of[node])
                    if ends != 2:
                        found.setdefault(item, []).append(rest_of[node])
                elif kind == _JOIN:
                    todo.extend(self._joined[item >> 2])
                elif item >> 2 in rules.resolve and not open_markers:
                    found.setdefault(item, []).append(rest_of[node])
                else:
                    waiting.setdefault(item, []).append(rest_of[node])
            if not waiting:
                break
            item, rests = waiting.popitem()
            rest = rests[0]
            if len(rests) > 1:
                rest = self._join(rests)
                seen.add(self._node(item, rest))
            for production in rules.productions(item >> 2):
                opened = self._push(production, rest)
                if opened >= 0:
                    todo.append(opened)
            accept = self.lexemes.accept  # may have moved
        nodes = {self._node(item, self._join(rests)) for item, rests in found.items() if item >= 0}
        return nodes | {0} if -1 in found else nodes

    def _join(self, rests: list[int]) -> int:
        """The node that stands for all ``rests``."""
        if len(rests) == 1:
            return rests[0]
        flat: set[int] = set()
        for rest in rests:
            if rest and self._item[rest] & 3 == _JOIN:
                flat.update(self._joined[self._item[rest] >> 2])
            else:
                flat.add(rest)
        key = tuple(sorted(flat))
        node = self._joins.get(key)
        if node is None:
            node = self._joins[key] = len(self._item)
            self._item.append(len(self._joined) << 2 | _JOIN)
            self._rest.append(0)
            self._depth.append(max(self._depth[rest] for rest in key))
            self._joined.append(key)
            self._stacks += len(key)
        return node

    def _push(self, production: tuple[bytes | int | Lexeme, ...], rest: int) -> int:
        """The stack of ``production`` on ``rest``; -1 if the vocabulary cannot write one of its lexemes."""
        for part in reversed(production):
            if isinstance(part, bytes):
                if not part:
                    continue
                item = self._literal(part) << 2 | _LITERAL
            elif isinstance(part, Lexeme):
                state = self.lexemes.start(part)
                if state < 0:
                    return -1
                item = state << 2 | _LEXEME
            else:
                item = part << 2 | _NONTERMINAL
            rest = self._node(item, rest)
        return rest

    def _config(self, nodes: set[int]) -> int:
        if not nodes:
            return DEAD
        key = tuple(sorted(nodes))
        config = self._config_ids.get(key)
        if config is None:
            if self.nbytes > self.limits.nbytes:
                self._drop()
            if self.nbytes > self.limits.nbytes:
                raise ConstraintError(
                    f"this constraint's states take more than {self.limits.nbytes >> 20} MB; bound its repetitions and "
                    "recursion, or compile it again"
                )
            config = len(self._configs)
            self._configs.append(key)
            self._rows.append({})
            self._config_ids[key] = config
            if self.rules.resolve and any(self._is_marker(node) for node in key):
                self.marked.add(config)
            self._stacks += len(key)
        return config

    def _is_marker(self, node: int) -> bool:
        return node != 0 and self._item[node] & 3 == _NONTERMINAL

    def _loosened(self, config: int) -> int:
        """The config with its markers opened as their ``expand`` says; itself if it has none."""
        if config not in self.marked:
            return config
        loose = self._loose.get(config)
        if loose is None:
            loose = self._config(self._closure(list(self._configs[config]), open_markers=True))
            if loose == DEAD:
                raise ConstraintError("a rule that depends on a value has no continuation")
            self._loose[config] = loose
        return loose

    def _capped_config(self, config: int) -> int:
        capped = self._capped.get(config)
        if capped is None:
            nodes = set()
            for node in self._configs[self._loosened(config)]:
                item = self._item[node]
                if node and item & 3 == _LEXEME:
                    node = self._node(self.lexemes.mask_key(item >> 2) << 2 | _LEXEME, self._rest[node])
                nodes.add(node)
            capped = self._config(nodes)
            self._capped[config] = self._capped[capped] = capped
        return capped

    # ---- moves

    def _tops(self, config: int) -> _Moves:
        """The tops of a config without markers."""
        moves = self._moves.get(config)
        if moves is None:
            literals: dict[int, list[int]] = {}
            lexemes = []
            for node in self._configs[config]:
                if node == 0:
                    continue
                item = self._item[node]
                if item & 3 == _LITERAL:
                    value = self._literal_bytes[item >> 2]
                    if value not in self._missing:
                        literals.setdefault(value, []).append(node)
                else:
                    lexemes.append((item >> 2, self._rest[node]))
            moves = self._moves[config] = _Moves(literals, tuple(lexemes))
        return moves

    def _fill_cell(self, config: int, value: int) -> int:
        literals, lexemes = self._tops(self._loosened(config))
        opened = []
        for node in literals.get(value, ()):
            item, rest = self._item[node], self._rest[node]
            opened.append(rest if self._literal_last[item >> 2] else self._node(item + 4, rest))
        for state, rest in lexemes:
            after = self.lexemes.next(state, value)
            if after >= 0:
                opened.append(self._node(after << 2 | _LEXEME, rest))
        after = self._config(self._closure(opened)) if opened else DEAD
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
        return list(rests.items()), self._config(tops) if tops else None

    def few_bytes(self, config: int) -> Iterable[int] | None:
        """The bytes that may come, if no lexeme is on top; else None."""
        literals, lexemes = self._tops(self._loosened(config))
        return None if lexemes else literals

    def behind(self, rests: list[int]) -> int:
        """The config in which all of ``rests`` are on top."""
        return self._config(self._closure(list(rests)))

    def _drop(self) -> None:
        """Give up everything that can be made again. Nodes and configs keep their numbers."""
        for row in self._rows:
            row.clear()
        self._cells = 0
        for table in (self._moves, self._forced, self._doubtful):
            table.clear()

    def _chain(self, config: int) -> bytes:
        run = bytearray()
        while len(run) < self.limits.forced:
            loose = self._loosened(config)
            if self._configs[loose][0] == 0:
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
            walk = self._walks[capped] = MaskWalk(self, capped)
        try:
            bits, self._doubtful[capped] = walk.run()
        except ConstraintError:
            del self._walks[capped]
            raise
        del self._walks[capped]
        if self._configs[capped][0] == 0:
            bits |= self._eos
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
    from .native_machine import NativeMachine, available

    return (NativeMachine if available() else Machine)(rules, start, lexemes, vocabulary, masks, key)
