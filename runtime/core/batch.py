"""Segments (runs of rows that one op computes this step) and the flat batch made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ...radix import SlotPool
from ..models.interface import ForwardBatch

if TYPE_CHECKING:
    from .account import Account
    from .strand import Strand

IntArray = NDArray[np.int32]


class Op(Protocol):
    """An op that needs the model: Gen, Scoring, PromptScoring or Forking. Belongs to one strand, which holds it as
    ``current``."""

    op: int
    choice: int
    strand: Strand
    account: Account

    def admitted(self, cached: int) -> bool:
        """``cached`` ids had KV at this admission. Fixes the prompt accounting; True if this was the first."""

    def rows(self) -> int:
        """Rows it could compute in this step. 0: nothing is left to compute."""

    def need(self) -> int:
        """Slots it takes until its first result, from the KV it holds now."""

    def growth(self) -> int:
        """Slots it may take after that, at most."""

    def schedule(self, rows: int, pool: SlotPool) -> list[Segment]:
        """Plan exactly ``rows`` rows (<= :meth:`rows`), with slots of ``pool``, which has them free."""

    def retract(self) -> None:
        """The strand loses its KV: give scratch slots back, and be ready to begin again."""

    def held(self) -> list[IntArray]:
        """Slots held outside the strand's sequence."""


@dataclass(slots=True)
class Segment:
    """``q`` rows of one sequence. ``note`` is the op's own."""

    op: Op
    ids: IntArray  # [q]
    start: int  # position of the first row
    out: IntArray  # [q] slots to write
    visible: IntArray  # [start + q] slots that the last row sees, its own included
    wanted: Sequence[int] = ()  # rows of the segment whose logits are wanted, ascending
    note: object = None


def build(segments: Sequence[Segment]) -> tuple[ForwardBatch, list[slice]]:
    """The flat batch, and for each segment its rows of the logits."""
    lengths = np.fromiter((len(segment.ids) for segment in segments), dtype=np.int32, count=len(segments))
    seen = np.fromiter((len(segment.visible) for segment in segments), dtype=np.int32, count=len(segments))
    starts = np.fromiter((segment.start for segment in segments), dtype=np.int32, count=len(segments))
    query_starts = _offsets(lengths)
    rows = int(query_starts[-1])
    within = np.arange(rows, dtype=np.int32) - np.repeat(query_starts[:-1], lengths)
    logit_rows: list[IntArray] = []
    slices: list[slice] = []
    taken = 0
    for segment, end in zip(segments, query_starts[1:].tolist()):
        if segment.wanted:
            logit_rows.append(np.asarray(segment.wanted, dtype=np.int32) + (end - len(segment.ids)))
        slices.append(slice(taken, taken + len(segment.wanted)))
        taken += len(segment.wanted)
    batch = ForwardBatch(
        ids=np.concatenate([segment.ids for segment in segments]),
        positions=np.repeat(starts, lengths) + within,
        out_slots=np.concatenate([segment.out for segment in segments]),
        query_starts=query_starts,
        kv_slots=np.concatenate([segment.visible for segment in segments]),
        kv_starts=_offsets(seen),
        logit_rows=np.concatenate(logit_rows) if logit_rows else np.empty(0, dtype=np.int32),
    )
    return batch, slices


def _offsets(lengths: IntArray) -> IntArray:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
