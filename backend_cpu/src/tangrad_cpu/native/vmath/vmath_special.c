/* Special functions of float32 for lanes, called in place of the core's texts, which branch and loop.
 *
 * All compute in float64, to 2^-28 or better, and round once. Arguments that are rare, or would
 * need other methods, go through the core's functions one by one. */
#define TGC_VMATH_DEFINES_CLONES
#include "vmath.h"
#include "vmath_lanes.h"
#include "vmath_polynomials_special.h"
#include "vmath_trig_f32.h"

#define TGC_PI_D32 0x1.921fb54442d18p+1
#define TGC_TWO_OVER_PI_D32 0x1.45f306dc9c883p-1
#define TGC_NOWHERE 0
#define TGC_NEVER(x) (x)

/* --- Bessel functions --------------------------------------------------------------------------- */

#define TGC_BREAK 8.0f
/* Squares of the zeros below it. */
#define TGC_J0_ZERO_1 0x1.721fb80462bbbp+2
#define TGC_J0_ZERO_2 0x1.e78a4a621dd6fp+4
#define TGC_J1_ZERO_1 0x1.d5d2b4189822cp+3
#define TGC_J1_ZERO_2 0x1.89bf66072a432p+5

/* Sine and cosine of 0 <= x <= TGC_TRIG_LIMIT_F32, by one reduction. */
TGC_INLINE void tgc_sine_cosine_d32(double x, double *sine, double *cosine) {
    double rounded = TGC_FMA(x, TGC_TWO_OVER_PI_D32, TGC_ROUND_F64), n = rounded - TGC_ROUND_F64;
    double r = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, z = r * r;
    double s = TGC_FMA(r * z, tgc_poly_sin_d32(z), r);
    double c = TGC_FMA(z * z, tgc_poly_cos_d32(z), TGC_FMA(-0.5, z, 1.0));
    uint64_t quadrant = tgc_bits_f64(rounded), top = 0x8000000000000000u;
    double first = quadrant & 1 ? c : s, second = quadrant & 1 ? s : c;
    *sine = tgc_float_f64(tgc_bits_f64(first) ^ (quadrant << 62 & top));
    *cosine = tgc_float_f64(tgc_bits_f64(second) ^ ((quadrant + 1) << 62 & top));
}

/* Up to 8 by powers; the zeros are factors, so that results near them keep their digits. */
TGC_INLINE double tgc_j0_small_d32(double x) {
    double z = x * x, t = TGC_FMA(z, 0x1p-5, -1.0);
    return (z - TGC_J0_ZERO_1) * (z - TGC_J0_ZERO_2) * tgc_poly_j0_d32(t);
}

TGC_INLINE double tgc_j1_small_d32(double x) {
    double z = x * x, t = TGC_FMA(z, 0x1p-5, -1.0);
    return x * ((z - TGC_J1_ZERO_1) * (z - TGC_J1_ZERO_2) * tgc_poly_j1_d32(t));
}

TGC_INLINE float tgc_j0_near_f32(float x) { return (float)tgc_j0_small_d32(x); }

TGC_INLINE float tgc_j1_near_f32(float x) { return (float)tgc_j1_small_d32(x); }

TGC_INLINE float tgc_y_special_f32(float x, double y) {
    float edge = x == 0.0f ? -INFINITY : NAN;
    return x > 0.0f ? (float)y : edge;
}

TGC_INLINE float tgc_y0_near_f32(float x) {
    double d = x, t = TGC_FMA(d * d, 0x1p-5, -1.0);
    double y = TGC_FMA(TGC_TWO_OVER_PI_D32 * tgc_log_d32(d), tgc_j0_small_d32(d), tgc_poly_y0_d32(t));
    return tgc_y_special_f32(x, y);
}

TGC_INLINE float tgc_y1_near_f32(float x) {
    double d = x, t = TGC_FMA(d * d, 0x1p-5, -1.0);
    double known = TGC_FMA(tgc_log_d32(d), tgc_j1_small_d32(d), -1.0 / d);
    return tgc_y_special_f32(x, TGC_FMA(TGC_TWO_OVER_PI_D32, known, d * tgc_poly_y1_d32(t)));
}

