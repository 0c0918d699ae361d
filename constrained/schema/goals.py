"""What one JSON value must satisfy: a conjunction of schemas, each plain or negated, interned.

::

    Literal = (Node, dynamic scope, positive)        "this schema holds"  /  "this schema does not hold"
    Goal    = {Literal, ...}                         all of them at once; {} is any JSON value

Equal literals and equal goals are the same object, so tables are keyed by identity. A literal whose node is nothing
but a ``$ref`` is the literal of its target.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .node import Node, says_only

if TYPE_CHECKING:
    from .layout import Layout

#: the resources entered on the way, outermost first, each named once: later entries cannot change a lookup
Scope = tuple[str, ...]

NOTHING = Node("", always=False)
ANYTHING = Node("", always=True)


class Literal:
    """One schema in its dynamic scope, to be satisfied or to be violated. ``memo`` holds one formula per JSON type."""

    __slots__ = ("alone", "index", "memo", "node", "positive", "scope")

    def __init__(self, node: Node, scope: Scope, positive: bool, index: int) -> None:
        self.node = node
        self.scope = scope
        self.positive = positive
        #: in order of creation, which follows the document: what decides whose order of keys comes first
        self.index = index
        self.memo: dict[Hashable, Any] = {}
        #: the goal of nothing but this, once somebody wanted it
        self.alone: Goal | None = None

    def __repr__(self) -> str:
        return f"{'' if self.positive else 'not '}{self.node.pointer}"


class Goal:
    """A conjunction. ``known``: whether some JSON value satisfies it, once that is decided for good."""

    __slots__ = ("depth", "known", "literals", "nonterminals", "shapes")

    def __init__(self, literals: tuple[Literal, ...], known: bool | None) -> None:
        self.literals = literals
        self.known = known
        #: how it is laid out -> nonterminal
        self.nonterminals: dict[Layout, int] = {}
        #: per JSON type, what is left of the goal when the value has that type
        self.shapes: dict[str, Any] = {}
        #: place in the chain of questions being answered, -1 when none
        self.depth = -1

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.literals)) or "anything"


class Goals:
    """The tables that make literals and goals one of a kind."""

    def __init__(self) -> None:
        self._literals: dict[tuple[Node, Scope, bool], Literal] = {}
        self._goals: dict[frozenset[Literal], Goal] = {}
        self.free = self._goals[frozenset()] = Goal((), True)
        self.never = Goal((), False)
        #: objects of enum and const as schemas
        self.constants: set[Node] = set()
        #: values inside of those that have no parts, as schemas: their json_key
        self.singles: dict[Node, Hashable] = {}
        self._none_of: dict[frozenset[Hashable], Literal] = {}

    def literal(self, node: Node, scope: Scope, positive: bool = True) -> Literal:
        key = (node, scope, positive)
        found = self._literals.get(key)
        if found is None:
            found = self._literals[key] = self._new(node, scope, positive)
        return found

    def none_of(self, singles: Mapping[Hashable, Node]) -> Literal:
        """None of some :attr:`singles`, given by their keys."""
        key = frozenset(singles)
        found = self._none_of.get(key)
        if found is None:
            values = tuple(value for node in singles.values() for value in node.values or ())
            found = self._none_of[key] = self.literal(Node("#", values=values), (), False)
        return found

    def negation(self, literal: Literal) -> Literal:
        return self.literal(literal.node, literal.scope, not literal.positive)

    def goal(self, literals: Sequence[Literal]) -> Goal:
        if len(literals) == 1:
            return literals[0].alone or self._alone(literals[0])
        wanted = set()
        for literal in literals:
            always = literal.node.always
            if always is None:
                wanted.add(literal)
            elif always is not literal.positive:
                return self.never
        if len(wanted) == 1:
            return self.goal(tuple(wanted))
        key = frozenset(wanted)
        found = self._goals.get(key)
        if found is None:
            found = self._goals[key] = self._combine(key)
        return found

    def _alone(self, literal: Literal) -> Goal:
        always = literal.node.always
        if always is None:
            literal.alone = Goal((literal,), None)
        else:
            literal.alone = self.free if always is literal.positive else self.never
        return literal.alone

    def _combine(self, literals: frozenset[Literal]) -> Goal:
        ordered = tuple(sorted(literals, key=lambda literal: literal.index))
        for literal in ordered:
            if not literal.positive and self.negation(literal) in literals:
                return self.never
        return Goal(ordered, None)

    def _new(self, node: Node, scope: Scope, positive: bool) -> Literal:
        inside = node.within(scope)
        if node.ref is not None and _only_refers(node):
            seen = {node}
            while node.ref is not None and _only_refers(node):
                node = node.ref()
                if node in seen:
                    # a chain of references that never arrives: no value satisfies it, and none violates it
                    node = NOTHING if positive else ANYTHING
                    break
                seen.add(node)
                inside = node.within(inside)
            return self.literal(node, inside, positive)
        if inside is not scope:
            return self.literal(node, inside, positive)
        return Literal(node, scope, positive, len(self._literals))


_only_refers = says_only("ref", "contains_evaluates")
