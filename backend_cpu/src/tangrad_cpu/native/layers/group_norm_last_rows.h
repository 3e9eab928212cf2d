/* Columns of group normalization with channels last, in one type. A template: define GN_T, GN_V
 * (a vector of 64 bytes) and GN(name), and include. */

#define GN_LANES ((int64_t)(sizeof(GN_V) / sizeof(GN_T)))

static inline __attribute__((always_inline)) GN_V GN(read)(const GN_T *at)
{
    GN_V x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* What is added up of each element; `center` and `scale` are of columns. */
#define GN_TERM(X, G, CENTER, SCALE)                                                                  \
    (kind == OF_X ? (X)                                                                              \
     : kind == OF_SQUARES ? ((X) - (CENTER)) * ((X) - (CENTER))                                      \
     : kind == OF_G ? (G)                                                                            \
                    : (G) * (((X) - (CENTER)) * (SCALE)))

/* Sums of columns in the elements' own type, at most BLOCK_ROWS elements each, then in double. */
static inline __attribute__((always_inline)) void GN(add_columns)(const GN_T *x, const GN_T *g, const GN_T *center,
                                                                  const GN_T *scale, int64_t rows, int64_t width,
                                                                  double *sums, int kind)
{
    enum { AT_ONCE = 4 };
    memset(sums, 0, (size_t)width * sizeof *sums);
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS) {
        const int64_t end = rows - first < BLOCK_ROWS ? rows : first + BLOCK_ROWS;
        int64_t c = 0;
        for (; c + AT_ONCE * GN_LANES <= width; c += AT_ONCE * GN_LANES) {
            GN_V total[AT_ONCE] = {{0}}, middle[AT_ONCE] = {{0}}, factor[AT_ONCE] = {{0}};
            GN_T parts[AT_ONCE * (sizeof(GN_V) / sizeof(GN_T))];
            for (int q = 0; q < AT_ONCE && kind != OF_X && kind != OF_G; q++)
                middle[q] = GN(read)(center + c + q * GN_LANES);
            for (int q = 0; q < AT_ONCE && kind == OF_PRODUCTS; q++)
                factor[q] = GN(read)(scale + c + q * GN_LANES);
            for (int64_t i = first; i < end; i++) {
                const int64_t at = i * width + c;
#pragma GCC unroll 4
                for (int q = 0; q < AT_ONCE; q++)
                    total[q] += GN_TERM(GN(read)(x + at + q * GN_LANES), GN(read)(g + at + q * GN_LANES), middle[q],
                                        factor[q]);
            }
            memcpy(parts, total, sizeof parts);
            for (int64_t l = 0; l < AT_ONCE * GN_LANES; l++)
                sums[c + l] += parts[l];
        }
        for (; c + GN_LANES <= width; c += GN_LANES) {
            GN_V total = {0}, middle = {0}, factor = {0};
            GN_T parts[sizeof(GN_V) / sizeof(GN_T)];
            if (kind != OF_X && kind != OF_G)
                middle = GN(read)(center + c);
            if (kind == OF_PRODUCTS)
                factor = GN(read)(scale + c);
            for (int64_t i = first; i < end; i++)
                total += GN_TERM(GN(read)(x + i * width + c), GN(read)(g + i * width + c), middle, factor);
            memcpy(parts, &total, sizeof parts);
            for (int64_t l = 0; l < GN_LANES; l++)
                sums[c + l] += parts[l];
        }
        for (; c < width; c++) {
            const GN_T middle = kind != OF_X && kind != OF_G ? center[c] : 0;
            const GN_T factor = kind == OF_PRODUCTS ? scale[c] : 0;
            GN_T total = 0;
            for (int64_t i = first; i < end; i++)
                total += GN_TERM(x[i * width + c], g[i * width + c], middle, factor);
            sums[c] += total;
        }
    }
}

/* Columns stand for channels again and again: what they add up to of each, and of places past the last row. */
static inline __attribute__((always_inline)) void GN(of_channels)(const last_job *j, const GN_T *x, const GN_T *g,
                                                                  const GN_T *center, const GN_T *scale,
                                                                  int64_t places, double *columns, double *channels,
                                                                  int kind)
{
    const int64_t rows = places * j->channels / j->width;
    GN(add_columns)(x, g, center, scale, rows, j->width, columns, kind);
    for (int64_t c = 0; c < j->channels; c++)
        channels[c] = columns[c];
    for (int64_t c = j->channels; c < j->width; c++)
        channels[c % j->channels] += columns[c];
    for (int64_t at = rows * j->width; at < places * j->channels; at++) {
        const int64_t c = at % j->channels;
        const GN_T middle = kind != OF_X && kind != OF_G ? center[c] : 0, factor = kind == OF_PRODUCTS ? scale[c] : 0;
        channels[c] += GN_TERM(x[at], g[at], middle, factor);
    }
}

