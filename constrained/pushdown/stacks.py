"""Stacks and sets of stacks of one machine, interned: what :mod:`.machine` steps through.

::

    stack node = (item, rest)          "{" · members · "}" · nothing        shared tails: a tree of nodes
    config     = set of stack nodes whose top can read a byte, and whether the empty stack is among them
    closure    = what is on top is opened until each top can read a byte, is a marker, or nothing is left
    join       = a node that stands for a set of stacks: stacks with the same top become one, on a join of their rests,
                 so a grammar that can be read in two ways at each of n levels has 2 n nodes and not 2**n stacks

Dependent nonterminals (:attr:`Rules.resolve`) are not opened by a closure: they stay in the config as *markers*.
"""

from __future__ import annotations

from typing import NamedTuple

from ..interface import ConstraintError
from .lexemes import LexemeTable
from .rules import Lexeme, Rules

LITERAL, LEXEME, NONTERMINAL, JOIN = range(4)
#: the config that no text reaches
DEAD = -1
#: bytes of Python objects behind one node, one config, and one stack of a config
_NODE_BYTES, _CONFIG_BYTES, _STACK_BYTES = 250, 400, 16


class Limits(NamedTuple):
    """Bounds of one machine. Passing one of the first three raises ConstraintError that names it."""

    stacks: int = 16_384  # stack nodes opened by one closure
    depth: int = 20_000  # items on one stack
    nbytes: int = 256 * 1024 * 1024  # stacks and configs, which cannot be dropped
    cells: int = 400_000  # filled transitions; past it all are dropped and made again as needed
    forced: int = 4_096  # bytes given by one call of forced
    kept: int = 16 * 1024 * 1024  # bytes of forced runs and doubtful tokens; past it all are dropped and made again


