/* Regions of maps, for one type of numbers T: LANES channels at a time, NAME(x) names for T.
 *
 * A cell of a result is a weighted sum of cells of the map, and the weights are a product of one for
 * the row and one for the column. So each region has, in either direction, a span of weights for
 * each cell of the result. Maps are turned so that LANES channels of a cell lie side by side. */

typedef struct NAME(span) {
    int64_t start, count; /* cells of the map */
    T *weights;
} NAME(span);

/* One region: `height` spans of rows, then `width` spans of columns, and what they reach of the map. */
typedef struct NAME(region) {
    NAME(span) *rows, *columns;
    int64_t picture, top, bottom, left, right;
} NAME(region);

/* Weights of the samples of one cell, of bilinear interpolation; what lies outside counts as zero. */
static T *NAME(sampled)(NAME(span) *s, T start, T cell, int64_t samples, int64_t limit, T *weights)
{
    int64_t low = limit, high = -1;
    s->weights = weights;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < samples; i++) {
            T at = start + ((T)i + (T)0.5) * cell / (T)samples;
            if (!(at >= -1 && at <= (T)limit))
                continue;
            at = at <= 0 ? 0 : at;
            int64_t below = (int64_t)at;
            T part = at - (T)below;
            if (below >= limit - 1)
                below = limit - 1, part = 0;
            int64_t above = below + 1 < limit ? below + 1 : below;
            if (pass == 0) {
                low = below < low ? below : low;
                high = above > high ? above : high;
            } else {
                weights[below - low] += (1 - part) / (T)samples;
                weights[above - low] += part / (T)samples;
            }
        }
        s->start = low;
        s->count = high < low ? 0 : high - low + 1;
        if (s->count == 0)
            return weights;
        if (pass == 0)
            memset(weights, 0, (size_t)s->count * sizeof(T));
    }
    return weights + s->count;
}

/* The mean of whole cells. */
static T *NAME(averaged)(NAME(span) *s, int64_t begin, int64_t end, T *weights)
{
    s->start = begin;
    s->count = end > begin ? end - begin : 0;
    s->weights = weights;
    for (int64_t i = 0; i < s->count; i++)
        weights[i] = 1 / (T)s->count;
    return weights + s->count;
}

/* The spans of one direction of a box from `low` to `high`. Returns 0 where the box cannot be. */
static int NAME(direction)(const tv_regions *w, T low, T high, int64_t cells, int64_t limit, NAME(span) *spans,
                           T **weights, int64_t *begin, int64_t *end)
{
    T scale = (T)w->scale, shift = (T)(w->aligned ? 0.5 : 0.0);
    if (!isfinite(low) || !isfinite(high) || fabs((double)low * w->scale) > FARTHEST ||
        fabs((double)high * w->scale) > FARTHEST)
        return 0;
    *begin = limit, *end = 0;
    T start = low * scale - shift, length = high * scale - shift - start;
    int64_t first = (int64_t)round((double)(T)(low * scale)), whole = (int64_t)round((double)(T)(high * scale)) - first;
    if (!w->aligned)
        length = length > 1 ? length : 1;
    T size = w->kind == WHOLE_CELLS ? (T)(whole > 1 ? whole : 1) / (T)cells : length / (T)cells;
    int64_t samples = w->ratio > 0 ? w->ratio : (int64_t)ceil((double)size);
    for (int64_t i = 0; i < cells; i++) {
        if (w->kind == WHOLE_CELLS) {
            int64_t from = (int64_t)floor((double)((T)i * size)) + first;
            int64_t to = (int64_t)ceil((double)((T)(i + 1) * size)) + first;
            from = from < 0 ? 0 : from > limit - 1 ? limit - 1 : from;
            to = to < 0 ? 0 : to > limit - 1 ? limit - 1 : to;
            *weights = NAME(averaged)(&spans[i], from, to, *weights);
        } else
            *weights = NAME(sampled)(&spans[i], start + (T)i * size, size, samples, limit, *weights);
        if (spans[i].count > 0) {
            *begin = spans[i].start < *begin ? spans[i].start : *begin;
            *end = spans[i].start + spans[i].count > *end ? spans[i].start + spans[i].count : *end;
        }
    }
    return 1;
}

