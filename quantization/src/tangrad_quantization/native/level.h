/* What the kernels hand to the functions of an instruction-set level, and their table. */
#ifndef TQ_LEVEL_H
#define TQ_LEVEL_H

#include <stdint.h>

/* A product of bytes and what becomes of its sums. */
typedef struct tq_product {
    const int8_t *packed;        /* [columns / 16][quads][16][4] */
    const int32_t *sums;         /* of the weights of each column */
    const int32_t *weight_zeros; /* of each column, or NULL where all are 0 */
    const float *scales;         /* of each column */
    const float *bias;           /* of each column, or NULL */
    int64_t quads;               /* depth / 4, rounded up */
    int64_t depth;
    int64_t row_stride; /* of the output, in elements */
    int32_t input_zero;
    int32_t narrow; /* whether all inputs are below 128 */
    int32_t zero, low, high; /* of the output, where it is bytes */
    float least;             /* the smallest number, where it is floats: 0 for relu, else -inf */
    uint8_t *bytes;          /* the output: one of the two */
    float *floats;
} tq_product;

typedef struct tq_binary {
    float scale_a, scale_b, inverse;
    int32_t zero_a, zero_b, zero, low, high;
    int32_t flip; /* 128 where bytes are signed: they are seen 128 higher, zero points too */
} tq_binary;

typedef struct tq_level {
    int64_t row_tile; /* rows that a task of a product should have: whole blocks of the level */
    void (*rows)(const tq_product *p, const uint8_t *a, int64_t lda, int64_t begin, int64_t end,
                 int64_t left, int64_t right);
    void (*depthwise)(const tq_product *p, const uint8_t *const *taps, const int8_t *weights,
                      int64_t count, int64_t channels, int64_t row);
    void (*add)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t n, const tq_binary *p);
    void (*mul)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t n, const tq_binary *p);
    void (*quantize)(const float *x, uint8_t *out, int64_t n, float inverse, int zero, int low,
                     int high);
    void (*dequantize)(const uint8_t *x, float *out, int64_t n, float scale, int zero, int flip);
    void (*range)(const float *x, int64_t n, float *low, float *high, int *finite);
    /* A row of a weight whose groups have a scale each, times x; `middle` is taken off 4 bits. */
    float (*groups8)(const float *x, const int8_t *w, const float *scales, int64_t groups, int64_t group);
    float (*groups4)(const float *x, const uint8_t *w, const float *scales, int64_t groups, int64_t group,
                     float middle);
} tq_level;

/* The level in use, and by name: "scalar", "avx2", "vnni" or "amx"; NULL where the machine lacks it. */
extern const tq_level *tq_level_in_use;
const tq_level *tq_level_named(const char *name);
const char *tq_best_level(void);

#endif
