"""What runs on the GPU: the bodies of the kernels that triton.py launches. Strides are in elements."""

# Triton gives these functions' arguments their types when it compiles them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x, residual, weight, out, stride, width, eps, HAS_RESIDUAL: tl.constexpr, WIDTH: tl.constexpr
):  # one row a program
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, WIDTH)
    inside = d < width
    value = tl.load(x + row * stride + d, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        kept = residual + row * width + d
        value = (tl.load(kept, mask=inside, other=0.0).to(tl.float32) + value.to(tl.float32)).to(value.dtype)
        tl.store(kept, value, mask=inside)
    wide = value.to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    scaled = wide * factor * tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + d, scaled.to(value.dtype), mask=inside)


@triton.jit
def _rotate(source, target, c, s, d, inside, HALF: tl.constexpr):
    low = tl.load(source + d, mask=inside, other=0.0)
    high = tl.load(source + HALF + d, mask=inside, other=0.0)
    kind = low.dtype
    low = low.to(tl.float32)
    high = high.to(tl.float32)
    tl.store(target + d, (low * c - high * s).to(kind), mask=inside)
    tl.store(target + HALF + d, (high * c + low * s).to(kind), mask=inside)


@triton.jit
def rope_and_store_kernel(
    q, k, v, q_stride, k_stride, v_stride, positions, cos, sin, k_pool, v_pool, out_slots,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    # one row and one head a program; a key's program moves its value too
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    d = tl.arange(0, LANES)
    inside = d < HALF
    at = tl.load(positions + row).to(tl.int64) * HALF
    c = tl.load(cos + at + d, mask=inside, other=0.0)
    s = tl.load(sin + at + d, mask=inside, other=0.0)
    if head < HEADS:
        place = q + row * q_stride + head * 2 * HALF
        _rotate(place, place, c, s, d, inside, HALF)
    else:
        kv_head = head - HEADS
        slot = (tl.load(out_slots + row).to(tl.int64) * KV_HEADS + kv_head) * 2 * HALF
        _rotate(k + row * k_stride + kv_head * 2 * HALF, k_pool + slot, c, s, d, inside, HALF)
        value = v + row * v_stride + kv_head * 2 * HALF
        tl.store(v_pool + slot + d, tl.load(value + d, mask=inside, other=0.0), mask=inside)
        tl.store(v_pool + slot + HALF + d, tl.load(value + HALF + d, mask=inside, other=0.0), mask=inside)


@triton.jit
def silu_mul_kernel(gate_up, out, stride, width, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = d < width
    gate = tl.load(gate_up + row * stride + d, mask=inside, other=0.0)
    up = tl.load(gate_up + row * stride + width + d, mask=inside, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    tl.store(out + row * width + d, (wide / (1.0 + tl.exp(-wide)) * up).to(gate.dtype), mask=inside)


@triton.jit
def _attend(
    query, k_pool, v_pool, kv_slots, begin, end, visible, top, total, acc, scale, kv_head,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Take slots [begin, end) into the running softmax of query [M, LANES]; vector i sees those below visible[i]."""
    d = tl.arange(0, LANES)
    for start in range(begin, end, TILE):
        n = start + tl.arange(0, TILE)
        slot = tl.load(kv_slots + n, mask=n < end, other=0).to(tl.int64)
        place = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        inside = (n < end)[:, None] & (d < DIM)[None, :]
        key = tl.load(k_pool + place, mask=inside, other=0.0)
        value = tl.load(v_pool + place, mask=inside, other=0.0)
        if WIDEN:
            key = key.to(tl.float32)
            value = value.to(tl.float32)
            query = query.to(tl.float32)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where((n < end)[None, :] & (n[None, :] < visible[:, None]), scores, float("-inf"))
        newest = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - newest[:, None])
        factor = tl.exp(top - newest)
        total = total * factor + tl.sum(weights, axis=1)
        acc = acc * factor[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        top = newest
    return top, total, acc


@triton.jit
def prefill_kernel(
    q, out, k_pool, v_pool, query_starts, kv_slots, kv_starts, q_stride, scale,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(1)
    kv_head = tl.program_id(2)
    first_row = tl.load(query_starts + sequence)
    rows = tl.load(query_starts + sequence + 1) - first_row
    begin = tl.program_id(0) * (BLOCK // GROUP)
    if (rows > 1) & (begin < rows):
        kv_start = tl.load(kv_starts + sequence)
        before = tl.load(kv_starts + sequence + 1) - kv_start - rows
        i = tl.arange(0, BLOCK)
        d = tl.arange(0, LANES)
        row = begin + i // GROUP
        used = (i < BLOCK // GROUP * GROUP) & (row < rows)
        head = kv_head * GROUP + i % GROUP
        inside = used[:, None] & (d < DIM)[None, :]
        place = (first_row + row).to(tl.int64)
        query = tl.load(q + (place * q_stride + head * DIM)[:, None] + d[None, :], mask=inside, other=0.0)
        visible = before + row + 1
        end = tl.minimum(before + begin + BLOCK // GROUP, before + rows)
        top = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        acc = tl.zeros([BLOCK, LANES], tl.float32)
        top, total, acc = _attend(
            query, k_pool, v_pool, kv_slots + kv_start, 0, end, visible, top, total, acc, scale, kv_head,
            KV_HEADS, DIM, LANES, TILE, WIDEN,
        )  # fmt: skip
        result = (acc / total[:, None]).to(query.dtype)
        tl.store(out + ((place * KV_HEADS * GROUP + head) * DIM)[:, None] + d[None, :], result, mask=inside)


@triton.jit
def decode_kernel(
    q, partial, tops, totals, k_pool, v_pool, query_starts, kv_slots, kv_starts, q_stride, scale, pieces,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, CHUNK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    sequence = tl.program_id(1)
    kv_head = tl.program_id(2)
    row = tl.load(query_starts + sequence)
    kv_start = tl.load(kv_starts + sequence)
    seen = tl.load(kv_starts + sequence + 1) - kv_start
    begin = piece * CHUNK
    if (tl.load(query_starts + sequence + 1) - row == 1) & (begin < seen):
        i = tl.arange(0, BLOCK)
        d = tl.arange(0, LANES)
        head = kv_head * GROUP + i
        inside = (i < GROUP)[:, None] & (d < DIM)[None, :]
        place = row.to(tl.int64) * q_stride + head * DIM
        query = tl.load(q + place[:, None] + d[None, :], mask=inside, other=0.0)
        top = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        acc = tl.zeros([BLOCK, LANES], tl.float32)
        end = tl.minimum(begin + CHUNK, seen)
        visible = tl.zeros([BLOCK], tl.int32) + seen
        top, total, acc = _attend(
            query, k_pool, v_pool, kv_slots + kv_start, begin, end, visible, top, total, acc, scale, kv_head,
            KV_HEADS, DIM, LANES, TILE, WIDEN,
        )  # fmt: skip
        to = (sequence.to(tl.int64) * pieces + piece) * KV_HEADS * GROUP + head
        tl.store(tops + to, top, mask=i < GROUP)
        tl.store(totals + to, total, mask=i < GROUP)
        tl.store(partial + to[:, None] * DIM + d[None, :], acc, mask=inside)


@triton.jit
def merge_kernel(
    out, partial, tops, totals, query_starts, kv_starts, pieces,
    HEADS: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(query_starts + sequence)
    if tl.load(query_starts + sequence + 1) - row == 1:
        d = tl.arange(0, LANES)
        inside = d < DIM
        seen = tl.load(kv_starts + sequence + 1) - tl.load(kv_starts + sequence)
        at = sequence.to(tl.int64) * pieces * HEADS + head
        top = tl.load(tops + at)
        total = tl.load(totals + at)
        acc = tl.load(partial + at * DIM + d, mask=inside, other=0.0)
        for piece in range(1, tl.cdiv(seen, CHUNK)):
            here = at + piece * HEADS
            other = tl.load(tops + here)
            newest = tl.maximum(top, other)
            mine = tl.exp(top - newest)
            theirs = tl.exp(other - newest)
            total = total * mine + tl.load(totals + here) * theirs
            acc = acc * mine + tl.load(partial + here * DIM + d, mask=inside, other=0.0) * theirs
            top = newest
        place = (row.to(tl.int64) * HEADS + head) * DIM
        tl.store(out + place + d, (acc / total).to(out.dtype.element_ty), mask=inside)