/* Spans of all regions, in memory that `free` gives back; NULL: an exception is set. */
static NAME(region) *NAME(prepare)(const tv_regions *w, const T *boxes)
{
    int64_t spans = w->height + w->width;
    /* Neighbours share at most two cells. */
    int64_t weights = w->rows + w->columns + 2 * spans;
    if (w->ratio > FARTHEST)
        return tv_fails("roi_align: sampling_ratio is above 2^24"), NULL;
    size_t bytes = (size_t)w->count * (sizeof(NAME(region)) + (size_t)spans * sizeof(NAME(span)) +
                                       (size_t)weights * sizeof(T));
    NAME(region) *found = malloc(bytes + 1);
    if (found == NULL)
        return tv_out_of_memory(), NULL;
    NAME(span) *span = (NAME(span) *)(found + w->count);
    T *weight = (T *)(span + w->count * spans);
    for (int64_t k = 0; k < w->count; k++, span += spans, weight += weights) {
        const T *box = boxes + 5 * k;
        NAME(region) *r = &found[k];
        T *free_weights = weight;
        r->rows = span;
        r->columns = span + w->height;
        r->picture = box[0] >= 0 && box[0] < (T)w->batch ? (int64_t)box[0] : -1;
        if (r->picture < 0) {
            tv_box_error(w->op, k, box[0], box[1], box[2], box[3], box[4], w->batch);
            free(found);
            return NULL;
        }
        if (!NAME(direction)(w, box[2], box[4], w->height, w->rows, r->rows, &free_weights, &r->top, &r->bottom) ||
            !NAME(direction)(w, box[1], box[3], w->width, w->columns, r->columns, &free_weights, &r->left, &r->right)) {
            tv_box_error(w->op, k, box[0], box[1], box[2], box[3], box[4], -1);
            free(found);
            return NULL;
        }
        if (r->bottom <= r->top || r->right <= r->left)
            r->top = r->bottom = r->left = r->right = 0;
    }
    return found;
}

/* A part of a map, turned: (rows, columns, lanes). */
typedef struct NAME(window) {
    T *cells;
    int64_t top, bottom, left, right, lanes;
} NAME(window);

/* Copy a part of `lanes` planes into a window (or, `back`, add the window to the planes). */
LEVELS static void NAME(turn)(const NAME(window) *to, T *planes, int64_t channels, int64_t rows, int64_t columns, int back)
{
    int64_t wide = to->right - to->left, lanes = to->lanes;
    for (int64_t y = to->top; y < to->bottom; y++) {
        T *row = to->cells + (y - to->top) * wide * lanes;
        for (int64_t x = 0; x < wide; x += TILE) {
            int64_t end = x + TILE < wide ? x + TILE : wide;
            for (int64_t c = 0; c < channels; c++) {
                T *plane = planes + (c * rows + y) * columns + to->left;
                if (back)
                    for (int64_t i = x; i < end; i++)
                        plane[i] += row[i * lanes + c];
                else
                    for (int64_t i = x; i < end; i++)
                        row[i * lanes + c] = plane[i];
            }
            for (int64_t c = channels; c < lanes && !back; c++)
                for (int64_t i = x; i < end; i++)
                    row[i * lanes + c] = 0;
        }
    }
}

/* Cells of the result of one region: sums of the window, or, `back`, what is added to it. `cells` is
 * (height * width, lanes). */
