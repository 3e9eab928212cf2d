/* Sums of windows along one dimension after the other. A template: define AV_T and AV(name), and include. */

/* to[o, r, j] = the sum over k below counts[r] of x[o, starts[r] + k, j], in the order of k. */
static void AV(sum)(void *target, const void *source, const axis_sums *a)
{
    AV_T *restrict to = target;
    const AV_T *restrict x = source;
    const int64_t inner = a->inner;
    for (int64_t o = 0; o < a->outer; o++, x += a->size * inner)
        for (int64_t r = 0; r < a->results; r++, to += inner) {
            const AV_T *run = x + a->starts[r] * inner;
            const int64_t count = a->counts[r];
            if (inner == 1) {
                AV_T sum = count > 0 ? run[0] : 0;
                for (int64_t k = 1; k < count; k++)
                    sum += run[k];
                to[0] = sum;
                continue;
            }
            if (count == 0)
                memset(to, 0, (size_t)inner * sizeof(AV_T));
            else if (count == 1)
                memcpy(to, run, (size_t)inner * sizeof(AV_T));
            else
                for (int64_t j = 0; j < inner; j++)
                    to[j] = run[j] + run[inner + j];
            for (int64_t k = 2; k < count; k++)
                for (int64_t j = 0; j < inner; j++)
                    to[j] += run[k * inner + j];
        }
}

/* Divide sums of windows by a number, or, where it is 0, by the elements of each. */
static void AV(divide)(void *target, const void *source, const int64_t *outs, const int64_t *const *elements,
                       double divisor)
{
    AV_T *to = target;
    const AV_T *x = source;
    if (divisor != 0) {
        const AV_T by = (AV_T)divisor;
        for (int64_t i = 0; i < outs[0] * outs[1] * outs[2]; i++)
            to[i] = x[i] / by;
        return;
    }
    for (int64_t i = 0; i < outs[0]; i++)
        for (int64_t j = 0; j < outs[1]; j++, to += outs[2], x += outs[2])
            for (int64_t k = 0; k < outs[2]; k++)
                to[k] = x[k] / (AV_T)(elements[0][i] * elements[1][j] * elements[2][k]);
}

#undef AV_T
#undef AV
