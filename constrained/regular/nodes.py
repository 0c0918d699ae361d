"""The syntax a term is made of. Nodes are hash-consed by their :class:`~.terms.Arena` and never change.

Each node knows its linear form in continuation style: ``pairs(rest, ...)`` is what each first code point leads to if
the node itself reads it, as (set of code points, term) pairs, and ``nulls(...)`` under which guards the node reads
nothing at all. A *guard* is a Language that the whole remaining text must belong to; ``None`` asks nothing.

``kind`` is what is known of the code point before: a bit mask, bit 0 for the start of the text, the other bits for the
sets that some ``^``, ``\\b`` or lookbehind asks about (see ``Arena.tested``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .alphabet import CharSet

if TYPE_CHECKING:
    from .language import Language
    from .terms import Arena, Term

#: (what may come next, what follows it)
Pair = tuple[CharSet, "Term"]
Guards = tuple["Language | None", ...]

ALWAYS: Guards = (None,)
NEVER: Guards = ()

#: bit of ``kind``: nothing was read before
START = 1


class Node:
    """Base class, and the node that matches nothing when used as ``Arena.FAIL``."""

    __slots__ = ("_stretch", "front", "longest", "nullable", "plain", "pure", "shortest")

    #: bounds of the number of code points (longest None: no bound)
    shortest: int
    longest: int | None
    #: reads nothing: always, never, or None: it depends on what is around
    nullable: bool | None
    #: made of sets, words, sequences, alternatives and repeats only
    plain: bool
    #: never the empty language, whatever surrounds it: plain, or with embedded Languages
    pure: bool
    #: bits of ``kind`` that matter while nothing was read yet
    front: int

    def __init__(
        self,
        shortest: int,
        longest: int | None,
        nullable: bool | None,
        *,
        plain: bool = True,
        pure: bool = True,
        front: int = 0,
    ) -> None:
        self.shortest = shortest
        self.longest = longest
        self.nullable = nullable
        self.plain = plain
        self.pure = pure
        self.front = front
        self._stretch = -1

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        return []

    def nulls(self, kind: int, arena: Arena) -> Guards:
        return ALWAYS if self.nullable else NEVER

    def capped(self, length: int, arena: Arena) -> Node:
        """See :meth:`.language.Language.capped`; also a superset of this node's language."""
        return self

    def restricted(self, chars: CharSet, arena: Arena) -> Node:
        """A plain node with each code point out of ``chars``."""
        return self

    @property
    def stretch(self) -> int:
        """Upper bound of the shortest completion of this node from any place inside it."""
        if self._stretch < 0:
            self._stretch = self._measure()
        return self._stretch

    def _measure(self) -> int:
        return max(self.shortest - 1, 0)


class Chars(Node):
    """One code point out of a set."""

    __slots__ = ("set",)

    def __init__(self, chars: CharSet) -> None:
        super().__init__(1, 1, False)
        self.set = chars

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        return arena.after(self.set, rest) if rest.front else [(self.set, rest)]

    def restricted(self, chars: CharSet, arena: Arena) -> Node:
        return arena.chars_node(arena.alphabet.meet(self.set, chars))


class Words(Node):
    """One of at least one strings, sorted; a trie that is unfolded by its suffixes."""

    __slots__ = ("words",)

    def __init__(self, words: tuple[str, ...]) -> None:
        lengths = [len(word) for word in words]
        super().__init__(min(lengths), max(lengths), words[0] == "")
        self.words = words

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        words = self.words
        found: list[Pair] = []
        at = 1 if words[0] == "" else 0
        while at < len(words):
            first = words[at][0]
            suffixes = [words[at][1:]]
            at += 1
            while at < len(words) and words[at][0] == first:
                suffixes.append(words[at][1:])
                at += 1
            target = arena.cons(arena.sorted_words(tuple(suffixes)), rest)
            chars = arena.alphabet.one(ord(first))
            if target.front:
                found.extend(arena.after(chars, target))
            else:
                found.append((chars, target))
        return found

    def restricted(self, chars: CharSet, arena: Arena) -> Node:
        inside = {
            char
            for word in self.words
            for char in word
            if arena.alphabet.meet(arena.alphabet.one(ord(char)), chars).ranges
        }
        return arena.words_node([word for word in self.words if inside.issuperset(word)])

    def _measure(self) -> int:
        return max(len(word) for word in self.words) - 1