/* Hankel's expansion. Sine and cosine of x - pi / 4 are those of x, whose phase is not rounded. */
TGC_INLINE double tgc_wave_d32(double x, double p, double q, double first, double second) {
    return __builtin_sqrt((1.0 / TGC_PI_D32) / x) * TGC_FMA(p, first, q / x * second);
}

#define TGC_HANKEL(name, order, first, second, ending)                                             \
    TGC_INLINE float tgc_##name##_wave_f32(float x, double s, double c) {                          \
        double a = __builtin_fabs((double)x), w = 64.0 / (a * a);                                  \
        double p = tgc_poly_hankel_p##order##_d32(w), q = tgc_poly_hankel_q##order##_d32(w);       \
        double y = tgc_wave_d32(a, p, q, first, second);                                           \
        return ending;                                                                             \
    }                                                                                              \
    TGC_INLINE float tgc_##name##_far_f32(float x) {                                               \
        double s, c;                                                                               \
        tgc_sine_cosine_d32(__builtin_fabs((double)x), &s, &c);                                    \
        return tgc_##name##_wave_f32(x, s, c);                                                     \
    }                                                                                              \
    static float tgc_##name##_rare_f32(float x) {                                                  \
        double a = __builtin_fabs((double)x);                                                      \
        return tgc_##name##_wave_f32(x, sin(a), cos(a));                                           \
    }
TGC_HANKEL(j0, 0, c + s, c - s, (float)y)
TGC_HANKEL(j1, 1, s - c, s + c, (float)(x < 0.0f ? -y : y))
TGC_HANKEL(y0, 0, s - c, s + c, tgc_y_special_f32(x, y))
TGC_HANKEL(y1, 1, -(s + c), s - c, tgc_y_special_f32(x, y))

TGC_INLINE float tgc_i1e_near_f32(float x) {
    double a = __builtin_fabs((double)x), t = TGC_FMA(a * a, 0x1p-5, -1.0);
    return (float)(tgc_exp_d32(-a) * ((double)x * tgc_poly_i1_d32(t)));
}

TGC_INLINE float tgc_i1e_far_f32(float x) {
    double a = __builtin_fabs((double)x), y = tgc_poly_i1_large_d32(8.0 / a) / __builtin_sqrt(a);
    return (float)(x < 0.0f ? -y : y);
}

/* --- the gamma function's derivatives ----------------------------------------------------------- */

/* Where digamma is zero. */
#define TGC_DIGAMMA_ROOT 0x1.762d86356be3fp+0

/* Of 0 <= y: by the root's factor up to 3, below 1 after one step of the recurrence. */
TGC_INLINE double tgc_digamma_positive_d32(double y) {
    double inverse = 1.0 / y, u = inverse * inverse, x = y < 1.0 ? y + 1.0 : y;
    double near = (x - TGC_DIGAMMA_ROOT) * tgc_poly_digamma_d32(x - 2.0) - (y < 1.0 ? inverse : 0.0);
    double far = tgc_log_d32(y) - TGC_FMA(u, tgc_poly_digamma_tail_d32(u), 0.5 * inverse);
    return y < 3.0 ? near : (y == INFINITY ? INFINITY : far);
}

TGC_INLINE float tgc_digamma_near_f32(float x) {
    float y = (float)tgc_digamma_positive_d32(x);
    return x == 0.0f ? __builtin_copysignf(INFINITY, -x) : (x != x ? x : y);
}

/* What x lacks of an integer. */
TGC_INLINE double tgc_from_integer_d32(double x) {
    double a = __builtin_fabs(x) < 0x1p23 ? x : 0.0;
    return a - ((a + TGC_ROUND_F64) - TGC_ROUND_F64);
}

/* digamma(1 - x) - pi / tan(pi x), of negative numbers that are no integers */
TGC_INLINE float tgc_digamma_reflected_f32(float x) {
    double r = tgc_from_integer_d32(x), z = r * r;
    double turn = tgc_poly_cos_pi_d32(z) / (r * tgc_poly_sin_pi_d32(z));
    return r == 0.0 ? NAN : (float)(tgc_digamma_positive_d32(1.0 - (double)x) - turn);
}

