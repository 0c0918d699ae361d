"""Terms: cons lists of syntax nodes, "what is to be matched, then the rest". They are the partial derivatives.

Antimirov (1996), in continuation form: reading a code point from a term gives a set of terms, and a counter is just
another node, so nothing is unrolled. The linear form of a term is worked out once and shared by every position that
holds the term::

    [a-z]{1,5000} . END     --[a-z]-->     [a-z]{0,4999} . END     --[a-z]-->     [a-z]{0,4998} . END ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from ..charset import ALL, Ranges
from .alphabet import CharSet
from .factory import Factory
from .language import Language
from .nodes import Ahead, Before, Guards, Look, Node, Pair, Repeat, Seq


class Term:
    """``node``, then ``rest``; the empty string if there is no node. Hash-consed: equal terms are the same object."""

    __slots__ = (
        "by_kind",
        "cap",
        "front",
        "linear",
        "longest",
        "node",
        "order",
        "plain",
        "pure",
        "rest",
        "shortest",
        "state",
    )

    node: Node
    rest: Term
    #: the number it was made as; the order of terms in a union
    order: int
    #: of the whole term, as in Node
    shortest: int
    longest: int | None
    plain: bool
    pure: bool
    front: int
    #: its linear form once asked for; terms with a ``front`` keep one per kind instead
    linear: list[Pair] | None
    by_kind: dict[int, list[Pair]] | None
    #: the Language of just this term, and the last answer of cap_term (length, term)
    state: Language | None
    cap: tuple[int, Term] | None


class Arena(Factory, ABC):
    """The tables of terms, and what they mean. :class:`.languages.Languages` completes it."""

    def __init__(self, universe: Ranges = ALL) -> None:
        super().__init__(universe)
        self._terms: dict[tuple[Node, Term], Term] = {}
        self._afters: dict[tuple[CharSet, int], list[tuple[CharSet, int]]] = {}
        self.END = self._term(self.NOTHING, None)
        self.DEAD = self._term(self.FAIL, None)
        self.REST = self._terms[self.anything, self.END] = self._term(self.anything, self.END)
        self.MORE = self.cons(self.any_char, self.REST)

    # ------------------------------------------------------------ terms

    def look_node(self, body: Node, negative: bool) -> Node:
        """The text from here on must (not) belong to ``body``, which says what it lets follow."""
        term = self.cons(body, self.END)
        if not term.front:  # what was before does not matter: one guard for every place
            guards = self.look(term, 0, negative)
            if not guards:
                return self.FAIL
            return self.NOTHING if guards[0] is None else self.ahead(guards[0])
        key = ("look", term, negative)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Look(term, negative)
        return node

    def _term(self, node: Node, rest: Term | None) -> Term:
        term = Term()
        term.node = node
        term.rest = term if rest is None else rest
        term.linear = [] if rest is None else None
        term.by_kind = term.state = term.cap = None
        self._made += 1
        term.order = self._made
        if rest is None:
            term.shortest = term.longest = term.front = 0
            term.plain = term.pure = node is self.NOTHING
        else:
            term.shortest = node.shortest + rest.shortest
            term.longest = None if node.longest is None or rest.longest is None else node.longest + rest.longest
            if type(node) is Ahead:  # the guard is about the rest
                guard = node.guard
                term.shortest = max(guard.shortest, rest.shortest)
                if guard.longest is not None and (rest.longest is None or rest.longest > guard.longest):
                    term.longest = guard.longest
            term.plain = node.plain and rest.plain
            term.pure = node.pure and rest.pure
            term.front = node.front if node.nullable is False else node.front | rest.front
        return term

    def cons(self, node: Node, rest: Term) -> Term:
        """``node`` and then ``rest``."""
        found = self._terms.get((node, rest))
        if found is None:
            found = self._cons(node, rest)
            self._terms[node, rest] = found
        return found

    def _cons(self, node: Node, rest: Term) -> Term:
        if rest is self.DEAD or node is self.FAIL:
            return self.DEAD
        if type(node) is Seq:
            for part in reversed(node.parts):
                rest = self.cons(part, rest)
            return rest
        if type(node) is Before:
            raise TypeError("use Arena.before")
        if rest is self.REST:
            if node.nullable:
                return rest
            if type(node) is Repeat and node.low != node.high:
                return self.cons(self.repeat_node(node.body, node.low, node.low), rest)
        if type(node) is Repeat and node.high is None and node.low and node.body is self.any_char:
            return self.cons(self.repeat_node(node.body, node.low, node.low), self.cons(self.anything, rest))
        if type(node) is Ahead:
            return self._ahead_term(node.guard, rest)
        return self._term(node, rest)

    def before(self, kind: int, term: Term) -> Term:
        """``term``, where ``kind`` is known of the code point before it."""
        if not term.front:
            return term
        if type(term.node) is Ahead:
            return self.cons(term.node, self.before(kind, term.rest))
        kind &= term.front
        key = ("before", kind)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Before(kind)
        found = self._terms.get((node, term))
        if found is None:
            found = self._terms[node, term] = self._term(node, term)
            found.front = 0
        return found

    def _ahead_term(self, guard: Language, rest: Term) -> Term:
        if type(rest.node) is Ahead:
            both = self.meet(guard, rest.node.guard)
            return self.cons(self.ahead(both), rest.rest)
        if guard is self.ANY:
            return rest
        if guard is self.EMPTY:
            return self.DEAD
        if rest is self.END:
            return rest if guard.accepting else self.DEAD
        if guard.longest == 0 and rest.shortest:
            return self.DEAD
        return self._term(self.ahead(guard), rest)

    def after(self, chars: CharSet, term: Term) -> list[Pair]:
        """``term`` after any of ``chars``, split by what the front of the term asks about them."""
        mask = term.front
        if not mask:
            return [(chars, term)]
        parts = self._afters.get((chars, mask))
        if parts is None:
            parts = [(chars, 0)]
            for number, tested in enumerate(self.tested):
                if mask & (2 << number):
                    split: list[tuple[CharSet, int]] = []
                    for part, kind in parts:
                        for cell, members in self.alphabet.cells((part, tested)):
                            if 0 in members:
                                split.append((cell, kind | (2 << number) if 1 in members else kind))
                    parts = split
            self._afters[chars, mask] = parts
        return [(part, self.before(kind, term)) for part, kind in parts]

    # ------------------------------------------------------------ meaning

    def linear(self, term: Term, kind: int = 0) -> list[Pair]:
        """What each next code point leads to; memoized. Do not change the list."""
        if term.front:
            kind &= term.front
            if term.by_kind is None:
                term.by_kind = {}
            found = term.by_kind.get(kind)
            if found is None:
                found = term.by_kind[kind] = self._linear(term, kind)
            return found
        found = term.linear
        if found is None:
            found = term.linear = self._linear(term, kind)
        return found

    def _linear(self, term: Term, kind: int) -> list[Pair]:
        found: list[Pair] = []
        while term is not self.END and term is not self.DEAD:
            node, rest = term.node, term.rest
            if type(node) is Before:
                kind, term = node.kind, rest
                continue
            found.extend(node.pairs(rest, kind, self))
            if node.nullable is False:
                break
            if node.nullable is None:
                guards = node.nulls(kind, self)
                if None not in guards:
                    if guards:
                        tail = self.linear(rest, kind)
                        for guard in guards:
                            if guard is not None:
                                found.extend(self.guarded(guard, tail))
                    break
            term = rest
            if term.linear is not None and not term.front:
                found.extend(term.linear)
                break
        if len(found) > 1:
            found = list(dict.fromkeys(found))
        return found

    def accepts(self, term: Term, kind: int = 0) -> bool:
        """Whether the text may end here."""
        while term is not self.END:
            node = term.node
            if type(node) is Before:
                kind = node.kind
            elif not node.nullable and not any(g is None or g.accepting for g in node.nulls(kind, self)):
                return False
            term = term.rest
        return True

    def guarded(self, guard: Language, pairs: list[Pair]) -> list[Pair]:
        """``pairs``, where the text must belong to ``guard`` too."""
        found: list[Pair] = []
        if guard.longest == 0:
            return found
        for chars, following in self.raw_of(guard):  # dead ends are found out for guard and rest together
            for wanted, target in pairs:
                both = self.alphabet.meet(chars, wanted)
                if both.ranges:
                    term = self.cons(self.ahead(following), target)
                    if term is not self.DEAD:
                        found.append((both, term))
        return found

    def both(self, guards: Guards, more: Guards) -> Guards:
        """Every pair of one guard of each, met."""
        if len(more) == 1 and more[0] is None:
            return guards
        found: dict[Language | None, None] = {}
        for a in guards:
            for b in more:
                one = b if a is None else a if b is None else self.meet(a, b)
                if one is self.ANY:
                    one = None
                if one is not self.EMPTY:
                    found[one] = None
        return (None,) if None in found else tuple(found)

    def look(self, term: Term, kind: int, negative: bool) -> Guards:
        """The guard of a lookahead at a place of this kind."""
        language = self.state([self.before(kind, term)])
        if negative:
            language = self.negated(language)
        return () if language is self.EMPTY else (None if language is self.ANY else language,)

    def merged(self, terms: Iterable[Term]) -> list[Term]:
        """The same union with fewer terms: adjoining counters joined, what is contained in another left out."""
        repeats: dict[tuple[Node, Term], list[tuple[int, int | None]]] = {}
        others: dict[Term, None] = {}
        for term in terms:
            node = term.node
            if type(node) is Repeat:
                repeats.setdefault((node.body, term.rest), []).append((node.low, node.high))
            elif term is not self.DEAD:
                others[term] = None
        for (body, rest), spans in repeats.items():
            one = self.cons(body, rest)
            if one in others:
                spans.append((1, 1))
                del others[one]
            if rest in others:
                spans.append((0, 0))
                del others[rest]
            if len(spans) > 1:
                spans.sort(key=lambda span: span[0])
                joined = [spans[0]]
                for low, high in spans[1:]:
                    before_low, before_high = joined[-1]
                    if before_high is None or low <= before_high + 1:
                        top = None if before_high is None or high is None else max(before_high, high)
                        joined[-1] = (before_low, top)
                    else:
                        joined.append((low, high))
                spans = joined
            for low, high in spans:
                others[self.cons(self.repeat_node(body, low, high), rest)] = None
        return sorted(others, key=_order)

    def cap_term(self, term: Term, length: int) -> Term:
        """As :meth:`.language.Language.capped`; a superset of ``term``, which must be pure."""
        if term.cap is not None and term.cap[0] == length:
            return term.cap[1]
        parts: list[Node] = []
        at, left = term, length
        while at is not self.END:
            if left <= 0:
                break
            parts.append(at.node.capped(left, self))
            left -= at.node.shortest
            at = at.rest
        if left > 0:
            capped = self.END
        else:
            capped = self.REST if left < 0 or self.accepts(at) else self.MORE
        for part in reversed(parts):
            capped = self.cons(part, capped)
        term.cap = (length, capped)
        return capped

    def stretch(self, term: Term) -> int:
        """Upper bound of the shortest completion of any position that ``term`` can reach."""
        longest = term.shortest
        while term is not self.END and term is not self.DEAD:
            longest = max(longest, term.node.stretch + term.rest.shortest)
            term = term.rest
        return longest

    def stretches(self, term: Term) -> bool:
        """Whether ``term`` has a member of every length from its shortest on, wherever in it one stands."""
        while term.rest is not self.END:
            if term is self.END:
                return False
            term = term.rest
        node = term.node
        return type(node) is Repeat and node.high is None and node.body.shortest == 1 and node.body.longest == 1

    # ------------------------------------------------------------ what Languages adds

    EMPTY: Language
    ANY: Language

    @abstractmethod
    def state(self, terms: Iterable[Term]) -> Language:
        """The union of ``terms``."""

    @abstractmethod
    def node_of(self, language: Language) -> Node:
        """``language`` as a piece of syntax."""

    @abstractmethod
    def classes_of(self, language: Language) -> tuple[tuple[CharSet, Language], ...]:
        """Its edges, one per target; dead ends left out."""

    @abstractmethod
    def raw_of(self, language: Language) -> tuple[tuple[CharSet, Language], ...]:
        """The same with dead ends."""

    @abstractmethod
    def meet(self, a: Language, b: Language) -> Language:
        """Their intersection; may be empty without being EMPTY."""

    @abstractmethod
    def negated(self, language: Language) -> Language:
        """Its complement; may be empty without being EMPTY."""


def _order(term: Term) -> int:
    return term.order