LEVELS static void NAME(weigh)(const tv_regions *w, const NAME(region) *r, const NAME(window) *from, T *cells, int back)
{
    int64_t wide = from->right - from->left, lanes = from->lanes;
    for (int64_t i = 0; i < w->height; i++)
        for (int64_t j = 0; j < w->width; j++, cells += lanes) {
            const NAME(span) *down = &r->rows[i], *across = &r->columns[j];
            for (int64_t l = 0; l < lanes; l += GROUP) {
                T sum[GROUP];
                T *restrict cell = cells + l;
                for (int v = 0; v < GROUP; v++)
                    sum[v] = back ? cell[v] : 0;
                for (int64_t y = 0; y < down->count; y++) {
                    T *restrict row =
                        from->cells + ((down->start + y - from->top) * wide + across->start - from->left) * lanes + l;
                    for (int64_t x = 0; x < across->count; x++) {
                        T weight = down->weights[y] * across->weights[x];
                        if (back)
                            for (int v = 0; v < GROUP; v++)
                                row[x * lanes + v] += weight * sum[v];
                        else
                            for (int v = 0; v < GROUP; v++)
                                sum[v] += weight * row[x * lanes + v];
                    }
                }
                if (!back)
                    memcpy(cell, sum, sizeof sum);
            }
        }
}

typedef struct NAME(work) {
    const tv_regions *w;
    const NAME(region) *regions;
    const int64_t *first, *order; /* regions by picture */
    T *maps, *results;
    int back, failed;
} NAME(work);

static int64_t NAME(area)(const NAME(region) *r) { return (r->bottom - r->top) * (r->right - r->left); }

/* Regions of one picture and LANES channels. */
static void NAME(block)(const NAME(work) *job, int64_t picture, int64_t channel, T *memory, T *cells)
{
    const tv_regions *w = job->w;
    int64_t channels = w->channels - channel < LANES ? w->channels - channel : LANES;
    int64_t begin = job->first[picture], end = job->first[picture + 1], bins = w->height * w->width, parts = 0;
    NAME(window) all = {memory, w->rows, 0, w->columns, 0, (channels + GROUP - 1) / GROUP * GROUP};
    for (int64_t n = begin; n < end; n++) {
        const NAME(region) *r = &job->regions[job->order[n]];
        if (NAME(area)(r) == 0)
            continue;
        parts += NAME(area)(r);
        all.top = r->top < all.top ? r->top : all.top;
        all.bottom = r->bottom > all.bottom ? r->bottom : all.bottom;
        all.left = r->left < all.left ? r->left : all.left;
        all.right = r->right > all.right ? r->right : all.right;
    }
    T *planes = job->maps + (picture * w->channels + channel) * w->rows * w->columns;
    int each = parts < (all.bottom - all.top) * (all.right - all.left);
    size_t size = (size_t)((all.bottom - all.top) * (all.right - all.left) * all.lanes) * sizeof(T);
    if (parts > 0 && !each) {
        if (job->back)
            memset(memory, 0, size);
        else
            NAME(turn)(&all, planes, channels, w->rows, w->columns, 0);
    }
    for (int64_t n = begin; n < end; n++) {
        int64_t k = job->order[n];
        const NAME(region) *r = &job->regions[k];
        NAME(window) part = {memory, r->top, r->bottom, r->left, r->right, all.lanes};
        const NAME(window) *window = each ? &part : &all;
        T *result = job->results + (k * w->channels + channel) * bins;
        if (parts == 0 || NAME(area)(r) == 0) {
            if (!job->back)
                memset(result, 0, (size_t)(channels * bins) * sizeof(T));
            continue;
        }
        if (job->back) {
            for (int64_t c = 0; c < all.lanes; c++)
                for (int64_t b = 0; b < bins; b++)
                    cells[b * all.lanes + c] = c < channels ? result[c * bins + b] : 0;
            if (each)
                memset(memory, 0, (size_t)(NAME(area)(r) * all.lanes) * sizeof(T));
            NAME(weigh)(w, r, window, cells, 1);
            if (each)
                NAME(turn)(window, planes, channels, w->rows, w->columns, 1);
        } else {
            if (each)
                NAME(turn)(window, planes, channels, w->rows, w->columns, 0);
            NAME(weigh)(w, r, window, cells, 0);
            for (int64_t c = 0; c < channels; c++)
                for (int64_t b = 0; b < bins; b++)
                    result[c * bins + b] = cells[b * all.lanes + c];
        }
    }
    if (job->back && parts > 0 && !each)
        NAME(turn)(&all, planes, channels, w->rows, w->columns, 1);
}

