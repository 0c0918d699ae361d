"""Every kernel in plain torch: slow, clear, on any device. The other implementations are tested against this one."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from . import AttentionMeta


class ReferenceKernels:
    name = "reference"

    def linear(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        if out_dtype is None or out_dtype == x.dtype:
            return F.linear(x, weight, bias)
        if x.is_cuda and out_dtype == torch.float32:
            out = torch.mm(x, weight.t(), out_dtype=torch.float32)
            return out if bias is None else out + bias
        return F.linear(x.to(out_dtype), weight.to(out_dtype), None if bias is None else bias.to(out_dtype))

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
        return (wide * weight.float()).to(x.dtype)

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        residual.add_(x)
        return self.rms_norm(residual, weight, eps)

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
        row_cos = cos[positions.long()].unsqueeze(1)
        row_sin = sin[positions.long()].unsqueeze(1)
        slots = out_slots.long()
        k_pool[slots] = _rotate(k, row_cos, row_sin)
        v_pool[slots] = v
        return _rotate(q, row_cos, row_sin)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.float().chunk(2, dim=-1)
        return (F.silu(gate) * up).to(gate_up.dtype)

    def attention(
        self,
        q: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        meta: AttentionMeta,
        scale: float,
    ) -> torch.Tensor:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        group = q.shape[1] // k_pool.shape[1]
        slots = meta.kv_slots.long()
        query_starts, kv_starts = meta.host_query_starts.tolist(), meta.host_kv_starts.tolist()
        for i in range(meta.sequences):
            rows = slice(query_starts[i], query_starts[i + 1])
            seen = slots[kv_starts[i] : kv_starts[i + 1]]
            keys = k_pool[seen].float().repeat_interleave(group, dim=1)
            values = v_pool[seen].float().repeat_interleave(group, dim=1)
            scores = torch.einsum("qhd,khd->hqk", q[rows].float(), keys) * scale
            queries = rows.stop - rows.start
            if queries > 1:
                last = torch.arange(queries, device=q.device).unsqueeze(1) + (len(seen) - queries)
                hidden = torch.arange(len(seen), device=q.device).unsqueeze(0) > last
                scores.masked_fill_(hidden, float("-inf"))
            out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values).to(q.dtype)
        return out


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1).to(x.dtype)
