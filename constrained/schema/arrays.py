"""Arrays of one clause: what the next item must satisfy, and when the array may end.

::

    [1, "a", ...]       state = (items so far, matches of each contains, negations pending, values used)

Items are counted up to what matters. ``contains``: an item is counted as a match or not; the count is exact (the item
then satisfies the schema or its negation) only where there is a maximum. A violated items/prefixItems is pending
until an item violates it. ``uniqueItems`` is in :mod:`.unique`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from . import singles
from .atoms import Clause, Contains, Count, Items, Unique
from .completion import Completion
from .goals import Goal, Literal, Scope
from .node import Node
from .unevaluated import Unevaluated

if TYPE_CHECKING:
    from .compile import Compiler
    from .twins import TwinItems
    from .unique import UniqueItems

MAX_WAYS = 256
#: pending until two items are equal
TWIN = -1


class Row(NamedTuple):
    """What one item must satisfy (one case), and the state after it."""

    goal: Goal
    after: Place
    #: the value itself decides what follows: see :meth:`ArrayClause.follow`
    remember: bool = False


class Place(NamedTuple):
    at: int
    matches: tuple[int, ...]
    pending: frozenset[int]
    #: values that may not come again (their json_key), where items are to be unique
    used: frozenset[Hashable] = frozenset()
    #: where the second of two equal items is to come
    twin: int = -1


class ItemRule:
    """Schemas by position: ``prefix`` (None: any value), then ``rest`` for all others."""

    __slots__ = ("high", "low", "prefix", "rest", "scope", "unless")

    def __init__(
        self, scope: Scope, prefix: tuple[Node | None, ...], rest: Node | None, unless: tuple[Literal, ...] = ()
    ) -> None:
        #: as a violation, it is also violated by fewer or more items than this
        self.low = 0
        self.high: int | None = None
        self.scope = scope
        self.prefix = prefix
        self.rest = rest
        #: an item that satisfies one of these need not satisfy the rule (what contains matched is evaluated)
        self.unless = unless

    def has_length(self, length: int) -> bool:
        """As a violation: whether so many items violate it."""
        return length < self.low or (self.high is not None and length > self.high)

    def node(self, index: int) -> Node | None:
        return self.prefix[index] if index < len(self.prefix) else self.rest


def unevaluated_rule(atom: Unevaluated, compiler: Compiler) -> ItemRule | None:
    """The rule of unevaluatedItems; None if every item is evaluated."""
    length = 0
    unless: list[Literal] = []
    for literal, everything in sorted(atom.evaluators, key=lambda one: one.literal.index):
        node = literal.node
        if everything or node.items is not None:
            return None
        length = max(length, len(node.prefix_items))
        if node.contains is not None and node.contains_evaluates:
            unless.append(compiler.goals.literal(node.contains, literal.scope))
    return ItemRule(atom.literal.scope, (None,) * length, atom.literal.node, tuple(unless))


class ArrayClause:
    """The automaton of one clause over an array's items."""

    unique: Unique | None = None

    def __init__(self, compiler: Compiler, clause: Clause) -> None:
        self.compiler = compiler
        self._goals = compiler.goals
        self.rules: list[ItemRule] = []
        self.violations: list[ItemRule] = []
        self.contains: list[Contains] = []
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
            if atom.literal.positive:
                self.rules.append(rule)
            else:
                rule.low, rule.high = node.min_items, node.max_items
                self.violations.append(rule)
        self.contains.sort(key=lambda atom: (atom.literal.index, atom.low))
        self.prefix = max((len(rule.prefix) for rule in (*self.rules, *self.violations)), default=0)
        #: positions from here on are all alike
        self._cap = max(self.prefix, self.low, self.high or 0)
        for rule in self.violations:
            self._cap = max(self._cap, rule.low, 0 if rule.high is None else rule.high + 1)
        self.simple = not (self.contains or self.violations or any(rule.unless for rule in self.rules))
        self.distinct: UniqueItems | None = None
        self.twins: TwinItems | None = None
        if self.unique is not None and self.possible_at_all and (self.high is None or self.high > 1):
            self._be_unique(self.unique)
        elif self.unique is not None and not self.unique.holds:
            self.possible_at_all = False  # no two items, none equal
        self._base: dict[int, Goal] = {}
        self._completion = Completion(compiler.solver, self._steps, self.may_end)

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

    def _be_unique(self, atom: Unique) -> None:
        from .twins import TwinItems
        from .unique import MAX_UNIQUE, UniqueItems

        if atom.holds and self.low > MAX_UNIQUE:
            self.compiler.options.unsupported(
                "uniqueItems", atom.pointer, f"cannot be kept beside a minItems of more than {MAX_UNIQUE:,}"
            )
            return
        if atom.holds:
            self.distinct = UniqueItems(self.compiler, self)
        elif self.simple:
            self.twins = TwinItems(self.compiler, self)
        else:
            self.compiler.options.unsupported(
                "uniqueItems",
                atom.pointer,
                "that two items are equal (uniqueItems under not, if or oneOf) cannot be kept beside contains or "
                "another schema that must not hold",
            )
            return
        self.simple = False

    def next(self, index: int) -> int:
        """The position after this one, up to where all are alike."""
        return min(index + 1, self._cap)

    @property
    def start(self) -> Place:
        pending = set(range(len(self.violations)))
        if self.twins is not None:
            pending.add(TWIN)
        return Place(0, (0,) * len(self.contains), frozenset(pending))

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
            place.at >= self.low
            and all(one != TWIN and self.violations[one].has_length(place.at) for one in place.pending)
            and all(count >= one.low for count, one in zip(place.matches, self.contains, strict=True))
        )

    def rows(self, place: Place) -> Iterator[Row]:
        """Every case of the next item that leaves the array completable."""
        if self.distinct is not None:
            yield from self.distinct.rows(place)
            return
        if self.twins is not None:
            yield from self.twins.rows(place)
            return
        for row in self.moves(place):
            if self.simple or self.live(row.after):
                yield row

    def follow(self, place: Place, text: bytes) -> Place | None:
        """The state after an item that is remembered; None if that item may not stand there."""
        if self.twins is not None:
            return self.twins.follow(place, text)
        assert self.distinct is not None
        after = self.distinct.follow(place, text)
        return after if after.used != place.used and self.live(after) else None

    def indifference(self, place: Place) -> Callable[[bytes], bool] | None:
        """For :meth:`Rules.add_dependent`, of what follows an item that is remembered."""
        distinct = self.distinct
        return None if distinct is None else lambda rest: distinct.indifferent(place, rest)

    def _steps(self, place: Place) -> Iterator[Place]:
        if self.distinct is not None:
            return self.distinct.steps(place)
        return (row.after for row in self.moves(place))

    def moves(self, place: Place) -> Iterator[Row]:
        if self.high is not None and place.at >= self.high:
            return
        ask = self.compiler.solver.ask
        goal = self.base(place.at)
        index = self.next(place.at)
        if not ask(goal):
            return
        if self.simple:
            yield Row(goal, Place(index, place.matches, place.pending))
            return
        for way, matches in self._matching(self._exempt(goal, place.at), place.matches):
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
        goals = self._goals
        touched = [(at, self.violations[at]) for at in sorted(place.pending)]
        touched = [(at, rule) for at, rule in touched if rule.node(place.at) is not None]
        alone = len(touched) == 1
        single: dict[int, Literal] = {}
        for at, rule in touched:
            node = rule.node(place.at)
            if node in goals.singles and node is not None and not rule.unless:
                single[at] = goals.literal(node, rule.scope)
        if len(single) > 1:
            found = singles.cases(goals, goal, place.pending, single)
            ways = [way for way in found if self.compiler.solver.ask(way[0])]
            touched = [(at, rule) for at, rule in touched if at not in single]
        for at, rule in touched:
            node = rule.node(place.at)
            assert node is not None
            broken = [goals.literal(node, rule.scope, False)]
            broken += [goals.negation(literal) for literal in rule.unless]
            made = []
            for way, left in ways:
                # one alone: the item may also hold it; several: it is said of each, since that leaves fewer cases
                if alone or rule.unless:
                    made.append((way, left))
                else:
                    made.append((goals.goal((*way.literals, goals.negation(broken[0]))), left))
                made.append((goals.goal((*way.literals, *broken)), left - {at}))
            ways = [way for way in made if self.compiler.solver.ask(way[0])]
            self._limit(ways)
        return ways

    def _limit(self, ways: list[Goal] | list[tuple[Goal, frozenset[int]]] | list[tuple[Goal, tuple[int, ...]]]) -> None:
        if len(ways) > MAX_WAYS:
            self.compiler.too_many("too many schemas speak of one item")

    def live(self, place: Place) -> bool:
        """Whether the array can still be completed from here."""
        return self._completion(place) if self.twins is None else self.twins.live(place)
