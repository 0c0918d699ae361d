"""A simplified grammar -> nonterminals of the machine: no left recursion, nothing unrolled, everything on demand.

::

    plain      the alternatives of a rule, sequences of symbols        counted    body, how often it must and may come
    N+         N without the empty text: for each production, the first symbol that is not empty
    A/B        what may follow a finished B on the way to an A that began with it

Left recursion, also through other rules and behind symbols that may be empty, is removed by the left-corner form:
among rules that can begin with each other, ``A -> B w`` is an edge from B to A with the letter w, and what does not
begin with one of them is where a path starts. So ``A`` is a start ``c`` of some B and then ``A/B``::

    A = c (A/B)            (A/B) = w (A/C) for each edge B -w-> C, and nothing if B is A (so it recurses at its end)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..interface import ConstraintError
from ..pushdown.rules import Item, Lexeme, Production, Rules
from .simplify import prune, simplify
from .tree import Alt, Expression, Grammar, Name, Opaque, Ref, Repeat, Seq, Terminal, components, spread

if TYPE_CHECKING:
    from ..regular.languages import Languages

#: rounds of a counted repeat that are written out, where left recursion goes through it
_UNROLLED = 200


def lower(grammar: Grammar, start: Name, languages: Languages, rules: Rules) -> int:
    """The nonterminal of ``start``. Raises ConstraintError if it produces nothing."""
    small = simplify(prune(grammar, start, languages), languages)
    whole = small.rules[start]
    if isinstance(whole, Terminal):
        return rules.add(lambda: [(Lexeme(whole.language),)])
    lowering = _Lowering(small, languages, rules)
    return lowering.emit(lowering.symbol_of(start))


@dataclass(eq=False, slots=True)
class _Plain:
    """A nonterminal by its alternatives."""

    name: str
    alternatives: list[tuple[_Symbol, ...]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Counted:
    """``body`` ``low`` to ``high`` times. A body that may be empty is without the empty text here, and low is 0."""

    body: _Symbol
    low: int
    high: int | None


_Nonterminal = _Plain | _Counted
_Symbol = Terminal | Opaque | _Plain | _Counted
_Sequence = tuple[_Symbol, ...]


class _Lowering:
    def __init__(self, grammar: Grammar, languages: Languages, rules: Rules) -> None:
        self.languages = languages
        self.rules = rules
        self._named: dict[Name, _Symbol] = {}
        self._counted: dict[tuple[_Symbol, int, int | None], _Counted] = {}
        self._plus: dict[_Symbol, _Symbol | None] = {}
        self._emitted: dict[Hashable, int] = {}
        self._nullable: dict[_Nonterminal, bool] = {}
        #: of each left-recursive nonterminal, the others that it can begin with and that can begin with it
        self._corner: dict[_Nonterminal, _Corner] = {}
        self._read(grammar)
        self._drop_empty()
        self._find_nullable()
        self._find_left_recursion()

    # ------------------------------------------------------------ from expressions to symbols

    def symbol_of(self, name: Name) -> _Symbol:
        return self._named[name]

    def _read(self, grammar: Grammar) -> None:
        for name, expression in grammar.rules.items():
            self._named[name] = expression if isinstance(expression, Terminal | Opaque) else _Plain(str(name))
        for name, expression in grammar.rules.items():
            symbol = self._named[name]
            if isinstance(symbol, _Plain):
                symbol.alternatives = self._alternatives(expression)

    def _alternatives(self, expression: Expression) -> list[_Sequence]:
        if isinstance(expression, Alt):
            return [sequence for option in expression.options for sequence in self._alternatives(option)]
        return [self._sequence(expression)]

    def _sequence(self, expression: Expression) -> _Sequence:
        if isinstance(expression, Seq):
            return tuple(symbol for part in expression.parts for symbol in self._sequence(part))
        if isinstance(expression, Terminal):
            return () if expression.text == "" else (expression,)
        return (self._symbol(expression),)

    def _symbol(self, expression: Expression) -> _Symbol:
        if isinstance(expression, Ref):
            return self._named[expression.name]
        if isinstance(expression, Repeat):
            body = expression.body
            inner = self._symbol(body)
            if (expression.low, expression.high) == (0, 1):
                return _Plain("", [(inner,), ()])
            return self._count(inner, expression.low, expression.high)
        if isinstance(expression, Terminal | Opaque):
            return expression
        return _Plain("", self._alternatives(expression))

    def _count(self, body: _Symbol, low: int, high: int | None) -> _Counted:
        found = self._counted.get((body, low, high))
        if found is None:
            found = self._counted[body, low, high] = _Counted(body, low, high)
        return found

    # ------------------------------------------------------------ what may be empty, and what begins with what

    def _all(self) -> list[_Nonterminal]:
        found: dict[_Nonterminal, None] = {}
        todo: list[_Symbol] = list(self._named.values())
        while todo:
            symbol = todo.pop()
            if isinstance(symbol, _Plain | _Counted) and symbol not in found:
                found[symbol] = None
                if isinstance(symbol, _Counted):
                    todo.append(symbol.body)
                else:
                    todo.extend(part for sequence in symbol.alternatives for part in sequence)
        return list(found)

    def _drop_empty(self) -> None:
        """Take symbols that only ever are the empty text out of all sequences."""
        symbols = self._all()

        def some(symbol: Hashable, written: Collection[Hashable]) -> bool:
            if isinstance(symbol, Terminal):
                return not symbol.blank
            return isinstance(symbol, Opaque) or symbol in written

        written = spread(
            {symbol: _inside(symbol) for symbol in symbols},
            lambda symbol, known: any(some(part, known) for part in _inside(symbol)),
        )
        for symbol in symbols:
            if isinstance(symbol, _Plain):
                kept = [tuple([part for part in sequence if some(part, written)]) for sequence in symbol.alternatives]
                symbol.alternatives = list(dict.fromkeys(kept))

    def nullable(self, symbol: _Symbol) -> bool:
        if isinstance(symbol, Terminal):
            return symbol.nullable
        if isinstance(symbol, Opaque):
            return False
        found = self._nullable.get(symbol)
        if found is None:  # a rest of a counted repeat
            assert isinstance(symbol, _Counted)
            found = self._nullable[symbol] = symbol.low == 0 or self.nullable(symbol.body)
        return found

    def _find_nullable(self) -> None:
        symbols = self._all()
        known: Collection[Hashable] = ()

        def empty(symbol: Hashable) -> bool:
            return symbol.nullable if isinstance(symbol, Terminal) else symbol in known

        def holds(symbol: Hashable, found: Collection[Hashable]) -> bool:
            nonlocal known
            known = found
            if isinstance(symbol, _Counted):
                return symbol.low == 0 or empty(symbol.body)
            return isinstance(symbol, _Plain) and any(all(map(empty, sequence)) for sequence in symbol.alternatives)

        found = spread({symbol: _inside(symbol) for symbol in symbols}, holds)
        self._nullable = {symbol: symbol in found for symbol in symbols}

    def _begins(self, symbol: _Nonterminal) -> set[Hashable]:
        """The nonterminals that it can begin with."""
        if isinstance(symbol, _Counted):
            return {symbol.body} if isinstance(symbol.body, _Plain | _Counted) else set()
        found: set[Hashable] = set()
        for sequence in symbol.alternatives:
            for part in sequence:
                if isinstance(part, _Plain | _Counted):
                    found.add(part)
                if not self.nullable(part):
                    break
        return found

    def _find_left_recursion(self) -> None:
        while True:
            symbols = self._all()
            graph: dict[Name, set[Name]] = {symbol: self._begins(symbol) for symbol in symbols}
            loops = [c for c in components(graph) if len(c) > 1 or c[0] in graph[c[0]]]
            counted = [one for loop in loops for one in loop if isinstance(one, _Counted)]
            if not counted:
                break
            written: dict[_Symbol, _Symbol] = {one: self._written_out(one) for one in counted}
            for symbol in [*symbols, *written.values()]:
                if isinstance(symbol, _Counted):
                    symbol.body = written.get(symbol.body, symbol.body)
                elif isinstance(symbol, _Plain):
                    symbol.alternatives = [
                        tuple([written.get(part, part) for part in sequence]) for sequence in symbol.alternatives
                    ]
            self._named = {name: written.get(symbol, symbol) for name, symbol in self._named.items()}
            self._find_nullable()
        for loop in loops:
            corner = _Corner(self, [one for one in loop if isinstance(one, _Plain)])
            for member in corner.members:
                self._corner[member] = corner

    def _written_out(self, counted: _Counted) -> _Plain:
        """A counted repeat as rules, for where left recursion goes through it."""
        body, low, high = counted.body, counted.low, counted.high
        if max(low, high or 0) > _UNROLLED:
            raise ConstraintError(
                f"a rule begins with itself inside a repeat of up to {max(low, high or 0)} rounds; at most {_UNROLLED} "
                "are possible there: write the recursion at the end of the rule"
            )
        if high is None:
            more = _Plain("")
            more.alternatives = [(body, more), ()]
            return _Plain("", [(*(body,) * low, more)])
        rest: _Sequence = ()
        for _ in range(high - low):
            rest = (_Plain("", [(body, *rest), ()]),)
        return _Plain("", [(*(body,) * low, *rest)])

    # ------------------------------------------------------------ without the empty text

    def starts(self, sequence: _Sequence) -> list[_Sequence]:
        """The non-empty texts of a sequence, as sequences whose first symbol is not empty: by the first symbol that
        something is written for. That symbol still has to be taken through :meth:`plus`."""
        found = []
        for at, symbol in enumerate(sequence):
            found.append(sequence[at:])
            if not self.nullable(symbol):
                break
        return found

    def plus(self, symbol: _Symbol) -> _Symbol | None:
        """The symbol without the empty text; None if nothing is left."""
        if not self.nullable(symbol):
            return symbol
        if symbol not in self._plus:
            if isinstance(symbol, Terminal):
                languages = self.languages
                some = languages.intersect(symbol.language, languages.complement(languages.EPSILON))
                self._plus[symbol] = None if some is languages.EMPTY else Terminal(some)
            else:
                assert isinstance(symbol, _Plain | _Counted)
                self._plus[symbol] = _Plus(symbol)  # type: ignore[assignment]  # only emit() meets it
        return self._plus[symbol]

    # ------------------------------------------------------------ to rules

    def emit(self, symbol: Hashable) -> int:
        """The nonterminal of a symbol, whose productions are worked out when the machine asks for them."""
        found = self._emitted.get(symbol)
        if found is None:
            found = self._emitted[symbol] = self.rules.add(self._expand(symbol))
        return found

    def _expand(self, symbol: Hashable) -> Callable[[], list[Production]]:
        if isinstance(symbol, Terminal):
            return lambda: [(self._item(symbol),)]
        if isinstance(symbol, Opaque):
            return lambda: [(symbol.nonterminal,)]
        if isinstance(symbol, _Plain):
            corner = self._corner.get(symbol)
            if corner is not None:
                return lambda: [*corner.productions(symbol), *([()] if self.nullable(symbol) else [])]
            return lambda: [self.production(sequence) for sequence in symbol.alternatives]
        if isinstance(symbol, _Counted):
            return lambda: self._counted_productions(symbol)
        if isinstance(symbol, _Plus):
            return lambda: self._plus_productions(symbol.symbol)
        assert isinstance(symbol, _Rest)
        return lambda: symbol.corner.rest_productions(symbol)

    def _item(self, symbol: Hashable) -> Item:
        if isinstance(symbol, Terminal):
            return symbol.text.encode() if symbol.text else Lexeme(symbol.language)
        if isinstance(symbol, Opaque):
            return symbol.nonterminal
        return self.emit(symbol)

    def production(self, sequence: tuple[Hashable, ...]) -> Production:
        return tuple([self._item(symbol) for symbol in sequence])

    def begun(self, sequence: _Sequence) -> Production | None:
        """A sequence that :meth:`starts` gave."""
        first = self.plus(sequence[0])
        return None if first is None else self.production((first, *sequence[1:]))

    def _plus_productions(self, symbol: _Nonterminal) -> list[Production]:
        corner = self._corner.get(symbol)
        if corner is not None:
            return corner.productions(symbol)
        if isinstance(symbol, _Counted):
            return [p for p in self._counted_productions(symbol) if p]
        begun = [self.begun(start) for sequence in symbol.alternatives for start in self.starts(sequence)]
        return [production for production in begun if production is not None]

    def _counted_productions(self, symbol: _Counted) -> list[Production]:
        low, high = symbol.low, symbol.high
        body: _Symbol | None = symbol.body
        if self.nullable(symbol.body):
            body, low = self.plus(symbol.body), 0
        found: list[Production] = []
        if body is not None and high != 0:
            next_high = None if high is None else high - 1
            rest = (self._count(symbol.body, max(low - 1, 0), next_high),) if next_high != 0 else ()
            found.append(self.production((body, *rest)))
        if low == 0:
            found.append(())
        return found


def _inside(symbol: Hashable) -> set[Hashable]:
    """The symbols that a nonterminal is made of."""
    if isinstance(symbol, _Counted):
        return {symbol.body}
    return {part for sequence in symbol.alternatives for part in sequence} if isinstance(symbol, _Plain) else set()


@dataclass(frozen=True, slots=True)
class _Plus:
    symbol: _Nonterminal


@dataclass(frozen=True, slots=True)
class _Rest:
    """What may follow a finished ``begun`` on the way to a ``wanted`` that began with it."""

    corner: _Corner
    wanted: _Nonterminal
    begun: _Nonterminal


class _Corner:
    """Rules that can begin with each other. All of their texts here are without the empty one."""

    def __init__(self, lowering: _Lowering, members: list[_Plain]) -> None:
        self.lowering = lowering
        self.members = members
        inside = set(members)
        #: member -> sequences that begin it and not with a member
        self.outer: dict[_Plain, list[_Sequence]] = {member: [] for member in members}
        #: member -> (member that begins with it, what follows)
        self.edges: dict[_Plain, list[tuple[_Plain, _Sequence]]] = {member: [] for member in members}
        for member in members:
            for sequence in member.alternatives:
                for start in lowering.starts(sequence):
                    first = start[0]
                    if isinstance(first, _Plain) and first in inside:
                        self.edges[first].append((member, start[1:]))
                    else:
                        self.outer[member].append(start)
        self._same: dict[_Plain, list[_Plain]] = {}

    def same(self, member: _Plain) -> list[_Plain]:
        """The members that a finished ``member`` is, too: by edges whose rest may be empty."""
        found = self._same.get(member)
        if found is None:
            found = [member]
            for one in found:
                for target, rest in self.edges[one]:
                    if target not in found and all(map(self.lowering.nullable, rest)):
                        found.append(target)
            self._same[member] = found
        return found

    def productions(self, wanted: _Nonterminal) -> list[Production]:
        lowering = self.lowering
        found = []
        for member in self.members:
            for sequence in self.outer[member]:
                begun = lowering.begun(sequence)
                if begun is not None:
                    found.append((*begun, lowering.emit(_Rest(self, wanted, member))))
        return found

    def rest_productions(self, rest: _Rest) -> list[Production]:
        lowering = self.lowering
        same = self.same(rest.begun)  # type: ignore[arg-type]  # members are plain
        found: list[Production] = [()] if rest.wanted in same else []
        for member in same:
            for target, letter in self.edges[member]:
                for start in lowering.starts(letter):
                    begun = lowering.begun(start)
                    if begun is not None:
                        found.append((*begun, lowering.emit(_Rest(self, rest.wanted, target))))
        return found
