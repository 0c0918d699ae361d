"""Whether any JSON value satisfies a goal: a least fixpoint, so a schema that always needs itself once more has none.

A question met while it is being answered counts as "no". A "yes" found that way is final; a "no" is final only once
nothing it leaned on is still open, so it is kept aside (``_leaning``) until then, as Tarjan's algorithm keeps a
strongly connected component until its root is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..interface import ConstraintError, Unfinished
from .errors import SchemaError
from .goals import Goal, Literal
from .in_place import applies_in_place

if TYPE_CHECKING:
    from ..regular.languages import Languages

#: values inside values that a question may go down through required keys and items
MAX_DEPTH = 60
#: questions, states and keys looked at to answer one question
MAX_WORK = 100_000
_CLOSED = 1 << 30


class Solver:
    """Answers :meth:`ask`, with ``check`` saying whether a goal holds for a value of some type."""

    def __init__(self, languages: Languages, check: Callable[[Goal], bool]) -> None:
        self._languages = languages
        self._check = check
        self._open = 0
        #: the outermost open question that the answer being found leans on
        self._lowest = _CLOSED
        self._leaning: dict[Goal, int] = {}
        self._work = 0
        self._searches = 0

    def ask(self, goal: Goal) -> bool:
        known = goal.known
        if known is not None:
            return known
        if goal.depth >= 0:
            self._lowest = min(self._lowest, goal.depth)
            return False
        leaning = self._leaning.get(goal)
        if leaning is not None:
            self._lowest = min(self._lowest, leaning)
            return False
        if self._open >= MAX_DEPTH:
            where = goal.literals[0].node.pointer if goal.literals else "#"
            raise SchemaError("", where, f"more than {MAX_DEPTH} required values stand inside one another here")
        if not self._open and not self._searches:
            self._work = 0
        self.work()
        return self._answer(goal)

    def _answer(self, goal: Goal) -> bool:
        if len(goal.literals) == 1 and plainly_satisfiable(goal.literals[0]):
            goal.known = True
            return True
        outer, self._lowest = self._lowest, _CLOSED
        depth = goal.depth = self._open
        self._open += 1
        mark = len(self._leaning)
        answer = False
        try:
            answer = self._check(goal)
        except BaseException:
            self._forget(mark)
            self._lowest = outer
            raise
        finally:
            self._open -= 1
            goal.depth = -1
        if answer:
            goal.known = True
            self._forget(mark)
            self._lowest = outer
            return True
        if self._lowest >= depth:
            goal.known = False
            for one in list(self._leaning)[mark:]:
                one.known = False
            self._forget(mark)
            self._lowest = outer
            return False
        self._leaning[goal] = self._lowest
        self._lowest = min(outer, self._lowest)
        return False

    def _forget(self, mark: int) -> None:
        while len(self._leaning) > mark:
            self._leaning.popitem()

    def surely_none(self, goal: Goal) -> bool:
        """No value satisfies it, and that is final."""
        return not self.ask(goal) and goal.known is False

    @property
    def definite(self) -> bool:
        """No question is open, so what is found now leans on nothing."""
        return self._open == 0

    def begin(self) -> int:
        """Before a search whose "no" may be remembered only if it leans on nothing open; see :meth:`end`."""
        if not self._open and not self._searches:
            self._work = 0
        self._searches += 1
        outer, self._lowest = self._lowest, _CLOSED
        return outer

    def end(self, outer: int) -> bool:
        """After it: whether its "no" is final."""
        self._searches -= 1
        final = self._lowest == _CLOSED
        self._lowest = min(outer, self._lowest)
        return final

    def work(self, amount: int = 1) -> None:
        """Count work and keep to the deadline."""
        self._work += amount
        if self._work > MAX_WORK:
            raise ConstraintError(
                f"JSON Schema: whether it can be satisfied took more than {MAX_WORK:,} steps to decide; "
                "write fewer alternatives, or fewer keys that depend on each other"
            )
        deadline = self._languages.deadline
        if deadline is not None and time.monotonic() > deadline:
            raise Unfinished


def plainly_satisfiable(literal: Literal) -> bool:
    """Whether one look tells that some value satisfies it. Most schemas of properties are that simple."""
    node = literal.node
    if not literal.positive or node.always is not None or node.values is not None or applies_in_place(node):
        return False
    if node.unevaluated_properties is not None or node.unevaluated_items is not None:
        return False
    types = node.types
    if types is None:
        return True  # null
    if "boolean" in types or "null" in types:
        return True
    if "string" in types and not (
        node.pattern is not None or node.format is not None or node.min_length or node.max_length is not None
    ):
        return True
    if "object" in types and not (node.required or node.min_properties):
        return True
    if "array" in types and not (node.min_items or node.contains is not None):
        return True
    return "number" in types and (
        node.minimum is None
        and node.maximum is None
        and node.exclusive_minimum is None
        and node.exclusive_maximum is None
        and node.multiple_of is None
    )
