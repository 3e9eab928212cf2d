/* Windows of images as columns, tap by tap, and columns added up where windows took them from: the elements of
 * one tap never overlap, so each place gets its sum in the order of the taps, whatever the threads. */
#include "copies/copying.h"

#include <string.h>

#define GRAIN 32768
#define MOST_TASKS 64

typedef struct {
    const char *x;
    char *out;
    int64_t planes, tasks, kernel[2], dilation[2], padding[2], stride[2], positions[2], size[2];
    int wide, unfolds;
} folding;

/* The positions whose window has an element of a tap in the image: from *first on, so many. */
static int64_t inside(const folding *f, int d, int64_t tap, int64_t *first)
{
    const int64_t shift = f->padding[d] - tap * f->dilation[d], s = f->stride[d];
    const int64_t begin = shift > 0 ? (shift + s - 1) / s : 0, last = f->size[d] - 1 + shift;
    int64_t end = last < 0 ? 0 : last / s + 1;
    end = end < f->positions[d] ? end : f->positions[d];
    *first = begin;
    return end > begin ? end - begin : 0;
}

#define PLANE(T, suffix)                                                                                         \
    static void plane_##suffix(const folding *f, T *to, const T *x)                                              \
    {                                                                                                            \
        const int64_t width = f->size[1], step = f->stride[1];                                                   \
        memset(to, 0, (size_t)(f->size[0] * width) * sizeof(T));                                                 \
        for (int64_t i = 0; i < f->kernel[0]; i++)                                                               \
            for (int64_t j = 0; j < f->kernel[1]; j++, x += f->positions[0] * f->positions[1]) {                 \
                int64_t row, column;                                                                             \
                const int64_t rows = inside(f, 0, i, &row), columns = inside(f, 1, j, &column);                  \
                for (int64_t end = row + rows; row < end; row++) {                                               \
                    const int64_t y = row * f->stride[0] + i * f->dilation[0] - f->padding[0];                   \
                    T *restrict into = to + y * width + column * step + j * f->dilation[1] - f->padding[1];      \
                    const T *restrict from = x + row * f->positions[1] + column;                                 \
                    if (step == 1)                                                                               \
                        for (int64_t k = 0; k < columns; k++)                                                    \
                            into[k] += from[k];                                                                  \
                    else                                                                                         \
                        for (int64_t k = 0; k < columns; k++)                                                    \
                            into[k * step] += from[k];                                                           \
                }                                                                                                \
            }                                                                                                    \
    }
PLANE(float, f32)
PLANE(double, f64)

#define COLUMNS(T, suffix)                                                                                       \
    static void columns_##suffix(const folding *f, T *restrict to, const T *restrict x)                          \
    {                                                                                                            \
        const int64_t width = f->size[1], step = f->stride[1], many = f->positions[1];                           \
        for (int64_t i = 0; i < f->kernel[0]; i++)                                                               \
            for (int64_t j = 0; j < f->kernel[1]; j++) {                                                         \
                int64_t row, column;                                                                             \
                const int64_t rows = inside(f, 0, i, &row), columns = inside(f, 1, j, &column);                  \
                for (int64_t r = 0; r < f->positions[0]; r++, to += many) {                                      \
                    if (r < row || r >= row + rows || columns < many)                                            \
                        memset(to, 0, (size_t)many * sizeof(T));                                                 \
                    if (r < row || r >= row + rows)                                                              \
                        continue;                                                                                \
                    const int64_t y = r * f->stride[0] + i * f->dilation[0] - f->padding[0];                     \
                    const T *from = x + y * width + column * step + j * f->dilation[1] - f->padding[1];          \
                    if (step == 1)                                                                               \
                        memcpy(to + column, from, (size_t)columns * sizeof(T));                                  \
                    else                                                                                         \
                        for (int64_t k = 0; k < columns; k++)                                                    \
                            to[column + k] = from[k * step];                                                     \
                }                                                                                                \
            }                                                                                                    \
    }
COLUMNS(float, f32)
COLUMNS(double, f64)

static void planes_task(int64_t task, void *context)
{
    const folding *f = context;
    const int64_t end = tgc_begin(f->planes, f->tasks, task + 1, 1), area = f->size[0] * f->size[1];
    const int64_t unfolded = f->kernel[0] * f->kernel[1] * f->positions[0] * f->positions[1];
    for (int64_t p = tgc_begin(f->planes, f->tasks, task, 1); p < end; p++) {
        const int64_t from = p * (f->unfolds ? area : unfolded), to = p * (f->unfolds ? unfolded : area);
        if (f->wide)
            (f->unfolds ? columns_f64 : plane_f64)(f, (double *)f->out + to, (const double *)f->x + from);
        else
            (f->unfolds ? columns_f32 : plane_f32)(f, (float *)f->out + to, (const float *)f->x + from);
    }
}

/* Arguments are checked by the ops: `windows` are kernel_size, dilation, padding and stride. */
static int between(const tg_call *call, const char *op, const int64_t *size, const tg_argument *windows, int unfolds)
{
    const tg_view *x = call->args[0].value.tensors, *out = call->outs;
    folding f = {.out = out->data, .wide = out->dtype == TGC_FLOAT64, .unfolds = unfolds};
    void *memory = NULL;
    if (out->numel == 0)
        return 0;
    if (!tgc_is_contiguous(out, 0))
        return TG_DECLINED;
    for (int d = 0; d < 2; d++) {
        f.size[d] = size[d];
        f.kernel[d] = windows[0].value.ints[d];
        f.dilation[d] = windows[1].value.ints[d];
        f.padding[d] = windows[2].value.ints[d];
        f.stride[d] = windows[3].value.ints[d];
        f.positions[d] = (f.size[d] + 2 * f.padding[d] - f.dilation[d] * (f.kernel[d] - 1) - 1) / f.stride[d] + 1;
    }
    f.planes = (unfolds ? x : out)->numel / (f.size[0] * f.size[1]);
    f.x = tgc_in_order(op, x, &memory, TGC(tgc_move_region));
    if (f.x == NULL)
        return -1;
    f.tasks = tgc_tasks(x->numel + out->numel, GRAIN, f.planes < MOST_TASKS ? f.planes : MOST_TASKS);
    tgc_parallel(f.tasks, planes_task, &f);
    tgc_scratch_free(memory);
    return 0;
}

static int im2col(const tg_call *call, void *context)
{
    const tg_view *x = call->args[0].value.tensors;
    (void)context;
    return between(call, "unfold", x->shape + x->ndim - 2, call->args + 1, 1);
}

static int col2im(const tg_call *call, void *context)
{
    (void)context;
    return between(call, "fold", call->args[1].value.ints, call->args + 2, 0);
}

const tgc_kernel TGC(tgc_table_folding)[] = {
    {"im2col", "float32", TGC_CALL, im2col, NULL}, {"im2col", "float64", TGC_CALL, im2col, NULL},
    {"col2im", "float32", TGC_CALL, col2im, NULL}, {"col2im", "float64", TGC_CALL, col2im, NULL}, {0}};
