/* Sampling at positions, over one type: where the taps of a run of positions lie and what they weigh,
 * and sums over them whose lanes are channels. A template: define GS_T, GS_WHOLE (an integer of its
 * width), GS_FLOOR, GS_ROUND, GS_FMOD and GS(name), and include. */

typedef GS_T GS(lanes) __attribute__((vector_size(TGC_VECTOR), aligned(sizeof(GS_T)), may_alias));
#define GS_LANES ((int64_t)(TGC_VECTOR / sizeof(GS_T)))

/* The taps of a run along one dimension: elements, -1 where there is none; weights; their slopes by the position. */
typedef struct {
    GS_WHOLE at[4][RUN];
    GS_T weight[4][RUN], slope[4][RUN];
} GS(axis);

/* All taps of a run: offsets of elements, -1 where there is none. */
typedef struct {
    GS(axis) axes[3];
    int64_t offset[MOST_TAPS][RUN];
    GS_T weight[MOST_TAPS][RUN];
} GS(taps);

/* Reflect at the border until inside; `turn` is multiplied by the slope of that. */
static void GS(mirror)(GS_T *at, GS_T *turn, int64_t n, int64_t size, int align)
{
    const GS_T low = align ? (GS_T)0 : (GS_T)-0.5, span = (GS_T)(align ? size - 1 : size);
    if (span == 0) {
        for (int64_t p = 0; p < n; p++)
            at[p] = turn[p] = 0;
        return;
    }
    for (int64_t p = 0; p < n; p++) {
        const GS_T x = at[p], away = x < low ? low - x : x - low;
        GS_T extra = away < span ? away : away - span, flips = away < span ? 0 : 1;
        if (!(away < 2 * span)) { /* a NaN, too */
            extra = GS_FMOD(away, span);
            flips = GS_ROUND((away - extra) / span);
            flips = GS_FMOD(flips, (GS_T)2);
        }
        const int kept = flips == 0;
        at[p] = kept ? extra + low : span - extra + low;
        turn[p] *= (x < low) == kept ? (GS_T)-1 : (GS_T)1;
    }
}

static void GS(clip)(GS_T *restrict at, GS_T *restrict turn, int64_t n, int64_t size)
{
    const GS_T last = (GS_T)(size - 1);
    for (int64_t p = 0; p < n; p++) {
        const GS_T x = at[p], edge = x >= last ? last : 0;
        const int inside = (x > 0) & (x < last);
        at[p] = inside ? x : edge;
        turn[p] = inside ? turn[p] : 0;
    }
}

static void GS(settle)(const sampling *job, GS_T *at, GS_T *turn, int64_t n, int64_t size)
{
    if (job->padding == 'r')
        GS(mirror)(at, turn, n, size, job->align);
    if (job->padding != 'z')
        GS(clip)(at, turn, n, size);
}

static void GS(elements)(GS_WHOLE *restrict to, const GS_T *restrict at, int64_t n, int64_t size)
{
    const GS_T last = (GS_T)(size - 1);
    for (int64_t p = 0; p < n; p++) {
        const int inside = (at[p] >= 0) & (at[p] <= last);
        const GS_T safe = inside ? at[p] : -1;
        to[p] = (GS_WHOLE)safe;
    }
}

/* Keys' weights with a = -3/4. */
static inline GS_T GS(near)(GS_T x)
{
    return ((GS_T)1.25 * x - (GS_T)2.25) * x * x + 1;
}

static inline GS_T GS(far)(GS_T x)
{
    return (((x - 5) * x + 8) * x - 4) * (GS_T)-0.75;
}

static inline GS_T GS(near_slope)(GS_T x)
{
    return ((GS_T)3.75 * x - (GS_T)4.5) * x;
}

static inline GS_T GS(far_slope)(GS_T x)
{
    return ((3 * x - 10) * x + 8) * (GS_T)-0.75;
}

