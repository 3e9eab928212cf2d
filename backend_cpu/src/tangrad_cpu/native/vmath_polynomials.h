/* Minimax polynomials of vmath: written by render/minimax.py, which documents them. */
#ifndef TGC_VMATH_POLYNOMIALS_H
#define TGC_VMATH_POLYNOMIALS_H

#include "vmath_bits.h"

/* exp(r) = 1 + r + r^2 P(r) */
TGC_INLINE float tgc_poly_exp_f32(float x) {
    float p = 0x1.6a24ee0000000p-10f;
    p = TGC_FMAF(p, x, 0x1.123a6e0000000p-7f);
    p = TGC_FMAF(p, x, 0x1.5558f20000000p-5f);
    p = TGC_FMAF(p, x, 0x1.5554900000000p-3f);
    p = TGC_FMAF(p, x, 0x1.fffffc0000000p-2f);
    return p;
}

/* exp(r) = 1 + r + r^2 P(r) */
TGC_INLINE float tgc_poly_expm1_f32(float x) {
    float p = 0x1.a0331e0000000p-13f;
    p = TGC_FMAF(p, x, 0x1.6d72a20000000p-10f);
    p = TGC_FMAF(p, x, 0x1.11118a0000000p-7f);
    p = TGC_FMAF(p, x, 0x1.5554b00000000p-5f);
    p = TGC_FMAF(p, x, 0x1.5555540000000p-3f);
    p = TGC_FMAF(p, x, 0x1.0000000000000p-1f);
    return p;
}

/* log(1 + f) = f - f^2 / 2 + f^3 P(f) */
TGC_INLINE float tgc_poly_log_f32(float x) {
    float p = -0x1.38b9cc0000000p-4f;
    p = TGC_FMAF(p, x, 0x1.055cc20000000p-3f);
    p = TGC_FMAF(p, x, -0x1.0d851a0000000p-3f);
    p = TGC_FMAF(p, x, 0x1.22d9ec0000000p-3f);
    p = TGC_FMAF(p, x, -0x1.5472420000000p-3f);
    p = TGC_FMAF(p, x, 0x1.99a00a0000000p-3f);
    p = TGC_FMAF(p, x, -0x1.0002280000000p-2f);
    p = TGC_FMAF(p, x, 0x1.5555540000000p-2f);
    return p;
}

/* sin(r) = r + r^3 P(r^2), |r| <= 0.7933 */
TGC_INLINE float tgc_poly_sin_f32(float x) {
    float p = 0x1.6cb8060000000p-19f;
    p = TGC_FMAF(p, x, -0x1.a00f120000000p-13f);
    p = TGC_FMAF(p, x, 0x1.1111080000000p-7f);
    p = TGC_FMAF(p, x, -0x1.5555560000000p-3f);
    return p;
}

/* cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4 */
TGC_INLINE float tgc_poly_cos_f32(float x) {
    float p = 0x1.99cb6a0000000p-16f;
    p = TGC_FMAF(p, x, -0x1.6c0bc40000000p-10f);
    p = TGC_FMAF(p, x, 0x1.55554a0000000p-5f);
    return p;
}

/* tanh(r) = r + r^3 P(r^2), |r| <= 0.626 */
TGC_INLINE float tgc_poly_tanh_f32(float x) {
    float p = -0x1.7561f60000000p-8f;
    p = TGC_FMAF(p, x, 0x1.520b240000000p-6f);
    p = TGC_FMAF(p, x, -0x1.b838560000000p-5f);
    p = TGC_FMAF(p, x, 0x1.11070a0000000p-3f);
    p = TGC_FMAF(p, x, -0x1.5555320000000p-2f);
    return p;
}

/* erf(x) = x + x P(x^2), |x| <= 0.93 */
TGC_INLINE float tgc_poly_erf_f32(float x) {
    float p = 0x1.5cd2440000000p-14f;
    p = TGC_FMAF(p, x, -0x1.aa3e5a0000000p-11f);
    p = TGC_FMAF(p, x, 0x1.54c7d80000000p-8f);
    p = TGC_FMAF(p, x, -0x1.b80e8e0000000p-6f);
    p = TGC_FMAF(p, x, 0x1.ce2e080000000p-4f);
    p = TGC_FMAF(p, x, -0x1.8127420000000p-2f);
    p = TGC_FMAF(p, x, 0x1.06eba80000000p-3f);
    return p;
}

/* erf(x) = 1 - exp(-P(x)), 0.92 <= x <= 3.95 */
TGC_INLINE float tgc_poly_erf_tail_f32(float x) {
    float p = 0x1.182bb00000000p-21f;
    p = TGC_FMAF(p, x, 0x1.e037d40000000p-17f);
    p = TGC_FMAF(p, x, -0x1.9ffa960000000p-12f);
    p = TGC_FMAF(p, x, 0x1.09a67e0000000p-8f);
    p = TGC_FMAF(p, x, -0x1.97e2820000000p-6f);
    p = TGC_FMAF(p, x, 0x1.ba6ae00000000p-4f);
    p = TGC_FMAF(p, x, 0x1.445fcc0000000p-1f);
    p = TGC_FMAF(p, x, 0x1.2122980000000p+0f);
    p = TGC_FMAF(p, x, -0x1.50681e0000000p-13f);
    return p;
}

#endif
