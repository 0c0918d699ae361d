"""The algebras of the types whose values have parts: a schema as a list of clauses, one of which must hold.

::

    anyOf [A, allOf [B, C]]  ->  {A}  {B, C}        a clause is a set of atoms that hold together

Atoms of an object: a Literal (the object keywords of one schema, held or violated as a whole), :class:`Has`,
:class:`Count`, :class:`Unevaluated`. Atoms of an array: :class:`Items`, :class:`Count`, :class:`Contains`,
:class:`Unique`, :class:`Unevaluated`. A violated group of object keywords stays one atom, since which of
its keywords is violated is decided key by key (:mod:`.objects`); a violated array group is a choice of clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from typing import TYPE_CHECKING

from .atoms import Clause, Clauses, Contains, Count, Has, Items, Unique
from .conflict import Conflicts
from .formula import Formula, TooMany
from .goals import Goals, Literal
from .merged import Merger
from .node import Node
from .unevaluated import Unevaluated, total
from .values import json_key

if TYPE_CHECKING:
    from ..regular.languages import Languages

#: clauses of one schema, at most
MAX_CLAUSES = 2_000
#: clauses past which alternatives are said as violated groups, where they can be
MANY_CLAUSES = 200


class ClauseAlgebra:
    """Clauses under union (join) and product (meet)."""

    kind: str
    top: Clauses = (frozenset(),)
    bottom: Clauses = ()

    def __init__(self, goals: Goals) -> None:
        self.goals = goals
        self.formula: Formula[Clauses] = Formula(goals, self)
        #: object values of enum and const as schemas
        self._written: dict[Node, tuple[Node, ...]] = {}
        #: values inside of those that have no parts: equal ones are one schema, so that what is found of it serves all
        self._single_nodes: dict[Hashable, Node] = {}
        self._apart: dict[tuple[frozenset[Literal], frozenset[str]], bool] = {}

    def meet(self, parts: list[Clauses]) -> Clauses:
        if not parts:
            return self.top
        try:
            return self._product(parts, MANY_CLAUSES)
        except TooMany:
            return self._product([self.fewer(part) for part in parts], MAX_CLAUSES)

    def fewer(self, clauses: Clauses) -> Clauses:
        """The same in fewer clauses, if that can be had."""
        return clauses

    def _product(self, parts: list[Clauses], limit: int) -> Clauses:
        sure = {part[0]: None for part in parts if len(part) == 1 and part[0]}
        parts = [part for part in parts if len(part) != 1]
        if sure or not parts:
            together = frozenset[Hashable]().union(*sure)
            if len(sure) > 1 and (self._contradict(together, together) or self.impossible(together)):
                return ()
            parts.insert(0, (together,))
        product = parts[0]
        for part in parts[1:]:
            if len(product) * len(part) > 50 * limit:
                raise TooMany(_TOO_MANY)
            made: dict[Clause, None] = {}
            for left in product:
                for right in part:
                    if right <= left:
                        made[left] = None
                    elif left <= right:
                        made[right] = None
                    elif not self._contradict(left, right):
                        both = left | right
                        if not self.impossible(both):
                            made[both] = None
            if len(made) > limit:
                raise TooMany(_TOO_MANY)
            product = _absorbed(made)
        return product

    def join(self, parts: list[Clauses]) -> Clauses:
        if len(parts) == 1:
            return parts[0]
        return _absorbed(dict.fromkeys(clause for part in parts for clause in part))

    def _contradict(self, left: Clause, right: Clause) -> bool:
        for atom in right:
            if isinstance(atom, Literal):
                if self.goals.negation(atom) in left:
                    return True
            elif isinstance(atom, Has) and Has(atom.name, not atom.there) in left:
                return True
        return False

    def impossible(self, clause: Clause) -> bool:
        """Whether it is plain that nothing satisfies a clause."""
        return False

    def values(self, literal: Literal) -> Clauses:
        nodes = self._written.get(literal.node)
        if nodes is None:
            assert literal.node.values is not None
            nodes = tuple(
                self.written(value, f"{literal.node.pointer}/enum/{at}")
                for at, value in enumerate(literal.node.values)
                if isinstance(value, self.container)
            )
            self._written[literal.node] = nodes
        parts = [self.formula(self.goals.literal(node, literal.scope, literal.positive)) for node in nodes]
        return self.join(parts) if literal.positive else self.meet(parts)

    container: type

    def written(self, value: object, pointer: str) -> Node:
        """A schema that only this value satisfies."""
        if isinstance(value, dict):
            node = Node(
                pointer,
                types=frozenset({"object"}),
                properties={key: self.written(inner, f"{pointer}/{key}") for key, inner in value.items()},
                required=tuple(value),
                additional_properties=Node(pointer, always=False),
            )
            self.goals.constants.add(node)
            return node
        if isinstance(value, list):
            return Node(
                pointer,
                types=frozenset({"array"}),
                prefix_items=tuple(self.written(inner, f"{pointer}/{at}") for at, inner in enumerate(value)),
                min_items=len(value),
                max_items=len(value),
            )
        key = json_key(value)
        single = self._single_nodes.get(key)
        if single is None:
            single = self._single_nodes[key] = Node(pointer, values=(value,))
            self.goals.singles[single] = key
        return single

    def unevaluated(self, literal: Literal, rest: Callable[[Literal], Clauses]) -> Clauses:
        return _absorbed(dict.fromkeys(self._unevaluated(literal, rest)))

    def _unevaluated(self, literal: Literal, rest: Callable[[Literal], Clauses]) -> Iterable[Clause]:
        node = literal.node
        child = node.unevaluated_properties if self.kind == "object" else node.unevaluated_items
        assert child is not None
        if not literal.positive:
            yield from rest(literal)
        wanted = self.goals.literal(child, literal.scope, literal.positive)
        if wanted.node.always:
            # nothing to hold; nothing can be violated
            if literal.positive:
                yield from rest(literal)
            return
        whole = self.goals.literal(node, literal.scope)
        for case in total(self.formula, self.goals, whole, itself=True):
            yield case.atoms | {Unevaluated(wanted, case.evaluators)}

    def own(self, literal: Literal) -> Clauses | None:
        raise TypeError("each type has its own")  # pragma: no cover

    def present(self, name: str, there: bool) -> Clauses:
        return self.top

    def overlaps(self, branches: list[Literal]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in branches]
        for one, other in self.suspects(branches):
            if branches[one] is branches[other] or not self._exclusive(branches[one], branches[other]):
                found[one].append(other)
                found[other].append(one)
        return [sorted(others) for others in found]

    def suspects(self, branches: list[Literal]) -> Iterable[tuple[int, int]]:
        """The pairs that one look does not tell apart."""
        return combinations(range(len(branches)), 2)

    def _exclusive(self, one: Literal, other: Literal) -> bool:
        """Whether the two are known not to hold together."""
        key = frozenset((one, other)), self.formula.there
        known = self._apart.get(key)
        if known is None:
            known, final = self.formula.settled(lambda: not self.meet([self.formula(one), self.formula(other)]))
            if not final:
                return False  # one of them is still being worked out: what is missing of it may overlap
            self._apart[key] = known
        return known


class ObjectAlgebra(ClauseAlgebra):
    kind = "object"
    container = dict

    def __init__(self, goals: Goals, languages: Languages) -> None:
        super().__init__(goals)
        self.conflicts = Conflicts(goals, languages)
        self._merger = Merger(goals)

    def fewer(self, clauses: Clauses) -> Clauses:
        return self._merger.one_clause(clauses) or clauses

    def present(self, name: str, there: bool) -> Clauses:
        return (frozenset((Has(name, there),)),)

    def suspects(self, branches: list[Literal]) -> Iterable[tuple[int, int]]:
        return self.conflicts.not_told_apart(branches, self.formula.there)

    def impossible(self, clause: Clause) -> bool:
        held: list[Literal] = []
        violated: list[Literal] = []
        there: set[str] = set(self.formula.there)
        absent: set[str] = set()
        for atom in clause:
            if isinstance(atom, Literal):
                (held if atom.positive else violated).append(atom)
            elif isinstance(atom, Has):
                (there if atom.there else absent).add(atom.name)
        return self.conflicts.impossible(held, violated, there, absent)

    def own(self, literal: Literal) -> Clauses | None:
        node = literal.node
        speaks = (
            bool(node.properties)
            or bool(node.required)
            or node.additional_properties is not None
            or bool(node.pattern_properties)
        )
        more = node.property_names is not None or bool(node.dependent_required)
        counts = node.min_properties or node.max_properties is not None
        if not (speaks or more or counts):
            return None
        if literal.positive:
            return (frozenset((literal,)),)
        single = self._single(node, more, bool(counts))
        return single if single is not None else (frozenset((literal,)),)

    def _single(self, node: Node, more: bool, counts: bool) -> Clauses | None:
        """The violation of a group that says one simple thing, as atoms that clauses are compared by."""
        if node.properties or node.additional_properties is not None or node.pattern_properties or more:
            return None
        if len(node.required) == 1 and not counts:
            return self.present(node.required[0], False)
        if not node.required and counts:
            return count_violated(node.min_properties, node.max_properties)
        return None


def count_violated(low: int, high: int | None) -> Clauses:
    made: list[Clause] = []
    if low:
        made.append(frozenset((Count(0, low - 1),)))
    if high is not None:
        made.append(frozenset((Count(high + 1, None),)))
    return tuple(made)


class ArrayAlgebra(ClauseAlgebra):
    kind = "array"
    container = list

    def own(self, literal: Literal) -> Clauses | None:
        node, positive, scope = literal.node, literal.positive, literal.scope
        atoms: list[Hashable] = []
        cases: list[Clause] = []
        if node.prefix_items or node.items is not None:
            atoms.append(Items(literal))
        if node.min_items or node.max_items is not None:
            atoms.append(Count(node.min_items, node.max_items))
            if not isinstance(atoms[0], Items):
                cases.extend(count_violated(node.min_items, node.max_items))
        if node.contains is not None:
            wanted = self.goals.literal(node.contains, scope)
            atoms.append(Contains(wanted, node.min_contains, node.max_contains))
            if node.min_contains:
                cases.append(frozenset((Contains(wanted, 0, node.min_contains - 1),)))
            if node.max_contains is not None:
                cases.append(frozenset((Contains(wanted, node.max_contains + 1, None),)))
        if node.unique_items:
            atoms.append(Unique(positive, node.pointer))
        if not atoms:
            return None
        if positive:
            return (frozenset(atoms),)
        cases.extend(frozenset((atom,)) for atom in atoms if isinstance(atom, (Items, Unique)))
        return tuple(cases)


_TOO_MANY = f"anyOf, oneOf, not and if beside each other make more than {MAX_CLAUSES:,} cases; write fewer alternatives"


def _absorbed(clauses: dict[Clause, None]) -> Clauses:
    """Without the clauses that say more than another one of the list."""
    if len(clauses) > MAX_CLAUSES:
        raise TooMany(_TOO_MANY)
    if len(clauses) < 2:
        return tuple(clauses)
    if frozenset() in clauses:
        return (frozenset(),)
    if len(clauses) > 200:
        return tuple(clauses)
    by_size = sorted(clauses, key=len)
    kept: list[Clause] = []
    smallest = len(by_size[0])
    for clause in by_size:
        if len(clause) == smallest or not any(one <= clause for one in kept if len(one) < len(clause)):
            kept.append(clause)
    chosen = set(kept)
    return tuple(clause for clause in clauses if clause in chosen)
