"""JSON whose layout the text itself decides (``whitespace="auto"``): one of compact, spaced, indented by 1 to 8 columns
or by a tab, for the whole value.

::

    {"a"        not decided yet            {"a":1    compact        {"a": 1    spaced        [[1    not decided yet
    {⏎␣␣        two columns or more        {⏎␣␣"     two columns    {} [] 1    all of them, and nothing to decide

A line break behind the first bracket decides for columns, and the white space up to the first character how many. Else
the first colon or comma decides. Before it stands nothing but brackets of arrays, and at most one key: those rules are
made here, once for all layouts. The arrays that are open there are *around* what comes next, and when it is decided,
what ends them in that layout is written behind it. From there on the rules are those of one layout, and white space is
forced. All of it is made only where a text gets to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..interface import ConstraintError
from ..pushdown.rules import Production
from .arrays import ArrayClause, Place, Row
from .layout import Indented, Layout
from .objects import ObjectClause, State
from .productions import FirstMember, Members, Rows

if TYPE_CHECKING:
    from .compile import Compiler
    from .goals import Goal

COMPACT, SPACED = Layout(b""), Layout(b" ", again=True)
#: what a text without line breaks may be laid out as
_FLAT = (COMPACT, SPACED)
#: of a first key: its colon is common to both
_COMMON = Layout(b"", again=True)
#: columns of one level of indentation
COLUMNS = range(1, 9)
#: arrays that are open before anything is decided, at most: as many as a machine's stack has items
MAX_OPEN = 20_000


class Undecided:
    """The productions of one schema's values up to where their layout is decided."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self._rows: dict[tuple[ArrayClause, Layout], Rows] = {}

    def start(self, goal: Goal) -> int:
        """A whole value. The rules of the compact layout are those that are looked at for faults."""
        self.compiler.value(goal, COMPACT)
        return self.value(goal)

    def value(self, goal: Goal, around: Around | None = None) -> int:
        """A value with nothing decided before it, and the end of what is around it."""
        return self.add(
            lambda: self._value(goal, around),
            like=lambda: (self.compiler.value(goal, COMPACT), *_end(around, COMPACT)),
        )

    def _value(self, goal: Goal, around: Around | None) -> Iterator[Production]:
        after = () if around is None else (around.after,)
        for part in self.compiler.parts(goal):
            if isinstance(part, ObjectClause):
                if part.may_end(part.start):
                    yield (b"{}", *after)
                yield from self._object(part, around)
            elif isinstance(part, ArrayClause):
                if part.may_end(part.start):
                    yield (b"[]", *after)
                yield from self._array(part, around)
            else:
                yield (*part, *after)

    # ------------------------------------------------------------ what begins with a bracket

    # ------------------------------------------------------------ what begins with a bracket

    def _object(self, clause: ObjectClause, around: Around | None) -> Iterator[Production]:
        members: dict[Layout, Members] = {}

        def decided(goal: Goal, after: State, layout: Layout) -> Production:
            if layout not in members:
                members[layout] = Members(self.compiler, clause, layout)
            return (self.compiler.value(goal, layout), members[layout].tail(after))

        def behind(goal: Goal, after: State) -> Production:
            return (self._decided(partial(decided, goal, after), around),)

        keys = FirstMember(self.compiler, clause, _COMMON, behind).keys(clause.start)
        if keys is not None:
            yield (b"{", keys)
            if around is None:
                yield from self._lines(b"{", self._member, clause)

    def _array(self, clause: ArrayClause, around: Around | None) -> Iterator[Production]:
        if self.rows(clause, COMPACT).items(clause.start) is not None:
            yield (b"[", self.add(partial(self._item, clause, around)))
            if around is None:
                yield from self._lines(b"[", self._row, clause)

    def _item(self, clause: ArrayClause, around: Around | None) -> Iterator[Production]:
        for row in clause.rows(clause.start):
            yield (self.value(row.goal, Around(self, clause, row, around)),)

    # ------------------------------------------------------------ how it is decided

    def _decided(self, rest: Callable[[Layout], Production], around: Around | None) -> int:
        """What comes behind the first colon or comma."""

        def productions() -> Iterator[Production]:
            for layout in _FLAT:
                yield (layout.gap, *rest(layout), *_end(around, layout))

        rules = self.compiler.rules  # nothing is asked of schemas there: the detour of Compiler.add is spared
        return rules.add(productions, again=True, like=lambda: (*rest(COMPACT), *_end(around, COMPACT)))

    def _lines(
        self, bracket: bytes, first: Callable[[Any, Layout], Production], clause: ObjectClause | ArrayClause
    ) -> Iterator[Production]:
        """The line break behind the first bracket, and as ``first`` says in the layout of the white space behind it."""
        yield (bracket + b"\n" + b" " * COLUMNS[0], self._columns(first, clause, COLUMNS[0]))
        yield (bracket + b"\n\t", self.add(lambda: (first(clause, Indented(b"\t", again=True)),)))

    def _columns(self, first: Callable[[Any, Layout], Production], clause: Any, columns: int) -> int:
        """What comes behind so many columns."""
        made: list[Production] = []

        def here() -> Production:
            if not made:
                made.append(first(clause, Indented(b" " * columns, again=True)))
            return made[0]

        def productions() -> Iterator[Production]:
            yield here()
            if columns < COLUMNS[-1]:
                yield (b" ", self._columns(first, clause, columns + 1))

        return self.compiler.rules.add(productions, again=True, like=here)

    def _member(self, clause: ObjectClause, layout: Layout) -> Production:
        members = Members(self.compiler, clause, layout)

        def behind(goal: Goal, after: State) -> Production:
            return (self.compiler.value(goal, layout.inside), members.tail(after))

        first = FirstMember(self.compiler, clause, layout, behind, quote=b"")
        # the quote is written apart: only behind it are keys looked at, which is in one layout
        return (b'"', self.add(lambda: ((_there(first.keys(clause.start)),),)))

    def _row(self, clause: ArrayClause, layout: Layout) -> Production:
        return (_there(self.rows(clause, layout).items(clause.start)),)

    # ------------------------------------------------------------ for Around

    def rows(self, clause: ArrayClause, layout: Layout) -> Rows:
        found = self._rows.get((clause, layout))
        if found is None:
            found = self._rows[clause, layout] = Rows(self.compiler, clause, layout)
        return found

    def comma(self, clause: ArrayClause, place: Place, around: Around | None) -> int:
        """What comes behind the comma of an undecided array's first item."""
        return self._decided(lambda layout: (_there(self.rows(clause, layout).items(place)),), around)

    def add(self, expand: Callable[[], Iterable[Production]], like: Callable[[], Production] | None = None) -> int:
        return self.compiler.add(expand, again=True, like=like)


