"""The kernels over ``native/``: float32 and bfloat16 on the host, with the library's own threads.

What the library does not take (other dtypes, a head dimension that 16 does not divide) goes to the reference.
float32 matrix products stay with torch: they are the reference mode's arithmetic.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from . import AttentionMeta
from .reference import ReferenceKernels

_WIDE = {torch.float32: 1, torch.bfloat16: 0}
_POINTER, _INT, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_float


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes the signatures of the functions used here."""
    signatures = {
        "plait_linear_bf16": [_POINTER] * 4 + [_INT] * 4,
        "plait_rms_norm": [_POINTER, _LONG, _POINTER, _POINTER, _POINTER, _INT, _INT, _FLOAT, _INT],
        "plait_rope_and_store": [_POINTER, _LONG] * 3 + [_POINTER] * 6 + [_INT] * 5,
        "plait_silu_mul": [_POINTER, _LONG, _POINTER, _INT, _INT, _INT],
        "plait_attention": [_POINTER, _LONG] + [_POINTER] * 6 + [_INT] * 4 + [_FLOAT, _INT],
        "plait_set_threads": [_INT],
    }
    for name, types in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, None
    return library


def most_linear_rows(library: ctypes.CDLL) -> int:
    """Up to how many rows the native bf16 product is the faster one.

    Measured on AVX512-BF16 without AMX: native leads torch (oneDNN) at every row count, most at one row (1.5 to 2.4
    times). With AMX, oneDNN's tiles win from 16 rows on; without bf16 instructions native code has to widen first.
    """
    if not library.plait_has_bf16_products() or "amx_bf16" in _cpu_flags():
        return 15
    return 1 << 30


def _cpu_flags() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class CpuKernels(ReferenceKernels):
    name = "cpu"

    def __init__(self, library: ctypes.CDLL, threads: int | None = None) -> None:
        self._library = declare(library)
        self._linear_rows = most_linear_rows(library)
        self._most_dim = int(library.plait_attention_max_dim())
        self._most_group = int(library.plait_attention_max_group())
        self.set_threads(threads or torch.get_num_threads())

    def set_threads(self, threads: int) -> None:
        """Threads of the native pool, the caller's included. The pool is one per process."""
        self._library.plait_set_threads(threads)

    def linear(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        wide = out_dtype == torch.float32
        rows = x.shape[0]
        if (
            x.dtype != torch.bfloat16
            or weight.dtype != torch.bfloat16
            or x.dim() != 2
            or (rows > self._linear_rows and not wide)
            or not weight.is_contiguous()
            or out_dtype not in (None, torch.float32, torch.bfloat16)
        ):
            return super().linear(x, weight, bias, out_dtype)
        x = x.contiguous()
        outer, inner = weight.shape
        out = torch.empty((rows, outer), dtype=torch.float32 if wide else torch.bfloat16)
        shift = None if bias is None else bias.float().contiguous()
        self._library.plait_linear_bf16(
            x.data_ptr(),
            weight.data_ptr(),
            None if shift is None else shift.data_ptr(),
            out.data_ptr(),
            rows,
            outer,
            inner,
            wide,
        )
        return out

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = _WIDE.get(x.dtype)
        if wide is None or weight.dtype != x.dtype:
            return super().rms_norm(x, weight, eps)
        x = x.contiguous()
        width = x.shape[-1]
        out = torch.empty_like(x)
        rows = x.numel() // width
        self._library.plait_rms_norm(
            x.data_ptr(), width, None, weight.data_ptr(), out.data_ptr(), rows, width, eps, wide
        )
        return out

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        wide = _WIDE.get(x.dtype)
        if wide is None or weight.dtype != x.dtype or residual.dtype != x.dtype or not residual.is_contiguous():
            return super().add_rms_norm(x, residual, weight, eps)
        x = x.contiguous()
        width = x.shape[-1]
        out = torch.empty_like(x)
        rows = x.numel() // width
        self._library.plait_rms_norm(
            x.data_ptr(), width, residual.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, eps, wide
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
        wide = _WIDE.get(q.dtype)
        if wide is None or any(t.dtype != q.dtype for t in (k, v, k_pool, v_pool)):
            return super().rope_and_store(q, k, v, positions, cos, sin, k_pool, v_pool, out_slots)
        q, k, v = _rows_dense(q), _rows_dense(k), _rows_dense(v)
        rows, heads, dim = q.shape
        self._library.plait_rope_and_store(
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            positions.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            k_pool.data_ptr(),
            v_pool.data_ptr(),
            out_slots.data_ptr(),
            rows,
            heads,
            k.shape[1],
            dim,
            wide,
        )
        return q

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        wide = _WIDE.get(gate_up.dtype)
        if wide is None or gate_up.dim() != 2:
            return super().silu_mul(gate_up)
        gate_up = gate_up.contiguous()
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((rows, width), dtype=gate_up.dtype)
        self._library.plait_silu_mul(gate_up.data_ptr(), 2 * width, out.data_ptr(), rows, width, wide)
        return out

    def attention(
        self,
        q: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        meta: AttentionMeta,
        scale: float,
    ) -> torch.Tensor:
        wide = _WIDE.get(q.dtype)
        _, heads, dim = q.shape
        kv_heads = k_pool.shape[1]
        if (
            wide is None
            or k_pool.dtype != q.dtype
            or dim % 16
            or dim > self._most_dim
            or heads // kv_heads > self._most_group
        ):
            return super().attention(q, k_pool, v_pool, meta, scale)
        q = _rows_dense(q)
        out = torch.empty(q.shape, dtype=q.dtype)
        self._library.plait_attention(
            q.data_ptr(),
            q.stride(0),
            out.data_ptr(),
            k_pool.data_ptr(),
            v_pool.data_ptr(),
            meta.query_starts.data_ptr(),
            meta.kv_slots.data_ptr(),
            meta.kv_starts.data_ptr(),
            meta.sequences,
            heads,
            kv_heads,
            dim,
            scale,
            wide,
        )
        return out


def _rows_dense(x: torch.Tensor) -> torch.Tensor:
    """[T, heads, D] whose rows are each contiguous; how far apart the rows are is free."""
    if x.stride(2) == 1 and (x.stride(1) == x.shape[2] or x.shape[1] == 1):
        return x
    return x.contiguous()
