"""What a regular language looks like from outside: a position, and the edges that leave it.

::

    Language "ab|ac*"                       edges()   (a, a) -> Language "b|c*"
    accepting: no                                      a Language is its own start position: following an edge
    shortest 1, longest None                           gives the language of what may still follow

Every Language is hash-consed inside one :class:`~.languages.Languages`: equal positions are the same object, so
identity is equality and any table may be keyed by the object. Positions are immutable and unfolded on demand.
"""

from __future__ import annotations

#: (lowest code point, highest, what may follow); sorted, disjoint, surrogate-free; no target is empty
Edges = tuple[tuple[int, int, "Language"], ...]
#: the same with targets by number, in the order they first come
Layout = tuple[tuple[int, int, int], ...]


class Language:
    """What may still be written: a set of strings over code points. Never the empty set, except ``EMPTY`` itself.

    A make of one's own (a counter, modular arithmetic) is a subclass with the four attributes, ``edges`` and
    ``capped`` (``return self`` is always right, it only shares no masks), interned by ``Languages.intern``.

    It is no ABC: what kind of Language a position is gets asked millions of times, and of an ABC that takes four times
    as long.
    """

    __slots__ = ()

    #: the empty string belongs to it
    accepting: bool
    #: lower bound of the number of code points to a member (0 if accepting)
    shortest: int
    #: upper bound of the number of code points of any member; None if unbounded or unknown
    longest: int | None

    def edges(self) -> Edges:
        """What each next code point leads to; memoized. Targets are never empty: an edge into a dead end is left out.

        Raises ConstraintError past a limit (too many positions in one state, an emptiness question that takes too
        much work) and :class:`..interface.Unfinished` when the deadline passes; called again, it goes on where it was.
        """
        raise NotImplementedError

    def layout(self) -> tuple[Layout, tuple[Language, ...]]:
        """The edges with their targets numbered, and the targets. Positions made by ``Languages`` that have the same
        edges give the same Layout object (Unicode's ``\\w`` has some 730), so work on it is done once."""
        numbers: dict[Language, int] = {}
        edges = tuple([(low, high, numbers.setdefault(to, len(numbers))) for low, high, to in self.edges()])
        return edges, tuple(numbers)

    def capped(self, length: int) -> Language:
        """A position that allows the same texts of up to ``length`` code points (as prefixes), with every counter cut
        down to what such a text can reach. Positions that differ only in far-away bounds give the same object, so
        token masks are shared between them. Acceptance within ``length`` code points is the same too."""
        raise NotImplementedError

    def matches(self, text: str) -> bool:
        """Whether ``text`` is a member."""
        at: Language = self
        for char in text:
            code = ord(char)
            layout, targets = at.layout()
            for low, high, number in layout:
                if low <= code <= high:
                    at = targets[number]
                    break
            else:
                return False
        return at.accepting
