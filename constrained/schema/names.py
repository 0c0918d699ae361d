"""The keys of one clause's objects: what the value of each must satisfy, and which kinds of undeclared keys there are.

A cell is a set of undeclared keys that all match the same patterns (and are, or are not, what each violated
propertyNames wants), as a language.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..regular.language import Language
from .errors import SchemaError
from .formula import TooMany
from .goals import Goal, Literal
from .keys import KeyRule, KeySpace
from .scalars import kept_pattern
from .violations import Violation

if TYPE_CHECKING:
    from .compile import Compiler


#: the patterns that a key matches, and the number of each violation whose propertyNames it is
Matched = tuple[str | int, ...]


class Cell(NamedTuple):
    keys: Language
    goal: Goal
    matched: Matched


class Names:
    """``rules`` hold; ``within``: every key satisfies these; ``tracked``: the names that are told apart."""

    def __init__(
        self,
        compiler: Compiler,
        rules: Sequence[KeyRule],
        violations: Sequence[Violation],
        within: Sequence[Literal],
        tracked: list[str],
        groups: Sequence[Literal],
    ) -> None:
        self._compiler = compiler
        self._rules = rules
        self._violations = violations
        self._within = within
        self.tracked = tracked
        self._groups = groups
        self._goals: dict[str, Goal] = {}
        self._patterns: dict[str, Language] = {}
        self._matched: dict[str, Matched] = {}
        self._cells: list[Cell] | None = None

    def goal(self, name: str) -> Goal:
        """What the value of a declared name must satisfy."""
        found = self._goals.get(name)
        if found is None:
            found = self._goals[name] = self._find(name)
        return found

    def _find(self, name: str) -> Goal:
        compiler = self._compiler
        for literal in self._within:
            if not compiler.string_of(literal).matches(name):
                return compiler.goals.never
        if not compiler.can_write(name):
            return compiler.goals.never
        literals: list[Literal] = []
        for rule in self._rules:
            literals += rule.literals(name, self.matched(name) if rule.patterns else ())
        return compiler.goals.goal(literals)

    def matched(self, name: str) -> Matched:
        """The patterns (of anybody) that a declared name matches."""
        found = self._matched.get(name)
        if found is None:
            found = tuple(source for source in self._sources() if self._pattern(source).matches(name))
            self._matched[name] = found
        return found

    def is_name(self, at: int, name: str | None, matched: Matched) -> bool:
        """Whether a key (None: of a cell) is one that the propertyNames of a violation wants."""
        names = self._violations[at].names
        if names is None:
            return True
        if name is None:
            return at in matched
        return self._compiler.string_of(names).matches(name)

    def cells(self) -> list[Cell]:
        """The undeclared keys whose values can satisfy something, for all that is known."""
        if self._cells is None:
            try:
                self._cells = list(self._find_cells())
            except TooMany as reason:
                pointer = self._groups[0].node.pointer if self._groups else "#"
                raise SchemaError("patternProperties", pointer, str(reason)) from None
        return self._cells

    def _find_cells(self) -> Iterator[Cell]:
        compiler = self._compiler
        sources = self._sources()
        if not sources and (self._undeclared(()).known is False or self._unwanted(())):
            return
        cuts: list[tuple[str | int, Language]] = [(source, self._pattern(source)) for source in sources]
        for at, violation in enumerate(self._violations):
            if violation.names is not None:
                cuts.append((at, compiler.string_of(violation.names)))
        space = KeySpace(compiler.languages, self.tracked, [compiler.string_of(literal) for literal in self._within])
        for keys, matched in space.cells(cuts):
            goal = self._undeclared(matched)
            if goal.known is not False and not self._unwanted(matched):
                yield Cell(keys, goal, matched)

    def _unwanted(self, matched: Matched) -> bool:
        """Whether the options leave out keys like these: others are declared, and no schema speaks of these."""
        return (
            not self._compiler.options.undeclared
            and any(rule.named for rule in self._rules)
            and not any(rule.schemas(None, matched) for rule in self._rules)
        )

    def _undeclared(self, matched: Matched) -> Goal:
        return self._compiler.goals.goal([one for rule in self._rules for one in rule.literals(None, matched)])

    def _sources(self) -> dict[str, None]:
        found: dict[str, None] = {}
        for rule in self._rules:
            found.update(dict.fromkeys(rule.patterns))
        for violation in self._violations:
            if violation.rule is not None:
                found.update(dict.fromkeys(violation.rule.patterns))
        return found

    def _pattern(self, source: str) -> Language:
        found = self._patterns.get(source)
        if found is None:
            where = [one.node.pointer for one in self._groups if source in one.node.pattern_properties]
            pointer = where[0] if where else "#"
            found = kept_pattern(self._compiler.languages, source, "patternProperties", pointer)
            self._patterns[source] = found
        return found
