/* Convolution and its adjoints in input and weight, as products with the windows' elements laid out
 * as a matrix (Chellapilla, Puri & Simard, 2006). That matrix is never in memory: panels of it are
 * gathered where the product's microkernel wants them next, as implicit GEMM does (Chetlur et al.,
 * cuDNN, 2014). Groups of one channel and few maps are too thin for that and have direct tgc_convolution_loops. */
#include "convolution_job.h"
#include "convolution_last.h"

#include <string.h>

#if defined(__FMA__)
#define FMA_F __builtin_fmaf
#define FMA_D __builtin_fma
#else
#define FMA_F(a, b, c) ((c) + (a) * (b))
#define FMA_D FMA_F
#endif

#define CV_T float
#define CV_FMA FMA_F
#define CV(name) name##_f32
#include "convolution_rows.h"
#define CV_T double
#define CV_FMA FMA_D
#define CV(name) name##_f64
#include "convolution_rows.h"

#define GRAIN (1 << 19)      /* multiplications of a task */
#define MOST_TASKS 64
#define BLOCK_PANELS 16
#define FEW_MAPS 4           /* per channel: by direct loops */
#define MOST_PARTS 16        /* of a sum over positions */
#define PARTIAL_SUMS (1 << 22) /* held at once */

#define LOOPS(type)                                                                                    \
    {                                                                                                  \
        &TGC(tgc_engine_##type), gather_##type, scatter_##type, correlate_##type, spread_##type,       \
            inner_##type, sum_##type                                                                   \
    }

static const tgc_convolution_loops loops_f32 = LOOPS(f32), loops_f64 = LOOPS(f64);

static int64_t longest(const tgc_convolution *j)
{
    return tgc_smaller(j->of->engine->kc, TGC_LONGEST);
}

static int fails(const char *op, const tg_view *a, const tg_view *b)
{
    return tgc_error("RuntimeError",
                     "%s: the shapes do not belong to one convolution: %d and %d dimensions, %lld and %lld elements; "
                     "check shape, stride, padding, dilation and groups",
                     op, (int)a->ndim, (int)b->ndim, (long long)a->numel, (long long)b->numel);
}

/* Read the geometry; x, weight and y are the shapes of input, weight and result. */
static int begin(tgc_convolution *j, const char *op, const tg_view *any, int ndim, const int64_t *x,
                 const int64_t *weight, const int64_t *y, const tg_argument *args)
{
    tgc_windows *w = &j->w;
    w->op = op;
    w->dtype = any->dtype == TGC_FLOAT64 ? TGC_FLOAT64 : TGC_FLOAT32;
    j->of = w->dtype == TGC_FLOAT64 ? &loops_f64 : &loops_f32;
    j->item = tgc_itemsize[w->dtype];
    w->images = x[0], w->channels = x[1], w->maps = weight[0], w->groups = args[3].value.i;
    w->taps = w->positions = w->area = w->grown_area = 1;
    w->ndim = ndim > 2 ? ndim - 2 : 1;
    if (w->groups < 1 || w->maps % w->groups || w->channels != weight[1] * w->groups ||
        y[0] != w->images || y[1] != w->maps)
        return -1;
    for (int d = 0; d < 3; d++)
        if (args[d].count != ndim - 2)
            return -1;
    for (int d = 0; d < w->ndim; d++) {
        int given = ndim > 2;
        w->size[d] = given ? x[d + 2] : 1;
        w->kernel[d] = given ? weight[d + 2] : 1;
        w->out[d] = given ? y[d + 2] : 1;
        w->stride[d] = given ? args[0].value.ints[d] : 1;
        w->padding[d] = given ? args[1].value.ints[d] : 0;
        w->dilation[d] = given ? args[2].value.ints[d] : 1;
        w->grown[d] = w->size[d] + 2 * w->padding[d];
        if (w->stride[d] < 1 || w->padding[d] < 0 || w->dilation[d] < 1)
            return -1;
        if (w->out[d] > 0 && w->kernel[d] > 0 &&
            (w->out[d] - 1) * w->stride[d] + (w->kernel[d] - 1) * w->dilation[d] >= w->grown[d])
            return -1;
        w->padded |= w->padding[d] > 0;
        w->taps *= w->kernel[d];
        w->positions *= w->out[d];
        w->area *= w->size[d];
        w->grown_area *= w->grown[d];
    }
    j->rows = w->channels / w->groups * w->taps;
    j->depth = w->maps / w->groups;
    return 0;
}

static int is_thin(const tgc_convolution *j)
{
    return j->w.channels == j->w.groups && j->depth < FEW_MAPS;
}

static int take_input(tgc_convolution *j, const tg_view *input)
{
    if (!is_thin(j))
        return TGC(tgc_operand_take)(&j->input, input, &j->w, 1, input->ndim);
    return TGC(tgc_operand_defer)(&j->input, input, &j->w, input->ndim);
}

/* Lay out the addresses in `input`, for `channels` of it. */
static int take_places(tgc_convolution *j, int64_t channels)
{
    size_t bytes = (size_t)(channels * j->w.taps) * sizeof *j->places;
    int last = j->w.ndim - 1;
    j->step = j->input.phase ? 1 : j->w.stride[last] * j->input.step[last];
    if (last > 0 && j->step == 1 && j->w.stride[last - 1] == 1 && j->input.step[last - 1] >= j->w.out[last] &&
        j->input.step[last - 1] <= TGC_JOINED / 2)
        j->pitch = j->input.step[last - 1];
    j->places = tgc_scratch(bytes);
    if (j->places == NULL)
        return tgc_no_memory(j->w.op, bytes);
    TGC(tgc_window_places)(&j->w, &j->input, channels, j->places);
    return 0;
}

static int finish(tgc_convolution *j, const tg_view *out, int status)
{
    if (status == 0 && atomic_load(&j->failed))
        status = tgc_no_memory(j->w.op, (size_t)j->w.grown_area * (size_t)j->item);
    tgc_scratch_free(j->packed);
    tgc_scratch_free(j->sums);
    tgc_scratch_free(j->places);
    tgc_scratch_free(j->bias);
    tgc_scratch_free(j->input.memory);
    tgc_scratch_free(j->weight.memory);
    tgc_scratch_free(j->grad.memory);
    TGC(tgc_result_finish)(out, j->out);
    return status;
}

static void run(tgc_convolution *j, int64_t units, double products, tgc_task task)
{
    double each = units > 0 ? products / (double)units : 0;
    j->units = units;
    j->tasks = tgc_tasks(units, each < GRAIN ? (int64_t)(GRAIN / (each + 1)) + 1 : 1, MOST_TASKS);
    tgc_parallel(j->tasks, task, j);
}

static double products(const tgc_convolution *j)
{
    return (double)j->w.images * (double)j->w.positions * (double)j->w.maps * (double)j->rows;
}

/* Weights in panels ---------------------------------------------------------------------------- */

static int64_t panel_bytes(const tgc_convolution *j)
{
    return (j->of->engine->mr * longest(j) * j->item + TGC_PANEL_SLACK + 63) / 64 * 64;
}

/* A product's left factor: by segment, by run of `depth`, by panel of rows. Not to be asked for tile by
 * tile: its divisions take some processors as long as a tenth of one. */
static char *weight_panel(const tgc_convolution *j, int64_t depth, int64_t segment, int64_t p, int64_t i)
{
    int64_t across = tgc_panels(j->segment_rows, j->of->engine->mr), runs = tgc_panels(depth, longest(j));
    return j->packed + ((segment * runs + p / longest(j)) * across + i / j->of->engine->mr) * panel_bytes(j);
}

static void pack_forward(int64_t segment, void *context)
{
    const tgc_convolution *j = context;
    const tgc_engine *e = j->of->engine;
    const char *from = j->weight.data + segment * j->depth * j->rows * j->item;
    for (int64_t p = 0; p < j->rows; p += longest(j))
        for (int64_t i = 0; i < j->depth; i += e->mr)
            e->pack_a(weight_panel(j, j->rows, segment, p, i), from + (i * j->rows + p) * j->item,
                      tgc_smaller(j->depth - i, e->mr), tgc_smaller(j->rows - p, longest(j)), j->rows, 1);
}

static void pack_adjoint(int64_t segment, void *context)
{
    const tgc_convolution *j = context;
    const tgc_engine *e = j->of->engine;
    const char *from = j->weight.data + (segment / j->blocks * j->depth * j->rows +
                                         segment % j->blocks * j->segment_rows) * j->item;
    for (int64_t p = 0; p < j->depth; p += longest(j))
        for (int64_t i = 0; i < j->segment_rows; i += e->mr)
            e->pack_a(weight_panel(j, j->depth, segment, p, i), from + (p * j->rows + i) * j->item,
                      tgc_smaller(j->segment_rows - i, e->mr), tgc_smaller(j->depth - p, longest(j)), 1, j->rows);
}

static int pack(tgc_convolution *j, int64_t depth, tgc_task task)
{
    int64_t across = tgc_panels(j->segment_rows, j->of->engine->mr);
    size_t bytes = (size_t)(j->segments * tgc_panels(depth, longest(j)) * across * panel_bytes(j));
    j->packed = tgc_scratch(bytes);
    if (j->packed == NULL)
        return tgc_no_memory(j->w.op, bytes);
    if (j->segments * j->segment_rows * depth < GRAIN / 8)
        for (int64_t segment = 0; segment < j->segments; segment++)
            task(segment, j);
    else
        tgc_parallel(j->segments, task, j);
    return 0;
}

/* The result ----------------------------------------------------------------------------------- */

static void forward_task(int64_t task, void *context)
{
    const tgc_convolution *j = context;
    const tgc_windows *w = &j->w;
    const tgc_engine *e = j->of->engine;
    _Alignas(64) char panel[TGC_PANEL_BYTES + TGC_PANEL_SLACK];
    tgc_run runs[TGC_LONGEST];
    int64_t kc = longest(j), column_panels = tgc_panels(w->positions, e->nr), weight_bytes = panel_bytes(j);
    int64_t end = tgc_begin(j->units, j->tasks, task + 1, 1);
    for (int64_t unit = tgc_begin(j->units, j->tasks, task, 1); unit < end; unit++) {
        int64_t block = unit % j->blocks, group = unit / j->blocks % w->groups, image = unit / j->blocks / w->groups;
        int64_t from = column_panels * block / j->blocks * e->nr;
        int64_t last = tgc_smaller(column_panels * (block + 1) / j->blocks * e->nr, w->positions);
        const char *x = j->input.data +
                        (image * j->input.image + group * (w->channels / w->groups) * j->input.channel) * j->item;
        char *out = j->out + (image * w->maps + group * j->depth) * w->positions * j->item;
        for (int64_t p = 0; p < j->rows; p += kc) {
            int64_t k = tgc_smaller(j->rows - p, kc);
            const char *weights = weight_panel(j, j->rows, group, p, 0);
            for (int64_t at = from; at < last; at += e->nr) {
                int64_t cols = tgc_smaller(last - at, e->nr);
                int count = TGC(tgc_window_runs)(w, &j->input, at, cols, runs);
                j->of->gather(panel, e->nr, x, j->places + p, k, runs, count, j->step);
                const char *weight = weights;
                for (int64_t i = 0; i < j->depth; i += e->mr, weight += weight_bytes) {
                    int64_t rows = tgc_smaller(j->depth - i, e->mr);
                    char *to = out + (i * w->positions + at) * j->item;
                    e->kernel(rows, cols, k, weight, panel, to, w->positions, p > 0, &(tgc_ahead){panel, 0});
                    if (p + k == j->rows)
                        tgc_add_bias(j, to, group * j->depth + i, rows, cols, w->positions);
                }
            }
        }
    }
}

/* Everything but the weight is still to be taken. */
static int forward(tgc_convolution *j, const tg_view *input, const tg_view *out)
{
    tgc_windows *w = &j->w;
    int status;
    if (!is_thin(j) && TGC(tgc_convolution_same)(j, input, out, &status))
        return status;
    if (take_input(j, input) < 0 || take_places(j, w->channels / w->groups) < 0 ||
        (j->out = TGC(tgc_result_take)(out, w)) == NULL)
        return -1;
    if (is_thin(j)) {
        run(j, w->images * w->maps, products(j), TGC(tgc_thin_forward));
        return 0;
    }
    j->segments = w->groups;
    j->segment_rows = j->depth;
    if (pack(j, j->rows, pack_forward) < 0)
        return -1;
    int64_t column_panels = tgc_panels(w->positions, j->of->engine->nr);
    j->blocks = tgc_panels(column_panels, BLOCK_PANELS);
    while (w->images * w->groups * j->blocks < MOST_TASKS / 4 && j->blocks < column_panels)
        j->blocks = tgc_smaller(2 * j->blocks, column_panels);
    run(j, w->images * w->groups * j->blocks, products(j), forward_task);
    return 0;
}

/* The context tells that there is a bias behind the weight. */
static int convolution(const tg_call *call, void *context)
{
    const tg_view *input = call->args[0].value.tensors, *weight = call->args[1].value.tensors, *out = call->outs;
    const tg_view *bias = context != NULL ? call->args[2].value.tensors : NULL;
    tgc_convolution j = {0};
    if (out->numel == 0)
        return 0;
    if (begin(&j, "convolution", input, input->ndim, input->shape, weight->shape, out->shape,
              call->args + (bias != NULL ? 3 : 2)) < 0)
        return fails("convolution", input, weight);
    if (j.rows == 0 && bias != NULL)
        return TG_DECLINED;
    if (j.rows == 0) {
        memset(out->data, 0, (size_t)(out->numel * tgc_itemsize[out->dtype]));
        return 0;
    }
    if (bias != NULL && (j.bias = TGC(tgc_bias_take)(bias, &j.w)) == NULL)
        return -1;
    int status = TGC(tgc_operand_take)(&j.weight, weight, &j.w, 0, 0);
    return finish(&j, out, status < 0 ? status : forward(&j, input, out));
}

/* The input as the unknown --------------------------------------------------------------------- */

char *TGC(tgc_planes_begin)(tgc_convolution *j, int64_t channels, char *to)
{
    size_t bytes = (size_t)(channels * j->input.channel * j->item);
    char *target = j->w.padded || j->input.phase ? tgc_scratch(bytes) : to;
    if (target == NULL)
        atomic_store(&j->failed, 1);
    else
        memset(target, 0, bytes);
    return target;
}

void TGC(tgc_planes_end)(const tgc_convolution *j, int64_t channels, char *to, char *target)
{
    if (target == to)
        return;
    for (int64_t c = 0; c < channels; c++)
        TGC(tgc_operand_crop)(to + c * j->w.area * j->item, target + c * j->input.channel * j->item, &j->w, &j->input);
    tgc_scratch_free(target);
}

static void adjoint_task(int64_t task, void *context)
{
    tgc_convolution *j = context;
    const tgc_windows *w = &j->w;
    const tgc_engine *e = j->of->engine;
    _Alignas(64) char panel[TGC_PANEL_BYTES + TGC_PANEL_SLACK], tile[TGC_TILE_BYTES];
    tgc_run runs[TGC_LONGEST];
    int64_t kc = longest(j), weight_bytes = panel_bytes(j), end = tgc_begin(j->units, j->tasks, task + 1, 1);
    for (int64_t unit = tgc_begin(j->units, j->tasks, task, 1); unit < end; unit++) {
        int64_t segment = unit % j->segments, image = unit / j->segments, group = segment / j->blocks;
        char *to = j->out + unit * j->block_channels * w->area * j->item;
        char *target = TGC(tgc_planes_begin)(j, j->block_channels, to);
        if (target == NULL)
            return;
        for (int64_t p = 0; p < j->depth; p += kc) {
            int64_t k = tgc_smaller(j->depth - p, kc);
            const char *grad = j->grad.data +
                               (image * j->grad.image + (group * j->depth + p) * j->grad.channel) * j->item;
            const char *weights = weight_panel(j, j->depth, segment, p, 0);
            for (int64_t at = 0; at < w->positions; at += e->nr) {
                int64_t cols = tgc_smaller(w->positions - at, e->nr);
                int count = TGC(tgc_window_runs)(w, &j->input, at, cols, runs);
                e->pack_b(panel, grad + at * j->item, cols, k, 1, j->grad.channel);
                const char *weight = weights;
                for (int64_t i = 0; i < j->segment_rows; i += e->mr, weight += weight_bytes) {
                    int64_t rows = tgc_smaller(j->segment_rows - i, e->mr);
                    e->kernel(rows, cols, k, weight, panel, tile, e->nr, 0, &(tgc_ahead){panel, 0});
                    j->of->scatter(target, j->places + i, rows, tile, e->nr, runs, count, j->step);
                }
            }
        }
        TGC(tgc_planes_end)(j, j->block_channels, to, target);
    }
}

/* With strides of 1 the adjoint is a convolution too: of grad, padded by what the windows reach. */
static int may_be_convolution(const tgc_convolution *j)
{
    const tgc_windows *w = &j->w;
    for (int d = 0; d < w->ndim; d++) {
        int64_t reach = (w->kernel[d] - 1) * w->dilation[d];
        if (w->stride[d] != 1 || w->padding[d] > reach || w->out[d] + reach != w->grown[d])
            return 0;
    }
    return 1;
}

static int is_convolution(const tgc_convolution *j)
{
    return may_be_convolution(j)
           && (j->depth == 1 || (!is_thin(j) && TGC(tgc_cost_as_convolution)(j) < 1.1 * TGC(tgc_cost_of_sums)(j)));
}

/* Exchange maps and channels of the weights, and the taps' order. */
static void turn_task(int64_t map, void *context)
{
    const tgc_convolution *j = context;
    int64_t taps = j->w.taps, inside = j->rows / taps, group = map / inside;
    for (int64_t i = 0; i < j->depth; i++) {
        const char *from = j->weight.data + ((group * j->depth + i) * j->rows + map % inside * taps) * j->item;
        char *to = j->packed + (map * j->depth + i) * taps * j->item;
        for (int64_t t = 0; t < taps; t++)
            if (j->item == 8)
                ((double *)to)[t] = ((const double *)from)[taps - 1 - t];
            else
                ((float *)to)[t] = ((const float *)from)[taps - 1 - t];
    }
}

static int turned(tgc_convolution *j, const tg_view *grad, const tg_view *out)
{
    tgc_windows *w = &j->w;
    size_t bytes = (size_t)(w->maps * j->rows * j->item);
    char *weight = j->packed = tgc_scratch(bytes);
    if (weight == NULL)
        return tgc_no_memory(w->op, bytes);
    if (w->maps * j->rows < GRAIN / 8)
        for (int64_t map = 0; map < w->channels; map++)
            turn_task(map, j);
    else
        tgc_parallel(w->channels, turn_task, j);
    tgc_scratch_free(j->weight.memory);
    j->weight.data = j->weight.memory = weight;
    j->packed = NULL;
    int64_t channels = w->channels, inside = j->rows / w->taps, positions = w->positions;
    w->channels = w->maps;
    w->maps = channels;
    w->positions = w->area;
    w->area = positions;
    w->grown_area = 1;
    w->padded = 0;
    for (int d = 0; d < w->ndim; d++) {
        int64_t size = w->size[d];
        w->size[d] = w->out[d];
        w->out[d] = size;
        w->padding[d] = (w->kernel[d] - 1) * w->dilation[d] - w->padding[d];
        w->grown[d] = w->size[d] + 2 * w->padding[d];
        w->grown_area *= w->grown[d];
        w->padded |= w->padding[d] > 0;
    }
    j->rows = j->depth * w->taps;
    j->depth = inside;
    return forward(j, grad, out);
}

static int adjoint(tgc_convolution *j, const tg_view *weight, const tg_view *grad, const tg_view *out)
{
    tgc_windows *w = &j->w;
    int64_t channels = w->channels / w->groups;
    if (TGC(tgc_operand_take)(&j->weight, weight, w, 0, 0) < 0)
        return -1;
    if (is_convolution(j))
        return turned(j, grad, out);
    if (TGC(tgc_operand_take)(&j->grad, grad, w, 0, 2) < 0 || (j->out = TGC(tgc_result_take)(out, w)) == NULL)
        return -1;
    /* The grown planes that are added into. */
    int64_t area = 1;
    j->input.phase = TGC(tgc_operand_phase)(w);
    for (int d = w->ndim - 1; d >= 0; d--) {
        j->input.step[d] = area;
        area *= d == w->ndim - 1 && j->input.phase ? j->input.phase * w->stride[d] : w->grown[d];
    }
    j->input.channel = area;
    if (take_places(j, channels) < 0)
        return -1;
    if (is_thin(j)) {
        run(j, w->images * w->channels, products(j), TGC(tgc_thin_adjoint));
        return 0;
    }
    j->block_channels = channels;
    for (int64_t parts = 2; w->images * w->groups * (channels / j->block_channels) < MOST_TASKS / 4 &&
                            parts <= channels && channels / parts * w->taps >= 4 * j->of->engine->mr; parts++)
        if (channels % parts == 0)
            j->block_channels = channels / parts;
    j->blocks = channels / j->block_channels;
    j->segments = w->groups * j->blocks;
    j->segment_rows = j->block_channels * w->taps;
    if (pack(j, j->depth, pack_adjoint) < 0)
        return -1;
    run(j, w->images * j->segments, products(j), adjoint_task);
    return 0;
}

static int adjoint_in_planes(const tg_call *call, const tg_view *out)
{
    const tg_view *weight = call->args[0].value.tensors, *grad = call->args[1].value.tensors;
    tgc_convolution j = {0};
    if (grad->ndim != out->ndim || weight->ndim != out->ndim ||
        begin(&j, "convolution_input", weight, out->ndim, out->shape, weight->shape, grad->shape, call->args + 3) < 0)
        return fails("convolution_input", weight, grad);
    if (weight->numel == 0 || grad->numel == 0) {
        memset(out->data, 0, (size_t)(out->numel * tgc_itemsize[out->dtype]));
        return 0;
    }
    if (out == call->outs && !tgc_is_contiguous(out, 0))
        return TGC(tgc_convolution_last_input)(call);
    if (out == call->outs && !is_thin(&j) && TGC(tgc_pays_by_pixels)(&j, call, may_be_convolution(&j)))
        return TGC(tgc_convolution_by_pixels)(call);
    return finish(&j, out, adjoint(&j, weight, grad, out));
}

static int convolution_input(const tg_call *call, void *context)
{
    (void)context;
    if (call->outs->numel == 0)
        return 0;
    if (tgc_is_contiguous(call->outs, 0) || TGC(tgc_convolution_last_serves)(call))
        return adjoint_in_planes(call, call->outs);
    return TGC(tgc_turn_result)(call, "convolution_input", adjoint_in_planes);
}

/* The weight as the unknown -------------------------------------------------------------------- */

/* Panels of grad over positions l .. l+k-1 of all images. */
static void pack_grad(const tgc_convolution *j, char *to, int64_t group, int64_t l, int64_t k)
{
    const tgc_engine *e = j->of->engine;
    for (int64_t i = 0; i < j->depth; i += e->mr, to += panel_bytes(j)) {
        for (int64_t done = 0; done < k;) {
            int64_t image = (l + done) / j->w.positions, at = (l + done) % j->w.positions;
            int64_t n = tgc_smaller(k - done, j->w.positions - at);
            const char *from = j->grad.data +
                               (image * j->grad.image + (group * j->depth + i) * j->grad.channel + at) * j->item;
            e->pack_a(to + done * e->mr * j->item, from, tgc_smaller(j->depth - i, e->mr), n, j->grad.channel, 1);
            done += n;
        }
    }
}

static void weight_task(int64_t task, void *context)
{
    tgc_convolution *j = context;
    const tgc_windows *w = &j->w;
    const tgc_engine *e = j->of->engine;
    _Alignas(64) char lines[TGC_PANEL_BYTES], panel[TGC_PANEL_BYTES + TGC_PANEL_SLACK];
    tgc_run runs[TGC_LONGEST];
    int64_t kc = longest(j), all = w->images * w->positions, column_panels = tgc_panels(j->rows, e->nr);
    int64_t left_bytes = panel_bytes(j);
    char *grads = tgc_scratch((size_t)(tgc_panels(j->depth, e->mr) * left_bytes));
    if (grads == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    int64_t block = task % j->blocks, part = task / j->blocks % j->parts, group = task / j->blocks / j->parts;
    int64_t from = column_panels * block / j->blocks * e->nr;
    int64_t to = tgc_smaller(column_panels * (block + 1) / j->blocks * e->nr, j->rows);
    int64_t first = tgc_begin(all, j->parts, part, kc), last = tgc_begin(all, j->parts, part + 1, kc);
    char *sums = (j->sums != NULL ? j->sums : j->out) +
                 (part * w->groups + group) * j->depth * j->rows * j->item;
    const char *x = j->input.data + group * (w->channels / w->groups) * j->input.channel * j->item;
    for (int64_t l = first; l < last; l += kc) {
        int64_t k = tgc_smaller(last - l, kc);
        int count = TGC(tgc_window_runs)(w, &j->input, l, k, runs);
        pack_grad(j, grads, group, l, k);
        for (int64_t at = from; at < to; at += e->nr) {
            int64_t cols = tgc_smaller(to - at, e->nr);
            j->of->gather(lines, kc, x, j->places + at, cols, runs, count, j->step);
            e->pack_b(panel, lines, cols, k, kc, 1);
            const char *left = grads;
            for (int64_t i = 0; i < j->depth; i += e->mr, left += left_bytes)
                e->kernel(tgc_smaller(j->depth - i, e->mr), cols, k, left, panel,
                          sums + (i * j->rows + at) * j->item, j->rows, l > first, &(tgc_ahead){panel, 0});
        }
    }
    tgc_scratch_free(grads);
}

static int by_weight(tgc_convolution *j, const tg_view *input, const tg_view *grad, const tg_view *out)
{
    tgc_windows *w = &j->w;
    if (take_input(j, input) < 0 || TGC(tgc_operand_take)(&j->grad, grad, w, 0, 2) < 0 ||
        take_places(j, w->channels / w->groups) < 0 || (j->out = TGC(tgc_result_take)(out, w)) == NULL)
        return -1;
    if (is_thin(j)) {
        j->blocks = tgc_panels(w->taps, TGC_TAPS_AT_ONCE);
        run(j, w->maps * j->blocks, products(j), TGC(tgc_thin_weight));
        return 0;
    }
    int64_t all = w->images * w->positions, weights = w->maps * j->rows;
    int64_t wanted = (int64_t)(products(j) / (2 * GRAIN)) + 1;
    j->blocks = tgc_smaller(tgc_panels(j->rows, 4 * j->of->engine->nr), wanted);
    j->parts = tgc_smaller(wanted / (j->blocks * w->groups), MOST_PARTS / j->blocks);
    j->parts = tgc_smaller(tgc_smaller(j->parts, PARTIAL_SUMS / weights), tgc_panels(all, longest(j)));
    j->parts = j->parts < 1 ? 1 : j->parts;
    if (j->parts > 1) {
        size_t bytes = (size_t)(j->parts * weights * j->item);
        j->sums = tgc_scratch(bytes);
        if (j->sums == NULL)
            return tgc_no_memory(w->op, bytes);
    }
    tgc_parallel(w->groups * j->parts * j->blocks, weight_task, j);
    if (j->parts > 1)
        j->of->sum(j->out, j->sums, weights, j->parts);
    return 0;
}

static int convolution_weight(const tg_call *call, void *context)
{
    (void)context;
    const tg_view *input = call->args[0].value.tensors, *grad = call->args[1].value.tensors, *out = call->outs;
    tgc_convolution j = {0};
    if (out->numel == 0)
        return 0;
    if (input->ndim != out->ndim || grad->ndim != out->ndim ||
        begin(&j, "convolution_weight", input, out->ndim, input->shape, out->shape, grad->shape, call->args + 3) < 0)
        return fails("convolution_weight", input, grad);
    if (input->numel == 0 || grad->numel == 0) {
        memset(out->data, 0, (size_t)(out->numel * tgc_itemsize[out->dtype]));
        return 0;
    }
    return finish(&j, out, by_weight(&j, input, grad, out));
}

#define FOR_DTYPE(dtype)                                                   \
    {"convolution", dtype, TGC_CALL, convolution, NULL},                   \
        {"convolution_biased", dtype, TGC_CALL, convolution, ""},          \
        {"convolution_input", dtype, TGC_CALL, convolution_input, NULL},   \
        {"convolution_weight", dtype, TGC_CALL, convolution_weight, NULL}

const tgc_kernel TGC(tgc_table_convolution)[] = {
    FOR_DTYPE("float32"),
    FOR_DTYPE("float64"),
    FOR_DTYPE("float16"),
    FOR_DTYPE("bfloat16"),
    {0}};
