/* Functions of float32 that AVX-512 has instructions for which no C expression becomes: exponent
 * and mantissa, scaling by a power of two, first guesses of a reciprocal and a root. They replace
 * the loops rendered around vmath_f32.h, whose methods and bounds of error they share. */
#include "loops/pointwise_loop.h"

#if defined(__AVX512F__)
#include "vmath.h"

#include <immintrin.h>

typedef __m512 lanes;
typedef lanes (*function)(lanes);

#define EACH(value) _mm512_set1_ps(value)
#define FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define LANES 16

#define SIGN ((int32_t)0x80000000u)

/* n and x - n ln 2 for x within bounds */
static inline lanes reduce(lanes x, lanes *n)
{
    lanes rounded = FMA(x, EACH(TGC_LOG2E_F32), EACH(TGC_ROUND_F32));
    *n = rounded - EACH(TGC_ROUND_F32);
    lanes r = FMA(*n, EACH(-TGC_LN2_HIGH_F32), x);
    return FMA(*n, EACH(-TGC_LN2_LOW_F32), r);
}

/* exp(x) / 2^n */
static inline lanes exp_reduced(lanes x, lanes *n)
{
    lanes r = reduce(x, n);
    lanes p = FMA(EACH(0x1.6a24eep-10f), r, EACH(0x1.123a6ep-7f));
    p = FMA(p, r, EACH(0x1.5558f2p-5f));
    p = FMA(p, r, EACH(0x1.555490p-3f));
    p = FMA(p, r, EACH(0x1.fffffcp-2f));
    p = FMA(p, r, EACH(1.0f));
    return FMA(p, r, EACH(1.0f));
}

static inline lanes exp_lanes(lanes x)
{
    /* Beyond these bounds the result is 0 or infinite all the same; nan, the second, passes. */
    lanes n, m = exp_reduced(_mm512_min_ps(EACH(90.0f), _mm512_max_ps(EACH(-105.0f), x)), &n);
    return _mm512_scalef_ps(m, n);
}

/* 1 / (1 + e), or e / (1 + e) where x < 0, e = exp(-|x|): no division, as in tanh_lanes. What is
 * small is scaled last, so that it is rounded once. */
static inline lanes sigmoid_lanes(lanes x)
{
    lanes below = (lanes)_mm512_or_epi32((__m512i)x, _mm512_set1_epi32(SIGN));
    lanes n, m = exp_reduced(_mm512_max_ps(EACH(-105.0f), below), &n), e = _mm512_scalef_ps(m, n);
    lanes guess = _mm512_rcp14_ps(e + EACH(1.0f)), rest = FMA(-guess, e, EACH(1.0f) - guess);
    __mmask16 negative = _mm512_movepi32_mask((__m512i)x);
    lanes q = _mm512_mask_mul_ps(guess, negative, guess, m), y = FMA(q, rest, q);
    return _mm512_mask_scalef_ps(y, negative, y, n);
}

static inline lanes silu_lanes(lanes x)
{
    return x * sigmoid_lanes(x);
}

/* Phi(a) - 1/2, a = 0.38 i + t, |t| <= 0.19: coefficients of t^0 .. t^5 by i, from the values at
 * Chebyshev's points; absolute error 2^-26. From 5.51 on it is 1/2 to a float32 beside 1/2. */
static const _Alignas(64) float gaussian[6][16] = {
    {0, 0x1.2f28eep-3f, 0x1.1b0172p-2f, 0x1.7dce3p-2f, 0x1.be33dp-2f, 0x1.e2982p-2f, 0x1.f46cc4p-2f, 0x1.fbffccp-2f,
     0x1.fec9eap-2f, 0x1.ffadecp-2f, 0x1.ffed08p-2f, 0x1.fffc2ep-2f, 0x1.ffff54p-2f, 0x1.ffffe6p-2f, 0x1.fffffcp-2f,
     0.5f},
    {0x1.988454p-2f, 0x1.7c0fc4p-2f, 0x1.320b9cp-2f, 0x1.aa9d46p-3f, 0x1.015c76p-3f, 0x1.0cc32cp-4f, 0x1.e5dc5ap-6f,
     0x1.7c1cfep-7f, 0x1.01656cp-8f, 0x1.2db934p-10f, 0x1.3220eep-12f, 0x1.0cd5eap-14f, 0x1.98af1ap-17f,
     0x1.0cdf62p-19f, 0x1.323684p-22f, 0},
    {0, -0x1.20d6cp-4f, -0x1.d12e0ep-4f, -0x1.e65632p-4f, -0x1.8730fp-4f, -0x1.fea82ap-5f,
     -0x1.14f23cp-5f, -0x1.f98e7ap-7f, -0x1.873c66p-8f, -0x1.01f49p-9f, -0x1.22c67ap-11f, -0x1.18d978p-13f,
     -0x1.d1ab9ep-16f, -0x1.4bce6cp-18f, -0x1.96d02p-21f, 0},
    {-0x1.10575p-4f, -0x1.b19204p-5f, -0x1.58bbdep-6f, 0x1.54d0fap-7f, 0x1.c1a7b4p-6f, 0x1.d3a58cp-6f,
     0x1.53f9e6p-6f, 0x1.80e868p-7f, 0x1.619014p-8f, 0x1.0cf1e8p-9f, 0x1.56da4p-11f, 0x1.71002ap-13f,
     0x1.5100fep-15f, 0x1.061ff2p-17f, 0x1.5c367p-20f, 0},
    {0, 0x1.10987p-6f, 0x1.74f5b8p-6f, 0x1.1293d8p-6f, 0x1.6a438p-8f, -0x1.957458p-9f, -0x1.92917p-8f,
     -0x1.568812p-8f, -0x1.97ecc6p-9f, -0x1.789a34p-10f, -0x1.18b66ap-11f, -0x1.58fc4ep-13f, -0x1.61dbaap-15f,
     -0x1.315e3ep-17f, -0x1.bde1eep-20f, 0},
    {0x1.44b70cp-7f, 0x1.b2691ap-8f, -0x1.44001ap-12f, -0x1.5eadd2p-8f, -0x1.7943fep-8f, -0x1.936eeap-9f,
     -0x1.3daf58p-12f, 0x1.09d5c4p-10f, 0x1.19c304p-10f, 0x1.5e8392p-11f, 0x1.40427ep-12f, 0x1.cc32a8p-14f,
     0x1.0c3be4p-15f, 0x1.021a9cp-17f, 0x1.9e7704p-20f, 0},
};

