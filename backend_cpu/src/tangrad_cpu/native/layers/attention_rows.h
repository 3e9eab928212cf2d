/* Attention of one head, and its gradients, in numbers of one type: AT_T, AT(name), AT_EXP, AT_ENGINE. */

#define AT_SUM(total, n, VALUE) TGC_ROW_SUM(AT_T, LANES, KEYS, total, n, VALUE)

/* Rows of numbers, each contiguous. */
typedef struct AT(plane) {
    AT_T *data;
    int64_t row;
} AT(plane);

typedef struct AT(head) {
    AT(plane) q, k, v, g, out, dq, dk, dv;
    AT_T *lse; /* of each query */
    int64_t index; /* of the head, for the mask */
} AT(head);

/* Working memory of a task. */
typedef struct AT(space) {
    AT_T *scores, *slopes, *keys, *values, *bias, *most, *total, *owed;
} AT(space);

/* c += a b, or = a b: `rows` x `cols` over a run of k; a's elements are a_row and a_col apart, rows of
 * b contiguous. */
static void AT(product)(int64_t rows, int64_t cols, int64_t k, const AT_T *a, int64_t a_row, int64_t a_col,
                        const AT_T *b, int64_t b_row, AT_T *c, int64_t c_row, int accumulate)
{
    const int64_t mr = AT_ENGINE.mr, nr = AT_ENGINE.nr;
    for (int64_t j = 0; j < cols; j += nr)
        for (int64_t i = 0; i < rows; i += mr)
            AT_ENGINE.direct(rows - i < mr ? rows - i : mr, cols - j < nr ? cols - j : nr, k, a + i * a_row, a_row,
                             a_col, b + j, b_row, c + i * c_row + j, c_row, accumulate, NULL);
}

/* Pack rows of keys, or of values, as columns: panels of nr. */
static void AT(pack)(AT_T *to, const AT(plane) *rows, int64_t first, int64_t count, int64_t width)
{
    const int64_t nr = AT_ENGINE.nr;
    for (int64_t j = 0; j < count; j += nr)
        AT_ENGINE.pack_b(to + j * width, rows->data + (first + j) * rows->row, count - j < nr ? count - j : nr, width,
                         rows->row, 1);
}

/* c[i, j] = sum of a[i, p] b[j, p], for packed rows of b. */
static void AT(similarity)(int64_t rows, int64_t cols, int64_t width, const AT_T *a, int64_t a_row, const AT_T *packed,
                           AT_T *c)
{
    const int64_t nr = AT_ENGINE.nr;
    for (int64_t j = 0; j < cols; j += nr)
        AT_ENGINE.direct(rows, cols - j < nr ? cols - j : nr, width, a, a_row, 1, packed + j * width, nr, c + j, PITCH,
                         0, NULL);
}

/* Scale a row of scores and hide what a mask hides. */
static void AT(mask_row)(const job *j, const AT(head) *h, int64_t query, int64_t first, int64_t n, AT_T *restrict s,
                         AT_T *restrict bias)
{
    const AT_T scale = (AT_T)j->scale;
    const tg_view *mask = j->mask;
    if (mask == NULL) {
        for (int64_t i = 0; i < n; i++)
            s[i] *= scale;
        return;
    }
    const int d = mask->ndim - 2;
    const int64_t step = mask->strides[d + 1];
    const int64_t at = head_offset(mask, h->index) + query * mask->strides[d] + first * step;
    if (mask->dtype == TGC_BOOL) {
        const uint8_t *shown = (const uint8_t *)mask->data + at;
        for (int64_t i = 0; i < n; i++)
            s[i] = shown[i * step] ? s[i] * scale : -(AT_T)INFINITY;
        return;
    }
    const int size = tgc_itemsize[mask->dtype];
    if (step == 1)
        TGC(tgc_convert)(bias, AT_DTYPE, (const char *)mask->data + at * size, mask->dtype, n);
    else
        for (int64_t i = 0; i < n; i++)
            TGC(tgc_convert)(bias + i, AT_DTYPE, (const char *)mask->data + (at + i * step) * size, mask->dtype, 1);
    for (int64_t i = 0; i < n; i++)
        s[i] = s[i] * scale + bias[i];
}

/* How many keys of a block query `query` sees. */
static int64_t AT(seen)(const job *j, int64_t query, int64_t first, int64_t n)
{
    if (!j->causal)
        return n;
    const int64_t seen = query + 1 - first;
    return seen < 0 ? 0 : seen < n ? seen : n;
}

