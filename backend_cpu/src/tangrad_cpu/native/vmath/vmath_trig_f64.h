/* Sine, cosine and tangent of float64 up to TGC_TRIG_LIMIT_F64; vmath.c adds what is beyond. */
#ifndef TGC_VMATH_TRIG_F64_H
#define TGC_VMATH_TRIG_F64_H

#include "vmath_f64.h"

#define TGC_TRIG_LIMIT_F64 0x1p20

/* x - n pi / 2 = result + *low; n is in the low bits of *quadrant. The first three parts of pi / 2
 * have 33 bits, so that their products with n are exact (Cody and Waite); together with the fourth
 * they leave a full result even where x is closest to a multiple, 2^-61 away. */
TGC_INLINE double tgc_trig_reduce_f64(double x, double *low, uint64_t *quadrant) {
    double rounded = TGC_FMA(x, 0x1.45f306dc9c883p-1, TGC_ROUND_F64), n = rounded - TGC_ROUND_F64;
    *quadrant = tgc_bits_f64(rounded);
    double second, third;
    double r = TGC_FMA(n, -0x1.921fb544p+0, x);
    r = tgc_two_sum_f64(r, n * -0x1.0b4611a6p-34, &second);
    r = tgc_two_sum_f64(r, n * -0x1.3198a2ep-69, &third);
    return tgc_two_sum_f64(r, TGC_FMA(n, -0x1.b839a252049c1p-104, second + third), low);
}

/* sin(r + low) = result + *rest */
TGC_INLINE double tgc_sin_reduced_f64(double r, double low, double *rest) {
    double z = r * r;
    double tail = TGC_FMA(r * z, tgc_poly_sin_f64(z), TGC_FMA(-0.5 * z, low, low));
    return tgc_fast_two_sum_f64(r, tail, rest);
}

/* cos(r + low) = result + *rest */
TGC_INLINE double tgc_cos_reduced_f64(double r, double low, double *rest) {
    double z = r * r, lost, sum = tgc_fast_two_sum_f64(1.0, -0.5 * z, &lost);
    double tail = TGC_FMA(z * z, tgc_poly_cos_f64(z), lost - r * low);
    return tgc_fast_two_sum_f64(sum, tail, rest);
}

TGC_INLINE double tgc_sin_fast_f64(double x) {
    uint64_t quadrant;
    double low, rest, r = tgc_trig_reduce_f64(x, &low, &quadrant);
    double s = tgc_sin_reduced_f64(r, low, &rest), c = tgc_cos_reduced_f64(r, low, &rest);
    double y = quadrant & 1 ? c : s;
    y = tgc_float_f64(tgc_bits_f64(y) ^ (quadrant << 62 & 0x8000000000000000u));
    return x == 0.0 ? x : y;
}

TGC_INLINE double tgc_cos_fast_f64(double x) {
    uint64_t quadrant;
    double low, rest, r = tgc_trig_reduce_f64(x, &low, &quadrant);
    double s = tgc_sin_reduced_f64(r, low, &rest), c = tgc_cos_reduced_f64(r, low, &rest);
    double y = quadrant & 1 ? s : c;
    return tgc_float_f64(tgc_bits_f64(y) ^ ((quadrant + 1) << 62 & 0x8000000000000000u));
}

/* The quotient of sine and cosine, or minus its inverse, with what rounding them lost. */
TGC_INLINE double tgc_tan_fast_f64(double x) {
    uint64_t quadrant;
    double low, s_rest, c_rest, r = tgc_trig_reduce_f64(x, &low, &quadrant);
    double s = tgc_sin_reduced_f64(r, low, &s_rest), c = tgc_cos_reduced_f64(r, low, &c_rest);
    double a = quadrant & 1 ? -c : s, a_rest = quadrant & 1 ? -c_rest : s_rest;
    double b = quadrant & 1 ? s : c, b_rest = quadrant & 1 ? s_rest : c_rest;
    double y = a / b;
    y += (a_rest - y * b_rest) / b;
    return x == 0.0 ? x : y;
}

/* --- inverse functions ------------------------------------------------------------------------ */

#define TGC_QUARTER_PI_HIGH_F64 0x1.921fb54442d18p-1
#define TGC_QUARTER_PI_LOW_F64 0x1.1a62633145c07p-55

