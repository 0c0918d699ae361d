// Causal attention over KV pool slots, for batches that mix single rows (decode) and runs of rows (prefill).
//
// The query heads that share a KV head are done together, so each slot is read once for all of them.
//   decode row    pieces of kChunk slots, each on whatever thread is free, merged in order afterwards
//   prefill rows  blocks of rows against tiles of slots (K transposed, softmax kept up to date from tile to tile)
#include "attention.h"
#include "pool.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace plait {
namespace {

constexpr int kMaxGroup = 4;     // query heads a decode piece does at once
constexpr int kBlockRows = 96;   // query vectors of a prefill block

template <class E> struct Batch {
    const E *q;
    long q_stride;
    E *out;
    const E *keys, *values;
    const int32_t *query_starts, *slots, *kv_starts;
    int sequences, heads, kv_heads, dim;
    float scale;

    int group() const { return heads / kv_heads; }
    Pools<E> pools(int kv_head) const {
        return {keys + long(kv_head) * dim, values + long(kv_head) * dim, long(kv_heads) * dim};
    }
    const E *query(int row, int head) const { return q + row * q_stride + long(head) * dim; }
    E *output(int row, int head) const { return out + (long(row) * heads + head) * dim; }
};

struct DecodePiece {
    int sequence, kv_head, begin, end;  // slots of the sequence
    int first_head, group;
    long partial;  // where its heads' results go
};

struct PrefillPiece {
    int sequence, kv_head, begin, end;  // rows of the sequence
};

template <class E, int G>
void decode_heads(const Batch<E> &b, const DecodePiece &p, Partial *partial, float *acc) {
    const E *q = b.query(b.query_starts[p.sequence], p.first_head);
    const int32_t *slots = b.slots + b.kv_starts[p.sequence] + p.begin;
    int n = p.end - p.begin;
    switch (b.dim) {
    case 64: return decode_piece<G, 4>(q, b.pools(p.kv_head), slots, n, b.dim, b.scale, partial, acc);
    case 128: return decode_piece<G, 8>(q, b.pools(p.kv_head), slots, n, b.dim, b.scale, partial, acc);
    default: return decode_piece<G, 0>(q, b.pools(p.kv_head), slots, n, b.dim, b.scale, partial, acc);
    }
}

template <class E> void decode(const Batch<E> &b, const DecodePiece &p, Partial *partial, float *acc) {
    switch (p.group) {
    case 1: return decode_heads<E, 1>(b, p, partial, acc);
    case 2: return decode_heads<E, 2>(b, p, partial, acc);
    case 3: return decode_heads<E, 3>(b, p, partial, acc);
    default: return decode_heads<E, 4>(b, p, partial, acc);
    }
}

// One row and head: its pieces' results, in order, to the output.
template <class E>
void merge(const Batch<E> &b, int row, int head, const Partial *partial, const float *acc, int pieces, long step) {
    float top = partial[0].top;
    for (int i = 1; i < pieces; i++) top = partial[i * step].top > top ? partial[i * step].top : top;
    float total = 0;
    vfloat sums[kMaxDim / kLanes] = {};
    for (int i = 0; i < pieces; i++) {
        float factor = std::exp(partial[i * step].top - top);
        total += factor * partial[i * step].total;
        for (int d = 0; d < b.dim; d += kLanes) sums[d / kLanes] += factor * load(acc + i * step * b.dim + d);
    }
    E *out = b.output(row, head);
    for (int d = 0; d < b.dim; d += kLanes) store(out + d, sums[d / kLanes] / total);
}

// How a block of E is laid out for the product.
template <class E> struct Layout {
    using M = Singles;
    static void row(const E *from, int dim, float *to) {
        for (int d = 0; d < dim; d += kLanes) store(to + d, load(from + d));
    }
    // keys: [dim][kTile]; values: [kTile][dim]
    static void key(const E *from, int dim, int slot, float *to) {
        for (int d = 0; d < dim; d++) to[d * kTile + slot] = widen(from[d]);
    }
    static void value(const E *from, int dim, int slot, float *to) { row(from, dim, to + long(slot) * dim); }
    static void weights(const float *from, int n, float *to) { std::memcpy(to, from, n * sizeof *to); }
};

#if defined(__AVX512BF16__)
template <> struct Layout<bf16> {
    using M = Pairs;
    static void row(const bf16 *from, int dim, uint32_t *to) { std::memcpy(to, from, dim * sizeof *from); }
    // keys: [dim / 2][kTile] pairs along dim; values: [kTile / 2][dim] pairs along slots
    static void key(const bf16 *from, int dim, int slot, uint32_t *to) {
        for (int d = 0; d < dim / 2; d++) std::memcpy(to + d * kTile + slot, from + 2 * d, 4);
    }
    static void value(const bf16 *from, int dim, int slot, uint32_t *to) {
        uint16_t *half = reinterpret_cast<uint16_t *>(to + long(slot / 2) * dim) + slot % 2;
        for (int d = 0; d < dim; d++) half[2 * d] = from[d];
    }
    static void weights(const float *from, int n, uint32_t *to) {
        for (int i = 0; i < n; i += kLanes) store(reinterpret_cast<bf16 *>(to) + i, load(from + i));
    }
};
#endif

template <class E> struct Workspace {
    using Element = typename Layout<E>::M::Element;
    static constexpr int kPer = Layout<E>::M::kPer;
    alignas(64) Element queries[kBlockRows * kMaxDim / kPer];
    alignas(64) Element keys[kMaxDim * kTile / kPer];
    alignas(64) Element values[kMaxDim * kTile / kPer];
    alignas(64) Element weights[kBlockRows * kTile / kPer];
    alignas(64) float scores[kBlockRows * kTile];
    alignas(64) float sums[kBlockRows * kMaxDim];
    Partial partial[kBlockRows];

    static Workspace &mine() {
        thread_local std::unique_ptr<Workspace> space;
        if (!space) space.reset(new Workspace);
        return *space;
    }
};

template <class E> void prefill(const Batch<E> &b, const PrefillPiece &p) {
    using L = Layout<E>;
    constexpr int kPer = L::M::kPer;
    auto &w = Workspace<E>::mine();
    int dim = b.dim, group = b.group(), rows = (p.end - p.begin) * group;
    int first_row = b.query_starts[p.sequence], queries = b.query_starts[p.sequence + 1] - first_row;
    const int32_t *slots = b.slots + b.kv_starts[p.sequence];
    int before = b.kv_starts[p.sequence + 1] - b.kv_starts[p.sequence] - queries;  // slots all rows see
    Pools<E> pools = b.pools(p.kv_head);

    // vector i of the block is row begin + i / group, head i % group
    for (int i = 0; i < rows; i++) {
        L::row(b.query(first_row + p.begin + i / group, p.kv_head * group + i % group), dim, w.queries + i * dim / kPer);
        w.partial[i] = {-INFINITY, 0};
    }
    std::memset(w.sums, 0, sizeof(float) * rows * dim);
    int seen = before + p.end;  // slots the block's last row sees
    for (int tile = 0; tile < seen; tile += kTile) {
        int n = std::min(kTile, seen - tile);
        for (int j = 0; j < n; j++) L::key(pools.keys + slots[tile + j] * pools.stride, dim, j, w.keys);
        for (int j = 0; j < n; j++) L::value(pools.values + slots[tile + j] * pools.stride, dim, j, w.values);
        // What follows the last slot must be finite: its weight is 0.
        for (int j = n; j < kTile; j++) {
            const E zeros[kMaxDim] = {};
            L::key(zeros, dim, j, w.keys);
            L::value(zeros, dim, j, w.values);
        }
        product<typename L::M>(w.queries, dim / kPer, w.keys, kTile, rows, dim / kPer, kTile, w.scores, kTile, false);
        for (int i = 0; i < rows; i++) {
            float *scores = w.scores + i * kTile;
            int visible = std::max(0, std::min(kTile, before + p.begin + i / group + 1 - tile));
            for (int j = visible; j < kTile; j++) scores[j] = -INFINITY;
            vfloat s[kTile / kLanes], top = splat(w.partial[i].top);
            for (int v = 0; v < kTile / kLanes; v++) {
                s[v] = load(scores + v * kLanes) * b.scale;
                top = s[v] > top ? s[v] : top;
            }
            float newest = maximum(top);
            if (newest == -INFINITY) newest = 0;  // nothing is seen yet (or all is NaN, which stays)
            vfloat total = {};
            for (int v = 0; v < kTile / kLanes; v++) {
                s[v] = exp(s[v] - newest);
                total += s[v];
                store(scores + v * kLanes, s[v]);
            }
            L::weights(scores, kTile, w.weights + i * kTile / kPer);
            if (newest != w.partial[i].top) {
                float factor = std::exp(w.partial[i].top - newest);
                w.partial[i].total *= factor;
                for (int d = 0; d < dim; d += kLanes) store(w.sums + i * dim + d, load(w.sums + i * dim + d) * factor);
                w.partial[i].top = newest;
            }
            w.partial[i].total += sum(total);
        }
        product<typename L::M>(w.weights, kTile / kPer, w.values, dim, rows, kTile / kPer, dim, w.sums, dim, true);
    }
    for (int i = 0; i < rows; i++) {
        E *out = b.output(first_row + p.begin + i / group, p.kv_head * group + i % group);
        for (int d = 0; d < dim; d += kLanes) store(out + d, load(w.sums + i * dim + d) / w.partial[i].total);
    }
}

template <class E> void attention(const Batch<E> &b) {
    std::vector<DecodePiece> decodes;
    std::vector<PrefillPiece> prefills;
    long partials = 0;
    int block = std::max(1, kBlockRows / b.group());
    for (int s = 0; s < b.sequences; s++) {
        int queries = b.query_starts[s + 1] - b.query_starts[s], n = b.kv_starts[s + 1] - b.kv_starts[s];
        if (queries > 1) {
            // Long blocks first: the last ones of a sequence see the most.
            for (int end = queries; end > 0; end -= block)
                for (int h = 0; h < b.kv_heads; h++) prefills.push_back({s, h, std::max(0, end - block), end});
            continue;
        }
        for (int begin = 0; begin < n; begin += kChunk) {
            for (int h = 0; h < b.kv_heads; h++)
                for (int g = 0; g < b.group(); g += kMaxGroup)
                    decodes.push_back({s, h, begin, std::min(n, begin + kChunk), h * b.group() + g,
                                       std::min(kMaxGroup, b.group() - g), partials + h * b.group() + g});
            partials += b.heads;
        }
    }
    std::vector<Partial> partial(partials);
    std::unique_ptr<float[]> acc(new float[partials * b.dim]);
    int first = static_cast<int>(prefills.size());
    parallel(first + static_cast<int>(decodes.size()), [&](int i) {
        if (i < first) return prefill(b, prefills[i]);
        const DecodePiece &p = decodes[i - first];
        decode(b, p, partial.data() + p.partial, acc.get() + p.partial * b.dim);
    });
    long at = 0;
    for (int s = 0; s < b.sequences; s++) {
        if (b.query_starts[s + 1] - b.query_starts[s] > 1) continue;
        int pieces = (b.kv_starts[s + 1] - b.kv_starts[s] + kChunk - 1) / kChunk;
        for (int h = 0; h < b.heads; h++)
            merge(b, b.query_starts[s], h, partial.data() + at + h, acc.get() + (at + h) * b.dim, pieces, b.heads);
        at += long(pieces) * b.heads;
    }
}

}  // namespace
}  // namespace plait

