"""Objects of one clause: which keys may come next, what their values must satisfy, when the object may end.

::

    {"a": ..., "b": ...}     state = (next place in each list of declared names, names used, negations pending, count)

Order. Each declared name belongs to the first ``properties`` that lists it; names of one list come in its order,
different lists interleave freely, names that are only required have no order, and undeclared keys come after all
declared ones (so do those that only a value has which is excluded, or asked for beside other schemas). With any order
there are no lists. A declared name never comes twice (the state sees to it), nor spelled with escapes as an undeclared
key (undeclared keys are a language without the declared names).

Undeclared keys may repeat where that changes nothing. Where a later value could undo what an earlier one was needed
for (a negation it violated, a minimum count), the name is remembered (``Key.remember``) and banned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..regular.language import Language
from .atoms import Clause, Count, Has
from .completion import Completion
from .goals import Goal, Literal
from .keys import KeyRule, rule_of, unevaluated_rule
from .names import Names
from .unevaluated import Unevaluated
from .violations import Violation

if TYPE_CHECKING:
    from .compile import Compiler

#: ways in which one key can violate pending negations, at most
MAX_WAYS = 256
#: pending violations with which a text is read in as many ways as they can be taken; past it, one way each
FEW_PENDING = 4
#: names that propertyNames allows, told apart where they are counted, at most
FEW_NAMES = 32
_NOBODY: frozenset[str] = frozenset()
Ways = list[tuple[Goal, frozenset[int]]]


class State(NamedTuple):
    at: tuple[int, ...]
    used: frozenset[str]
    pending: frozenset[int]
    #: how many keys there are, up to where it matters
    number: int
    #: undeclared names that may not come again
    banned: frozenset[str] = _NOBODY


class Key(NamedTuple):
    """A key that may come next: its name, or the number of a cell of undeclared keys."""

    name: str | None
    cell: int
    goal: Goal
    after: State
    #: the key's own name decides more than its cell does: it is to be remembered
    remember: bool = False


class ObjectClause:
    """The automaton of one clause over an object's keys."""

    def __init__(self, compiler: Compiler, clause: Clause) -> None:
        self._compiler = compiler
        self._goals = compiler.goals
        self.rules: list[KeyRule] = []
        self.violations: list[Violation] = []
        self.low, self.high = 0, None
        self.dependent: dict[str, tuple[str, ...]] = {}
        self._within: list[Literal] = []
        self._declared: list[list[str]] = []
        #: names of a value that is asked for beside other schemas
        self._late: set[str] = set()
        required: dict[str, None] = {}
        absent: set[str] = set()
        groups: list[Literal] = []
        for atom in clause:
            if isinstance(atom, Literal):
                groups.append(atom)
            elif isinstance(atom, Has):
                if atom.there:
                    required[atom.name] = None
                else:
                    absent.add(atom.name)
            elif isinstance(atom, Count):
                self._bound(atom.low, atom.high)
            elif isinstance(atom, Unevaluated):
                self._unevaluated(atom)
        if len(groups) > 1:
            groups.sort(key=lambda literal: literal.index)
        for literal in groups:
            if literal.positive:
                self._hold(literal, required)
            elif not self._violates_anyway(literal, groups, required, absent):
                self.violations.append(Violation(compiler, literal))
        self.required = required
        self._absent = absent
        self._track()
        self._pending = frozenset(range(len(self.violations)))
        self._counting = self._count_limit()
        #: nothing but declared order and required names: what may follow can always be completed
        self.simple = not (self.violations or self._counting or self.dependent)
        self.names = Names(compiler, self.rules, self.violations, self._within, self.tracked, groups)
        self.live = Completion(compiler.solver, self._helpful, self.may_end)
        self._names_of: dict[int, list[str] | None] = {}
        self._violating: dict[int, list[str | None]] = {}
        self._known_ways: dict[tuple[Goal, frozenset[int], str | None, tuple[str, ...]], Ways] = {}

    # ------------------------------------------------------------ what the atoms say

    def _bound(self, low: int, high: int | None) -> None:
        self.low = max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)

    high: int | None

    def _hold(self, literal: Literal, required: dict[str, None]) -> None:
        node = literal.node
        rule = rule_of(self._goals, literal)
        if rule is not None:
            self.rules.append(rule)
            if node in self._goals.constants and self._declared:
                self._late.update(node.properties)
            else:
                self._declare(node.properties)
        for name in node.required:
            required[name] = None
        self._bound(node.min_properties, node.max_properties)
        if node.property_names is not None:
            self._within.append(self._goals.literal(node.property_names, literal.scope))
        for name, then in node.dependent_required.items():
            self.dependent[name] = (*self.dependent.get(name, ()), *then)

    def _violates_anyway(
        self, literal: Literal, groups: list[Literal], required: dict[str, None], absent: set[str]
    ) -> bool:
        """Whether what holds plainly contradicts a schema that must not hold."""
        held = [one for one in groups if one.positive]
        held.append(self._goals.negation(literal))
        return self._compiler.conflicts.impossible(held, [], set(required), absent)

    def _declare(self, names: Iterable[str]) -> None:
        known = {name for one in self._declared for name in one}
        fresh = [name for name in names if name not in known] if known else list(names)
        if fresh:
            self._declared.append(fresh)

    def _unevaluated(self, atom: Unevaluated) -> None:
        if atom.literal.positive:
            rule = unevaluated_rule(self._goals, atom)
            if rule is not None:
                self.rules.append(rule)
        else:
            self.violations.append(Violation(self._compiler, atom))

    def _track(self) -> None:
        """Which names are told apart, which of them are ordered, and which are remembered."""
        declared = [name for names in self._declared for name in names]
        if not (
            self.violations or self.dependent or self._absent or self._within or self._late or self._compiler.any_order
        ):
            # nothing but properties and required
            self.lists = self._declared
            self._place = place = {name: (at, n) for at, names in enumerate(self.lists) for n, name in enumerate(names)}
            named = dict.fromkeys(declared)
            for rule in self.rules:
                named.update(dict.fromkeys(rule.named))
            named.update(self.required)
            self.tracked = list(named)
            self.free = [] if len(named) == len(declared) else [name for name in named if name not in place]
            self.late: list[str] = []
            self._memory = frozenset(self.free)
            return
        tracked = dict.fromkeys(declared)
        tracked.update(self.required)
        tracked.update(dict.fromkeys(self._absent))
        for name, then in self.dependent.items():
            tracked.update(dict.fromkeys((name, *then)))
        for rule in self.rules:
            tracked.update(dict.fromkeys(rule.named))
        for violation in self.violations:
            if violation.rule is not None:
                tracked.update(dict.fromkeys(violation.rule.named))
            tracked.update(dict.fromkeys(violation.memory))
        if self.low > 1 or any(violation.high is not None for violation in self.violations):
            for literal in self._within:  # names that are counted and few: each of them is told apart, in any order
                names = self._compiler.languages.finite(self._compiler.string_of(literal), FEW_NAMES)
                tracked.update(dict.fromkeys(names or ()))
        self.tracked = list(tracked)
        absent = self._absent
        lists = [] if self._compiler.any_order else self._declared
        self.lists = [[name for name in names if name not in absent] for names in lists]
        ordered = {name: (at, place) for at, names in enumerate(self.lists) for place, name in enumerate(names)}
        self._place = ordered
        memory = set(self.dependent).union(*self.dependent.values()) if self.dependent else set()
        others = [name for name in self.tracked if name not in ordered and name not in absent]
        # a name that only an excluded value has is as undeclared as any other: what unique items exclude must not allow
        # anything that is not allowed without it
        free = {*(name for name in self.required if name not in self._late), *memory}
        for violation in self.violations:
            if not violation.constant:
                free.update(violation.memory)
                free.update(violation.rule.named if violation.rule is not None else ())
        self.late = [] if self._compiler.any_order else [name for name in others if name not in free]
        self.free = [name for name in others if name not in self.late]
        self._memory = frozenset(memory.union(others))

    def _count_limit(self) -> int:
        """Counts above this are all alike; 0 if counts do not matter."""
        low, high = self.low, self.high
        if low and low <= len(self.required):
            low = self.low = 0
        limit = max(low, 0 if high is None else high + 1)
        for violation in self.violations:
            limit = max(limit, violation.low, 0 if violation.high is None else violation.high + 1)
        return limit

    # ------------------------------------------------------------ states

    @property
    def start(self) -> State:
        return State((0,) * len(self.lists), _NOBODY, self._pending, 0)

    def possible(self) -> bool:
        """Whether some object satisfies the clause."""
        ask = self._compiler.solver.ask
        for name in self.required:
            if name in self._absent or not ask(self.names.goal(name)):
                return False
        if self.high is not None and self.high < max(self.low, len(self.required)):
            return False
        return self.simple or self.live(self.start)

    def needed(self, state: State) -> dict[str, None]:
        """Names that the object must have, given those it has."""
        if not self.dependent:
            return self.required
        wanted = dict(self.required)
        for name in state.used:
            wanted.update(dict.fromkeys(self.dependent.get(name, ())))
        return wanted

    def available(self, state: State, name: str) -> bool:
        """Whether the name can still come."""
        place = self._place.get(name)
        if place is not None:
            return place[1] >= state.at[place[0]]
        return name not in state.used and name not in self._absent

    def may_end(self, state: State) -> bool:
        if state.number < self.low or (self.high is not None and state.number > self.high):
            return False
        if any(self.available(state, name) for name in self.needed(state)):
            return False
        return all(self.violations[one].at_end(state.used, state.number) for one in state.pending)

    def keys(self, state: State) -> Iterator[Key]:
        """Every key that may come next and leaves the object completable."""
        for key in self._moves(state):
            if self.simple or self.live(key.after):
                yield key

    def _moves(self, state: State) -> Iterator[Key]:
        ask = self._compiler.solver.ask
        if self.high is not None and state.number >= self.high:
            return
        needed = self.needed(state)
        for which, names in enumerate(self.lists):
            for place in range(state.at[which], len(names)):
                name = names[place]
                goal = self.names.goal(name)
                if goal.known is True or ask(goal):
                    at = (*state.at[:which], place + 1, *state.at[which + 1 :])
                    yield from self._named(state, name, goal, at)
                if name in needed:
                    break
        for name in self.free:
            if name not in state.used and ask(self.names.goal(name)):
                yield from self._named(state, name, self.names.goal(name), state.at)
        if self.lists and any(name in self._place and self.available(state, name) for name in needed):
            return
        at = tuple(map(len, self.lists))
        for name in self.late:
            if name not in state.used and ask(self.names.goal(name)):
                yield from self._named(state, name, self.names.goal(name), at)
        for cell, (_, goal, matched) in enumerate(self.names.cells()):
            if ask(goal):
                yield from self._undeclared(state, cell, goal, matched, at)

    def _named(self, state: State, name: str, goal: Goal, at: tuple[int, ...]) -> Iterator[Key]:
        if self.simple:
            used = state.used | {name} if name in self._memory else state.used
            yield Key(name, -1, goal, State(at, used, state.pending, 0))
            return
        after = State(at, state.used | {name}, state.pending, self._counted(state))
        then = self.dependent.get(name, ())
        if not all(one in after.used or self.available(after, one) for one in then):
            return
        for way, pending in self._ways(goal, state.pending, name, self.names.matched(name)):
            yield Key(name, -1, way, self._trim(after._replace(pending=pending)))

    def _counted(self, state: State) -> int:
        return min(state.number + 1, self._counting)

    def _trim(self, state: State) -> State:
        """Without what cannot matter any more, so that equal futures are one state."""
        memory = self._memory.union(*(self.violations[one].memory for one in state.pending))
        return state._replace(used=state.used & memory)

    def _undeclared(
        self, state: State, cell: int, goal: Goal, matched: tuple[str, ...], at: tuple[int, ...]
    ) -> Iterator[Key]:
        if self.simple:
            yield Key(None, cell, goal, State(at, state.used, state.pending, 0))
            return
        count = self._counted(state)
        # a name that was counted, or that violated something, must not come again: it would count or hold after all
        remember = self.low > 1 or any(one.high is not None for one in self.violations)
        for way, pending in self._ways(goal, state.pending, None, matched):
            after = self._trim(State(at, state.used, pending, count, state.banned))
            if remember or pending != state.pending:
                names = self._few(cell)
                if names is None:
                    yield Key(None, cell, way, after, True)
                else:
                    fresh = next((one for one in names if one not in state.banned), None)
                    if fresh is not None:
                        # which one of them it is makes no difference to what can follow
                        yield Key(None, cell, way, after._replace(banned=after.banned | {fresh}), True)
            else:
                yield Key(None, cell, way, after)

    def _few(self, cell: int) -> list[str] | None:
        """The names of a cell, if they are so few that a minimum count may not be reached with them."""
        if cell not in self._names_of:
            self._names_of[cell] = self._compiler.languages.finite(
                self.names.cells()[cell].keys, max(self._counting, 1)
            )
        return self._names_of[cell]

    def language(self, cell: int, state: State) -> Language:
        """The undeclared keys of a cell that may come here."""
        keys = self.names.cells()[cell].keys
        if not state.banned:
            return keys
        languages = self._compiler.languages
        return languages.intersect(keys, languages.complement(languages.literals(sorted(state.banned))))

    def _ways(self, goal: Goal, pending: frozenset[int], name: str | None, matched: tuple[str, ...]) -> Ways:
        """(what the value must satisfy, what is pending then): each pending violation happens here, or need not."""
        if not pending:
            return [(goal, pending)]
        key = (goal, pending, name, matched)
        found = self._known_ways.get(key)
        if found is None:
            solver = self._compiler.solver
            outer = solver.begin()
            try:
                found = self._new_ways(goal, pending, name, matched)
            finally:
                final = solver.end(outer)
            if final:
                self._known_ways[key] = found
        return found

    def _new_ways(self, goal: Goal, pending: frozenset[int], name: str | None, matched: tuple[str, ...]) -> Ways:
        solver, goals = self._compiler.solver, self._goals
        ways = [(goal, pending)]
        touched: list[tuple[int, list[Literal]]] = []
        for at in sorted(pending):
            violation = self.violations[at]
            if not self.names.is_name(at, name, matched):
                ways = [(way, left - {at}) for way, left in ways]
                continue
            literals = violation.rule.literals(name, matched) if violation.rule is not None else []
            if not literals:
                continue
            if solver.surely_none(goals.goal((*goal.literals, *literals))):
                ways = [(way, left - {at}) for way, left in ways]
            else:
                touched.append((at, literals))
        for at, literals in touched:
            made: list[tuple[Goal, frozenset[int]]] = []
            for way, left in ways:
                # one alone: the value may also hold it; several: it is said of each, since that leaves fewer cases
                if len(touched) == 1 and len(pending) <= FEW_PENDING:
                    made.append((way, left))
                else:
                    made.append((goals.goal((*way.literals, *literals)), left))
                for literal in literals:
                    made.append((goals.goal((*way.literals, goals.negation(literal))), left - {at}))
            ways = [way for way in made if solver.ask(way[0])]
            if len(ways) > MAX_WAYS:
                self._compiler.too_many("too many of the schemas that must not hold speak of one key")
        return ways

    def _hopeful(self, state: State) -> bool:
        """Whether each pending violation, taken alone, can still happen. Saves the search most dead ends."""
        return all(self._may_violate(one, state) for one in state.pending)

    def _may_violate(self, at: int, state: State) -> bool:
        violation = self.violations[at]
        if violation.counts or violation.dependent or violation.names is not None:
            return True
        if any(name not in state.used and name not in self.required for name in violation.required):
            return True
        return any(name is None or self.available(state, name) for name in self._violators(at))

    def _violators(self, at: int) -> list[str | None]:
        """Names whose value can violate it; None stands for undeclared keys."""
        found = self._violating.get(at)
        if found is None:
            rule = self.violations[at].rule
            found = []
            if rule is not None:
                ask, goals = self._compiler.solver.ask, self._goals
                keys = [(name, self.names.goal(name), self.names.matched(name)) for name in self.tracked]
                for name, goal, matched in [*keys, *((None, goal, matched) for _, goal, matched in self.names.cells())]:
                    literals = rule.literals(name, matched)
                    if any(ask(goals.goal((*goal.literals, goals.negation(literal)))) for literal in literals):
                        found.append(name)
            if self._compiler.solver.definite:
                self._violating[at] = found
        return found

    def _helpful(self, state: State) -> Iterator[State]:
        """Where the moves lead that can bring the end nearer. A key that is of no use is left out."""
        if state.pending and not self._hopeful(state):
            return
        needed = self.needed(state)
        counting = state.number < self.low or any(state.number < self._limit(one) for one in state.pending)
        triggers = {name for one in state.pending for name in self.violations[one].dependent}
        for key in self._moves(state):
            self._compiler.solver.work()
            if counting or key.after.pending != state.pending or key.name in needed or key.name in triggers:
                yield key.after

    def _limit(self, violation: int) -> int:
        high = self.violations[violation].high
        return 0 if high is None else high + 1


def spelled(name: str) -> bytes:
    """A key as it is written, in canonical JSON."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")
