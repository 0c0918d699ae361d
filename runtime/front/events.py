"""What the core says -> what the clients are told, and the record that a replay needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import wire
from ..protocol import Delta, Done, PromptLogprobs, Usage
from .logprobs import Names
from .strand import Inflight, OpError, Running, Strand

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)


class Answers:
    """Takes the core's frames. Events of strands that are gone are ignored: they crossed an abort."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._names = Names(front.model)

    def take(self, events: Sequence[wire.CoreEvent]) -> None:
        for event in events:
            try:
                self._one(event)
            except Exception as error:  # a fault of ours in one strand must not touch the others
                log.exception("an answer of the core could not be handled")
                strand = self._front.sids.get(getattr(event, "sid", 0))
                if strand is not None and not strand.hidden:
                    problem = OpError("internal", f"{type(error).__name__}: {error}")
                    self._front.fail(strand, getattr(event, "op", 0), problem)

    def _one(self, event: wire.CoreEvent) -> None:
        match event:
            case wire.Tokens():
                self._tokens(event)
            case wire.Started():
                found = self._find(event.sid, event.op)
                if found is not None and found[1].started is None:
                    found[1].started = event.usage
            case wire.Ended():
                self._ended(event)
            case wire.Scored():
                self._scored(event)
            case wire.PromptScored():
                self._prompt_scored(event)
            case wire.Forked():
                self._forked(event)
            case wire.OpFailed():
                self._failed(event)
            case wire.Stats():
                self._front.metrics.take(event)
            case wire.Ready() | wire.Fatal():
                pass  # the link's business

    def _find(self, sid: int, op: int) -> tuple[Strand, Inflight] | None:
        strand = self._front.sids.get(sid)
        head = strand.head if strand is not None else None
        if strand is None or head is None or head.op.op != op:
            return None
        return strand, head

    # ------------------------------------------------------------ gens

    def _tokens(self, event: wire.Tokens) -> None:
        found = self._find(event.sid, event.op)
        if found is None or found[1].running is None:
            return
        strand, entry = found
        running = found[1].running
        running.sampled += event.ids
        running.text.feed(event.data)
        running.settled = event.settled
        running.wrapped = event.wrapped
        if event.logprobs:
            running.logprobs += event.logprobs
        if running.stream and event.data:
            self._delta(strand, entry, running, running.text.take(), running.sampled, running.settled)

    def _delta(
        self, strand: Strand, entry: Inflight, running: Running, text: str, ids: Sequence[int], settled: int
    ) -> None:
        if not text:
            return
        assert isinstance(entry.op, wire.Sample)
        shown = running.shown
        running.shown = max(shown, settled)
        strand.session.emit(
            Delta(
                strand=strand.number,
                op=entry.op.op,
                choice=entry.op.choice,
                text=text,
                ids=tuple(ids[shown:settled]),
                logprobs=self._names.tokens(running.logprobs[shown:settled]) if running.logprobs else (),
            )
        )

    def _ended(self, event: wire.Ended) -> None:
        found = self._find(event.sid, event.op)
        if found is None or found[1].running is None:
            return
        strand, entry = found
        self._advance(strand, entry, event.ids)
        self._finish(strand, entry, event)

    def _finish(self, strand: Strand, entry: Inflight, event: wire.Ended) -> None:
        running, sample = entry.running, entry.op
        assert running is not None and isinstance(sample, wire.Sample)
        running.text.feed(event.data)
        if event.logprobs is not None:
            running.logprobs = whole(event, running.logprobs)
        rest = running.text.take(final=True)
        if running.stream:
            self._delta(strand, entry, running, rest, event.ids, len(event.ids))
        logprobs = self._names.tokens(running.logprobs[: len(event.ids)]) if sample.params.logprobs else None
        done = Done(
            strand=strand.number,
            op=event.op,
            choice=event.choice,
            reason=event.reason,
            matched=event.matched,
            text=running.text.text,
            ids=event.ids,
            tail=event.tail,
            partial=event.partial,
            notes=entry.notes,
            usage=_usage(entry, event.usage, event.choice),
            seed=sample.params.seed,
            logprobs=logprobs,
            end_logprob=None if event.end is None else self._names.tokens([event.end])[0],
            next_top=self._names.alternatives(event.next_top),
        )
        self._front.constraints.leave(sample)
        owner = strand.parent if strand.hidden else strand
        assert owner is not None
        self._front.done(owner, done)
        if strand.hidden:
            self._front.forget(strand)

    def abort_now(self, strand: Strand) -> None:
        """The core died before it could end an aborted gen: what is known is its partial text."""
        entry = strand.head
        if entry is None or entry.running is None:
            return
        ids = tuple(entry.running.sampled)
        started = entry.started or Usage()
        usage = msgspec.structs.replace(started, sampled=len(ids))
        event = wire.Ended(sid=strand.sid, op=entry.op.op, choice=strand.choice, reason="abort", ids=ids, usage=usage)
        self._advance(strand, entry, ids)
        self._finish(strand, entry, event)

    # ------------------------------------------------------------ the other ops

    def _scored(self, event: wire.Scored) -> None:
        found = self._find(event.sid, event.op)
        if found is None or not isinstance(found[1].op, wire.Score):
            return
        strand, entry = found
        score = found[1].op
        ids = score.choices[event.winner]
        self._advance(strand, entry, ids)
        self._front.done(
            strand,
            Done(
                strand=strand.number,
                op=event.op,
                text=entry.choices[event.winner],
                ids=ids,
                usage=event.usage,
                seed=score.seed,
                scores=event.scores,
                winner=event.winner,
                choice_logprobs=self._names.choices(score.choices, event.logprobs) if event.logprobs else None,
            ),
        )

    def _prompt_scored(self, event: wire.PromptScored) -> None:
        found = self._find(event.sid, event.op)
        if found is None or not isinstance(found[1].op, wire.ScorePrompt):
            return
        strand, entry = found
        new = event.logprobs[max(0, entry.told - entry.heard) :]  # what an earlier core said is not told again
        entry.heard += len(event.logprobs)
        entry.told = max(entry.told, entry.heard)
        last = event.usage is not None
        if new or last:
            strand.session.emit(PromptLogprobs(strand.number, event.op, self._names.prompt(new), last))
        if event.usage is not None:
            self._advance(strand, entry, ())
            self._before(strand, entry, event.usage)

    @staticmethod
    def _before(strand: Strand, entry: Inflight, usage: Usage) -> None:
        """A hidden op is over: what follows it counts what it computed."""
        if strand.head is not None:
            strand.head.before = usage if entry.before is None else _together(entry.before, usage)

    def _forked(self, event: wire.Forked) -> None:
        found = self._find(event.sid, event.op)
        if found is None or not isinstance(found[1].op, wire.ForkAt):
            return
        strand, entry = found
        self._advance(strand, entry, ())
        for child in entry.children:
            child.ids = list(strand.ids or ())
            child.fork_length = len(child.ids)
            child.recount()
        if entry.hidden:
            self._before(strand, entry, event.usage)
        else:
            self._front.done(strand, Done(strand=strand.number, op=event.op, usage=event.usage))

    def _failed(self, event: wire.OpFailed) -> None:
        strand = self._front.sids.get(event.sid)
        if strand is None:
            return
        head = strand.head
        field = head.field if head is not None and event.field == "constraint" else event.field
        error = OpError(event.code, event.message, field)
        del self._front.sids[event.sid]  # the core closed it
        if strand.hidden:
            self._front.kill(strand, error)
            return
        pending = strand.unfinished.get(event.op)
        if pending is None:  # an Append failed: so does the op it was for
            op = head.op.op if head is not None else event.op
            self._front.fail(strand, op, error)
        elif head is not None and isinstance(head.op, wire.ForkAt | wire.ScorePrompt):
            self._front.fail(strand, event.op, error)
        else:
            self._front.fail(strand, event.op, error, (event.choice,))

    def _advance(self, strand: Strand, entry: Inflight, ids: Sequence[int]) -> None:
        """``entry`` is answered: the Appends before it and the ids it made are in the strand."""
        assert strand.ids is not None
        while strand.inflight:
            first = strand.inflight.popleft()
            if first is entry:
                break
            if isinstance(first.op, wire.Append):
                strand.ids += first.op.ids
        strand.ids += ids
        strand.recount()