extern "C" {

// The largest dim and group attention takes; dim must also be a multiple of 16.
int plait_attention_max_dim() { return plait::kMaxDim; }
int plait_attention_max_group() { return plait::kBlockRows; }

// q: [T, heads, dim] with q_stride elements from row to row; out: the same, dense. Pools: [slots, kv_heads, dim].
// The int32 arrays are those of ForwardBatch; every sequence has at least one row, and as many slots as rows or more.
void plait_attention(const void *q, long q_stride, void *out, const void *keys, const void *values,
                     const int32_t *query_starts, const int32_t *slots, const int32_t *kv_starts, int sequences,
                     int heads, int kv_heads, int dim, float scale, int wide) {
    using namespace plait;
    if (wide)
        attention(Batch<float>{static_cast<const float *>(q), q_stride, static_cast<float *>(out),
                               static_cast<const float *>(keys), static_cast<const float *>(values), query_starts,
                               slots, kv_starts, sequences, heads, kv_heads, dim, scale});
    else
        attention(Batch<bf16>{static_cast<const bf16 *>(q), q_stride, static_cast<bf16 *>(out),
                              static_cast<const bf16 *>(keys), static_cast<const bf16 *>(values), query_starts, slots,
                              kv_starts, sequences, heads, kv_heads, dim, scale});
}
}
