"""The object a program grows: ``s`` in ``def program(s, ...)``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ..runtime.errors import InvalidValue, NotReady
from ..runtime.protocol import Role
from .expr import Expr, RoleBeginExpr, RoleEndExpr, as_expr
from .program import Program
from .sampling import unexpected
from .strand import Strand
from .variables import SetVariable, Variable, fork_error
from .waiting import Read, Wait, complete, complete_async, texts, texts_async

if TYPE_CHECKING:
    from .group import ForkGroup

#: What SGLang's state has under a name that Plait does not, with what to use.
_ELSEWHERE = {
    "get_meta_info": "use s.result(name)",
    "image": "images are not available in this version",
    "video": "videos are not available in this version",
    "separate_reasoning": "it is not available in this version",
    "to_dict": "{name: s[name] for name in s.names()} has its values",
}


class State:
    """One growing text and its named values.

    ``s += ...`` never waits; reading waits for what it reads and raises the cause if that failed. On an event loop
    the blocking reads raise NotReady for what is not there yet, and name their ``await`` form.
    """

    def __init__(self, program: Program | None = None, strand: Strand | None = None) -> None:
        if program is None or strand is None:
            raise TypeError("a state is made by a program that runs: @plait.function def p(s): ..., then p.run()")
        self._program = program
        self._strand = strand
        self._ret_value: Any = None

    # ------------------------------------------------------------ growing

    def __iadd__(self, expr: Expr | str) -> State:  # type: ignore[misc]  # __add__ is there to refuse
        self._strand.add(as_expr(expr))
        return self

    def __add__(self, other: object) -> NoReturn:
        raise InvalidValue("a state grows in place: write s += ... instead of s = s + ...", "expr")

    def __radd__(self, other: object) -> NoReturn:
        raise InvalidValue("a state is no part of an expression: write s.text() to put its text there", "expr")

    def __setitem__(self, name: str, value: Any) -> None:
        """Names are bound in program order: a later gen of this name replaces the value, and the other way round."""
        self._strand.set(name, SetVariable(value))

    set_var = __setitem__

    def system(self) -> AbstractContextManager[None]:
        """``with s.system():`` what is added inside is the system turn."""
        return self._turn("system")

    def user(self) -> AbstractContextManager[None]:
        return self._turn("user")

    def assistant(self) -> AbstractContextManager[None]:
        return self._turn("assistant")

    @contextmanager
    def _turn(self, role: Role) -> Iterator[None]:
        self._strand.add(RoleBeginExpr(role))
        yield
        self._strand.add(RoleEndExpr(role))  # not after an exception: the turn has no end then

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """The text added inside becomes the variable ``name``."""
        start = len(self._strand.pieces)
        yield
        self._strand.set(name, self._strand.scope(name, start))

    # ------------------------------------------------------------ branching

    def fork(self, size: int | None = None, position_ids_offset: None = None) -> ForkGroup:
        """``size`` states (1) that go on from here, at the same time. See :class:`~plait.lang.group.ForkGroup`.

        ``position_ids_offset`` is SGLang's; only None is taken.
        """
        from .group import ForkGroup  # a group is made of states

        if position_ids_offset is not None:
            raise unexpected("fork()", "position_ids_offset")
        size = 1 if size is None else size
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 4096:
            raise InvalidValue(f"fork's size must be a whole number from 1 to 4096, not {size!r}", "size")
        return ForkGroup(self, [State(self._program, child) for child in self._strand.fork(size)])

    @contextmanager
    def copy(self) -> Iterator[State]:
        """``with s.copy() as c:`` a branch whose text stays its own and whose names come back as they are."""
        child = State(self._program, self._strand.fork(1)[0])
        try:
            yield child
            with self._program.lock:
                for name in child._strand.own_names():
                    self._strand.set(name, child._strand.variables[name])
        finally:
            child._strand.close()
            child._strand.seal()

    # ------------------------------------------------------------ values

    def __contains__(self, name: object) -> bool:
        """Whether the program has given this name so far, and it has not failed. Never waits."""
        variable = self._strand.variables.get(name) if isinstance(name, str) else None
        return variable is not None and not variable.failed()

    def __getitem__(self, name: str) -> Any:
        """The value, typed; a list after n > 1 or a join. Raises KeyError for a name the program does not give."""
        return complete(self._value(name), self._program.block(f"`await s.get({name!r})`"))

    get_var = __getitem__

    async def get(self, name: str) -> Any:
        """``s[name]`` in an async program."""
        return await complete_async(self._value(name))

    def result(self, name: str) -> Any:
        """The :class:`~plait.lang.result.Result` behind ``s[name]``, failed or not; a list where that is a list."""
        return complete(self._result(name), self._program.block(f"`await s.result_async({name!r})`"))

    async def result_async(self, name: str) -> Any:
        return await complete_async(self._result(name))

    def ref(self, name: str) -> Expr:
        """The variable's text as an expression, for any state of the same backend. Does not wait for it."""
        return complete(self._variable(name), self._program.block("it in the program that names it")).reference()

    def names(self) -> list[str]:
        """The names given so far, failed or not."""
        return list(self._strand.variables)

    # ------------------------------------------------------------ text

    def text(self) -> str:
        """All of it, what came before a fork and the marks of turns included. Raises what failed."""
        return complete(self._text(), self._program.block("`await s.text_async()`"))

    async def text_async(self) -> str:
        return await complete_async(self._text())

    def messages(self) -> list[dict[str, str]]:
        """The turns that have ended, as ``{"role": ..., "content": ...}``."""
        return complete(self._messages(), self._program.block("`await s.messages_async()`"))

    async def messages_async(self) -> list[dict[str, str]]:
        return await complete_async(self._messages())

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text, or one variable's, as it comes: gens piece by piece in a run with stream=True, else whole.

        Together the pieces are the text. Ends with the program; inside the program, with what was added so far.
        With n > 1 it gives the first choice.
        """
        return texts(self._stream(var_name), self._program.block("`async for piece in s.text_aiter()`"))

    def text_aiter(self, var_name: str | None = None) -> AsyncIterator[str]:
        """:meth:`text_iter` for an event loop."""
        return texts_async(self._stream(var_name))

    text_async_iter = text_aiter

    # ------------------------------------------------------------ the run

    def sync(self) -> None:
        """Waits until everything added so far has ended, well or not."""
        complete(self._sync(), self._program.block("`await s.sync_async()`"))

    async def sync_async(self) -> None:
        await complete_async(self._sync())

    def error(self) -> BaseException | None:
        """What went wrong, or None: the program's exception, else this state's first failed op, else its branches'.

        Waits as :meth:`sync` does.
        """
        return complete(self._error(), self._program.block("`await s.error_async()`"))

    async def error_async(self) -> BaseException | None:
        return await complete_async(self._error())

    def abort(self) -> None:
        """Ends the whole program now, its branches too; never waits. What has its value keeps it, the rest raises
        :class:`~plait.runtime.errors.Aborted` when read. A program that has ended already is left as it is."""
        self._program.give_up()

    @property
    def ret_value(self) -> Any:
        """What the function returned; of a stream run, waits for it. Raises the program's own exception."""
        return complete(self._returned(), self._program.block("`await s.text_async()` first"))

    def __str__(self) -> str:
        """The text, for ``print``: never raises. Where something failed, what came before, and the error in brackets;
        on an event loop, what is there."""
        parts: list[str] = []
        try:
            for part in self.text_iter():
                parts.append(part)  # one by one: what came before an error is kept
        except NotReady:
            pass
        except Exception as error:
            parts.append(f" [{type(error).__name__}: {error}]")
        return "".join(parts)

    def __repr__(self) -> str:
        names = self.names()
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        failure = self._program.failure or self._strand.error
        failed = "" if failure is None else f", {type(failure).__name__}"
        return f"<plait.State {'ended' if self._strand.over else 'running'}{failed}, names: {shown or 'none'}>"

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a state cannot be iterated over: s.text_iter() gives its text, {name: s[name] for name in s.names()} its "
            "values"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a state cannot be pickled or deep-copied: it belongs to its backend. Keep s.text(), s.messages() and "
            "{name: s[name] for name in s.names()}; s.copy() and s.fork() branch it inside its program"
        )

    def __getattr__(self, name: str) -> NoReturn:
        hint = f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"a state has no attribute {name!r}{hint}")

    # ------------------------------------------------------------ reads

    def _variable(self, name: str) -> Read[Variable]:
        strand = self._strand
        while True:
            seen = strand.version
            variable = strand.variables.get(name)
            if variable is not None:
                strand.flush()
                return variable
            if strand.over or not self._more_may_come():
                break
            yield Wait(strand, seen)
        if self._program.failure is not None:
            raise self._program.failure
        known = ", ".join(strand.variables) or "none"
        raise KeyError(f"no variable {name!r}; known: {known}")

    def _more_may_come(self) -> bool:
        return self._program.streaming and self._program.from_outside

    def _value(self, name: str) -> Read[Any]:
        variable = yield from self._variable(name)
        return (yield from variable.value())

    def _result(self, name: str) -> Read[Any]:
        variable = yield from self._variable(name)
        return (yield from variable.result())

    def _stream(self, name: str | None) -> Read[None]:
        if name is not None:
            variable = yield from self._variable(name)
            yield from variable.stream()
            return
        strand, index = self._strand, 0
        while True:
            seen = strand.version
            over = strand.over  # before the pieces: what is added in between comes with the next round
            pieces = strand.pieces[index:]
            index += len(pieces)
            if pieces:
                strand.flush()
                for piece in pieces:
                    yield from piece.stream()
            elif over or not self._more_may_come():
                break
            else:
                yield Wait(strand, seen)
        failure = self._program.failure or strand.broken  # a failed text has no outcome of its own
        if failure is not None:
            raise failure

    def _text(self) -> Read[str]:
        parts: list[str] = []
        for step in self._stream(None):
            if isinstance(step, Wait):
                yield step
            else:
                parts.append(step)
        return "".join(parts)

    def _messages(self) -> Read[list[dict[str, str]]]:
        yield from self._settled()
        messages: list[dict[str, str]] = []
        content: list[str] = []
        for piece in list(self._strand.pieces):
            text = yield from piece.whole()
            if piece.mark == "begin":
                content = []
            elif piece.mark == "end":
                messages.append({"role": str(piece.role), "content": "".join(content)})
            else:
                content.append(text)
        return messages

    def _settled(self) -> Read[None]:
        """Until the strand has all its pieces: at once inside a program, at the end outside a stream run."""
        while self._more_may_come():
            seen = self._strand.version
            if self._strand.over:
                break
            yield Wait(self._strand, seen)
        self._strand.flush()

    def _sync(self) -> Read[None]:
        yield from self._settled()
        for piece in list(self._strand.pieces):
            if piece.outcome is not None:
                yield from piece.outcome.until_finished()
        for outcome in list(self._strand.outcomes.values()):
            yield from outcome.until_finished()

    def _error(self) -> Read[BaseException | None]:
        yield from self._sync()
        if self._program.failure is not None:
            return self._program.failure
        return (yield from _error_of(self._strand))

    def _returned(self) -> Read[Any]:
        yield from self._settled()
        if self._program.failure is not None:
            raise self._program.failure
        return self._ret_value


def _error_of(strand: Strand) -> Read[BaseException | None]:
    for outcome in list(strand.outcomes.values()):
        yield from outcome.until_finished()
    if strand.error is not None:
        return strand.error
    for group in list(strand.groups):
        errors: dict[int, Exception] = {}
        for index, child in enumerate(group):
            error = yield from _error_of(child)
            if isinstance(error, Exception):
                errors[index] = error
        if errors:
            return fork_error("a fork", errors)
    return None
