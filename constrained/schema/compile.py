"""JSON Schema -> rules. What each JSON type leaves of a goal, and the productions that write it.

::

    value(goal) -> "null" | "true" | "false" | number | '"' string | "[" items | "{" members

Every nonterminal is made when it is first needed and expanded when the machine first reaches it; a production is left
out unless something can be written for it (:mod:`.satisfy`), so there are no dead ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from ..interface import ConstraintError
from ..pushdown.rules import Lexeme, Production, Rules
from ..regular.language import Language
from ..regular.languages import Languages
from .arrays import ArrayClause
from .atoms import Clauses
from .clauses import ArrayAlgebra, ObjectAlgebra
from .conflict import Conflicts
from .contradiction import contradiction
from .errors import SchemaError
from .formula import Formula, TooMany
from .goals import Goal, Goals, Literal
from .layout import Layout, layout_of
from .node import TYPES, Node
from .objects import ObjectClause
from .options import AUTO, SchemaOptions
from .productions import Members, Rows
from .reader import read
from .satisfy import Solver
from .scalars import ConstantAlgebra, NumberAlgebra, StringAlgebra
from .undecided import Undecided

_TOO_DEEP = "the schema is nested too deeply; write fewer levels, or name parts of it in $defs"
_CONSTANTS = {None: b"null", True: b"true", False: b"false"}
_CONSTANTS_OF = {"null": (None,), "boolean": (True, False)}


def compile_json(
    schema: Any, options: Mapping[str, Any], documents: Mapping[str, Any], languages: Languages, rules: Rules
) -> int:
    """:func:`compile_schema` of what :func:`.reader.read` reads, with options as plain data."""
    parsed = SchemaOptions.parse(options)
    return compile_schema(read(schema, documents=documents, options=parsed), parsed, languages, rules)


def compile_schema(root: Node, options: SchemaOptions, languages: Languages, rules: Rules) -> int:
    """The nonterminal of one JSON value that satisfies ``root``. Raises ConstraintError if none does."""
    return Compiler(options, languages, rules).start(root)


class Compiler:
    """The tables of one schema. Its nonterminals keep it alive."""

    def __init__(self, options: SchemaOptions, languages: Languages, rules: Rules) -> None:
        self.languages = languages
        self.rules = rules
        self.options = options
        self.any_order = options.any_order
        self.goals = Goals()
        self.solver = Solver(languages, self._check)
        #: goals whose values are being listed, for uniqueItems
        self.listing: set[Goal] = set()
        #: per JSON type, once it is asked for
        self._formulas: dict[str, Formula[Any]] = {}

    def formula(self, kind: str) -> Formula[Any]:
        """What evaluates schemas for one JSON type: to Constants, a Language, or Clauses."""
        found = self._formulas.get(kind)
        if found is None:
            found = self._formulas[kind] = self._new_formula(kind)
        return found

    def _new_formula(self, kind: str) -> Formula[Any]:
        if kind == "object":
            return ObjectAlgebra(self.goals, self.languages).formula
        if kind == "array":
            return ArrayAlgebra(self.goals).formula
        if kind == "string":
            return Formula(self.goals, StringAlgebra(self.languages))
        if kind == "number":
            return Formula(self.goals, NumberAlgebra(self.languages))
        return Formula(self.goals, ConstantAlgebra(kind, frozenset(_CONSTANTS_OF[kind])))

    @property
    def conflicts(self) -> Conflicts:
        algebra = self.formula("object").algebra
        assert isinstance(algebra, ObjectAlgebra)
        return algebra.conflicts

    def start(self, root: Node) -> int:
        goal = self.goals.goal([self.goals.literal(root, ())])
        try:
            satisfiable = self.solver.ask(goal)
        except RecursionError:
            raise SchemaError("", root.pointer, _TOO_DEEP) from None
        if not satisfiable:
            raise SchemaError(*contradiction(root, self._possible))
        if self.options.whitespace == AUTO:
            return Undecided(self).start(goal)
        return self.value(goal, layout_of(self.rules, self.options.whitespace))

    def _possible(self, node: Node) -> bool:
        try:
            return self.solver.ask(self.goals.goal([self.goals.literal(node, ())]))
        except (ConstraintError, RecursionError):  # it is asked for the message alone: then it is not to blame
            return True

    def add(
        self,
        expand: Callable[..., Iterable[Production]],
        *arguments: Any,
        again: bool = False,
        like: Callable[[], Production] | None = None,
    ) -> int:
        """A nonterminal: what ``expand`` gives for ``arguments``, asked once, when the machine first reaches it. See
        :class:`Rules` for the rest."""
        return self.rules.add(partial(_expanded, expand, *arguments), again=again, like=like)

    def too_many(self, message: str) -> NoReturn:
        raise ConstraintError(f"JSON Schema: {message}; write fewer alternatives")

    # ------------------------------------------------------------ what a goal leaves of each type

    def types(self, goal: Goal) -> Iterable[str]:
        """The JSON types that the goal's own ``type`` keywords allow."""
        if len(goal.literals) == 1:
            types = goal.literals[0].node.types
            if types is not None and len(types) == 1 and goal.literals[0].positive:
                return types
        allowed: frozenset[str] | None = None
        for literal in goal.literals:
            if literal.positive and literal.node.types is not None:
                allowed = literal.node.types if allowed is None else allowed & literal.node.types
        return TYPES if allowed is None else [kind for kind in TYPES if kind in allowed]

    def shape(self, goal: Goal, kind: str) -> object:
        """Constants, a Language, or the possible clauses. Falsy, or EMPTY, if no value of this type satisfies it."""
        found = goal.shapes.get(kind)
        if found is None:
            found = goal.shapes[kind] = self._shape(goal, kind)
        return found

    def _shape(self, goal: Goal, kind: str) -> object:
        formula = self.formula(kind)
        if kind == "object":
            return [ObjectClause(self, clause) for clause in self._clauses(formula, goal)]
        if kind == "array":
            return [ArrayClause(self, clause) for clause in self._clauses(formula, goal)]
        return self._scalar(formula, goal)

    def _scalar(self, formula: Formula[Any], goal: Goal) -> object:
        if len(goal.literals) == 1:
            return formula(goal.literals[0])
        return formula.algebra.meet([formula(literal) for literal in goal.literals])

    def _clauses(self, formula: Formula[Clauses], goal: Goal) -> Clauses:
        if len(goal.literals) == 1:
            return formula(goal.literals[0])
        try:
            return formula.algebra.meet([formula(literal) for literal in goal.literals])
        except TooMany as reason:
            raise SchemaError("", goal.literals[0].node.pointer, str(reason)) from None

    def _check(self, goal: Goal) -> bool:
        return any(self._inhabited(goal, kind) for kind in self.types(goal))

    def _inhabited(self, goal: Goal, kind: str) -> bool:
        shape = self.shape(goal, kind)
        if isinstance(shape, Language):
            return not self.languages.is_empty(shape)
        if isinstance(shape, frozenset):
            return bool(shape)
        assert isinstance(shape, list)
        return any(clause.possible() for clause in shape)

    def string_of(self, literal: Literal) -> Language:
        """The strings that satisfy a literal (of propertyNames)."""
        found: Language = self.formula("string")(literal)
        return found

    def can_write(self, name: str) -> bool:
        """Whether a key can be written at all."""
        return name.isascii() or self.languages.literal(name) is not self.languages.EMPTY

    # ------------------------------------------------------------ productions

    def value(self, goal: Goal, layout: Layout) -> int:
        found = goal.nonterminals.get(layout)
        if found is None:
            like = None if layout.shallow is None else partial(self._as_long, goal, layout.shallow)
            found = self.add(self._value, goal, layout, again=layout.again, like=like)
            goal.nonterminals[layout] = found
        return found

    def _as_long(self, goal: Goal, layout: Layout) -> Production:
        return (self.value(goal, layout),)

    def _value(self, goal: Goal, layout: Layout) -> Iterator[Production]:
        for part in self.parts(goal):
            if isinstance(part, ObjectClause):
                members = Members(self, part, layout)
                if part.may_end(part.start):
                    yield (b"{}",)
                keys = members.keys(part.start)
                if keys is not None:
                    yield (b"{", *layout.first, keys)
            elif isinstance(part, ArrayClause):
                rows = Rows(self, part, layout)
                if part.may_end(part.start):
                    yield (b"[]",)
                items = rows.items(part.start)
                if items is not None:
                    yield (b"[", *layout.first, items)
            else:
                yield part

    def parts(self, goal: Goal) -> Iterator[Production | ObjectClause | ArrayClause]:
        """What a value may be: the productions of those without parts, and the clauses of objects and arrays."""
        for kind in self.types(goal):
            shape = self.shape(goal, kind)
            if isinstance(shape, Language):
                if not self.languages.is_empty(shape):
                    yield (b'"', Lexeme(shape, json=True)) if kind == "string" else (Lexeme(shape),)
            elif isinstance(shape, frozenset):
                for constant in shape:
                    yield (_CONSTANTS[constant],)
            else:
                assert isinstance(shape, list)
                for clause in shape:
                    if clause.possible():
                        yield clause


def _expanded(expand: Callable[..., Iterable[Production]], *arguments: Any) -> list[Production]:
    """A schema whose parts nest too deeply is an error of its own, wherever that shows."""
    try:
        return list(expand(*arguments))
    except RecursionError:
        raise SchemaError("", "#", _TOO_DEEP) from None
