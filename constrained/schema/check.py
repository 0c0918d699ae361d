"""Everything that can be said about a schema without generating: what is wrong, what cannot be kept, what says nothing.

Reading is lazy, so a mistake in a branch that no text has reached yet has not been seen. This looks at all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..interface import ConstraintError
from .drafts import DRAFT_NAMES
from .errors import Problem, SchemaError
from .lint import notes_on
from .node import Node
from .options import SchemaOptions
from .registry import Registry

#: raises ConstraintError for a pattern (ECMA-262) that cannot be kept
CheckPattern = Callable[[str], object]


@dataclass(slots=True)
class Report:
    """``ok`` when nothing is in :attr:`errors` and :attr:`unsupported`.

    errors: the schema is not one, or a reference leads nowhere. unsupported: right, but it cannot be kept exactly.
    relaxed: the same, dropped because ``strict=False``. notes: keywords that assert nothing where they stand, and
    what their author may have meant.
    """

    draft: str
    errors: list[Problem] = field(default_factory=list)
    unsupported: list[Problem] = field(default_factory=list)
    relaxed: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    schemas: int = 0
    references: int = 0
    #: levels of schema inside schema; references do not count
    depth: int = 0
    #: keyword -> how many schemas have it
    keywords: dict[str, int] = field(default_factory=dict)
    #: documents that references reached, besides the schema itself
    documents: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors and not self.unsupported


def check(
    schema: Any,
    options: SchemaOptions | None = None,
    *,
    documents: Mapping[str, Any] | None = None,
    pattern: CheckPattern | None = None,
) -> Report:
    """Look at every schema that can be reached from ``schema`` (what :func:`.reader.read` takes, or a Node it made).

    ``pattern``: what patterns are tried with; None: ``Languages().regex``. Never raises for what is in the schema.
    """
    if isinstance(schema, Node):
        registry = schema.source[1].registry
        schema, documents, options = registry.documents[0].raw, registry.given, options or registry.options
    options = options or SchemaOptions()
    registry = Registry(options, documents or {})
    registry.errors = []
    registry.try_pattern = pattern
    try:
        at = registry.add("", schema)
        root = at.child(at.raw, at.pointer, 0)
    except ConstraintError as error:
        problem = error.problem if isinstance(error, SchemaError) else Problem("", "#", str(error))
        return Report(draft=options.draft, errors=[problem])
    report = Report(draft=DRAFT_NAMES[at.dialect.draft])
    _Walk(root, report, registry)
    return report


class _Walk:
    """One pass over (schema, dynamic scope)."""

    def __init__(self, root: Node, report: Report, registry: Registry) -> None:
        self.registry = registry
        self.report = report
        options = registry.options
        self.found = registry.errors if registry.errors is not None else []
        self.keywords: Counter[str] = Counter()
        self.seen: set[tuple[Node, tuple[str, ...]]] = set()
        self.known: set[Node] = set()
        self.todo: list[tuple[Node, tuple[str, ...]]] = [(root, ())]
        while self.todo:
            node, scope = self.todo.pop()
            try:
                scope = node.within(scope)
                if (node, scope) not in self.seen:
                    if len(self.seen) >= options.max_schemas:
                        raise SchemaError("", node.pointer, f"more than {options.max_schemas:,} schemas are reached")
                    self.seen.add((node, scope))
                    self.visit(node, scope)
            except SchemaError as error:
                self.found.append(error.problem)
                if not error.problem.keyword:  # a limit
                    break
            except ConstraintError as error:
                self.found.append(Problem("", node.pointer, str(error)))
        report.errors = list(dict.fromkeys(self.found))
        report.keywords = dict(self.keywords.most_common())
        report.relaxed = list(options.relaxed)

    def visit(self, node: Node, scope: tuple[str, ...]) -> None:
        if node.always is not None:
            return
        if node not in self.known:
            self.known.add(node)
            self.first(node)
        children = list(node.children())
        targets: list[Callable[[], Node]] = []
        if node.ref is not None:
            targets.append(node.ref)
        if node.dynamic_ref is not None:
            targets.append(partial(node.dynamic_ref, scope))
        for target in targets:
            try:
                children.append(target())
            except SchemaError as error:
                self.found.append(error.problem)
        self.todo.extend((one, scope) for one in reversed(children))

    def first(self, node: Node) -> None:
        """What does not depend on the dynamic scope."""
        report = self.report
        report.schemas += 1
        report.references += (node.ref is not None) + (node.dynamic_ref is not None)
        source = getattr(node, "source", None)
        if source is not None:
            raw, at, depth = source
            report.depth = max(report.depth, depth)
            self.keywords.update(key for key in raw if isinstance(key, str))
            report.notes.extend(notes_on(node, raw, at))
            if at.document.uri and at.document.uri not in report.documents:
                report.documents.append(at.document.uri)
        if self.registry.options.strict:  # else those that cannot be kept are gone, and recorded
            if node.pattern is not None:
                self.try_pattern(node.pattern, "pattern", node.pointer)
            for text in node.pattern_properties:
                self.try_pattern(text, "patternProperties", node.pointer)

    def try_pattern(self, text: str, keyword: str, pointer: str) -> None:
        problem = self.registry.pattern_problem(text)
        if problem:
            self.report.unsupported.append(Problem(keyword, pointer, problem))