/* x Phi(x). The definition takes Phi from 1 + erf, which has no more than absolute precision either. */
static inline lanes gelu_lanes(lanes x)
{
    lanes a = _mm512_min_ps(EACH(15 * 0.38f), _mm512_abs_ps(x));
    lanes rounded = FMA(a, EACH(1 / 0.38f), EACH(TGC_ROUND_F32));
    lanes t = FMA(rounded - EACH(TGC_ROUND_F32), EACH(-0.38f), a), p;
#define PICK(k) _mm512_permutexvar_ps((__m512i)rounded, _mm512_load_ps(gaussian[k]))
    p = FMA(PICK(5), t, PICK(4));
    p = FMA(p, t, PICK(3));
    p = FMA(p, t, PICK(2));
    p = FMA(p, t, PICK(1));
    p = FMA(p, t, PICK(0));
#undef PICK
    __m512i sign = _mm512_and_epi32((__m512i)x, _mm512_set1_epi32(SIGN));
    return x * (EACH(0.5f) + (lanes)_mm512_xor_epi32((__m512i)p, sign));
}

/* m - 1 and k of x = m 2^k, 3/4 <= m < 3/2: of 0 and infinity k is infinite, of what is negative m
 * is nan, so that logarithms need no special cases. */
static inline lanes split(lanes x, lanes *k)
{
    lanes m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
    lanes exponent = _mm512_getexp_ps(x);
    *k = _mm512_mask_add_ps(exponent, _mm512_cmp_ps_mask(m, EACH(1.0f), _CMP_LT_OQ), exponent, EACH(1.0f));
    return m - EACH(1.0f);
}

/* log(1 + f) = f - f^2 / 2 + f^3 P(f), -1/4 <= f < 1/2: minimax, relative error 2^-26.6 */
static inline lanes log_polynomial(lanes f, lanes z)
{
    lanes p = FMA(EACH(-0x1.7142d2p-5f), f, EACH(0x1.ac924ap-4f));
    p = FMA(p, z, FMA(EACH(-0x1.0d8ad8p-3f), f, EACH(0x1.288472p-3f)));
    p = FMA(p, z, FMA(EACH(-0x1.54efd4p-3f), f, EACH(0x1.9969b0p-3f)));
    return FMA(p, z, FMA(EACH(-0x1.000040p-2f), f, EACH(0x1.5555a4p-2f)));
}

static inline lanes log_lanes(lanes x)
{
    lanes k, f = split(x, &k), z = f * f;
    lanes y = FMA(z, FMA(f, log_polynomial(f, z), EACH(-0.5f)), FMA(k, EACH(TGC_LN2_LOW_F32), f));
    return FMA(k, EACH(TGC_LN2_HIGH_F32), y);
}

/* See tgc_log_base_f32. */
static inline lanes log_base(lanes x, float high, float low, float k_high, float k_low)
{
    lanes k, f = split(x, &k), z = f * f;
    lanes tail = FMA(EACH(-0.5f), z, z * f * log_polynomial(f, z));
    lanes f_high = (lanes)((__m512i)f & _mm512_set1_epi32((int32_t)0xfffff000u)), f_low = f - f_high;
    lanes sum = FMA(f + tail, EACH(low), (f_low + tail) * EACH(high));
    lanes y = FMA(k, EACH(k_high), f_high * EACH(high));
    /* What the sum rounded off is nan where k is infinite. */
    lanes rest = FMA(f_high, EACH(high), FMA(k, EACH(k_high), -y)) + FMA(k, EACH(k_low), sum);
    return _mm512_mask_add_ps(y, _mm512_cmp_ps_mask(_mm512_abs_ps(k), EACH(256.0f), _CMP_LT_OQ), y, rest);
}