/* Mean and sum of squared deviations of each group in a piece of a sample. */
static void GN(moments_last)(int64_t task, void *context)
{
    const last_job *j = context;
    const int64_t sample = task / j->pieces, piece = task % j->pieces;
    const int64_t first = tgc_begin(j->area, j->pieces, piece, 1);
    const int64_t places = tgc_begin(j->area, j->pieces, piece + 1, 1) - first;
    const GN_T *x = (const GN_T *)j->x + (sample * j->area + first) * j->channels;
    double *columns = j->sums + task * (j->width + j->channels), *channels = columns + j->width;
    GN_T *center = (GN_T *)j->centers + task * j->width;
    double *moments = j->moments + task * 2 * j->groups;
    const double count = (double)(places * j->inside);
    GN(of_channels)(j, x, x, NULL, NULL, places, columns, channels, OF_X);
    for (int64_t k = 0; k < j->groups; k++) {
        double sum = 0;
        for (int64_t c = k * j->inside; c < (k + 1) * j->inside; c++)
            sum += channels[c];
        moments[2 * k] = sum / count;
    }
    for (int64_t c = 0; c < j->width; c++)
        center[c] = (GN_T)moments[c % j->channels / j->inside * 2];
    GN(of_channels)(j, x, x, center, NULL, places, columns, channels, OF_SQUARES);
    for (int64_t k = 0; k < j->groups; k++) {
        double squares = 0;
        const double off = moments[2 * k] - (double)center[k * j->inside];
        for (int64_t c = k * j->inside; c < (k + 1) * j->inside; c++)
            squares += channels[c];
        squares -= off * off * count;
        moments[2 * k + 1] = squares > 0 || squares != squares ? squares : 0;
    }
}

/* Put the pieces of a sample together (Chan, Golub, LeVeque), and write what a column is shifted and scaled by. */
static void GN(settle_last)(const last_job *j, int64_t sample)
{
    const GN_T *weight = j->weight, *bias = j->bias;
    GN_T *table = (GN_T *)j->tables + sample * 3 * j->width;
    for (int64_t k = 0; k < j->groups; k++) {
        double mean = 0, squares = 0, count = 0;
        for (int64_t p = 0; p < j->pieces; p++) {
            const double *moments = j->moments + ((sample * j->pieces + p) * j->groups + k) * 2;
            const int64_t places = tgc_begin(j->area, j->pieces, p + 1, 1) - tgc_begin(j->area, j->pieces, p, 1);
            const double n = (double)(places * j->inside), apart = moments[0] - mean, total = count + n;
            mean += apart * (n / total);
            squares += moments[1] + apart * apart * (count * n / total);
            count = total;
        }
        ((GN_T *)j->mean)[sample * j->groups + k] = (GN_T)mean;
        ((GN_T *)j->rstd)[sample * j->groups + k] = (GN_T)(1 / sqrt(squares / count + j->eps));
    }
    for (int64_t c = 0; c < j->width; c++) {
        const int64_t channel = c % j->channels, row = sample * j->groups + channel / j->inside;
        table[c] = ((const GN_T *)j->mean)[row];
        table[j->width + c] = ((const GN_T *)j->rstd)[row] * (weight != NULL ? weight[channel] : 1);
        table[2 * j->width + c] = bias != NULL ? bias[channel] : 0;
    }
}

static void GN(write_last)(int64_t task, void *context)
{
    const last_job *j = context;
    const int64_t sample = task / j->pieces, piece = task % j->pieces, n = j->channels;
    const int64_t first = tgc_begin(j->area, j->pieces, piece, 1), end = tgc_begin(j->area, j->pieces, piece + 1, 1);
    const GN_T *x = (const GN_T *)j->x + (sample * j->area + first) * n;
    const GN_T *m = (const GN_T *)j->tables + sample * 3 * j->width;
    const GN_T *scale = m + j->width, *shift = scale + j->width;
    GN_T *restrict out = (GN_T *)j->out + (sample * j->area + first) * n;
    for (int64_t left = (end - first) * n; left > 0; left -= j->width, x += j->width, out += j->width) {
        const int64_t width = left < j->width ? left : j->width;
        for (int64_t c = 0; c < width; c++)
            out[c] = (x[c] - m[c]) * scale[c] + shift[c];
    }
}

