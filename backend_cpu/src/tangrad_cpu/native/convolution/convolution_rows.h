/* The loops of convolution over one type. A template: define CV_T, CV_FMA and CV(name),
 * and include. */

static inline void CV(copy)(CV_T *restrict to, const CV_T *restrict from, int64_t n)
{
    /* Runs are short, and a call costs more than the copy: pieces of a fixed size, which GCC would join to a call. */
    for (; n >= 16; n -= 16, to += 16, from += 16) {
        __builtin_memcpy(to, from, 16 * sizeof(CV_T));
        __asm__("" : "+r"(to), "+r"(from));
    }
#define CV_PIECE(size)                                                                                 \
    if (n & size) {                                                                                    \
        __builtin_memcpy(to, from, size * sizeof(CV_T));                                               \
        to += size, from += size;                                                                      \
    }
    CV_PIECE(8)
    CV_PIECE(4)
    CV_PIECE(2)
    CV_PIECE(1)
#undef CV_PIECE
}

/* Rows of `width` elements: for each place, the elements of all runs, then zeros. */
static void CV(gather)(void *target, int64_t width, const void *source, const int64_t *places, int64_t rows,
                       const tgc_run *runs, int count, int64_t step)
{
    int64_t filled = runs[count - 1].at + runs[count - 1].count;
    for (int64_t r = 0; r < rows; r++) {
        CV_T *to = (CV_T *)target + r * width;
        const CV_T *from = (const CV_T *)source + places[r];
        for (int i = 0; i < count; i++) {
            CV_T *piece = to + runs[i].at;
            const CV_T *x = from + runs[i].offset;
            if (step == 1) {
                CV(copy)(piece, x, runs[i].count);
            } else {
                for (int64_t k = 0; k < runs[i].count; k++)
                    piece[k] = x[k * step];
            }
        }
        for (int64_t k = filled; k < width; k++)
            to[k] = 0;
    }
}

/* Add such rows to where they came from. */
static void CV(scatter)(void *target, const int64_t *places, int64_t rows, const void *source, int64_t width,
                        const tgc_run *runs, int count, int64_t step)
{
    for (int64_t r = 0; r < rows; r++) {
        CV_T *to = (CV_T *)target + places[r];
        const CV_T *from = (const CV_T *)source + r * width;
        for (int i = 0; i < count; i++) {
            CV_T *restrict x = to + runs[i].offset;
            const CV_T *restrict piece = from + runs[i].at;
            if (step == 1) {
                for (int64_t k = 0; k < runs[i].count; k++)
                    x[k] += piece[k];
            } else {
#pragma GCC ivdep
                for (int64_t k = 0; k < runs[i].count; k++)
                    x[k * step] += piece[k];
            }
        }
    }
}

/* One channel with one map: the taps are few, and the result stays in the cache meanwhile. */
static void CV(correlate)(void *result, const void *source, const int64_t *places, const void *weight, int64_t taps,
                          const tgc_run *runs, int count, int64_t step)
{
    const CV_T *w = weight;
    for (int i = 0; i < count; i++) {
        CV_T *restrict to = (CV_T *)result + runs[i].at;
        const CV_T *restrict x = (const CV_T *)source + runs[i].offset;
        int64_t n = runs[i].count, t = 0;
        if (taps >= 9 && step == 1) {
            /* All taps of the most frequent kernel at once: the result is written once. */
            const CV_T *x0 = x + places[0], *x1 = x + places[1], *x2 = x + places[2], *x3 = x + places[3],
                       *x4 = x + places[4], *x5 = x + places[5], *x6 = x + places[6], *x7 = x + places[7],
                       *x8 = x + places[8];
            for (int64_t k = 0; k < n; k++) {
                CV_T sum = CV_FMA(w[0], x0[k], (CV_T)0);
                sum = CV_FMA(w[1], x1[k], sum);
                sum = CV_FMA(w[2], x2[k], sum);
                sum = CV_FMA(w[3], x3[k], sum);
                sum = CV_FMA(w[4], x4[k], sum);
                sum = CV_FMA(w[5], x5[k], sum);
                sum = CV_FMA(w[6], x6[k], sum);
                sum = CV_FMA(w[7], x7[k], sum);
                to[k] = CV_FMA(w[8], x8[k], sum);
            }
            t = 9;
        } else {
            for (int64_t k = 0; k < n; k++)
                to[k] = 0;
        }
        for (; t + 3 <= taps; t += 3) {
            const CV_T *x0 = x + places[t], *x1 = x + places[t + 1], *x2 = x + places[t + 2];
            CV_T w0 = w[t], w1 = w[t + 1], w2 = w[t + 2];
            if (step == 1) {
                for (int64_t k = 0; k < n; k++)
                    to[k] = to[k] + w0 * x0[k] + w1 * x1[k] + w2 * x2[k];
            } else {
                for (int64_t k = 0; k < n; k++)
                    to[k] = to[k] + w0 * x0[k * step] + w1 * x1[k * step] + w2 * x2[k * step];
            }
        }
        for (; t < taps; t++)
            for (int64_t k = 0; k < n; k++)
                to[k] += w[t] * x[places[t] + k * step];
    }
}

static void CV(spread)(void *target, const int64_t *places, const void *weight, int64_t taps, const void *source,
                       const tgc_run *runs, int count, int64_t step)
{
    const CV_T *w = weight;
    for (int i = 0; i < count; i++) {
        const CV_T *restrict g = (const CV_T *)source + runs[i].at;
        for (int64_t t = 0; t < taps; t++) {
            CV_T *restrict x = (CV_T *)target + places[t] + runs[i].offset;
            CV_T factor = w[t];
            if (step == 1) {
                for (int64_t k = 0; k < runs[i].count; k++)
                    x[k] += factor * g[k];
            } else {
#pragma GCC ivdep
                for (int64_t k = 0; k < runs[i].count; k++)
                    x[k * step] += factor * g[k];
            }
        }
    }
}

/* The sum of products over all runs, in as many partial sums as a vector has lanes. */
static double CV(inner)(const void *source, const void *grad, const tgc_run *runs, int count, int64_t step)
{
    CV_T lanes[16] = {0};
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const CV_T *x = (const CV_T *)source + runs[i].offset, *g = (const CV_T *)grad + runs[i].at;
        int64_t k = 0;
        if (step == 1) {
            for (; k + 16 <= runs[i].count; k += 16)
                for (int l = 0; l < 16; l++)
                    lanes[l] += x[k + l] * g[k + l];
        }
        for (; k < runs[i].count; k++)
            lanes[k & 15] += x[k * step] * g[k];
    }
    for (int l = 0; l < 16; l++)
        sum += (double)lanes[l];
    return sum;
}

static void CV(sum)(void *to, const void *from, int64_t n, int64_t parts)
{
    CV_T *restrict total = to;
    const CV_T *restrict part = from;
    for (int64_t i = 0; i < n; i++)
        total[i] = part[i];
    for (int64_t p = 1; p < parts; p++)
        for (int64_t i = 0; i < n; i++)
            total[i] += part[p * n + i];
}

#undef CV_T
#undef CV_FMA
#undef CV
