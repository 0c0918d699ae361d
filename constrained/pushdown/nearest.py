"""How far a text is from its end: the fewest bytes that complete it.

::

    stack = '"' · members · "}"        distance = bytes of a literal + shortest of a lexeme + cheapest of a nonterminal
    config = set of stacks             the least of its stacks

The way out of a config is walked in pieces, each remembered by the config it begins in; a text that grows elsewhere
comes upon known ones soon. It goes no further than to a dependent rule, which nothing but the values before could
decide, at a cost: what comes after is told by its distance.

A lexeme of more states than ``lexeme_states``, and each after a few of those, is estimated from its expression, a
nonterminal whose productions reach more than ``nonterminals`` others from those; dependent rules (uniqueItems) count as
their ``expand``. So a distance may be too small, never too large; where it is exact, following it down ends in a
shortest whole text.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable

from ..interface import Unfinished, WayOut
from .lexemes import LexemeTable
from .machine import Machine
from .native_machine import NativeMachine
from .rules import Lexeme, Rules
from .stacks import DEAD, JOIN, LEXEME, LITERAL

FAR = 1 << 40
#: the bytes tried first: those that end things; before the brackets, what may fill a string that must be longer
_ENDS = b'".0}],:'
#: dependent rules that are opened for one distance: each set of values before makes a chain of its own
_DEPENDENTS = 32
#: searches as far as they go that one machine pays for (multiples of a large number have a state for each remainder)
_SEARCHES = 4
#: bytes of a piece of a way out, about
_PIECE = 64
_ORDER = tuple(bytes((value,)) for value in (*_ENDS, *(value for value in range(256) if value not in _ENDS)))


def check(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise Unfinished


class Nearest:
    """Distances in one machine; everything is remembered."""

    def __init__(
        self, machine: Machine | NativeMachine, nonterminals: int = 20_000, lexeme_states: int = 50_000
    ) -> None:
        self.machine = machine
        self._lexemes = LexemeDistances(machine.lexemes, lexeme_states)
        self._rules = RuleDistances(machine.rules, self._lexemes, nonterminals)
        self._stacks: dict[int, int] = {0: 0}
        self._configs: dict[int, int] = {}
        self._pieces: dict[int, tuple[bytes, int]] = {}

    @property
    def nbytes(self) -> int:
        """Memory held."""
        entries = len(self._stacks) + len(self._configs) + len(self._lexemes) + len(self._rules) + 3 * len(self._pieces)
        return 100 * entries

    def distance(self, config: int) -> int:
        """Bytes from ``config`` to acceptance; FAR from where nothing leads there."""
        if config == DEAD:
            return FAR
        known = self._configs.get(config)
        if known is None:
            known = min(self._stack(node) for node in self.machine.stacks_of(config))
            self._configs[config] = known
        return known

    def next_byte(self, config: int) -> tuple[bytes, int]:
        """The byte that leads nearest to acceptance, and the config behind it."""
        best, found, after = FAR, b"", DEAD
        enough = self.distance(config) - 1
        for data in _ORDER:
            target = self.machine.step(config, data)
            if target != DEAD and self.distance(target) < best:
                best, found, after = self.distance(target), data, target
                if best <= enough:
                    break
        return found, after

    def way_out(self, config: int, most: int) -> WayOut | None:
        """A shortest completion, as far as distances are exact; None if it is longer than ``most`` bytes or nothing
        leads to acceptance. Raises Unfinished at the machine's deadline; the pieces found so far are kept."""
        pieces: list[bytes] = []
        length = 0
        while not self.machine.accepting(config):
            distance = self.distance(config)
            if length + distance > most:
                return None
            if pieces and self.machine.markers(config):
                return WayOut(tuple(pieces), distance)
            piece, config = self._pieces.get(config) or self._piece(config)
            if not piece:
                return None
            pieces.append(piece)
            length += len(piece)
        return WayOut(tuple(pieces), 0) if length <= most else None

    def _piece(self, start: int) -> tuple[bytes, int]:
        """What comes first, up to behind a run that is forced, and where it leads; b"" at a dead end."""
        machine, config, written = self.machine, start, bytearray()
        while len(written) < _PIECE and not machine.accepting(config):
            run = b"" if machine.dependent else machine.forced(config)
            if run:
                config = machine.step(config, run)
            else:
                run, config = self.next_byte(config)
                if not run:
                    written.clear()
                    break
            written += run
            if len(run) > 1 or machine.markers(config):
                break
            check(machine.deadline)
        self._pieces[start] = bytes(written), config
        return self._pieces[start]

    def _stack(self, node: int) -> int:
        known = self._stacks
        todo = [] if node in known else [node]
        asked = node
        while todo:
            kind, value, below = self.machine.look(todo[-1])
            missing = [rest for rest in below if rest not in known]
            if missing:
                todo += missing
                continue
            known[todo.pop()] = min(known[rest] for rest in below) + self._top(kind, value)
        return known[asked]

    def _top(self, kind: int, value: int) -> int:
        if kind == JOIN:
            return 0
        if kind == LITERAL:
            return value
        return self._lexemes.of_state(value) if kind == LEXEME else self._rules.of(value)


