"""What the core asks of a model: one flat batch in, logits of the asked rows out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class ForwardBatch:
    """Sequences laid end to end. S sequences, T rows (one per token computed), K visible KV slots in all.

    ::

        rows        | seq 0: q0 rows | seq 1: q1 rows | ...          query_starts = [0, q0, q0+q1, ...]
        kv_slots    | seq 0: k0 slots      | seq 1: k1 slots | ...   kv_starts    = [0, k0, k0+k1, ...]

    Row i of a sequence with q rows and k slots sees its first ``k - q + i + 1`` slots (causal; its own is the last).
    Every row's K and V are written to ``out_slots`` before any attention of that layer reads, so a sequence may
    see slots that another sequence of the same batch writes (a prefix shared inside one step).
    """

    ids: NDArray[np.int32]  # [T]
    positions: NDArray[np.int32]  # [T]
    out_slots: NDArray[np.int32]  # [T]
    query_starts: NDArray[np.int32]  # [S + 1]
    kv_slots: NDArray[np.int32]  # [K]
    kv_starts: NDArray[np.int32]  # [S + 1]
    logit_rows: NDArray[np.int32]  # [R] rows whose logits are wanted, ascending


class Model(Protocol):
    """Weights on a device, with a KV pool of token slots."""

    vocab_size: int
    context_length: int
    kv_bytes_per_token: int

    def allocate(self, slots: int) -> None:
        """Make the KV pool: ``slots`` token slots per layer. Called once."""

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """float32 [R, V] logits, on the host when the device is a CPU."""