static void GS(along)(const sampling *job, GS(axis) *to, const GS_T *restrict grid, int64_t n, int64_t size)
{
    GS_T at[RUN], turn[RUN], start[RUN], near_by[RUN], unused[RUN];
    const GS_T half = (GS_T)((double)(size - 1) / 2), whole = (GS_T)size;
    const int64_t apart = job->dims;
    if (job->align)
        for (int64_t p = 0; p < n; p++)
            at[p] = (grid[p * apart] + 1) * half;
    else
        for (int64_t p = 0; p < n; p++)
            at[p] = ((grid[p * apart] + 1) * whole - 1) / 2;
    for (int64_t p = 0; p < n; p++)
        turn[p] = job->align ? half : whole / 2;
    if (job->mode == 'c') {
        for (int64_t p = 0; p < n; p++)
            start[p] = GS_FLOOR(at[p]);
        for (int64_t p = 0; p < n; p++) {
            const GS_T t = at[p] - start[p], s = turn[p];
            to->weight[0][p] = GS(far)(t + 1), to->slope[0][p] = s * GS(far_slope)(t + 1);
            to->weight[1][p] = GS(near)(t), to->slope[1][p] = s * GS(near_slope)(t);
            to->weight[2][p] = GS(near)(1 - t), to->slope[2][p] = -s * GS(near_slope)(1 - t);
            to->weight[3][p] = GS(far)(2 - t), to->slope[3][p] = -s * GS(far_slope)(2 - t);
        }
        for (int tap = 0; tap < 4; tap++) {
            for (int64_t p = 0; p < n; p++)
                near_by[p] = start[p] + (GS_T)(tap - 1), unused[p] = 0;
            GS(settle)(job, near_by, unused, n, size);
            GS(elements)(to->at[tap], near_by, n, size);
        }
        return;
    }
    GS(settle)(job, at, turn, n, size);
    if (job->mode == 'n') {
        for (int64_t p = 0; p < n; p++)
            start[p] = GS_ROUND(at[p]);
        GS(elements)(to->at[0], start, n, size);
        for (int64_t p = 0; p < n; p++)
            to->weight[0][p] = 1, to->slope[0][p] = 0;
        return;
    }
    for (int64_t p = 0; p < n; p++)
        start[p] = GS_FLOOR(at[p]);
    GS(elements)(to->at[0], start, n, size);
    for (int64_t p = 0; p < n; p++) {
        const GS_T share = at[p] - start[p];
        to->weight[0][p] = 1 - share, to->weight[1][p] = share;
        to->slope[0][p] = -turn[p], to->slope[1][p] = turn[p];
        start[p] += 1;
    }
    GS(elements)(to->at[1], start, n, size);
}

static inline void GS(digits)(const sampling *job, int tap, int *digit)
{
    for (int d = job->dims - 1; d >= 0; d--) {
        digit[d] = tap % job->each;
        tap /= job->each;
    }
}

/* The taps of positions first .. first+n-1 of an image, their elements `steps` apart. */
static void GS(place)(const sampling *job, GS(taps) *to, int64_t image, int64_t first, int64_t n, const int64_t *steps)
{
    const GS_T *grid = (const GS_T *)job->grid + (image * job->positions + first) * job->dims;
    for (int d = 0; d < job->dims; d++) /* grids begin with the last dimension */
        GS(along)(job, &to->axes[d], grid + job->dims - 1 - d, n, job->size[d]);
    for (int tap = 0; tap < job->taps; tap++) {
        int digit[3] = {0};
        GS(digits)(job, tap, digit);
        int64_t *restrict offset = to->offset[tap];
        GS_T *restrict weight = to->weight[tap];
        const GS_WHOLE *at = to->axes[0].at[digit[0]];
        const GS_T *w = to->axes[0].weight[digit[0]];
        for (int64_t p = 0; p < n; p++)
            offset[p] = at[p] < 0 ? -1 : at[p] * steps[0], weight[p] = w[p];
        for (int d = 1; d < job->dims; d++) {
            at = to->axes[d].at[digit[d]], w = to->axes[d].weight[digit[d]];
            for (int64_t p = 0; p < n; p++) {
                const int64_t sum = offset[p] + at[p] * steps[d];
                offset[p] = (offset[p] | (int64_t)at[p]) < 0 ? -1 : sum;
                weight[p] *= w[p];
            }
        }
    }
}

/* Those taps of one position that have an element; returns how many. */
static inline int GS(present)(const sampling *job, const GS(taps) *taps, int64_t p, const GS_T *from,
                              const GS_T **elements, GS_T *weights)
{
    int found = 0;
    for (int k = 0; k < job->taps; k++) {
        elements[found] = from + taps->offset[k][p];
        weights[found] = taps->weight[k][p];
        found += taps->offset[k][p] >= 0;
    }
    return found;
}

