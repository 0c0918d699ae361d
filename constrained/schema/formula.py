"""A schema as a formula over one JSON type, evaluated in the algebra of that type.

::

    allOf, siblings -> meet      anyOf -> join      not -> the other polarity      oneOf -> exactly one
    if/then/else    -> (if and then) or (not if and else)                          $ref -> its target

The recursion is the same for every type; only what the leaves are differs: sets of constants for null and boolean,
regular languages for number and string (:mod:`.scalars`), lists of clauses for array and object (:mod:`.clauses`).
Negation is pushed to the leaves, since what is *written* of a truth may be less than all of it.

What a schema requires may be what tells the branches of a oneOf in it apart. So branches are evaluated knowing the
names that the object surely has (``there``), and what is found so is kept apart from what holds without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from .errors import SchemaError
from .goals import Goals, Literal
from .in_place import applies_in_place, beside, branches, conjuncts
from .node import Node

T = TypeVar("T")


class TooMany(Exception):
    """An algebra's element grew past its bound."""


#: schemas inside schemas that speak of one value: beyond this a named error, well before Python's own limit
MAX_NESTED = 100


_NOBODY: frozenset[str] = frozenset()


class Algebra(Protocol[T]):
    """What a type's leaves are and how they combine."""

    kind: str
    top: T
    bottom: T

    def meet(self, parts: list[T]) -> T: ...

    def join(self, parts: list[T]) -> T: ...

    def own(self, literal: Literal) -> T | None:
        """The node's own keywords for this type, in the literal's polarity; None if it has none."""

    def values(self, literal: Literal) -> T:
        """enum and const."""

    def present(self, name: str, there: bool) -> T:
        """An object that has this key, or has it not."""

    def unevaluated(self, literal: Literal, rest: Callable[[Literal], T]) -> T:
        """A node with unevaluatedItems or unevaluatedProperties; ``rest`` evaluates it without them."""

    def overlaps(self, branches: list[Literal]) -> list[list[int]]:
        """For each branch of a oneOf, the others that may hold together with it: it needs "and not the other" for
        these alone."""


def all_others(branches: list[Literal]) -> list[list[int]]:
    """:meth:`Algebra.overlaps` where nothing tells branches apart."""
    return [[other for other in range(len(branches)) if other != at] for at in range(len(branches))]


def _all_have(name: str, several: list[Literal]) -> bool:
    """Whether all schemas of a oneOf speak of the key that OpenAPI's discriminator names."""
    return all(
        any(name in part.properties for part in beside(one.node, conjuncts))
        for one in several
        if one.node.types is None or "object" in one.node.types
    )


