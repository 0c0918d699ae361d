// The small operations between the matrix products: RMS norm, rotary embedding with the write to the KV pool, SwiGLU.
#include "pool.h"
#include "vec.h"

#include <algorithm>

namespace plait {
namespace {

// Rows per piece so that a piece is worth handing to another thread.
inline int rows_per_piece(int rows, long width) {
    int least = static_cast<int>(std::max<long>(1, 16384 / std::max<long>(1, width)));
    return std::max(least, rows / (Pool::get().threads() * 4) + 1);
}

template <class Body> void over_rows(int rows, long width, Body &&body) {
    int step = rows_per_piece(rows, width);
    parallel((rows + step - 1) / step, [&](int piece) {
        for (int r = piece * step; r < std::min(rows, (piece + 1) * step); r++) body(r);
    });
}

template <class E>
void rms_norm(const E *x, long x_stride, E *residual, const E *weight, E *out, int rows, int width, float eps) {
    over_rows(rows, width, [&](int r) {
        const E *in = x + r * x_stride;
        E *to = out + long(r) * width;
        if (residual) {
            E *kept = residual + long(r) * width;
            int i = 0;
            for (; i + kLanes <= width; i += kLanes) store(kept + i, load(kept + i) + load(in + i));
            for (; i < width; i++) narrow(kept + i, widen(kept[i]) + widen(in[i]));
            in = kept;
        }
        vfloat squares = {};
        float total = 0;
        int i = 0;
        for (; i + kLanes <= width; i += kLanes) {
            vfloat v = load(in + i);
            squares += v * v;
        }
        total = sum(squares);
        for (; i < width; i++) total += widen(in[i]) * widen(in[i]);
        float factor = 1.0f / std::sqrt(total / width + eps);
        for (i = 0; i + kLanes <= width; i += kLanes) store(to + i, load(in + i) * factor * load(weight + i));
        for (; i < width; i++) narrow(to + i, widen(in[i]) * factor * widen(weight[i]));
    });
}

template <class E> void rotate(const E *in, E *out, const float *cos, const float *sin, int half) {
    int d = 0;
    for (; d + kLanes <= half; d += kLanes) {
        vfloat low = load(in + d), high = load(in + half + d), c = load(cos + d), s = load(sin + d);
        store(out + d, low * c - high * s);
        store(out + half + d, high * c + low * s);
    }
    for (; d < half; d++) {
        float low = widen(in[d]), high = widen(in[half + d]);
        narrow(out + d, low * cos[d] - high * sin[d]);
        narrow(out + half + d, high * cos[d] + low * sin[d]);
    }
}

template <class E> struct Rope {
    E *q;
    const E *k, *v;
    E *k_pool, *v_pool;
    long q_stride, k_stride, v_stride;
};

template <class E>
void rope_and_store(Rope<E> a, const int32_t *positions, const float *cos, const float *sin, const int32_t *slots,
                    int rows, int heads, int kv_heads, int dim) {
    int half = dim / 2;
    over_rows(rows, long(heads + 2 * kv_heads) * dim, [&](int r) {
        const float *c = cos + long(positions[r]) * half, *s = sin + long(positions[r]) * half;
        for (int h = 0; h < heads; h++) {
            E *q = a.q + r * a.q_stride + h * dim;
            rotate(q, q, c, s, half);
        }
        long slot = long(slots[r]) * kv_heads * dim;
        for (int h = 0; h < kv_heads; h++)
            rotate(a.k + r * a.k_stride + h * dim, a.k_pool + slot + h * dim, c, s, half);
        std::memcpy(a.v_pool + slot, a.v + r * a.v_stride, sizeof(E) * kv_heads * dim);
    });
}

template <class E> void silu_mul(const E *gate_up, long stride, E *out, int rows, int width) {
    over_rows(rows, long(width) * 4, [&](int r) {
        const E *gate = gate_up + r * stride, *up = gate + width;
        E *to = out + long(r) * width;
        int i = 0;
        for (; i + kLanes <= width; i += kLanes) {
            vfloat g = load(gate + i);
            g = g < -80.0f ? splat(-80.0f) : g;  // exp(80) is in range, and so far out the result is 0
            store(to + i, g / (1.0f + exp(-g)) * load(up + i));
        }
        for (; i < width; i++) {
            float g = widen(gate[i]);
            narrow(to + i, g / (1.0f + std::exp(-g)) * widen(up[i]));
        }
    });
}

}  // namespace
}  // namespace plait

// In all of these `wide` says float32, else bf16; strides are in elements.
extern "C" {

// residual may be null; if not, residual += x first and the norm is of residual. residual and out are dense.
void plait_rms_norm(const void *x, long x_stride, void *residual, const void *weight, void *out, int rows, int width,
                    float eps, int wide) {
    if (wide)
        plait::rms_norm(static_cast<const float *>(x), x_stride, static_cast<float *>(residual),
                        static_cast<const float *>(weight), static_cast<float *>(out), rows, width, eps);
    else
        plait::rms_norm(static_cast<const uint16_t *>(x), x_stride, static_cast<uint16_t *>(residual),
                        static_cast<const uint16_t *>(weight), static_cast<uint16_t *>(out), rows, width, eps);
}

// q is rotated in place; k and v go to their slots of the pools, k rotated.
void plait_rope_and_store(void *q, long q_stride, const void *k, long k_stride, const void *v, long v_stride,
                          const int32_t *positions, const float *cos, const float *sin, void *k_pool, void *v_pool,
                          const int32_t *slots, int rows, int heads, int kv_heads, int dim, int wide) {
    using namespace plait;
    if (wide) {
        Rope<float> a{static_cast<float *>(q),      static_cast<const float *>(k), static_cast<const float *>(v),
                      static_cast<float *>(k_pool), static_cast<float *>(v_pool),  q_stride, k_stride, v_stride};
        rope_and_store(a, positions, cos, sin, slots, rows, heads, kv_heads, dim);
    } else {
        Rope<bf16> a{static_cast<bf16 *>(q),      static_cast<const bf16 *>(k), static_cast<const bf16 *>(v),
                     static_cast<bf16 *>(k_pool), static_cast<bf16 *>(v_pool),  q_stride, k_stride, v_stride};
        rope_and_store(a, positions, cos, sin, slots, rows, heads, kv_heads, dim);
    }
}

void plait_silu_mul(const void *gate_up, long stride, void *out, int rows, int width, int wide) {
    if (wide) plait::silu_mul(static_cast<const float *>(gate_up), stride, static_cast<float *>(out), rows, width);
    else plait::silu_mul(static_cast<const uint16_t *>(gate_up), stride, static_cast<uint16_t *>(out), rows, width);
}
}
