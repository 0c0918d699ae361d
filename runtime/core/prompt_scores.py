"""A ScorePrompt at work: the log-probability of each id that the strand holds, from a place on.

::

    ids      0 ...... first ........... at ............. kv_len ............. n
             |        | numbers known   | KV, no numbers | neither           |
    rows              |                 | again          | for the first time, as any prompt's

The logits of the row of id ``i`` say how likely id ``i + 1`` was, so rows ``start - 1`` to ``n - 2`` are wanted. Where
an earlier op left KV but no numbers, the rows are computed again, in scratch slots that are free after the step: what
is cached stays as it is. The last id has no row here, it is computed by whoever samples next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ...radix import SlotPool
from ..protocol import Usage
from ..wire import CorePromptLogprob, PromptScored, ScorePrompt
from .account import Account
from .batch import IntArray, Op, Segment
from .kit import Limits, OpError
from .logprobs import of_rows
from .prefill import prefill
from .strand import Strand

_NO_SLOTS: IntArray = np.empty(0, dtype=np.int32)


class PromptScoring(Op):
    """Over when :attr:`done`. Without a row to compute it is over at once."""

    def __init__(
        self, strand: Strand, request: ScorePrompt, clock: Callable[[], float], limits: Limits, pool: SlotPool
    ) -> None:
        n = strand.seq.n
        numbers = max(0, n - request.start) * (1 + request.top)
        if numbers > limits.numbers:
            raise OpError(
                "invalid_value",
                f"{max(0, n - request.start):,} tokens of the prompt with {request.top} alternatives each are "
                f"{numbers:,} numbers, and at most {limits.numbers:,} are given: ask for fewer alternatives, or for a "
                "shorter part",
                "logprob_start_len",
            )
        self.strand = strand
        self.op = request.op
        self.choice = 0
        self.account = Account(clock)
        self._top = request.top
        self._first = max(request.start - 1, 0)
        self._end = max(n - 1, 0)  # rows before this one
        self._at = self._first
        # Scratch must fit beside the strand's own ids, even where the pool holds little more than those.
        self._rows_per_step = max(1, min(limits.rows, pool.total - n))
        self._scratch = _NO_SLOTS
        self._found: list[CorePromptLogprob] = []
        if request.start == 0 and n:
            self._found.append(CorePromptLogprob(int(strand.seq.ids[0]), None))

    @property
    def done(self) -> bool:
        return self._at >= self._end

    # ------------------------------------------------------------ Op

    def rows(self) -> int:
        if self.done:
            return 0
        computed = self.strand.seq.kv_len
        if self._at < computed:
            return min(computed, self._end, self._at + self._rows_per_step) - self._at
        return min(self._end, self._at + self._rows_per_step) - computed

    def need(self) -> int:
        computed = self.strand.seq.kv_len
        again = min(self._rows_per_step, max(0, min(computed, self._end) - self._at))
        return max(0, self._end - computed) + again

    def growth(self) -> int:
        return 0

    def schedule(self, rows: int, pool: SlotPool) -> list[Segment]:
        start = self.strand.seq.kv_len
        if self._at < start:
            return [self._again(rows, pool)]
        segment = prefill(self, self.account, rows, pool, wanted=False)
        segment.wanted = range(max(self._at - start, 0), rows)
        return [segment]

    def _again(self, rows: int, pool: SlotPool) -> Segment:
        """Rows that have KV already, for their logits alone."""
        seq, start = self.strand.seq, self._at
        self._scratch = pool.allocate(rows)
        self.account.steps += 1
        visible = np.concatenate((seq.slots[:start], self._scratch))
        return Segment(self, seq.ids[start : start + rows], start, self._scratch, visible, range(rows))

    def retract(self) -> None:
        self.account.lose(self.strand.seq.kv_len)
        self._scratch = _NO_SLOTS

    def held(self) -> list[IntArray]:
        return [self._scratch] if len(self._scratch) else []

    # ------------------------------------------------------------ results

    def admitted(self, cached: int) -> bool:
        """The first admission fixes the prompt accounting: what is computed again is not cached. True if this was
        it."""
        return self.account.start(self._end, min(cached, self._first, self._end))

    def receive(self, segment: Segment, logits: torch.Tensor, pool: SlotPool) -> None:
        """``logits`` float32 [wanted, V]. Raises OpError if they are not finite."""
        if len(self._scratch):
            pool.release(self._scratch)
            self._scratch = _NO_SLOTS
        if not segment.wanted:
            return
        tokens = self.strand.seq.ids[self._at + 1 : self._at + 1 + len(segment.wanted)]
        found = of_rows(logits, tokens, self._top)
        if found is None:
            raise OpError("internal", "the logits hold NaN")
        self._found += (CorePromptLogprob(int(token), *numbers) for token, numbers in zip(tokens, found))
        self._at += len(segment.wanted)

    def outgoing(self) -> list[PromptScored]:
        """What is new since the last call. Nothing once :attr:`done`, see :meth:`finish`."""
        return [self._event()] if self._found and not self.done else []

    def finish(self) -> PromptScored:
        return self._event(self.account.usage())

    def _event(self, usage: Usage | None = None) -> PromptScored:
        found, self._found = tuple(self._found), []
        return PromptScored(sid=self.strand.sid, op=self.op, logprobs=found, usage=usage)
