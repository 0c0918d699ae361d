// Building blocks of attention: one group of query heads against slots of the KV pool.
//
// A pool is [slots][kv heads][dim]. A "row" here is one query vector (one token, one head).
#pragma once

#include "vec.h"

namespace plait {

constexpr int kChunk = 256;   // slots a decode piece covers; fixed, so that sums never depend on the batch
constexpr int kTile = 64;     // slots a prefill tile covers
constexpr int kMaxDim = 256;

template <class E> struct Pools {
    const E *keys, *values;
    long stride;  // elements from slot to slot
};

// What remains of a softmax that was cut into pieces.
struct Partial {
    float top, total;
};

// Decode: `group` (at most 4) rows over n <= kChunk slots. DV = dim / 16 if fixed at compile time, else 0.
// acc: [group][dim], not yet divided by the total.
template <int G, int DV, class E>
void decode_piece(const E *q, Pools<E> pools, const int32_t *slots, int n, int dim, float scale, Partial *partial,
                  float *acc) {
    const int vectors = DV ? DV : dim / kLanes;
    alignas(64) float scores[G][kChunk + kLanes];
    constexpr int kHeld = DV ? DV : kMaxDim / kLanes;
    vfloat query[G][kHeld];
    for (int g = 0; g < G; g++)
        for (int d = 0; d < vectors; d++) query[g][d] = load(q + g * dim + d * kLanes) * scale;

    for (int i = 0; i < n; i += 4) {
        vfloat dots[G][4] = {};
        for (int j = 0; j < 4; j++) {
            const E *key = pools.keys + slots[i + j < n ? i + j : n - 1] * pools.stride;
            __builtin_prefetch(pools.keys + slots[i + j + 8 < n ? i + j + 8 : n - 1] * pools.stride);
            for (int d = 0; d < vectors; d++) {
                vfloat k = load(key + d * kLanes);
                for (int g = 0; g < G; g++) dots[g][j] += query[g][d] * k;
            }
        }
        for (int g = 0; g < G; g++) sum4(dots[g][0], dots[g][1], dots[g][2], dots[g][3], scores[g] + i);
    }
    int whole = (n + kLanes - 1) / kLanes * kLanes;
    for (int g = 0; g < G; g++) {
        for (int i = n; i < whole; i++) scores[g][i] = -INFINITY;
        vfloat top = load(scores[g]);
        for (int i = kLanes; i < whole; i += kLanes) {
            vfloat s = load(scores[g] + i);
            top = s > top ? s : top;
        }
        partial[g].top = maximum(top);
        vfloat total = {};
        for (int i = 0; i < whole; i += kLanes) {
            vfloat p = exp(load(scores[g] + i) - partial[g].top);
            store(scores[g] + i, p);
            total += p;
        }
        partial[g].total = sum(total);
    }
    vfloat sums[G][kHeld] = {};
    for (int i = 0; i < n; i++) {
        const E *value = pools.values + slots[i] * pools.stride;
        __builtin_prefetch(pools.values + slots[i + 8 < n ? i + 8 : n - 1] * pools.stride);
        for (int d = 0; d < vectors; d++) {
            vfloat v = load(value + d * kLanes);
            for (int g = 0; g < G; g++) sums[g][d] += scores[g][i] * v;
        }
    }
    for (int g = 0; g < G; g++)
        for (int d = 0; d < vectors; d++) store(acc + g * dim + d * kLanes, sums[g][d]);
}

// c [rows][64] (+)= a [rows][inner] times b [inner][64]: the one product that prefill is made of.
// Elements of a and b are float, or (on AVX512-BF16) pairs of bf16 whose products are summed.
struct Singles {
    using Element = float;
    static constexpr int kPer = 1;
    static void multiply(vfloat &c, float a, vfloat b) { c += a * b; }
};

#if defined(__AVX512BF16__)
struct Pairs {
    using Element = uint32_t;
    static constexpr int kPer = 2;
    static void multiply(vfloat &c, uint32_t a, vfloat b) {
        c = (vfloat)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32(a), (__m512bh)(__m512)b);
    }
};
#endif

template <class M, int R, int NV>
void product_rows(const typename M::Element *a, long a_stride, const typename M::Element *b, long b_stride, int inner,
                  float *c, long c_stride, bool add) {
    vfloat sums[R][NV];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) sums[r][v] = add ? load(c + r * c_stride + v * kLanes) : vfloat{};
    for (int k = 0; k < inner; k++) {
        vfloat columns[NV];
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) std::memcpy(&columns[v], b + k * b_stride + v * kLanes, sizeof(vfloat));
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
            for (int v = 0; v < NV; v++) M::multiply(sums[r][v], a[r * a_stride + k], columns[v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) store(c + r * c_stride + v * kLanes, sums[r][v]);
}

#if defined(__AVX512F__)
constexpr int kProductRows = 6;
#else
constexpr int kProductRows = 2;
#endif

template <class M, int NV>
void product(const typename M::Element *a, long a_stride, const typename M::Element *b, long b_stride, int rows,
             int inner, float *c, long c_stride, bool add) {
    int r = 0;
    for (; r + kProductRows <= rows; r += kProductRows)
        product_rows<M, kProductRows, NV>(a + r * a_stride, a_stride, b, b_stride, inner, c + r * c_stride, c_stride, add);
    for (; r < rows; r++)
        product_rows<M, 1, NV>(a + r * a_stride, a_stride, b, b_stride, inner, c + r * c_stride, c_stride, add);
}

// The same for any number of columns that 16 divides.
template <class M>
void product(const typename M::Element *a, long a_stride, const typename M::Element *b, long b_stride, int rows,
             int inner, int columns, float *c, long c_stride, bool add) {
    int v = 0;
    for (; v + 4 * kLanes <= columns; v += 4 * kLanes)
        product<M, 4>(a, a_stride, b + v, b_stride, rows, inner, c + v, c_stride, add);
    for (; v < columns; v += kLanes)
        product<M, 1>(a, a_stride, b + v, b_stride, rows, inner, c + v, c_stride, add);
}

}  // namespace plait