TGC_INLINE double tgc_trigamma_positive_d32(double y) {
    double inverse = 1.0 / y, u = inverse * inverse, x = y < 1.0 ? y + 1.0 : y;
    double near = tgc_poly_trigamma_d32(x - 2.0) + (y < 1.0 ? u : 0.0);
    double far = inverse + u * TGC_FMA(inverse, tgc_poly_trigamma_tail_d32(u), 0.5);
    return y < 3.0 ? near : far;
}

TGC_INLINE float tgc_trigamma_near_f32(float x) { return (float)tgc_trigamma_positive_d32(x); }

/* (pi / sin(pi x))^2 - trigamma(1 - x): infinite at integers */
TGC_INLINE float tgc_trigamma_reflected_f32(float x) {
    double r = tgc_from_integer_d32(x), turn = 1.0 / (r * tgc_poly_sin_pi_d32(r * r));
    double y = turn * turn - tgc_trigamma_positive_d32(1.0 - (double)x);
    return x == -INFINITY ? NAN : (float)y;
}

/* --- error functions ---------------------------------------------------------------------------- */

/* exp(x^2) erfc(x) of x >= 0 */
TGC_INLINE double tgc_erfcx_positive_d32(double x) {
    return tgc_poly_erfcx_d32(1.0 - 8.0 / (x + 4.0)) / TGC_FMA(2.0, x, 1.0);
}

TGC_INLINE float tgc_erfcx_fast_f32(float x) {
    double a = __builtin_fabs((double)x), y = tgc_erfcx_positive_d32(a);
    double mirrored = 2.0 * tgc_exp_d32(tgc_bounded_d32(a * a)) - y;
    return (float)(x < 0.0f ? mirrored : y);
}

/* log(erfc(-x / sqrt(2)) / 2): in the lower tail by erfcx, else by what the upper tail takes from 1 */
TGC_INLINE float tgc_log_ndtr_fast_f32(float x) {
    double u = (double)x * 0x1.6a09e667f3bcdp-1, a = __builtin_fabs(u), square = a * a;
    double scaled = tgc_erfcx_positive_d32(a), tail = tgc_exp_d32(-tgc_bounded_d32(square)) * scaled;
    double y = -0.5 * (u < 0.0 ? 2.0 - tail : tail), sum = 1.0 + y;
    double rest = x < -1.0f ? -square : y - (sum - 1.0);
    double result = tgc_log_d32(x < -1.0f ? 0.5 * scaled : sum) + rest;
    result = x == -INFINITY ? -INFINITY : result;
    return x != x ? x : (float)result;
}

/* --- the Hurwitz zeta function ------------------------------------------------------------------ */

/* exp(a) where what is out of range of float32 may be any number that is, too */
TGC_INLINE double tgc_power_d32(double a) { return tgc_exp_d32(tgc_bounded_d32(a)); }

/* Eight terms, then Euler and Maclaurin's formula, for 1 < s <= 10^6 and 0 < q < infinity. */
TGC_INLINE void tgc_zeta_sums(int lanes, const double *s, const double *q, double *sums) {
    for (int k = 0; k < lanes; ++k) sums[k] = 0.0;
    for (int term = 0; term < 8; ++term)
        for (int k = 0; k < lanes; ++k) sums[k] += tgc_power_d32(-s[k] * tgc_log_f64(q[k] + term));
    for (int k = 0; k < lanes; ++k) {
        double n = s[k], x = q[k] + 8.0, power = tgc_power_d32(-n * tgc_log_f64(x)), inverse = 1.0 / x;
        double u = inverse * inverse, factor = n * power * inverse;
        double tail = TGC_FMA(x * power, 1.0 / (n - 1.0), 0.5 * power);
        tail = TGC_FMA(0x1.5555555555555p-4, factor, tail);
        factor *= (n + 1.0) * (n + 2.0) * u;
        tail = TGC_FMA(-0x1.6c16c16c16c17p-10, factor, tail);
        factor *= (n + 3.0) * (n + 4.0) * u;
        tail = TGC_FMA(0x1.1566abc011567p-15, factor, tail);
        factor *= (n + 5.0) * (n + 6.0) * u;
        tail = TGC_FMA(-0x1.bbd779334ef0bp-21, factor, tail);
        factor *= (n + 7.0) * (n + 8.0) * u;
        sums[k] += TGC_FMA(0x1.66a8f2bf70ebep-26, factor, tail);
    }
}

