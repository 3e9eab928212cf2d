#ifndef TANGRAD_TWISTER_H
#define TANGRAD_TWISTER_H

#include <stddef.h>
#include <stdint.h>

#define TG_TWISTER_WORDS 624

/* A Mersenne Twister, and a normal number of a pair that the next call takes. */
typedef struct {
    uint32_t words[TG_TWISTER_WORDS];
    int position; /* of the next word; TG_TWISTER_WORDS: new ones are made first */
    int has_normal;
    double normal;
} tg_twister;

void tg_twister_seed(tg_twister *t, uint32_t seed);

/* Words, and numbers `u * range + low` of uniform ones u on [0, 1), rounded once. */
void tg_twister_words(tg_twister *t, uint32_t *out, size_t n);
void tg_twister_uniform(tg_twister *t, float *out, size_t n, float range, float low);
void tg_twister_uniform_wide(tg_twister *t, double *out, size_t n, double range, double low);

/* Turn uniform numbers, a multiple of 16 of them, into normal ones. */
void tg_twister_blocks(float *x, size_t n, float mean, float std);
void tg_twister_blocks_wide(double *x, size_t n, double mean, double std);

/* Normal numbers in pairs, one after the other. */
void tg_twister_pairs(tg_twister *t, double *out, size_t n, double mean, double std);

/* Functions of uniform and normal numbers, as the Python methods of these names say. */
void tg_twister_exponential(tg_twister *t, double *out, size_t n, double rate);
void tg_twister_cauchy(tg_twister *t, double *out, size_t n, double median, double sigma);
void tg_twister_log_normal(tg_twister *t, double *out, size_t n, double mean, double std);
void tg_twister_geometric(tg_twister *t, double *out, size_t n, double p);
void tg_twister_permutation(tg_twister *t, int64_t *out, size_t n);

/* Numbers by rejection; `narrow`: what is computed of the parameters alone is rounded to float. */
void tg_twister_gamma(tg_twister *t, double *out, const double *alpha, size_t n, int narrow);
void tg_twister_poisson(tg_twister *t, double *out, const double *mean, size_t n);
void tg_twister_binomial(tg_twister *t, double *out, const double *count, const double *prob,
                         size_t n, int narrow);

#endif
