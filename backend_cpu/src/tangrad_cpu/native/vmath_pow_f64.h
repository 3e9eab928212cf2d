/* Power and hypotenuse of float64. */
#ifndef TGC_VMATH_POW_F64_H
#define TGC_VMATH_POW_F64_H

#include "vmath_f64.h"

/* log(1 + f) = result + *low with an error of about 2^-65: twice atanh(s), s = f / (2 + f), of
 * which the first terms are computed in two numbers. */
TGC_INLINE double tgc_log_double_f64(double f, double *low) {
    double lost, d = 2.0 + f, d_lost = (2.0 - d) + f;
    double s = f / d, product = tgc_two_product_f64(s, d, &lost);
    double s_low = ((f - product) - lost - s * d_lost) / d;
    double z_low, z = tgc_two_product_f64(s, s, &z_low);
    z_low = TGC_FMA(2.0 * s, s_low, z_low);
    /* 1/3 + z P(z), in two parts */
    double c_low, c = tgc_fast_two_sum_f64(0x1.5555555555555p-2, z * tgc_poly_log_tail_f64(z), &c_low);
    c_low += 0x1.5555555555555p-56;
    double p_low, p = tgc_two_product_f64(z, c, &p_low);
    p_low += TGC_FMA(z, c_low, z_low * c);
    /* s + s p */
    double q_low, q = tgc_two_product_f64(s, p, &q_low);
    q_low += TGC_FMA(s, p_low, s_low * p);
    double sum = tgc_fast_two_sum_f64(s, q, &lost);
    *low = 2.0 * (lost + (s_low + q_low));
    return 2.0 * sum;
}

TGC_INLINE double tgc_pow_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y), k, low, lost, rest;
    /* A larger exponent overflows or underflows all the same, and is even. */
    double e = b > 0x1p65 ? __builtin_copysign(0x1p65, y) : y;
    double high = tgc_log_double_f64(tgc_split_f64(a, &k) - 1.0, &low);
    double sum = tgc_two_sum_f64(k * TGC_LN2_HIGH_F64, high, &lost);
    sum = tgc_fast_two_sum_f64(sum, lost + TGC_FMA(k, TGC_LN2_LOW_F64, low), &low);
    double product = tgc_two_product_f64(e, sum, &rest);
    double r = tgc_exp_sum_f64(product, TGC_FMA(e, low, rest));

    r = a == 0.0 || a == INFINITY ? ((a == 0.0) == (y < 0.0) ? INFINITY : 0.0) : r;
    /* Below 2^52 adding 2^52 rounds to an integer; from 2^53 on all are even. */
    double shifted = b + 0x1p52;
    int whole = b >= 0x1p52 || shifted - 0x1p52 == b;
    uint64_t bits = b < 0x1p52 ? tgc_bits_f64(shifted) : tgc_bits_f64(b);
    int odd = whole && b < 0x1p53 && (bits & 1) != 0;
    int negative = tgc_bits_f64(x) >> 63 != 0;
    r = x < 0.0 && a != INFINITY && !whole ? NAN : r;
    r = negative && odd ? -r : r;
    r = x != x || y != y ? x + y : r;
    r = a == 1.0 && b == INFINITY ? 1.0 : r;
    return x == 1.0 || y == 0.0 ? 1.0 : r;
}

/* sqrt(x^2 + y^2), scaled so that the squares stay within range */
TGC_INLINE double tgc_hypot_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    double high = a > b ? a : b, low = a > b ? b : a;
    double scale = high > 0x1p500 ? 0x1p-600 : (high < 0x1p-400 ? 0x1p600 : 1.0);
    double back = high > 0x1p500 ? 0x1p600 : (high < 0x1p-400 ? 0x1p-600 : 1.0);
    double h = high * scale, l = low * scale;
    double r = __builtin_sqrt(TGC_FMA(h, h, l * l)) * back;
    r = x != x || y != y ? x + y : r;
    return a == INFINITY || b == INFINITY ? INFINITY : r;
}

#endif
