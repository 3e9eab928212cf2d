/* The numbers that PyTorch's CPU draws, of the words of a Mersenne Twister.
 *
 * In float32, logarithm, cosine and sine of normal numbers are polynomials for vector registers:
 * the approximations that Moshier published with Cephes (1984-1992) and Pommier arranged for SIMD
 * (2007). Their coefficients are part of the numbers that a seed stands for, and so is which
 * products are fused with a sum and rounded once. Elsewhere the functions are the C library's. */
#include "twister.h"

#include <math.h>

#define TWO_PI 6.28318530717958647692

#define TARGET
#define NAMED(x) x##_plain
#include "twister_loops.h"
#undef TARGET
#undef NAMED

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma")))
#define NAMED(x) x##_vector
#include "twister_loops.h"
#undef TARGET
#undef NAMED

static int has_vectors(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#define BY_BEST(name, ...) (has_vectors() ? name##_vector(__VA_ARGS__) : name##_plain(__VA_ARGS__))
#else
#define BY_BEST(name, ...) name##_plain(__VA_ARGS__)
#endif

void tg_twister_seed(tg_twister *t, uint32_t seed)
{
    int i;
    for (i = 0; i < TG_TWISTER_WORDS; i++) {
        t->words[i] = seed;
        seed = 1812433253u * (seed ^ (seed >> 30)) + (uint32_t)i + 1u;
    }
    t->position = TG_TWISTER_WORDS;
    t->has_normal = 0;
    t->normal = 0;
}

void tg_twister_words(tg_twister *t, uint32_t *out, size_t n)
{
    while (n) {
        size_t part;
        if (t->position == TG_TWISTER_WORDS) {
            BY_BEST(refill, t->words);
            t->position = 0;
        }
        part = (size_t)(TG_TWISTER_WORDS - t->position);
        if (part > n)
            part = n;
        BY_BEST(temper, t->words + t->position, out, part);
        t->position += (int)part;
        out += part;
        n -= part;
    }
}

void tg_twister_uniform(tg_twister *t, float *out, size_t n, float range, float low)
{
    uint32_t words[TG_TWISTER_WORDS];
    while (n) {
        size_t part = n < TG_TWISTER_WORDS ? n : TG_TWISTER_WORDS;
        tg_twister_words(t, words, part);
        BY_BEST(spread, words, out, part, range, low);
        out += part;
        n -= part;
    }
}

/* 53 bits of two words, of which the first is the high one. */
static double from_words(const uint32_t *words)
{
    uint64_t both = (uint64_t)words[0] << 32 | words[1];
    return (double)(int64_t)(both & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static double one_uniform(tg_twister *t)
{
    uint32_t words[2];
    tg_twister_words(t, words, 2);
    return from_words(words);
}

void tg_twister_uniform_wide(tg_twister *t, double *out, size_t n, double range, double low)
{
    uint32_t words[TG_TWISTER_WORDS];
    int plain = range == 1 && low == 0;
    while (n) {
        size_t i, part = n < TG_TWISTER_WORDS / 2 ? n : TG_TWISTER_WORDS / 2;
        tg_twister_words(t, words, 2 * part);
        for (i = 0; i < part; i++) {
            double u = from_words(words + 2 * i);
            out[i] = plain ? u : fma(u, range, low);
        }
        out += part;
        n -= part;
    }
}

/* Of a block of 16 numbers the first eight give the radius and the others the angle; the first
 * eight results are the cosines. */
void tg_twister_blocks(float *x, size_t n, float mean, float std)
{
    BY_BEST(blocks, x, n, mean, std);
}

void tg_twister_blocks_wide(double *x, size_t n, double mean, double std)
{
    size_t at;
    for (at = 0; at < n; at++) {
        double radius, angle;
        if (at % 16 >= 8)
            continue;
        radius = sqrt(-2.0 * log(1.0 - x[at]));
        angle = TWO_PI * x[at + 8];
        x[at] = fma(radius * cos(angle), std, mean);
        x[at + 8] = fma(radius * sin(angle), std, mean);
    }
}

static double one_normal(tg_twister *t)
{
    double u, v, radius;
    if (t->has_normal) {
        t->has_normal = 0;
        return t->normal;
    }
    u = one_uniform(t);
    v = one_uniform(t);
    radius = sqrt(-2.0 * log1p(-v));
    t->normal = radius * sin(TWO_PI * u);
    t->has_normal = 1;
    return radius * cos(TWO_PI * u);
}

void tg_twister_pairs(tg_twister *t, double *out, size_t n, double mean, double std)
{
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = fma(one_normal(t), std, mean);
}

void tg_twister_exponential(tg_twister *t, double *out, size_t n, double rate)
{
    double factor = -1.0 / rate;
    size_t i;
    tg_twister_uniform_wide(t, out, n, 1, 0);
    for (i = 0; i < n; i++)
        out[i] = factor * log1p(-out[i]);
}

void tg_twister_cauchy(tg_twister *t, double *out, size_t n, double median, double sigma)
{
    size_t i;
    tg_twister_uniform_wide(t, out, n, 1, 0);
    for (i = 0; i < n; i++)
        out[i] = fma(tan(TWO_PI / 2 * (out[i] - 0.5)), sigma, median);
}

void tg_twister_log_normal(tg_twister *t, double *out, size_t n, double mean, double std)
{
    size_t i;
    tg_twister_pairs(t, out, n, mean, std);
    for (i = 0; i < n; i++)
        out[i] = exp(out[i]);
}

void tg_twister_geometric(tg_twister *t, double *out, size_t n, double p)
{
    double failure = log1p(-p);
    size_t i;
    tg_twister_uniform_wide(t, out, n, 1, 0);
    for (i = 0; i < n; i++)
        out[i] = ceil(log(out[i]) / failure);
}

/* Place i is exchanged with one of those from i on, chosen by the i-th word (Fisher, Yates). */
void tg_twister_permutation(tg_twister *t, int64_t *out, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = (int64_t)i;
    for (i = 0; i + 1 < n; i++) {
        uint32_t word;
        size_t j;
        int64_t kept = out[i];
        tg_twister_words(t, &word, 1);
        j = i + word % (n - i);
        out[i] = out[j];
        out[j] = kept;
    }
}

/* --- Numbers by rejection: the order in which they are drawn, and the precision of each step, are
 * PyTorch's. */

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). */
static double one_gamma(tg_twister *t, double alpha, int narrow)
{
    double scale = 1, d, c;
    if (alpha == 0)
        return 0;
    if (!(alpha > 0 && alpha < INFINITY))
        return alpha > 0 ? INFINITY : NAN;
    if (alpha < 1) {
        scale = pow(1.0 - one_uniform(t), narrow ? 1.0f / (float)alpha : 1.0 / alpha);
        alpha = narrow ? (float)alpha + 1.0f : alpha + 1.0;
    }
    d = narrow ? (float)alpha - 1.0f / 3.0f : alpha - (double)(1.0f / 3.0f);
    c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = one_normal(t), y = 1.0 + c * x, v, u, square;
        if (y <= 0)
            continue;
        v = y * y * y;
        u = 1.0 - one_uniform(t);
        square = x * x;
        if (u < 1.0 - (double)0.0331f * square * square ||
            log(u) < 0.5 * square + d * (1.0 - v + log(v)))
            return scale * d * v;
    }
}

void tg_twister_gamma(tg_twister *t, double *out, const double *alpha, size_t n, int narrow)
{
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = one_gamma(t, alpha[i], narrow);
}

/* PTRS of Hörmann, "The transformed rejection method for generating Poisson random variables"
 * (1993); of small means Knuth's product of uniform numbers. */
static double one_poisson(tg_twister *t, double mean)
{
    double b, a, inverse, tight;
    if (mean == 0 || mean == INFINITY)
        return mean;
    if (mean < 10) {
        double least = exp(-mean), product = one_uniform(t);
        int64_t count = 0;
        for (; product > least; count++)
            product *= one_uniform(t);
        return (double)count;
    }
    b = 0.931 + 2.53 * sqrt(mean);
    a = -0.059 + 0.02483 * b;
    inverse = 1.1239 + 1.1328 / (b - 3.4);
    tight = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = one_uniform(t) - 0.5, v = one_uniform(t), us = 0.5 - fabs(u), k;
        if (us == 0)
            continue;
        k = floor((2 * a / us + b) * u + mean + 0.43);
        if (us >= 0.07 && v <= tight)
            return k;
        if (k < 0 || (us < 0.013 && v > us))
            continue;
        if (log(v) + log(inverse) - log(a / (us * us) + b) <=
            -mean + k * log(mean) - lgamma(k + 1.0))
            return k;
    }
}

