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

#undef LN_SUM
#undef LN_T
#undef LN
