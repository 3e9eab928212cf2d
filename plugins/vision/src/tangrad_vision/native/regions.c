/* Regions of a feature map brought to one size, and the gradients by the map. */

#include "vision.h"

#include "levels.h"

#include <stdio.h>

enum { ALIGNED_SAMPLES, WHOLE_CELLS };

typedef struct tv_regions {
    const char *op;
    int64_t count, batch, channels, rows, columns, height, width, ratio;
    double scale;
    int aligned, kind, sensitive;
} tv_regions;

enum { TILE = 16, GROUP = 16 };
#define FARTHEST 16777216.0 /* cells from the origin: farther out, float32 has no halves of cells */

static void *tv_host(void)
{
    static void *host;
    if (host == NULL) {
        PyGILState_STATE state = PyGILState_Ensure();
        host = tv_api->device("cpu", 0);
        PyGILState_Release(state);
    }
    return host;
}

static int tv_box_error(const char *op, int64_t k, double picture, double x1, double y1, double x2, double y2,
                        int64_t batch)
{
    char text[320];
    if (batch >= 0)
        snprintf(text, sizeof text,
                 "%s: rois name pictures beyond the batch of %lld: box %lld is of picture %g; give numbers from 0 to %lld",
                 op, (long long)batch, (long long)k, picture, (long long)batch - 1);
    else
        snprintf(text, sizeof text,
                 "%s: box %lld is (%g, %g, %g, %g), which is not finite or farther than 2^24 cells from the map", op,
                 (long long)k, x1, y1, x2, y2);
    return tv_fails(text);
}

#define T float
#define NAME(x) x##_float
#define LANES 64
#include "regions.h"

#define T double
#define NAME(x) x##_double
#define LANES 32
#include "regions.h"

static const struct {
    const char *name;
    int kind, sensitive;
} OPS[] = {{"roi_align", ALIGNED_SAMPLES, 0}, {"ps_roi_align", ALIGNED_SAMPLES, 1}, {"ps_roi_pool", WHOLE_CELLS, 1}};

static int run(const tv_regions *w, const tg_view *maps, const tg_view *boxes, const tg_view *results, int back)
{
    int wide = maps->dtype == tv_float64, dtype = wide ? tv_float64 : tv_float32;
    if (!tv_dense(maps, dtype) || !tv_dense(boxes, dtype) || !tv_dense(results, dtype))
        return TG_DECLINED;
    if (w->rows * w->columns == 0)
        return tv_fails("regions: the map has no cells");
    return wide ? run_double(w, maps->data, boxes->data, results->data, back)
                : run_float(w, maps->data, boxes->data, results->data, back);
}

/* (input, boxes, height, width, scale, ratio, aligned) */
int tv_roi_align(const tg_call *call, void *context)
{
    const tg_view *maps = tv_tensor(call, 0), *boxes = tv_tensor(call, 1);
    int op = (int)(intptr_t)context;
    tv_regions w = {OPS[op].name, boxes->shape[0], maps->shape[0], maps->shape[1], maps->shape[2], maps->shape[3],
                    tv_integer(call, 2), tv_integer(call, 3), tv_integer(call, 5), tv_number(call, 4),
                    (int)tv_integer(call, 6), OPS[op].kind, OPS[op].sensitive};
    return run(&w, maps, boxes, call->outs, 0);
}

/* (gradient, boxes, batch, channels, rows, columns, scale, ratio, aligned) */
int tv_roi_align_backward(const tg_call *call, void *context)
{
    const tg_view *gradient = tv_tensor(call, 0), *boxes = tv_tensor(call, 1);
    int op = (int)(intptr_t)context;
    tv_regions w = {OPS[op].name, boxes->shape[0], tv_integer(call, 2), tv_integer(call, 3), tv_integer(call, 4),
                    tv_integer(call, 5), gradient->shape[2], gradient->shape[3], tv_integer(call, 7),
                    tv_number(call, 6), (int)tv_integer(call, 8), OPS[op].kind, OPS[op].sensitive};
    return run(&w, call->outs, boxes, gradient, 1);
}

/* (input, boxes, height, width, scale) */
int tv_roi_pool(const tg_call *call, void *context)
{
    const tg_view *maps = tv_tensor(call, 0), *boxes = tv_tensor(call, 1), *out = &call->outs[0], *at = &call->outs[1];
    int wide = maps->dtype == tv_float64, dtype = wide ? tv_float64 : tv_float32;
    if (!tv_dense(maps, dtype) || !tv_dense(boxes, dtype) || !tv_dense(out, dtype) || !tv_dense(at, tv_int32))
        return TG_DECLINED;
    tv_regions w = {"roi_pool", boxes->shape[0], maps->shape[0], maps->shape[1], maps->shape[2], maps->shape[3],
                    tv_integer(call, 2), tv_integer(call, 3), 0, tv_number(call, 4)};
    return wide ? pool_double(&w, maps->data, boxes->data, out->data, at->data)
                : pool_float(&w, maps->data, boxes->data, out->data, at->data);
}
