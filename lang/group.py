"""The branches of a fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, overload

from ..runtime.errors import InvalidValue
from .expr import Expr, as_expr
from .outcome import Outcome
from .waiting import complete_async

if TYPE_CHECKING:
    from .state import State

_JOIN_MODES = {
    "gather": False,
    "gather_variable": False,  # SGLang's name for it
    "append": True,
    "concate_and_append": True,  # SGLang's name for it
}


class ForkGroup(Sequence["State"]):
    """A list of states. ``group += x`` adds to each: one text or expression for all, a list with one for each, or a
    function of the branch's index. ``with s.fork(3) as group:`` joins at the end."""

    def __init__(self, parent: State, states: list[State]) -> None:
        self._parent = parent
        self._states = states
        self._joined: tuple[bool, Outcome] | None = None  # whether their texts were appended; when they have ended

    def __len__(self) -> int:
        return len(self._states)

    @overload
    def __getitem__(self, index: int) -> State: ...
    @overload
    def __getitem__(self, index: slice) -> list[State]: ...
    def __getitem__(self, index: int | slice) -> State | list[State]:
        return self._states[index]

    def __setitem__(self, index: int, state: State) -> None:
        """Only what ``group[i] += ...`` needs: the same state goes back to its place."""
        if self._states[index] is not state:
            raise InvalidValue("a branch cannot be replaced; use group[i] += ...", "index")

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)

    def __iadd__(  # type: ignore[misc]  # __add__ is there to refuse
        self, other: Expr | str | Sequence[Expr | str] | Callable[[int], Expr | str]
    ) -> Self:
        with self._parent._program.together():
            for state, expr in zip(self._states, self._one_each(other), strict=True):
                state._strand.add(as_expr(expr))
        return self

    def __add__(self, other: object) -> NoReturn:
        raise InvalidValue("branches grow in place: write forks += ... instead of forks = forks + ...", "expr")

    def _one_each(self, other: object) -> Sequence[object]:
        if isinstance(other, str | Expr):
            return [other] * len(self)
        if callable(other):
            return [other(index) for index in range(len(self))]
        if isinstance(other, Sequence):
            if len(other) != len(self):
                raise InvalidValue(f"{len(other)} expressions for {len(self)} branches", "expr")
            return other
        as_expr(other)  # says what is wrong with it
        return []

    def join(self, mode: str | None = None) -> None:
        """Closes the branches and gives the parent their names: a list for each, in branch order, None where a branch
        has no such name. Mode "append" (or "concate_and_append") also appends their texts. Does not wait: reading does.
        A second join does nothing.
        """
        self._join(mode)

    async def join_async(self, mode: str | None = None) -> None:
        """:meth:`join`, and waits until the branches have ended, well or not."""
        await complete_async(self._join(mode).until_finished())

    def _join(self, mode: str | None) -> Outcome:
        mode = "gather" if mode is None else mode
        if mode not in _JOIN_MODES:
            raise InvalidValue(f"mode must be one of {', '.join(_JOIN_MODES)}, not {mode!r}", "mode")
        append = _JOIN_MODES[mode]
        if self._joined is None:
            strands = [state._strand for state in self._states]
            self._joined = append, self._parent._strand.join(strands, append=append)
        appended, outcome = self._joined
        if appended != append:
            raise InvalidValue(
                f"these branches were joined already, {'with' if appended else 'without'} append", "mode"
            )
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.join()

    def __repr__(self) -> str:
        return f"<ForkGroup of {len(self)}>"
