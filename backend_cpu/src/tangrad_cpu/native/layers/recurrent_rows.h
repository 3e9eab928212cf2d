/* A recurrent layer over some of its sequences, for float32 or float64: RC_T, RC(name), RC_V (a
 * vector), RC_FMA, RC_SIGMOID, RC_TANH. Names of gates are those of the definition. */

/* One row times ROW_PANELS panels of two vectors: as many sums as hide the latency of additions. */
static void RC(row_product)(int64_t k, const RC_T *a, const char *panels, int64_t panel_bytes, RC_T *c, int accumulate)
{
    const int lanes = TGC_VECTOR / sizeof(RC_T);
    RC_V sum[2 * ROW_PANELS];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * ROW_PANELS; i++)
        sum[i] = accumulate ? (RC_V) * (const RC(vector) *)(c + i * lanes) : (RC_V){0};
    for (int64_t p = 0; p < k; p++) {
        const RC_V factor = a[p] - (RC_V){0};
#pragma GCC unroll 8
        for (int i = 0; i < 2 * ROW_PANELS; i++)
            sum[i] = RC_FMA(factor, ((const RC(vector) *)(panels + i / 2 * panel_bytes))[2 * p + i % 2], sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * ROW_PANELS; i++)
        *(RC(vector) *)(c + i * lanes) = sum[i];
}

static void RC(load)(RC_T *restrict to, const RC_T *from, int64_t step, int64_t n)
{
    if (step == 1)
        memcpy(to, from, (size_t)n * sizeof(RC_T));
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i * step];
}

/* The states of sequences first .. first + m to or from memory, one after the other. */
static void RC(load_states)(const tg_view *view, int64_t first, int64_t m, RC_T *to)
{
    const int64_t n = view->shape[2];
    for (int64_t s = 0; s < view->shape[0]; s++)
        for (int64_t b = 0; b < m; b++)
            RC(load)(to + (s * m + b) * n,
                     (const RC_T *)view->data + s * view->strides[0] + (first + b) * view->strides[1],
                     view->strides[2], n);
}

static void RC(store_states)(const tg_view *view, int64_t first, int64_t m, const RC_T *from)
{
    const int64_t n = view->shape[2];
    for (int64_t s = 0; s < view->shape[0]; s++)
        for (int64_t b = 0; b < m; b++)
            for (int64_t i = 0; i < n; i++)
                ((RC_T *)view->data)[s * view->strides[0] + (first + b) * view->strides[1] + i * view->strides[2]] =
                    from[(s * m + b) * n + i];
}

static void RC(lstm_step)(int64_t n, const RC_T *x, const RC_T *p, RC_T *restrict h, RC_T *restrict c,
                          RC_T *restrict out, RC_T *restrict kept)
{
    for (int64_t k = 0; k < n; k++) {
        const RC_T i = RC_SIGMOID(x[k] + p[k]), f = RC_SIGMOID(x[n + k] + p[n + k]);
        const RC_T g = RC_TANH(x[2 * n + k] + p[2 * n + k]), o = RC_SIGMOID(x[3 * n + k] + p[3 * n + k]);
        const RC_T cell = f * c[k] + i * g;
        kept[k] = i, kept[n + k] = f, kept[2 * n + k] = g, kept[3 * n + k] = o;
        kept[4 * n + k] = c[k] = cell;
        out[k] = h[k] = o * RC_TANH(cell);
    }
}

static void RC(gru_step)(int64_t n, const RC_T *x, const RC_T *p, RC_T *restrict h, RC_T *restrict out,
                         RC_T *restrict kept)
{
    for (int64_t k = 0; k < n; k++) {
        const RC_T r = RC_SIGMOID(x[k] + p[k]), z = RC_SIGMOID(x[n + k] + p[n + k]);
        const RC_T state = p[2 * n + k], new = RC_TANH(x[2 * n + k] + r * state);
        kept[k] = r, kept[n + k] = z, kept[2 * n + k] = new, kept[3 * n + k] = state;
        out[k] = h[k] = new + z * (h[k] - new);
    }
}

static void RC(elman_step)(int rectified, int64_t n, const RC_T *x, const RC_T *p, RC_T *restrict h,
                           RC_T *restrict out)
{
    if (rectified)
        for (int64_t k = 0; k < n; k++) {
            const RC_T sum = x[k] + p[k];
            out[k] = h[k] = sum < 0 ? 0 : sum;
        }
    else
        for (int64_t k = 0; k < n; k++)
            out[k] = h[k] = RC_TANH(x[k] + p[k]);
}

