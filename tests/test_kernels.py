"""Every implementation of the kernels against the plain torch reference, on shapes that models and batches have."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from plait.native import loader
from plait.runtime.kernels import AttentionMeta, Kernels, select
from plait.runtime.models.interface import ForwardBatch

SLOTS = 1500
REFERENCE = select(native=False)
DTYPES = [torch.float32, torch.bfloat16]
HEADS = [(9, 3, 64), (4, 2, 16), (8, 1, 128), (5, 5, 80), (12, 2, 32)]  # heads, kv heads, head dimension
BATCHES = {  # rows and slots of each sequence
    "one token": ([1], [1]),
    "decode": ([1, 1, 1], [5, 600, 257]),
    "mixed": ([7, 1, 130], [7, 9, 300]),
    "prefill": ([65], [65]),
    "continuation": ([3, 50], [700, 129]),
}


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """The reference's own threads only get in the way of ours at these sizes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


needs_native = pytest.mark.skipif(loader.find_compiler() is None, reason="there is no C++ compiler here")


@pytest.fixture(params=[pytest.param(1, marks=needs_native), pytest.param(2, marks=needs_native)])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    chosen = select("cpu", threads=request.param)
    assert chosen.name == "cpu"
    return chosen


def make_batch(rows: list[int], slots: list[int], seed: int = 0) -> ForwardBatch:
    def ints(values: object) -> np.ndarray:
        return np.asarray(values, dtype=np.int32)

    starts = np.r_[0, np.cumsum(slots)]
    chosen = np.random.default_rng(seed).permutation(SLOTS)[: starts[-1]]
    own = [chosen[starts[i + 1] - q : starts[i + 1]] for i, q in enumerate(rows)]
    return ForwardBatch(
        ids=ints(np.zeros(sum(rows))),
        positions=ints(np.concatenate([np.arange(k - q, k) for q, k in zip(rows, slots, strict=True)])),
        out_slots=ints(np.concatenate(own)),
        query_starts=ints(np.r_[0, np.cumsum(rows)]),
        kv_slots=ints(chosen),
        kv_starts=ints(starts),
        logit_rows=ints(np.cumsum(rows) - 1),
    )


