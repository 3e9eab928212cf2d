/* What copies elements: conversion of packed elements, and copies of strided regions. */
#ifndef TANGRAD_CPU_COPYING_H
#define TANGRAD_CPU_COPYING_H

#include "tgc.h"

/* The entries of a kernel that serves every dtype. */
#define TGC_OF_EVERY_DTYPE(op, kind, function, context)                                                            \
    {op, "bool", kind, (void *)(function), context}, {op, "uint8", kind, (void *)(function), context},             \
        {op, "int8", kind, (void *)(function), context}, {op, "uint16", kind, (void *)(function), context},        \
        {op, "int16", kind, (void *)(function), context}, {op, "uint32", kind, (void *)(function), context},       \
        {op, "int32", kind, (void *)(function), context}, {op, "uint64", kind, (void *)(function), context},       \
        {op, "int64", kind, (void *)(function), context}, {op, "float32", kind, (void *)(function), context},      \
        {op, "float64", kind, (void *)(function), context}, {op, "float16", kind, (void *)(function), context},    \
        {op, "bfloat16", kind, (void *)(function), context}, {op, "complex64", kind, (void *)(function), context}, \
        {op, "complex128", kind, (void *)(function), context}

/* Whether a copy between two dtypes moves bits only. */
static inline int tgc_same_bits(int to, int from)
{
    /* Integers of one width share their bits; all bytes but 0 are true. */
    static const int8_t width[TGC_DTYPES] = {[TGC_UINT8] = 1,  [TGC_INT8] = 1,   [TGC_UINT16] = 2,
                                             [TGC_INT16] = 2,  [TGC_UINT32] = 4, [TGC_INT32] = 4,
                                             [TGC_UINT64] = 8, [TGC_INT64] = 8};
    return to == from || (width[to] != 0 && width[to] == width[from]);
}

/* Convert n packed elements, with the values that the core's host_copy.h gives. The memories do
 * not overlap; neither need be aligned. */
void TGC(tgc_convert)(void *to, int to_dtype, const void *from, int from_dtype, int64_t n);

/* Copy a region with conversion; strides are in bytes and may be zero (in `from`) or negative.
 * The memories do not overlap. Uses the thread pool where the region is large. */
void TGC(tgc_copy_region)(int ndim, const int64_t *shape, char *to, const int64_t *to_strides, int to_dtype,
                          const char *from, const int64_t *from_strides, int from_dtype);

/* The same for elements of 1, 2, 4, 8 or 16 bytes that are only moved. */
void TGC(tgc_move_region)(int ndim, const int64_t *shape, char *to, const int64_t *to_strides, const char *from,
                          const int64_t *from_strides, int itemsize);

/* Write n elements of one value with a stride in bytes. */
void TGC(tgc_fill_row)(char *to, int64_t stride, const void *value, int64_t n, int itemsize);

/* Transpose: to[i * to_stride + j * itemsize] = from[i * itemsize + j * from_stride]. */
void TGC(tgc_transpose)(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                        int64_t columns, int itemsize);

/* The same for `count` small matrices, one `to_step` and `from_step` behind the other. */
void TGC(tgc_transpose_each)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                             int64_t to_stride, int64_t from_stride, int64_t rows, int64_t columns, int itemsize);

/* Encode a numeric argument as an element of a dtype; -1 with an exception where it is no number. */
int TGC(tgc_encode)(const char *op, const tg_argument *argument, int dtype, void *element);

/* Write one encoded element everywhere in a tensor. */
void TGC(tgc_fill)(const tg_view *view, const void *element);

/* Copy n elements of moved bits from one strided row into another. */
void TGC(tgc_move_row)(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n, int itemsize);

/* Strides of a tensor in bytes. */
static inline void tgc_byte_strides(const tg_view *view, int64_t *strides)
{
    for (int d = 0; d < view->ndim; d++)
        strides[d] = view->strides[d] * tgc_itemsize[view->dtype];
}

/* The elements of a tensor in order, copied where they lie otherwise, by tgc_move_region of a level, to
 * `memory` that the caller frees; NULL with an exception set: there is none. */
static inline const void *tgc_in_order(const char *op, const tg_view *view, void **memory,
                                       void (*move)(int, const int64_t *, char *, const int64_t *, const char *,
                                                    const int64_t *, int))
{
    int64_t wanted[TG_MAX_DIMS], strides[TG_MAX_DIMS], item = tgc_itemsize[view->dtype], step = item;
    int ordered = 1;
    tgc_byte_strides(view, strides);
    for (int d = view->ndim - 1; d >= 0; d--) {
        ordered &= view->shape[d] == 1 || strides[d] == step;
        wanted[d] = step;
        step *= view->shape[d];
    }
    if (ordered)
        return view->data;
    *memory = tgc_scratch((size_t)(view->numel * item));
    if (*memory != NULL)
        move(view->ndim, view->shape, *memory, wanted, view->data, strides, (int)item);
    else
        tgc_no_memory(op, (size_t)(view->numel * item));
    return *memory;
}

#endif
