"""Stacks and sets of stacks of one machine, interned: what :mod:`.machine` steps through.

::

    stack node = (item, rest)          "{" · members · "}" · nothing        shared tails: a tree of nodes
    config     = set of stack nodes whose top can read a byte, and whether the empty stack is among them
    closure    = what is on top is opened until each top can read a byte, is a marker, or nothing is left
    join       = a node that stands for a set of stacks. No two of them have the same top: those are one, on a join of
                 their rests, and so on down. So a join has at most as many stacks as the rules have items, and what can
                 be read in two ways at each of n levels has 2 n nodes, and not 2**n stacks

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
#: joins that may be made of others: so many, and so many more for each config. Past it stacks are joined as they are,
#: which is right as well, and only larger
_UNIONS, _UNIONS_EACH = 4_096, 64


class Node(NamedTuple):
    """One node of a stack: a nonterminal, a lexeme state, or how many bytes are left of a literal (``value``), and the
    node ``below`` it (0: nothing); or a join, and the stacks that it stands for."""

    kind: int
    value: int
    below: tuple[int, ...]


class Limits(NamedTuple):
    """Bounds of one machine. Passing one of the first three raises ConstraintError that names it."""

    stacks: int = 16_384  # stack nodes opened by one closure
    depth: int = 20_000  # items on one stack
    nbytes: int = 256 * 1024 * 1024  # stacks and configs, which cannot be dropped
    cells: int = 400_000  # filled transitions; past it all are dropped and made again as needed
    forced: int = 4_096  # bytes given by one call of forced
    unions: int = 1_000_000  # stacks in joins that are remembered as joins of others; past it all are worked out again
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
        self._unions: dict[tuple[int, ...], int] = {}
        self._unions_made = self._unions_kept = 0  # joins made of others; the nodes in the keys of those that are kept
        #: per node that was closed alone: what it opened into
        self._closed: dict[int, tuple[int, ...]] = {}
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
        return kept + (self._stacks + self._unions_kept) * _STACK_BYTES + 2 * len(self.literal_bytes)

    def node(self, item: int, rest: int) -> int:
        key = item << 32 | rest
        node = self._nodes.get(key)
        if node is None:
            depth = self._depth[rest] + 1
            if depth > self.limits.depth:
                raise self._too_deep()
            node = len(self.item)
            self.item.append(item)
            self.rest.append(rest)
            self._depth.append(depth)
            self._nodes[key] = node
        return node

    def _too_deep(self) -> ConstraintError:
        return ConstraintError(
            f"the text is nested more than {self.limits.depth} levels deep, or the grammar is left-recursive; bound "
            "the recursion of the schema or grammar"
        )

    def _literal(self, data: bytes) -> int:
        at = self._literals.get(data)
        if at is None:
            at = len(self.literal_bytes)
            self.literal_bytes += data
            self.literal_last += bytes(len(data) - 1) + b"\1"
            self._literals[data] = at
        return at

    def closure(self, nodes: list[int], open_markers: bool = False) -> set[int]:
        """The nodes that ``nodes`` open into: each reads a byte, is a marker, or is 0 (the empty stack).

        What comes to light when something ends that is opened here is opened on its own first, once and for all: a
        text that may end at each of n levels would open all of them again at every byte.
        """
        closed = self._closed
        if open_markers:
            return self._opened(nodes, open_markers, [])
        if len(nodes) == 1 and nodes[0] in closed:
            return set(closed[nodes[0]])
        below: list[int] = []
        while True:
            unknown: list[int] = []
            if not below:
                found = self._opened(nodes, False, unknown, ended=len(nodes) > 1)
                if not unknown:
                    break
            elif below[-1] in closed:
                below.pop()
            else:
                found = self._opened([below[-1]], False, unknown)
                if not unknown:
                    self._close(below[-1], found)
            below += unknown
            if len(below) > 64 * self.limits.depth:
                raise self._too_deep()
        if len(nodes) == 1:
            self._close(nodes[0], found)
        return found

    def _close(self, node: int, found: set[int]) -> None:
        self._closed[node] = tuple(found)
        self._stacks += len(found)

    def _opened(self, nodes: list[int], open_markers: bool, unknown: list[int], ended: bool = False) -> set[int]:
        """:meth:`closure`, unless what must be opened first is put to ``unknown``. ``ended``: something stood on
        ``nodes`` that has ended."""
        item_of, rest_of, accept, rules = self.item, self.rest, self.lexemes.accept, self.rules
        closed: dict[int, tuple[int, ...]] = {} if open_markers else self._closed
        seen: set[int] = set()
        found: dict[int, list[int]] = {}  # item -> rests
        waiting: dict[int, list[int]] = {}  # nonterminal's item -> rests, to be opened as one
        todo = [] if ended else list(nodes)
        for node in nodes if ended else ():
            (todo if open_markers or self._is_open(node) else unknown).append(node)
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
                elif node in closed:
                    for one in closed[node]:
                        if one == node or one not in seen:
                            seen.add(one)
                            found.setdefault(item_of[one], []).append(rest_of[one])
                elif kind == LEXEME:
                    ends = accept[item >> 2]
                    if ends:
                        rest = rest_of[node]
                        (todo if open_markers or self._is_open(rest) else unknown).append(rest)
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
                    (todo if opened != rest or open_markers or self._is_open(rest) else unknown).append(opened)
            accept = self.lexemes.accept  # may have moved
        made = {self.node(item, self._join(rests)) for item, rests in found.items() if item >= 0}
        if -1 in found:
            made.add(0)
        return made

    def _is_open(self, node: int) -> bool:
        """Whether there is nothing to be opened, or it was."""
        item = self.item[node]
        if node == 0 or item & 3 == LITERAL or node in self._closed:
            return True
        if item & 3 == LEXEME:
            return not self.lexemes.accept[item >> 2]
        return item & 3 == NONTERMINAL and item >> 2 in self.rules.resolve

    def _join(self, rests: list[int]) -> int:
        """The node that stands for all ``rests``."""
        if len(rests) == 1:
            return rests[0]
        if self._unions_kept > self.limits.unions:
            self._unions_kept = 0
            self._unions.clear()
        wanted = tuple(sorted(set(rests)))
        found = wanted[0] if len(wanted) == 1 else self._unions.get(wanted)
        return self._union(wanted) if found is None else found

    def _union(self, wanted: tuple[int, ...]) -> int:
        """:meth:`_join` where it is not known: of those with the same top, the rests are joined first."""
        todo = [wanted]
        while True:
            rests = todo[-1]
            by_item: dict[int, set[int]] = {}
            for rest in rests:
                for one in self._members(rest):
                    by_item.setdefault(self.item[one], set()).add(self.rest[one])
            below = {item: tuple(sorted(found)) for item, found in by_item.items()}
            unknown = [found for found in below.values() if len(found) > 1 and found not in self._unions]
            if unknown:
                if self._unions_made < _UNIONS + _UNIONS_EACH * len(self.configs):
                    self._unions_made += len(unknown)
                    todo += unknown
                    continue
                # stacks that have little in common: they stay side by side
                below, todo = {}, [wanted]
                nodes = {one for rest in wanted for one in self._members(rest)}
            else:
                nodes = {
                    0 if item < 0 else self.node(item, found[0] if len(found) == 1 else self._unions[found])
                    for item, found in below.items()
                }
            self._unions[todo.pop()] = made = self._stand_for(tuple(sorted(nodes)))
            self._unions_kept += len(rests)
            if not todo:
                return made

    def _members(self, node: int) -> tuple[int, ...]:
        return self.joined[self.item[node] >> 2] if node and self.item[node] & 3 == JOIN else (node,)

    def _stand_for(self, key: tuple[int, ...]) -> int:
        """The node of a join of exactly these."""
        if len(key) == 1:
            return key[0]
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

    def look(self, node: int) -> Node:
        kind, value = self.item[node] & 3, self.item[node] >> 2
        if kind == JOIN:
            return Node(kind, value, self.joined[value])
        if kind == LITERAL:
            value = self.literal_last.index(1, value) - value + 1
        return Node(kind, value, (self.rest[node],))

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
