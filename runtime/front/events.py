"""What the core says -> what the clients are told, and the record that a replay needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import wire
from ..protocol import Delta, Done, TokenLogprob, TopLogprob, Usage
from .strand import Inflight, OpError, Running, Strand

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger(__name__)


class Answers:
    """Takes the core's frames. Events of strands that are gone are ignored: they crossed an abort."""

    def __init__(self, front: Front) -> None:
        self._front = front

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
                logprobs=self._logprobs(running.logprobs[shown:settled]) if running.logprobs else (),
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
            # Ids that an earlier core sampled have no logprob in this core's answer: what that one said stays.
            known, kept = running.logprobs, len(event.ids) - event.tail
            running.logprobs = [
                known[at] if said.logprob is None and at < min(kept, len(known)) else said
                for at, said in enumerate(event.logprobs)
            ]
        rest = running.text.take(final=True)
        if running.stream:
            self._delta(strand, entry, running, rest, event.ids, len(event.ids))
        logprobs = self._logprobs(running.logprobs[: len(event.ids)]) if sample.params.logprobs else None
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
            ),
        )

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
            head = strand.head
            if head is not None:
                head.forked = event.usage
        else:
            self._front.done(strand, Done(strand=strand.number, op=event.op, usage=event.usage))

    def _failed(self, event: wire.OpFailed) -> None:
        strand = self._front.sids.get(event.sid)
        if strand is None:
            return
        error = OpError(event.code, event.message, event.field)
        del self._front.sids[event.sid]  # the core closed it
        if strand.hidden:
            self._front.kill(strand, error)
            return
        pending = strand.unfinished.get(event.op)
        head = strand.head
        if pending is None:  # an Append failed: so does the op it was for
            op = head.op.op if head is not None else event.op
            self._front.fail(strand, op, error)
        elif head is not None and isinstance(head.op, wire.ForkAt):
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

    def _logprobs(self, logprobs: Sequence[wire.CoreLogprob]) -> tuple[TokenLogprob, ...]:
        name, data = self._front.model.token_text, self._front.model.tokenizer.vocabulary.bytes
        return tuple(
            TokenLogprob(
                item.id,
                name(item.id),
                data(item.id),
                item.logprob,
                item.forced,
                tuple(TopLogprob(token, name(token), data(token), logprob) for token, logprob in item.top),
            )
            for item in logprobs
        )


def _usage(entry: Inflight, usage: Usage, choice: int) -> Usage:
    """With n > 1 the prompt is counted once: on choice 0, with what its fork computed."""
    if choice > 0:
        return msgspec.structs.replace(usage, prompt=0, cached=0)
    forked = entry.forked
    if forked is None:
        return usage
    computed = usage.computed + forked.computed
    return msgspec.structs.replace(
        usage,
        cached=max(0, usage.prompt - computed),
        recomputed=usage.recomputed + forked.recomputed,
        steps=usage.steps + forked.steps,
        first_token_s=usage.first_token_s + forked.total_s,
        total_s=usage.total_s + forked.total_s,
    )
