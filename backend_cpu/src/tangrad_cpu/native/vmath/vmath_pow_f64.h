/* Power and hypotenuse of float64. */
#ifndef TGC_VMATH_POW_F64_H
#define TGC_VMATH_POW_F64_H

#include "vmath_f64.h"

/* log(m) = result + *low for m in [sqrt(1/2), sqrt(2)) with an error of about 2^-65: twice atanh(s),
 * s = (m - 1) / (m + 1), of which the first terms are computed in two numbers. */
TGC_INLINE double tgc_log_double_f64(double m, double *low) {
    double lost, f = m - 1.0, d = m + 1.0, d_lost = m - (d - 1.0), inverse = 1.0 / d;
    double s = f * inverse, product = tgc_two_product_f64(s, d, &lost);
    double s_low = (((f - product) - lost) - s * d_lost) * inverse;
    double z_low, z = tgc_two_product_f64(s, s, &z_low);
    z_low = TGC_FMA(2.0 * s, s_low, z_low);
    /* 1/3 + z P(z), in two parts */
    double c_low, c = tgc_fast_two_sum_f64(0x1.5555555555555p-2, z * tgc_poly_log_tail_f64(z), &c_low);
    c_low += 0x1.5555555555555p-56;
    double p_low, p = tgc_two_product_f64(z, c, &p_low);
    p_low += TGC_FMA(z, c_low, z_low * c);
    /* s + s p, twice */
    double t = 2.0 * s, q_low, q = tgc_two_product_f64(t, p, &q_low);
    q_low += TGC_FMA(t, p_low, 2.0 * s_low * p);
    double sum = tgc_fast_two_sum_f64(t, q, &lost);
    *low = lost + TGC_FMA(2.0, s_low, q_low);
    return sum;
}

/* The special cases are those of C99's annex F. */
TGC_INLINE double tgc_pow_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y), k, low, rest;
    /* A larger exponent overflows or underflows all the same, and is even. */
    double e = b > 0x1p65 ? __builtin_copysign(0x1p65, y) : y;
    double high = tgc_log_double_f64(tgc_split_f64(a, &k), &low);
    low = TGC_FMA(k, TGC_LN2_LOW_F64, low);
    high = tgc_fast_two_sum_f64(k * TGC_LN2_HIGH_F64, high, &rest);
    high = tgc_fast_two_sum_f64(high, rest + low, &low);
    /* nan passes. Where the product is infinite what follows drops its second part. */
    high = a < INFINITY ? high : a;
    high = a == 0.0 ? high - INFINITY : high;
    double product = tgc_two_product_f64(e, high, &rest);
    double r = tgc_exp_sum_f64(product, TGC_FMA(e, low, rest));

    /* 0 to the next even number for even exponents, 1 for odd ones. No constant is selected here, or
       GCC would take a branch around what follows from it. */
    double size = __builtin_fabs(e), large = size > 0x1p53 ? size : 0x1p53;
    double distance = __builtin_fabs(size - ((size + large) - large));
    double turned = __builtin_copysign(1.0, x) * r;
    r = distance == 1.0 ? turned : r;
    r = x < 0.0 && a != INFINITY && distance * (1.0 - distance) != 0.0 ? NAN : r;
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
