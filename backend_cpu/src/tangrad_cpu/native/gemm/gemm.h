/* Matrix products: C = activation(alpha * A B + beta * C + bias), batched. */
#ifndef TANGRAD_CPU_GEMM_H
#define TANGRAD_CPU_GEMM_H

#include "tgc.h"

/* Strides count elements and may be anything, zero included; those of C must not make its
 * elements overlap. */
typedef struct tgc_gemm {
    int64_t m, n, k, batch;
    const void *a;
    int64_t a_row, a_col, a_batch;
    const void *b;
    int64_t b_row, b_col, b_batch;
    void *c;
    int64_t c_row, c_col, c_batch;
    const void *bias; /* of C's type, shared by the batch; NULL: none */
    int64_t bias_row, bias_col;
    /* Called with pieces of finished rows in the accumulators' type; NULL: none. */
    void (*activation)(void *row, int64_t n);
    double alpha, beta; /* with beta 0, C is not read */
    int32_t c_dtype;    /* bf16 and f16 only: the type of A and B, or TGC_FLOAT32 */
} tgc_gemm;

/* Return 0, or -1 with an exception set; then C is untouched. Results do not depend on the
 * number of threads. */
#ifdef TGC_LEVEL
int TGC(tgc_gemm_f32)(const tgc_gemm *g);
int TGC(tgc_gemm_f64)(const tgc_gemm *g);
int TGC(tgc_gemm_bf16)(const tgc_gemm *g); /* accumulates in float32, rounds once */
int TGC(tgc_gemm_f16)(const tgc_gemm *g);  /* the same */
int TGC(tgc_gemm_s8)(const tgc_gemm *g);   /* int8 x int8 -> int32 */
int TGC(tgc_gemm_u8s8)(const tgc_gemm *g); /* uint8 x int8 -> int32 */
int TGC(tgc_gemm_i8)(const tgc_gemm *g);   /* integers of one type, signed or not: modulo 2^bits */
int TGC(tgc_gemm_i16)(const tgc_gemm *g);
int TGC(tgc_gemm_i32)(const tgc_gemm *g);
int TGC(tgc_gemm_i64)(const tgc_gemm *g);
int TGC(tgc_gemm_c64)(const tgc_gemm *g);
int TGC(tgc_gemm_c128)(const tgc_gemm *g);
#endif

#endif
