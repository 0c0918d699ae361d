"""Objects of one clause: which keys may come next, what their values must satisfy, when the object may end.

::

    {"a": ..., "b": ...}     state = (next place in each list of declared names, names used, negations pending, count)

A declared name never comes twice (the state sees to it), nor spelled with escapes as an undeclared key (undeclared
keys are a language without the declared names). Their order is in :mod:`.order`.

Undeclared keys may repeat where that changes nothing. Where a later value could undo what an earlier one was needed
for (a negation it violated, a minimum count), the name is remembered (``Key.remember``) and banned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, NamedTuple

from ..regular.language import Language
from .atoms import Clause, Count, Has
from .completion import Completion
from .goals import Goal, Literal
from .keys import KeyRule, rule_of, unevaluated_rule
from .names import Matched, Names
from .node import Node
from .order import Order
from .unevaluated import Unevaluated
from .violations import FEW_PENDING, Violating, Violation

if TYPE_CHECKING:
    from .compile import Compiler

#: names that propertyNames allows, told apart where they are counted, at most
FEW_NAMES = 32
_NOBODY: frozenset[str] = frozenset()


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
        self.low = 0
        self.high: int | None = None
        self.dependent: dict[str, tuple[str, ...]] = {}
        self._within: list[Literal] = []
        self._declared: list[list[str]] = []
        #: names of a value that is asked for beside other schemas
        self._late: set[str] = set()
        named: list[Has] = []
        groups: list[Literal] = []
        for atom in clause:
            if isinstance(atom, Literal):
                groups.append(atom)
            elif isinstance(atom, Has):
                named.append(atom)
            elif isinstance(atom, Count):
                self._bound(atom.low, atom.high)
            elif isinstance(atom, Unevaluated):
                self._unevaluated(atom)
        if len(groups) > 1:
            groups.sort(key=lambda one: one.index)
        named.sort()
        required = {atom.name: None for atom in named if atom.there}
        absent = {atom.name for atom in named if not atom.there}
        held = [literal for literal in groups if literal.positive]
        for literal in groups:
            if literal.positive:
                self._hold(literal, required)
            elif not self._violates_anyway(literal, held, required, absent):
                self.violations.append(Violation(compiler, literal))
        self.required = required
        self._absent = absent
        self._pending = frozenset(range(len(self.violations)))
        self.order = Order(
            self._declared,
            self._late,
            required,
            absent,
            self.dependent,
            self.rules,
            self.violations,
            self._counted_names(),
            compiler.any_order,
        )
        if self.low <= len(required):
            self.low = 0
        #: so many keys have to have different names
        self._distinct = self.low
        #: counts above this are all alike; 0 if counts do not matter
        self._counting = self.low if self.high is None else max(self.low, self.high + 1)
        for violation in self.violations:
            self._distinct = max(self._distinct, 0 if violation.high is None else violation.high + 1)
            self._counting = max(self._counting, self._distinct, violation.low)
        #: nothing but declared order and required names: what may follow can always be completed
        self.simple = not (self.violations or self._counting or self.dependent)
        self.names = Names(compiler, self.rules, self.violations, self._within, self.order.tracked, groups)
        self._names_of: dict[int, list[str] | None] = {}

    # a simple clause needs neither of these

    @cached_property
    def live(self) -> Completion[State]:
        return Completion(self._compiler.solver, self._helpful, self.may_end)

    @cached_property
    def _violating(self) -> Violating:
        return Violating(self._compiler, self.violations, self.names)

    # ------------------------------------------------------------ what the atoms say

    def _bound(self, low: int, high: int | None) -> None:
        self.low = max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)

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
        self, literal: Literal, held: list[Literal], required: dict[str, None], absent: set[str]
    ) -> bool:
        """Whether what holds plainly contradicts a schema that must not hold."""
        both = [*held, self._goals.negation(literal)]
        return self._compiler.conflicts.impossible(both, [], set(required), absent)

    def _unevaluated(self, atom: Unevaluated) -> None:
        if atom.literal.positive:
            rule = unevaluated_rule(self._goals, atom)
            if rule is not None:
                self.rules.append(rule)
        else:
            self.violations.append(Violation(self._compiler, atom))

    def _declare(self, names: dict[str, Node]) -> None:
        fresh = list(names)
        if self._declared:
            known = {name for one in self._declared for name in one}
            fresh = [name for name in names if name not in known]
        if fresh:
            self._declared.append(fresh)

    def _counted_names(self) -> list[str]:
        """Names that are counted and few: each of them is told apart, in any order."""
        if not self._within or (self.low <= 1 and all(violation.high is None for violation in self.violations)):
            return []
        finite, string_of = self._compiler.languages.finite, self._compiler.string_of
        return [name for literal in self._within for name in finite(string_of(literal), FEW_NAMES) or ()]

    # ------------------------------------------------------------ states

    @property
    def start(self) -> State:
        return State(self.order.begin, _NOBODY, self._pending, 0)

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
        return self.order.available(name, state.at, state.used)

    def may_end(self, state: State) -> bool:
        if state.number < self.low or (self.high is not None and state.number > self.high):
            return False
        if any(self.available(state, name) for name in self.needed(state)):
            return False
        return all(self.violations[one].at_end(state.used, state.number) for one in state.pending)

    def keys(self, state: State) -> Iterable[Key]:
        """Every key that may come next and leaves the object completable."""
        return self._completable(self._moves(state))

    def _completable(self, keys: Iterable[Key]) -> Iterable[Key]:
        return keys if self.simple else (key for key in keys if self.live(key.after))

    def _moves(self, state: State) -> Iterator[Key]:
        for which in range(len(state.at)):
            here: State | None = state
            while here is not None:
                yield from self._next_listed(here, which)
                here = self.without_next(here, which)
        yield from self._free(state)
        ended = self.past_lists(state)
        if ended is not None:
            yield from self._last(ended)

    # Keys come from three places. Of a list, what may come is its next name, or, where that need not come, whatever may
    # come without it: said so, the keys of a state are few even where a thousand names are declared.

    def next_listed(self, state: State, which: int) -> Iterable[Key]:
        """The next name of one list, in every way in which it may come."""
        return self._completable(self._next_listed(state, which))

    def without_next(self, state: State, which: int) -> State | None:
        """The state with that name passed over; None if it is needed, or the list is at its end."""
        names, place = self.order.lists[which], state.at[which]
        if place >= len(names) or names[place] in self.needed(state):
            return None
        return State(_moved(state.at, which), state.used, state.pending, state.number, state.banned)

    def free(self, state: State) -> Iterable[Key]:
        """Names without a place."""
        return self._completable(self._free(state))

    def past_lists(self, state: State) -> State | None:
        """The state behind all lists; None if some name of them is still needed."""
        order = self.order
        if order.lists and any(order.before_the_end(name, state.at) for name in self.needed(state)):
            return None
        return self._settled(State(order.end, state.used, state.pending, state.number, state.banned))

    def last(self, state: State) -> Iterable[Key]:
        """Names and undeclared keys that come behind all lists."""
        return self._completable(self._last(state))

    def _next_listed(self, state: State, which: int) -> Iterable[Key]:
        names, place = self.order.lists[which], state.at[which]
        return self._named(state, names[place], _moved(state.at, which)) if place < len(names) else ()

    def _free(self, state: State) -> Iterator[Key]:
        for name in self.order.free:
            if name not in state.used:
                yield from self._named(state, name, state.at)

    def _last(self, state: State) -> Iterator[Key]:
        for name in self.order.late:
            if name not in state.used:
                yield from self._named(state, name, state.at)
        yield from self._cells(state)

    def _cells(self, state: State) -> Iterator[Key]:
        if self._full(state):
            return
        ask = self._compiler.solver.ask
        for cell, (_, goal, matched) in enumerate(self.names.cells()):
            if ask(goal):
                yield from self._undeclared(state, cell, goal, matched)

    def _full(self, state: State) -> bool:
        return self.high is not None and state.number >= self.high

    def _named(self, state: State, name: str, at: tuple[int, ...]) -> Iterable[Key]:
        goal = self.names.goal(name)
        if self._full(state) or not (goal.known is True or self._compiler.solver.ask(goal)):
            return ()
        if self.simple:
            used = state.used | {name} if name in self.order.memory else state.used
            return (Key(name, -1, goal, State(at, used, state.pending, 0)),)
        return self._ways_of(state, name, goal, at)

    def _ways_of(self, state: State, name: str, goal: Goal, at: tuple[int, ...]) -> Iterator[Key]:
        after = self._settled(State(at, state.used | {name}, state.pending, self._counted(state), state.banned))
        then = self.dependent.get(name, ())
        if not all(one in after.used or self.available(after, one) for one in then):
            return
        due = self._due(after)
        for way, pending in self._violating.ways(goal, after.pending, name, self.names.matched(name), due):
            yield Key(name, -1, way, self._trim(after._replace(pending=pending)))

    def _counted(self, state: State) -> int:
        return min(state.number + 1, self._counting)

    def _settled(self, state: State) -> State:
        """Without the violations that are certain, since a name that they require can no longer come."""
        if not state.pending:
            return state
        pending = frozenset(one for one in state.pending if not self._lacks(state, self.violations[one].required))
        return state if len(pending) == len(state.pending) else state._replace(pending=pending)

    def _lacks(self, state: State, names: tuple[str, ...]) -> bool:
        return any(name not in state.used and not self.available(state, name) for name in names)

    def _due(self, after: State) -> frozenset[int]:
        """The violations that no later key can bring. Looked for where they are many: each halves the cases."""
        if len(after.pending) <= FEW_PENDING:
            return frozenset()
        return frozenset(one for one in after.pending if not self._may_violate(one, after))

    def _trim(self, state: State) -> State:
        """Without what cannot matter any more, so that equal futures are one state."""
        memory = self.order.memory.union(*(self.violations[one].memory for one in state.pending))
        return state._replace(used=state.used & memory)

    def _undeclared(self, state: State, cell: int, goal: Goal, matched: Matched) -> Iterator[Key]:
        if self.simple:
            yield Key(None, cell, goal, state)
            return
        count = self._counted(state)
        for way, pending in self._violating.ways(goal, state.pending, None, matched):
            # a name that was counted, or that violated something, must not come again: it would count or hold after all
            remember = count < self._distinct or pending != state.pending
            banned = state.banned if remember or self.violations else _NOBODY
            if remember or state.banned:
                names = self._few(cell)
                if names is not None:
                    fresh = next((one for one in names if one not in state.banned), None)
                    if fresh is None:
                        continue
                    if remember:  # which one of them it is makes no difference to what can follow
                        banned |= {fresh}
            yield Key(None, cell, way, self._trim(State(state.at, state.used, pending, count, banned)), remember)

    def _few(self, cell: int) -> list[str] | None:
        """The names of a cell, if they are so few that all of them may be remembered before the object is whole."""
        if cell not in self._names_of:
            most = self._counting + len(self.violations)
            self._names_of[cell] = self._compiler.languages.finite(self.names.cells()[cell].keys, most)
        return self._names_of[cell]

    def language(self, cell: int, state: State) -> Language:
        """The undeclared keys of a cell that may come here."""
        keys = self.names.cells()[cell].keys
        if not state.banned:
            return keys
        languages = self._compiler.languages
        return languages.intersect(keys, languages.complement(languages.literals(sorted(state.banned))))

    def _hopeful(self, state: State) -> bool:
        """Whether each pending violation, taken alone, can still happen. Saves the search most dead ends."""
        return all(self._may_violate(one, state) for one in state.pending)

    def _may_violate(self, at: int, state: State) -> bool:
        violation = self.violations[at]
        if violation.counts or violation.dependent or violation.names is not None:
            return True
        if any(name not in state.used and name not in self.required for name in violation.required):
            return True
        return self._violating.can_come(at, lambda name: self.available(state, name))

    def _helpful(self, state: State) -> Iterator[State]:
        """Where the moves lead that can bring the end nearer. A key that is of no use is left out."""
        if state.pending and not self._hopeful(state):
            return
        keys = self._towards(state)
        if keys is not None:
            for key in keys:
                self._compiler.solver.work()
                yield key.after
            return
        needed = self.needed(state)
        counting = state.number < self.low or any(state.number < self._limit(one) for one in state.pending)
        triggers = {name for one in state.pending for name in self.violations[one].dependent}
        for key in self._moves(state):
            self._compiler.solver.work()
            if counting or key.after.pending != state.pending or key.name in needed or key.name in triggers:
                yield key.after

    def _towards(self, state: State) -> Iterable[Key] | None:
        """The ways to something that is missing at the end, where all of them are keys that may come anywhere. One of
        them comes sooner or later, so it may as well come now: else n conditions are 2^n orders and subsets of keys."""
        for name in self.needed(state):
            if self._anywhere(name) and self.available(state, name):
                return self._named(state, name, state.at)
        for at in sorted(state.pending):
            violation = self.violations[at]
            if violation.high is None and not violation.at_end(state.used, state.number):
                names = [name for name in self._violating.concerned(at) if name is None or self.available(state, name)]
                if all(map(self._anywhere, names)):
                    return self._violated(state, at, names)
        return None

    def _anywhere(self, name: str | None) -> bool:
        return not self.order.lists or name in self.order.anywhere

    def _violated(self, state: State, at: int, names: list[str | None]) -> Iterator[Key]:
        """The keys of these names (None: undeclared ones) that violate it, or that may in the end."""
        triggers = self.violations[at].dependent
        for name in names:
            keys = self._cells(self._settled(state)) if name is None else self._named(state, name, state.at)
            for key in keys:
                if at not in key.after.pending or name in triggers:
                    yield key

    def _limit(self, violation: int) -> int:
        high = self.violations[violation].high
        return 0 if high is None else high + 1


def _moved(at: tuple[int, ...], which: int) -> tuple[int, ...]:
    """The places with that of one list moved by one."""
    return (at[0] + 1,) if len(at) == 1 else (*at[:which], at[which] + 1, *at[which + 1 :])


def spelled(name: str) -> bytes:
    """A key as it is written, in canonical JSON."""
    return encode_basestring(name).encode("utf-8", "surrogatepass")  # json.dumps makes an encoder for each
