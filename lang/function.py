"""``@function``: a Python function as a program, and the ways to run it."""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, overload

from ..runtime.backend import Backend
from ..runtime.errors import InvalidValue
from .batch import run_all, with_a_word_on_failures
from .defaults import check_backend, default_backend
from .methods import is_method
from .program import ACTIVE, Program, derive_seed
from .sampling import NOT_AVAILABLE, OPTION_NAMES, asks_nothing, normalize, number, unexpected
from .state import State
from .strand import Strand
from .waiting import complete, complete_async, loop_is_running, on_event_loop

#: Names that every run takes for itself, so no program parameter may have them.
_RESERVED = ("backend", "stream", "timeout")
_OF_BATCHES = ("num_threads", "progress_bar", "generator_style")

#: Where ``arun`` of a plain ``def`` runs; such a thread mostly waits.
_threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="plait-arun")


@dataclass(frozen=True)
class Call:
    """One run to be: checked arguments and options."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]  # normalized, without the seed
    seed: int | None
    timeout: float | None


class Function:
    """A program. The first parameter of its function holds the state; in a class, it may be ``self`` (or ``cls``) and
    the second the state.

    Every way to run it takes the program's own arguments, ``backend=``, ``timeout=`` (seconds for the whole run) and
    the sampling defaults of its gens (:class:`~plait.lang.sampling.SamplingOptions`, among them ``seed`` of the run);
    a program parameter hides a sampling default of the same name. Without ``backend`` the default one is used: inside
    a program, that program's.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        if isinstance(func, staticmethod):
            func = func.__func__
        if isinstance(func, classmethod):
            raise TypeError("put @classmethod above @plait.function, not below it")
        if not callable(func):
            raise TypeError(f"@function takes a function, not {type(func).__name__}")
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError("a program returns, it does not yield; read its text with text_iter()")
        self.func = func
        self.is_async = inspect.iscoroutinefunction(func)
        self._signature = inspect.signature(func)
        self._prefix: tuple[Any, ...] = ()  # the instance, of a method
        self._takes_instance = False  # known: it stands in a class, or was read from an instance
        self._bound: dict[str, Any] = {}
        parameters = list(self._signature.parameters.values())
        if not parameters or parameters[0].kind in (parameters[0].KEYWORD_ONLY, parameters[0].VAR_KEYWORD):
            raise TypeError(
                f"{self.name}: a program's first parameter holds its state, as in `def {self.name}(s, ...)`"
            )
        for parameter in parameters:
            if parameter.name in _RESERVED:
                raise InvalidValue(
                    f"{self.name}: a program's parameter cannot be called {parameter.name}, which every run takes for "
                    "itself; rename it",
                    parameter.name,
                )
        functools.update_wrapper(self, func)
        self._is_method = is_method(parameters)

    @property
    def name(self) -> str:
        return getattr(self.func, "__name__", "program")

    def __repr__(self) -> str:
        return f"<plait.function {self.name}>"

    def __getattr__(self, name: str) -> NoReturn:
        hint = "; tracing is not available in this version" if name == "trace" else ""
        raise AttributeError(f"a program has no attribute {name!r}{hint}")

    # ------------------------------------------------------------ methods and binding

    def __set_name__(self, owner: type, name: str) -> None:
        if self._is_method:
            self._takes_instance = True

    def __get__(self, instance: Any, owner: type | None = None) -> Function:
        return self if instance is None or not self._is_method else self._with(prefix=(instance,))

    def bind(self, **arguments: Any) -> Function:
        """A program with these arguments already given; arguments of a run win over them."""
        known = self._parameter_names()
        for name in arguments:
            if name not in known and not self._takes_any_keyword():
                near = difflib.get_close_matches(name, sorted(known), 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"{self.name}() has no parameter {name!r} to bind{hint}")
        return self._with(bound={**self._bound, **arguments})

    def _with(self, prefix: tuple[Any, ...] | None = None, bound: dict[str, Any] | None = None) -> Function:
        other = Function(self.func)
        other._prefix = self._prefix if prefix is None else prefix
        other._takes_instance = self._takes_instance
        other._bound = dict(self._bound) if bound is None else bound
        return other

    def _parameter_names(self) -> set[str]:
        """Those that may be given by keyword."""
        before = 2 if self._takes_instance or self._prefix else 1
        return {
            parameter.name
            for parameter in list(self._signature.parameters.values())[before:]
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        }

    def _takes_any_keyword(self) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._signature.parameters.values())

    # ------------------------------------------------------------ running

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`run`; of an ``async def`` program the coroutine of :meth:`arun`. The callee has a state of its own."""
        return self.arun(*args, **kwargs) if self.is_async else self.run(*args, **kwargs)

    def run(
        self,
        *args: Any,
        backend: Backend | None = None,
        stream: bool = False,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> State:
        """Runs the program to its end and returns its state.

        Raises the program's own exception, and RunTimeout once ``timeout`` seconds have passed. A failed op that the
        program did not read does not raise: ``state.error()`` tells it and reading what it made raises it.
        With ``stream=True`` it returns at once; the program runs in a thread, and its exception comes with the reads.
        """
        call = self._call(args, kwargs, timeout)
        state = self._open(call, _backend_for(backend), streaming=stream)
        if stream:
            self._in_thread(state, call)
        elif on_event_loop() or (self.is_async and loop_is_running()):
            # This thread's loop is not ours to run programs on, and their reads could not block on it.
            self._in_thread_and_wait(state, call)
        else:
            self._execute(state, call)
        return state

    def stream(self, *args: Any, **kwargs: Any) -> State:
        """``run(stream=True)``: returns at once; read it with ``text_iter()``."""
        return self.run(*args, **{**kwargs, "stream": True})

    async def arun(
        self, *args: Any, backend: Backend | None = None, timeout: float | None = None, **kwargs: Any
    ) -> State:
        """:meth:`run` for an event loop. A plain ``def`` program runs in one of a bounded number of threads.

        Cancelling it aborts the program.
        """
        call = self._call(args, kwargs, timeout)
        if backend is None and _inherited_backend() is None:
            backend = await asyncio.to_thread(default_backend)  # starting a runtime takes a while
        state = self._open(call, _backend_for(backend))
        if self.is_async:
            await self._execute_async(state, call)
            return state
        context = contextvars.copy_context()
        try:
            await asyncio.get_running_loop().run_in_executor(_threads, context.run, self._execute, state, call)
        except asyncio.CancelledError as error:
            state._program.abort(error)
            raise
        return state

    @overload
    def run_batch(
        self, items: Iterable[Any], *, generator_style: Literal[False] = False, **kwargs: Any
    ) -> list[State]: ...
    @overload
    def run_batch(self, items: Iterable[Any], *, generator_style: Literal[True], **kwargs: Any) -> Iterator[State]: ...
    def run_batch(
        self,
        items: Iterable[Any],
        *,
        backend: Backend | None = None,
        num_threads: int | str | None = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> list[State] | Iterator[State]:
        """Runs the program once for each item (a dict or a tuple of its arguments); the states, in the items' order.

        An item that fails is its own affair: its state's ``error()`` tells why, and its reads raise it. At most
        ``num_threads`` programs run at once (auto: 64), ``def`` programs in threads, ``async def`` ones on one loop.
        ``timeout`` is per item. A run ``seed`` gives each item a seed of its own.
        ``generator_style`` gives the states one by one, as soon as each and those before it are there.

        Raises TypeError or InvalidValue for arguments that do not fit, before anything runs.
        """
        limit = 64 if num_threads in ("auto", None) else num_threads
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidValue(
                f"num_threads must be 'auto' or a whole number of 1 or more, not {num_threads!r}", "num_threads"
            )
        calls = self._batch_calls(list(items), timeout, options)
        chosen = _backend_for(backend)
        states = run_all(
            [functools.partial(self._start_item, call, chosen) for call in calls],
            is_async=self.is_async,
            limit=limit,
            progress_bar=progress_bar,
            window=4 * limit if generator_style else len(calls),
        )
        states = with_a_word_on_failures(self.name, states)
        return states if generator_style else list(states)

    def _batch_calls(self, items: list[Any], timeout: float | None, options: Mapping[str, Any]) -> list[Call]:
        for name, value in options.items():
            if name not in OPTION_NAMES and not asks_nothing(name, value):
                raise unexpected(f"{self.name}.run_batch()", name, (*_RESERVED, *_OF_BATCHES))
        calls = []
        seed = options.get("seed")
        if seed is None and (outer := ACTIVE.get()) is not None:
            seed = outer.seed_of_call()
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                args, kwargs = (), dict(item)
            elif isinstance(item, tuple | list):
                args, kwargs = tuple(item), {}
            else:
                raise InvalidValue(
                    f"item {index} must be a dict or a tuple of the program's arguments, not {type(item).__name__}: "
                    f"write {self._row()}",
                    "items",
                )
            own_seed = {} if seed is None else {"seed": derive_seed(seed, "item", index)}
            try:
                calls.append(self._call(args, {}, timeout, program_kwargs=kwargs, options={**options, **own_seed}))
            except TypeError as error:
                hint = f" (a {type(item).__name__} of {len(args)} is taken as {len(args)} arguments; "
                hint = f"{hint}write {self._row()})" if args else ""
                raise TypeError(f"item {index}: {error}{hint}") from None
        return calls

    def _row(self) -> str:
        """What an item of a batch may look like."""
        names = list(self._signature.parameters)[2 if self._takes_instance or self._prefix else 1 :]
        return "{" + ", ".join(f"{name!r}: ..." for name in names) + "}"

    # ------------------------------------------------------------ the parts of a run

    def _call(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout: float | None,
        *,
        program_kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Call:
        """Sorts keywords into the program's and the run's, and checks both."""
        own: dict[str, Any] = {**self._bound, **(program_kwargs or {})}
        sampling: dict[str, Any] = dict(options or {})
        names = self._parameter_names()
        for name, value in kwargs.items():
            if name in names:
                own[name] = value
            elif name in OPTION_NAMES or asks_nothing(name, value):
                sampling[name] = value
            elif self._takes_any_keyword() and name not in NOT_AVAILABLE:
                own[name] = value
            else:
                raise unexpected(f"{self.name}()", name, (*names, *_RESERVED))
        prefix = self._prefix
        if self._takes_instance and not prefix:  # Class.program.run(instance, ...)
            prefix, args = args[:1], args[1:]
        try:
            self._signature.bind(*prefix, None, *args, **own)
        except TypeError as error:
            hint = ""
            if args and isinstance(args[0], State):
                hint = "; a program has a state of its own, so do not pass it one as the first argument"
            raise TypeError(f"{self.name}(): {error}{hint}") from None
        if timeout is not None and not 0 < number("timeout", timeout) <= threading.TIMEOUT_MAX:
            raise InvalidValue(
                f"timeout must be a number of seconds above 0 (None: as long as it takes), not {timeout!r}", "timeout"
            )
        normalized = normalize(f"{self.name}()", sampling)
        seed = normalized.pop("seed", None)
        return Call((*prefix, *args), own, normalized, seed, timeout)

    def _open(self, call: Call, backend: Backend, *, streaming: bool = False) -> State:
        outer = ACTIVE.get()
        seed = outer.seed_of_call() if call.seed is None and outer is not None else call.seed
        program = Program(backend, call.options, seed=seed, streaming=streaming, timeout=call.timeout)
        strand = Strand(program)
        program.open_root(strand)
        return State(program, strand)

    def _invoke(self, state: State, call: Call) -> Any:
        self_count = 1 if self._prefix or self._takes_instance else 0
        return self.func(*call.args[:self_count], state, *call.args[self_count:], **call.kwargs)

    def _execute(self, state: State, call: Call) -> None:
        if self.is_async:
            asyncio.run(self._execute_async(state, call))
            return
        program = state._program
        token = ACTIVE.set(program)
        try:
            state._ret_value = self._invoke(state, call)
            program.close()
            complete(program.drain(), program.block("arun()"))
            self._finish(program)
        except BaseException as error:
            program.break_off(error)
            raise
        finally:
            ACTIVE.reset(token)

    async def _execute_async(self, state: State, call: Call) -> None:
        program = state._program
        token = ACTIVE.set(program)
        limit = asyncio.timeout(program.remaining())
        try:
            async with limit:
                state._ret_value = await self._invoke(state, call)
                program.close()
                await complete_async(program.drain())
            self._finish(program)
        except BaseException as error:
            failure = program.out_of_time() if limit.expired() and isinstance(error, TimeoutError) else error
            program.break_off(failure)
            if failure is error:
                raise
            raise failure from None
        finally:
            ACTIVE.reset(token)

    def _finish(self, program: Program) -> None:
        if program.failure is not None:
            raise program.failure
        program.say_what_was_cut()

    def _in_thread(self, state: State, call: Call) -> threading.Thread:
        context = contextvars.copy_context()

        def work() -> None:
            try:
                context.run(self._execute, state, call)
            except BaseException:
                # The program keeps it: whoever reads the state gets it raised.
                return

        # A daemon: an unread stream must not keep the interpreter from ending.
        thread = threading.Thread(target=work, name=f"plait-{self.name}", daemon=True)
        thread.start()
        return thread

    def _in_thread_and_wait(self, state: State, call: Call) -> None:
        thread = self._in_thread(state, call)
        try:
            thread.join()
        except BaseException as error:
            state._program.abort(error)
            raise
        if state._program.failure is not None:
            raise state._program.failure

    def _start_item(self, call: Call, backend: Backend) -> tuple[State, Callable[[], Coroutine[Any, Any, None] | None]]:
        """The state of one item, and what runs it: to its end, or as a coroutine where the program is one."""
        state = self._open(call, backend)
        run = self._execute_async if self.is_async else self._execute
        return state, functools.partial(run, state, call)


def _inherited_backend() -> Backend | None:
    outer = ACTIVE.get()
    return None if outer is None else outer.backend


def _backend_for(backend: Backend | None) -> Backend:
    if backend is not None:
        check_backend(backend)
    return backend or _inherited_backend() or default_backend()


@overload
def function(func: Callable[..., Any]) -> Function: ...
@overload
def function(func: None = None, **options: None) -> Callable[[Callable[..., Any]], Function]: ...
def function(
    func: Callable[..., Any] | None = None, **options: object
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Makes a function a program: ``@function`` or ``@function()``. See :class:`Function`."""
    for name, value in options.items():
        if not asks_nothing(name, value):
            raise unexpected("function()", name)
    return Function if func is None else Function(func)