def whole(ended: wire.Ended, known: Sequence[wire.CoreLogprob]) -> list[wire.CoreLogprob]:
    """The numbers of a text: what earlier cores said of the tokens that they drew (``known``) stays, also of one that
    this core has cut."""
    assert ended.logprobs is not None
    kept = len(ended.ids) - ended.tail
    told = [known[at] if said.logprob is None and at < len(known) else said for at, said in enumerate(ended.logprobs)]
    if kept < len(known) and any(said.logprob is None for said in ended.logprobs[kept:]):
        told[kept:] = known[kept].cut_to(ended.ids[kept:])
    return told


def _together(first: Usage, then: Usage) -> Usage:
    """Of two ops on one prompt, one after the other."""
    return msgspec.structs.replace(
        then,
        cached=max(0, then.cached - first.computed),
        recomputed=first.recomputed + then.recomputed,
        steps=first.steps + then.steps,
        total_s=first.total_s + then.total_s,
    )


def _usage(entry: Inflight, usage: Usage, choice: int) -> Usage:
    """With n > 1 the prompt is counted once: on choice 0, with what hidden ops computed of it."""
    if choice > 0:
        return msgspec.structs.replace(usage, prompt=0, cached=0)
    before = entry.before
    if before is None:
        return usage
    computed = usage.computed + before.computed
    return msgspec.structs.replace(
        usage,
        cached=max(0, usage.prompt - computed),
        recomputed=usage.recomputed + before.recomputed,
        steps=usage.steps + before.steps,
        first_token_s=usage.first_token_s + before.total_s,
        total_s=usage.total_s + before.total_s,
    )