/* Fill up a row to whole LANES, so that loops have no rest; return its length then. */
static int64_t AT(fill_up)(AT_T *restrict s, int64_t n, AT_T value)
{
    const int64_t whole = (n + LANES - 1) / LANES * LANES;
    for (int64_t i = n; i < whole; i++)
        s[i] = value;
    return whole;
}

/* Turn n scores, hidden from there up to `whole`, into exponentials relative to the largest so far;
 * return how sums so far shrink. */
static AT_T AT(online_row)(AT_T *restrict s, int64_t whole, AT_T *most, AT_T *total)
{
    AT_T lane[LANES], sum[LANES] = {0}, largest = *most;
    for (int k = 0; k < LANES; k++)
        lane[k] = largest;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = s[i + k] > lane[k] ? s[i + k] : lane[k];
#define LARGER(k, half) lane[k] = lane[k + half] > lane[k] ? lane[k + half] : lane[k];
    FOLD(LARGER)
#undef LARGER
    largest = lane[0];
    /* Without a finite score so far, differences would be NaN; NaN itself has to stay. */
    const AT_T from = largest == -(AT_T)INFINITY ? 0 : largest;
    const AT_T shrink = *most == -(AT_T)INFINITY ? 0 : AT_EXP(*most - from);
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) {
            s[i + k] = AT_EXP(s[i + k] - from);
            sum[k] += s[i + k];
        }
#define ADDED(k, half) sum[k] += sum[k + half];
    FOLD(ADDED)
#undef ADDED
    *total = *total * shrink + sum[0];
    *most = largest;
    return shrink;
}

/* Turn a row of scores into weights P, and one of products dP into P (dP - owed) scale. */
static void AT(slope_row)(AT_T *restrict s, AT_T *restrict ds, int64_t whole, AT_T lse, AT_T owed, AT_T scale)
{
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) {
            /* A query that sees nothing has lse -inf. */
            const AT_T weight = s[i + k] == -(AT_T)INFINITY ? 0 : AT_EXP(s[i + k] - lse);
            s[i + k] = weight;
            ds[i + k] = weight * (ds[i + k] - owed) * scale;
        }
}

/* Queries [begin, end) of a head. */
static void AT(forward)(const job *j, const AT(head) *h, int64_t begin, int64_t end, const AT(space) *w)
{
    const int64_t mr = AT_ENGINE.mr;
    for (int64_t i = 0; i < end - begin; i++) {
        w->most[i] = -(AT_T)INFINITY;
        w->total[i] = 0;
    }
    for (int64_t first = 0; first < j->keys; first += KEYS) {
        const int64_t n = j->keys - first < KEYS ? j->keys - first : KEYS;
        if (j->causal && first >= end)
            break;
        AT(pack)(w->keys, &h->k, first, n, j->depth);
        for (int64_t i = begin; i < end; i += mr) {
            const int64_t rows = end - i < mr ? end - i : mr, seen = AT(seen)(j, i + rows - 1, first, n);
            if (seen == 0)
                continue;
            AT(similarity)(rows, seen, j->depth, h->q.data + i * h->q.row, h->q.row, w->keys, w->scores);
            for (int64_t r = 0; r < rows; r++) {
                AT_T *s = w->scores + r * PITCH, *out = h->out.data + (i + r) * h->out.row;
                const int64_t shown = AT(seen)(j, i + r, first, n);
                AT(mask_row)(j, h, i + r, first, shown, s, w->bias);
                const int64_t whole = AT(fill_up)(s, shown, -(AT_T)INFINITY);
                const AT_T shrink = AT(online_row)(s, whole, &w->most[i + r - begin], &w->total[i + r - begin]);
                for (int64_t p = whole; p < seen; p++)
                    s[p] = 0;
                if (first > 0 && shrink != 1)
                    for (int64_t p = 0; p < j->width; p++)
                        out[p] *= shrink;
            }
            AT(product)(rows, j->width, seen, w->scores, PITCH, 1, h->v.data + first * h->v.row, h->v.row,
                        h->out.data + i * h->out.row, h->out.row, first > 0);
        }
    }
    for (int64_t i = begin; i < end; i++) {
        AT_T *out = h->out.data + i * h->out.row, total = w->total[i - begin], most = w->most[i - begin];
        const AT_T scale = total == 0 ? 0 : 1 / total;
        for (int64_t p = 0; p < j->width; p++)
            out[p] = j->keys == 0 ? 0 : out[p] * scale;
        h->lse[i] = total == 0 ? -(AT_T)INFINITY : most + (AT_T)log((double)total);
    }
}

/* Add the gradients of a head. With P = exp(scores - lse) and the products D of rows of g and out:
 * dV = P' g, dS = P (g V' - D) scale, dQ = dS K, dK = dS' Q. */
