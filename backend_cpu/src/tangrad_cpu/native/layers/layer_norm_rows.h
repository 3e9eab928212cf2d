/* Layer normalization of one contiguous row and its gradient, for float32 or float64: LN_T, LN(name).
 * Sums are kept in LANES partial sums and handed on to float64 after BLOCK elements. */

#define LN_SUM(total, n, VALUE) TGC_ROW_SUM(LN_T, LANES, BLOCK, total, n, VALUE)

static void LN(forward)(const LN_T *x, const LN_T *weight, const LN_T *bias, LN_T *restrict out, int64_t n, double eps,
                        double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    LN_SUM(sum, n, x[at])
    const LN_T m = (LN_T)(sum / n);
    LN_SUM(squares, n, (x[at] - m) * (x[at] - m))
    *mean = sum / n;
    *rstd = 1 / sqrt(squares / n + eps);
    const LN_T r = (LN_T)*rstd;
    if (weight != NULL && bias != NULL)
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - m) * r * weight[i] + bias[i];
    else if (weight != NULL)
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - m) * r * weight[i];
    else if (bias != NULL)
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - m) * r + bias[i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - m) * r;
}

/* With x^ = (x - mean) rstd and h = g weight: dx = rstd (h - mean(h) - x^ mean(h x^)); the sums of
 * g x^ and g over rows are the gradients of weight and bias. */
static void LN(backward)(const LN_T *g, const LN_T *x, const LN_T *weight, LN_T *restrict out, int64_t n, double mean,
                         double rstd, double *restrict by_weight, double *restrict by_bias)
{
    const LN_T m = (LN_T)mean, r = (LN_T)rstd;
    double first = 0, second = 0;
    if (weight != NULL) {
        LN_SUM(first, n, g[at] * weight[at])
        LN_SUM(second, n, g[at] * weight[at] * ((x[at] - m) * r))
    } else {
        LN_SUM(first, n, g[at])
        LN_SUM(second, n, g[at] * ((x[at] - m) * r))
    }
    const LN_T shift = (LN_T)(first / n), slope = (LN_T)(second / n);
    for (int64_t i = 0; i < n; i++) {
        const LN_T normal = (x[i] - m) * r, h = weight != NULL ? g[i] * weight[i] : g[i];
        out[i] = r * (h - shift - normal * slope);
        by_weight[i] += (double)g[i] * normal;
        by_bias[i] += g[i];
    }
}

/* ABREAST narrow rows at once: a lane is a row. `rows` of them are there, the others are zeros. */
static void LN(load_abreast)(const char *data, const int64_t *places, int64_t rows, int64_t n,
                             LN_T (*restrict to)[ABREAST])
{
    if (rows < ABREAST)
        memset(to, 0, (size_t)n * sizeof to[0]);
    for (int64_t k = 0; k < rows; k++) {
        const LN_T *row = (const LN_T *)data + places[k];
        for (int64_t i = 0; i < n; i++)
            to[i][k] = row[i];
    }
}

static void LN(store_abreast)(LN_T (*restrict from)[ABREAST], int64_t rows, int64_t n, char *data,
                              const int64_t *places)
{
    for (int64_t k = 0; k < rows; k++) {
        LN_T *row = (LN_T *)data + places[k];
        for (int64_t i = 0; i < n; i++)
            row[i] = from[i][k];
    }
}

static void LN(forward_abreast)(const side *x, const side *out, int64_t rows, const LN_T *weight, const LN_T *bias,
                                int64_t n, double eps, double *restrict mean, double *restrict rstd)
{
    LN_T at[LN_NARROW][ABREAST], m[ABREAST] = {0}, r[ABREAST] = {0};
    LN(load_abreast)(x->data, x->places, rows, n, at);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < ABREAST; k++)
            m[k] += at[i][k];
    for (int k = 0; k < ABREAST; k++)
        m[k] /= (LN_T)n;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < ABREAST; k++)
            r[k] += (at[i][k] - m[k]) * (at[i][k] - m[k]);
    for (int k = 0; k < ABREAST; k++) {
        mean[k] = m[k];
        rstd[k] = 1 / sqrt((double)r[k] / (double)n + eps);
        r[k] = (LN_T)rstd[k];
    }
    for (int64_t i = 0; i < n; i++) {
        const LN_T w = weight != NULL ? weight[i] : 1, b = bias != NULL ? bias[i] : 0;
        for (int k = 0; k < ABREAST; k++)
            at[i][k] = (at[i][k] - m[k]) * r[k] * w + b;
    }
    LN(store_abreast)(at, rows, n, out->data, out->places);
}

static void LN(backward_abreast)(const side *g, const side *x, const side *out, int64_t rows, const LN_T *weight,
                                 int64_t n, const double *mean, const double *rstd, double *restrict by_weight,
                                 double *restrict by_bias)
{
    LN_T normal[LN_NARROW][ABREAST], at[LN_NARROW][ABREAST], m[ABREAST], r[ABREAST];
    LN_T shift[ABREAST] = {0}, slope[ABREAST] = {0};
    LN(load_abreast)(g->data, g->places, rows, n, at);
    LN(load_abreast)(x->data, x->places, rows, n, normal);
    for (int k = 0; k < ABREAST; k++) {
        m[k] = (LN_T)mean[k];
        r[k] = (LN_T)rstd[k];
    }
    for (int64_t i = 0; i < n; i++) {
        const LN_T w = weight != NULL ? weight[i] : 1;
        double of_weight[ABREAST], of_bias[ABREAST];
        for (int k = 0; k < ABREAST; k++) {
            normal[i][k] = (normal[i][k] - m[k]) * r[k];
            of_weight[k] = (double)at[i][k] * normal[i][k];
            of_bias[k] = at[i][k];
        }
#pragma GCC unroll 4
        for (int half = ABREAST / 2; half; half /= 2)
            for (int k = 0; k < half; k++) {
                of_weight[k] += of_weight[k + half];
                of_bias[k] += of_bias[k + half];
            }
        by_weight[i] += of_weight[0];
        by_bias[i] += of_bias[0];
        for (int k = 0; k < ABREAST; k++) {
            at[i][k] *= w;
            shift[k] += at[i][k];
            slope[k] += at[i][k] * normal[i][k];
        }
    }
    for (int k = 0; k < ABREAST; k++) {
        shift[k] /= (LN_T)n;
        slope[k] /= (LN_T)n;
    }
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < ABREAST; k++)
            at[i][k] = r[k] * (at[i][k] - shift[k] - normal[i][k] * slope[k]);
    LN(store_abreast)(at, rows, n, out->data, out->places);
}

#undef LN_SUM
#undef LN_T
#undef LN