static void RC(forward_task)(int64_t task, void *context)
{
    job *j = context;
    const int64_t first = tgc_begin(j->batch, j->tasks, task, 1), m = tgc_begin(j->batch, j->tasks, task + 1, 1) - first;
    const int64_t n = j->hidden, width = j->gates * n;
    RC_T *h = tgc_scratch((size_t)(m * (2 * n + width)) * sizeof(RC_T)), *c = h + m * n, *product = c + m * n;
    if (h == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    RC(load_states)(j->states, first, m, h);
    for (int64_t step = 0; step < j->steps; step++) {
        const int64_t t = j->backwards ? j->steps - 1 - step : step, rows = running(j, t, first, m);
        if (j->bias != NULL)
            for (int64_t b = 0; b < rows; b++)
                memcpy(product + b * width, j->bias, (size_t)width * sizeof(RC_T));
        if (multiply(j, rows, h, n, product, width, j->bias != NULL) < 0) {
            atomic_store(&j->failed, 2);
            break;
        }
        for (int64_t b = 0; b < rows; b++) {
            const RC_T *x = place(j, &j->entering, t, first + b), *p = product + b * width;
            RC_T *out = place(j, &j->output, t, first + b), *kept = place(j, &j->kept, t, first + b);
            if (j->mode == LSTM)
                RC(lstm_step)(n, x, p, h + b * n, c + b * n, out, kept);
            else if (j->mode == GRU)
                RC(gru_step)(n, x, p, h + b * n, out, kept);
            else
                RC(elman_step)(j->mode == RNN_RELU, n, x, p, h + b * n, out);
        }
    }
    RC(store_states)(j->last, first, m, h);
    tgc_scratch_free(h);
}

/* Gradients by h and by c become those before the step, but for the part through the product. */
static void RC(lstm_back)(int64_t n, const RC_T *kept, const RC_T *before, const RC_T *by_h, RC_T *restrict by_c,
                          RC_T *restrict by)
{
    for (int64_t k = 0; k < n; k++) {
        const RC_T i = kept[k], f = kept[n + k], g = kept[2 * n + k], o = kept[3 * n + k];
        const RC_T shown = RC_TANH(kept[4 * n + k]);
        const RC_T by_cell = by_c[k] + by_h[k] * o * (1 - shown * shown);
        by[k] = by_cell * g * i * (1 - i);
        by[n + k] = by_cell * before[k] * f * (1 - f);
        by[2 * n + k] = by_cell * i * (1 - g * g);
        by[3 * n + k] = by_h[k] * shown * o * (1 - o);
        by_c[k] = by_cell * f;
    }
}

static void RC(gru_back)(int64_t n, const RC_T *kept, const RC_T *before, RC_T *restrict by_h, RC_T *restrict by,
                         RC_T *restrict by_product)
{
    for (int64_t k = 0; k < n; k++) {
        const RC_T r = kept[k], z = kept[n + k], new = kept[2 * n + k];
        const RC_T by_new = by_h[k] * (1 - z) * (1 - new * new);
        by_product[k] = by[k] = by_new * kept[3 * n + k] * r * (1 - r);
        by_product[n + k] = by[n + k] = by_h[k] * (before[k] - new) * z * (1 - z);
        by[2 * n + k] = by_new;
        by_product[2 * n + k] = by_new * r;
        by_h[k] *= z;
    }
}

static void RC(elman_back)(int rectified, int64_t n, const RC_T *out, const RC_T *by_h, RC_T *restrict by)
{
    if (rectified)
        for (int64_t k = 0; k < n; k++)
            by[k] = out[k] > 0 ? by_h[k] : 0;
    else
        for (int64_t k = 0; k < n; k++)
            by[k] = by_h[k] * (1 - out[k] * out[k]);
}

static void RC(backward_task)(int64_t task, void *context)
{
    job *j = context;
    const int64_t first = tgc_begin(j->batch, j->tasks, task, 1), m = tgc_begin(j->batch, j->tasks, task + 1, 1) - first;
    const int64_t n = j->hidden, width = j->gates * n, own = j->mode == GRU ? width : 0;
    RC_T *by_h = tgc_scratch((size_t)(m * (4 * n + own)) * sizeof(RC_T)), *by_c = by_h + m * n;
    if (by_h == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    RC_T *start = by_c + m * n, *by_product = start + 2 * m * n;
    memset(by_h, 0, (size_t)(2 * m * n) * sizeof(RC_T));
    if (j->last != NULL)
        RC(load_states)(j->last, first, m, by_h);
    RC(load_states)(j->states, first, m, start);
    for (int64_t step = 0; step < j->steps; step++) {
        const int64_t t = j->backwards ? step : j->steps - 1 - step, earlier = t + (j->backwards ? 1 : -1);
        const int64_t rows = running(j, t, first, m);
        const int64_t known = earlier < 0 || earlier >= j->steps ? 0 : running(j, earlier, first, m);
        for (int64_t b = 0; b < rows; b++) {
            const RC_T *kept = place(j, &j->kept, t, first + b), *out = place(j, &j->output, t, first + b);
            RC_T *by = place(j, &j->entering, t, first + b), *by_state = by_h + b * n;
            if (j->by_output.data != NULL) {
                const RC_T *given = place(j, &j->by_output, t, first + b);
                for (int64_t k = 0; k < n; k++)
                    by_state[k] += given[k * j->by_output.column];
            }
            if (j->mode == LSTM) {
                const RC_T *c = b < known ? (RC_T *)place(j, &j->kept, earlier, first + b) + 4 * n : start + (m + b) * n;
                RC(lstm_back)(n, kept, c, by_state, by_c + b * n, by);
            } else if (j->mode == GRU) {
                const RC_T *h = b < known ? place(j, &j->output, earlier, first + b) : start + b * n;
                RC(gru_back)(n, kept, h, by_state, by, by_product + b * width);
            } else {
                RC(elman_back)(j->mode == RNN_RELU, n, out, by_state, by);
            }
        }
        const RC_T *factor = own ? by_product : place(j, &j->entering, t, first);
        if (multiply(j, rows, factor, own ? width : j->entering.row, by_h, n, own != 0) < 0) {
            atomic_store(&j->failed, 2);
            break;
        }
    }
    RC(store_states)(j->by_states, first, m, by_h);
    tgc_scratch_free(by_h);
}

#undef RC_T
#undef RC_V
#undef RC_FMA
#undef RC
#undef RC_SIGMOID
#undef RC_TANH