class Embedded(Node):
    """A Language of another make (a boolean formula, an automaton of one's own) as a piece of syntax."""

    __slots__ = ("language",)

    def __init__(self, language: Language) -> None:
        super().__init__(language.shortest, language.longest, language.accepting, plain=False)
        self.language = language

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        found: list[Pair] = []
        for chars, target in arena.classes_of(self.language):
            found.extend(arena.after(chars, arena.cons(arena.node_of(target), rest)))
        return found

    def capped(self, length: int, arena: Arena) -> Node:
        return arena.node_of(self.language.capped(length))


class Composite(Node):
    """A node made of nodes, which may stand in many others: what is asked of all its parts is remembered."""

    __slots__ = ("_made",)

    def capped(self, length: int, arena: Arena) -> Node:
        found = self._known().get(length)
        if found is None:
            found = self._made[length] = self._cap(length, arena)
            arena.remembers()
        return found

    def restricted(self, chars: CharSet, arena: Arena) -> Node:
        found = self._known().get(chars)
        if found is None:
            found = self._made[chars] = self._restrict(chars, arena)
            arena.remembers()
        return found

    def _known(self) -> dict[int | CharSet, Node]:
        try:
            return self._made
        except AttributeError:
            self._made: dict[int | CharSet, Node] = {}
            return self._made

    def _cap(self, length: int, arena: Arena) -> Node:
        raise TypeError

    def _restrict(self, chars: CharSet, arena: Arena) -> Node:
        raise TypeError


