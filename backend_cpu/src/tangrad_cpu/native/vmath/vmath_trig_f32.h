/* Sine and cosine of float32 up to TGC_TRIG_LIMIT_F32; vmath.c adds what is beyond. */
#ifndef TGC_VMATH_TRIG_F32_H
#define TGC_VMATH_TRIG_F32_H

#include "vmath_bits.h"
#include "vmath_polynomials.h"

#define TGC_TRIG_LIMIT_F32 0x1p17f

/* x - n pi / 2 and n, rounded and in the low bits of *quadrant (Cody and Waite). Without fused
 * multiplication the parts of pi / 2 would have to be short and many: float64 is quicker. */
TGC_INLINE float tgc_trig_reduce_f32(float x, uint32_t *quadrant) {
    float rounded = TGC_FMAF(x, 0x1.45f306p-1f, TGC_ROUND_F32), n = rounded - TGC_ROUND_F32;
    *quadrant = tgc_bits_f32(rounded);
#if TGC_HAS_FMA
    float r = TGC_FMAF(n, -0x1.921fb6p+0f, x);
    r = TGC_FMAF(n, 0x1.777a5cp-25f, r);
    return TGC_FMAF(n, 0x1.ee59dap-50f, r);
#else
    /* 33 bits of pi / 2, whose product with n is exact, and the next 53 */
    return (float)(((double)x - (double)n * 0x1.921fb544p+0) - (double)n * 0x1.0b4611a626331p-34);
#endif
}

TGC_INLINE float tgc_sin_reduced_f32(float r) {
    float z = r * r;
    return TGC_FMAF(r * z, tgc_poly_sin_f32(z), r);
}

TGC_INLINE float tgc_cos_reduced_f32(float r) {
    float z = r * r;
    return TGC_FMAF(z * z, tgc_poly_cos_f32(z), TGC_FMAF(-0.5f, z, 1.0f));
}

TGC_INLINE float tgc_sin_fast_f32(float x) {
    uint32_t quadrant;
    float r = tgc_trig_reduce_f32(x, &quadrant);
    float y = quadrant & 1 ? tgc_cos_reduced_f32(r) : tgc_sin_reduced_f32(r);
    y = tgc_float_f32(tgc_bits_f32(y) ^ (quadrant << 30 & 0x80000000u));
    return x == 0.0f ? x : y;
}

TGC_INLINE float tgc_cos_fast_f32(float x) {
    uint32_t quadrant;
    float r = tgc_trig_reduce_f32(x, &quadrant);
    float y = quadrant & 1 ? tgc_sin_reduced_f32(r) : tgc_cos_reduced_f32(r);
    return tgc_float_f32(tgc_bits_f32(y) ^ ((quadrant + 1) << 30 & 0x80000000u));
}

/* By way of float64, which has the bits for a quotient of two rounded numbers. */
TGC_INLINE float tgc_tan_fast_f32(float x) {
    double rounded = TGC_FMA((double)x, 0x1.45f306dc9c883p-1, TGC_ROUND_F64);
    double n = rounded - TGC_ROUND_F64;
    double r = ((double)x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, z = r * r;
    double s = TGC_FMA(r * z, tgc_poly_sin_d32(z), r);
    double c = TGC_FMA(z * z, tgc_poly_cos_d32(z), TGC_FMA(-0.5, z, 1.0));
    uint64_t odd = tgc_bits_f64(rounded) & 1;
    float y = (float)((odd ? -c : s) / (odd ? s : c));
    return x == 0.0f ? x : y;
}

#endif
