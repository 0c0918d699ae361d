// Sixteen floats at a time, by the compiler's vector extensions (one register on AVX-512, two or four elsewhere).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace plait {

using bf16 = uint16_t;  // the upper half of a float32
typedef float vfloat __attribute__((vector_size(64)));
typedef int32_t vint __attribute__((vector_size(64)));
typedef uint32_t vuint __attribute__((vector_size(64)));
typedef uint16_t vhalf __attribute__((vector_size(32)));
constexpr int kLanes = 16;

inline vfloat splat(float x) { return x - vfloat{}; }

inline vfloat load(const float *p) {
    vfloat v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

inline vfloat load(const bf16 *p) {
    vhalf h;
    std::memcpy(&h, p, sizeof h);
    return (vfloat)(__builtin_convertvector(h, vuint) << 16);
}

inline void store(float *p, vfloat v) { std::memcpy(p, &v, sizeof v); }

// Round to nearest even; a NaN stays one.
inline void store(bf16 *p, vfloat v) {
#if defined(__AVX512BF16__)
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
    std::memcpy(p, &h, sizeof h);
#else
    vuint u = (vuint)v;
    vuint nan = (vuint)(v != v);
    u += 0x7fff + ((u >> 16) & 1);
    u = (nan & 0x7fc00000u) | (~nan & u);
    vhalf h = __builtin_convertvector(u >> 16, vhalf);
    std::memcpy(p, &h, sizeof h);
#endif
}

inline float widen(float x) { return x; }
inline float widen(bf16 x) {
    uint32_t u = uint32_t(x) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}

inline void narrow(float *p, float x) { *p = x; }
inline void narrow(bf16 *p, float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    u = x != x ? 0x7fc00000u : u + 0x7fff + ((u >> 16) & 1);
    *p = bf16(u >> 16);
}

inline void store4(float *p, const float *four) { std::memcpy(p, four, 4 * sizeof *p); }
inline void store4(bf16 *p, const float *four) {
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
    __m128bh h = _mm_cvtneps_pbh(_mm_loadu_ps(four));
    std::memcpy(p, &h, 4 * sizeof *p);
#else
    for (int i = 0; i < 4; i++) narrow(p + i, four[i]);
#endif
}

inline float sum(vfloat v) {
    float s[kLanes];
    std::memcpy(s, &v, sizeof v);
    for (int step = kLanes / 2; step; step /= 2)
        for (int i = 0; i < step; i++) s[i] += s[i + step];
    return s[0];
}

inline float maximum(vfloat v) {
    float s[kLanes];
    std::memcpy(s, &v, sizeof v);
    for (int step = kLanes / 2; step; step /= 2)
        for (int i = 0; i < step; i++) s[i] = s[i + step] > s[i] ? s[i + step] : s[i];
    return s[0];
}

// The sums of four vectors, next to each other.
inline void sum4(vfloat a, vfloat b, vfloat c, vfloat d, float *out) {
#if defined(__AVX512F__)
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
    __m512 all = _mm512_add_ps(
        _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
    __m512 half = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    half = _mm512_add_ps(half, _mm512_shuffle_f32x4(half, half, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(half));
#else
    out[0] = sum(a), out[1] = sum(b), out[2] = sum(c), out[3] = sum(d);
#endif
}

// e^x to about 2 units in the last place; 0 below -87, NaN stays NaN. Meant for x <= 88.
inline vfloat exp(vfloat x) {
    const vfloat shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    vint under = x < -87.0f;
    vfloat n = (x * 1.44269504f + shift) - shift;
    vfloat r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vfloat p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    vfloat finite = (n == n) ? n : vfloat{};
    finite = (vfloat)(~under & (vint)finite);
    vint power = (__builtin_convertvector(finite, vint) + 127) << 23;
    p = p * (vfloat)power;
    return (vfloat)(~under & (vint)p);
}

}  // namespace plait