static void NAME(blocks)(int64_t begin, int64_t end, void *context)
{
    NAME(work) *job = context;
    const tv_regions *w = job->w;
    int64_t blocks = (w->channels + LANES - 1) / LANES;
    size_t bytes = (size_t)((w->rows * w->columns + w->height * w->width) * LANES) * sizeof(T);
    tg_scratch scratch;
    if (tv_api->scratch(tv_host(), bytes + 64, 0, &scratch) < 0) {
        job->failed = 1;
        return;
    }
    T *memory = scratch.data, *cells = memory + w->rows * w->columns * LANES;
    for (int64_t task = begin; task < end; task++)
        if (job->first[task / blocks] < job->first[task / blocks + 1])
            NAME(block)(job, task / blocks, task % blocks * LANES, memory, cells);
    tv_api->release_scratch(&scratch);
}

/* Each cell of a result reads a channel of its own (position-sensitive), one after the other. */
static void NAME(sensitive)(int64_t begin, int64_t end, void *context)
{
    const NAME(work) *job = context;
    const tv_regions *w = job->w;
    int64_t bins = w->height * w->width, out = w->channels / bins;
    for (int64_t channel = begin; channel < end; channel++)
        for (int64_t k = 0; k < w->count; k++) {
            const NAME(region) *r = &job->regions[k];
            for (int64_t bin = 0; bin < bins; bin++) {
                const NAME(span) *down = &r->rows[bin / w->width], *across = &r->columns[bin % w->width];
                T *result = job->results + (k * out + channel) * bins + bin, sum = 0;
                T *plane = job->maps + (r->picture * w->channels + channel * bins + bin) * w->rows * w->columns;
                for (int64_t y = 0; y < down->count; y++) {
                    T *row = plane + (down->start + y) * w->columns + across->start, part = 0;
                    for (int64_t x = 0; x < across->count; x++)
                        if (job->back)
                            row[x] += *result * down->weights[y] * across->weights[x];
                        else
                            part += across->weights[x] * row[x];
                    sum += down->weights[y] * part;
                }
                if (!job->back)
                    *result = sum;
            }
        }
}

static int NAME(run)(const tv_regions *w, T *maps, const T *boxes, T *results, int back)
{
    NAME(region) *regions = NAME(prepare)(w, boxes);
    if (regions == NULL)
        return -1;
    int64_t *order = malloc((size_t)(w->count + w->batch + 1) * sizeof *order + 1);
    if (order == NULL) {
        free(regions);
        return tv_out_of_memory();
    }
    int64_t *first = order + w->count;
    memset(first, 0, (size_t)(w->batch + 1) * sizeof *first);
    for (int64_t k = 0; k < w->count; k++)
        first[regions[k].picture + 1]++;
    for (int64_t n = 0; n < w->batch; n++)
        first[n + 1] += first[n];
    for (int64_t k = w->count; k-- > 0;) /* from the end, so that the order stays and `first` is found again */
        order[--first[regions[k].picture + 1]] = k;
    for (int64_t n = 0; n < w->batch; n++)
        first[n] = first[n + 1];
    first[w->batch] = w->count;
    NAME(work) job = {w, regions, first, order, maps, results, back, 0};
    if (back)
        memset(maps, 0, (size_t)(w->batch * w->channels * w->rows * w->columns) * sizeof(T));
    if (w->sensitive)
        tv_api->parallel_for(0, w->channels / (w->height * w->width), 1, NAME(sensitive), &job);
    else
        tv_api->parallel_for(0, w->batch * ((w->channels + LANES - 1) / LANES), 1, NAME(blocks), &job);
    free(order);
    free(regions);
    return job.failed ? -1 : 0;
}

