/* What transforms of one length share: factors, roots of unity, and a cache of plans. */
#ifndef TANGRAD_CPU_FOURIER_PLAN_H
#define TANGRAD_CPU_FOURIER_PLAN_H

#include "tgc.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PASSES 40
/* Larger prime factors go through a convolution (Bluestein): a pass over r numbers takes r² products. */
#define MOST_RADIX 61
/* A coarse and a fine table, whose products are all roots of a length. */
#define FINE 1024

typedef struct fourier_roots {
    int64_t n;
    long double *fine, *coarse; /* pairs of a cosine and a sine */
} fourier_roots;

/* exp(-2 pi i k / n), from an angle of at most an eighth of a turn. */
static inline void fourier_root_of(int64_t k, int64_t n, long double *pair)
{
    const long double turn = 6.283185307179586476925286766559005768L;
    int64_t eighth = (int64_t)(((__int128)8 * k) / n);
    /* 8k/n = eighth + rest/n: odd eighths count back from their end. */
    int64_t rest = (int64_t)((__int128)8 * k - (__int128)eighth * n);
    if (eighth & 1)
        rest = n - rest;
    long double angle = turn * ((long double)rest / (8 * (long double)n));
    long double c = cosl(angle), s = sinl(angle), swap;
    if (((eighth + 1) & 2) != 0) {
        swap = c;
        c = s;
        s = swap;
    }
    pair[0] = (((eighth + 2) & 4) != 0) ? -c : c;
    pair[1] = (eighth & 4) != 0 ? s : -s;
}

static inline int fourier_roots_make(fourier_roots *roots, int64_t n)
{
    int64_t coarse = (n + FINE - 1) / FINE;
    roots->n = n;
    roots->fine = malloc(sizeof(long double) * 2 * (size_t)(FINE + coarse));
    if (roots->fine == NULL)
        return -1;
    roots->coarse = roots->fine + 2 * FINE;
    for (int64_t k = 0; k < FINE && k < n; k++)
        fourier_root_of(k, n, roots->fine + 2 * k);
    for (int64_t k = 0; k < coarse; k++)
        fourier_root_of(k * FINE, n, roots->coarse + 2 * k);
    return 0;
}

/* exp(-2 pi i k / n) for 0 <= k < n. */
static inline void fourier_root(const fourier_roots *roots, int64_t k, double *re, double *im)
{
    const long double *a = roots->coarse + 2 * (k / FINE), *b = roots->fine + 2 * (k % FINE);
    *re = (double)(a[0] * b[0] - a[1] * b[1]);
    *im = (double)(a[0] * b[1] + a[1] * b[0]);
}

/* The passes of a length, or 0 where it has a prime factor beyond MOST_RADIX. */
static inline int fourier_factors(int64_t n, int *radices)
{
    int count = 0, twos = 0;
    while (n % 2 == 0) {
        n /= 2;
        twos++;
    }
    /* Eights, and fours where the last would be a two. */
    while (twos > 4 || twos == 3) {
        radices[count++] = 8;
        twos -= 3;
    }
    for (; twos > 1; twos -= 2)
        radices[count++] = 4;
    if (twos == 1)
        radices[count++] = 2;
    for (int r = 3; r <= MOST_RADIX; r += 2)
        while (n % r == 0) {
            radices[count++] = r;
            n /= r;
        }
    return n == 1 ? count : 0;
}

/* How long a pass over a number takes, beside others. */
static inline double fourier_pass_cost(int radix)
{
    switch (radix) {
    case 2: return 1.2;
    case 3: return 1.8;
    case 4: return 1.6;
    case 5: return 2.6;
    case 7: return 3.8;
    case 8: return 2.4;
    default: return 0.7 * radix;
    }
}

static inline double fourier_cost(int64_t n)
{
    int radices[MOST_PASSES], count = fourier_factors(n, radices);
    double cost = 1; /* bringing numbers in and out */
    for (int i = 0; i < count; i++)
        cost += fourier_pass_cost(radices[i]);
    return cost * (double)n;
}

/* n = first * second with the least work for vectors of `lanes` columns, then rows; 0 where none divides. */
static inline int64_t fourier_split(int64_t n, int64_t lanes)
{
    int64_t best = 0, root = (int64_t)sqrt((double)n);
    double least = HUGE_VAL;
    for (int64_t first = root / 8 > 4 ? root / 8 : 4; first <= 8 * root && first <= n / 4; first++) {
        int64_t second = n / first;
        if (first * second != n)
            continue;
        double cost = (double)((second + lanes - 1) / lanes) * fourier_cost(first)
                      + (double)((first + lanes - 1) / lanes) * (fourier_cost(second) + (double)second);
        if (cost < least) {
            least = cost;
            best = first;
        }
    }
    return best;
}

/* The least length of 2, 3 and 5 as factors, 16 among them, from `least` on. */
static inline int64_t fourier_smooth(int64_t least)
{
    int64_t best = 16;
    while (best < least)
        best *= 2;
    for (int64_t five = 1; five <= best / 16 && five <= 25; five *= 5)
        for (int64_t three = five; three <= best / 16 && three / five <= 9; three *= 3) {
            int64_t n = 16 * three;
            while (n < least)
                n *= 2;
            if (n < best)
                best = n;
        }
    return best;
}

#endif
