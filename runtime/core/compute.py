"""The two halves after the schedule: run the model, and hand each op its rows of logits."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .batch import Op, Segment, build
from .forking import Forking
from .gen import Gen
from .kit import OpError
from .logprobs import logprob
from .prompt_scores import PromptScoring
from .sampler import Sampled, SamplerRow, sample
from .schedule import Turn
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
            state.sieve.apply(turn.logits)
        except Exception as error:  # whatever a model raises must not end the core
            log.exception("forward of %d rows failed", len(batch.ids))
            for strand in {segment.op.strand: None for segment in turn.segments}:
                state.poison(strand, f"the forward pass failed: {type(error).__name__}: {error}")
            state.rescue()
            turn.segments = []
        state.counters.timings.forward += self._timer() - began


@dataclass(slots=True)
class Draw:
    """A gen that draws from a row of the logits; ``first`` is the first of its rows."""

    gen: Gen
    first: int
    row: int


class Deliver:
    """Sample where logits are, advance every op by its rows, end what is over."""

    def run(self, state: State, turn: Turn) -> None:
        if not turn.segments or turn.logits is None:
            return
        draws: list[Draw] = []
        others: list[tuple[Segment, slice]] = []
        for segment, rows in zip(turn.segments, turn.slices):
            if isinstance(segment.op, Gen) and segment.wanted and not segment.op.peeks:
                draws.append(Draw(segment.op, rows.start, rows.start))
            else:
                others.append((segment, rows))
        self._poison(state, self._receive(state, turn.logits, others))
        logits = turn.logits if len(draws) == len(turn.logits) else turn.logits.cpu()  # once, not in each round
        while draws:
            draws = self._round(state, logits, draws)
        for op in {segment.op: None for segment, _ in others}:
            if op.strand.current is op and op.strand.status is Status.RUNNING:
                self._conclude(state, op)

    def _round(self, state: State, logits: torch.Tensor, draws: list[Draw]) -> list[Draw]:
        """Each draws one token. Those whose drafts were right so far draw again, from the row behind it."""
        draws = [draw for draw in draws if self._running(draw.gen)]  # a fault of another may have taken its KV
        picks = self._pick(logits, draws)
        self._poison(state, [(draw.gen, found.error) for draw, found in zip(draws, picks) if found.error is not None])
        again: list[Draw] = []
        for draw, found in zip(draws, picks):
            gen = draw.gen
            if found.error is None and self._running(gen):
                row = self._advance(state, gen, found)
                if row is not None:
                    again.append(Draw(gen, draw.first, draw.first + row))
        return again

    @staticmethod
    def _running(gen: Gen) -> bool:
        return gen.strand.current is gen and gen.strand.status is Status.RUNNING

    def _poison(self, state: State, faults: list[tuple[Op, str]]) -> None:
        for fault, message in faults:
            if fault.strand.current is fault:
                state.poison(fault.strand, message)
        if faults:
            state.rescue()

    def _pick(self, logits: torch.Tensor, draws: list[Draw]) -> list[Sampled]:
        """A token for each gen: sampled, or the forced one that waited for its logprob."""
        picks: list[Sampled | None] = [None] * len(draws)
        rows: list[SamplerRow] = []
        free: list[int] = []  # indices into draws
        for index, draw in enumerate(draws):
            gen = draw.gen
            forced = gen.forced_next
            if forced is not None:
                value, top = logprob(logits[draw.row].cpu().numpy(), forced, gen.params.top_logprobs)
                wrong = "the logits hold NaN" if math.isnan(value) else None
                picks[index] = Sampled(forced, value, top, wrong)
                continue
            try:
                rows.append(gen.row())
                free.append(index)
            except Exception as error:  # a fault of ours in one op: it fails that strand and no other
                log.exception("strand %d has no mask", gen.strand.sid)
                picks[index] = Sampled(-1, error=f"{type(error).__name__}: {error}")
        if free:
            table = logits if len(free) == len(logits) else logits[[draws[index].row for index in free]]
            for index, found in zip(free, sample(table, rows)):
                picks[index] = found
        return [found for found in picks if found is not None]

    def _receive(self, state: State, logits: torch.Tensor, others: list[tuple[Segment, slice]]) -> list[tuple[Op, str]]:
        faults: list[tuple[Op, str]] = []
        for segment, rows in others:
            op = segment.op
            try:
                if isinstance(op, Scoring):
                    op.receive(segment, logits[rows])
                elif isinstance(op, PromptScoring):
                    op.receive(segment, logits[rows], state.pool)
                elif isinstance(op, Gen) and segment.wanted:
                    op.peek(logits[rows][0].cpu().numpy())
            except OpError as error:
                faults.append((op, error.message))
        return faults

    def _advance(self, state: State, gen: Gen, found: Sampled) -> int | None:
        """Which of its rows of the logits the gen draws from next; None: it needs another forward, or is over."""
        with state.guard(gen.strand):
            gen.strand.seq.forget_fresh()
            gen.pick(found)
            state.look(gen)
            row = gen.next_row()
            if row is not None:
                state.events += gen.outgoing()  # as it would have been told without a draft, whatever comes next
                return row
            drafted, accepted = gen.ahead.accept(state.pool)
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
            elif isinstance(op, Scoring):
                if not op.need():
                    state.end_score(op)
            elif isinstance(op, PromptScoring):
                state.events += op.outgoing()
                if op.done:
                    state.end_prompt_score(op)


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