/* Where parts of a region begin and end, clipped to the map: pairs. */
static void NAME(cut)(int64_t first, int64_t length, int64_t parts, int64_t limit, int64_t *ends)
{
    T step = (T)(length > 1 ? length : 1) / (T)parts;
    for (int64_t i = 0; i < parts; i++) {
        int64_t begin = (int64_t)floor((double)((T)i * step)) + first;
        int64_t end = (int64_t)ceil((double)((T)(i + 1) * step)) + first;
        ends[2 * i] = begin < 0 ? 0 : begin > limit ? limit : begin;
        ends[2 * i + 1] = end < 0 ? 0 : end > limit ? limit : end;
    }
}

typedef struct NAME(pooling) {
    const tv_regions *w;
    const T *maps, *boxes;
    T *results;
    int32_t *places;
    int failed;
} NAME(pooling);

/* The maximum of the whole cells that lie in each part of a region, and where it is. */
static void NAME(pool_some)(int64_t begin, int64_t end, void *context)
{
    NAME(pooling) *job = context;
    const tv_regions *w = job->w;
    int64_t cells = w->channels * w->height * w->width, *ys = malloc((size_t)(w->height + w->width) * 2 * sizeof *ys);
    if (ys == NULL) {
        job->failed = 1;
        return;
    }
    int64_t *xs = ys + 2 * w->height;
    for (int64_t k = begin; k < end; k++) {
        const T *box = job->boxes + 5 * k;
        int64_t ends[4];
        for (int i = 0; i < 4; i++)
            ends[i] = (int64_t)round((double)(T)(box[1 + i] * (T)w->scale));
        NAME(cut)(ends[1], ends[3] - ends[1] + 1, w->height, w->rows, ys);
        NAME(cut)(ends[0], ends[2] - ends[0] + 1, w->width, w->columns, xs);
        const T *plane = job->maps + (int64_t)box[0] * w->channels * w->rows * w->columns;
        T *result = job->results + k * cells;
        int32_t *place = job->places + k * cells;
        for (int64_t c = 0; c < w->channels; c++, plane += w->rows * w->columns)
            for (int64_t i = 0; i < w->height; i++)
                for (int64_t j = 0; j < w->width; j++) {
                    int empty = ys[2 * i + 1] <= ys[2 * i] || xs[2 * j + 1] <= xs[2 * j];
                    T most = empty ? 0 : (T)-INFINITY;
                    int64_t at = -1;
                    for (int64_t y = ys[2 * i]; y < ys[2 * i + 1]; y++) {
                        const T *row = plane + y * w->columns;
                        for (int64_t x = xs[2 * j]; x < xs[2 * j + 1]; x++) {
                            int more = row[x] > most;
                            most = more ? row[x] : most;
                            at = more ? y * w->columns + x : at;
                        }
                    }
                    *result++ = most;
                    *place++ = (int32_t)at;
                }
    }
    free(ys);
}

static int NAME(pool)(const tv_regions *w, const T *maps, const T *boxes, T *results, int32_t *places)
{
    for (int64_t k = 0; k < w->count; k++) {
        const T *box = boxes + 5 * k;
        if (!(box[0] >= 0 && box[0] < (T)w->batch))
            return tv_box_error(w->op, k, box[0], box[1], box[2], box[3], box[4], w->batch);
        for (int i = 1; i < 5; i++)
            if (!(fabs((double)(T)(box[i] * (T)w->scale)) <= FARTHEST))
                return tv_box_error(w->op, k, box[0], box[1], box[2], box[3], box[4], -1);
    }
    NAME(pooling) job = {w, maps, boxes, results, places, 0};
    tv_api->parallel_for(0, w->count, 8, NAME(pool_some), &job);
    return job.failed ? tv_out_of_memory() : 0;
}

#undef T
#undef NAME
#undef LANES