static void AT(backward)(const job *j, const AT(head) *h, const AT(space) *w)
{
    const int64_t mr = AT_ENGINE.mr, block = QUERIES / mr * mr;
    for (int64_t i = 0; i < j->queries; i++) {
        const AT_T *g = h->g.data + i * h->g.row, *out = h->out.data + i * h->out.row;
        double sum = 0;
        AT_SUM(sum, j->width, g[at] * out[at])
        w->owed[i] = (AT_T)sum;
    }
    for (int64_t first = 0; first < j->keys; first += KEYS) {
        const int64_t n = j->keys - first < KEYS ? j->keys - first : KEYS;
        AT(pack)(w->keys, &h->k, first, n, j->depth);
        AT(pack)(w->values, &h->v, first, n, j->width);
        for (int64_t top = 0; top < j->queries; top += block) {
            const int64_t end = top + block < j->queries ? top + block : j->queries;
            const int64_t reach = AT(seen)(j, end - 1, first, n);
            if (reach == 0)
                continue;
            for (int64_t i = top; i < end; i += mr) {
                const int64_t rows = end - i < mr ? end - i : mr, seen = AT(seen)(j, i + rows - 1, first, n);
                AT_T *scores = w->scores + (i - top) * PITCH, *slopes = w->slopes + (i - top) * PITCH;
                if (seen > 0) {
                    AT(similarity)(rows, seen, j->depth, h->q.data + i * h->q.row, h->q.row, w->keys, scores);
                    AT(similarity)(rows, seen, j->width, h->g.data + i * h->g.row, h->g.row, w->values, slopes);
                }
                for (int64_t r = 0; r < rows; r++) {
                    AT_T *restrict s = scores + r * PITCH, *restrict ds = slopes + r * PITCH;
                    const int64_t shown = AT(seen)(j, i + r, first, n);
                    AT(mask_row)(j, h, i + r, first, shown, s, w->bias);
                    const int64_t whole = AT(fill_up)(s, shown, -(AT_T)INFINITY);
                    AT(fill_up)(ds, shown, 0);
                    AT(slope_row)(s, ds, whole, h->lse[i + r], w->owed[i + r], (AT_T)j->scale);
                    for (int64_t p = whole; p < reach; p++)
                        s[p] = ds[p] = 0;
                }
                if (seen > 0)
                    AT(product)(rows, j->depth, seen, slopes, PITCH, 1, h->k.data + first * h->k.row, h->k.row,
                                h->dq.data + i * h->dq.row, h->dq.row, 1);
            }
            for (int64_t p = 0; p < reach; p += mr) {
                const int64_t rows = reach - p < mr ? reach - p : mr;
                const int64_t skip = j->causal && first + p > top ? first + p - top : 0, run = end - top - skip;
                AT(product)(rows, j->width, run, w->scores + skip * PITCH + p, 1, PITCH,
                            h->g.data + (top + skip) * h->g.row, h->g.row, h->dv.data + (first + p) * h->dv.row,
                            h->dv.row, 1);
                AT(product)(rows, j->depth, run, w->slopes + skip * PITCH + p, 1, PITCH,
                            h->q.data + (top + skip) * h->q.row, h->q.row, h->dk.data + (first + p) * h->dk.row,
                            h->dk.row, 1);
            }
        }
    }
}

/* A head's rows as numbers of this type: in their place, or converted to `buffer`. */
static AT(plane) AT(plane_of)(const tg_view *view, int64_t head, AT_T **buffer)
{
    const int d = view->ndim - 2, size = tgc_itemsize[view->dtype];
    const int64_t rows = view->shape[d], width = view->shape[d + 1];
    char *data = (char *)view->data + head_offset(view, head) * size;
    if (in_place(view, AT_DTYPE))
        return (AT(plane)){(AT_T *)data, view->strides[d]};
    AT(plane) copy = {*buffer, width};
    int64_t to[2] = {width * (int64_t)sizeof(AT_T), sizeof(AT_T)};
    int64_t from[2] = {view->strides[d] * size, view->strides[d + 1] * size};
    TGC(tgc_copy_region)(2, view->shape + d, (char *)*buffer, to, AT_DTYPE, data, from, view->dtype);
    *buffer += rows * width;
    return copy;
}

/* Where a head's result is computed; put_plane brings it to where it belongs. */
static AT(plane) AT(target)(const tg_view *view, int64_t head, AT_T **buffer)
{
    const int d = view->ndim - 2;
    if (in_place(view, AT_DTYPE))
        return (AT(plane)){(AT_T *)view->data + head_offset(view, head), view->strides[d]};
    AT(plane) copy = {*buffer, view->shape[d + 1]};
    *buffer += view->shape[d] * view->shape[d + 1];
    return copy;
}

