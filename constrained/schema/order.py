"""Which names of one clause's objects are told apart, and in which order they come.

::

    lists   [["a", "b"], ["c"]]   each declared name in the first ``properties`` that lists it: in its order;
                                  different lists interleave freely
    free    only required, or their presence decides: anywhere
    late    only of a value that is excluded, or asked for beside other schemas: after all lists, as undeclared keys

With any order there are no lists, and every name is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .keys import KeyRule
from .violations import Violation

_NOBODY: frozenset[str] = frozenset()


class Order:
    """``declared``: names by list. ``late``: names of a value that is asked for beside other schemas. ``needed``:
    required names. ``counted``: names that are counted and few."""

    def __init__(
        self,
        declared: list[list[str]],
        late: set[str],
        needed: dict[str, None],
        absent: set[str],
        dependent: dict[str, tuple[str, ...]],
        rules: Sequence[KeyRule],
        violations: Sequence[Violation],
        counted: Iterable[str],
        any_order: bool,
    ) -> None:
        self._absent = absent
        deciding = [name for one, then in dependent.items() for name in (one, *then)] if dependent else []
        tracked: dict[str, object] = {}
        for names in declared:
            tracked.update(dict.fromkeys(names))
        tracked.update(needed)
        if absent:
            tracked.update(dict.fromkeys(sorted(absent)))
        tracked.update(dict.fromkeys(deciding))
        for rule in rules:
            tracked.update(rule.named)
        for violation in violations:
            tracked.update(dict.fromkeys(violation.named))
        tracked.update(dict.fromkeys(counted))
        self.tracked = list(tracked)
        self.lists: list[list[str]] = [] if any_order else declared
        if absent:
            self.lists = [[name for name in names if name not in absent] for names in self.lists]
        place = self._place = {name: (at, n) for at, names in enumerate(self.lists) for n, name in enumerate(names)}
        others: list[str] = []
        if len(place) < len(tracked):
            others = [name for name in tracked if name not in place and name not in absent]
        self.late: list[str] = []
        self.free = others
        if others and not any_order:
            # a name that only an excluded value has is as undeclared as any other: what unique items exclude must not
            # allow anything that is not allowed without it
            free = {*deciding, *(name for name in needed if name not in late)}
            free.update(name for one in violations if not one.constant for name in one.named)
            self.late = [name for name in others if name not in free]
            self.free = [name for name in others if name in free]
        self.anywhere = frozenset(self.free) if self.free else _NOBODY
        self.begin = (0,) * len(self.lists)
        self.end = tuple(map(len, self.lists))
        #: names whose use a state has to know
        self.memory = frozenset((*deciding, *others)) if deciding or others else _NOBODY

    def available(self, name: str, at: tuple[int, ...], used: frozenset[str]) -> bool:
        """Whether the name can still come behind these places and names."""
        place = self._place.get(name)
        if place is not None:
            return place[1] >= at[place[0]]
        return name not in used and name not in self._absent

    def before_the_end(self, name: str, at: tuple[int, ...]) -> bool:
        """Whether it stands in a list behind these places."""
        place = self._place.get(name)
        return place is not None and place[1] >= at[place[0]]
