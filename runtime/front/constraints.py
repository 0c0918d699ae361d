"""Compiled constraints: each is compiled once, awaited by whoever asks, kept within a bound of bytes.

The core holds what the front holds: a payload is sent (Define) before its first use in an epoch, and withdrawn
(Forget) when it is dropped here, which happens only to payloads that no gen in flight uses.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...constrained.compiler import notes_of
from .. import wire
from ..protocol import ConstraintSpec, Regex, Sampling
from .strand import OpError, Strand

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)

_MESSAGE = 2000  # characters

#: (kind, source, backend) -> payload. Raises Refused for a specification that cannot be compiled.
Compile = Callable[[str, str, str], Awaitable[bytes]]


class Refused(ValueError):
    """The specification is at fault; the message says where and what to write instead."""


class Wanted(NamedTuple):
    """What is to be compiled. ``kind``: "regex" (``source`` is the pattern), "spec" (JSON) or "stop_regex"."""

    kind: str
    source: str
    backend: str
    field: str

    @property
    def key(self) -> str:
        text = f"{self.kind}\0{self.backend}\0{self.source}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def wanted(spec: ConstraintSpec) -> Wanted:
    if isinstance(spec, Regex):
        return Wanted("regex", spec.pattern, spec.backend, "regex")
    return Wanted("spec", spec.source, spec.backend, spec.field)


@dataclass(slots=True)
class _Entry:
    payload: bytes | None = None
    notes: tuple[str, ...] = ()  # what was relaxed
    size: int = 0  # bytes of both
    error: tuple[str, str] | None = None  # code and message
    expires: float = 0.0  # of an error
    users: int = 0  # samples in flight
    wanted: dict[Strand, None] = field(default_factory=dict)  # while it is compiled: who has a gen that needs it
    waiting: dict[Strand, None] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Constraints:
    def __init__(self, front: Front, compile: Compile) -> None:
        self._front = front
        self._compile = compile
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # least recently used first
        self._compiling: dict[str, _Entry] = {}
        self._defined: set[str] = set()  # what the core of this epoch has
        self._bytes = 0
        self._dropped: set[asyncio.Task[None]] = set()  # cancelled, and still on their way out

    def prefetch(self, spec: ConstraintSpec | None, sampling: Sampling, strand: Strand) -> None:
        """Start compiling, so that the verdict is there when the gen's turn comes."""
        for want in _all(spec, sampling):
            self._entry(want, strand)

    def unwanted(self, strand: Strand) -> None:
        """The strand was ended. What only it wanted is not compiled: it would keep the others waiting."""
        for key, entry in list(self._compiling.items()):
            if entry.task is not None and strand in entry.wanted:
                del entry.wanted[strand]
                entry.waiting.pop(strand, None)
                if not entry.wanted:
                    entry.task.cancel()
                    self._dropped.add(entry.task)
                    entry.task.add_done_callback(self._dropped.discard)
                    del self._entries[key], self._compiling[key]

    def ready(self, spec: ConstraintSpec | None, sampling: Sampling, strand: Strand) -> bool:
        """Whether all that the gen needs is compiled; if not, ``strand`` is woken once it is. Raises OpError."""
        waits = False
        for want in _all(spec, sampling):
            entry = self._entry(want, strand)
            if entry.error is not None:
                code, message = entry.error
                raise OpError(code, message, want.field)
            if entry.payload is None:
                entry.waiting[strand] = None
                waits = True
        return not waits

    def notes(self, key: str) -> tuple[str, ...]:
        """What was relaxed in a compiled constraint."""
        return self._entries[key].notes

    def acquire(self, key: str) -> None:
        """A sample that uses it goes to the core."""
        self._entries[key].users += 1
        self.define(key)

    def leave(self, op: wire.CoreOp) -> None:
        """A sample is no longer in flight (any other op is ignored)."""
        if isinstance(op, wire.Sample) and op.constraint is not None:
            entry = self._entries.get(op.constraint)
            if entry is not None:
                entry.users -= 1
                self._shrink()

    def define(self, key: str) -> None:
        """Make sure that the core has it. Idempotent within an epoch."""
        if key not in self._defined:
            payload = self._entries[key].payload
            assert payload is not None
            self._defined.add(key)
            self._front.send(wire.Define(key=key, payload=payload))

    def epoch_ended(self) -> None:
        self._defined.clear()

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        tasks += self._dropped
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _entry(self, want: Wanted, strand: Strand) -> _Entry:
        key = want.key
        entry = self._entries.get(key)
        if entry is not None and entry.error is not None and self._front.settings.clock() >= entry.expires:
            del self._entries[key]
            entry = None
        if entry is None:
            entry = self._entries[key] = self._compiling[key] = _Entry()
            entry.task = asyncio.get_running_loop().create_task(self._run(entry, want))
        if entry.task is not None:
            entry.wanted[strand] = None
        self._entries.move_to_end(key)
        return entry

    async def _run(self, entry: _Entry, want: Wanted) -> None:
        try:
            entry.payload = await self._compile(want.kind, want.source, want.backend)
            entry.notes = notes_of(entry.payload)
            entry.size = len(entry.payload) + sum(map(len, entry.notes))
            self._bytes += entry.size
        except Refused as error:
            entry.error = "invalid_constraint", _shortened(str(error))
        except Exception as error:
            log.exception("compiling a constraint failed")
            entry.error = "internal", _shortened(f"the constraint compiler failed: {error}")
        entry.task = None
        if self._compiling.get(want.key) is entry:
            del self._compiling[want.key]
        entry.wanted.clear()
        entry.expires = self._front.settings.clock() + self._front.settings.error_seconds
        waiting, entry.waiting = entry.waiting, {}
        for strand in waiting:
            self._front.wake(strand)
        self._front.turn()
        self._shrink()

    def _shrink(self) -> None:
        settings = self._front.settings
        if self._bytes <= settings.payload_bytes and len(self._entries) <= settings.max_constraints:
            return
        for key, entry in list(self._entries.items()):
            if self._bytes <= settings.payload_bytes and len(self._entries) <= settings.max_constraints:
                return
            if entry.users or entry.task is not None:
                continue
            del self._entries[key]
            self._bytes -= entry.size
            if key in self._defined:
                self._defined.discard(key)
                self._front.send(wire.Forget(key=key))


def _shortened(message: str) -> str:
    """A refusal is remembered for a while, and may quote what a client wrote."""
    half = _MESSAGE // 2
    return message if len(message) <= _MESSAGE else f"{message[:half]} ... {message[-half:]}"


def _all(spec: ConstraintSpec | None, sampling: Sampling) -> Iterator[Wanted]:
    """What one gen needs a verdict on."""
    if spec is not None:
        yield wanted(spec)
    for pattern in sampling.stop_regex:
        yield Wanted("stop_regex", pattern, "plait", "stop_regex")