class Around:
    """The arrays, the innermost first, whose first items are not over while nothing is decided."""

    def __init__(self, undecided: Undecided, clause: ArrayClause, row: Row, outer: Around | None) -> None:
        """``row``: the item that is being written."""
        self._undecided = undecided
        self._clause = clause
        self._row = row
        self._outer = outer
        self._depth: int = 1 if outer is None else outer._depth + 1
        if self._depth > MAX_OPEN:
            raise ConstraintError(
                f"the text is nested more than {MAX_OPEN} levels deep; bound the recursion of the schema or grammar"
            )
        self._after: int | None = None
        self._tails: dict[Place, int] = {}
        self._ends: dict[Layout, int] = {}

    def end(self, layout: Layout) -> int:
        """What comes after the item, up to the end of all arrays, where the item decided."""
        found = self._ends.get(layout)
        if found is None:
            rows = self._undecided.rows(self._clause, layout)
            found = self._ends[layout] = self._undecided.add(
                lambda: ((rows.behind(self._row), *_end(self._outer, layout)),)
            )
        return found

    @property
    def after(self) -> int:
        """The same, where nothing is decided yet."""
        if self._after is None:
            self._after = self._dependent() if self._row.remember else self._tail(self._row.after)
        return self._after

    def _dependent(self) -> int:
        clause, place = self._clause, self._row.after

        def resolve(text: bytes) -> int | None:
            after = clause.follow(place, text)
            return None if after is None else self._tail(after)

        return self._undecided.compiler.rules.add_dependent(
            lambda: list(self._behind(place)),
            resolve,
            clause.indifference(place),
            again=True,
            like=lambda: (self.end(COMPACT),),
        )

    def _tail(self, place: Place) -> int:
        found = self._tails.get(place)
        if found is None:
            undecided = self._undecided
            rows = undecided.rows(self._clause, COMPACT)
            found = self._tails[place] = undecided.add(
                lambda: self._behind(place),
                like=lambda: (rows.tail(place), *_end(self._outer, COMPACT)),
            )
        return found

    def _behind(self, place: Place) -> Iterator[Production]:
        undecided, outer = self._undecided, self._outer
        if self._clause.may_end(place):
            yield (b"]", *(() if outer is None else (outer.after,)))
        if undecided.rows(self._clause, COMPACT).items(place) is not None:
            yield (b",", undecided.comma(self._clause, place, outer))


def _end(around: Around | None, layout: Layout) -> Production:
    return () if around is None else (around.end(layout),)


def _there(nonterminal: int | None) -> int:
    assert nonterminal is not None
    return nonterminal
