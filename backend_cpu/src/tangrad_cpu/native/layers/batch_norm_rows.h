/* Moments, normalization and its gradient over packed runs of numbers of one type, BN_T; BN(name).
 *
 * A run belongs to one channel, or is a row of all channels ("lanes": a number per channel). Sums
 * pass through float64 after BLOCK elements, or BLOCK rows. */

#define BN_SUM(total, n, VALUE) TGC_ROW_SUM(BN_T, LANES, BLOCK, total, n, VALUE)

/* Join the moments of a run in the first-level cache to those before it. */
static void BN(moments)(const BN_T *x, int64_t n, moments *m)
{
    double sum = 0, squares = 0;
    BN_SUM(sum, n, x[at])
    const double mean = sum / (double)n;
    const BN_T middle = (BN_T)mean;
    BN_SUM(squares, n, (x[at] - middle) * (x[at] - middle))
    join(m, mean, squares, n);
}

static void BN(normalize)(const BN_T *x, BN_T *restrict out, int64_t n, double mean, double scale, double shift)
{
    const BN_T m = (BN_T)mean, a = (BN_T)scale, b = (BN_T)shift;
    for (int64_t i = 0; i < n; i++)
        out[i] = (x[i] - m) * a + b;
}

/* Add the sums of g and of g (x - mean). */
static void BN(products)(const BN_T *g, const BN_T *x, int64_t n, double mean, double *first, double *second)
{
    const BN_T m = (BN_T)mean;
    BN_T plain[LANES] = {0}, moved[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            plain[k] += g[i + k];
            moved[k] += g[i + k] * (x[i + k] - m);
        }
    for (int k = 0; i + k < n; k++) {
        plain[k] += g[i + k];
        moved[k] += g[i + k] * (x[i + k] - m);
    }
    double sums[2] = {0};
    for (int k = 0; k < LANES; k++) {
        sums[0] += (double)plain[k];
        sums[1] += (double)moved[k];
    }
    *first += sums[0];
    *second += sums[1];
}

static void BN(gradient)(const BN_T *g, const BN_T *x, BN_T *restrict out, int64_t n, double mean, const affine *k)
{
    const BN_T m = (BN_T)mean, a = (BN_T)k->scale, b = (BN_T)k->slope, c = (BN_T)k->shift;
    for (int64_t i = 0; i < n; i++)
        out[i] = a * (g[i] - c - (x[i] - m) * b);
}

/* Moments per lane of `rows` rows, joined to those before them. `work` holds 2 * lanes numbers. */
static void BN(lane_moments)(const BN_T *x, int64_t rows, int64_t lanes, double *mean, double *squares, int64_t before,
                             BN_T *restrict work)
{
    BN_T *restrict middle = work, *restrict spread = work + lanes;
    memset(work, 0, (size_t)(2 * lanes) * sizeof(BN_T));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < lanes; k++)
            middle[k] += x[r * lanes + k];
    for (int64_t k = 0; k < lanes; k++)
        middle[k] /= (BN_T)rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < lanes; k++)
            spread[k] += (x[r * lanes + k] - middle[k]) * (x[r * lanes + k] - middle[k]);
    const double all = (double)(before + rows);
    for (int64_t k = 0; k < lanes; k++) {
        const double gap = (double)middle[k] - mean[k];
        squares[k] += (double)spread[k] + gap * gap * ((double)before * (double)rows / all);
        mean[k] += gap * ((double)rows / all);
    }
}

/* `work` holds mean, scale and shift of each lane. */
static void BN(lane_normalize)(const BN_T *x, BN_T *restrict out, int64_t rows, int64_t lanes, const BN_T *work)
{
    const BN_T *m = work, *a = work + lanes, *b = work + 2 * lanes;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < lanes; k++)
            out[r * lanes + k] = (x[r * lanes + k] - m[k]) * a[k] + b[k];
}

/* `work` holds the mean of each lane, and room for two sums. */
static void BN(lane_products)(const BN_T *g, const BN_T *x, int64_t rows, int64_t lanes, double *first, double *second,
                              BN_T *restrict work)
{
    const BN_T *m = work;
    BN_T *restrict plain = work + lanes, *restrict moved = work + 2 * lanes;
    memset(plain, 0, (size_t)(2 * lanes) * sizeof(BN_T));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < lanes; k++) {
            plain[k] += g[r * lanes + k];
            moved[k] += g[r * lanes + k] * (x[r * lanes + k] - m[k]);
        }
    for (int64_t k = 0; k < lanes; k++) {
        first[k] += (double)plain[k];
        second[k] += (double)moved[k];
    }
}

/* `work` holds mean, scale, slope and shift of each lane. */
static void BN(lane_gradient)(const BN_T *g, const BN_T *x, BN_T *restrict out, int64_t rows, int64_t lanes,
                              const BN_T *work)
{
    const BN_T *m = work, *a = work + lanes, *b = work + 2 * lanes, *c = work + 3 * lanes;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < lanes; k++)
            out[r * lanes + k] = a[k] * (g[r * lanes + k] - c[k] - (x[r * lanes + k] - m[k]) * b[k]);
}

#undef BN_SUM
#undef BN_T
#undef BN
