"""``Languages``: makes and hash-conses regular languages over code points, with a boolean algebra over them.

::

    Union   a set of terms (partial derivatives), one position of a deterministic automaton
    Both    an intersection of positions          Not   a complement
    (others)   any subclass of Language: intersections, unions and complements take them through their edges

Nothing is unrolled or built up front: a position is worked out when its edges are asked for, and counters, words and
continuations are shared between all positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import Literal

from ..charset import ALL, Ranges, normalize
from ..interface import ConstraintError, Unfinished
from . import ecma_syntax, python_syntax
from .alphabet import CharSet
from .emptiness import Searches
from .language import Language
from .nodes import Ahead, Alt, Chars, Embedded, Node, Pair, Repeat, Words
from .states import Both, Classes, Not, State, Union
from .terms import Arena, Term

#: largest set of words that an intersection tests one by one
FILTERED = 512


class Languages(Arena):
    """All Languages of one universe. Equal positions are the same object; those of two ``Languages`` never mix.

    ``universe``: the code points that may ever appear. ``max_positions``: most terms in one position.
    ``max_search``: most steps (terms and edges looked at) to decide whether one boolean formula is empty.
    ``deadline``: a time.monotonic() after which work raises ``Unfinished``, to be called again; None: never.
    """

    def __init__(self, universe: Ranges = ALL, max_positions: int = 4096, max_search: int = 200_000) -> None:
        self.deadline: float | None = None
        self.trusting = False  #: what regex() gets has been checked by re already (which takes a while, in one go)
        self.max_positions = max_positions
        self._unions: dict[tuple[Term, ...], Language] = {}
        self._raw_unions: dict[frozenset[Term], Language] = {}
        self._boths: dict[frozenset[Language], Language] = {}
        self._nots: dict[Language, Language] = {}
        self._foreign: dict[Language, Classes] = {}
        self._regexes: dict[tuple[str, str], Language] = {}
        self._interned: dict[Hashable, Language] = {}
        self._nodes_of: dict[Language, Node] = {}
        self._held = 0
        super().__init__(universe)
        self._searches = Searches(self, max_search)
        self.EMPTY = Union(self, ())
        self.EPSILON = self.state([self.END])
        self.ANY = self.state([self.REST])
        self._nots = {self.EMPTY: self.ANY, self.ANY: self.EMPTY}

    # ------------------------------------------------------------ constructors

    def chars(self, ranges: Iterable[tuple[int, int]]) -> Language:
        """One code point out of ``ranges``."""
        return self.of(self.chars_node(self.alphabet.make(normalize(ranges))))

    def literal(self, text: str) -> Language:
        return self.of(self.words_node([text]))

    def literals(self, texts: Iterable[str]) -> Language:
        """One of ``texts``."""
        return self.of(self.words_node(texts))

    def concat(self, *parts: Language) -> Language:
        return self.of(self.seq([self.node_of(part) for part in parts]))

    def union(self, *parts: Language) -> Language:
        return self.of(self.alt([self.node_of(part) for part in parts]))

    def repeat(self, language: Language, low: int, high: int | None) -> Language:
        """``language`` ``low`` to ``high`` times (None: no bound). Bounds may be as large as one likes."""
        if high is not None and high < low:
            return self.EMPTY
        return self.of(self.repeat_node(self.node_of(language), low, high))

    def intersect(self, *parts: Language) -> Language:
        """What belongs to all ``parts`` (ANY if there are none)."""
        words = min((w for w in map(self._words_of, parts) if w is not None), key=len, default=None)
        if words is not None and len(words) <= FILTERED:
            tests = [self._test(part) for part in parts]
            return self.literals([word for word in words if all(test(word) for test in tests)])
        return self._checked(self.all_of(self._restricted(list(parts))))

    def complement(self, language: Language) -> Language:
        """Every string over the universe that ``language`` does not hold."""
        return self._checked(self.negated(language))

    def regex(self, pattern: str, flavour: Literal["python", "ecma"] = "python", *, ours: bool = False) -> Language:
        """``pattern`` as ``re.fullmatch`` reads it, or as JSON Schema's ``pattern`` does (ECMA-262; a search).

        ``ours``: written in this package, so ``re`` need not check it first. Raises ConstraintError naming what is not
        valid or not supported, and where.
        """
        found = self._regexes.get((pattern, flavour))
        if found is None:
            if flavour == "python" and not ours and not self.trusting:
                python_syntax.check(pattern)
            parse = python_syntax.parse if flavour == "python" else ecma_syntax.parse
            found = self._regexes[pattern, flavour] = self.of(parse(pattern, self))
            self._held += 200 + len(pattern)
        return found

    def is_empty(self, language: Language) -> bool:
        """Whether it holds no string. Raises ConstraintError past ``max_search``, ``Unfinished`` at the deadline."""
        if not isinstance(language, State):
            return language is self.EMPTY
        if language.live is None:
            self._searches.settle(language)
        return not language.live

    def finite(self, language: Language, limit: int) -> list[str] | None:
        """All members, sorted, if there are at most ``limit`` of them."""
        return self._searches.members(language, limit)

    def intern(self, key: Hashable, factory: Callable[[], Language]) -> Language:
        """The Language known by ``key``, made by ``factory`` the first time: how a make of one's own (a subclass of
        Language) is hash-consed. Begin ``key`` with a name that no other make uses."""
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = factory()
            self._held += 400
        return found

    @property
    def nbytes(self) -> int:
        """Estimate of the memory held, in bytes."""
        return self._held + 220 * self._made + 130 * self.alphabet.held

    # ------------------------------------------------------------ states

    def of(self, node: Node) -> Language:
        """The language of a piece of syntax at the start of a text."""
        options = node.options if type(node) is Alt else (node,)
        return self._checked(self.state([self.before(1, self.cons(option, self.END)) for option in options]))

    def _checked(self, language: Language) -> Language:
        return self.EMPTY if self.is_empty(language) else language

    def state(self, terms: Iterable[Term]) -> Language:
        terms = list(terms)
        if len(terms) == 1:
            return self._single(terms[0])
        key = frozenset(terms)
        found = self._raw_unions.get(key)
        if found is None:
            found = self._raw_unions[key] = self._union(key)
            self._held += 250 + 30 * len(key)
        return found

    def _single(self, term: Term) -> Language:
        found = term.state
        if found is None:
            node = term.node
            if term is self.DEAD:
                found = self.EMPTY
            elif term.rest is self.END and type(node) is Embedded:
                found = node.language
            elif type(node) is Ahead:
                found = self.all_of(self._restricted([node.guard, self._single(term.rest)]))
            else:
                found = Union(self, (term,))
                self._held += 300
            term.state = found
        return found

    def _union(self, terms: frozenset[Term]) -> Language:
        if self.REST in terms:
            return self.state([self.REST])
        merged = self.merged(terms)
        if not merged:
            return self.EMPTY
        if len(merged) == 1:
            return self._single(merged[0])
        if len(merged) > self.max_positions:
            raise ConstraintError(
                f"a regular language needs more than {self.max_positions:,} positions at once; "
                "simplify the nested or overlapping repeats of its pattern"
            )
        key = tuple(merged)
        found = self._unions.get(key)
        if found is None:
            found = self._unions[key] = Union(self, key)
            self._held += 300 + 8 * len(key)
        return found

    def joined(self, pairs: list[Pair]) -> Classes:
        """Classes out of pairs whose sets may overlap."""
        if len(pairs) == 1:
            chars, term = pairs[0]
            target = self._single(term)
            return () if target is self.EMPTY else ((chars, target),)
        by_set: dict[CharSet, list[Term]] = {}
        apart = True
        for chars, term in pairs:
            known = by_set.get(chars)
            if known is None:
                by_set[chars] = [term]
                apart = apart and chars.single >= 0
            else:
                known.append(term)
        found: dict[Language, list[CharSet]] = {}
        if apart or len(by_set) == 1:
            for chars, terms in by_set.items():
                target = self._single(terms[0]) if len(terms) == 1 else self.state(terms)
                found.setdefault(target, []).append(chars)
        else:
            groups = list(by_set.values())
            for cell, members in self.alphabet.cells(tuple(by_set)):
                if len(members) == 1:
                    target = self.state(groups[members[0]])
                else:
                    target = self.state([term for member in members for term in groups[member]])
                found.setdefault(target, []).append(cell)
        found.pop(self.EMPTY, None)
        join = self.alphabet.join
        return tuple([(cells[0] if len(cells) == 1 else join(cells), target) for target, cells in found.items()])

    def node_of(self, language: Language) -> Node:
        found = self._nodes_of.get(language)
        if found is None:
            if isinstance(language, Union) and all(term.plain for term in language.terms):
                found = self.alt([self._node_of_term(term) for term in language.terms])
            else:
                found = self.embedded(language)
            self._nodes_of[language] = found
        return found

    def _node_of_term(self, term: Term) -> Node:
        parts = []
        while term is not self.END:
            parts.append(term.node)
            term = term.rest
        return self.seq(parts)

    # ------------------------------------------------------------ formulas

    def meet(self, a: Language, b: Language) -> Language:
        return self.all_of([a, b])

    def all_of(self, parts: list[Language]) -> Language:
        """Their intersection; not searched for emptiness, but plain contradictions are EMPTY."""
        key = frozenset(parts)
        found = self._boths.get(key)
        if found is None:
            found = self._boths[key] = self._all_of(key)
            self._held += 350 + 30 * len(key)
        return found

    def _all_of(self, parts: Iterable[Language]) -> Language:
        flat: dict[Language, None] = {}
        for part in parts:
            for one in part.parts if isinstance(part, Both) else (part,):
                flat[one] = None
        flat.pop(self.ANY, None)
        if any(isinstance(part, State) and part.live is False for part in flat):
            return self.EMPTY
        low, high = 0, None
        windows = [part for part in flat if self.window(part)]
        for part in windows:
            bounds = self.window(part)
            assert bounds is not None
            low = max(low, bounds[0])
            high = bounds[1] if high is None else high if bounds[1] is None else min(high, bounds[1])
            del flat[part]
        excluded = [part.inner for part in flat if isinstance(part, Not)]
        if any(inner in flat for inner in excluded):
            return self.EMPTY
        if len(excluded) > 1:
            flat = {part: None for part in flat if not isinstance(part, Not)}
            flat[self.negated(self.state([term for inner in excluded for term in self._terms_of(inner)]))] = None
        shortest = max((part.shortest for part in flat), default=0)
        longest = min((part.longest for part in flat if part.longest is not None), default=None)
        if (high is not None and max(low, shortest) > high) or (longest is not None and max(low, shortest) > longest):
            return self.EMPTY
        if low > shortest or (high is not None and (longest is None or longest > high)):
            run = next((part for part in flat if self._run(part)), None)
            span = self._run(run) if run is not None else None
            if run is not None and span is not None:
                # a run of one set of characters takes the window into its own counter
                del flat[run]
                top = span.high if high is None else high if span.high is None else min(high, span.high)
                flat[self.state([self.cons(self.repeat_node(span.body, max(low, span.low), top), self.END)])] = None
            elif low or high is not None:
                flat[self.state([self.cons(self.repeat_node(self.any_char, low, high), self.END)])] = None
        kept = tuple(flat)
        if not kept:
            return self.ANY
        if len(kept) == 1:
            return kept[0]
        if any(part.longest == 0 for part in kept):
            return self.EPSILON if all(part.accepting for part in kept) else self.EMPTY
        same = frozenset(kept)
        found = self._boths.get(same)
        if not isinstance(found, Both):
            found = self._boths[same] = Both(self, kept)
        return found

    def _terms_of(self, language: Language) -> tuple[Term, ...]:
        return language.terms if isinstance(language, Union) else (self.cons(self.embedded(language), self.END),)

    def _restricted(self, parts: list[Language]) -> list[Language]:
        """Repeats of one set of characters taken into the sets of the plain parts; a length window is left of them."""
        if not any(isinstance(part, Union) and all(term.plain for term in part.terms) for part in parts):
            return parts
        chars = self.alphabet.all
        kept: list[Language] = []
        for part in parts:
            run = self._run(part)
            if run is not None and type(run.body) is Chars:
                chars = self.alphabet.meet(chars, run.body.set)
                part = self.state([self.cons(self.repeat_node(self.any_char, run.low, run.high), self.END)])
            kept.append(part)
        if chars is self.alphabet.all:
            return parts
        whole = self.state([self.cons(self.repeat_node(self.chars_node(chars), 0, None), self.END)])
        held = False
        for number, part in enumerate(kept):
            if isinstance(part, Union) and not self.window(part) and all(term.plain for term in part.terms):
                kept[number] = self.of(self.node_of(part).restricted(chars, self))
                held = True
        return kept if held else [*kept, whole]

    def at_least(self, length: int) -> Language:
        """Every string of ``length`` code points or more."""
        return self.state([self.cons(self.repeat_node(self.any_char, length, None), self.END)])

    def window(self, language: Language) -> tuple[int, int | None] | None:
        """(low, high) if it holds exactly the strings of these lengths."""
        if not isinstance(language, Union) or len(language.terms) != 1:
            return None
        term = language.terms[0]
        if term is self.MORE:
            return 1, None
        if term.rest is self.REST and type(term.node) is Repeat and term.node.body is self.any_char:
            return term.node.low, None
        if term.rest is not self.END:
            return None
        if term.node is self.any_char:
            return 1, 1
        if type(term.node) is Repeat and term.node.body is self.any_char:
            return term.node.low, term.node.high
        return None

    def _run(self, language: Language) -> Repeat | None:
        """Its node if it is just a repeat of one set of characters."""
        if not isinstance(language, Union) or len(language.terms) != 1:
            return None
        term = language.terms[0]
        node = term.node
        if term.rest is self.END and type(node) is Repeat and node.body.longest == 1 and node.body.shortest == 1:
            return node
        return None

    def _words_of(self, language: Language) -> tuple[str, ...] | None:
        if isinstance(language, Union) and len(language.terms) == 1:
            term = language.terms[0]
            if type(term.node) is Words and term.rest is self.END:
                return term.node.words
        return None

    def _test(self, language: Language) -> Callable[[str], bool]:
        """Its ``matches``, without a walk where it is a list of words, or all but these."""
        inner = language.inner if isinstance(language, Not) else language
        words = self._words_of(inner)
        if words is None:
            return language.matches
        listed = frozenset(words)
        return listed.__contains__ if inner is language else lambda word: word not in listed

    def negated(self, language: Language) -> Language:
        found = self._nots.get(language)
        if found is None:
            found = self._nots[language] = self._negated(language)
            self._nots.setdefault(found, language)
            self._held += 350
        return found

    def _negated(self, language: Language) -> Language:
        if isinstance(language, Not):
            return language.inner
        if isinstance(language, State) and language.live is False:
            return self.ANY
        if language is self.ANY:
            return self.EMPTY
        bounds = self.window(language)
        if bounds:
            low, high = bounds
            outside = [self.repeat_node(self.any_char, 0, low - 1)] if low else []
            if high is not None:
                outside.append(self.repeat_node(self.any_char, high + 1, None))
            return self.state([self.cons(node, self.END) for node in outside])
        return Not(self, language)

    # ------------------------------------------------------------ others' positions

    def raw_of(self, language: Language) -> Classes:
        return language.raw() if isinstance(language, State) else self._foreign_classes(language)

    def classes_of(self, language: Language) -> Classes:
        return language.classes() if isinstance(language, State) else self._foreign_classes(language)

    def _foreign_classes(self, language: Language) -> Classes:
        found = self._foreign.get(language)
        if found is None:
            self.tick()
            spans: dict[Language, list[tuple[int, int]]] = {}
            for low, high, target in language.edges():
                spans.setdefault(target, []).append((low, high))
            made = [(self.alphabet.make(normalize(ranges)), target) for target, ranges in spans.items()]
            found = self._foreign[language] = tuple([edge for edge in made if edge[0].ranges])
            self.grown(len(found))
        return found

    # ------------------------------------------------------------ accounts

    def tick(self) -> None:
        """Called between units of work."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Unfinished

    def grown(self, edges: int) -> None:
        self._held += 80 + 90 * edges