static inline void GS(sum_of_four)(GS_T *restrict to, const GS_T **from, const GS_T *w, int64_t channels)
{
    int64_t c = 0;
    for (; c + GS_LANES <= channels; c += GS_LANES)
        *(GS(lanes) *)(to + c) = (GS(lanes)){0} + *(const GS(lanes) *)(from[0] + c) * w[0] + *(const GS(lanes) *)(from[1] + c) * w[1]
                                 + *(const GS(lanes) *)(from[2] + c) * w[2] + *(const GS(lanes) *)(from[3] + c) * w[3];
    for (; c < channels; c++)
        to[c] = (GS_T)0 + from[0][c] * w[0] + from[1][c] * w[1] + from[2][c] * w[2] + from[3][c] * w[3];
}

static inline void GS(sum_of_some)(GS_T *restrict to, const GS_T **from, const GS_T *w, int taps, int64_t channels)
{
    int64_t c = 0;
    for (; c + GS_LANES <= channels; c += GS_LANES) {
        GS(lanes) sum = {0};
        for (int k = 0; k < taps; k++)
            sum += *(const GS(lanes) *)(from[k] + c) * w[k];
        *(GS(lanes) *)(to + c) = sum;
    }
    for (; c < channels; c++) {
        GS_T sum = 0;
        for (int k = 0; k < taps; k++)
            sum += from[k][c] * w[k];
        to[c] = sum;
    }
}

/* Of the nearest element, whose weight is one. */
static inline void GS(copy)(GS_T *restrict to, const GS_T *from, int64_t channels)
{
    int64_t c = 0;
    for (; c + GS_LANES <= channels; c += GS_LANES)
        *(GS(lanes) *)(to + c) = *(const GS(lanes) *)(from + c) + (GS_T)0;
    for (; c < channels; c++)
        to[c] = from[c] + (GS_T)0;
}

/* Results (n, channels) of a run. */
static void GS(sums)(const sampling *job, const GS(taps) *taps, GS_T *to, const GS_T *from, int64_t n)
{
    const GS_T *elements[MOST_TAPS];
    GS_T weights[MOST_TAPS];
    for (int64_t p = 0; p < n; p++, to += job->channels) {
        const int found = GS(present)(job, taps, p, from, elements, weights);
        if (job->taps == 1 && job->apart == 1 && found == 1)
            GS(copy)(to, elements[0], job->channels);
        else if (job->apart != 1)
            for (int64_t c = 0; c < job->channels; c++) {
                GS_T sum = 0;
                for (int k = 0; k < found; k++)
                    sum += elements[k][c * job->apart] * weights[k];
                to[c] = sum;
            }
        else if (found == 4)
            GS(sum_of_four)(to, elements, weights, job->channels);
        else
            GS(sum_of_some)(to, elements, weights, found, job->channels);
    }
}

/* Add the gradients (n, channels) of a run to the elements that they come from, for some channels. */
static void GS(spread)(const sampling *job, const GS(taps) *taps, GS_T *to, const GS_T *from, int64_t n,
                       int64_t channels)
{
    const GS_T *elements[MOST_TAPS];
    GS_T weights[MOST_TAPS];
    for (int64_t p = 0; p < n; p++, from += job->channels) {
        const int found = GS(present)(job, taps, p, to, elements, weights);
        for (int k = 0; k < found; k++) {
            GS_T *x = (GS_T *)elements[k];
            int64_t c = 0;
            for (; c + GS_LANES <= channels; c += GS_LANES)
                *(GS(lanes) *)(x + c) += *(const GS(lanes) *)(from + c) * weights[k];
            for (; c < channels; c++)
                x[c] += from[c] * weights[k];
        }
    }
}