static inline lanes log2_lanes(lanes x)
{
    return log_base(x, 0x1.714p+0f, 0x1.47652cp-12f, 1.0f, 0.0f);
}

static inline lanes log10_lanes(lanes x)
{
    return log_base(x, 0x1.bcap-2f, 0x1.7b1526p-14f, 0x1.344p-2f, 0x1.3509f8p-18f);
}

/* e / (e + 2), e = exp(2 |x|) - 1, with the sign of x: no division, which would take the time of
 * all else. The reciprocal's guess has 14 bits; the quotient is corrected by what it leaves of e,
 * which does not contain what rounding e + 2 lost. */
static inline lanes tanh_lanes(lanes x)
{
    lanes a = _mm512_min_ps(EACH(9.02f), _mm512_abs_ps(x));
    lanes rounded = FMA(a, EACH(2 * TGC_LOG2E_F32), EACH(TGC_ROUND_F32 + 128.0f));
    /* half of 2 |x| - n ln 2, of exp of that less 1, and twice 2^n */
    lanes n = rounded - EACH(TGC_ROUND_F32 + 128.0f), r = FMA(n, EACH(-0x1.62e43p-2f), a), z = r * r;
    lanes p = FMA(EACH(0x1.a0331ep-7f), r, EACH(0x1.6d72a2p-5f));
    p = FMA(p, z, FMA(EACH(0x1.11118ap-3f), r, EACH(0x1.5554b0p-2f)));
    p = FMA(p, z, FMA(EACH(0x1.555554p-1f), r, EACH(1.0f)));
    lanes w = FMA(p, z, r), power = (lanes)_mm512_slli_epi32((__m512i)rounded, 23);
    lanes e = FMA(power, w, FMA(power, EACH(0.5f), EACH(-1.0f)));
    lanes guess = _mm512_rcp14_ps(e + EACH(2.0f)), q = e * guess;
    lanes y = FMA(FMA(-q, e, FMA(EACH(-2.0f), q, e)), guess, q);
    return (lanes)_mm512_ternarylogic_epi32((__m512i)x, (__m512i)y, _mm512_set1_epi32(0x7fffffff), 0xd8);
}

/* Correctly rounded as by the instruction, at less than its time: an estimate of 28 bits, and
 * Markstein's last step ("Computation of elementary functions on the IBM RISC System/6000
 * processor", IBM J. Res. Dev. 34, 1990). It takes numbers whose residues are normal. */
static inline lanes sqrt_lanes(lanes x)
{
    __m512i above = _mm512_sub_epi32((__m512i)x, _mm512_set1_epi32(0x10000000));
    if (_mm512_cmp_epu32_mask(above, _mm512_set1_epi32(0x7f800000 - 0x10000000), _MM_CMPINT_NLT))
        return _mm512_sqrt_ps(x);
    lanes guess = _mm512_rsqrt14_ps(x), root = x * guess, half = guess * EACH(0.5f);
    lanes lack = FMA(-root, half, EACH(0.5f));
    root = FMA(root, lack, root);
    half = FMA(half, lack, half);
    return FMA(FMA(-root, root, x), half, root);
}

static inline __attribute__((always_inline)) void each_lane(function of, int64_t n, char *const *data)
{
    float *out = (float *)data[0];
    const float *in = (const float *)data[1];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm512_storeu_ps(out + i, of(_mm512_loadu_ps(in + i)));
    if (i < n) {
        __mmask16 rest = (__mmask16)((1u << (n - i)) - 1);
        _mm512_mask_storeu_ps(out + i, rest, of(_mm512_maskz_loadu_ps(rest, in + i)));
    }
}

#define KERNEL(name, cost)                                                                                             \
    static void name##_loop(int64_t n, char *const *data, const tg_scalar *params, int64_t index, int32_t *err)       \
    {                                                                                                                 \
        (void)params, (void)index, (void)err;                                                                         \
        each_lane(name##_lanes, n, data);                                                                             \
    }                                                                                                                 \
    static const tgc_pointwise_kernel name##_kernel = {name##_loop, #name, 1, 1, 0, cost, {TGC_FLOAT32, TGC_FLOAT32}, NULL};

KERNEL(exp, 8)
KERNEL(log, 8)
KERNEL(log2, 8)
KERNEL(log10, 8)
KERNEL(tanh, 16)
KERNEL(sqrt, 8)
KERNEL(sigmoid, 12)
KERNEL(silu, 12)
KERNEL(gelu, 12)

#define ENTRY(op, name) {op, "float32", TGC_ANYWHERE, (void *)TGC(tgc_pointwise), &name##_kernel},
#else
#define ENTRY(op, name)
#endif

const tgc_kernel TGC(tgc_table_elementary)[] = {
    ENTRY("exp", exp) ENTRY("log", log) ENTRY("log2", log2) ENTRY("log10", log10) ENTRY("tanh", tanh) ENTRY("sqrt", sqrt)
    ENTRY("sigmoid", sigmoid) ENTRY("silu", silu) ENTRY("gelu_none", gelu) {0},
};