class Formula(Generic[T]):
    """Evaluates literals in one algebra, with a memo. A schema that needs itself, in place, holds for no value."""

    def __init__(self, goals: Goals, algebra: Algebra[T]) -> None:
        self._goals = goals
        self.algebra = algebra
        self.kind = algebra.kind
        #: literals being evaluated, and those of them that were met again: what is being found leans on them
        self._open: set[Literal] = set()
        self._met: set[Literal] = set()
        #: values that lean on open literals, for as long as these are open
        self._leaning: dict[tuple[Literal, Hashable], tuple[T, frozenset[Literal]]] = {}
        #: names that the object surely has, as schemas around the literal being evaluated say
        self.there: frozenset[str] = _NOBODY
        self._chosen: dict[Node, bool] = {}

    def __call__(self, literal: Literal) -> T:
        there = self.there if self.there and self._chooses(literal.node) else _NOBODY
        key = (self.kind, there) if there else self.kind
        found: T | None = literal.memo.get(key)
        if found is not None:
            return found
        if (leaning := self._leaning.get((literal, key))) is not None:
            self._met |= leaning[1]
            return leaning[0]
        if literal in self._open:
            self._met.add(literal)
            return self.algebra.bottom
        if len(self._open) > MAX_NESTED:
            raise SchemaError("", literal.node.pointer, f"more than {MAX_NESTED} schemas apply to one value in a chain")
        found = self._at_once(literal)
        if found is not None:
            literal.memo[key] = found
            return found
        outer, self._met = self._met, set()
        around, self.there = self.there, there
        self._open.add(literal)
        try:
            value = self._evaluate(literal)
        except TooMany as reason:
            raise SchemaError("", literal.node.pointer, str(reason)) from None
        finally:
            self._open.discard(literal)
            met, self._met = self._met, outer
            self.there = around
            if not self._open:
                self._leaning.clear()  # what is left is of an evaluation that was broken off
            elif literal in met:
                self._leaning = {one: found for one, found in self._leaning.items() if literal not in found[1]}
        met.discard(literal)
        if met:
            self._met |= met
            self._leaning[literal, key] = value, frozenset(met)
        else:
            literal.memo[key] = value
        return value

    def settled(self, question: Callable[[], bool]) -> tuple[bool, bool]:
        """The answer, and whether it leans on no literal that is still being evaluated."""
        outer, self._met = self._met, set()
        try:
            return question(), not self._met
        finally:
            self._met |= outer

    def _at_once(self, literal: Literal) -> T | None:
        """The value where no other literal has to be evaluated for it; else None."""
        node, positive, algebra = literal.node, literal.positive, self.algebra
        if node.always is not None:
            return algebra.top if node.always is positive else algebra.bottom
        if node.types is not None and self.kind not in node.types:
            return algebra.bottom if positive else algebra.top
        if (
            node.values is not None
            or node.unevaluated_properties is not None
            or node.unevaluated_items is not None
            or applies_in_place(node)
        ):
            return None
        own = algebra.own(literal)
        if own is not None:
            return own
        return algebra.top if positive else algebra.bottom

    def _evaluate(self, literal: Literal) -> T:
        node, positive, algebra = literal.node, literal.positive, self.algebra
        if positive and self.kind == "object" and self._chooses(node):
            self.there |= frozenset(name for one in beside(node, conjuncts) for name in one.required)
        if (node.unevaluated_properties is not None and self.kind == "object") or (
            node.unevaluated_items is not None and self.kind == "array"
        ):
            return algebra.unevaluated(literal, self._plain)
        return self._plain(literal)

    def _chooses(self, node: Node) -> bool:
        """Whether a oneOf speaks of the same value: only there it matters what else is known of it."""
        known = self._chosen.get(node)
        if known is None:
            known = self._chosen[node] = any(one.one_of is not None for one in beside(node, branches))
        return known

    def _plain(self, literal: Literal) -> T:
        algebra = self.algebra
        parts: list[T] = []
        if literal.node.values is not None:
            parts.append(algebra.values(literal))
        own = algebra.own(literal)
        if own is not None:
            parts.append(own)
        if applies_in_place(literal.node):
            parts.extend(self._in_place(literal))
        if len(parts) == 1:
            return parts[0]
        return algebra.meet(parts) if literal.positive else algebra.join(parts)

    def _in_place(self, literal: Literal) -> Iterable[T]:
        """The parts whose meet (positive) or join (negative) the in-place keywords are."""
        node, positive, algebra = literal.node, literal.positive, self.algebra
        make, scope = self._goals.literal, literal.scope

        def sub(child: Node, holds: bool = True) -> T:
            return self(make(child, scope, holds is positive))

        if node.ref is not None:
            yield sub(node.ref())
        if node.dynamic_ref is not None:
            yield sub(node.dynamic_ref(scope))
        for child in node.all_of:
            yield sub(child)
        if node.any_of is not None:
            branches = [sub(child) for child in node.any_of]
            yield algebra.join(branches) if positive else algebra.meet(branches)
        if node.one_of is not None:
            several = [make(child, scope) for child in node.one_of]
            name = node.discriminator
            if name is not None and positive and self.kind == "object" and _all_have(name, several):
                self.there |= {name}
                yield algebra.present(name, True)
            yield self._one_of(literal, several)
        if node.not_ is not None:
            yield sub(node.not_, False)
        if node.if_ is not None and (node.then is not None or node.else_ is not None):
            yield self._conditional(literal)
        if node.dependent_schemas and self.kind == "object":
            for name, child in node.dependent_schemas.items():
                there = algebra.present(name, True)
                if positive:
                    yield algebra.join([algebra.present(name, False), algebra.meet([there, sub(child)])])
                else:
                    yield algebra.meet([there, sub(child)])

    def _one_of(self, literal: Literal, branches: list[Literal]) -> T:
        """Exactly one of them; negated: none, or some two."""
        algebra, negation = self.algebra, self._goals.negation
        branches = [one for one in branches if one.node.types is None or self.kind in one.node.types]
        overlaps = algebra.overlaps(branches)
        if literal.positive:
            times = Counter(branches)
            cases = [
                algebra.meet([self(branch), *(self(negation(branches[other])) for other in overlaps[at])])
                for at, branch in enumerate(branches)
                if times[branch] == 1
            ]
            return algebra.join(cases)
        none = algebra.meet([self(negation(branch)) for branch in branches])
        pairs = [
            algebra.meet([self(branch), self(branches[other])])
            for at, branch in enumerate(branches)
            for other in overlaps[at]
            if other > at
        ]
        return algebra.join([none, *pairs])

    def _conditional(self, literal: Literal) -> T:
        node, algebra = literal.node, self.algebra
        make, scope, positive = self._goals.literal, literal.scope, literal.positive
        assert node.if_ is not None
        holds, fails = self(make(node.if_, scope)), self(make(node.if_, scope, False))
        then = None if node.then is None else self(make(node.then, scope, positive))
        otherwise = None if node.else_ is None else self(make(node.else_, scope, positive))
        if positive:
            if otherwise is None:
                assert then is not None
                return algebra.join([fails, algebra.meet([holds, then])])
            first = holds if then is None else algebra.meet([holds, then])
            return algebra.join([first, algebra.meet([fails, otherwise])])
        cases = [] if then is None else [algebra.meet([holds, then])]
        if otherwise is not None:
            cases.append(algebra.meet([fails, otherwise]))
        return algebra.join(cases)
