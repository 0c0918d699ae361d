"""What a grammar is before it becomes rules: named expressions. Every syntax is parsed to this, and so are specs.

::

    object ::= "{" (pair ("," pair)*)? "}"        Seq(Terminal, Repeat(Seq(Ref pair, Repeat(...)), 0, 1), Terminal)

Expressions are compared by identity; the same one may stand in several places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from ..regular.language import Language

Name = Hashable


class Terminal:
    """A regular language, written as it is. ``text``: the only string in it, where that is known; its language is made
    when it is first asked for, since of thousands of words side by side none is ever asked alone."""

    __slots__ = ("_language", "_make", "text")

    def __init__(self, language: Language) -> None:
        self._language: Language | None = language
        self._make: Callable[[str], Language] | None = None
        self.text: str | None = None

    @staticmethod
    def of(text: str, make: Callable[[str], Language]) -> Terminal:
        """Just ``text``; ``make`` gives its language."""
        found = Terminal.__new__(Terminal)
        found._language, found._make, found.text = None, make, text
        return found

    @property
    def language(self) -> Language:
        if self._language is None:
            assert self._make is not None and self.text is not None
            self._language = self._make(self.text)
        return self._language

    @property
    def nullable(self) -> bool:
        return self.language.accepting if self.text is None else not self.text

    @property
    def blank(self) -> bool:
        """There is nothing in it but the empty text."""
        return self.language.longest == 0 if self.text is None else not self.text


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """The rule with this name."""

    name: Name


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A nonterminal that is in the Rules already: it is never empty and not left-recursive."""

    nonterminal: int


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alt:
    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """``body`` ``low`` to ``high`` times (None: no bound)."""

    body: Expression
    low: int
    high: int | None


Expression = Terminal | Ref | Opaque | Seq | Alt | Repeat


@dataclass(slots=True)
class Grammar:
    """Rules by name. Every Ref must name one of them."""

    rules: dict[Name, Expression] = field(default_factory=dict)


def separated(body: Expression, separator: Expression, low: int, high: int | None) -> Expression:
    """``body`` ``low`` to ``high`` times with ``separator`` in between."""
    if high == 0:
        return Repeat(body, 0, 0)
    more = Repeat(Seq((separator, body)), max(low - 1, 0), None if high is None else high - 1)
    some = Seq((body, more))
    return some if low else Repeat(some, 0, 1)


def references(expression: Expression) -> set[Name]:
    """The names that it refers to."""
    found: set[Name] = set()
    todo: list[Expression] = [expression]
    while todo:
        one = todo.pop()
        if isinstance(one, Ref):
            found.add(one.name)
        elif isinstance(one, Seq):
            todo.extend(one.parts)
        elif isinstance(one, Alt):
            todo.extend(one.options)
        elif isinstance(one, Repeat):
            todo.append(one.body)
    return found


def nullable(expression: Expression, known: Collection[Name]) -> bool:
    """Whether it can be the empty text, if the rules in ``known`` can."""
    if isinstance(expression, Terminal):
        return expression.nullable
    if isinstance(expression, Ref):
        return expression.name in known
    if isinstance(expression, Seq):
        return all(nullable(part, known) for part in expression.parts)
    if isinstance(expression, Alt):
        return any(nullable(option, known) for option in expression.options)
    if isinstance(expression, Repeat):
        return expression.low == 0 or nullable(expression.body, known)
    return False


def spread(uses: Mapping[Name, Iterable[Name]], holds: Callable[[Name, Collection[Name]], bool]) -> set[Name]:
    """The least fixpoint of ``holds(name, those it holds of already)``: a name is asked again whenever one that it
    uses has come in."""
    users: dict[Name, list[Name]] = {}
    for name, used in uses.items():
        for one in used:
            users.setdefault(one, []).append(name)
    found: set[Name] = set()
    todo = list(uses)
    while todo:
        name = todo.pop()
        if name not in found and holds(name, found):
            found.add(name)
            todo.extend(users.get(name, ()))
    return found


def nullables(grammar: Grammar) -> set[Name]:
    """The rules that can be the empty text."""
    uses = {name: references(rule) for name, rule in grammar.rules.items()}
    return spread(uses, lambda name, known: nullable(grammar.rules[name], known))


def components(graph: dict[Name, set[Name]]) -> list[list[Name]]:
    """Strongly connected components, each after those it points to (Tarjan, without recursion)."""
    index: dict[Name, int] = {}
    low: dict[Name, int] = {}
    on_stack: set[Name] = set()
    stack: list[Name] = []
    found: list[list[Name]] = []
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph[root]))]
        while work:
            name, edges = work[-1]
            for target in edges:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == name:
                            break
                    found.append(component)
    return found
