"""Epochs of the core: one process after another. When one dies, the next is told all that the strands need.

A strand is suspected of a death if the core may have been computing for it at two within a minute. Suspects are tried
one by one (:mod:`.quarantine`) and only the one that kills again fails, so that one poisonous request can neither take
the others with it nor keep the core down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import wire
from ..errors import BackendError
from .link import CoreItem, CoreLink, LinkFactory
from .quarantine import Quarantine
from .strand import OpError, Strand, opening

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)


class Epochs:
    def __init__(self, front: Front, factory: LinkFactory) -> None:
        self._front = front
        self._factory = factory
        self._link: CoreLink | None = None
        self._up = False
        self._stillborn: str | None = None  # why the core of now died before its Ready was heard
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._quarantine = Quarantine(front)
        self._timer: asyncio.TimerHandle | None = None  # of the trial
        self._passed = False  # the trial is over, and the next one about to begin

    async def start(self) -> None:
        link = self._link = self._factory()
        self._stillborn = None
        try:
            ready = await link.start(self._on_events, self._on_death)
            if self._stillborn is not None:
                raise BackendError(self._stillborn)
            self._front.took_up(ready)
        except BaseException:
            await link.close()
            raise
        self._up = True

    def send(self, items: Sequence[CoreItem]) -> None:
        """While the core is down nothing is sent, and little to a core that is to be alone with one strand: the records
        hold it, and the replay sends it."""
        told: list[CoreItem] = []
        if self._up and self._link is not None:
            told = self._quarantine.admitted(items)
            if told:
                self._link.send(told)
        elif self._task is None and not self._closing:
            self._restart("the core is not running")
        if len(told) < len(items):
            self._end_aborted(items, {item.sid for item in told if isinstance(item, wire.AbortStrand)})

    def _end_aborted(self, items: Sequence[CoreItem], told: set[int]) -> None:
        """Strands that the core does not know, and so cannot end."""
        for item in items:
            if isinstance(item, wire.AbortStrand) and item.sid not in told:
                strand = self._front.sids.pop(item.sid, None)
                if strand is not None:
                    self._front.answers.abort_now(strand)

    @property
    def pid(self) -> int | None:
        """Process id of the core, while it is up and a process of its own."""
        return self._link.pid if self._up and self._link is not None else None

    async def close(self) -> None:
        self._closing = True
        self._up = False
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            await self._link.close()

    # ------------------------------------------------------------ death

    def _on_death(self, cause: str) -> None:
        if self._closing:
            return
        if not self._up:
            self._stillborn = cause
            return
        self._up = False
        self._stop_timer()
        log.warning("the core died and is started again: %s", cause)
        front = self._front
        front.metrics.epoch_ended()
        front.constraints.epoch_ended()
        now = front.settings.clock()
        for strand in list(front.sids.values()):
            if strand.gone or strand.sid not in front.sids:
                continue
            if strand.aborting:
                front.sids.pop(strand.sid, None)
                front.answers.abort_now(strand)
        for strand in self._quarantine.died(now):
            if not strand.gone:
                self._blame(strand, cause)
        if self._quarantine.on:
            log.warning("strands that ran at two deaths of the core are tried one by one, and the others wait")
        self._restart(cause)
        front.turn()

    def _blame(self, strand: Strand, cause: str) -> None:
        head = strand.head
        assert head is not None
        error = OpError("core_crashed", f"the core died twice within a minute while it ran this op: {cause}")
        self._front.sids.pop(strand.sid, None)
        if strand.hidden:
            self._front.kill(strand, error)
        else:
            choices = (0,) if isinstance(head.op, wire.Sample) else None
            self._front.fail(strand, head.op.op, error, choices)

    def _restart(self, cause: str) -> None:
        self._task = asyncio.get_running_loop().create_task(self._again(cause))

    async def _again(self, cause: str) -> None:
        if self._link is not None:
            await self._link.close()
        for _ in range(self._front.settings.max_restarts):
            try:
                await self.start()
                break
            except Exception as error:  # whatever it is, strands wait for this: they are told in the end
                cause = str(error)
                log.warning("the core does not start again: %r", error)
        else:
            self._give_up(cause)
            return
        self._task = None
        self._replay()

    def _give_up(self, cause: str) -> None:
        front = self._front
        self._quarantine.lift()
        error = OpError("core_crashed", f"the core cannot be started again: {cause}")
        for strand in list(front.sids.values()):
            if front.sids.pop(strand.sid, None) is None:
                continue  # went with its parent
            op = strand.first_pending()
            if strand.hidden:
                front.kill(strand, error)
            elif op is not None:
                front.fail(strand, op, error)
            else:
                strand.cause = error
        front.turn()
        self._task = None

    # ------------------------------------------------------------ replay

    def _replay(self) -> None:
        """The new core is told of every strand, parents before children (sids rise); in a quarantine, of one."""
        self._front.constraints.epoch_ended()  # what was sent while no core was there is lost
        self._admit()

    def _admit(self) -> None:
        """Who may go on is told to the core."""
        self._stop_timer()
        if not self._up or self._closing:
            return
        front, quarantine = self._front, self._quarantine
        strands = quarantine.next(front.settings.clock()) if quarantine.on else None
        if strands is None:
            strands = quarantine.lift()
        else:
            self._timer = asyncio.get_running_loop().call_later(front.settings.trial_s, self._admit)
        for strand in strands:
            for item in self._script(strand):
                front.send(item)
        front.turn()

    def _stop_timer(self) -> None:
        self._passed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_events(self, events: Sequence[wire.CoreEvent]) -> None:
        self._front.on_events(events)
        if self._up and not self._passed and self._quarantine.passed(events):
            self._stop_timer()
            self._passed = True  # not here: these events may have come in the middle of a turn
            self._timer = asyncio.get_running_loop().call_later(0, self._admit)

    def _script(self, strand: Strand) -> list[CoreItem]:
        items: list[CoreItem] = []
        ops: list[wire.CoreOp] = []
        if strand.ids is not None:
            items.append(opening(strand))
            if strand.ids:
                first = strand.inflight[0].op.op if strand.inflight else max(strand.last_op, 0)
                ops.append(wire.Append(op=first, ids=tuple(strand.ids)))
        for entry in strand.inflight:
            op = entry.op
            if isinstance(op, wire.Sample):
                if op.constraint is not None:
                    self._front.constraints.define(op.constraint)
                resume: tuple[int, ...] = ()
                usage = entry.started
                if entry.running is not None:
                    resume = tuple(entry.running.sampled)
                    if usage is not None:
                        usage = msgspec.structs.replace(usage, wrapped=entry.running.wrapped)
                op = wire.Sample(
                    op=op.op,
                    params=op.params,
                    choice=op.choice,
                    constraint=op.constraint,
                    resume_ids=resume,
                    resume_usage=usage,
                )
            elif isinstance(op, wire.ScorePrompt):
                entry.heard = 0  # it begins anew
            elif isinstance(op, wire.ForkAt):  # children that were aborted meanwhile must not come to life
                op = wire.ForkAt(op=op.op, children=tuple(sid for sid in op.children if sid in self._front.sids))
            ops.append(op)
        if ops:
            items.append(wire.ExtendStrand(sid=strand.sid, ops=tuple(ops)))
        if strand.close_sent:
            items.append(wire.CloseStrand(sid=strand.sid))
        return items
