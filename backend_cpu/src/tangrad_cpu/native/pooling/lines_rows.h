/* Sums of neighbours along a dimension. A template: define WL_T and WL(name), and include.
 *
 * Products are added in the order of the elements, each rounded, whatever a vector holds. */
typedef WL_T WL(vector) __attribute__((vector_size(LINE), aligned(sizeof(WL_T)), may_alias));

/* to[j] = sum over k of w[k] x[k apart + j], four lines at a time. */
static void WL(fold)(void *target, const void *lines, int64_t apart, const void *weights, int64_t count, int64_t n)
{
    WL_T *restrict to = target;
    const WL_T *restrict x = lines, *w = weights;
    int64_t k = count & 3;
    if (k == 0 && count > 0)
        k = 4;
    const WL_T *b = x + apart, *c = b + apart, *d = c + apart;
    if (k == 4)
        for (int64_t j = 0; j < n; j++)
            to[j] = w[0] * x[j] + w[1] * b[j] + w[2] * c[j] + w[3] * d[j];
    else if (k == 3)
        for (int64_t j = 0; j < n; j++)
            to[j] = w[0] * x[j] + w[1] * b[j] + w[2] * c[j];
    else if (k == 2)
        for (int64_t j = 0; j < n; j++)
            to[j] = w[0] * x[j] + w[1] * b[j];
    else if (k == 1)
        for (int64_t j = 0; j < n; j++)
            to[j] = w[0] * x[j];
    else
        memset(to, 0, (size_t)n * sizeof(WL_T));
    for (; k < count; k += 4) {
        const WL_T *restrict e = x + k * apart, *f = e + apart, *g = f + apart, *h = g + apart, *v = w + k;
        for (int64_t j = 0; j < n; j++)
            to[j] = to[j] + v[0] * e[j] + v[1] * f[j] + v[2] * g[j] + v[3] * h[j];
    }
}

/* One result of `inner` vectors, whose lanes are lines: their elements stand one after the other. */
static void WL(lanes)(void *target, const void *lines, int64_t inner, const void *weights, int64_t count)
{
    WL(vector) *to = target;
    const WL(vector) *x = lines;
    const WL_T *w = weights;
    for (int64_t c = 0; c < inner; c++) {
        WL(vector) sum = {0};
        if (count > 0)
            sum = w[0] * x[c];
        for (int64_t k = 1; k < count; k++)
            sum += w[k] * x[k * inner + c];
        to[c] = sum;
    }
}

#undef WL_T
#undef WL
