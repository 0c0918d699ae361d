// x [T, I] (bf16) times weight [O, I] (bf16) transposed, sums in float32.
//
// Weights are read where they lie, a few rows at a time against all rows of x, so with few rows the speed is that of
// memory. Every output is one dot product over I in one fixed order: a row's result does not depend on the batch.
#include "pool.h"
#include "vec.h"

#include <algorithm>
#include <type_traits>

namespace plait {
namespace {

#if defined(__AVX512BF16__)
using Lanes = __m512bh;  // 32 products at a time, summed in pairs
constexpr int kStep = 32;
inline Lanes take(const bf16 *p) { return (__m512bh)_mm512_loadu_si512(p); }
inline Lanes take(const bf16 *p, long left) {
    return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), p);
}
inline void accumulate(vfloat &sum, Lanes x, Lanes w) { sum = (vfloat)_mm512_dpbf16_ps((__m512)sum, x, w); }
constexpr int kRows = 6;
#else
using Lanes = vfloat;
constexpr int kStep = kLanes;
inline Lanes take(const bf16 *p) { return load(p); }
inline Lanes take(const bf16 *p, long left) {
    bf16 part[kLanes] = {};
    std::memcpy(part, p, left * sizeof *p);
    return load(part);
}
inline void accumulate(vfloat &sum, Lanes x, Lanes w) { sum += x * w; }
#if defined(__AVX512F__)
constexpr int kRows = 6;
#else
constexpr int kRows = 2;
#endif
#endif

constexpr int kColumns = 4;
constexpr int kAhead = 2 * kColumns;  // weight rows
constexpr int kPanel = 126;  // rows of x that one piece takes

inline float dot(const bf16 *x, const bf16 *w, long inner) {
    vfloat s = {};
    long k = 0;
    for (; k + kStep <= inner; k += kStep) accumulate(s, take(x + k), take(w + k));
    if (k < inner) accumulate(s, take(x + k, inner - k), take(w + k, inner - k));
    return sum(s);
}

// R rows of x against four rows of weight. Ahead: fetch the weights of later tiles meanwhile (the first rows do).
template <int R, bool Ahead, class Out>
void tile(const bf16 *x, const bf16 *w, long inner, const float *bias, Out *out, long out_stride) {
    vfloat sums[R][kColumns] = {};
    long k = 0;
    for (; k + kStep <= inner; k += kStep) {
        Lanes columns[kColumns];
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; c++) {
            columns[c] = take(w + c * inner + k);
            if (Ahead) __builtin_prefetch(w + (c + kAhead) * inner + k, 0, 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            Lanes row = take(x + r * inner + k);
#pragma GCC unroll 8
            for (int c = 0; c < kColumns; c++) accumulate(sums[r][c], row, columns[c]);
        }
    }
    if (k < inner) {
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            Lanes row = take(x + r * inner + k, inner - k);
#pragma GCC unroll 8
            for (int c = 0; c < kColumns; c++) accumulate(sums[r][c], row, take(w + c * inner + k, inner - k));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        float four[kColumns];
        sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3], four);
        if (bias)
            for (int c = 0; c < kColumns; c++) four[c] += bias[c];
        store4(out + r * out_stride, four);
    }
}

// R rows of x against weight rows [begin, end). The rows stay in the first-level cache while the weights pass.
template <int R, class Out>
void strip(const bf16 *x, const bf16 *w, int begin, int end, long inner, const float *bias, Out *out, long out_stride,
           bool ahead) {
    int c = begin;
    for (; c + kColumns <= end; c += kColumns) {
        const float *shift = bias ? bias + c : nullptr;
        if (ahead) tile<R, true>(x, w + c * inner, inner, shift, out + c, out_stride);
        else tile<R, false>(x, w + c * inner, inner, shift, out + c, out_stride);
    }
    for (; c < end; c++)  // fewer than four are left
        for (int r = 0; r < R; r++) {
            float s = dot(x + r * inner, w + c * inner, inner);
            narrow(out + r * out_stride + c, bias ? s + bias[c] : s);
        }
}

template <class Out>
void linear(const bf16 *x, const bf16 *w, const float *bias, Out *out, int rows, int outer, long inner) {
    int threads = Pool::get().threads();
    int panels = (rows + kPanel - 1) / kPanel;
    // Enough pieces that a thread which is late leaves little to wait for, but not pieces of nothing.
    int width = (outer + threads * 8 - 1) / (threads * 8);
    width = std::max(16, std::min(rows > kRows ? 64 : 256, (width + kColumns - 1) / kColumns * kColumns));
    int strips = (outer + width - 1) / width;
    parallel(panels * strips, [&](int piece) {
        int first = piece / strips * kPanel, last = std::min(rows, first + kPanel);
        int begin = piece % strips * width, end = std::min(outer, begin + width);
        for (int r = first; r < last; r += kRows) {
            auto part = [&](auto count) {
                strip<decltype(count)::value>(x + r * inner, w, begin, end, inner, bias, out + long(r) * outer, outer,
                                              r == first);
            };
            switch (std::min(kRows, last - r)) {
            case 1: part(std::integral_constant<int, 1>{}); break;
            case 2: part(std::integral_constant<int, 2>{}); break;
            case 3: part(std::integral_constant<int, 3>{}); break;
            case 4: part(std::integral_constant<int, 4>{}); break;
            case 5: part(std::integral_constant<int, 5>{}); break;
            default: part(std::integral_constant<int, kRows>{}); break;
            }
        }
    });
}

}  // namespace
}  // namespace plait

extern "C" {

// out: float32 if wide, else bf16; [rows, outer]. bias: float32 [outer] or null. All arrays dense.
void plait_linear_bf16(const uint16_t *x, const uint16_t *weight, const float *bias, void *out, int rows, int outer,
                       int inner, int wide) {
    if (wide) plait::linear(x, weight, bias, static_cast<float *>(out), rows, outer, inner);
    else plait::linear(x, weight, bias, static_cast<uint16_t *>(out), rows, outer, inner);
}

// 1 if products of bf16 are the CPU's own instruction, 0 if they are widened first.
int plait_has_bf16_products() { return plait::kStep != plait::kLanes; }

void plait_set_threads(int threads) { plait::Pool::get().resize(threads); }

int plait_threads() { return plait::Pool::get().threads(); }
}
