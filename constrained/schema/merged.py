"""Many alternatives beside each other, each said as one group of object keywords that must not hold.

::

    if G then required [q]     =  G is violated, or q is there   =  not (G, and q is absent)
    anyOf required [a] / [b]   =  a is there, or b is there      =  not (a and b are absent)

A product of n such alternatives has 2^n clauses; as n violated groups it is one clause, and an object's state knows
which of them are still pending.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import product
from math import prod
from typing import Any, NamedTuple

from .atoms import Clauses, Count, Has
from .goals import NOTHING, Goals, Literal, Scope
from .node import Node

#: groups that one choice of alternatives may turn into
MAX_GROUPS = 32


class Says(NamedTuple):
    """The value of this key satisfies the schema; ``needed``: and the key is there."""

    name: str
    child: Node
    scope: Scope
    needed: bool


class Merger:
    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        self._known: dict[frozenset[Hashable], Literal | None] = {}

    def one_clause(self, clauses: Clauses) -> Clauses | None:
        """The same as one clause of violated groups; None if it cannot be said so."""
        if len(clauses) < 2:
            return None
        units = {atom for clause in clauses if len(clause) == 1 for atom in clause}
        rests: list[list[Hashable]] = []
        for clause in clauses:
            # A, or (not A and B): A, or B
            rest = [atom for atom in clause if len(clause) == 1 or self._opposite(atom) not in units]
            if not rest:
                return (frozenset(),)
            rests.append([part for atom in rest for part in _parts(atom)])
        if prod(map(len, rests)) > MAX_GROUPS:
            return None
        groups: set[Hashable] = set()
        for choice in product(*rests):
            atoms = frozenset(choice)
            if any(self._opposite(atom) in atoms for atom in atoms):
                continue  # one of them holds anyway
            group = self._merged(atoms)
            if group is None:
                return None
            groups.add(group)
        return (frozenset(groups),)

    def _opposite(self, atom: Hashable) -> Hashable:
        if isinstance(atom, Literal):
            return self._goals.negation(atom)
        return Has(atom.name, not atom.there) if isinstance(atom, Has) else None

    def _merged(self, atoms: frozenset[Hashable]) -> Literal | None:
        if atoms not in self._known:
            self._known[atoms] = self._merge(atoms)
        return self._known[atoms]

    def _merge(self, atoms: Iterable[Hashable]) -> Literal | None:
        """The negative literal of a schema that holds where none of the atoms does."""
        groups: list[Literal] = []
        absent: list[str] = []
        required: list[str] = []
        said: list[Says] = []
        low, high = 0, None
        for atom in atoms:
            if isinstance(atom, Literal) and not atom.positive:
                groups.append(atom)
            elif isinstance(atom, Has):
                (absent if atom.there else required).append(atom.name)
            elif isinstance(atom, Says):
                said.append(atom)
            elif isinstance(atom, Count) and atom.low == 0 and atom.high is not None:
                low = max(low, atom.high + 1)
            elif isinstance(atom, Count) and atom.high is None and atom.low:
                high = atom.low - 1 if high is None else min(high, atom.low - 1)
            else:
                return None
        groups.sort(key=lambda literal: literal.index)
        scopes = {group.scope for group in groups} | {one.scope for one in said}
        if len(scopes) > 1:
            return None
        scope: Scope = scopes.pop() if scopes else ()
        made: dict[str, Any] = {}
        properties: dict[str, Node] = {}
        dependent: dict[str, tuple[str, ...]] = {}
        for group in groups:
            node = group.node
            if node.pattern_properties or node.additional_properties is not None or node.property_names is not None:
                if len(groups) > 1:
                    return None  # what it says of other names depends on which names it lists
                made["pattern_properties"] = node.pattern_properties
                made["additional_properties"] = node.additional_properties
                made["property_names"] = node.property_names
            for name, child in node.properties.items():
                known = properties.get(name)
                properties[name] = child if known is None else Node(node.pointer, all_of=(known, child))
            for name, then in node.dependent_required.items():
                dependent[name] = (*dependent.get(name, ()), *then)
            required.extend(node.required)
            low = max(low, node.min_properties)
            if node.max_properties is not None:
                high = node.max_properties if high is None else min(high, node.max_properties)
        for name, child, _, needed in sorted(said, key=lambda one: one.name):
            if made.get("additional_properties") is not None and name not in properties:
                return None
            other = Node(child.pointer, not_=child)
            known = properties.get(name)
            properties[name] = other if known is None else Node(child.pointer, all_of=(known, other))
            if not needed:
                required.append(name)
        for name in sorted(absent):
            properties[name] = NOTHING
        merged = Node(
            groups[0].node.pointer if groups else "#",
            properties=properties,
            required=tuple(dict.fromkeys(required)),
            dependent_required=dependent,
            min_properties=low,
            max_properties=high,
            **made,
        )
        return self._goals.literal(merged, scope, False)


def _parts(atom: Hashable) -> list[Hashable]:
    """What a schema that holds says, name by name, if it says nothing else; else itself."""
    if not isinstance(atom, Literal) or not atom.positive:
        return [atom]
    node = atom.node
    if (
        node.pattern_properties
        or node.additional_properties is not None
        or node.property_names is not None
        or node.min_properties
        or node.max_properties is not None
        or node.dependent_required
    ):
        return [atom]
    needed = set(node.required)
    found: list[Hashable] = [
        Says(name, child, atom.scope, name in needed)
        for name, child in node.properties.items()
        if child.always is not True or name in needed
    ]
    found.extend(Has(name, True) for name in node.required if name not in node.properties)
    return found
