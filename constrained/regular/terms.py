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
from .alphabet import Alphabet, CharSet
from .language import Language
from .nodes import (
    START,
    Ahead,
    Alt,
    Before,
    Behind,
    Chars,
    Embedded,
    Guards,
    Look,
    Node,
    Pair,
    Repeat,
    Seq,
    Words,
)

#: longest string that one node spells out; longer literals are chunks, so that suffixes stay short
CHUNK = 48


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


class Arena(ABC):
    """The tables that hash-cons nodes and terms, and what they mean. :class:`.languages.Languages` completes it."""

    def __init__(self, universe: Ranges = ALL) -> None:
        self.alphabet = Alphabet(universe)
        self._chars: dict[CharSet, Chars] = {}
        self._words: dict[tuple[str, ...], Node] = {}
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._terms: dict[tuple[Node, Term], Term] = {}
        self._afters: dict[tuple[CharSet, int], list[tuple[CharSet, int]]] = {}
        #: sets of code points that something asks of the code point before; number i is bit i + 1 of a kind
        self.tested: list[CharSet] = []
        self._made = 0
        self.NOTHING = Seq(())
        self.FAIL = Node(0, 0, False, plain=False, pure=False)
        self.END = self._term(self.NOTHING, None)
        self.DEAD = self._term(self.FAIL, None)
        self.any_char = self.chars_node(self.alphabet.all)
        self.anything = self.repeat_node(self.any_char, 0, None)
        self.REST = self._term(self.anything, self.END)
        self._terms[self.anything, self.END] = self.REST
        self.MORE = self.cons(self.any_char, self.REST)

    # ------------------------------------------------------------ nodes

    def chars_node(self, chars: CharSet) -> Node:
        if not chars.ranges:
            return self.FAIL
        found = self._chars.get(chars)
        if found is None:
            found = self._chars[chars] = Chars(chars)
        return found

    def words_node(self, texts: Iterable[str]) -> Node:
        """One of ``texts``; those with a code point outside of the universe are left out."""
        words = sorted(set(texts))
        allowed = {char for char in set("".join(words)) if self.alphabet.one(ord(char)).ranges}
        words = [word for word in words if allowed.issuperset(word)]
        if not words:
            return self.FAIL
        return self.sorted_words(tuple(words))

    def sorted_words(self, words: tuple[str, ...]) -> Node:
        found = self._words.get(words)
        if found is None:
            found = self._words[words] = self._make_words(words)
            self._made += len(words)
        return found

    def _make_words(self, words: tuple[str, ...]) -> Node:
        if len(words) == 1:
            word = words[0]
            if len(word) > CHUNK:
                return Seq(tuple(self.sorted_words((word[at : at + CHUNK],)) for at in range(0, len(word), CHUNK)))
            if not word:
                return self.NOTHING
        if all(len(word) == 1 for word in words):
            return self.chars_node(self.alphabet.join([self.alphabet.one(ord(word)) for word in words]))
        return Words(words)

    def seq(self, parts: Iterable[Node]) -> Node:
        """Flattened; neighbouring literals are joined, and repeats beside ``anything`` lose their upper bound."""
        found: list[Node] = []
        text = ""
        for part in self._flat(parts):
            if part is self.FAIL:
                return part
            piece = _literal(part)
            if piece:
                text += piece
                continue
            if text:
                found.append(self.sorted_words((text,)))
                text = ""
            if part is self.anything:
                while found and found[-1].nullable:
                    found.pop()
            if found and found[-1] is self.anything and part.plain:
                if part.nullable:
                    continue
                if type(part) is Repeat:
                    part = self.repeat_node(part.body, part.low, part.low)
            found.append(part)
        if text:
            found.append(self.sorted_words((text,)))
        if len(found) == 1:
            return found[0]
        if not found:
            return self.NOTHING
        key = ("seq", *found)
        node = self._nodes.get(key)
        if node is None:
            flat: list[Node] = []
            for part in found:
                flat.extend(part.parts if type(part) is Seq else (part,))
            node = self._nodes[key] = Seq(tuple(flat))
            self._made += 1 + len(flat)
        return node

    def _flat(self, parts: Iterable[Node]) -> Iterable[Node]:
        for part in parts:
            if type(part) is Seq:
                yield from part.parts
            else:
                yield part

    def alt(self, options: Iterable[Node]) -> Node:
        """Flattened, without doubles; sets are joined, literals become one trie, common first nodes are factored."""
        chars: list[CharSet] = []
        words: list[str] = []
        others: dict[Node, None] = {}
        optional = False
        flat: list[Node] = []
        for option in options:
            flat.extend(option.options if type(option) is Alt else (option,))
        for option in flat:
            if type(option) is Chars:
                chars.append(option.set)
            elif type(option) is Words:
                words.extend(option.words)
            elif option is self.NOTHING:
                optional = True
            elif option is not self.FAIL:
                others[option] = None
        made: list[Node] = []
        if words and chars:
            words.extend(chr(one.single) for one in chars if one.single >= 0)
            chars = [one for one in chars if one.single < 0]
        if words:
            made.append(self.words_node(words))
        if chars:
            made.append(self.chars_node(self.alphabet.join(chars)))
        made.extend(self._factored(list(others)) if len(others) > 3 else others)
        if optional:
            if len(made) == 1:
                return self.repeat_node(made[0], 0, 1)
            if not any(node.nullable for node in made):
                made.append(self.NOTHING)
        if not made:
            return self.NOTHING if optional else self.FAIL
        if len(made) == 1:
            return made[0]
        key = ("alt", *made)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Alt(tuple(made))
            self._made += 1 + len(made)
        return node

    def _factored(self, options: list[Node]) -> list[Node]:
        """Sequences that begin with the same node, as that node and the alternatives after it."""
        groups: dict[Node, list[Node]] = {}
        for option in options:
            first = option.parts[0] if type(option) is Seq and option.parts else option
            groups.setdefault(first, []).append(option)
        if len(groups) == len(options):
            return options
        found: list[Node] = []
        for first, group in groups.items():
            if len(group) == 1:
                found.append(group[0])
            else:
                tails = [self.seq(o.parts[1:]) if type(o) is Seq and o is not first else self.NOTHING for o in group]
                found.append(self.seq([first, self.alt(tails)]))
        return found

    def repeat_node(self, body: Node, low: int, high: int | None) -> Node:
        if high == 0 or body is self.NOTHING:
            return self.NOTHING
        if body is self.FAIL:
            return self.FAIL if low else self.NOTHING
        if low == 1 and high == 1:
            return body
        key = (body, low, high)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = self._make_repeat(body, low, high)
            self._made += 1
        return node

    def _make_repeat(self, body: Node, low: int, high: int | None) -> Node:
        if body.longest == 0:  # only asks something: once is as good as often
            return body if low else self.NOTHING
        if body.nullable:
            low = 0
        if type(body) is Repeat:
            inner_low, inner_high = body.low, body.high
            # k rounds read inner_low * k to inner_high * k; no gap between one k and the next
            dense = inner_low <= 1 if low == 0 else True
            if dense and inner_high is not None and low != high:
                dense = (max(low, 1) + 1) * inner_low <= max(low, 1) * inner_high + 1
            if dense:
                top = None if inner_high is None or high is None else inner_high * high
                return self.repeat_node(body.body, inner_low * low, top)
        return Repeat(body, low, high)

    def embedded(self, language: Language) -> Node:
        key = ("language", language)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Embedded(language)
            self._made += 1
        return node

    def ahead(self, guard: Language) -> Node:
        key = ("ahead", guard)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Ahead(guard)
            self._made += 1
        return node

    def look_node(self, body: Node, negative: bool) -> Node:
        term = self.cons(body, self.REST)
        key = ("look", term, negative)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Look(term, negative)
        return node

    def behind(self, start: bool, chars: CharSet | None, wanted: bool) -> Node:
        """Whether the place is the start (if ``start``) or follows one of ``chars``; must be ``wanted``."""
        mask = START if start else 0
        if chars is not None and chars.ranges:
            if chars not in self.tested:
                self.tested.append(chars)
            mask |= 2 << self.tested.index(chars)
        key = ("behind", mask, wanted)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Behind(mask, wanted)
        return node

    # ------------------------------------------------------------ terms

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
        for chars, following in self.classes_of(guard):
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
    def meet(self, a: Language, b: Language) -> Language:
        """Their intersection; may be empty without being EMPTY."""

    @abstractmethod
    def negated(self, language: Language) -> Language:
        """Its complement; may be empty without being EMPTY."""


def _order(term: Term) -> int:
    return term.order


def _literal(node: Node) -> str:
    """The text, if the node is just one string."""
    if type(node) is Chars:
        return chr(node.set.single) if node.set.single >= 0 else ""
    if type(node) is Words and len(node.words) == 1:
        return node.words[0]
    return ""
