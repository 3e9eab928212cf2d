/* Rows of group normalization in one type. A template: define GN_T and GN(name), and include. */

#define GN_SUM(total, n, VALUE) TGC_ROW_SUM(GN_T, LANES, BLOCK, total, n, VALUE)

static void GN(forward)(int64_t task, void *context)
{
    const job *j = context;
    int64_t last = tgc_begin(j->rows, j->tasks, task + 1, 1), n = j->inside * j->area;
    for (int64_t row = tgc_begin(j->rows, j->tasks, task, 1); row < last; row++) {
        const GN_T *x = (const GN_T *)j->x + row * n;
        const GN_T *weight = j->weight, *bias = j->bias;
        GN_T *restrict out = (GN_T *)j->out + row * n;
        double sum = 0, squares = 0;
        GN_SUM(sum, n, x[at])
        const GN_T m = (GN_T)(sum / (double)n);
        GN_SUM(squares, n, (x[at] - m) * (x[at] - m))
        double rstd = 1 / sqrt(squares / (double)n + j->eps);
        ((GN_T *)j->mean)[row] = (GN_T)(sum / (double)n);
        ((GN_T *)j->rstd)[row] = (GN_T)rstd;
        int64_t first = row % j->groups * j->inside;
        for (int64_t c = 0; c < j->inside; c++, x += j->area, out += j->area) {
            const GN_T scale = (GN_T)rstd * (weight != NULL ? weight[first + c] : 1);
            const GN_T shift = bias != NULL ? bias[first + c] : 0;
            for (int64_t i = 0; i < j->area; i++)
                out[i] = (x[i] - m) * scale + shift;
        }
    }
}

/* With x^ = (x - mean) rstd and h = g weight: dx = rstd (h - mean(h) - x^ mean(h x^)); the sums of
 * g x^ and g over samples and places are the gradients of weight and bias. */
static void GN(backward)(int64_t task, void *context)
{
    const job *j = context;
    int64_t last = tgc_begin(j->rows, j->tasks, task + 1, 1), n = j->inside * j->area;
    for (int64_t row = tgc_begin(j->rows, j->tasks, task, 1); row < last; row++) {
        const GN_T *x = (const GN_T *)j->x + row * n, *g = (const GN_T *)j->g + row * n, *weight = j->weight;
        GN_T *restrict out = (GN_T *)j->out + row * n;
        const GN_T m = ((const GN_T *)j->mean)[row], r = ((const GN_T *)j->rstd)[row];
        double first = 0, second = 0;
        int64_t channel = row % j->groups * j->inside;
        for (int64_t c = 0; c < j->inside; c++, x += j->area, g += j->area) {
            double by_weight = 0, by_bias = 0, scale = weight != NULL ? (double)weight[channel + c] : 1;
            GN_SUM(by_weight, j->area, g[at] * ((x[at] - m) * r))
            GN_SUM(by_bias, j->area, g[at])
            j->by_weight[row * j->inside + c] = by_weight;
            j->by_bias[row * j->inside + c] = by_bias;
            first += scale * by_bias;
            second += scale * by_weight;
        }
        const GN_T shift = (GN_T)(first / (double)n), slope = (GN_T)(second / (double)n);
        x -= n, g -= n;
        for (int64_t c = 0; c < j->inside; c++, x += j->area, g += j->area, out += j->area) {
            const GN_T scale = weight != NULL ? weight[channel + c] : 1;
            for (int64_t i = 0; i < j->area; i++)
                out[i] = r * (scale * g[i] - shift - (x[i] - m) * r * slope);
        }
    }
}

#undef GN_SUM
#undef GN_T
#undef GN
