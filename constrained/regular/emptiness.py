"""Whether a position holds any string, and which ones: searches over raw positions, memoized and resumable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..interface import ConstraintError
from .language import Language
from .states import State

if TYPE_CHECKING:
    from .languages import Languages


class _Search:
    """Depth first, shortest way out first; stops at the first accepting position."""

    def __init__(self, start: State) -> None:
        self.start = start
        self.work = 0
        self.seen: set[State] = {start}
        self.path: list[tuple[State, list[Language], Iterator[Language]]] = []
        self.pending: State | None = start


class Searches:
    """The questions under way, each kept until it is answered."""

    def __init__(self, owner: Languages, limit: int) -> None:
        self._owner = owner
        self._limit = limit
        self._open: dict[State, _Search] = {}

    def settle(self, start: State) -> None:
        """Find ``start.live``. Positions met on the way learn theirs as far as it shows."""
        search = self._open.get(start)
        if search is None:
            search = self._open[start] = _Search(start)
        if self._run(search):
            for state, _, _ in search.path:
                state.live = True
        else:
            for state in search.seen:
                state.live = False
        del self._open[start]

    def _run(self, search: _Search) -> bool:
        path, seen = search.path, search.seen
        while True:
            pending = search.pending
            if pending is not None:
                # raw() may stop at the deadline: the search then stands as it was
                targets = sorted((target for _, target in pending.raw()), key=_shortest)
                search.work += pending.size + len(targets)
                if search.work > self._limit:
                    path.clear()  # asked again, it is refused at once: what was found is of no use any more
                    seen.clear()
                    raise ConstraintError(
                        f"whether anything satisfies all patterns and bounds at once takes more than {self._limit:,} "
                        "steps to decide; use fewer lookaheads, negations or patterns on the same string, or lower "
                        "bounds"
                    )
                path.append((pending, targets, iter(targets)))
                search.pending = None
            for target in path[-1][2]:
                if not isinstance(target, State) or target.live:
                    return True
                if target.live is None and target not in seen:
                    seen.add(target)
                    search.pending = target
                    break
            else:
                state, targets, _ = path.pop()
                if all(isinstance(target, State) and target.live is False for target in targets):
                    state.live = False
                if not path:
                    return False

    def members(self, language: Language, limit: int) -> list[str] | None:
        """All strings of ``language``, sorted, or None if there are more than ``limit``."""
        found: list[str] = []
        # (position, text so far); a position met again on its own path means no end
        path: list[tuple[Language, Iterator[tuple[str, Language]]]] = []
        on_path: set[Language] = set()
        text: list[str] = []
        following: Language | None = language if language is not self._owner.EMPTY else None
        while True:
            if following is not None:
                if following in on_path:
                    return None
                if following.accepting:
                    found.append("".join(text))
                    if len(found) > limit:
                        return None
                edges = following.edges()
                if sum(high - low + 1 for low, high, _ in edges) > limit:
                    return None
                on_path.add(following)
                path.append((following, _single_steps(edges)))
                following = None
            if not path:
                return sorted(found)
            step = next(path[-1][1], None)
            if step is None:
                on_path.discard(path.pop()[0])
                if text:
                    text.pop()
            else:
                text.append(step[0])
                following = step[1]


def _single_steps(edges: tuple[tuple[int, int, Language], ...]) -> Iterator[tuple[str, Language]]:
    for low, high, target in edges:
        for code in range(low, high + 1):
            yield chr(code), target


def _shortest(language: Language) -> int:
    return language.shortest
