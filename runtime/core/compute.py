"""The two halves after the schedule: run the model, and hand each op its rows of logits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch

from .batch import Op, Segment, build
from .budget import Purse
from .forking import Forking
from .gen import Gen
from .kit import OpError
from .logprobs import logprob
from .sampler import Sampled, SamplerRow, sample
from .schedule import WINDOW, Turn
from .scoring import Scoring
from .state import State
from .strand import Status

log = logging.getLogger("plait.core")


class Forward:
    """One forward of everything scheduled. If it raises, every strand in it fails and none of its KV is kept."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer

    def run(self, state: State, turn: Turn) -> None:
        if not turn.segments:
            return
        batch, turn.slices = build(turn.segments)
        state.counters.steps += 1
        began = self._timer()
        try:
            turn.logits = state.model.forward(batch)
        except Exception as error:  # whatever a model raises must not end the core
            log.exception("forward of %d rows failed", len(batch.ids))
            for strand in {segment.op.strand: None for segment in turn.segments}:
                state.poison(strand, f"the forward pass failed: {type(error).__name__}: {error}")
            state.rescue()
            turn.segments = []
        state.counters.timings.forward += self._timer() - began


class Deliver:
    """Sample where logits are, advance every op by its rows, end what is over."""

    def run(self, state: State, turn: Turn) -> None:
        if not turn.segments or turn.logits is None:
            return
        drawing: list[tuple[Gen, int, int]] = []  # with where its rows of the logits begin, and which is next
        others: list[tuple[Segment, slice]] = []
        for segment, rows in zip(turn.segments, turn.slices):
            if isinstance(segment.op, Gen) and segment.wanted:
                drawing.append((segment.op, rows.start, 0))
            else:
                others.append((segment, rows))
        faults = self._receive(turn.logits, others)
        while drawing:
            picks = self._pick(turn.logits, [(gen, start + row) for gen, start, row in drawing])
            faults += [(gen, found.error) for (gen, _, _), found in zip(drawing, picks) if found.error is not None]
            self._poison(state, faults)
            faults = []
            going: list[tuple[Gen, int, int]] = []  # their drafts were right so far
            for (gen, start, _), found in zip(drawing, picks):
                if found.error is None and gen.strand.current is gen and gen.strand.status is Status.RUNNING:
                    row = self._advance(state, gen, found)
                    if row is not None:
                        going.append((gen, start, row))
            drawing = going
        self._poison(state, faults)
        for op in {segment.op: None for segment, _ in others}:
            if op.strand.current is op and op.strand.status is Status.RUNNING:
                self._conclude(state, op)

    def _poison(self, state: State, faults: list[tuple[Op, str]]) -> None:
        for fault, message in faults:
            if fault.strand.current is fault:
                state.poison(fault.strand, message)
        if faults:
            state.rescue()

    def _pick(self, logits: torch.Tensor, gens: list[tuple[Gen, int]]) -> list[Sampled]:
        """A token for each gen: sampled, or the forced one that waited for its logprob."""
        picks: list[Sampled | None] = [None] * len(gens)
        rows: list[SamplerRow] = []
        free: list[int] = []  # indices into gens
        for index, (gen, at) in enumerate(gens):
            forced = gen.forced_next
            if forced is not None:
                value, top = logprob(logits[at].cpu().numpy(), forced, gen.params.top_logprobs)
                picks[index] = Sampled(forced, value, top)
                continue
            try:
                rows.append(gen.row())
                free.append(index)
            except Exception as error:  # a fault of ours in one op: it fails that strand and no other
                log.exception("strand %d has no mask", gen.strand.sid)
                picks[index] = Sampled(-1, error=f"{type(error).__name__}: {error}")
        if free:
            table = logits if len(free) == len(logits) else logits[[gens[index][1] for index in free]]
            for index, found in zip(free, sample(table, rows)):
                picks[index] = found
        return [found for found in picks if found is not None]

    def _receive(self, logits: torch.Tensor, others: list[tuple[Segment, slice]]) -> list[tuple[Op, str]]:
        faults: list[tuple[Op, str]] = []
        for segment, rows in others:
            if isinstance(segment.op, Scoring):
                try:
                    segment.op.receive(segment, logits[rows])
                except OpError as error:
                    faults.append((segment.op, error.message))
        return faults

    def _advance(self, state: State, gen: Gen, found: Sampled) -> int | None:
        """Which of its rows of the logits the gen draws from next; None: it needs another forward, or is over."""
        with state.guard(gen.strand):
            gen.strand.seq.forget_fresh()
            gen.pick(found)
            state.look(gen)
            row = gen.next_row()
            if row is not None:
                return row
            drafted, accepted = gen.land(state.pool)
            state.counters.drafted_tokens += drafted
            state.counters.accepted_tokens += accepted
            if gen.end is not None:
                state.end_gen(gen)
            else:
                state.events += gen.outgoing()
        return None

    def _conclude(self, state: State, op: Op) -> None:
        """An op that got rows but no token: the middle of a prompt, a fork, a score, a prefill."""
        with state.guard(op.strand):
            if isinstance(op, Gen):
                op.computed()
                state.events += op.outgoing()
                if op.end is not None:
                    state.end_gen(op)
            elif isinstance(op, Forking):
                if not op.rows():
                    state.end_fork(op)
            elif isinstance(op, Scoring) and not op.need():
                state.end_score(op)


class Speculate:
    """Gens draft what follows where their constraints leave little open, while the budget lasts."""

    def run(self, state: State, turn: Turn) -> None:
        for strand in [*state.running, *state.waiting[:WINDOW]]:
            gen = strand.current
            if not isinstance(gen, Gen) or not gen.undrafted:
                continue
            seconds = state.budget.slice(Purse.DRAFT)
            if seconds <= 0.0:
                return
            began = time.monotonic()
            with state.guard(strand):
                gen.speculate(seconds)
            state.budget.spent(Purse.DRAFT, time.monotonic() - began)


class Prepare:
    """Gens that do not know yet what their constraints allow look for it, one slice each, while the budget lasts."""

    def run(self, state: State, turn: Turn) -> None:
        for gen in list(state.unready):
            with state.guard(gen.strand):
                state.look(gen)
                if gen.end is not None:
                    gen.admitted(gen.strand.seq.n)
                    state.end_gen(gen)
                elif gen.strand.status is Status.RUNNING:
                    state.events += gen.outgoing()