class Seq(Composite):
    """One node after the other; none of them for the empty string."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        longest: int | None = 0
        nullable: bool | None = True
        front = 0
        for part in parts:
            longest = None if longest is None or part.longest is None else longest + part.longest
            if nullable is not False:
                front |= part.front
                nullable = nullable if part.nullable else part.nullable
        super().__init__(
            sum(part.shortest for part in parts),
            longest,
            nullable,
            plain=all(part.plain for part in parts),
            pure=all(part.pure for part in parts),
            front=front,
        )
        self.parts = parts

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        tails = [rest]
        for part in reversed(self.parts[1:]):
            tails.append(arena.cons(part, tails[-1]))
        found: list[Pair] = []
        guards: Guards = ALWAYS
        for part in self.parts:
            here = part.pairs(tails.pop(), kind, arena)
            for guard in guards:
                found.extend(here if guard is None else arena.guarded(guard, here))
            if part.nullable is not True:
                guards = arena.both(guards, part.nulls(kind, arena))
                if not guards:
                    break
        return found

    def nulls(self, kind: int, arena: Arena) -> Guards:
        if self.nullable is not None:
            return super().nulls(kind, arena)
        guards: Guards = ALWAYS
        for part in self.parts:
            guards = arena.both(guards, part.nulls(kind, arena))
            if not guards:
                break
        return guards

    def _cap(self, length: int, arena: Arena) -> Node:
        parts = []
        for part in self.parts:
            parts.append(part.capped(max(length, 0), arena))
            length -= part.shortest
        return arena.seq(parts)

    def _restrict(self, chars: CharSet, arena: Arena) -> Node:
        return arena.seq([part.restricted(chars, arena) for part in self.parts])

    def _measure(self) -> int:
        longest = after = 0
        for part in reversed(self.parts):
            longest = max(longest, part.stretch + after)
            after += part.shortest
        return longest


class Alt(Composite):
    """One of several nodes."""

    __slots__ = ("options",)

    def __init__(self, options: tuple[Node, ...]) -> None:
        lengths = [option.longest for option in options]
        nullable: bool | None = False
        front = 0
        for option in options:
            front |= option.front
            if option.nullable is True or (option.nullable is None and nullable is False):
                nullable = option.nullable
        super().__init__(
            min(option.shortest for option in options),
            None if None in lengths else max(length for length in lengths if length is not None),
            nullable,
            plain=all(option.plain for option in options),
            pure=all(option.pure for option in options),
            front=front,
        )
        self.options = options

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        return [pair for option in self.options for pair in option.pairs(rest, kind, arena)]

    def nulls(self, kind: int, arena: Arena) -> Guards:
        if self.nullable is not None:
            return super().nulls(kind, arena)
        found: Guards = ()
        for option in self.options:
            more = option.nulls(kind, arena)
            if None in more:
                return ALWAYS
            found += more
        return found

    def _cap(self, length: int, arena: Arena) -> Node:
        return arena.alt([option.capped(length, arena) for option in self.options])

    def _restrict(self, chars: CharSet, arena: Arena) -> Node:
        return arena.alt([option.restricted(chars, arena) for option in self.options])

    def _measure(self) -> int:
        return max(option.stretch for option in self.options)


class Repeat(Composite):
    """``body`` at least ``low`` times, at most ``high`` (None: no bound). A step gives the same with lower counts."""

    __slots__ = ("body", "high", "low")

    def __init__(self, body: Node, low: int, high: int | None) -> None:
        super().__init__(
            low * body.shortest,
            None if high is None or body.longest is None else high * body.longest,
            True if low == 0 else body.nullable,
            plain=body.plain,
            pure=body.pure or low == 0,
            front=body.front,
        )
        self.body = body
        self.low = low
        self.high = high

    def pairs(self, rest: Term, kind: int, arena: Arena) -> list[Pair]:
        body, low = self.body, self.low
        high = None if self.high is None else self.high - 1
        found = body.pairs(arena.cons(arena.repeat_node(body, low - 1 if low else 0, high), rest), kind, arena)
        if low > 1 and body.nullable is None:
            # one round that reads nothing stands for as many as are still owed at this place
            free = body.pairs(arena.cons(arena.repeat_node(body, 0, high), rest), kind, arena)
            for guard in body.nulls(kind, arena):
                found = found + (free if guard is None else arena.guarded(guard, free))
        return found

    def nulls(self, kind: int, arena: Arena) -> Guards:
        return ALWAYS if self.low == 0 else self.body.nulls(kind, arena)

    def _cap(self, length: int, arena: Arena) -> Node:
        rounds = length // max(self.body.shortest, 1)  # a round that reads nothing adds nothing
        low, high = self.low, self.high
        if high is not None and high > rounds:
            high = None
        return arena.repeat_node(self.body.capped(length, arena), min(low, rounds + 1), high)

    def _restrict(self, chars: CharSet, arena: Arena) -> Node:
        return arena.repeat_node(self.body.restricted(chars, arena), self.low, self.high)

    def _measure(self) -> int:
        return self.body.stretch + max(self.low - 1, 0) * self.body.shortest


class Ahead(Node):
    """Reads nothing; the whole text from here on must belong to ``guard``. ``$`` is ``Ahead(EPSILON)``."""

    __slots__ = ("guard",)

    def __init__(self, guard: Language) -> None:
        super().__init__(0, 0, None, plain=False, pure=False)
        self.guard = guard

    def nulls(self, kind: int, arena: Arena) -> Guards:
        return (self.guard,)


class Look(Node):
    """Lookahead: the text from here on must (negative: must not) belong to ``term``."""

    __slots__ = ("negative", "term")

    def __init__(self, term: Term, negative: bool) -> None:
        super().__init__(0, 0, None, plain=False, pure=False, front=term.front)
        self.term = term
        self.negative = negative

    def nulls(self, kind: int, arena: Arena) -> Guards:
        return arena.look(self.term, kind, self.negative)


class Behind(Node):
    """Reads nothing; asks whether any bit of ``mask`` is set in ``kind``, which must be ``wanted``."""

    __slots__ = ("mask", "wanted")

    def __init__(self, mask: int, wanted: bool) -> None:
        super().__init__(0, 0, None, plain=False, pure=False, front=mask)
        self.mask = mask
        self.wanted = wanted

    def nulls(self, kind: int, arena: Arena) -> Guards:
        return ALWAYS if bool(kind & self.mask) == self.wanted else NEVER


class Before(Node):
    """The mark at the front of a term that says what was read before it; the kind for all zero-width nodes after."""

    __slots__ = ("kind",)

    def __init__(self, kind: int) -> None:
        super().__init__(0, 0, True, plain=False, pure=False)
        self.kind = kind
