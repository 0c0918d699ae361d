"""The Triton kernels held against the reference: the same cases on a GPU, and on the host in Triton's interpreter.

As a program (``python triton_check.py``, with TRITON_INTERPRET=1) it prints one JSON object, case to largest error.
The error of a value is |ours - reference| / (tolerance * (1 + |reference|)), so a case passes below 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from plait.runtime.kernels import AttentionMeta, select
from plait.runtime.kernels.triton import TritonKernels

SHAPES = [(9, 3, 64), (5, 5, 80)]  # heads, kv heads, head dimension
BATCHES = {"prefill": ([33], [33]), "mixed": ([7, 1, 25, 1], [7, 300, 70, 9])}
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2}


def check(device: str) -> dict[str, float]:
    return dict(_attention(device)) | dict(_others(device))


def _draw(*shape: int, dtype: torch.dtype, device: str, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


def _error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    difference = (ours.float() - theirs.float()).abs() / (TOLERANCE[ours.dtype] * (1 + theirs.float().abs()))
    return float("inf") if difference.isnan().any() else difference.max().item()


def _attention(device: str) -> Iterator[tuple[str, float]]:
    from test_kernels import SLOTS, make_batch

    reference, ours = select(native=False), TritonKernels()
    for dtype in TOLERANCE:
        for heads, kv, dim in SHAPES:
            for name, (rows, slots) in BATCHES.items():
                meta = AttentionMeta.from_batch(make_batch(rows, slots), device)
                q = _draw(sum(rows), heads + 2, dim, dtype=dtype, device=device)[:, :heads]
                k = _draw(SLOTS, kv, dim, dtype=dtype, device=device, seed=2)
                v = _draw(SLOTS, kv, dim, dtype=dtype, device=device, seed=3)
                pair = [kernels.attention(q, k, v, meta, dim**-0.5) for kernels in (ours, reference)]
                yield f"attention {name} {heads}/{kv}x{dim} {dtype}", _error(*pair)


def _others(device: str) -> Iterator[tuple[str, float]]:
    reference, ours = select(native=False), TritonKernels()
    for dtype in TOLERANCE:
        for width in (576, 20):
            x, weight = _draw(5, width, dtype=dtype, device=device), _draw(width, dtype=dtype, device=device, seed=2)
            yield (
                f"rms_norm {width} {dtype}",
                _error(ours.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5)),
            )
            mine, other = (_draw(5, width, dtype=dtype, device=device, seed=4) for _ in range(2))
            normed = ours.add_rms_norm(x, mine, weight, 1e-5)
            yield f"add_rms_norm {width} {dtype}", _error(normed, reference.add_rms_norm(x, other, weight, 1e-5))
            yield f"residual {width} {dtype}", _error(mine, other)
            yield f"silu_mul {width} {dtype}", _error(ours.silu_mul(x * 20), reference.silu_mul(x * 20))
        for heads, kv, dim in SHAPES:
            cos, sin = _draw(2, 50, dim // 2, dtype=torch.float32, device=device)
            results = []
            for kernels in (ours, reference):
                qkv = _draw(4, heads + 2 * kv, dim, dtype=dtype, device=device, seed=3)
                q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv], qkv[:, heads + kv :]
                pools = torch.zeros(2, 40, kv, dim, dtype=dtype, device=device)
                where = torch.tensor([[7, 0, 49, 3], [3, 39, 0, 8]], dtype=torch.int32, device=device)
                results.append((kernels.rope_and_store(q, k, v, where[0], cos, sin, *pools, where[1]).clone(), pools))
            yield f"rope {heads}/{kv}x{dim} {dtype}", _error(results[0][0], results[1][0])
            yield f"stored {heads}/{kv}x{dim} {dtype}", _error(results[0][1], results[1][1])
        x, weight = _draw(5, 64, dtype=dtype, device=device), _draw(100, 64, dtype=dtype, device=device, seed=2)
        wide = ours.linear(x, weight, out_dtype=torch.float32)
        yield f"linear wide {dtype}", _error(wide, x.float() @ weight.float().t()) / (1 if device == "cpu" else 100)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    json.dump(check("cpu"), sys.stdout)
