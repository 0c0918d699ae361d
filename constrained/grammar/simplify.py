"""A grammar made smaller without changing its language: what a machine of stacks should not have to do.

1. Rules and alternatives that can produce nothing are dropped (:func:`prune`).
2. What is regular becomes one Terminal: bottom-up over the rules, so that a rule that does not recurse and refers to
   regular rules only is regular too. Systems of rules that recurse at one end only are solved (Arden).
3. Recursion at both ends is made iteration, which also makes the usual ambiguous rules unambiguous::

       A = A d A | a A | A b | c      becomes      A = B (d B)*,  B = a* c b*      (a, b, c, d: anything in between)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..interface import ConstraintError
from .tree import (
    Alt,
    Expression,
    Grammar,
    Name,
    Ref,
    Repeat,
    Seq,
    Terminal,
    components,
    nullable,
    nullables,
    references,
    spread,
)

if TYPE_CHECKING:
    from ..regular.language import Language
    from ..regular.languages import Languages

#: rules of one recursive system that is tried as a regular one
_SYSTEM = 16
#: parts that one Terminal is put together from, at most; more than that stays with its rules
_PARTS = 20_000


def prune(grammar: Grammar, start: Name, languages: Languages) -> Grammar:
    """Without what can produce nothing, and without rules that ``start`` does not reach. Raises ConstraintError if
    ``start`` produces nothing."""
    uses = {name: references(rule) for name, rule in grammar.rules.items()}
    productive = spread(uses, lambda name, known: _produces(grammar.rules[name], known, languages))
    if start not in productive:
        raise ConstraintError(
            f"{_said(start)} produces no text: every alternative leads back to a rule that never ends "
            "(or to characters that the vocabulary cannot write); give it an alternative that ends"
        )
    kept: dict[Name, Expression] = {}
    reached = [start]
    while reached:
        name = reached.pop()
        if name not in kept:
            pruned = _pruned(grammar.rules[name], productive, languages)
            assert pruned is not None
            kept[name] = pruned
            reached.extend(references(pruned))
    return Grammar(kept)


def _said(name: Name) -> str:
    """A rule's name for messages; specifications have no name, and Lark's start stands behind what it ignores."""
    own = name[-1] if isinstance(name, tuple) else name
    return f"rule {own}" if own and own != "%start" else "the start" if own else "it"


def _produces(expression: Expression, productive: Collection[Name], languages: Languages) -> bool:
    if isinstance(expression, Terminal):
        text = expression.text
        return expression.language is not languages.EMPTY if text is None else languages.spells(text)
    if isinstance(expression, Ref):
        return expression.name in productive
    if isinstance(expression, Seq):
        return all(_produces(part, productive, languages) for part in expression.parts)
    if isinstance(expression, Alt):
        return any(_produces(option, productive, languages) for option in expression.options)
    if isinstance(expression, Repeat):
        return expression.low == 0 or _produces(expression.body, productive, languages)
    return True


def _pruned(expression: Expression, productive: Collection[Name], languages: Languages) -> Expression | None:
    """The productive part; None if there is none."""
    if isinstance(expression, Seq):
        parts = [_pruned(part, productive, languages) for part in expression.parts]
        kept = [part for part in parts if part is not None]
        return Seq(tuple(kept)) if len(kept) == len(parts) else None
    if isinstance(expression, Alt):
        options = [_pruned(option, productive, languages) for option in expression.options]
        found = tuple(option for option in options if option is not None)
        return Alt(found) if found else None
    if isinstance(expression, Repeat):
        body = _pruned(expression.body, productive, languages)
        if body is None:
            return Seq(()) if expression.low == 0 else None
        return Repeat(body, expression.low, expression.high)
    return expression if _produces(expression, productive, languages) else None


def simplify(grammar: Grammar, languages: Languages) -> Grammar:
    """The same languages with regular parts in one Terminal each. The grammar must be pruned."""
    return _Simplifier(grammar, languages).run()


class _Simplifier:
    def __init__(self, grammar: Grammar, languages: Languages) -> None:
        self.languages = languages
        self.rules = dict(grammar.rules)
        self.nullable = nullables(grammar)
        self.parts: dict[Terminal, int] = {}

    def run(self) -> Grammar:
        graph = {name: references(expression) for name, expression in self.rules.items()}
        for component in components(graph):
            for name in component:
                self.rules[name] = self.folded(self.rules[name])
            if 1 < len(component) <= _SYSTEM and self._solve(component):
                continue
            for name in component:
                if name in graph[name]:
                    self.rules[name] = self.folded(self.iterated(name, self.rules[name]))
        return Grammar(self.rules)

    # ------------------------------------------------------------ folding

    def terminal(self, language: Language, parts: int) -> Terminal:
        found = Terminal(language)
        self.parts[found] = parts
        return found

    def literal(self, text: str) -> Terminal:
        return Terminal.of(text, self.languages.literal)

    def size(self, *terminals: Terminal) -> int:
        return sum(self.parts.get(terminal, 1) for terminal in terminals)

    def folded(self, expression: Expression) -> Expression:
        """With its regular parts in one Terminal each. Rules below must have been folded before."""
        if isinstance(expression, Ref):
            target = self.rules[expression.name]
            return target if isinstance(target, Terminal) else expression
        if isinstance(expression, Seq):
            return self._sequence([self.folded(part) for part in expression.parts])
        if isinstance(expression, Alt):
            return self._alternatives([self.folded(option) for option in expression.options])
        if isinstance(expression, Repeat):
            body = self.folded(expression.body)
            if expression.high == 0:
                return self.literal("")
            if (expression.low, expression.high) == (1, 1):
                return body
            if isinstance(body, Terminal):
                repeated = self.languages.repeat(body.language, expression.low, expression.high)
                return self.terminal(repeated, 1 + self.size(body))
            return Repeat(body, expression.low, expression.high)
        return expression

    def _sequence(self, parts: list[Expression]) -> Expression:
        flat: list[Expression] = []
        for one in parts:
            flat.extend(one.parts if isinstance(one, Seq) else (one,))
        found: list[Expression] = []
        run: list[Terminal] = []
        ending: list[Expression | None] = [*flat, None]
        for part in ending:
            if isinstance(part, Terminal) and self.size(*run, part) <= _PARTS:
                if part.text != "":
                    run.append(part)
                continue
            if run:
                found.append(self._joined(run))
                run = []
            if isinstance(part, Terminal):
                run.append(part)
            elif part is not None:
                found.append(part)
        if not found:
            return self.literal("")
        return found[0] if len(found) == 1 else Seq(tuple(found))

    def _joined(self, run: list[Terminal]) -> Terminal:
        if len(run) == 1:
            return run[0]
        if all(one.text is not None for one in run):
            return self.literal("".join(one.text or "" for one in run))
        return self.terminal(self.languages.concat(*(one.language for one in run)), self.size(*run))

    def _alternatives(self, options: list[Expression]) -> Expression:
        flat: list[Expression] = []
        for option in options:
            flat.extend(option.options if isinstance(option, Alt) else (option,))
        regular = [option for option in flat if isinstance(option, Terminal)]
        rest = [option for option in flat if not isinstance(option, Terminal)]
        if len(regular) > 1 and self.size(*regular) <= _PARTS:
            words = {one.text: one for one in regular if one.text is not None}
            others = [one for one in regular if one.text is None]
            if others or len(words) > 1:
                languages = [one.language for one in others]
                if words:
                    languages.append(self.languages.literals(words))
                union = self.languages.union(*languages)
                alone = [*others, *(words.values() if len(words) == 1 else ())]
                same = next((one for one in alone if one.language is union), None)
                regular = [same if same is not None else self.terminal(union, self.size(*regular))]
            else:
                regular = regular[:1]
        found = [*regular, *rest]
        return found[0] if len(found) == 1 else Alt(tuple(found))

    # ------------------------------------------------------------ recursion at the ends

    def iterated(self, name: Name, expression: Expression) -> Expression:
        """The rule ``name`` without recursion at its ends, where it has the form at the top of this module."""
        between: list[Expression] = []
        before: list[Expression] = []
        after: list[Expression] = []
        core: list[Expression] = []
        copies: set[int] = set()
        for option in expression.options if isinstance(expression, Alt) else (expression,):
            parts = option.parts if isinstance(option, Seq) else (option,)
            first, last = _is(parts[0], name), _is(parts[-1], name)
            if all(_is(part, name) for part in parts):
                copies.add(len(parts))
            elif first and last:
                between.append(Seq(parts[1:-1]))
            elif first:
                after.append(Seq(parts[1:]))
            elif last:
                before.append(Seq(parts[:-1]))
            else:
                core.append(option)
        copies.discard(1)
        if not (between or before or after or copies):
            return Alt(tuple(core))
        stars = [(Repeat(Alt(tuple(some)), 0, None),) if some else () for some in (before, after)]
        block: Expression = Seq((*stars[0], Alt(tuple(core)), *stars[1]))
        if not (between or copies):
            return block
        block = self.folded(block)
        empty = nullable(block, self.nullable)
        if not isinstance(block, Terminal | Ref):
            inner = ("block", name)
            self.rules[inner] = block
            block = Ref(inner)
        if copies and (2 in copies or name in self.nullable):
            # A A, perhaps as A A A with an empty A: any number of blocks
            if empty:
                return Repeat(Alt((block, *between)), 0, None)
            between.append(Seq(()))
        elif copies and not between:
            more = [Repeat(block, count - 1, count - 1) for count in sorted(copies)]
            return Seq((block, Repeat(Alt(tuple(more)), 0, None)))
        else:
            between += [Seq((Ref(name),) * (count - 2)) for count in copies]
        return Seq((block, Repeat(Seq((Alt(tuple(between)), block)), 0, None)))

    def _solve(self, component: list[Name]) -> bool:
        """Make Terminals of a system of rules if all of it recurses at the right end only, or at the left end only."""
        for at_right in (True, False):
            rows = {name: self._linear(self.rules[name], set(component), at_right) for name in component}
            system = {name: row for name, row in rows.items() if row is not None}
            if len(system) == len(component):
                self.rules.update(self._arden(system, at_right))
                return True
        return False

    def _linear(self, expression: Expression, members: set[Name], at_right: bool) -> Row | None:
        """What stands before (after) each member, and alone (None); None if the rule is not of that form."""
        found: Row = {}
        for option in expression.options if isinstance(expression, Alt) else (expression,):
            parts = list(option.parts) if isinstance(option, Seq) else [option]
            to: Name | None = None
            end = parts[-1] if at_right else parts[0]
            if isinstance(end, Ref) and end.name in members:
                to = end.name
                parts = parts[:-1] if at_right else parts[1:]
            if len(parts) > 1 or not all(isinstance(part, Terminal) for part in parts):
                return None
            languages = [part.language for part in parts if isinstance(part, Terminal)]
            self._add(found, {to: languages[0] if languages else self.languages.EPSILON})
        return found

    def _add(self, row: Row, more: Row) -> None:
        for to, language in more.items():
            row[to] = self.languages.union(row[to], language) if to in row else language

    def _arden(self, rows: dict[Name, Row], at_right: bool) -> dict[Name, Expression]:
        """Gaussian elimination: X = a X | b has the least solution a* b (b a* if it recurses at the left end)."""
        languages = self.languages

        def times(factor: Language, row: Row) -> Row:
            if at_right:
                return {to: languages.concat(factor, language) for to, language in row.items()}
            return {to: languages.concat(language, factor) for to, language in row.items()}

        order = list(rows)
        for at, name in enumerate(order):
            loop = rows[name].pop(name, None)
            if loop is not None:
                rows[name] = times(languages.repeat(loop, 0, None), rows[name])
            for other in order[at + 1 :]:
                factor = rows[other].pop(name, None)
                if factor is not None:
                    self._add(rows[other], times(factor, rows[name]))
        for name in reversed(order):
            for other in [to for to in rows[name] if to is not None]:
                self._add(rows[name], times(rows[name].pop(other), rows[other]))
        return {name: self.terminal(rows[name].get(None, languages.EMPTY), len(order)) for name in order}


#: by the member of the system that the alternative goes on with, None: it ends
Row = dict[Name | None, "Language"]


def _is(expression: Expression, name: Name) -> bool:
    return isinstance(expression, Ref) and expression.name == name