TGC_INLINE void tgc_zeta_lanes(int lanes, const float *orders, const float *starts, float *results) {
    double s[16], q[16], sums[16];
    for (int k = 0; k < lanes; ++k) {
        s[k] = orders[k];
        q[k] = starts[k];
    }
    tgc_zeta_sums(lanes, s, q, sums);
    for (int k = 0; k < lanes; ++k) results[k] = (float)sums[k];
}

/* (-1)^(n + 1) n! zeta(n + 1, x) for integers 1 <= n <= 30 and 0 < x < infinity */
TGC_INLINE void tgc_polygamma_lanes(int lanes, const float *orders, const float *starts, float *results) {
    double s[16], q[16], sums[16], factorials[16];
    for (int k = 0; k < lanes; ++k) {
        double half = 0.5 * orders[k], even = half == (half + TGC_ROUND_F64) - TGC_ROUND_F64 ? -1.0 : 1.0;
        s[k] = orders[k] + 1.0;
        q[k] = starts[k];
        factorials[k] = even;
    }
    for (int number = 2; number <= 30; ++number)
        for (int k = 0; k < lanes; ++k) factorials[k] *= number < s[k] ? (double)number : 1.0;
    tgc_zeta_sums(lanes, s, q, sums);
    for (int k = 0; k < lanes; ++k) results[k] = (float)(factorials[k] * sums[k]);
}

double tgc_zeta(double s, double q);
double tgc_polygamma(double n, double x);
static float tgc_zeta_rare_f32(float s, float q) { return (float)tgc_zeta(s, q); }
static float tgc_polygamma_rare_f32(float n, float x) { return (float)tgc_polygamma(n, x); }

/* --- the incomplete gamma functions ------------------------------------------------------------- */

/* x^a exp(-x) / gamma(a + 1), by Stirling's series at a + 9 */
TGC_INLINE double tgc_gamma_density_d32(double a, double x) {
    double y = a + 9.0, u = 1.0 / y, z = u * u, product = 1.0;
    for (int k = 1; k <= 8; ++k) product *= a + k;
    double tail = -0x1.e4286cb0f5398p-6;
    tail = TGC_FMA(tail, z, 0x1.a41a41a41a41ap-8);
    tail = TGC_FMA(tail, z, -0x1.f6ab0d9993c7dp-10);
    tail = TGC_FMA(tail, z, 0x1.b951e2b18ff23p-11);
    tail = TGC_FMA(tail, z, -0x1.3813813813814p-11);
    tail = TGC_FMA(tail, z, 0x1.a01a01a01a01ap-11);
    tail = TGC_FMA(tail, z, -0x1.6c16c16c16c17p-9);
    tail = TGC_FMA(tail, z, 0x1.5555555555555p-4);
    double known = TGC_FMA(y - 0.5, tgc_log_f64(y), TGC_FMA(u, tail, 0x1.d67f1c864beb5p-1 - y));
    double exponent = TGC_FMA(a, tgc_log_f64(x), -x) - known;
    return tgc_exp_f64(exponent < -700.0 ? -700.0 : exponent) * product;
}

/* P or Q of `lanes` pairs with 10^-6 <= a < 100 and 0 < x < 10^4: the power series of P, and where x
 * is larger than a and 1.1 the continued fraction of Q by its three-term recurrence. Lanes go on
 * until all of them are done. */