class Stacks:
    """Nodes and configs by number; numbers are never given up. ``rules`` may grow. Node 0 is the empty stack."""

    def __init__(self, rules: Rules, lexemes: LexemeTable, limits: Limits) -> None:
        self.rules = rules
        self.lexemes = lexemes
        self.limits = limits
        # literals: byte q of all that were met, one after another; the last byte of each is marked
        self._literals: dict[bytes, int] = {}
        self.literal_bytes = bytearray()
        self.literal_last = bytearray()
        #: per node: item number << 2 | kind (a literal's number is that of its next byte); node below; items down to 0
        self.item = [-1]
        self.rest = [-1]
        self._depth = [0]
        self._nodes: dict[int, int] = {}
        #: per join: the stacks that it stands for
        self.joined: list[tuple[int, ...]] = []
        self._joins: dict[tuple[int, ...], int] = {}
        #: per config: its nodes, rising
        self.configs: list[tuple[int, ...]] = []
        self._config_ids: dict[tuple[int, ...], int] = {}
        self._stacks = 0  # in all configs and joins together
        self._loose: dict[int, int] = {}
        #: configs with markers
        self.marked: set[int] = set()

    @property
    def nbytes(self) -> int:
        kept = len(self.item) * _NODE_BYTES + len(self.configs) * _CONFIG_BYTES
        return kept + self._stacks * _STACK_BYTES + 2 * len(self.literal_bytes)

    def node(self, item: int, rest: int) -> int:
        key = item << 32 | rest
        node = self._nodes.get(key)
        if node is None:
            depth = self._depth[rest] + 1
            if depth > self.limits.depth:
                raise ConstraintError(
                    f"the text is nested more than {self.limits.depth} levels deep, or the grammar is left-recursive; "
                    "bound the recursion of the schema or grammar"
                )
            node = len(self.item)
            self.item.append(item)
            self.rest.append(rest)
            self._depth.append(depth)
            self._nodes[key] = node
        return node

    def _literal(self, data: bytes) -> int:
        at = self._literals.get(data)
        if at is None:
            at = len(self.literal_bytes)
            self.literal_bytes += data
            self.literal_last += bytes(len(data) - 1) + b"\1"
            self._literals[data] = at
        return at

    def closure(self, todo: list[int], open_markers: bool = False) -> set[int]:
        """The nodes that ``todo`` opens into: each reads a byte, is a marker, or is 0 (the empty stack)."""
        item_of, rest_of, accept, rules = self.item, self.rest, self.lexemes.accept, self.rules
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
                if node == 0 or kind == LITERAL:
                    found.setdefault(item, []).append(rest_of[node])
                elif kind == LEXEME:
                    ends = accept[item >> 2]
                    if ends:
                        todo.append(rest_of[node])
                    if ends != 2:
                        found.setdefault(item, []).append(rest_of[node])
                elif kind == JOIN:
                    todo.extend(self.joined[item >> 2])
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
                seen.add(self.node(item, rest))
            for production in rules.productions(item >> 2):
                opened = self._push(production, rest)
                if opened >= 0:
                    todo.append(opened)
            accept = self.lexemes.accept  # may have moved
        nodes = {self.node(item, self._join(rests)) for item, rests in found.items() if item >= 0}
        return nodes | {0} if -1 in found else nodes

    def _join(self, rests: list[int]) -> int:
        """The node that stands for all ``rests``."""
        if len(rests) == 1:
            return rests[0]
        flat: set[int] = set()
        for rest in rests:
            if rest and self.item[rest] & 3 == JOIN:
                flat.update(self.joined[self.item[rest] >> 2])
            else:
                flat.add(rest)
        key = tuple(sorted(flat))
        node = self._joins.get(key)
        if node is None:
            node = self._joins[key] = len(self.item)
            self.item.append(len(self.joined) << 2 | JOIN)
            self.rest.append(0)
            self._depth.append(max(self._depth[rest] for rest in key))
            self.joined.append(key)
            self._stacks += len(key)
        return node

    def _push(self, production: tuple[bytes | int | Lexeme, ...], rest: int) -> int:
        """The stack of ``production`` on ``rest``; -1 if the vocabulary cannot write one of its lexemes."""
        for part in reversed(production):
            if isinstance(part, bytes):
                if not part:
                    continue
                item = self._literal(part) << 2 | LITERAL
            elif isinstance(part, Lexeme):
                state = self.lexemes.start(part)
                if state < 0:
                    return -1
                item = state << 2 | LEXEME
            else:
                item = part << 2 | NONTERMINAL
            rest = self.node(item, rest)
        return rest

    def config(self, nodes: set[int]) -> int:
        if not nodes:
            return DEAD
        key = tuple(sorted(nodes))
        config = self._config_ids.get(key)
        if config is None:
            if self.nbytes > self.limits.nbytes:
                raise ConstraintError(
                    f"this constraint's states take more than {self.limits.nbytes >> 20} MB; bound its repetitions and "
                    "recursion, or compile it again"
                )
            config = len(self.configs)
            self.configs.append(key)
            self._config_ids[key] = config
            if self.rules.resolve and any(self.is_marker(node) for node in key):
                self.marked.add(config)
            self._stacks += len(key)
        return config

    def is_marker(self, node: int) -> bool:
        return node != 0 and self.item[node] & 3 == NONTERMINAL

    def loosened(self, config: int) -> int:
        """The config with its markers opened as their ``expand`` says; itself if it has none."""
        if config not in self.marked:
            return config
        loose = self._loose.get(config)
        if loose is None:
            loose = self.config(self.closure(list(self.configs[config]), open_markers=True))
            if loose == DEAD:
                raise ConstraintError("a rule that depends on a value has no continuation")
            self._loose[config] = loose
        return loose

    def markers(self, config: int) -> tuple[int, ...]:
        """The dependent nonterminals on top of stacks of ``config``; () in all but a few constraints."""
        if config not in self.marked:
            return ()
        return tuple({self.item[node] >> 2 for node in self.configs[config] if self.is_marker(node)})

    def resolved(self, config: int, found: dict[int, int | None]) -> int:
        """``config`` with each of its :meth:`markers` replaced by the nonterminal ``found`` gives (None: its stacks are
        taken out). -1 if nothing is left. May have markers of its own."""
        kept = set()  # closed already: a lexeme that may end here would bring its marker back
        opened = []
        for node in self.configs[config]:
            if not self.is_marker(node):
                kept.add(node)
            elif (instead := found[self.item[node] >> 2]) is not None:
                opened.append(self.node(instead << 2 | NONTERMINAL, self.rest[node]))
        return self.config(kept | self.closure(opened))
