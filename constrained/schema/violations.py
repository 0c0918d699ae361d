"""Object keywords that must be violated in some way, and the ways in which that can happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import singles
from .goals import Goal, Literal
from .keys import rule_of, unevaluated_rule
from .unevaluated import Unevaluated

if TYPE_CHECKING:
    from .compile import Compiler
    from .names import Matched, Names

#: ways in which one key can violate pending negations, at most
MAX_WAYS = 256
#: pending violations with which a text is read in as many ways as they can be taken; past it, one way each
FEW_PENDING = 4
#: (what the value must satisfy, what is still to be violated then), one by one
Ways = list[tuple[Goal, frozenset[int]]]
_NOBODY: frozenset[str] = frozenset()


class Violation:
    """A group of object keywords (or an unevaluatedProperties) that must be violated in some way."""

    def __init__(self, compiler: Compiler, atom: Literal | Unevaluated) -> None:
        self.low, self.high = 0, None
        self.required: tuple[str, ...] = ()
        self.dependent: dict[str, tuple[str, ...]] = {}
        self.names: Literal | None = None
        #: it says no more than that the object is not a certain value
        self.constant = False
        if isinstance(atom, Unevaluated):
            self.rule = unevaluated_rule(compiler.goals, atom)
            self._depending: list[str] = []
            self.memory: frozenset[str] = _NOBODY
            return
        node = atom.node
        self.constant = node in compiler.goals.constants
        self.rule = rule_of(compiler.goals, atom)
        self.low, self.high = node.min_properties, node.max_properties
        self.required = node.required
        self.dependent = node.dependent_required
        if node.property_names is not None:
            self.names = compiler.goals.literal(node.property_names, atom.scope)
        self._depending = [name for one, then in self.dependent.items() for name in (one, *then)]
        #: names whose presence decides
        self.memory = frozenset((*self.required, *self._depending))

    @property
    def named(self) -> list[str]:
        """Names whose value or presence decides."""
        return [*(self.rule.named if self.rule is not None else ()), *self.required, *self._depending]

    @property
    def counts(self) -> bool:
        return self.low > 0 or self.high is not None

    def at_end(self, used: frozenset[str], count: int) -> bool:
        """Violated by an object that ends with these names."""
        return (
            any(name not in used for name in self.required)
            or count < self.low
            or (self.high is not None and count > self.high)
            or any(name in used and not used.issuperset(then) for name, then in self.dependent.items())
        )


class Violating:
    """How one key after another violates what a clause says must not hold. ``pending``: what is not violated yet, as
    places in ``violations``."""

    def __init__(self, compiler: Compiler, violations: Sequence[Violation], names: Names) -> None:
        self._compiler = compiler
        self._goals = compiler.goals
        self._violations = violations
        self._names = names
        #: by violation, keys whose values can violate it, as far as that was asked; by violation and key, whether
        self._certain: list[list[str | None]] = [[] for _ in violations]
        self._violators: dict[tuple[int, int], bool] = {}
        self._concerned: dict[int, list[str | None]] = {}
        self._known: dict[tuple[Goal, frozenset[int], str | None, Matched, frozenset[int]], Ways] = {}

    def ways(
        self,
        goal: Goal,
        pending: frozenset[int],
        name: str | None,
        matched: Matched,
        due: frozenset[int] = frozenset(),
    ) -> Ways:
        """The cases of a key's value: each pending violation happens here, or need not. ``name``: None for a cell.
        ``due``: those that cannot happen later."""
        if not pending:
            return [(goal, pending)]
        key = (goal, pending, name, matched, due)
        found = self._known.get(key)
        if found is None:
            solver = self._compiler.solver
            outer = solver.begin()
            try:
                found = self._new_ways(goal, pending, name, matched, due)
            finally:
                final = solver.end(outer)
            if final:
                self._known[key] = found
        return found

    def _new_ways(
        self, goal: Goal, pending: frozenset[int], name: str | None, matched: Matched, due: frozenset[int]
    ) -> Ways:
        solver, goals = self._compiler.solver, self._goals
        ways = [(goal, pending)]
        touched: list[tuple[int, list[Literal]]] = []
        for at in sorted(pending):
            violation = self._violations[at]
            if not self._names.is_name(at, name, matched):
                ways = [(way, left - {at}) for way, left in ways]
                continue
            literals = violation.rule.literals(name, matched) if violation.rule is not None else []
            if not literals:
                continue
            if solver.surely_none(goals.goal((*goal.literals, *literals))):
                ways = [(way, left - {at}) for way, left in ways]
            else:
                touched.append((at, literals))
        alone = len(touched) == 1
        single = {
            at: literals[0] for at, literals in touched if len(literals) == 1 and literals[0].node in goals.singles
        }
        if len(single) > 1:
            found = [case for way, left in ways for case in singles.cases(goals, way, left, single, due)]
            ways = [way for way in found if solver.ask(way[0])]
            touched = [(at, literals) for at, literals in touched if at not in single]
        for at, literals in touched:
            made: list[tuple[Goal, frozenset[int]]] = []
            for way, left in ways:
                # one alone: the value may also hold it; several: it is said of each, since that leaves fewer cases
                if alone and len(pending) <= FEW_PENDING:
                    made.append((way, left))
                elif at not in due:
                    made.append((goals.goal((*way.literals, *literals)), left))
                for literal in literals:
                    made.append((goals.goal((*way.literals, goals.negation(literal))), left - {at}))
            ways = [way for way in made if solver.ask(way[0])]
            if len(ways) > MAX_WAYS:
                self._compiler.too_many("too many of the schemas that must not hold speak of one key")
        return ways

    def concerned(self, at: int) -> list[str | None]:
        """The names of which it says something; None stands for undeclared keys."""
        found = self._concerned.get(at)
        if found is None:
            violation = self._violations[at]
            rule, names = violation.rule, self._names
            found = self._concerned[at] = [
                name
                for name in names.tracked
                if name in violation.memory
                or violation.names is not None
                or (rule is not None and rule.schemas(name, names.matched(name)))
            ]
            if violation.names is not None or (rule is not None and (rule.patterns or rule.rest is not None)):
                found.append(None)
        return found

    def can_come(self, at: int, available: Callable[[str], bool]) -> bool:
        """Whether some key that can still come has a value that violates it. (An undeclared one always can come.)"""
        rule = self._violations[at].rule
        if rule is None:
            return False
        certain = self._certain[at]
        for name in certain:
            if name is None or available(name):
                return True
        for place, (name, goal, matched) in enumerate(self._keys()):
            if (name is None or available(name)) and self._can(at, place, goal, rule.literals(name, matched)):
                certain.append(name)
                return True
        return False

    def _keys(self) -> Iterator[tuple[str | None, Goal, Matched]]:
        names = self._names
        for name in names.tracked:
            yield name, names.goal(name), names.matched(name)
        for _, goal, matched in names.cells():
            yield None, goal, matched

    def _can(self, at: int, place: int, goal: Goal, literals: list[Literal]) -> bool:
        known = self._violators.get((at, place))
        if known is None:
            solver, goals = self._compiler.solver, self._goals
            known = any(solver.ask(goals.goal((*goal.literals, goals.negation(literal)))) for literal in literals)
            if known or solver.definite:
                self._violators[at, place] = known
        return known
