"""Object keywords that must be violated in some way, and the ways in which that can happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .goals import Literal
from .keys import rule_of, unevaluated_rule
from .unevaluated import Unevaluated

if TYPE_CHECKING:
    from .compile import Compiler

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
        #: names whose presence decides
        self.memory = frozenset(self.required).union(self.dependent, *self.dependent.values())

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
