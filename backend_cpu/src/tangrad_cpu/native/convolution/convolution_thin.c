/* Convolution of groups that have one channel and few maps, too thin for products: by direct loops
 * over windows. Where all strides are 1, windows of several rows are worked on as one run. */
#include "convolution_job.h"

#include <math.h>
#include <string.h>

/* Whole rows of windows from position `at` on, as one run: what lies between two rows is worked on
 * too, and left out of the result. Returns the number of rows. */
static int64_t joined_rows(const tgc_convolution *j, int64_t at, tgc_run *joined)
{
    const tgc_windows *w = &j->w;
    int64_t width = w->out[w->ndim - 1], height = w->out[w->ndim - 2];
    int64_t rows = tgc_smaller(TGC_JOINED / j->pitch, height - at / width % height);
    TGC(tgc_window_runs)(w, &j->input, at, 1, joined);
    joined->count = (rows - 1) * j->pitch + width;
    return rows;
}

/* Runs are made whole vectors where what is read beyond the plane is the end of our own copy. */
#define WHOLE 16

static void joined_forward(const tgc_convolution *j, char *out, const char *x, const char *weight)
{
    int64_t width = j->w.out[j->w.ndim - 1];
    _Alignas(64) char buffer[TGC_JOINED * 8];
    tgc_run joined;
    for (int64_t at = 0; at < j->w.positions;) {
        int64_t rows = joined_rows(j, at, &joined);
        if (j->input.deferred != NULL)
            joined.count = (joined.count + WHOLE - 1) / WHOLE * WHOLE;
        j->of->correlate(buffer, x, j->places, weight, j->w.taps, &joined, 1, 1);
        for (int64_t row = 0; row < rows; row++, at += width)
            tgc_copy_short(out + at * j->item, buffer + row * j->pitch * j->item, width * j->item);
    }
}

/* Memory for a plane of the input; 0: there is none, and the convolution has failed. */
static int plane_begin(tgc_convolution *j, char **buffer)
{
    const size_t bytes = (size_t)((j->input.channel + WHOLE) * j->item);
    *buffer = j->input.deferred != NULL ? tgc_scratch(bytes) : NULL;
    if (j->input.deferred != NULL && *buffer == NULL)
        atomic_store(&j->failed, 1);
    return j->input.deferred == NULL || *buffer != NULL;
}

void TGC(tgc_thin_forward)(int64_t task, void *context)
{
    tgc_convolution *j = context;
    const tgc_windows *w = &j->w;
    tgc_run runs[TGC_LONGEST];
    char *buffer;
    if (!plane_begin(j, &buffer))
        return;
    int64_t end = tgc_begin(j->units, j->tasks, task + 1, 1);
    for (int64_t unit = tgc_begin(j->units, j->tasks, task, 1); unit < end; unit++) {
        int64_t map = unit % w->maps, image = unit / w->maps;
        const char *x = TGC(tgc_operand_plane)(&j->input, w, image, map / j->depth, buffer);
        const char *weight = j->weight.data + map * w->taps * j->item;
        char *out = j->out + unit * w->positions * j->item;
        if (j->pitch)
            joined_forward(j, out, x, weight);
        for (int64_t at = 0; at < w->positions && !j->pitch; at += TGC_LONGEST) {
            int count = TGC(tgc_window_runs)(w, &j->input, at, tgc_smaller(w->positions - at, TGC_LONGEST), runs);
            j->of->correlate(out + at * j->item, x, j->places, weight, w->taps, runs, count, j->step);
        }
        tgc_add_bias(j, out, map, 1, w->positions, w->positions);
    }
    tgc_scratch_free(buffer);
}

