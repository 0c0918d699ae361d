"""Arrays of one clause: what the next item must satisfy, and when the array may end.

::

    [1, "a", ...]       state = (items so far, matches of each contains, negations pending, values used)

Items are counted up to what matters. ``contains``: an item is counted as a match or not; the count is exact (the item
then satisfies the schema or its negation) only where there is a maximum. A violated items/prefixItems is pending
until an item violates it. ``uniqueItems`` is in :mod:`.unique`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .clauses import Clause, Contains, Count, Items, Unique
from .goals import Goal, Literal, Scope
from .node import Node
from .unevaluated import Unevaluated

if TYPE_CHECKING:
    from .compile import Compiler

MAX_WAYS = 256


class Row(NamedTuple):
    """What one item must satisfy (one case), and the state after it."""

    goal: Goal
    after: Place


class Place(NamedTuple):
    index: int
    matches: tuple[int, ...]
    pending: frozenset[int]


class ItemRule:
    """Schemas by position: ``prefix`` (None: any value), then ``rest`` for all others."""

    __slots__ = ("prefix", "rest", "scope", "unless")

    def __init__(
        self, scope: Scope, prefix: tuple[Node | None, ...], rest: Node | None, unless: tuple[Literal, ...] = ()
    ) -> None:
        self.scope = scope
        self.prefix = prefix
        self.rest = rest
        #: an item that satisfies one of these need not satisfy the rule (what contains matched is evaluated)
        self.unless = unless

    def node(self, index: int) -> Node | None:
        return self.prefix[index] if index < len(self.prefix) else self.rest


def unevaluated_rule(atom: Unevaluated, compiler: Compiler) -> ItemRule | None:
    """The rule of unevaluatedItems; None if every item is evaluated."""
    length = 0
    unless: list[Literal] = []
    for evaluator in sorted(atom.evaluators, key=lambda literal: literal.index):
        node = evaluator.node
        if node.items is not None or node.unevaluated_items is not None:
            return None
        length = max(length, len(node.prefix_items))
        if node.contains is not None and node.contains_evaluates:
            unless.append(compiler.goals.literal(node.contains, evaluator.scope))
    return ItemRule(atom.literal.scope, (None,) * length, atom.literal.node, tuple(unless))


class ArrayClause:
    """The automaton of one clause over an array's items."""

    def __init__(self, compiler: Compiler, clause: Clause) -> None:
        self.compiler = compiler
        self._goals = compiler.goals
        self.rules: list[ItemRule] = []
        self.violations: list[ItemRule] = []
        self.contains: list[Contains] = []
        self.unique: Unique | None = None
        self.low = 0
        self.high: int | None = None
        self.possible_at_all = True
        groups: list[Items] = []
        for atom in clause:
            if isinstance(atom, Items):
                groups.append(atom)
            elif isinstance(atom, Count):
                self.low = max(self.low, atom.low)
                if atom.high is not None:
                    self.high = atom.high if self.high is None else min(self.high, atom.high)
            elif isinstance(atom, Contains):
                self.contains.append(atom)
            elif isinstance(atom, Unevaluated):
                self._unevaluated(atom)
            elif isinstance(atom, Unique):
                self._uniqueness(atom)
        groups.sort(key=lambda atom: atom.literal.index)
        for atom in groups:
            node = atom.literal.node
            rule = ItemRule(atom.literal.scope, node.prefix_items, node.items)
            (self.rules if atom.literal.positive else self.violations).append(rule)
        self.contains.sort(key=lambda atom: (atom.literal.index, atom.low))
        self.prefix = max((len(rule.prefix) for rule in (*self.rules, *self.violations)), default=0)
        #: positions from here on are all alike
        self._cap = max(self.prefix, self.low) if self.high is None else max(self.high, self.low)
        self.simple = not (self.contains or self.violations or any(rule.unless for rule in self.rules))
        self._base: dict[int, Goal] = {}
        self._live: dict[Place, bool] = {}

    def _unevaluated(self, atom: Unevaluated) -> None:
        rule = unevaluated_rule(atom, self.compiler)
        if atom.literal.positive:
            if rule is not None:
                self.rules.append(rule)
        elif rule is None:
            self.possible_at_all = False
        else:
            self.violations.append(rule)

    def _uniqueness(self, atom: Unique) -> None:
        if self.unique is not None and self.unique.holds is not atom.holds:
            self.possible_at_all = False
        self.unique = atom

    @property
    def start(self) -> Place:
        return Place(0, (0,) * len(self.contains), frozenset(range(len(self.violations))))

    def base(self, index: int) -> Goal:
        """What the item at this position must satisfy, contains and violations aside."""
        at = min(index, self.prefix)
        found = self._base.get(at)
        if found is None:
            literals = []
            for rule in self.rules:
                node = rule.node(at)
                if node is not None and not rule.unless:
                    literals.append(self._goals.literal(node, rule.scope))
            found = self._base[at] = self._goals.goal(literals)
        return found

    def possible(self) -> bool:
        if not self.possible_at_all or (self.high is not None and self.high < self.low):
            return False
        if self.simple:
            ask = self.compiler.solver.ask
            return all(ask(self.base(at)) for at in range(min(self.low, self.prefix + 1)))
        return self.live(self.start)

    def may_end(self, place: Place) -> bool:
        return (
            place.index >= self.low
            and not place.pending
            and all(count >= one.low for count, one in zip(place.matches, self.contains, strict=True))
        )

    def rows(self, place: Place) -> Iterator[Row]:
        """Every case of the next item that leaves the array completable."""
        for row in self._moves(place):
            if self.simple or self.live(row.after):
                yield row

    def _moves(self, place: Place) -> Iterator[Row]:
        if self.high is not None and place.index >= self.high:
            return
        ask = self.compiler.solver.ask
        goal = self.base(place.index)
        index = min(place.index + 1, self._cap)
        if not ask(goal):
            return
        if self.simple:
            yield Row(goal, Place(index, place.matches, place.pending))
            return
        for way, matches in self._matching(self._exempt(goal, place.index), place.matches):
            for case, pending in self._violating(way, place):
                if ask(case):
                    yield Row(case, Place(index, matches, pending))

    def _exempt(self, goal: Goal, index: int) -> list[Goal]:
        """The item satisfies each unevaluatedItems, or one of the contains that exempt it."""
        ways = [goal]
        for rule in self.rules:
            node = rule.node(index)
            if not rule.unless or node is None:
                continue
            choices = [self._goals.literal(node, rule.scope), *rule.unless]
            ways = [self._goals.goal((*way.literals, one)) for way in ways for one in choices]
            ways = [way for way in dict.fromkeys(ways) if self.compiler.solver.ask(way)]
            self._limit(ways)
        return ways

    def _matching(self, goals: list[Goal], matches: tuple[int, ...]) -> list[tuple[Goal, tuple[int, ...]]]:
        ways = [(goal, matches) for goal in goals]
        for at, one in enumerate(self.contains):
            count = matches[at]
            if one.high is None and count >= one.low:
                continue
            counted = (*matches[:at], count + 1, *matches[at + 1 :])
            made = []
            for way, so_far in ways:
                after = (*so_far[:at], counted[at], *so_far[at + 1 :])
                if one.high is None or count < one.high:
                    made.append((self._goals.goal((*way.literals, one.literal)), after))
                if one.high is None:
                    made.append((way, so_far))
                else:
                    other = self._goals.negation(one.literal)
                    made.append((self._goals.goal((*way.literals, other)), so_far))
            ways = [way for way in made if self.compiler.solver.ask(way[0])]
            self._limit(ways)
        return ways

    def _violating(self, goal: Goal, place: Place) -> list[tuple[Goal, frozenset[int]]]:
        ways = [(goal, place.pending)]
        for at in sorted(place.pending):
            rule = self.violations[at]
            node = rule.node(place.index)
            if node is None:
                continue
            broken = [self._goals.literal(node, rule.scope, False)]
            broken += [self._goals.negation(literal) for literal in rule.unless]
            for way, left in tuple(ways):
                violating = self._goals.goal((*way.literals, *broken))
                if self.compiler.solver.ask(violating):
                    ways.append((violating, left - {at}))
            self._limit(ways)
        return ways

    def _limit(self, ways: list[Goal] | list[tuple[Goal, frozenset[int]]] | list[tuple[Goal, tuple[int, ...]]]) -> None:
        if len(ways) > MAX_WAYS:
            self.compiler.too_many("too many schemas speak of one item")

    def live(self, place: Place) -> bool:
        """Whether the array can still be completed from here."""
        known = self._live.get(place)
        if known is not None:
            return known
        solver = self.compiler.solver
        outer = solver.begin()
        path: list[tuple[Place, Iterator[Row]]] = [(place, self._moves(place))]
        seen = {place}
        found = self.may_end(place)
        try:
            while path and not found:
                row = next(path[-1][1], None)
                if row is None:
                    path.pop()
                    continue
                after = row.after
                if after in seen:
                    continue
                seen.add(after)
                solver.work()
                known = self._live.get(after)
                if known is None:
                    path.append((after, self._moves(after)))
                    found = self.may_end(after)
                else:
                    found = known
        finally:
            final = solver.end(outer)
        if found:
            for one, _ in path:
                self._live[one] = True
            self._live[place] = True
        elif final:
            for one in seen:
                self._live[one] = False
        return found
