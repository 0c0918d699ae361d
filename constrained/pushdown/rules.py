"""Context-free rules that are unfolded on demand. What JSON Schema, grammars and the composable form compile to.

::

    object -> "{" members "}"               Production = (b"{", 7, b"}")
    members -> pair | pair "," members      bytes: a literal          int: a nonterminal
    pair -> string ":" value                Lexeme: a regular language, met by its own automaton

Two promises hold for every nonterminal, and whoever adds it keeps them: it can produce something (so a text that got
this far can always be completed), and it is not left-recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..regular.language import Language


class Lexeme(NamedTuple):
    """A regular language as it is written: ``raw`` UTF-8, or ``json``: the body of a JSON string and its closing quote.

    In ``json`` a code point may be written raw or escaped as JSON allows (see :mod:`.encoding`), so that
    languages speak of characters and never of escapes.
    """

    language: Language
    json: bool = False


Item = bytes | int | Lexeme
Production = tuple[Item, ...]
#: the text of the JSON value that was closed just before -> the nonterminal to go on with; None: not that value
Resolve = Callable[[bytes], "int | None"]
#: what follows in a token -> True where that is possible behind any value, if it is possible at all
Indifferent = Callable[[bytes], bool]


class Rules:
    """Nonterminals 0, 1, 2, ... with their productions. An empty production is allowed."""

    def __init__(self) -> None:
        self._expand: list[Callable[[], Iterable[Production]]] = []
        self._known: dict[int, tuple[Production, ...]] = {}
        #: nonterminals that say what others say, but for white space: whoever looks for faults need not open them
        self.again: set[int] = set()
        #: of some: a production that writes their shortest texts. Where only lengths matter it stands for them all
        self.like: dict[int, Callable[[], Production]] = {}
        #: nonterminals that depend on the JSON value just before them; see :meth:`add_dependent`
        self.resolve: dict[int, Resolve] = {}
        #: of some of these: bytes behind which need no look at the value
        self.indifferent: dict[int, Indifferent] = {}

    def add(
        self,
        expand: Callable[[], Iterable[Production]],
        *,
        again: bool = False,
        like: Callable[[], Production] | None = None,
    ) -> int:
        """A new nonterminal; ``expand`` is called once, when the machine first reaches it. See :attr:`again` and
        :attr:`like`."""
        nonterminal = len(self._expand)
        self._expand.append(expand)
        if again:
            self.again.add(nonterminal)
        if like is not None:
            self.like[nonterminal] = like
        return nonterminal

    def add_dependent(
        self,
        expand: Callable[[], Iterable[Production]],
        resolve: Resolve,
        indifferent: Indifferent | None = None,
        *,
        again: bool = False,
        like: Callable[[], Production] | None = None,
    ) -> int:
        """A nonterminal whose continuation depends on the JSON value that was closed just before it (uniqueItems).

        ``resolve`` gives, for that value's text, the nonterminal that really stands here. ``expand`` gives what it
        would be without that knowledge: a superset of every ``resolve``. ``indifferent`` saves looking: asked for
        bytes that ``expand`` allows and that close no further value, True says that every value which may stand here
        allows them too.
        """
        nonterminal = self.add(expand, again=again, like=like)
        self.resolve[nonterminal] = resolve
        if indifferent is not None:
            self.indifferent[nonterminal] = indifferent
        return nonterminal

    def productions(self, nonterminal: int) -> tuple[Production, ...]:
        known = self._known.get(nonterminal)
        if known is None:
            known = self._known[nonterminal] = tuple(self._expand[nonterminal]())
        return known

    def shortest(self, nonterminal: int) -> tuple[Production, ...]:
        """The productions that its shortest texts come from."""
        like = self.like.get(nonterminal)
        return self.productions(nonterminal) if like is None else (like(),)

    def __len__(self) -> int:
        return len(self._expand)