void TGC(tgc_thin_adjoint)(int64_t task, void *context)
{
    tgc_convolution *j = context;
    const tgc_windows *w = &j->w;
    tgc_run runs[TGC_LONGEST];
    int64_t end = tgc_begin(j->units, j->tasks, task + 1, 1);
    for (int64_t unit = tgc_begin(j->units, j->tasks, task, 1); unit < end; unit++) {
        int64_t channel = unit % w->channels, image = unit / w->channels;
        char *to = j->out + unit * w->area * j->item, *target = TGC(tgc_planes_begin)(j, 1, to);
        if (target == NULL)
            return;
        for (int64_t at = 0; at < w->positions; at += TGC_LONGEST) {
            int count = TGC(tgc_window_runs)(w, &j->input, at, tgc_smaller(w->positions - at, TGC_LONGEST), runs);
            for (int64_t map = channel * j->depth; map < (channel + 1) * j->depth; map++)
                j->of->spread(target, j->places, j->weight.data + map * w->taps * j->item, w->taps,
                              j->grad.data + (image * j->grad.image + map * j->grad.channel + at) * j->item, runs,
                              count, j->step);
        }
        TGC(tgc_planes_end)(j, 1, to, target);
    }
}

/* One tap's sum over n positions from `at` on. */
static double tap_sum(const tgc_convolution *j, int64_t at, int64_t n, const char *x, const char *grad)
{
    tgc_run runs[TGC_LONGEST];
    double sum = 0;
    for (int64_t end = at + n; at < end; at += TGC_LONGEST) {
        int count = TGC(tgc_window_runs)(&j->w, &j->input, at, tgc_smaller(end - at, TGC_LONGEST), runs);
        sum += j->of->inner(x, grad + at * j->item, runs, count, j->step);
    }
    return sum;
}

/* Add the sums of `taps` taps over one plane. */
static void thin_weight(const tgc_convolution *j, double *sums, const char *x, const char *grad,
                        const int64_t *places, int64_t taps)
{
    int64_t width = j->w.out[j->w.ndim - 1];
    _Alignas(64) char buffer[TGC_JOINED * 8];
    tgc_run joined;
    if (!j->pitch) {
        for (int64_t t = 0; t < taps; t++)
            sums[t] += tap_sum(j, 0, j->w.positions, x + places[t] * j->item, grad);
        return;
    }
    for (int64_t at = 0; at < j->w.positions;) {
        int64_t rows = joined_rows(j, at, &joined);
        memset(buffer, 0, (size_t)(joined.count * j->item));
        for (int64_t row = 0; row < rows; row++)
            tgc_copy_short(buffer + row * j->pitch * j->item, grad + (at + row * width) * j->item, width * j->item);
        for (int64_t t = 0; t < taps; t++) {
            const char *seen = x + places[t] * j->item;
            double sum = j->of->inner(seen, buffer, &joined, 1, 1);
            /* Zero times an infinity that only lies between the rows is no number. */
            sums[t] += isfinite(sum) ? sum : tap_sum(j, at, rows * width, seen, grad);
        }
        at += rows * width;
    }
}

void TGC(tgc_thin_weight)(int64_t task, void *context)
{
    tgc_convolution *j = context;
    const tgc_windows *w = &j->w;
    char *buffer;
    if (!plane_begin(j, &buffer))
        return;
    int64_t end = tgc_begin(j->units, j->tasks, task + 1, 1);
    for (int64_t unit = tgc_begin(j->units, j->tasks, task, 1); unit < end; unit++) {
        int64_t map = unit / j->blocks, first = unit % j->blocks * TGC_TAPS_AT_ONCE;
        int64_t taps = tgc_smaller(w->taps - first, TGC_TAPS_AT_ONCE), at = map * w->taps + first;
        double sums[TGC_TAPS_AT_ONCE] = {0};
        for (int64_t image = 0; image < w->images; image++)
            thin_weight(j, sums,
                        TGC(tgc_operand_plane)(&j->input, w, image, map / j->depth, buffer),
                        j->grad.data + (image * j->grad.image + map * j->grad.channel) * j->item, j->places + first,
                        taps);
        for (int64_t t = 0; t < taps; t++)
            if (w->dtype == TGC_FLOAT64)
                ((double *)j->out)[at + t] = sums[t];
            else
                ((float *)j->out)[at + t] = (float)sums[t];
    }
    tgc_scratch_free(buffer);
}
