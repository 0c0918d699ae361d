"""The kernels in Triton, for GPUs; matrix products stay with torch (cuBLAS).

Runs under ``TRITON_INTERPRET=1`` on the host too (set before triton is imported), which is how machines without a GPU
test it. Shapes are those of :class:`plait.runtime.kernels.Kernels`.

::

    attention   sequences of one row    pieces of CHUNK slots -> partial results -> one merge     (flash decoding)
                sequences of more rows  blocks of query vectors against tiles of slots            (flash attention)

The query heads that share a KV head are done together, so each slot is read once for all of them.
"""

from __future__ import annotations

import os

import numpy as np
import torch
import triton

from . import AttentionMeta
from . import triton_device as device
from .reference import ReferenceKernels

CHUNK = 256  # slots of a decode piece; fixed, so that sums do not depend on the batch
TILE = 32  # slots of one product
BLOCK = 64  # query vectors of a prefill block

# Triton's interpreter multiplies the bit patterns of bf16 in tl.dot (3.9), so there the operands are widened first.
_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"


class TritonKernels(ReferenceKernels):
    name = "triton"

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return self._norm(x, None, weight, eps)

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        if not residual.is_contiguous():
            return super().add_rms_norm(x, residual, weight, eps)
        return self._norm(x, residual, weight, eps)

    def _norm(self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        out = torch.empty_like(x)
        device.rms_norm_kernel[(x.numel() // width,)](
            x,
            x if residual is None else residual,
            weight,
            out,
            width,
            width,
            eps,
            HAS_RESIDUAL=residual is not None,
            WIDTH=triton.next_power_of_2(width),
        )
        return out

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
        q, k, v = _rows_dense(q), _rows_dense(k), _rows_dense(v)
        rows, heads, dim = q.shape
        kv_heads = k.shape[1]
        device.rope_and_store_kernel[(rows, heads + kv_heads)](
            q,
            k,
            v,
            q.stride(0),
            k.stride(0),
            v.stride(0),
            positions,
            cos,
            sin,
            k_pool,
            v_pool,
            out_slots,
            HEADS=heads,
            KV_HEADS=kv_heads,
            HALF=dim // 2,
            LANES=triton.next_power_of_2(dim // 2),
        )
        return q

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate_up = gate_up.contiguous()
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((rows, width), dtype=gate_up.dtype, device=gate_up.device)
        lanes = min(1024, triton.next_power_of_2(width))
        device.silu_mul_kernel[(rows, triton.cdiv(width, lanes))](gate_up, out, 2 * width, width, WIDTH=lanes)
        return out

    def attention(
        self,
        q: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        meta: AttentionMeta,
        scale: float,
    ) -> torch.Tensor:
        q = _rows_dense(q)
        _, heads, dim = q.shape
        kv_heads = k_pool.shape[1]
        group = heads // kv_heads
        if group > BLOCK:
            return super().attention(q, k_pool, v_pool, meta, scale)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lanes = max(16, triton.next_power_of_2(dim))
        if meta.max_query > 1:
            blocks = triton.cdiv(meta.max_query, BLOCK // group)
            device.prefill_kernel[(blocks, meta.sequences, kv_heads)](
                q,
                out,
                k_pool,
                v_pool,
                meta.query_starts,
                meta.kv_slots,
                meta.kv_starts,
                q.stride(0),
                scale,
                GROUP=group,
                KV_HEADS=kv_heads,
                DIM=dim,
                LANES=lanes,
                BLOCK=BLOCK,
                TILE=TILE,
                WIDEN=_INTERPRETED,
            )
        single = np.diff(meta.host_query_starts) == 1
        if single.any():
            pieces = triton.cdiv(int(np.diff(meta.host_kv_starts)[single].max()), CHUNK)
            shape = (meta.sequences, pieces, heads)
            partial = torch.empty((*shape, dim), dtype=torch.float32, device=q.device)
            tops = torch.empty(shape, dtype=torch.float32, device=q.device)
            totals = torch.empty(shape, dtype=torch.float32, device=q.device)
            device.decode_kernel[(pieces, meta.sequences, kv_heads)](
                q,
                partial,
                tops,
                totals,
                k_pool,
                v_pool,
                meta.query_starts,
                meta.kv_slots,
                meta.kv_starts,
                q.stride(0),
                scale,
                pieces,
                GROUP=group,
                KV_HEADS=kv_heads,
                DIM=dim,
                LANES=lanes,
                BLOCK=max(16, triton.next_power_of_2(group)),
                TILE=TILE,
                WIDEN=_INTERPRETED,
                CHUNK=CHUNK,
            )
            device.merge_kernel[(meta.sequences, heads)](
                out,
                partial,
                tops,
                totals,
                meta.query_starts,
                meta.kv_starts,
                pieces,
                HEADS=heads,
                DIM=dim,
                LANES=lanes,
                CHUNK=CHUNK,
            )
        return out


def _rows_dense(x: torch.Tensor) -> torch.Tensor:
    """[T, heads, D] whose rows are each contiguous; how far apart the rows are is free."""
    if x.stride(2) == 1 and (x.stride(1) == x.shape[2] or x.shape[1] == 1):
        return x
    return x.contiguous()