/* The angle of (x, y): the smaller of |x| and |y| over the larger, if that is above tan(pi / 8)
 * turned by a further eighth of a circle; then turned back in multiples of pi / 4. */
TGC_INLINE double tgc_atan2_f64(double y, double x) {
    double a = __builtin_fabs(y), b = __builtin_fabs(x);
    double high = a > b ? a : b, low = a > b ? b : a;
    double swap = a > b ? 1.0 : 0.0, left = __builtin_copysign(1.0, x) < 0.0 ? 1.0 : 0.0;
    /* inf / inf is 1, anything else over inf 0, and 0 / 0 is 0. */
    low = high == INFINITY ? (low == INFINITY ? 1.0 : 0.0) : low;
    high = high == INFINITY || high == 0.0 ? 1.0 : high;
    /* so that the sum does not overflow, nor a denormal lack bits */
    double scale = high > 0x1p1000 ? 0x1p-100 : (high < 0x1p-900 ? 0x1p100 : 1.0);
    low *= scale;
    high *= scale;
    int turned = low > 0.41421356237309503 * high;
    double lost, sum_lost, difference = tgc_fast_two_sum_f64(-high, low, &lost);
    double sum = tgc_fast_two_sum_f64(high, low, &sum_lost);
    double t = (turned ? difference : low) / (turned ? sum : high);
    t += turned ? (lost - t * sum_lost) / sum : 0.0;
    double z = t * t, v = TGC_FMA(t * z, tgc_poly_atan_f64(z), t);
    /* the angle in quarters of pi: m, 2 - m, 2 + m or 4 - m */
    double m = turned ? 1.0 : 0.0, down = swap != left ? -1.0 : 1.0;
    m = TGC_FMA(m, down, swap != 0.0 ? 2.0 : 4.0 * left);
    v = TGC_FMA(m, TGC_QUARTER_PI_HIGH_F64, TGC_FMA(m, TGC_QUARTER_PI_LOW_F64, down * v));
    return x != x || y != y ? x + y : __builtin_copysign(v, y);
}

TGC_INLINE double tgc_atan_f64(double x) {
    double a = __builtin_fabs(x);
    int far = a > 2.414213562373095, turned = a > 0.41421356237309503;
    double b = far ? 1.0 : a, sum = b + 1.0, difference = b - 1.0;
    double t = (far ? -1.0 : turned ? difference : a) / (far ? a : turned ? sum : 1.0);
    /* What rounding a + 1 and a - 1 lost; 1 / (a + 1) is (1 - t) / 2. */
    double lost = (b - (difference + 1.0)) - t * (b - (sum - 1.0));
    t += turned && !far ? lost * (0.5 - 0.5 * t) : 0.0;
    double z = t * t, m = far ? 2.0 : turned ? 1.0 : 0.0;
    double v = TGC_FMA(m, TGC_QUARTER_PI_LOW_F64, TGC_FMA(t * z, tgc_poly_atan_f64(z), t));
    v = TGC_FMA(m, TGC_QUARTER_PI_HIGH_F64, v);
    return x == 0.0 ? x : __builtin_copysign(v, x);
}

/* asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2)) above 1/2 */
TGC_INLINE double tgc_asin_f64(double x) {
    double a = __builtin_fabs(x), z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
    double s = a > 0.5 ? __builtin_sqrt(z) : a;
    double tail = s * z * tgc_poly_asin_f64(z);
    double large = 2.0 * TGC_QUARTER_PI_HIGH_F64 -
                   (2.0 * s + (2.0 * tail - 2.0 * TGC_QUARTER_PI_LOW_F64));
    return x == 0.0 ? x : __builtin_copysign(a > 0.5 ? large : s + tail, x);
}

TGC_INLINE double tgc_acos_f64(double x) {
    double a = __builtin_fabs(x), z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
    double s = a > 0.5 ? __builtin_sqrt(z) : x;
    double tail = s * z * tgc_poly_asin_f64(z);
    double middle = 2.0 * TGC_QUARTER_PI_HIGH_F64 - (s + (tail - 2.0 * TGC_QUARTER_PI_LOW_F64));
    double large = 2.0 * (s + tail);
    large = x < 0.0 ? 4.0 * TGC_QUARTER_PI_HIGH_F64 -
                          (2.0 * s + (2.0 * tail - 4.0 * TGC_QUARTER_PI_LOW_F64))
                    : large;
    return a > 0.5 ? large : middle;
}

#endif
