"""A regex tree as a nondeterministic automaton over UTF-8 bytes.

Anchors are edges that read nothing but ask something of the place: whether nothing was read before, whether a newline
was, or what may still be read. The last kind turns into a *mode* that travels with the state:

========  =====================================================
FREE      anything may follow
LAST_NL   exactly one newline follows, and then the end (``$``)
NEXT_NL   the next byte is a newline (``$`` under MULTILINE)
ENDED     nothing more may be read
========  =====================================================
"""

from __future__ import annotations

from .charset import ALL, utf8
from .interface import ConstraintError
from .regex import Alt, Anchor, AnchorKind, Chars, Look, Node, Repeat, Seq

FREE, LAST_NL, NEXT_NL, ENDED = range(4)

#: what was read before a state's place
MIDDLE, AFTER_NEWLINE, START = range(3)

NEWLINE = 10

#: most states of the nondeterministic automaton
MAX_NODES = 1_000_000

ANYTHING = Repeat(Chars(ALL), 0, None)

_END_MODES: dict[AnchorKind, dict[int, tuple[int, ...]]] = {
    "end": {FREE: (ENDED,), ENDED: (ENDED,)},
    "last_line_end": {FREE: (ENDED, LAST_NL), LAST_NL: (LAST_NL,), NEXT_NL: (LAST_NL,), ENDED: (ENDED,)},
    "line_end": {FREE: (ENDED, NEXT_NL), LAST_NL: (LAST_NL,), NEXT_NL: (NEXT_NL,), ENDED: (ENDED,)},
}


class Nfa:
    """``edges[node]`` = (low byte, high byte, target); ``empty[node]`` = targets reached by reading nothing;
    ``anchors[node]`` = (kind, target). A *place* is ``node * 4 + mode``."""

    def __init__(self, tree: Node) -> None:
        if size(tree) > MAX_NODES:
            raise ConstraintError(
                f"the regex needs more than {MAX_NODES:,} automaton states; lower the counts of its repeats"
            )
        self.edges: list[list[tuple[int, int, int]]] = []
        self.empty: list[list[int]] = []
        self.anchors: dict[int, tuple[AnchorKind, int]] = {}
        #: node -> (number of the lookahead, negative, target); what it looks for, followed by anything
        self.looks: dict[int, tuple[int, bool, int]] = {}
        self.look_bodies: list[Nfa] = []
        start, self.accept = self.node(), self.node()
        self.build(tree, start, self.accept)
        self.start = start
        self._closures: dict[tuple[int, int], tuple[int, ...]] = {}

    def node(self) -> int:
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def build(self, tree: Node, start: int, end: int) -> None:
        """Everything ``tree`` matches leads from ``start`` to ``end``."""
        if isinstance(tree, Chars):
            self._chars(tree, start, end)
        elif isinstance(tree, Seq):
            for part in tree.parts[:-1]:
                after = self.node()
                self.build(part, start, after)
                start = after
            if tree.parts:
                self.build(tree.parts[-1], start, end)
            else:
                self.empty[start].append(end)
        elif isinstance(tree, Alt):
            for option in tree.options:
                # a node of its own for each: an option that loops to its start must not reach the others
                first = self.node()
                self.empty[start].append(first)
                self.build(option, first, end)
        elif isinstance(tree, Repeat):
            self._repeat(tree, start, end)
        elif isinstance(tree, Anchor):
            # anchors hang on a node of their own, so that a node has at most one
            here = self.node()
            self.empty[start].append(here)
            self.anchors[here] = (tree.kind, end)
        else:
            here = self.node()
            self.empty[start].append(here)
            self.looks[here] = (len(self.look_bodies), tree.negative, end)
            self.look_bodies.append(Nfa(Seq((tree.body, ANYTHING))))

    def _chars(self, tree: Chars, start: int, end: int) -> None:
        automaton = utf8(tree.ranges)
        last = len(automaton) - 1
        local = {0: end, last: start}
        for at in range(1, last):
            local[at] = self.node()
        for at in range(1, last + 1):
            self.edges[local[at]].extend((low, high, local[child]) for low, high, child in automaton[at])

    def _repeat(self, tree: Repeat, start: int, end: int) -> None:
        for _ in range(tree.low):
            after = self.node()
            self.build(tree.body, start, after)
            start = after
        if tree.high is None:
            loop, back = self.node(), self.node()
            self.empty[start].append(loop)
            self.empty[loop].append(end)
            self.build(tree.body, loop, back)
            self.empty[back].append(loop)
            return
        for _ in range(tree.high - tree.low):
            # `end` directly from each: closures stay small however many may follow
            self.empty[start].append(end)
            first, after = self.node(), self.node()
            self.empty[start].append(first)
            self.build(tree.body, first, after)
            start = after
        self.empty[start].append(end)

    # ------------------------------------------------------------ reading nothing

    def closure(self, place: int, before: int) -> tuple[int, ...]:
        """Places reached from ``place`` by reading nothing that can read a byte, or that accept as they are."""
        key = (place, before if self.anchors else MIDDLE)
        found = self._closures.get(key)
        if found is None:
            found = self._closures[key] = self._close(place, before)
        return found

    def _close(self, place: int, before: int) -> tuple[int, ...]:
        seen = {place}
        todo = [place]
        kept = []
        while todo:
            here = todo.pop()
            node, mode = divmod(here, 4)
            reads = mode != ENDED and self.edges[node]
            if reads or (node == self.accept and mode in (FREE, ENDED)):
                kept.append(here)
            for there in self.passes(here, before):
                if there not in seen:
                    seen.add(there)
                    todo.append(there)
        return tuple(sorted(kept))

    def passes(self, place: int, before: int) -> list[int]:
        """Places one empty edge or one anchor away. Lookaheads are not followed."""
        node, mode = divmod(place, 4)
        following = [target * 4 + mode for target in self.empty[node]]
        anchor = self.anchors.get(node)
        if anchor:
            kind, target = anchor
            if kind == "start":
                modes: tuple[int, ...] = (mode,) if before == START else ()
            elif kind == "line_start":
                modes = (mode,) if before != MIDDLE else ()
            else:
                modes = _END_MODES[kind].get(mode, ())
            following.extend(target * 4 + m for m in modes)
        return following

    def accepts(self, place: int) -> bool:
        return place // 4 == self.accept and place % 4 in (FREE, ENDED)

    def moves(self, place: int) -> list[tuple[int, int, int]]:
        """(low byte, high byte, next place) of a place."""
        node, mode = divmod(place, 4)
        if mode == FREE:
            return [(low, high, target * 4) for low, high, target in self.edges[node]]
        if mode == ENDED:
            return []
        after = ENDED if mode == LAST_NL else FREE
        return [
            (NEWLINE, NEWLINE, target * 4 + after) for low, high, target in self.edges[node] if low <= NEWLINE <= high
        ]


def size(tree: Node) -> int:
    """States that :class:`Nfa` will need for ``tree``, counted without building it."""
    if isinstance(tree, Chars):
        return len(utf8(tree.ranges))
    if isinstance(tree, Seq):
        return 1 + sum(map(size, tree.parts))
    if isinstance(tree, Alt):
        return 1 + sum(map(size, tree.options))
    if isinstance(tree, Repeat):
        copies = tree.low + 1 if tree.high is None else max(tree.high, 1)
        return 2 + copies * (2 + size(tree.body))
    if isinstance(tree, Look):
        return 16 + size(tree.body)
    return 1
