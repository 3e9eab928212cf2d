/* Images and volumes sampled at positions, and the gradients by both. Channels are the lanes: where they
 * do not lie side by side the image is turned first, unless few of its elements are looked at. */
#include "copies/copying.h"
#include "vector_bytes.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define RUN 128         /* positions whose taps stay in the first-level cache */
#define MOST_TAPS 16
#define PART 64         /* channels whose gradients one task adds up */
#define GRAIN 16384     /* products worth a thread of their own */
#define BUFFER 32768    /* elements of results before they are turned */
#define FEW 8           /* elements of an image for one position, from which it is not turned */

typedef struct {
    int dims, taps, each; /* taps in all, and along a dimension */
    int align, turned;    /* results go to where channels are planes */
    char mode, padding;   /* linear, nearest, cubic; zeros, border, reflection */
    int64_t images, channels, positions, area, size[3];
    const char *input, *grid, *grad;
    char *out, *sums;
    int64_t image, apart, steps[3]; /* strides of `input`: of images, channels and the rest */
    int64_t dense[3];               /* strides of `sums` */
    int64_t piece, pieces, block;   /* positions of a task, tasks of an image, positions at once */
    int64_t parts;
    _Atomic int failed;
} sampling;

#define GS_T float
#define GS_WHOLE int32_t
#define GS_FLOOR floorf
#define GS_ROUND rintf
#define GS_FMOD fmodf
#define GS(name) name##_f32
#include "grid_sampling_rows.h"
#define GS_T double
#define GS_WHOLE int64_t
#define GS_FLOOR floor
#define GS_ROUND rint
#define GS_FMOD fmod
#define GS(name) name##_f64
#include "grid_sampling_rows.h"

/* Strides of (N, C, ...) in bytes where channels lie side by side. */
static void last_strides(const tg_view *like, int64_t item, int64_t *to)
{
    int64_t step = item * like->shape[1];
    to[1] = item;
    for (int d = like->ndim - 1; d >= 2; d--) {
        to[d] = step;
        step *= like->shape[d];
    }
    to[0] = step;
}

static int lies(const tg_view *view, int last)
{
    int64_t wanted[TG_MAX_DIMS], step = 1;
    if (last)
        last_strides(view, 1, wanted);
    else
        for (int d = view->ndim - 1; d >= 0; d--) {
            wanted[d] = step;
            step *= view->shape[d];
        }
    for (int d = 0; d < view->ndim; d++)
        if (view->shape[d] != 1 && view->strides[d] != wanted[d])
            return 0;
    return 1;
}

/* A tensor with channels side by side; NULL with an exception set. */
static const char *turn(const char *op, const tg_view *view, void **memory)
{
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
    const int64_t item = tgc_itemsize[view->dtype];
    if (lies(view, 1))
        return view->data;
    *memory = tgc_scratch((size_t)(view->numel * item));
    if (*memory == NULL) {
        tgc_no_memory(op, (size_t)(view->numel * item));
        return NULL;
    }
    last_strides(view, item, to);
    tgc_byte_strides(view, from);
    TGC(tgc_move_region)(view->ndim, view->shape, *memory, to, view->data, from, (int)item);
    return *memory;
}

/* Read the arguments from `input` on: input, grid, mode, padding, align_corners. */
static int begin(sampling *job, const char *op, const tg_argument *args, void **memory)
{
    const tg_view *input = args[0].value.tensors, *grid = args[1].value.tensors;
    job->dims = input->ndim - 2;
    if ((job->dims != 2 && job->dims != 3) || grid->ndim != input->ndim || grid->shape[0] != input->shape[0]
        || grid->shape[grid->ndim - 1] != job->dims)
        return tgc_error("RuntimeError", "%s: expected images or volumes and a grid of positions in them", op);
    const char *mode = args[2].value.text;
    job->mode = mode[0] == 'n' ? 'n' : mode[2] == 'c' ? 'c' : 'l';
    job->padding = args[3].value.text[0];
    job->align = args[4].value.i != 0;
    job->each = job->mode == 'n' ? 1 : job->mode == 'l' ? 2 : 4;
    job->taps = job->area = job->positions = 1;
    job->images = input->shape[0], job->channels = input->shape[1];
    if (job->mode == 'c' && job->dims == 3)
        return tgc_error("RuntimeError", "%s: volumes have no bicubic interpolation", op);
    int64_t step = job->channels;
    for (int d = job->dims - 1; d >= 0; d--) {
        job->size[d] = input->shape[d + 2];
        job->dense[d] = step;
        step *= job->size[d];
        job->area *= job->size[d];
        job->taps *= job->each;
        job->positions *= grid->shape[d + 1];
        if (job->size[d] < 1 || job->size[d] > 1 << 24) /* whole numbers of both types */
            return TG_DECLINED;
    }
    job->grid = tgc_in_order(op, grid, memory, TGC(tgc_move_region));
    return job->grid == NULL && grid->numel > 0 ? -1 : 0;
}