void tg_twister_poisson(tg_twister *t, double *out, const double *mean, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = one_poisson(t, mean[i]);
}

/* What Stirling's formula of log(k!) leaves. */
static double stirling_tail(double k)
{
    static const double small[] = {
        0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650,
        0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
        0.0092554621827127, 0.0083305634333631};
    double square = (k + 1) * (k + 1);
    if (k <= 9)
        return small[(int)k];
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

/* BTRS of Hörmann, "The generation of binomial random variates" (1993). */
static double binomial_by_rejection(tg_twister *t, double n, double p)
{
    double spread = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * spread;
    double a = -0.0873 + 0.0248 * b + 0.01 * p, center = n * p + 0.5, tight = 0.92 - 4.2 / b;
    double odds = p / (1 - p), alpha = (2.83 + 5.1 / b) * spread, m = floor((n + 1) * p);
    for (;;) {
        double u = one_uniform(t) - 0.5, v = one_uniform(t), us = 0.5 - fabs(u), k, bound;
        if (us == 0)
            continue;
        k = floor((2 * a / us + b) * u + center);
        if (us >= 0.07 && v <= tight)
            return k;
        if (k < 0 || k > n)
            continue;
        bound = (m + 0.5) * log((m + 1) / (odds * (n - m + 1))) +
                (n + 1) * log((n - m + 1) / (n - k + 1)) +
                (k + 0.5) * log(odds * (n - k + 1) / (k + 1)) + stirling_tail(m) +
                stirling_tail(n - m) - stirling_tail(k) - stirling_tail(n - k);
        if (log(v * alpha / (a / (us * us) + b)) <= bound)
            return k;
    }
}

/* By waiting times, or from a mean of 10 on by rejection. */
static double one_binomial(tg_twister *t, double count, double prob, int narrow)
{
    double slope, waited = 0, successes = 0;
    int many;
    if (!(count < INFINITY) || prob != prob)
        return NAN;
    if (count <= 0 || prob <= 0)
        return 0;
    if (prob >= 1)
        return count;
    if (prob > 0.5)
        return count - one_binomial(t, count, narrow ? 1.0f - (float)prob : 1.0 - prob, narrow);
    many = narrow ? (float)count * (float)prob >= 10.0f : count * prob >= 10.0;
    if (many)
        return binomial_by_rejection(t, count, prob);
    slope = narrow ? log1pf(-(float)prob) : log1p(-prob);
    for (;; successes++) {
        waited += ceil(log(one_uniform(t)) / slope);
        if (waited > count)
            return successes;
    }
}

void tg_twister_binomial(tg_twister *t, double *out, const double *count, const double *prob,
                         size_t n, int narrow)
{
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = one_binomial(t, count[i], prob[i], narrow);
}
