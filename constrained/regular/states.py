"""The positions that :class:`.languages.Languages` makes: unions of terms, and boolean formulas over positions.

A union of *pure* terms (no anchors, no lookahead) is never empty, so it needs no questions asked. All else may lead to
dead ends, which :mod:`.emptiness` finds and ``classes`` leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..interface import ConstraintError
from .alphabet import CharSet
from .language import Edges, Language, Layout
from .terms import Term

if TYPE_CHECKING:
    from .languages import Languages

#: most edges of a position that are kept; more are put together again from the shared layout
KEPT = 64
#: (next code points, what may follow), one per target
Classes = tuple[tuple[CharSet, Language], ...]


class State(Language):
    """What the positions made here share: raw classes by :meth:`expand`, dead ends left out in ``classes``."""

    __slots__ = (
        "_capped",
        "_classes",
        "_edges",
        "_layout",
        "_raw",
        "accepting",
        "live",
        "longest",
        "owner",
        "shortest",
    )

    accepting: bool
    shortest: int
    longest: int | None
    #: known to hold a string, known to hold none, or None
    live: bool | None

    def __init__(self, owner: Languages, accepting: bool, shortest: int, longest: int | None) -> None:
        self.owner = owner
        self.accepting = accepting
        self.shortest = 0 if accepting else max(shortest, 1)
        self.longest = longest
        self.live = True if accepting else None
        self._raw: Classes | None = None
        self._classes: Classes | None = None
        self._edges: Edges | None = None
        self._layout: tuple[Layout, tuple[Language, ...]] | None = None
        self._capped: tuple[int, Language] | None = None

    def raw(self) -> Classes:
        """What each next code point leads to, dead ends and all."""
        found = self._raw
        if found is None:
            self.owner.tick()
            try:
                found = self._raw = self.expand()
            except RecursionError:
                raise ConstraintError(
                    "a regular language is nested too deeply; use fewer lookaheads and groups inside groups"
                ) from None
            self.owner.grown(len(found))
        return found

    def expand(self) -> Classes:
        """:meth:`raw`, worked out. Stopped by an exception, it leaves what it found in the tables, and nothing here."""
        raise NotImplementedError

    def classes(self) -> Classes:
        """The same without dead ends."""
        found = self._classes
        if found is None:
            raw = self.raw()
            found = raw
            for _, target in raw:
                if isinstance(target, State) and target.live is not True:
                    is_empty = self.owner.is_empty
                    found = tuple(edge for edge in raw if not is_empty(edge[1]))
                    break
            self._classes = found
        return found

    def edges(self) -> Edges:
        found = self._edges
        if found is None:
            layout, targets = self.layout()
            found = tuple([(low, high, targets[number]) for low, high, number in layout])
            if len(found) <= KEPT:
                self._edges = found
        return found

    def layout(self) -> tuple[Layout, tuple[Language, ...]]:
        found = self._layout
        if found is None:
            classes = self.classes()
            layout, order = self.owner.alphabet.layout(tuple([chars for chars, _ in classes]))
            found = self._layout = (layout, tuple([classes[number][1] for number in order]))
        return found

    def capped(self, length: int) -> Language:
        known = self._capped
        if known is None or known[0] != length:
            known = self._capped = (length, self.cap(length))
        return known[1]

    def cap(self, length: int) -> Language:
        """:meth:`capped`, worked out; the position itself is always right."""
        return self

    @property
    def size(self) -> int:
        """About how much work it is to expand this position."""
        return 1


class Union(State):
    """Any of some terms; EMPTY has none."""

    __slots__ = ("terms",)

    def __init__(self, owner: Languages, terms: tuple[Term, ...]) -> None:
        longest: int | None = 0
        for term in terms:
            longest = None if longest is None or term.longest is None else max(longest, term.longest)
        super().__init__(
            owner,
            any(owner.accepts(term) for term in terms),
            min((term.shortest for term in terms), default=0),
            longest,
        )
        self.terms = terms
        if not terms:
            self.live = False
        elif any(term.pure for term in terms):
            self.live = True

    def expand(self) -> Classes:
        owner = self.owner
        terms = self.terms
        if len(terms) == 1:
            pairs = owner.linear(terms[0])
        else:
            pairs = [pair for term in terms for pair in owner.linear(term)]
        return owner.joined(pairs)

    @property
    def size(self) -> int:
        return len(self.terms)

    def cap(self, length: int) -> Language:
        owner = self.owner
        return owner.state([owner.cap_term(term, length) if term.pure else term for term in self.terms])


class Both(State):
    """All of some positions at once."""

    __slots__ = ("parts",)

    def __init__(self, owner: Languages, parts: tuple[Language, ...]) -> None:
        lengths = [part.longest for part in parts if part.longest is not None]
        super().__init__(
            owner,
            all(part.accepting for part in parts),
            max(part.shortest for part in parts),
            min(lengths) if lengths else None,
        )
        self.parts = parts

    def expand(self) -> Classes:
        owner = self.owner
        rows = [owner.raw_of(part) for part in self.parts]
        sets = tuple([chars for row in rows for chars, _ in row])
        targets = [target for row in rows for _, target in row]
        which = [number for number, row in enumerate(rows) for _ in row]
        found: dict[Language, list[CharSet]] = {}
        count = len(rows)
        for cell, members in owner.alphabet.cells(sets):
            if len(members) == count and (count == 1 or which[members[0]] != which[members[-1]]):
                target = owner.all_of([targets[member] for member in members])
                if target is not owner.EMPTY:
                    found.setdefault(target, []).append(cell)
        return tuple([(owner.alphabet.join(cells), target) for target, cells in found.items()])

    @property
    def size(self) -> int:
        return 1 + sum(part.size if isinstance(part, State) else 1 for part in self.parts)

    def cap(self, length: int) -> Language:
        """A pattern within a length window that is far off: what the window cannot show yet is dropped. Else the
        position itself: with counters cut, an edge might show that is a dead end in truth (where the bounds of the
        parts contradict each other far away)."""
        owner = self.owner
        if len(self.parts) == 2:
            for window, other in (self.parts, self.parts[::-1]):
                bounds = owner.window(window)
                if bounds and isinstance(other, Union) and all(term.plain for term in other.terms):
                    low, high = bounds
                    # whatever was read, the pattern can still end in time ...
                    if high is not None and high < length + max(owner.stretch(term) for term in other.terms):
                        continue
                    # ... and go on for as long as it must
                    if low and not all(owner.stretches(term) for term in other.terms):
                        continue
                    capped = other.capped(length)
                    return owner.meet(capped, owner.at_least(min(low, length + 1))) if low else capped
        return self


class Not(State):
    """Every string that ``inner`` does not hold."""

    __slots__ = ("inner",)

    def __init__(self, owner: Languages, inner: Language) -> None:
        super().__init__(owner, not inner.accepting, 0, None)
        self.inner = inner
        if inner.longest is not None:
            self.live = True

    @property
    def size(self) -> int:
        return 1 + (self.inner.size if isinstance(self.inner, State) else 1)

    def expand(self) -> Classes:
        owner = self.owner
        row = owner.raw_of(self.inner)
        found: list[tuple[CharSet, Language]] = []
        for chars, target in row:
            rest = owner.negated(target)
            if rest is not owner.EMPTY:
                found.append((chars, rest))
        covered = owner.alphabet.join([chars for chars, _ in row]) if row else owner.alphabet.none
        beside = owner.alphabet.outside(covered)
        if beside.ranges:
            found.append((beside, owner.ANY))
        return tuple(found)