/* Take the input as it lies, or turned. */
static int take(sampling *job, const char *op, const tg_view *input, int turns, void **memory)
{
    job->input = input->data, job->apart = input->strides[1];
    if (turns && job->apart != 1 && job->channels > 1) {
        job->input = turn(op, input, memory);
        if (job->input == NULL)
            return -1;
    }
    const int moved = job->input != (const char *)input->data;
    if (moved || job->channels == 1)
        job->apart = 1;
    for (int d = 0; d < job->dims; d++)
        job->steps[d] = moved ? job->dense[d] : input->strides[d + 2];
    job->image = moved ? job->area * job->channels : input->strides[0];
    return 0;
}

/* Cut the positions of each image into tasks. */
static void cut(sampling *job)
{
    const int64_t each = job->channels * job->taps + 16;
    job->block = BUFFER / job->channels;
    job->block = job->block < 16 ? 16 : job->block > RUN ? RUN : job->block;
    job->piece = (GRAIN / each / job->block + 1) * job->block;
    job->pieces = (job->positions + job->piece - 1) / job->piece;
}

static int forward(const tg_call *call, void *context)
{
    static const char op[] = "grid_sample";
    const tg_view *out = call->outs, *input = call->args[0].value.tensors;
    sampling job = {0};
    void *memory[2] = {NULL, NULL};
    (void)context;
    if (out->numel == 0)
        return 0;
    job.turned = !lies(out, 1);
    if (job.turned && !lies(out, 0))
        return TG_DECLINED;
    int status = begin(&job, op, call->args, &memory[0]);
    if (!status)
        status = take(&job, op, input, job.area < FEW * job.positions, &memory[1]);
    if (!status) {
        job.out = out->data;
        cut(&job);
        tgc_parallel(job.images * job.pieces, out->dtype == TGC_FLOAT64 ? forward_task_f64 : forward_task_f32, &job);
        if (atomic_load(&job.failed))
            status = tgc_no_memory(op, (size_t)(job.block * job.channels * tgc_itemsize[out->dtype]));
    }
    tgc_scratch_free(memory[1]);
    tgc_scratch_free(memory[0]);
    return status;
}

/* The gradient by the input: added up where channels lie side by side. */
static int by_input(sampling *job, const char *op, const tg_view *out)
{
    const int64_t item = tgc_itemsize[out->dtype];
    const int direct = lies(out, 1);
    job->sums = direct ? out->data : tgc_scratch((size_t)(out->numel * item));
    if (job->sums == NULL)
        return tgc_no_memory(op, (size_t)(out->numel * item));
    job->parts = (job->channels + PART - 1) / PART;
    tgc_parallel(job->images * job->parts, item == 8 ? spread_task_f64 : spread_task_f32, job);
    if (!direct) {
        int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
        last_strides(out, item, from);
        tgc_byte_strides(out, to);
        TGC(tgc_move_region)(out->ndim, out->shape, out->data, to, job->sums, from, (int)item);
        tgc_scratch_free(job->sums);
    }
    return 0;
}

/* Arguments: the gradient, then those of `forward`; which of both gradients are wanted. */
static int backward(const tg_call *call, void *context)
{
    static const char op[] = "grid_sample_backward";
    const tg_view *grad = call->args[0].value.tensors, *input = call->args[1].value.tensors;
    const int by_grid = call->args[7].value.i && call->outs[1].numel > 0;
    sampling job = {0};
    void *memory[3] = {NULL, NULL, NULL};
    (void)context;
    if (grad->numel == 0 || !lies(&call->outs[1], 0))
        return TG_DECLINED;
    int status = begin(&job, op, call->args + 1, &memory[0]);
    if (!status && by_grid && job.mode != 'n')
        status = take(&job, op, input, 1, &memory[1]);
    if (!status && (grad->ndim != input->ndim || grad->shape[0] != job.images || grad->shape[1] != job.channels
                    || grad->numel != job.images * job.channels * job.positions))
        status = tgc_error("RuntimeError", "%s: the gradient has not the shape of the result", op);
    if (!status) {
        job.grad = turn(op, grad, &memory[2]);
        status = job.grad == NULL ? -1 : 0;
    }
    if (!status && call->args[6].value.i)
        status = by_input(&job, op, &call->outs[0]);
    if (!status && by_grid && job.mode == 'n') {
        memset(call->outs[1].data, 0, (size_t)(call->outs[1].numel * tgc_itemsize[grad->dtype]));
    } else if (!status && by_grid) {
        job.out = call->outs[1].data;
        cut(&job);
        tgc_parallel(job.images * job.pieces, grad->dtype == TGC_FLOAT64 ? slopes_task_f64 : slopes_task_f32, &job);
    }
    for (int i = 2; i >= 0; i--)
        tgc_scratch_free(memory[i]);
    return status;
}

const tgc_kernel TGC(tgc_table_grid_sampling)[] = {
    {"_grid_sampled", "float32", TGC_CALL, forward, NULL},
    {"_grid_sampled", "float64", TGC_CALL, forward, NULL},
    {"_grid_sampled_backward", "float32", TGC_CALL, backward, NULL},
    {"_grid_sampled_backward", "float64", TGC_CALL, backward, NULL},
    {0},
};
