/* What the files of convolution share: the geometry of a call, and its operands as they are read.
 *
 * Of an input element, the address is a sum of two: that of the element's channel and tap
 * (`places`), and that of the window's position. Padding is copied in beforehand, so that no
 * address is ever outside. */
#ifndef TANGRAD_CPU_CONVOLUTION_H
#define TANGRAD_CPU_CONVOLUTION_H

#include "tgc.h"

/* Copy what may be a short run, for which a call costs more than the copy: in two pieces, which may
 * overlap. n is a multiple of 4. */
static inline void tgc_copy_short(char *restrict to, const char *restrict from, int64_t n)
{
#define TGC_TWO_PIECES(size)                                                                                           \
    {                                                                                                                  \
        __builtin_memcpy(to, from, size);                                                                              \
        __builtin_memcpy(to + n - size, from + n - size, size);                                                        \
    }
    if (n > 512) {
        __builtin_memcpy(to, from, (size_t)n);
    } else if (n >= 64) {
        for (int64_t at = 0; at < n - 64; at += 64)
            __builtin_memcpy(to + at, from + at, 64);
        __builtin_memcpy(to + n - 64, from + n - 64, 64);
    } else if (n >= 32)
        TGC_TWO_PIECES(32)
    else if (n >= 16)
        TGC_TWO_PIECES(16)
    else if (n >= 8)
        TGC_TWO_PIECES(8)
    else if (n >= 4)
        TGC_TWO_PIECES(4)
#undef TGC_TWO_PIECES
}

typedef struct tgc_windows {
    const char *op;
    int ndim; /* spatial dimensions, at least 1 */
    int padded;
    int32_t dtype; /* computed in */
    int64_t images, channels, maps, groups; /* channels of the input, maps of the result */
    int64_t size[TG_MAX_DIMS], grown[TG_MAX_DIMS], kernel[TG_MAX_DIMS], out[TG_MAX_DIMS];
    int64_t stride[TG_MAX_DIMS], padding[TG_MAX_DIMS], dilation[TG_MAX_DIMS];
    int64_t taps, positions, area, grown_area; /* numbers of elements: kernel, out, size, grown */
} tgc_windows;

/* An operand in the type computed in; strides count elements. */
typedef struct tgc_operand {
    char *data;
    int64_t image, channel, step[TG_MAX_DIMS];
    /* Elements of the last dimension that lie a stride of the windows apart are neighbours, in as many
     * runs as the stride has steps, each this long: windows side by side are read from contiguous
     * memory. 0: elements lie in order. */
    int64_t phase;
    void *memory; /* of a copy; NULL: the tensor itself */
    const tg_view *deferred; /* to be copied plane by plane; NULL: there is nothing to do */
    tg_view turned; /* of a tensor whose channels are neighbours: the same plane after plane */
    int64_t turned_strides[TG_MAX_DIMS];
} tgc_operand;

/* Positions whose windows start `step` elements apart. */
typedef struct tgc_run {
    int64_t at, count, offset;
} tgc_run;

#ifdef TGC_LEVEL
/* Read a tensor as it lies or copied: grown by the padding where `grow`, and with dimensions from
 * `dense` on contiguous. Returns 0, or -1 with an exception set. */
int TGC(tgc_operand_take)(tgc_operand *to, const tg_view *view, const tgc_windows *w, int grow, int dense);

/* The same with padding for operands that are read a plane at a time: a copy is not made as a whole, but by
 * `plane`, which returns a plane as it is to be read, in `buffer` of x->channel elements if it is copied.
 * Neither `to` nor what `view` points to may move meanwhile. */
int TGC(tgc_operand_defer)(tgc_operand *to, const tg_view *view, const tgc_windows *w, int dense);
const char *TGC(tgc_operand_plane)(const tgc_operand *x, const tgc_windows *w, int64_t image, int64_t channel,
                                   char *buffer);

/* The bias of all maps in the type computed in; NULL with an exception set if there is no memory. */
char *TGC(tgc_bias_take)(const tg_view *bias, const tgc_windows *w);

/* Whether windows share elements and start several apart, so that `phase` pays. Returns its length, or 0. */
int64_t TGC(tgc_operand_phase)(const tgc_windows *w);

/* Copy the inside of a grown plane, laid out as in `x`, to a plane without padding. */
void TGC(tgc_operand_crop)(char *to, const char *from, const tgc_windows *w, const tgc_operand *x);

/* Where results are computed: the output, or for the halves memory to be rounded from at the end.
 * `finish` also frees it. */
char *TGC(tgc_result_take)(const tg_view *out, const tgc_windows *w);
void TGC(tgc_result_finish)(const tg_view *out, char *result);

/* The windows of positions first .. first+count-1 of all images; returns the number of runs. */
int TGC(tgc_window_runs)(const tgc_windows *w, const tgc_operand *x, int64_t first, int64_t count, tgc_run *runs);

/* The offsets of `channels` channels, tap by tap. */
void TGC(tgc_window_places)(const tgc_windows *w, const tgc_operand *x, int64_t channels, int64_t *places);
#endif

#endif
