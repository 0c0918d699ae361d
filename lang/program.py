"""One run of a program: its strands, what was sent for them and what came back."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.backend import Backend
from ..runtime.errors import Aborted, BackendError, NotReady, PlaitError, RunTimeout, from_code
from ..runtime.protocol import Action, Closed, Delta, Done, Event, Failed, Lost, Open, PromptLogprobs, Sampling
from .expr import GenExpr
from .notices import PlaitWarning, say
from .outcome import Outcome
from .waiting import Block, Read, Wait, on_event_loop, wait_blocking

if TYPE_CHECKING:
    from .strand import Strand

#: The program whose function runs in this context; what it calls takes its backend and seed from there.
ACTIVE: ContextVar[Program | None] = ContextVar("plait_program", default=None)


class GenRecord(NamedTuple):
    expr: GenExpr
    sampling: Sampling
    outcome: Outcome


class Program:
    """Strands are registered before their actions are sent, so every event finds its outcome.

    ``lock`` orders what is sent. Events never take it: a backend may call back while it is being called.
    """

    def __init__(
        self,
        backend: Backend,
        options: Mapping[str, Any],
        *,
        seed: int | None = None,
        streaming: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.backend = backend
        self.options = options  # normalized sampling options of the run
        self.seed = seed
        self.streaming = streaming
        self.timeout = timeout
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.lock = threading.RLock()
        outer = ACTIVE.get()
        if outer is not None and outer.deadline is not None and outer.deadline < (self.deadline or math.inf):
            self.deadline, self.timeout = outer.deadline, outer.timeout  # a program called by another ends with it
        self.id = backend.allocate()
        self.failure: Exception | None = None  # ended the whole program
        self.ended = False
        self.gens: list[GenRecord] = []
        self._strands: dict[int, Strand] = {}  # those the backend knows
        self._all: list[Strand] = []
        self._outbox: list[Action] = []
        self._corks = 0
        self._sent = False
        self._calls = 0

    # ------------------------------------------------------------ sending

    def open_root(self, strand: Strand) -> None:
        self.register(strand)
        self._outbox.append(Open(strand.id, self.id, seed=self.seed))

    def register(self, strand: Strand) -> None:
        self._strands[strand.id] = strand
        self._all.append(strand)

    def put(self, action: Action) -> None:
        self._outbox.append(action)

    def flush(self) -> None:
        """Sends what was put, in one submission; raises BackendClosed once the backend is closed."""
        with self.lock:
            if self._corks or all(isinstance(action, Open) for action in self._outbox):
                return  # nothing yet that could run
            actions, self._outbox = self._outbox, []
            self._sent = True
            try:
                self.backend.submit(actions, self.on_event)
            except PlaitError as error:
                self._end_all(error)
                raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is put inside goes out as one submission."""
        with self.lock:
            self._corks += 1
            try:
                yield
            finally:
                self._corks -= 1
            self.flush()

    def seed_of_call(self) -> int | None:
        """The run seed of the next program this one calls: the same in every run with this one's seed."""
        with self.lock:
            self._calls += 1
            return None if self.seed is None else derive_seed(self.seed, "call", self._calls)

    # ------------------------------------------------------------ receiving, on the backend's thread

    def on_event(self, event: Event) -> None:
        if isinstance(event, Lost):
            self._end_all(from_code(event.code, None, event.message))
            return
        if isinstance(event, Closed):
            self._strands.pop(event.strand, None)
            return
        strand = self._strands.get(event.strand)
        if strand is None:
            return
        if isinstance(event, Failed):
            strand.on_failed(event)
            return
        outcome = strand.outcomes.get(event.op)
        if outcome is None:  # a Fork's Done: nothing waits for it
            return
        if isinstance(event, Delta):
            outcome.grow(event.choice, event.text)
        elif isinstance(event, PromptLogprobs):
            outcome.read(event)
        elif isinstance(event, Done):
            outcome.finish(event)

    # ------------------------------------------------------------ waiting

    def block(self, hint: str) -> Block:
        """How a read in this program blocks: never on an event loop, never beyond the deadline."""

        def block(wait: Wait) -> None:
            if on_event_loop():
                raise NotReady(f"it is not there yet, and waiting here would stop the event loop; use {hint}")
            if not wait_blocking(wait, self.remaining()):
                error = self.out_of_time()
                self.abort(error)
                raise error

        return block

    def remaining(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def out_of_time(self) -> RunTimeout:
        return RunTimeout(f"the program did not finish within timeout={self.timeout:g} s and was aborted")

    @property
    def from_outside(self) -> bool:
        """Whether the reader is not the program itself, which may still add names and text."""
        return ACTIVE.get() is not self

    # ------------------------------------------------------------ ending

    def close(self) -> None:
        """No more ops: the strands close once their queued ops are done. Values stay readable."""
        with self.lock:
            if self.ended:
                return
            self.ended = True
            unsent = not self._sent and all(isinstance(action, Open) for action in self._outbox)
            if unsent and not any(strand.unsent for strand in self._all):
                self._outbox.clear()  # text alone: nothing to run
                self._strands.clear()
            else:
                with self.together():
                    for strand in self._all:
                        strand.close()
            for strand in self._all:
                strand.seal()

    def drain(self) -> Read[None]:
        """Waits until every op has ended, well or not."""
        for strand in list(self._all):
            for outcome in list(strand.outcomes.values()):
                yield from outcome.until_finished()

    def abort(self, error: BaseException) -> None:
        """Ends everything now; what has no value yet raises ``error`` when read."""
        with self.lock:
            if self.failure is not None:
                return
            sent = self._sent
            self._outbox.clear()
            self.failure = for_readers(error)
            self._end_all(self.failure)
        if sent:
            with suppress(BackendError):  # the backend is gone, and the work with it
                self.backend.abort(program=self.id)

    def give_up(self) -> None:
        """The user wants no more of it. Nothing happens to a program that has ended."""
        with self.lock:
            if self.ended and self._all_finished():
                return
        self.abort(Aborted("the program was aborted by abort()", "aborted"))

    def _end_all(self, error: Exception) -> None:
        if self.failure is None and not (self.ended and self._all_finished()):
            self.failure = error
        self.ended = True
        for strand in list(self._all):
            for outcome in list(strand.outcomes.values()):
                outcome.fail(error)
            strand.seal()

    def _all_finished(self) -> bool:
        return all(outcome.finished for strand in list(self._all) for outcome in list(strand.outcomes.values()))

    # ------------------------------------------------------------ what the user should know

    def break_off(self, error: BaseException) -> None:
        """The program's function raised ``error``: abort, and say what was cut, which may well be why."""
        self.abort(error)
        if isinstance(error, Exception):
            with suppress(PlaitWarning):  # where warnings are errors, the program's own error goes first
                self.say_what_was_cut()

    def say_what_was_cut(self) -> None:
        """A warning for each gen that ``max_tokens`` cut or whose schema was relaxed; call it on the user's thread."""
        for expr, sampling, outcome in self.gens:
            notes = next((done.notes for done in outcome.dones if done is not None and done.notes), ())
            if notes:
                say("relaxed", expr.site, f"{expr.label} (strict=False) relaxes: {'; '.join(notes)}")
            limited = [done for done in outcome.dones if done is not None and done.reason == "length"]
            more = f"give it more max_tokens than {sampling.max_tokens}" if sampling.max_tokens else "give it more room"
            if any(_whole(done) for done in limited):
                say(
                    "wrapped",
                    expr.site,
                    f"{expr.label} was brought to an end (finish_reason='length', usage.wrapped): its value is whole, "
                    f"but the model had more to say; {more}, or wrap_up=False to have it cut",
                )
            if sampling.max_tokens and not sampling.ignore_eos and any(not _whole(done) for done in limited):
                say(
                    "cut",
                    expr.site,
                    f"{expr.label} was cut at max_tokens={sampling.max_tokens} (finish_reason='length'); give it more "
                    f"max_tokens{'' if expr.form is not None else ', or a stop= it reaches'}",
                )


def _whole(done: Done) -> bool:
    """Brought to an end, and not cut."""
    return done.usage.wrapped > 0 and not done.partial


def for_readers(error: BaseException) -> Exception:
    """What a later read raises for ``error``: itself, unless it was meant for one thread only (KeyboardInterrupt)."""
    if isinstance(error, Exception):
        return error
    aborted = Aborted(f"the program was aborted by {type(error).__name__}", "aborted")
    aborted.__cause__ = error
    return aborted


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the part of a run that ``path`` names; the same for the same run seed and path."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
