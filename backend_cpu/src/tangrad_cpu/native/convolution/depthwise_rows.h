/* Rows of results of one type. A template: define DW_T, DW_LANES and DW(name), and include. */

/* The taps of one dimension that lie inside of `size` elements, for a window that starts at `at`. */
static void DW(inside)(int64_t at, int64_t size, int64_t taps, int64_t dilation, int64_t *first, int64_t *end)
{
    *first = at < 0 ? (-at + dilation - 1) / dilation : 0;
    *end = at >= size ? 0 : (size - at + dilation - 1) / dilation;
    if (*end > taps)
        *end = taps;
}

/* Taps [y, y_end) x [x, x_end); `origin`: of the window's first tap, which may lie outside. */
static inline __attribute__((always_inline)) void DW(window)(const depthwise *j, DW_T *restrict to, int64_t origin,
                                                             int64_t c, int64_t y, int64_t y_end, int64_t x,
                                                             int64_t x_end, int64_t lanes)
{
    DW_T sums[DW_LANES];
    int64_t down = j->dilation[0] * j->width * j->channels, across = j->dilation[1] * j->channels;
    for (int64_t l = 0; l < lanes; l++)
        sums[l] = 0;
#pragma GCC unroll 3
    for (int64_t ky = y; ky < y_end; ky++)
#pragma GCC unroll 3
        for (int64_t kx = x; kx < x_end; kx++) {
            const DW_T *restrict element = (const DW_T *)j->input + (origin + ky * down + kx * across + c);
            const DW_T *restrict weight = (const DW_T *)j->weight + ((ky * j->kernel[1] + kx) * j->channels + c);
            for (int64_t l = 0; l < lanes; l++)
                sums[l] += element[l] * weight[l];
        }
    for (int64_t l = 0; l < lanes; l++)
        to[c + l] = sums[l];
}

/* A window, the channels in blocks; inlined with constants for the usual one. */
static inline __attribute__((always_inline)) void DW(pixel)(const depthwise *j, DW_T *restrict to, int64_t origin,
                                                            int64_t y, int64_t y_end, int64_t x, int64_t x_end)
{
    int64_t c = 0;
    for (; c + DW_LANES <= j->channels; c += DW_LANES)
        DW(window)(j, to, origin, c, y, y_end, x, x_end, DW_LANES);
    if (c + DW_LANES / 2 <= j->channels) {
        DW(window)(j, to, origin, c, y, y_end, x, x_end, DW_LANES / 2);
        c += DW_LANES / 2;
    }
    if (c + DW_LANES / 4 <= j->channels) {
        DW(window)(j, to, origin, c, y, y_end, x, x_end, DW_LANES / 4);
        c += DW_LANES / 4;
    }
    if (c + DW_LANES / 8 <= j->channels) {
        DW(window)(j, to, origin, c, y, y_end, x, x_end, DW_LANES / 8);
        c += DW_LANES / 8;
    }
    if (c < j->channels)
        DW(window)(j, to, origin, c, y, y_end, x, x_end, j->channels - c);
}

static void DW(rows)(int64_t task, void *context)
{
    const depthwise *j = context;
    int64_t all = j->images * j->out_height, end = tgc_begin(all, j->tasks, task + 1, 1);
    for (int64_t row = tgc_begin(all, j->tasks, task, 1); row < end; row++) {
        int64_t image = row / j->out_height, top = row % j->out_height * j->stride[0] - j->padding[0], y, y_end;
        int64_t line = (image * j->height + top) * j->width;
        DW_T *to = (DW_T *)j->out + row * j->out_width * j->channels;
        DW(inside)(top, j->height, j->kernel[0], j->dilation[0], &y, &y_end);
        int usual = y == 0 && y_end == 3 && j->kernel[1] == 3;
        for (int64_t column = 0; column < j->out_width; column++, to += j->channels) {
            int64_t left = column * j->stride[1] - j->padding[1], origin = (line + left) * j->channels, x, x_end;
            DW(inside)(left, j->width, j->kernel[1], j->dilation[1], &x, &x_end);
            if (usual && x == 0 && x_end == 3)
                DW(pixel)(j, to, origin, 0, 3, 0, 3);
            else
                DW(pixel)(j, to, origin, y, y_end, x, x_end);
        }
    }
}

#undef DW_T
#undef DW_LANES
#undef DW