/* Sums of g and of g x^ of each channel in a piece of a sample. */
static void GN(sums_last)(int64_t task, void *context)
{
    const last_job *j = context;
    const int64_t sample = task / j->pieces, piece = task % j->pieces;
    const int64_t first = tgc_begin(j->area, j->pieces, piece, 1);
    const int64_t places = tgc_begin(j->area, j->pieces, piece + 1, 1) - first;
    const int64_t at = (sample * j->area + first) * j->channels;
    const GN_T *x = (const GN_T *)j->x + at, *g = (const GN_T *)j->g + at;
    const GN_T *table = (const GN_T *)j->tables + sample * 5 * j->width;
    double *columns = j->sums + task * (j->width + 2 * j->channels), *channels = columns + j->width;
    GN(of_channels)(j, x, g, NULL, NULL, places, columns, channels, OF_G);
    GN(of_channels)(j, x, g, table, table + j->width, places, columns, channels + j->channels, OF_PRODUCTS);
}

/* Mean and scale of columns, before the sums are known. */
static void GN(center_last)(const last_job *j, int64_t sample)
{
    GN_T *table = (GN_T *)j->tables + sample * 5 * j->width;
    for (int64_t c = 0; c < j->width; c++) {
        const int64_t row = sample * j->groups + c % j->channels / j->inside;
        table[c] = ((const GN_T *)j->mean)[row];
        table[j->width + c] = ((const GN_T *)j->rstd)[row];
    }
}

static void GN(slopes_last)(const last_job *j, int64_t sample)
{
    const double n = (double)(j->area * j->inside);
    const GN_T *weight = j->weight;
    GN_T *table = (GN_T *)j->tables + sample * 5 * j->width;
    for (int64_t c = 0; c < j->channels; c++) {
        double by_bias = 0, by_weight = 0;
        for (int64_t p = 0; p < j->pieces; p++) {
            const double *sums = j->sums + (sample * j->pieces + p) * (j->width + 2 * j->channels) + j->width;
            by_bias += sums[c];
            by_weight += sums[j->channels + c];
        }
        j->by_bias[sample * j->channels + c] = by_bias;
        j->by_weight[sample * j->channels + c] = by_weight;
    }
    for (int64_t k = 0; k < j->groups; k++) {
        double first = 0, second = 0;
        for (int64_t c = k * j->inside; c < (k + 1) * j->inside; c++) {
            const double scale = weight != NULL ? (double)weight[c] : 1;
            first += scale * j->by_bias[sample * j->channels + c];
            second += scale * j->by_weight[sample * j->channels + c];
        }
        for (int64_t c = k * j->inside; c < (k + 1) * j->inside; c++) {
            table[2 * j->width + c] = weight != NULL ? weight[c] : 1;
            table[3 * j->width + c] = (GN_T)(first / n);
            table[4 * j->width + c] = (GN_T)(second / n);
        }
    }
    for (int64_t t = 2; t < 5; t++)
        for (int64_t c = j->channels; c < j->width; c++)
            table[t * j->width + c] = table[t * j->width + c - j->channels];
}

static void GN(write_slopes_last)(int64_t task, void *context)
{
    const last_job *j = context;
    const int64_t sample = task / j->pieces, piece = task % j->pieces, n = j->channels;
    const int64_t first = tgc_begin(j->area, j->pieces, piece, 1), end = tgc_begin(j->area, j->pieces, piece + 1, 1);
    const int64_t at = (sample * j->area + first) * n;
    const GN_T *x = (const GN_T *)j->x + at, *g = (const GN_T *)j->g + at;
    const GN_T *m = (const GN_T *)j->tables + sample * 5 * j->width, *r = m + j->width, *scale = r + j->width;
    const GN_T *shift = scale + j->width, *slope = shift + j->width;
    GN_T *restrict out = (GN_T *)j->out + at;
    for (int64_t left = (end - first) * n; left > 0; left -= j->width, x += j->width, g += j->width, out += j->width) {
        const int64_t width = left < j->width ? left : j->width;
        for (int64_t c = 0; c < width; c++)
            out[c] = r[c] * (scale[c] * g[c] - shift[c] - (x[c] - m[c]) * r[c] * slope[c]);
    }
}

#undef GN_LANES
#undef GN_T
#undef GN_TERM
#undef GN_V
#undef GN