def draw(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    if actual.dtype == torch.float32:
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    else:
        torch.testing.assert_close(actual, expected, rtol=1.6e-2, atol=1e-2)


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("batch", BATCHES)
def test_attention(kernels: Kernels, batch: str, heads: tuple[int, int, int], dtype: torch.dtype) -> None:
    count, kv, dim = heads
    rows, slots = BATCHES[batch]
    meta = AttentionMeta.from_batch(make_batch(rows, slots))
    q = draw(sum(rows), count + 2, dim, dtype=dtype)[:, :count]  # a view, as of a fused projection
    k, v = draw(SLOTS, kv, dim, dtype=dtype, seed=2), draw(SLOTS, kv, dim, dtype=dtype, seed=3)
    close(kernels.attention(q, k, v, meta, dim**-0.5), REFERENCE.attention(q, k, v, meta, dim**-0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_reads_nothing_but_the_visible_slots(kernels: Kernels, dtype: torch.dtype) -> None:
    batch = make_batch([1, 20], [70, 90])
    meta = AttentionMeta.from_batch(batch)
    k, v = torch.full((2, SLOTS, 3, 64), float("nan"), dtype=dtype)
    k[batch.kv_slots] = draw(160, 3, 64, dtype=dtype)
    v[batch.kv_slots] = draw(160, 3, 64, dtype=dtype)
    assert kernels.attention(draw(21, 9, 64, dtype=dtype), k, v, meta, 0.125).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_large_scores(kernels: Kernels, dtype: torch.dtype) -> None:
    meta = AttentionMeta.from_batch(make_batch([1, 20], [300, 90]))
    q, k = draw(21, 9, 64, dtype=dtype) * 20, draw(SLOTS, 3, 64, dtype=dtype) * 20
    v = draw(SLOTS, 3, 64, dtype=dtype, seed=3)
    actual, expected = kernels.attention(q, k, v, meta, 0.125), REFERENCE.attention(q, k, v, meta, 0.125)
    # scores near 500: their last bits (3e-5 each in float32) move the weights
    torch.testing.assert_close(actual, expected, rtol=1e-3 if dtype == torch.float32 else 3e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_that_is_nan_stays_alone(kernels: Kernels, dtype: torch.dtype) -> None:
    meta = AttentionMeta.from_batch(make_batch([1, 1, 20], [300, 40, 90]))
    q = draw(22, 9, 64, dtype=dtype)
    q[0] = float("nan")
    q[5] = float("nan")
    k, v = draw(SLOTS, 3, 64, dtype=dtype, seed=2), draw(SLOTS, 3, 64, dtype=dtype, seed=3)
    out = kernels.attention(q, k, v, meta, 0.125)
    assert out[0].isnan().all()
    assert out[5].isnan().all()
    assert out[torch.tensor([i not in (0, 5) for i in range(22)])].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_a_row_does_not_depend_on_the_batch(kernels: Kernels, dtype: torch.dtype) -> None:
    batch = make_batch([1, 40, 1], [300, 90, 600])
    k, v = draw(SLOTS, 3, 64, dtype=dtype, seed=2), draw(SLOTS, 3, 64, dtype=dtype, seed=3)
    q = draw(42, 9, 64, dtype=dtype)
    together = kernels.attention(q, k, v, AttentionMeta.from_batch(batch), 0.125)
    for i in range(3):
        rows = slice(batch.query_starts[i], batch.query_starts[i + 1])
        seen = batch.kv_slots[batch.kv_starts[i] : batch.kv_starts[i + 1]]
        alone = ForwardBatch(
            batch.ids[rows],
            batch.positions[rows],
            batch.out_slots[rows],
            np.array([0, rows.stop - rows.start], np.int32),
            seen,
            np.array([0, len(seen)], np.int32),
            batch.logit_rows[:1],
        )
        assert torch.equal(kernels.attention(q[rows], k, v, AttentionMeta.from_batch(alone), 0.125), together[rows])


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        AttentionMeta.from_batch(make_batch([1, 0], [3, 4]))
    batch = make_batch([3], [3])
    batch.kv_slots, batch.kv_starts = batch.kv_slots[:2], np.array([0, 2], np.int32)
    with pytest.raises(ValueError, match="as many slots as rows"):
        AttentionMeta.from_batch(batch)


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize("out_dtype", [None, torch.float32])
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 33, 100])
@pytest.mark.parametrize("size", [(576, 576), (77, 50), (3, 16), (200, 1536)])
def test_linear_bf16(kernels: Kernels, size: tuple[int, int], rows: int, out_dtype: torch.dtype | None) -> None:
    outer, inner = size
    x, weight = draw(rows, inner, dtype=torch.bfloat16), draw(outer, inner, dtype=torch.bfloat16, seed=2)
    bias = draw(outer, dtype=torch.bfloat16, seed=3)
    for shift in (None, bias):
        exact = x.double() @ weight.double().t() + (0 if shift is None else shift.double())
        actual = kernels.linear(x, weight, shift, out_dtype=out_dtype)
        assert actual.dtype == (out_dtype or torch.bfloat16)
        if out_dtype is None:
            torch.testing.assert_close(actual.double(), exact, rtol=4.0e-3, atol=1e-3)
        else:
            torch.testing.assert_close(actual.double(), exact, rtol=1e-5, atol=1e-3)


def test_linear_of_a_row_does_not_depend_on_the_batch(kernels: Kernels) -> None:
    x, weight = draw(40, 600, dtype=torch.bfloat16), draw(101, 600, dtype=torch.bfloat16, seed=2)
    together = kernels.linear(x, weight, out_dtype=torch.float32)
    for rows in (slice(0, 1), slice(3, 5), slice(7, 26), slice(39, 40)):
        assert torch.equal(kernels.linear(x[rows], weight, out_dtype=torch.float32), together[rows])


def test_linear_float32_is_torch(kernels: Kernels) -> None:
    x, weight = draw(5, 30, dtype=torch.float32), draw(7, 30, dtype=torch.float32)
    assert torch.equal(kernels.linear(x, weight), torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [576, 64, 20])
@pytest.mark.parametrize("rows", [1, 3, 300])
def test_norms_and_silu(kernels: Kernels, rows: int, width: int, dtype: torch.dtype) -> None:
    x, weight = draw(rows, width, dtype=dtype) * 3, draw(width, dtype=dtype, seed=2)
    close(kernels.rms_norm(x, weight, 1e-5), REFERENCE.rms_norm(x, weight, 1e-5))
    ours, theirs = draw(rows, width, dtype=dtype, seed=4), draw(rows, width, dtype=dtype, seed=4)
    close(
        kernels.add_rms_norm(x, ours, weight, 1e-5),
        REFERENCE.add_rms_norm(x, theirs, weight, 1e-5),
    )
    assert torch.equal(ours, theirs)
    close(kernels.silu_mul(x * 30), REFERENCE.silu_mul(x * 30))


def test_rms_norm_takes_heads(kernels: Kernels) -> None:
    x, weight = draw(4, 9, 64, dtype=torch.float32), draw(64, dtype=torch.float32)
    close(kernels.rms_norm(x, weight, 1e-6), REFERENCE.rms_norm(x, weight, 1e-6))


def test_extremes_of_silu_and_nan(kernels: Kernels) -> None:
    gate = torch.tensor([[float("inf"), -1e30, -100.0, 100.0, float("nan"), 0.0, 1e30, 5.0] * 2])
    pair = torch.cat([gate, torch.ones_like(gate)], dim=1)
    torch.testing.assert_close(kernels.silu_mul(pair), REFERENCE.silu_mul(pair), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS)
def test_rope_and_store(kernels: Kernels, heads: tuple[int, int, int], dtype: torch.dtype) -> None:
    count, kv, dim = heads
    cos, sin = draw(50, dim // 2, dtype=torch.float32), draw(50, dim // 2, dtype=torch.float32, seed=2)
    positions = torch.arange(13, dtype=torch.int32) * 3
    slots = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:13].int()
    results = []
    for implementation in (REFERENCE, kernels):
        qkv = draw(13, count + 2 * kv, dim, dtype=dtype, seed=3)
        pools = torch.zeros(2, 40, kv, dim, dtype=dtype)
        q = implementation.rope_and_store(
            qkv[:, :count],
            qkv[:, count : count + kv],
            qkv[:, count + kv :],
            positions,
            cos,
            sin,
            pools[0],
            pools[1],
            slots,
        )
        results.append((q.clone(), pools))
    close(results[1][0], results[0][0])
    close(results[1][1], results[0][1])


def test_other_dtypes_take_the_reference(kernels: Kernels) -> None:
    meta = AttentionMeta.from_batch(make_batch([2], [5]))
    q, pool = draw(2, 4, 16, dtype=torch.float16), draw(SLOTS, 2, 16, dtype=torch.float16)
    assert torch.equal(kernels.attention(q, pool, pool, meta, 0.25), REFERENCE.attention(q, pool, pool, meta, 0.25))


# ---------------------------------------------------------------- threads


def test_callers_on_several_threads(kernels: Kernels) -> None:
    x, weight = draw(3, 576, dtype=torch.bfloat16), draw(3000, 576, dtype=torch.bfloat16)
    expected = kernels.linear(x, weight)
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(50):
            if not torch.equal(kernels.linear(x, weight), expected):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_native
def test_the_pool_can_be_resized() -> None:
    x, weight = draw(3, 576, dtype=torch.bfloat16), draw(3000, 576, dtype=torch.bfloat16)
    expected = select("cpu", threads=2).linear(x, weight)
    for threads in (4, 1, 3, 2):
        assert torch.equal(select("cpu", threads=threads).linear(x, weight), expected)


@needs_native
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    code = """
import os, torch
from plait.runtime.kernels import select
kernels = select("cpu", threads=2)
x, weight = torch.ones(2, 64).bfloat16(), torch.ones(999, 64).bfloat16()
kernels.linear(x, weight)
child = os.fork()
if not child:
    os._exit(0 if kernels.linear(x, weight).eq(64).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100, env=dict(os.environ))
