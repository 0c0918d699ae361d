"""The few operations a decoder spends its time in, and which implementation runs them.

::

    select(device) ─> reference   plain torch, any device; what the others are held against
                      cpu         native/*.cpp through ctypes; bf16 and fp32 on the host
                      triton      GPUs

All of them share one face, :class:`Kernels`. Shapes: T rows of a batch laid end to end, H query heads over KVH
key/value heads of D, a KV pool of N token slots per layer.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..models.interface import ForwardBatch

__all__ = ["AttentionMeta", "Kernels", "select"]


@dataclass(slots=True, frozen=True)
class AttentionMeta:
    """The index arrays of a :class:`ForwardBatch`, moved to the device once per forward and shared by all layers.

    Row i of a sequence with q rows and k slots sees its first ``k - q + i + 1`` slots.
    """

    positions: torch.Tensor  # int32 [T]
    out_slots: torch.Tensor  # int32 [T]
    query_starts: torch.Tensor  # int32 [S + 1]
    kv_slots: torch.Tensor  # int32 [K]
    kv_starts: torch.Tensor  # int32 [S + 1]
    host_query_starts: NDArray[np.int32]
    host_kv_starts: NDArray[np.int32]
    max_query: int
    max_kv: int

    @classmethod
    def from_batch(cls, batch: ForwardBatch, device: torch.device | str = "cpu") -> AttentionMeta:
        """Raises ValueError if a sequence has no rows, or more rows than slots."""
        query_starts = np.ascontiguousarray(batch.query_starts, dtype=np.int32)
        kv_starts = np.ascontiguousarray(batch.kv_starts, dtype=np.int32)
        queries, slots = np.diff(query_starts), np.diff(kv_starts)
        if len(queries) != len(slots) or len(queries) == 0 or queries.min() < 1 or (slots < queries).any():
            raise ValueError("every sequence of a batch needs at least one row, and at least as many slots as rows")

        def put(array: NDArray[np.int32]) -> torch.Tensor:
            return torch.from_numpy(np.array(array, dtype=np.int32)).to(device)

        return cls(
            positions=put(batch.positions),
            out_slots=put(batch.out_slots),
            query_starts=put(query_starts),
            kv_slots=put(batch.kv_slots),
            kv_starts=put(kv_starts),
            host_query_starts=query_starts,
            host_kv_starts=kv_starts,
            max_query=int(queries.max()),
            max_kv=int(slots.max()),
        )

    @property
    def rows(self) -> int:
        return int(self.host_query_starts[-1])

    @property
    def sequences(self) -> int:
        return len(self.host_query_starts) - 1


class Kernels(Protocol):
    """What a decoder calls. Inputs share one dtype (float32 or bfloat16) unless stated; sums are kept in float32."""

    name: str

    def linear(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """``x [T, I] @ weight [O, I].T + bias [O]`` as [T, O], in x's dtype or ``out_dtype`` (float32: not rounded)."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension; x of any shape, weight [I]."""

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """``residual += x`` in place (both [T, I]), then ``rms_norm(residual)``."""

    def rope_and_store(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        positions: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        out_slots: torch.Tensor,
    ) -> torch.Tensor:
        """Rotate q [T, H, D] and k [T, KVH, D], write k and v to ``out_slots`` of the pools [N, KVH, D], return q.

        Halves are rotated against each other (the convention of transformers' Llama, not the interleaved one).
        ``cos``, ``sin``: float32 [context, D / 2]. q, k, v may be views of one fused [T, (H + 2 KVH) * D]; q may be
        overwritten. positions and out_slots: int32 [T].
        """

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up`` of [T, 2F] laid out as gate, then up; gives [T, F]."""

    def attention(
        self,
        q: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        meta: AttentionMeta,
        scale: float,
    ) -> torch.Tensor:
        """Causal attention of q [T, H, D] over each sequence's slots of the pools [N, KVH, D]; gives [T, H, D]."""


def select(device: torch.device | str = "cpu", *, threads: int | None = None, native: bool = True) -> Kernels:
    """The fastest implementation for ``device``.

    threads: for the native pool on a CPU (default: torch's thread count). ``native=False`` gives the plain torch
    reference. Where no native library can be had, ``native.loader.load`` warns once and the reference is used.
    """
    from .reference import ReferenceKernels

    kind = torch.device(device).type
    if native and kind == "cuda" and importlib.util.find_spec("triton") is not None:
        from .triton import TritonKernels

        return TritonKernels()
    if not native or kind != "cpu":
        return ReferenceKernels()
    from ...native.loader import load

    library = load()
    if library is None:
        return ReferenceKernels()
    from .cpu import CpuKernels

    return CpuKernels(library, threads)
