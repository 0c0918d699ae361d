"""What a regular language looks like from outside: a position, and the edges that leave it.

::

    Language "ab|ac*"                       edges()   (a, a) -> Language "b|c*"
    accepting: no                                      a Language is its own start position: following an edge
    shortest 1, longest None                           gives the language of what may still follow

Every Language is hash-consed inside one :class:`~.languages.Languages`: equal positions are the same object, so
identity is equality and any table may be keyed by the object. Positions are immutable and unfolded on demand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

#: (lowest code point, highest, what may follow); sorted, disjoint, surrogate-free; no target is empty
Edges = tuple[tuple[int, int, "Language"], ...]


class Language(ABC):
    """What may still be written: a set of strings over code points. Never the empty set, except ``EMPTY`` itself.

    A make of one's own (a counter, modular arithmetic) is a subclass with the four attributes, ``edges`` and
    ``capped`` (``return self`` is always right, it only shares no masks), interned by ``Languages.intern``.
    """

    __slots__ = ()

    #: the empty string belongs to it
    accepting: bool
    #: lower bound of the number of code points to a member (0 if accepting)
    shortest: int
    #: upper bound of the number of code points of any member; None if unbounded or unknown
    longest: int | None

    @abstractmethod
    def edges(self) -> Edges:
        """What each next code point leads to; memoized. Targets are never empty: an edge into a dead end is left out.

        Raises ConstraintError past a limit (too many positions in one state, an emptiness question that takes too
        much work) and :class:`..interface.Unfinished` when the deadline passes; called again, it goes on where it was.
        """

    @abstractmethod
    def capped(self, length: int) -> Language:
        """A position that allows the same texts of up to ``length`` code points (as prefixes), with every counter cut
        down to what such a text can reach. Positions that differ only in far-away bounds give the same object, so
        token masks are shared between them. Acceptance within ``length`` code points is the same too."""

    def matches(self, text: str) -> bool:
        """Whether ``text`` is a member."""
        at: Language = self
        for char in text:
            code = ord(char)
            for low, high, target in at.edges():
                if low <= code <= high:
                    at = target
                    break
            else:
                return False
        return at.accepting
