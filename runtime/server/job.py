"""One request's strands on the backend, from submit to the last event, and their end when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

from ..backend import Backend
from ..errors import BackendError
from ..protocol import (
    Action,
    Close,
    Delta,
    Done,
    Event,
    Extend,
    Failed,
    Lost,
    Open,
    PromptLogprobs,
    TokenLogprob,
    Usage,
)
from ..sizes import merged, size_of
from .problems import HttpProblem, bad_field, busy, from_failed
from .unsent import Unsent
from .work import Work

#: Taken at once, so that the others have their turn before the next: events, and about how many bytes of them.
_TAKE, _TAKE_BYTES = 512, 128 * 1024

#: (index of the choice within the response, what happened to it)
Piece: TypeAlias = "tuple[int, Delta | PromptLogprobs | Done]"


class Jobs:
    """Those that run now, and what they hold for clients that do not read. ``most``: numbers of prompts' tokens that
    one of them may answer with; ``most_held``: that all of them hold."""

    def __init__(self, unsent: Unsent, most: int, most_held: int) -> None:
        self.running: set[Job] = set()
        self.unsent = unsent
        self._most = most
        self._most_held = most_held

    def check(self, job: Job) -> None:
        """Raises HttpProblem once ``job`` holds more numbers than it may."""
        if job.numbers > self._most:
            field = "logprobs" if job.work.prompt_logprobs is None else "prompt_logprobs"
            raise bad_field(
                field,
                f"{field}: the tokens of the prompts and their alternatives, for each of the choices, are more than "
                f"{self._most:,} numbers: send fewer prompts in one request, or ask for fewer alternatives",
            )
        if sum(other.numbers for other in self.running) > self._most_held:
            raise busy("the log-probabilities of other requests' prompts take all the room there is: try again later")

    def end_all(self) -> None:
        """Every one answers that the server is going; new ones still begin, if anyone lets them in."""
        for job in list(self.running):
            job.end("the server is shutting down")


class Job:
    """``async with Job(backend, work, jobs) as job``: leaving before every choice is done aborts the whole program,
    and with it the hidden children of n > 1."""

    def __init__(self, backend: Backend, work: Work, jobs: Jobs) -> None:
        self.work = work
        self.results: dict[int, Done] = {}
        self.prompts: dict[int, list[TokenLogprob]] = {place: [] for place in range(len(work.prompts))}
        self.numbers = 0  # in the answer, of the prompts' tokens
        self._backend = backend
        self._jobs = jobs
        self._program = backend.allocate()
        self._index: dict[int, int] = {}  # strand -> index of its choice 0
        self._gen_op: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._arrived: deque[tuple[Event, int]] = deque()  # with their sizes, which `unsent` bounds
        self.cut = asyncio.Event()  # nobody reads, and it holds as much as it may
        self._account = jobs.unsent.open(lambda: self._soon(self.cut.set))

    async def __aenter__(self) -> Job:
        actions: list[Action] = []
        for place, prompt in enumerate(self.work.prompts):
            strand = self._backend.allocate()
            script = self.work.script(prompt)
            self._index[strand] = place * self.work.n
            self._gen_op[strand] = script[-1].op
            actions.append(Open(strand, self._program, salt=self.work.salt, priority=self.work.priority))
            actions.append(Extend(strand, script))
            actions.append(Close(strand))
        self._backend.submit(actions, self._listen)
        self._jobs.running.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.running.discard(self)
        self._jobs.unsent.close(self._account)
        if not self.finished:
            with suppress(BackendError):  # closed: everything of it has ended
                self._backend.abort(program=self._program)

    @property
    def finished(self) -> bool:
        return len(self.results) == self.work.choices

    def end(self, message: str) -> None:
        """Whoever waits gets an error; leaving aborts the program."""
        self._listen(Lost("shutdown", message))

    def _listen(self, event: Event) -> None:
        """On the backend's thread. A closed loop means that nobody waits."""
        if isinstance(event, Delta | PromptLogprobs | Done) and event.op != self._gen_op.get(event.strand):
            return  # of a role, say: nobody is told
        size = size_of(event)
        self._arrived.append((event, size))
        self._jobs.unsent.add(self._account, size)
        self._soon(self._wake.set)

    def _soon(self, call: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(call)
            except RuntimeError:  # closed since we looked
                return

    async def take(self) -> list[Piece]:
        """Wait for events of the gens, and return those there are, up to a bound, adjacent deltas of a choice joined.

        Raises HttpProblem when any op failed: the first failure is the cause, what follows it is "upstream".
        """
        await asyncio.sleep(0)  # a client that reads fast enough never makes us wait, but others do
        while True:
            pieces = self._drain()
            if pieces:
                return pieces
            self._wake.clear()
            if not self._arrived:  # the listener sets after it appends, so nothing slips through here
                await self._wake.wait()

    async def finish(self) -> None:
        while not self.finished:
            await self.take()

    def _drain(self) -> list[Piece]:
        pieces: list[tuple[int, Done | PromptLogprobs | list[Delta]]] = []
        last: dict[int, list[Delta]] = {}  # index -> its deltas that nothing followed
        taken = count = 0
        while self._arrived and count < _TAKE and taken < _TAKE_BYTES:
            event, size = self._arrived[0]
            if pieces and isinstance(event, Failed | Lost):
                break  # what came before goes out first
            self._arrived.popleft()
            taken, count = taken + size, count + 1
            if isinstance(event, Failed):
                raise from_failed(event, self.work.names)
            if isinstance(event, Lost):
                raise HttpProblem(503, event.message, code=event.code, type="server_error")
            if isinstance(event, PromptLogprobs):
                self._prompt(event)
                pieces.append((self._index[event.strand], event))
                continue
            if not isinstance(event, Delta | Done):
                continue
            index = self._index[event.strand] + event.choice
            if isinstance(event, Done):
                if event.reason == "abort":
                    raise HttpProblem(503, "the request was aborted", code="aborted", type="server_error")
                self.results[index] = event
                pieces.append((index, event))
            elif index in last:
                last[index].append(event)
            else:
                last[index] = [event]
                pieces.append((index, last[index]))
        self._jobs.unsent.take(self._account, taken)
        return [(index, merged(piece) if isinstance(piece, list) else piece) for index, piece in pieces]

    def _prompt(self, event: PromptLogprobs) -> None:
        times = self.work.n if self.work.route == "completions" else 1
        self.numbers += times * sum(1 + len(entry.top) for entry in event.logprobs)
        self._jobs.check(self)
        self.prompts[self._index[event.strand] // self.work.n] += event.logprobs

    def usage(self) -> Usage:
        """Of the whole request: each prompt once (choice 0 fixed its accounting), completions summed."""
        firsts = [self.results[place * self.work.n].usage for place in range(len(self.work.prompts))]
        every = [done.usage for done in self.results.values()]
        return Usage(
            prompt=sum(usage.prompt for usage in firsts),
            cached=sum(usage.cached for usage in firsts),
            sampled=sum(usage.sampled for usage in every),
            forced=sum(usage.forced for usage in every),
            wrapped=sum(usage.wrapped for usage in every),
        )
