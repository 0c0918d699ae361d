"""unevaluatedProperties and unevaluatedItems: which schemas have evaluated a key or an item depends on what holds.

So beside these keywords every anyOf, oneOf and if is split into *total* cases: each branch is said to hold or not to
hold, and a case knows the schemas whose keywords have evaluated (``evaluators``). Only branches that evaluate
anything are split.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from .formula import TooMany
from .goals import Goals, Literal

if TYPE_CHECKING:
    from .formula import Formula

    Clauses = tuple[frozenset[Hashable], ...]

MAX_CASES = 2_000
#: how far a search for evaluating keywords goes before it says "perhaps"
MAX_SEARCH = 200


class Evaluator(NamedTuple):
    """A schema that holds, with its own keywords; ``everything``: its unevaluated* keyword has evaluated the rest."""

    literal: Literal
    everything: bool


class Unevaluated(NamedTuple):
    """What no evaluator has evaluated satisfies this literal; with a negative literal: something of it violates."""

    literal: Literal
    evaluators: frozenset[Evaluator]


class Case(NamedTuple):
    atoms: frozenset[Hashable]
    evaluators: frozenset[Evaluator]


_PLAIN: frozenset[Evaluator] = frozenset()
_ALWAYS = [Case(frozenset(), _PLAIN)]


def total(formula: Formula[Clauses], goals: Goals, literal: Literal, itself: bool = False) -> list[Case]:
    """The ways in which a positive literal can hold. ``itself``: leave its own unevaluated* keyword out."""
    return _Total(formula, goals).cases(literal, itself)


class _Total:
    def __init__(self, formula: Formula[Clauses], goals: Goals) -> None:
        self._formula = formula
        self._goals = goals
        self._object = formula.kind == "object"
        self._open: set[Literal] = set()

    def cases(self, literal: Literal, itself: bool = False) -> list[Case]:
        node = literal.node
        if node.always is not None:
            return _ALWAYS if node.always else []
        if node.types is not None and self._formula.kind not in node.types:
            return []
        if literal in self._open:
            return []
        if not itself and not self.evaluates(literal):
            return self.fixed(literal)
        self._open.add(literal)
        try:
            found = self._cases(literal)
        finally:
            self._open.discard(literal)
        child = node.unevaluated_properties if self._object else node.unevaluated_items
        if child is None or itself:
            return found
        wanted = self._goals.literal(child, literal.scope)
        marked = frozenset((Evaluator(literal, True),))
        return [Case(one.atoms | {Unevaluated(wanted, one.evaluators)}, one.evaluators | marked) for one in found]

    def fixed(self, literal: Literal) -> list[Case]:
        """Its clauses, which evaluate nothing."""
        return [Case(clause, _PLAIN) for clause in self._formula(literal)]

    def _cases(self, literal: Literal) -> list[Case]:
        node, algebra = literal.node, self._formula.algebra
        found = _ALWAYS
        if node.values is not None:
            found = self._product(found, [Case(clause, _PLAIN) for clause in algebra.values(literal)])
        own = algebra.own(literal)
        marked = frozenset((Evaluator(literal, False),)) if self._marks(literal) else _PLAIN
        if own is not None:
            found = self._product(found, [Case(clause, marked) for clause in own])
        for part in self._in_place(literal):
            found = self._product(found, part)
        return found

    def _in_place(self, literal: Literal) -> Iterable[list[Case]]:
        node, make, scope = literal.node, self._goals.literal, literal.scope
        if node.ref is not None:
            yield self.cases(make(node.ref(), scope))
        if node.dynamic_ref is not None:
            yield self.cases(make(node.dynamic_ref(scope), scope))
        for child in node.all_of:
            yield self.cases(make(child, scope))
        if node.any_of is not None:
            yield self._some([make(child, scope) for child in node.any_of])
        if node.one_of is not None:
            yield self._one([make(child, scope) for child in node.one_of])
        if node.not_ is not None:
            yield self.fixed(make(node.not_, scope, False))
        if node.if_ is not None:
            holds = self.cases(make(node.if_, scope))
            fails = self.fixed(make(node.if_, scope, False))
            if node.then is not None:
                holds = self._product(holds, self.cases(make(node.then, scope)))
            if node.else_ is not None:
                fails = self._product(fails, self.cases(make(node.else_, scope)))
            yield holds + fails
        if self._object:
            for name, child in node.dependent_schemas.items():
                there = [Case(clause, _PLAIN) for clause in self._formula.algebra.present(name, True)]
                absent = [Case(clause, _PLAIN) for clause in self._formula.algebra.present(name, False)]
                yield self._product(there, self.cases(make(child, scope))) + absent

    def _some(self, branches: list[Literal]) -> list[Case]:
        """At least one holds; those that evaluate are split into holding and not holding."""
        split = [branch for branch in branches if self.evaluates(branch)]
        plain = [branch for branch in branches if branch not in split]
        held: list[Case] = []  # some branch held so far
        none = _ALWAYS
        for branch in split:
            yes, no = self.cases(branch), self.fixed(self._goals.negation(branch))
            held = self._product(held, yes + no) + self._product(none, yes)
            none = self._product(none, no)
        if plain:
            algebra = self._formula.algebra
            some = algebra.join([self._formula(branch) for branch in plain])
            return held + self._product(none, [Case(clause, _PLAIN) for clause in some])
        return held

    def _one(self, branches: list[Literal]) -> list[Case]:
        found = list[Case]()
        for branch, overlaps in zip(branches, self._formula.algebra.overlaps(branches), strict=True):
            ways = self.cases(branch)
            for other in overlaps:
                ways = self._product(ways, self.fixed(self._goals.negation(branches[other])))
            found.extend(ways)
        return found

    def _product(self, left: list[Case], right: list[Case]) -> list[Case]:
        if right is _ALWAYS:
            return left
        if left is _ALWAYS:
            return right
        made: dict[Case, None] = {}
        for a in left:
            for b in right:
                for atoms in self._formula.algebra.meet([(a.atoms,), (b.atoms,)]):
                    made[Case(atoms, a.evaluators | b.evaluators)] = None
                if len(made) > MAX_CASES:
                    raise TooMany(f"the branches beside unevaluated* make more than {MAX_CASES:,} cases")
        return list(made)

    def _marks(self, literal: Literal) -> bool:
        node = literal.node
        if self._object:
            return bool(node.properties) or bool(node.pattern_properties) or node.additional_properties is not None
        return (
            bool(node.prefix_items) or node.items is not None or (node.contains is not None and node.contains_evaluates)
        )

    def evaluates(self, literal: Literal) -> bool:
        """Whether it, or a schema applied in place in it, can evaluate anything."""
        seen: set[Literal] = set()
        queue = [literal]
        while queue:
            at = queue.pop()
            if at in seen or at.node.always is not None:
                continue
            seen.add(at)
            if self._marks(at) or len(seen) > MAX_SEARCH:
                return True
            node = at.node
            if (node.unevaluated_properties if self._object else node.unevaluated_items) is not None:
                return True
            inner = [*node.all_of, *(node.any_of or ()), *(node.one_of or ()), *node.dependent_schemas.values()]
            inner += [one for one in (node.if_, node.then, node.else_) if one is not None]
            if node.ref is not None:
                inner.append(node.ref())
            if node.dynamic_ref is not None:
                inner.append(node.dynamic_ref(at.scope))
            queue.extend(self._goals.literal(child, at.scope) for child in inner)
        return False
