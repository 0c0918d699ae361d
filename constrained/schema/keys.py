"""Which schemas speak of a key's value: properties, patternProperties and additionalProperties of one group.

::

    KeyRule   "a" -> schema   /^x-/ -> schema   every other key -> schema

unevaluatedProperties is such a rule too: keys that were evaluated have no schema, every other key has its.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..regular.language import Language
from .formula import TooMany
from .goals import Goals, Literal, Scope
from .node import Node
from .unevaluated import Unevaluated

if TYPE_CHECKING:
    from ..regular.languages import Languages

#: kinds of undeclared keys that overlapping patterns make, at most
MAX_CELLS = 500


class KeyRule:
    """``named``: schemas of names (None: any value). ``patterns``: as sources. ``rest``: of all other keys."""

    __slots__ = ("goals", "named", "patterns", "rest", "scope")

    def __init__(
        self,
        goals: Goals,
        scope: Scope,
        named: dict[str, Node] | dict[str, None],
        patterns: dict[str, Node] | dict[str, None],
        rest: Node | None,
    ) -> None:
        self.goals = goals
        self.scope = scope
        self.named: dict[str, Node] | dict[str, None] = named
        self.patterns: dict[str, Node] | dict[str, None] = patterns
        self.rest = rest

    def schemas(self, name: str | None, matched: Iterable[str | int]) -> list[Node]:
        """The schemas of one key: its name, or None for an undeclared one; and the patterns it matches."""
        found: list[Node] = []
        other = True
        if name is not None and name in self.named:
            node = self.named[name]
            other = False
            if node is not None:
                found.append(node)
        if self.patterns:
            for pattern in matched:
                if isinstance(pattern, str) and pattern in self.patterns:
                    node = self.patterns[pattern]
                    other = False
                    if node is not None:
                        found.append(node)
        if other and self.rest is not None:
            found.append(self.rest)
        return found

    def literals(self, name: str | None, matched: Iterable[str | int]) -> list[Literal]:
        return [self.goals.literal(node, self.scope) for node in self.schemas(name, matched)]


def rule_of(goals: Goals, literal: Literal) -> KeyRule | None:
    """The rule of a schema's own keywords; None if they say nothing about values."""
    node = literal.node
    if not (node.properties or node.pattern_properties or node.additional_properties is not None):
        return None
    return KeyRule(goals, literal.scope, node.properties, node.pattern_properties, node.additional_properties)


def unevaluated_rule(goals: Goals, atom: Unevaluated) -> KeyRule | None:
    """The rule of unevaluatedProperties; None if every key is evaluated."""
    named: dict[str, None] = {}
    patterns: dict[str, None] = {}
    for literal, everything in sorted(atom.evaluators, key=lambda one: one.literal.index):
        node = literal.node
        if everything or node.additional_properties is not None:
            return None
        named.update(dict.fromkeys(node.properties))
        patterns.update(dict.fromkeys(node.pattern_properties))
    return KeyRule(goals, atom.literal.scope, named, patterns, atom.literal.node)


class KeySpace:
    """Undeclared keys, cut into cells in which every key matches the same patterns."""

    def __init__(self, languages: Languages, tracked: list[str], within: list[Language]) -> None:
        self._languages = languages
        base: list[Language] = list(within)
        if tracked:
            base.append(languages.complement(languages.literals(tracked)))
        #: whether emptiness was never in question: all strings but finitely many
        self._open = not within
        self.base = languages.ANY if not base else base[0] if len(base) == 1 else languages.intersect(*base)

    def cells(self, patterns: list[tuple[str | int, Language]]) -> list[tuple[Language, tuple[str | int, ...]]]:
        """(the keys, the patterns that match them); none is empty."""
        languages = self._languages
        if self.base is languages.EMPTY or (not self._open and languages.is_empty(self.base)):
            return []
        cells: list[tuple[Language, tuple[str | int, ...]]] = [(self.base, ())]
        for source, pattern in patterns:
            if pattern is languages.ANY:
                cells = [(keys, (*matched, source)) for keys, matched in cells]
                continue
            other = languages.complement(pattern)
            refined: list[tuple[Language, tuple[str | int, ...]]] = []
            for keys, matched in cells:
                inside = languages.intersect(keys, pattern)
                if not languages.is_empty(inside):
                    refined.append((inside, (*matched, source)))
                outside = languages.intersect(keys, other)
                if not languages.is_empty(outside):
                    refined.append((outside, matched))
            cells = refined
            if len(cells) > MAX_CELLS:
                raise TooMany(f"patternProperties that overlap make more than {MAX_CELLS} kinds of keys")
        return cells