#define TGC_SERIES_MOST 2000
TGC_INLINE void tgc_incomplete_gamma(int lanes, const float *as, const float *xs, float *results, int upper) {
    double a[16], x[16], sum[16], term[16], p0[16], p1[16], q0[16], q1[16], ratio[16];
    int fraction[16], more = 0, fractions = 0;
    for (int k = 0; k < lanes; ++k) {
        a[k] = as[k];
        x[k] = xs[k];
        fraction[k] = (x[k] > 1.1) & (x[k] >= a[k]);
        fractions |= fraction[k];
        sum[k] = 1.0;
        term[k] = fraction[k] ? 0.0 : x[k] / (a[k] + 1.0);
        more |= !fraction[k];
    }
    for (int round = 0; more && round < TGC_SERIES_MOST; ++round) {
        more = 0;
        for (int k = 0; k < lanes; ++k) {
            sum[k] += term[k];
            term[k] *= x[k] / (a[k] + (round + 2));
            more |= term[k] > 0x1p-56 * sum[k];
        }
    }
    if (fractions) {
        for (int k = 0; k < lanes; ++k) {
            double b = fraction[k] ? x[k] : 2.0, c = fraction[k] ? a[k] : 1.0;
            p0[k] = 1.0;
            q0[k] = b;
            p1[k] = b + 1.0;
            q1[k] = (b + 2.0 - c) * b;
            ratio[k] = p1[k] / q1[k];
        }
        more = 1;
        for (int round = 1; more && round < TGC_SERIES_MOST; round += 4) {
            more = 0;
            for (int k = 0; k < lanes; ++k) {
                double b = fraction[k] ? x[k] : 2.0, c = fraction[k] ? a[k] : 1.0;
                double p = p0[k], q = q0[k], next_p = p1[k], next_q = q1[k];
                for (int step = round; step < round + 4; ++step) {
                    double z = b + (2 * step + 2) - c, y = (step + 1 - c) * step;
                    double new_p = next_p * z - p * y, new_q = next_q * z - q * y;
                    p = next_p;
                    q = next_q;
                    next_p = new_p;
                    next_q = new_q;
                }
                double scale = __builtin_fabs(next_q) > 0x1p300 ? 0x1p-300 : 1.0, found = next_p / next_q;
                p0[k] = p * scale;
                q0[k] = q * scale;
                p1[k] = next_p * scale;
                q1[k] = next_q * scale;
                more |= __builtin_fabs(found - ratio[k]) > 0x1p-34 * __builtin_fabs(found);
                ratio[k] = found;
            }
        }
    }
    for (int k = 0; k < lanes; ++k) {
        double density = tgc_gamma_density_d32(a[k], x[k]);
        double q = fractions ? density * a[k] * ratio[k] : 0.0, p = density * sum[k];
        results[k] = (float)(upper == fraction[k] ? (upper ? q : p) : 1.0 - (upper ? p : q));
    }
}

TGC_INLINE void tgc_igamma_lanes(int lanes, const float *as, const float *xs, float *results) {
    tgc_incomplete_gamma(lanes, as, xs, results, 0);
}

TGC_INLINE void tgc_igammac_lanes(int lanes, const float *as, const float *xs, float *results) {
    tgc_incomplete_gamma(lanes, as, xs, results, 1);
}

double tgc_igamma(double a, double x);
double tgc_igammac(double a, double x);
static float tgc_igamma_rare_f32(float a, float x) { return (float)tgc_igamma(a, x); }
static float tgc_igammac_rare_f32(float a, float x) { return (float)tgc_igammac(a, x); }

/* --- as loops call them ------------------------------------------------------------------------- */

/* Functions of two numbers that take all lanes at once. In place of those that are `outside`, which
 * go through `rare`, they get 2 and 1. */
#define TGC_SCALAR_LANES(T, name, many, outside, rare)                                             \
    T name(T x, T y) {                                                                             \
        T result;                                                                                  \
        if (outside) return rare(x, y);                                                            \
        many(1, &x, &y, &result);                                                                  \
        return result;                                                                             \
    }
