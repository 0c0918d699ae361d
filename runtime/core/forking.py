"""A ForkAt at work: the parent's KV is computed and committed, so that the children find it."""

from __future__ import annotations

from collections.abc import Callable

from ...radix import SlotPool
from ..wire import ForkAt
from .account import Account
from .batch import IntArray, Op, Segment
from .prefill import prefill
from .strand import Strand


class Forking(Op):
    """Computes all ids but the last: that one's logits belong to whoever samples next, so each computes it itself
    (or finds it, when a sibling came first). A fork right after a Sample needs no forward at all.
    """

    def __init__(self, strand: Strand, request: ForkAt, clock: Callable[[], float]) -> None:
        self.strand = strand
        self.op = request.op
        self.choice = 0
        self.children = request.children
        self.account = Account(clock)

    def rows(self) -> int:
        return max(0, self.strand.seq.n - 1 - self.strand.seq.kv_len)

    def need(self) -> int:
        return self.rows()

    def growth(self) -> int:
        return 0

    def schedule(self, rows: int, pool: SlotPool) -> list[Segment]:
        return [prefill(self, self.account, rows, pool, wanted=False)]

    def admitted(self, cached: int) -> bool:
        """``prompt`` counts the ids whose KV the fork makes sure of: all but the last. True the first time."""
        prompt = max(0, self.strand.seq.n - 1)
        return self.account.start(prompt, min(cached, prompt))

    def retract(self) -> None:
        self.account.lose(self.strand.seq.kv_len)

    def held(self) -> list[IntArray]:
        return []