static void AT(put_plane)(const tg_view *view, int64_t head, const AT(plane) *plane, int64_t begin, int64_t end)
{
    const int d = view->ndim - 2, size = tgc_itemsize[view->dtype];
    if (in_place(view, AT_DTYPE))
        return;
    int64_t shape[2] = {end - begin, view->shape[d + 1]};
    int64_t from[2] = {plane->row * (int64_t)sizeof(AT_T), sizeof(AT_T)};
    int64_t to[2] = {view->strides[d] * size, view->strides[d + 1] * size};
    char *data = (char *)view->data + (head_offset(view, head) + begin * view->strides[d]) * size;
    TGC(tgc_copy_region)(2, shape, data, to, view->dtype, (const char *)(plane->data + begin * plane->row), from, AT_DTYPE);
}

/* Lay out working memory; with NULL say how much is needed. */
static size_t AT(spaces)(const job *j, AT_T *at, AT(space) *w, AT_T **planes)
{
    const int64_t lines = j->backward ? QUERIES : AT_ENGINE.mr;
    /* Packing may write one vector beyond a panel. */
    const int64_t room = KEYS + AT_ENGINE.nr, slack = TGC_PANEL_SLACK;
    const int64_t rows = j->backward ? j->queries : j->chunk;
    AT_T *const begin = at;
    w->scores = at, at += lines * PITCH;
    w->slopes = at, at += j->backward ? lines * PITCH : 0;
    w->keys = at, at += room * j->depth + slack;
    w->values = at, at += j->backward ? room * j->width + slack : 0;
    w->bias = at, at += j->mask != NULL ? KEYS : 0;
    w->most = at, at += j->backward ? 0 : rows;
    w->total = at, at += j->backward ? 0 : rows;
    w->owed = at, at += j->backward ? rows : 0;
    *planes = at;
    for (int i = 0; i < j->nviews; i++)
        at += in_place(j->views[i], AT_DTYPE) ? 0 : plane_size(j->views[i]);
    return (size_t)(at - begin) * sizeof(AT_T);
}

static void AT(forward_task)(int64_t task, void *context)
{
    job *j = context;
    const int64_t index = task / j->chunks, begin = task % j->chunks * j->chunk;
    const int64_t end = begin + j->chunk < j->queries ? begin + j->chunk : j->queries;
    AT(space) w;
    AT_T *planes, *memory = tgc_scratch(AT(spaces)(j, NULL, &w, &planes));
    if (memory == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    AT(spaces)(j, memory, &w, &planes);
    const tg_view *lse = &j->outs[1];
    AT(head) h = {.index = index, .lse = (AT_T *)lse->data + index * j->queries};
    h.q = AT(plane_of)(j->views[0], index, &planes);
    h.k = AT(plane_of)(j->views[1], index, &planes);
    h.v = AT(plane_of)(j->views[2], index, &planes);
    h.out = AT(target)(j->views[3], index, &planes);
    AT(forward)(j, &h, begin, end, &w);
    AT(put_plane)(j->views[3], index, &h.out, begin, end);
    tgc_scratch_free(memory);
}

static void AT(backward_task)(int64_t index, void *context)
{
    job *j = context;
    AT(space) w;
    AT_T *planes, *memory = tgc_scratch(AT(spaces)(j, NULL, &w, &planes));
    if (memory == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    AT(spaces)(j, memory, &w, &planes);
    AT(head) h = {.index = index, .lse = (AT_T *)j->lse + index * j->queries};
    AT(plane) *const inputs[5] = {&h.q, &h.k, &h.v, &h.g, &h.out}, *const gradients[3] = {&h.dq, &h.dk, &h.dv};
    for (int i = 0; i < 5; i++)
        *inputs[i] = AT(plane_of)(j->views[i], index, &planes);
    for (int i = 0; i < 3; i++) {
        const tg_view *view = j->views[5 + i];
        *gradients[i] = AT(target)(view, index, &planes);
        for (int64_t row = 0; row < view->shape[view->ndim - 2]; row++)
            memset(gradients[i]->data + row * gradients[i]->row, 0,
                   (size_t)view->shape[view->ndim - 1] * sizeof(AT_T));
    }
    AT(backward)(j, &h, &w);
    for (int i = 0; i < 3; i++)
        AT(put_plane)(j->views[5 + i], index, gradients[i], 0, j->views[5 + i]->shape[j->views[5 + i]->ndim - 2]);
    tgc_scratch_free(memory);
}

#undef AT_SUM
#undef AT_T
#undef AT
#undef AT_EXP
#undef AT_ENGINE
#undef AT_DTYPE
