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

/* Rows of a product that lie in pieces of one length, at the same distances from the first. */
typedef struct tq_pieces {
    const int64_t *offsets; /* of each piece, in bytes */
    int64_t count;
    int64_t quads; /* of each piece */
} tq_pieces;

/* Some places of a line of a depthwise convolution's output. */
typedef struct tq_line {
    const uint8_t *const *lines; /* of the input, at x = 0; NULL where all is padding */
    int64_t count, width;        /* of these lines, and how many places each has */
    int64_t taps, stride, dilation;
    int64_t start, places; /* where the first place reads first, and how many places follow */
    int64_t channels;
} tq_line;

/* Rows that a task of a product in pieces has at most: eight blocks of six, and half as many more. */
enum { TQ_ROWS = 72 };

/* Steps of four lines that `line` has room for. */
enum { TQ_STEPS = 96 };

typedef struct tq_binary {
    float scale_a, scale_b, inverse;
    int32_t zero_a, zero_b, zero, low, high;
    int32_t flip; /* 128 where bytes are signed: they are seen 128 higher, zero points too */
} tq_binary;

/* A weight whose groups of neighbours have a scale each. */
typedef struct tq_groups {
    const uint8_t *weight; /* of each column: depth * bits / 8 bytes */
    const float *scales;   /* [columns][groups] */
    const float *zeros;    /* the same, or NULL for 0 with 8 bits and 8 with 4 */
    int64_t groups, group, bits;
} tq_groups;

static inline int64_t tq_prepared_size(int64_t depth)
{
    return depth + 64 + (depth + 63) / 64 * 16;
}

static inline int64_t tq_depthwise_size(int64_t taps, int64_t channels)
{
    return (channels + 63) / 64 * ((taps + 1) / 2) * 256;
}

typedef struct tq_level {
    int64_t row_tile; /* rows that a task of a product should have: whole blocks of the level */
    void (*rows)(const tq_product *p, const uint8_t *a, int64_t lda, int64_t begin, int64_t end,
                 int64_t left, int64_t right);
    /* Write weights [taps][channels] as `depthwise` reads them, to tq_depthwise_size zeros. */
    void (*order)(const int8_t *weights, int64_t taps, int64_t channels, int8_t *to);
    void (*depthwise)(const tq_product *p, const uint8_t *const *taps, const int8_t *weights,
                      int64_t count, int64_t channels, int64_t row);
    void (*add)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t n, const tq_binary *p);
    void (*mul)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t n, const tq_binary *p);
    void (*quantize)(const float *x, uint8_t *out, int64_t n, float inverse, int zero, int low,
                     int high);
    void (*dequantize)(const uint8_t *x, float *out, int64_t n, float scale, int zero, int flip);
    void (*range)(const float *x, int64_t n, float *low, float *high, int *finite);
    /* Columns left to right of a row x times a weight in groups. What `prepare` wrote of x, at most
     * tq_prepared_size(depth) floats, serves all columns; it returns 0 where the level cannot do x. */
    int (*prepare)(const tq_groups *g, const float *x, float *to);
    void (*grouped)(const tq_groups *g, const float *x, const float *prepared, int64_t left, int64_t right,
                    float *out);
    /* Of rows at `at`, each in pieces; NULL where the level wants them in one. */
    void (*pieces)(const tq_product *p, const uint8_t *const *at, const tq_pieces *pieces, int64_t begin,
                   int64_t end, int64_t left, int64_t right);
    /* Channels left to right, of blocks of 64, from row `row` of the output on; weights of `order`, four
     * lines of the kernel and one tap of each after the other. NULL where the level has none. */
    void (*line)(const tq_product *p, const tq_line *line, const int8_t *weights, int64_t left, int64_t right,
                 int64_t row);
} tq_level;

/* The level in use, and by name: "scalar", "avx2", "vnni" or "amx"; NULL where the machine lacks it. */
extern const tq_level *tq_level_in_use;
const tq_level *tq_level_named(const char *name);
const char *tq_best_level(void);

#endif
