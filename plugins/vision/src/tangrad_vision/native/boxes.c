/* Which of overlapping boxes stay. */

#include "vision.h"

#include "levels.h"

/* Boxes by falling score, a coordinate a row, so that one loop compares a box with sixteen. */
#define SUPPRESS(T, M, NAME)                                                                              \
    LEVELS static void NAME##_row(const T *restrict x1, const T *restrict y1, const T *restrict x2,       \
                                  const T *restrict y2, const T *restrict area, M *restrict gone,         \
                                  int64_t begin, int64_t end, T a1, T b1, T a2, T b2, T mine, T most)     \
    {                                                                                                     \
        for (int64_t j = begin; j < end; j++) {                                                           \
            T left = a1 < x1[j] ? x1[j] : a1, top = b1 < y1[j] ? y1[j] : b1;                              \
            T right = x2[j] < a2 ? x2[j] : a2, bottom = y2[j] < b2 ? y2[j] : b2;                          \
            T wide = right - left, high = bottom - top;                                                   \
            wide = 0 < wide ? wide : 0;                                                                   \
            high = 0 < high ? high : 0;                                                                   \
            T shared = wide * high;                                                                       \
            gone[j] |= -(M)(shared / (mine + area[j] - shared) > most);                                   \
        }                                                                                                 \
    }                                                                                                     \
                                                                                                          \
    static int64_t NAME(const T *boxes, const int64_t *order, int64_t n, T most, T *rows, M *gone,        \
                        int64_t *places, int64_t *kept)                                                   \
    {                                                                                                     \
        T *x1 = rows, *y1 = rows + n, *x2 = rows + 2 * n, *y2 = rows + 3 * n, *area = rows + 4 * n;       \
        for (int64_t i = 0; i < n; i++) {                                                                 \
            const T *b = boxes + 4 * order[i];                                                            \
            x1[i] = b[0], y1[i] = b[1], x2[i] = b[2], y2[i] = b[3];                                       \
            area[i] = (b[2] - b[0]) * (b[3] - b[1]);                                                      \
            gone[i] = 0;                                                                                  \
            places[i] = order[i];                                                                         \
        }                                                                                                 \
        int64_t found = 0;                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                 \
            if (gone[i])                                                                                  \
                continue;                                                                                 \
            kept[found++] = places[i];                                                                    \
            NAME##_row(x1, y1, x2, y2, area, gone, i + 1, n, x1[i], y1[i], x2[i], y2[i], area[i], most);  \
            if (found % COMPACT != 0)                                                                     \
                continue;                                                                                 \
            int64_t to = i + 1;                                                                           \
            for (int64_t j = i + 1; j < n; j++) {                                                         \
                if (gone[j])                                                                              \
                    continue;                                                                             \
                x1[to] = x1[j], y1[to] = y1[j], x2[to] = x2[j], y2[to] = y2[j], area[to] = area[j];       \
                places[to] = places[j];                                                                   \
                to++;                                                                                     \
            }                                                                                             \
            memset(gone + i + 1, 0, (size_t)(to - i - 1) * sizeof(M));                                    \
            n = to;                                                                                       \
        }                                                                                                 \
        return found;                                                                                     \
    }

enum { COMPACT = 32 }; /* boxes kept until those that are gone are no longer compared with */

SUPPRESS(float, int32_t, suppress_float)
SUPPRESS(double, int64_t, suppress_double)

/* (boxes, order, threshold): the result holds the kept ones, and in its last place how many. */
int tv_nms(const tg_call *call, void *context)
{
    const tg_view *boxes = tv_tensor(call, 0), *order = tv_tensor(call, 1), *out = call->outs;
    int wide = boxes->dtype == tv_float64;
    double most = tv_number(call, 2);
    if (!tv_dense(boxes, wide ? tv_float64 : tv_float32) || !tv_dense(order, tv_int64) || !tv_dense(out, tv_int64))
        return TG_DECLINED;
    int64_t n = boxes->shape[0], *kept = out->data;
    const int64_t *ranks = order->data;
    for (int64_t i = 0; i < n; i++)
        if (ranks[i] < 0 || ranks[i] >= n)
            return tv_fails("nms: the order names a box that is not there");
    size_t size = wide ? sizeof(double) : sizeof(float);
    char *memory = malloc((size_t)n * (6 * size + sizeof(int64_t)) + 1);
    if (memory == NULL)
        return tv_out_of_memory();
    int64_t *places = (int64_t *)memory;
    void *rows = places + n, *gone = (char *)rows + 5 * size * (size_t)n;
    if (wide)
        kept[n] = suppress_double(boxes->data, ranks, n, most, rows, gone, places, kept);
    else {
        float limit = (float)most; /* the largest that is not above the threshold */
        if ((double)limit > most)
            limit = nextafterf(limit, -INFINITY);
        kept[n] = suppress_float(boxes->data, ranks, n, limit, rows, gone, places, kept);
    }
    memset(kept + kept[n], 0, (size_t)(n - kept[n]) * sizeof(int64_t));
    free(memory);
    return 0;
}