class LexemeDistances:
    """The fewest bytes from a lexeme state to its end."""

    def __init__(self, lexemes: LexemeTable, most: int) -> None:
        self._table = lexemes
        self._most = most
        self._known: dict[int, int] = {}
        self._next: dict[int, tuple[int, ...]] = {}  # where the bytes lead

    def __len__(self) -> int:
        return len(self._known) + 2 * len(self._next)

    @property
    def deadline(self) -> float | None:
        """When work stops."""
        return self._table.languages.deadline

    def of(self, lexeme: Lexeme) -> int:
        state = self._table.start(lexeme)
        return FAR if state < 0 else self.of_state(state)

    def of_state(self, state: int) -> int:
        """Breadth first; past ``most`` states, what the expression says at least."""
        known = self._known.get(state)
        if known is None and (known := self._of_length(state)) is not None:
            self._known[state] = known
        if known is not None:
            return known
        before: dict[int, int] = {state: -1}
        level, depth = [state], 0
        best, end = FAR, -1
        least: int | None = None  # where the search had to stop
        while level and depth < best and len(before) < self._most:
            after: list[int] = []
            for at in level:
                rest = 0 if self._table.accept[at] else self._known.get(at)
                if rest is not None:
                    if depth + rest < best:
                        best, end = depth + rest, at
                    continue
                targets = self._targets(at)
                if targets is None:
                    least = depth if least is None else least
                    continue
                for target in targets:
                    if target not in before:
                        before[target] = at
                        after.append(target)
            level, depth = after, depth + 1
        if end < 0:
            if least is None and len(before) >= self._most:
                least = depth
            self._known[state] = FAR if least is None else max(least, self._at_least(state))
            return self._known[state]
        steps = best
        rest = self._known.get(end, 0)
        while end >= 0:
            self._known.setdefault(end, rest)
            end, rest = before[end], rest + 1
        return steps

    def _targets(self, state: int) -> tuple[int, ...] | None:
        """None: too many states were looked at already."""
        found = self._next.get(state)
        if found is None and len(self._next) < _SEARCHES * self._most:
            check(self.deadline)
            self._table.fill(state)
            found = tuple(target for target in sorted(set(self._table.rows[state].tolist())) if target >= 0)
            self._next[state] = found
        return found

    def _of_length(self, state: int) -> int | None:
        """Where nothing but the length of a string is bounded."""
        lexeme = self._table.lexeme(state)
        bounds = None if lexeme is None else self._table.languages.window(lexeme.language)
        return None if lexeme is None or bounds is None else bounds[0] + lexeme.json

    def _at_least(self, state: int) -> int:
        lexeme = self._table.lexeme(state)
        return 0 if lexeme is None else lexeme.language.shortest + lexeme.json


class RuleDistances:
    """The fewest bytes that a nonterminal writes: Knuth's generalization of Dijkstra's algorithm, as far as asked."""

    def __init__(self, rules: Rules, lexemes: LexemeDistances, most: int) -> None:
        self._rules = rules
        self._lexemes = lexemes
        self._most = most
        self._known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, nonterminal: int) -> int:
        if nonterminal not in self._known:
            self._solve(nonterminal)
        return self._known[nonterminal]

    def _solve(self, root: int) -> None:
        productions: list[tuple[int, int, list[int]]] = []  # (whose, bytes beside nonterminals, nonterminals in it)
        uses: dict[int, list[int]] = {}
        reached, todo, opened = {root}, [root], set[int]()
        dependents = 0
        for at in todo:
            if len(todo) > self._most:
                break
            if at in self._rules.resolve:
                dependents += 1
                if dependents > _DEPENDENTS:
                    continue
            opened.add(at)
            check(self._lexemes.deadline)
            for production in self._rules.shortest(at):
                inside = [part for part in production if isinstance(part, int) and part not in self._known]
                for part in dict.fromkeys(inside):
                    uses.setdefault(part, []).append(len(productions))
                    if part not in reached:
                        reached.add(part)
                        todo.append(part)
                productions.append((at, self._fixed(production), inside))
        waiting = [len(set(inside)) for _, _, inside in productions]
        costs = [fixed for _, fixed, _ in productions]
        heap = [(costs[i], whose) for i, (whose, _, inside) in enumerate(productions) if not inside]
        unopened = reached - opened
        heap += [(1, part) for part in unopened]  # one byte at least
        heapq.heapify(heap)
        while heap:
            cost, at = heapq.heappop(heap)
            if at in self._known:
                continue
            self._known[at] = cost
            for i in uses.get(at, ()):
                whose, _, inside = productions[i]
                costs[i] += cost * inside.count(at)
                waiting[i] -= 1
                if not waiting[i]:
                    heapq.heappush(heap, (costs[i], whose))
        for at in reached:
            self._known.setdefault(at, FAR)
        for at in unopened:
            del self._known[at]

    def _fixed(self, production: Iterable[bytes | int | Lexeme]) -> int:
        total = 0
        for part in production:
            if isinstance(part, bytes):
                total += len(part)
            elif isinstance(part, Lexeme):
                total += self._lexemes.of(part)
            else:
                total += self._known.get(part, 0)
        return total