/* The gradients of a run's positions, from those (n, channels) of the results. */
static void GS(slopes)(const sampling *job, const GS(taps) *taps, GS_T *to, const GS_T *x, const GS_T *grad, int64_t n)
{
    int digit[MOST_TAPS][3];
    for (int k = 0; k < job->taps; k++)
        GS(digits)(job, k, digit[k]);
    for (int64_t p = 0; p < n; p++, grad += job->channels, to += job->dims) {
        const GS_T *elements[MOST_TAPS];
        GS_T factors[3][MOST_TAPS];
        int found = 0;
        for (int k = 0; k < job->taps; k++) {
            if (taps->offset[k][p] < 0)
                continue;
            elements[found] = x + taps->offset[k][p];
            for (int d = 0; d < job->dims; d++) {
                GS_T factor = taps->axes[d].slope[digit[k][d]][p];
                for (int other = 0; other < job->dims; other++)
                    factor *= other == d ? 1 : taps->axes[other].weight[digit[k][other]][p];
                factors[d][found] = factor;
            }
            found++;
        }
        for (int d = 0; d < job->dims; d++) {
            GS(lanes) sums = {0};
            GS_T rest = 0;
            int64_t c = 0;
            for (; c + GS_LANES <= job->channels; c += GS_LANES) {
                GS(lanes) sum = {0};
                for (int k = 0; k < found; k++)
                    sum += *(const GS(lanes) *)(elements[k] + c) * factors[d][k];
                sums += sum * *(const GS(lanes) *)(grad + c);
            }
            for (; c < job->channels; c++) {
                GS_T sum = 0;
                for (int k = 0; k < found; k++)
                    sum += elements[k][c] * factors[d][k];
                rest += sum * grad[c];
            }
            for (int64_t half = GS_LANES / 2; half > 0; half /= 2)
                for (int64_t l = 0; l < half; l++)
                    sums[l] += sums[l + half];
            to[job->dims - 1 - d] = rest + sums[0];
        }
    }
}

static void GS(forward_task)(int64_t task, void *context)
{
    sampling *job = context;
    GS(taps) taps;
    const int64_t image = task / job->pieces, first = task % job->pieces * job->piece;
    const int64_t end = first + job->piece < job->positions ? first + job->piece : job->positions;
    char *buffer = job->turned ? tgc_scratch((size_t)(job->block * job->channels) * sizeof(GS_T)) : NULL;
    if (job->turned && buffer == NULL) {
        atomic_store(&job->failed, 1);
        return;
    }
    for (int64_t at = first, n; at < end; at += n) {
        n = end - at < job->block ? end - at : job->block;
        GS(place)(job, &taps, image, at, n, job->steps);
        GS_T *to = job->turned ? (GS_T *)buffer
                               : (GS_T *)job->out + (image * job->positions + at) * job->channels;
        GS(sums)(job, &taps, to, (const GS_T *)job->input + image * job->image, n);
        if (job->turned)
            TGC(tgc_transpose)(job->out + (image * job->channels * job->positions + at) * (int64_t)sizeof(GS_T),
                               job->positions * (int64_t)sizeof(GS_T), buffer, job->channels * (int64_t)sizeof(GS_T),
                               job->channels, n, sizeof(GS_T));
    }
    tgc_scratch_free(buffer);
}

static void GS(spread_task)(int64_t task, void *context)
{
    sampling *job = context;
    GS(taps) taps;
    const int64_t image = task / job->parts, first = task % job->parts * PART;
    const int64_t channels = job->channels - first < PART ? job->channels - first : PART;
    GS_T *to = (GS_T *)job->sums + image * job->area * job->channels + first;
    for (int64_t i = 0; i < job->area; i++)
        memset(to + i * job->channels, 0, (size_t)channels * sizeof(GS_T));
    for (int64_t at = 0; at < job->positions; at += RUN) {
        const int64_t n = job->positions - at < RUN ? job->positions - at : RUN;
        GS(place)(job, &taps, image, at, n, job->dense);
        GS(spread)(job, &taps, to, (const GS_T *)job->grad + (image * job->positions + at) * job->channels + first, n,
                   channels);
    }
}

static void GS(slopes_task)(int64_t task, void *context)
{
    sampling *job = context;
    GS(taps) taps;
    const int64_t image = task / job->pieces, first = task % job->pieces * job->piece;
    const int64_t end = first + job->piece < job->positions ? first + job->piece : job->positions;
    for (int64_t at = first, n; at < end; at += n) {
        n = end - at < RUN ? end - at : RUN;
        GS(place)(job, &taps, image, at, n, job->steps);
        GS(slopes)(job, &taps, (GS_T *)job->out + (image * job->positions + at) * job->dims,
                   (const GS_T *)job->input + image * job->image,
                   (const GS_T *)job->grad + (image * job->positions + at) * job->channels, n);
    }
}

#undef GS_LANES
#undef GS_T
#undef GS_WHOLE
#undef GS_FLOOR
#undef GS_ROUND
#undef GS_FMOD
#undef GS
