"""Compiled constraints: each is compiled once, awaited by whoever asks, kept within a bound of bytes.

The core holds what the front holds: a payload is sent (Define) before its first use in an epoch, and withdrawn
(Forget) when it is dropped here, which happens only to payloads that no gen in flight uses.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import wire
from ..protocol import ConstraintSpec
from .strand import OpError, Strand

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)

#: (kind, source) -> payload. Raises Refused for a specification that cannot be compiled.
Compile = Callable[[str, str], Awaitable[bytes]]


class Refused(ValueError):
    """The specification is at fault; the message says where and what to write instead."""


@dataclass(slots=True)
class _Entry:
    payload: bytes | None = None
    error: OpError | None = None
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
        self._defined: set[str] = set()  # what the core of this epoch has
        self._bytes = 0
        self._dropped: set[asyncio.Task[None]] = set()  # cancelled, and still on their way out

    def prefetch(self, spec: ConstraintSpec, strand: Strand) -> None:
        """Start compiling, so that the verdict is there when the gen's turn comes."""
        self._entry(spec, strand)

    def unwanted(self, strand: Strand) -> None:
        """The strand was ended. What only it wanted is not compiled: it would keep the others waiting."""
        for key, entry in list(self._entries.items()):
            if entry.task is not None and strand in entry.wanted:
                del entry.wanted[strand]
                entry.waiting.pop(strand, None)
                if not entry.wanted:
                    entry.task.cancel()
                    self._dropped.add(entry.task)
                    entry.task.add_done_callback(self._dropped.discard)
                    del self._entries[key]

    def verdict(self, spec: ConstraintSpec, strand: Strand) -> str | None:
        """The key of the compiled constraint, or None: ``strand`` is woken once it is known. Raises OpError."""
        key, entry = self._entry(spec, strand)
        if entry.error is not None:
            raise entry.error
        if entry.payload is None:
            entry.waiting[strand] = None
            return None
        return key

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

    def _entry(self, spec: ConstraintSpec, strand: Strand) -> tuple[str, _Entry]:
        kind, source = "regex", spec.pattern
        key = hashlib.sha256(f"{kind}\0{source}".encode("utf-8", "surrogatepass")).hexdigest()
        entry = self._entries.get(key)
        if entry is not None and entry.error is not None and self._front.settings.clock() >= entry.expires:
            del self._entries[key]
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry()
            entry.task = asyncio.get_running_loop().create_task(self._run(key, entry, kind, source))
        if entry.task is not None:
            entry.wanted[strand] = None
        self._entries.move_to_end(key)
        return key, entry

    async def _run(self, key: str, entry: _Entry, kind: str, source: str) -> None:
        try:
            entry.payload = await self._compile(kind, source)
            self._bytes += len(entry.payload)
        except Refused as error:
            entry.error = OpError("invalid_constraint", str(error), kind)
        except Exception as error:
            log.exception("compiling a constraint failed")
            entry.error = OpError("internal", f"the constraint compiler failed: {error}", kind)
        entry.task = None
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
            self._bytes -= len(entry.payload or b"")
            if key in self._defined:
                self._defined.discard(key)
                self._front.send(wire.Forget(key=key))
