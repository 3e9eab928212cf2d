/* Windows of a map whose cells are moved by offsets, for one type of numbers T.
 *
 * Where a cell of a window lies is the same for all channels of a group, so places and weights are
 * computed once for CHUNK positions of the result and used by every channel. */

/* Four corners of each place, clockwise from the top left; a corner outside has weight zero. */
typedef struct NAME(places) {
    int32_t at[4][CHUNK];
    T weight[4][CHUNK];
    T inside[4][CHUNK], high[CHUNK], wide[CHUNK]; /* for derivatives by the place */
} NAME(places);

static void NAME(find)(const tv_deform *w, const T *down, const T *across, int64_t tap, int64_t begin, int64_t count,
                       NAME(places) *p)
{
    int64_t ky = tap / w->window[1], kx = tap % w->window[1];
    for (int64_t n = 0; n < count; n++) {
        int64_t position = begin + n;
        T y = (T)(position / w->out[1] * w->stride[0] - w->pad[0] + ky * w->dilation[0]) + down[position];
        T x = (T)(position % w->out[1] * w->stride[1] - w->pad[1] + kx * w->dilation[1]) + across[position];
        int on = y > -1 && y < (T)w->rows && x > -1 && x < (T)w->columns;
        int64_t top = on ? (int64_t)floor((double)y) : 0, left = on ? (int64_t)floor((double)x) : 0;
        T high = on ? y - (T)top : 0, wide = on ? x - (T)left : 0;
        T weights[4] = {(1 - high) * (1 - wide), (1 - high) * wide, high * (1 - wide), high * wide};
        for (int c = 0; c < 4; c++) {
            int64_t row = top + c / 2, column = left + c % 2;
            int there = on && row >= 0 && row < w->rows && column >= 0 && column < w->columns;
            p->at[c][n] = there ? (int32_t)(row * w->columns + column) : 0;
            p->weight[c][n] = there ? weights[c] : 0;
            p->inside[c][n] = (T)there;
        }
        p->high[n] = high;
        p->wide[n] = wide;
    }
}

LEVELS static void NAME(gather)(const NAME(places) *p, const T *restrict plane, const T *restrict mask, T *restrict to,
                                int64_t count)
{
    for (int64_t n = 0; n < count; n++)
        to[n] = p->weight[0][n] * plane[p->at[0][n]] + p->weight[1][n] * plane[p->at[1][n]] +
                p->weight[2][n] * plane[p->at[2][n]] + p->weight[3][n] * plane[p->at[3][n]];
    if (mask != NULL)
        for (int64_t n = 0; n < count; n++)
            to[n] *= mask[n];
}

static void NAME(columns)(int64_t begin, int64_t end, void *context)
{
    const tv_deform *w = context;
    int64_t positions = w->out[0] * w->out[1], taps = w->window[0] * w->window[1], each = w->channels / w->groups;
    NAME(places) *p = malloc(sizeof *p);
    if (p == NULL) {
        ((tv_deform *)context)->failed = 1;
        return;
    }
    for (int64_t task = begin; task < end; task++) {
        int64_t tap = task % taps, block = task / taps; /* block: picture and group */
        const T *down = (const T *)w->offset + (block * taps + tap) * 2 * positions, *across = down + positions;
        const T *mask = w->mask == NULL ? NULL : (const T *)w->mask + (block * taps + tap) * positions;
        for (int64_t at = 0; at < positions; at += CHUNK) {
            int64_t count = positions - at < CHUNK ? positions - at : CHUNK;
            NAME(find)(w, down, across, tap, at, count, p);
            for (int64_t c = block * each; c < (block + 1) * each; c++)
                NAME(gather)(p, (const T *)w->map + c * w->rows * w->columns, mask == NULL ? NULL : mask + at,
                             (T *)w->result + (c * taps + tap) * positions + at, count);
        }
    }
    free(p);
}

/* What one channel adds to the derivatives by rows, columns and the mask. */
LEVELS static void NAME(slopes)(const NAME(places) *p, const T *restrict plane, const T *restrict given,
                                const T *restrict mask, T *restrict down, T *restrict across, T *restrict shown,
                                int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        T a = plane[p->at[0][n]] * p->inside[0][n], b = plane[p->at[1][n]] * p->inside[1][n];
        T c = plane[p->at[2][n]] * p->inside[2][n], d = plane[p->at[3][n]] * p->inside[3][n];
        T high = p->high[n], wide = p->wide[n], g = given[n], by = mask == NULL ? g : g * mask[n];
        down[n] += by * ((c - a) * (1 - wide) + (d - b) * wide);
        across[n] += by * ((b - a) * (1 - high) + (d - c) * high);
        if (shown != NULL)
            shown[n] += g * ((a * (1 - wide) + b * wide) * (1 - high) + (c * (1 - wide) + d * wide) * high);
    }
}

static void NAME(gradients)(int64_t begin, int64_t end, void *context)
{
    const tv_deform *w = context;
    int64_t positions = w->out[0] * w->out[1], taps = w->window[0] * w->window[1], each = w->channels / w->groups;
    int64_t cells = w->rows * w->columns;
    NAME(places) *p = malloc(sizeof *p);
    if (p == NULL) {
        ((tv_deform *)context)->failed = 1;
        return;
    }
    for (int64_t block = begin; block < end; block++) {
        memset((T *)w->map_gradient + block * each * cells, 0, (size_t)(each * cells) * sizeof(T));
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t row = (block * taps + tap) * 2 * positions;
            const T *down = (const T *)w->offset + row, *across = down + positions;
            T *by_down = (T *)w->offset_gradient + row, *by_across = by_down + positions;
            const T *mask = w->mask == NULL ? NULL : (const T *)w->mask + row / 2;
            T *by_mask = w->mask == NULL ? NULL : (T *)w->mask_gradient + row / 2;
            memset(by_down, 0, (size_t)(2 * positions) * sizeof(T));
            if (by_mask != NULL)
                memset(by_mask, 0, (size_t)positions * sizeof(T));
            for (int64_t at = 0; at < positions; at += CHUNK) {
                int64_t count = positions - at < CHUNK ? positions - at : CHUNK;
                NAME(find)(w, down, across, tap, at, count, p);
                for (int64_t c = block * each; c < (block + 1) * each; c++) {
                    const T *given = (const T *)w->gradient + (c * taps + tap) * positions + at;
                    T *to = (T *)w->map_gradient + c * cells;
                    NAME(slopes)(p, (const T *)w->map + c * cells, given, mask == NULL ? NULL : mask + at, by_down + at,
                                 by_across + at, by_mask == NULL ? NULL : by_mask + at, count);
                    for (int64_t n = 0; n < count; n++) {
                        T g = mask == NULL ? given[n] : given[n] * mask[at + n];
                        for (int corner = 0; corner < 4; corner++)
                            to[p->at[corner][n]] += g * p->weight[corner][n];
                    }
                }
            }
        }
    }
    free(p);
}

#undef T
#undef NAME