#define TGC_VECTOR_LANES(T, lanes, symbol, many, outside, rare)                                    \
    typedef T symbol##_type __attribute__((vector_size(sizeof(T) * lanes)));                       \
    __attribute__((visibility("hidden"))) symbol##_type symbol(symbol##_type a, symbol##_type b);  \
    symbol##_type symbol(symbol##_type a, symbol##_type b) {                                       \
        T xs[lanes], ys[lanes], results[lanes], usual_x[lanes], usual_y[lanes];                    \
        symbol##_type result;                                                                      \
        int far = 0;                                                                               \
        memcpy(xs, &a, sizeof xs);                                                                 \
        memcpy(ys, &b, sizeof ys);                                                                 \
        for (int k = 0; k < lanes; ++k) {                                                          \
            T x = xs[k], y = ys[k];                                                                \
            int other = outside;                                                                   \
            usual_x[k] = other ? 2 : x;                                                            \
            usual_y[k] = other ? 1 : y;                                                            \
            far |= other;                                                                          \
        }                                                                                          \
        many(lanes, usual_x, usual_y, results);                                                    \
        if (__builtin_expect(far, 0)) {                                                            \
            for (int k = 0; k < lanes; ++k) {                                                      \
                T x = xs[k], y = ys[k];                                                            \
                if (outside) results[k] = rare(x, y);                                              \
            }                                                                                      \
        }                                                                                          \
        memcpy(&result, results, sizeof result);                                                   \
        return result;                                                                             \
    }

#define TGC_LARGE !(__builtin_fabsf(x) <= TGC_BREAK)
#define TGC_FAR !(__builtin_fabsf(x) <= TGC_TRIG_LIMIT_F32)
#define TGC_NEGATIVE (x < 0.0f)
#define TGC_NO_SUM !((x > 1.0f) & (x <= 1e6f) & (y > 0.0f) & (y < INFINITY))
#define TGC_NO_ORDER                                                                               \
    !((x >= 1.0f) & (x <= 30.0f) & (x == tgc_floor_f32(x)) & (y > 0.0f) & (y < INFINITY))
#define TGC_NO_SERIES !((x >= 1e-6f) & (x < 100.0f) & (y > 0.0f) & (y < 1e4f))
#define TGC_BESSEL(name)                                                                           \
    TGC_FUNCTION_F32(STEPS, v, tgc_bessel_##name##_f32, tgc_##name##_near_f32, TGC_LARGE,          \
                     tgc_##name##_far_f32, TGC_FAR, tgc_##name##_rare_f32)

TGC_BESSEL(j0)
TGC_BESSEL(j1)
TGC_BESSEL(y0)
TGC_BESSEL(y1)
TGC_FUNCTION_F32(STEPS, v, tgc_i1e_f32, tgc_i1e_near_f32, TGC_LARGE, tgc_i1e_far_f32, TGC_NOWHERE, TGC_NEVER)
TGC_FUNCTION_F32(STEPS, v, tgc_digamma_f32, tgc_digamma_near_f32, TGC_NEGATIVE, tgc_digamma_reflected_f32,
                 TGC_NOWHERE, TGC_NEVER)
TGC_FUNCTION_F32(STEPS, v, tgc_trigamma_f32, tgc_trigamma_near_f32, TGC_NEGATIVE, tgc_trigamma_reflected_f32,
                 TGC_NOWHERE, TGC_NEVER)
TGC_FUNCTION_F32(1, v, tgc_erfcx_f32, tgc_erfcx_fast_f32, TGC_NOWHERE, TGC_NEVER)
TGC_FUNCTION_F32(1, v, tgc_log_ndtr_f32, tgc_log_ndtr_fast_f32, TGC_NOWHERE, TGC_NEVER)
TGC_FUNCTION_F32(LANES, vv, tgc_zeta_f32, tgc_zeta_lanes, TGC_NO_SUM, tgc_zeta_rare_f32)
TGC_FUNCTION_F32(LANES, vv, tgc_polygamma_f32, tgc_polygamma_lanes, TGC_NO_ORDER, tgc_polygamma_rare_f32)
TGC_FUNCTION_F32(LANES, vv, tgc_igamma_f32, tgc_igamma_lanes, TGC_NO_SERIES, tgc_igamma_rare_f32)
TGC_FUNCTION_F32(LANES, vv, tgc_igammac_f32, tgc_igammac_lanes, TGC_NO_SERIES, tgc_igammac_rare_f32)
