/* The operands of a convolution: padding and conversion, and the addresses of windows. */
#include "convolution.h"
#include "copies/copying.h"
#include "half.h"

#include <string.h>

#define GRAIN 32768

typedef struct copy {
    const tgc_operand *to;
    const tg_view *view;
    const tgc_windows *w;
    int spatial, grow;
    int64_t planes, area, tasks;
    int64_t first[TG_MAX_DIMS]; /* of the inside, by dimension */
} copy;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void copy_row(char *to, const char *from, int64_t n, int64_t stride, int32_t dtype)
{
    if (stride == 1 && (dtype == TGC_FLOAT32 || dtype == TGC_FLOAT64)) {
        tgc_copy_short(to, from, n * tgc_itemsize[dtype]);
    } else if (dtype == TGC_FLOAT32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = ((const float *)from)[i * stride];
    } else if (dtype == TGC_FLOAT64) {
        for (int64_t i = 0; i < n; i++)
            ((double *)to)[i] = ((const double *)from)[i * stride];
    } else if (dtype == TGC_BFLOAT16) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = tgc_bf16_to_float(((const uint16_t *)from)[i * stride]);
    } else {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = tgc_f16_to_float(((const uint16_t *)from)[i * stride]);
    }
}

/* The most frequent phases: every other element. */
static void split_pairs(float *restrict even, float *restrict odd, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        even[i] = from[2 * i];
        odd[i] = from[2 * i + 1];
    }
    if (n % 2)
        even[n / 2] = from[n - 1];
}

static void join_pairs(float *restrict to, const float *restrict even, const float *restrict odd, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        to[2 * i] = even[i];
        to[2 * i + 1] = odd[i];
    }
    if (n % 2)
        to[n - 1] = even[n / 2];
}

/* Where the element lies that `at` others precede in a row with its padding. */
static int64_t phase_place(int64_t at, int64_t step, int64_t phase)
{
    return at % step * phase + at / step;
}

/* A row, its elements to the runs in which they lie. */
static void copy_phases(char *to, const char *from, int64_t n, int64_t stride, const copy *c)
{
    int64_t step = c->w->stride[c->spatial - 1], first = c->first[c->spatial - 1];
    int64_t from_item = tgc_itemsize[c->view->dtype], item = tgc_itemsize[c->w->dtype];
    if (step == 2 && stride == 1 && c->view->dtype == TGC_FLOAT32) {
        split_pairs((float *)to + phase_place(first, 2, c->to->phase),
                    (float *)to + phase_place(first + 1, 2, c->to->phase), (const float *)from, n);
        return;
    }
    for (int64_t i = 0; i < smaller(n, step); i++)
        copy_row(to + phase_place(i + first, step, c->to->phase) * item, from + i * stride * from_item,
                 (n - i + step - 1) / step, stride * step, c->view->dtype);
}

static void copy_plane(char *to, int64_t plane, const copy *c)
{
    const tg_view *v = c->view;
    int64_t from_item = tgc_itemsize[v->dtype], item = tgc_itemsize[c->w->dtype];
    int last = c->spatial - 1;
    int64_t n = last < 0 ? 1 : v->shape[last + 2], stride = last < 0 ? 1 : v->strides[last + 2];
    const char *from = (const char *)v->data + (plane / v->shape[1] * v->strides[0] +
                                                 plane % v->shape[1] * v->strides[1]) * from_item;
    int64_t index[TG_MAX_DIMS]; /* of which few are used: to zero all takes longer than to copy a small plane */
    for (int d = 0; d <= last; d++)
        index[d] = 0;
    if (c->grow)
        memset(to, 0, (size_t)(c->area * item));
    for (int d = 0;;) {
        int64_t target = 0, source = 0;
        for (int i = 0; i <= last; i++) {
            target += i == last && c->to->phase ? 0 : (index[i] + c->first[i]) * c->to->step[i];
            source += index[i] * v->strides[i + 2];
        }
        int64_t rows = last > 0 ? v->shape[last + 1] : 1;
        const int64_t down = last > 0 ? c->to->step[last - 1] * item : 0;
        const int64_t from_down = last > 0 ? v->strides[last + 1] * from_item : 0;
        char *line = to + target * item;
        const char *x = from + source * from_item;
        if (!c->to->phase && stride == 1 && v->dtype == c->w->dtype) {
            const int64_t bytes = n * item;
            for (int64_t row = 0; row < rows; row++, line += down, x += from_down)
                tgc_copy_short(line, x, bytes);
        } else {
            for (int64_t row = 0; row < rows; row++, line += down, x += from_down) {
                if (c->to->phase)
                    copy_phases(line, x, n, stride, c);
                else
                    copy_row(line, x, n, stride, v->dtype);
            }
        }
        for (d = last - 2; d >= 0 && ++index[d] == v->shape[d + 2]; d--)
            index[d] = 0;
        if (d < 0)
            break;
    }
}

static void copy_task(int64_t task, void *context)
{
    const copy *c = context;
    int64_t end = tgc_begin(c->planes, c->tasks, task + 1, 1), bytes = c->area * tgc_itemsize[c->w->dtype];
    for (int64_t plane = tgc_begin(c->planes, c->tasks, task, 1); plane < end; plane++)
        copy_plane(c->to->data + plane * bytes, plane, c);
}

int64_t TGC(tgc_operand_phase)(const tgc_windows *w)
{
    int last = w->ndim - 1;
    int64_t step = w->stride[last];
    return step == 1 || w->kernel[last] == 1 ? 0 : (w->grown[last] + step - 1) / step;
}

/* Describe the operand as it lies, or as it is to be copied; returns whether it is. */
static int lay_out(copy *c, tgc_operand *to, const tg_view *v, const tgc_windows *w, int grow, int dense)
{
    int spatial = v->ndim - 2;
    int64_t phase = grow && spatial > 0 ? TGC(tgc_operand_phase)(w) : 0;
    grow = grow && w->padded;
    to->data = v->data;
    to->image = v->strides[0];
    to->channel = v->strides[1];
    to->phase = phase;
    to->memory = NULL;
    to->deferred = NULL;
    for (int d = 0; d < spatial; d++)
        to->step[d] = v->strides[d + 2];
    if (!grow && !phase && v->dtype == w->dtype && tgc_is_contiguous(v, dense))
        return 0;
    *c = (copy){.to = to, .view = v, .w = w, .spatial = spatial, .grow = grow, .area = 1};
    for (int d = spatial - 1; d >= 0; d--) {
        to->step[d] = c->area;
        c->first[d] = grow ? w->padding[d] : 0;
        c->area *= phase && d == spatial - 1 ? phase * w->stride[d] : v->shape[d + 2] + 2 * c->first[d];
    }
    to->channel = c->area;
    to->image = c->area * v->shape[1];
    return 1;
}

/* Where channels are neighbours, the elements of a plane lie far apart: all planes are made at once, by
 * copies that read and write whole lines of the cache. Returns the tensor to read, or NULL if there is no
 * memory for that. */
static const tg_view *turn(tgc_operand *to, const tg_view *v, const tgc_windows *w, void **memory)
{
    int last = v->ndim - 1;
    *memory = NULL;
    if (last < 2 || v->numel == 0 || v->shape[1] < 2 || v->strides[1] != 1 || v->strides[last] < 2)
        return v;
    int64_t item = tgc_itemsize[v->dtype], step = 1, from[TG_MAX_DIMS], bytes[TG_MAX_DIMS];
    *memory = tgc_scratch((size_t)(v->numel * item));
    if (*memory == NULL) {
        tgc_no_memory(w->op, (size_t)(v->numel * item));
        return NULL;
    }
    for (int d = last; d >= 0; d--) {
        to->turned_strides[d] = step;
        bytes[d] = step * item;
        step *= v->shape[d];
    }
    tgc_byte_strides(v, from);
    TGC(tgc_move_region)(v->ndim, v->shape, *memory, bytes, v->data, from, (int)item);
    to->turned = *v;
    to->turned.data = *memory;
    to->turned.strides = to->turned_strides;
    return &to->turned;
}

int TGC(tgc_operand_defer)(tgc_operand *to, const tg_view *v, const tgc_windows *w, int dense)
{
    void *memory;
    copy c;
    v = turn(to, v, w, &memory);
    if (v == NULL)
        return -1;
    if (lay_out(&c, to, v, w, 1, dense))
        to->deferred = v;
    to->memory = memory;
    return 0;
}

const char *TGC(tgc_operand_plane)(const tgc_operand *x, const tgc_windows *w, int64_t image, int64_t channel,
                                   char *buffer)
{
    if (x->deferred == NULL)
        return x->data + (image * x->image + channel * x->channel) * tgc_itemsize[w->dtype];
    copy c;
    c.to = x;
    c.view = x->deferred;
    c.w = w;
    c.spatial = x->deferred->ndim - 2; /* windows have one dimension at least, tensors may have none */
    c.grow = w->padded;
    c.area = x->channel;
    for (int d = 0; d < c.spatial; d++)
        c.first[d] = w->padded ? w->padding[d] : 0;
    copy_plane(buffer, image * x->deferred->shape[1] + channel, &c);
    return buffer;
}

int TGC(tgc_operand_take)(tgc_operand *to, const tg_view *v, const tgc_windows *w, int grow, int dense)
{
    void *memory;
    copy c;
    v = turn(to, v, w, &memory);
    if (v == NULL)
        return -1;
    if (!lay_out(&c, to, v, w, grow, dense)) {
        to->memory = memory;
        return 0;
    }
    c.planes = v->shape[0] * v->shape[1];
    size_t bytes = (size_t)(c.planes * c.area * tgc_itemsize[w->dtype]);
    to->data = to->memory = tgc_scratch(bytes);
    if (to->memory == NULL) {
        tgc_scratch_free(memory);
        return tgc_no_memory(w->op, bytes);
    }
    if (v->numel == 0) {
        memset(to->memory, 0, bytes);
        return 0;
    }
    c.tasks = tgc_tasks(c.planes * c.area, GRAIN, c.planes);
    tgc_parallel(c.tasks, copy_task, &c);
    tgc_scratch_free(memory);
    return 0;
}

/* A row from such runs. */
static void join_phases(char *to, const char *from, const tgc_windows *w, int64_t phase)
{
    int64_t n = w->size[w->ndim - 1], step = w->stride[w->ndim - 1], first = w->padding[w->ndim - 1];
    if (step == 2 && w->dtype == TGC_FLOAT32) {
        join_pairs((float *)to, (const float *)from + phase_place(first, 2, phase),
                   (const float *)from + phase_place(first + 1, 2, phase), n);
        return;
    }
    for (int64_t i = 0; i < smaller(n, step); i++) {
        int64_t at = phase_place(i + first, step, phase);
        if (w->dtype == TGC_FLOAT64)
            for (int64_t k = i; k < n; k += step)
                ((double *)to)[k] = ((const double *)from)[at++];
        else
            for (int64_t k = i; k < n; k += step)
                ((float *)to)[k] = ((const float *)from)[at++];
    }
}

void TGC(tgc_operand_crop)(char *to, const char *from, const tgc_windows *w, const tgc_operand *x)
{
    int last = w->ndim - 1;
    int64_t item = tgc_itemsize[w->dtype], index[TG_MAX_DIMS] = {0};
    for (int d = 0;;) {
        int64_t at = 0;
        for (int i = 0; i <= last; i++)
            at += i == last && x->phase ? 0 : (index[i] + w->padding[i]) * x->step[i];
        if (x->phase)
            join_phases(to, from + at * item, w, x->phase);
        else
            tgc_copy_short(to, from + at * item, w->size[last] * item);
        to += w->size[last] * item;
        for (d = last - 1; d >= 0 && ++index[d] == w->size[d]; d--)
            index[d] = 0;
        if (d < 0)
            break;
    }
}

char *TGC(tgc_bias_take)(const tg_view *bias, const tgc_windows *w)
{
    const int64_t item = tgc_itemsize[w->dtype], from = bias->strides[0] * tgc_itemsize[bias->dtype];
    const size_t bytes = (size_t)(w->maps * item);
    char *memory = tgc_scratch(bytes);
    if (memory == NULL)
        tgc_no_memory(w->op, bytes);
    else
        TGC(tgc_copy_region)(1, &w->maps, memory, &item, w->dtype, bias->data, &from, bias->dtype);
    return memory;
}

char *TGC(tgc_result_take)(const tg_view *out, const tgc_windows *w)
{
    if (out->dtype == w->dtype)
        return out->data;
    size_t bytes = (size_t)(out->numel * tgc_itemsize[w->dtype]);
    char *memory = tgc_scratch(bytes);
    if (memory == NULL)
        tgc_no_memory(w->op, bytes);
    return memory;
}

void TGC(tgc_result_finish)(const tg_view *out, char *result)
{
    if (result == (char *)out->data)
        return;
    const float *from = (const float *)result;
    uint16_t *to = out->data;
    if (from != NULL && out->dtype == TGC_BFLOAT16)
        tgc_floats_to_bf16(to, from, out->numel);
    else if (from != NULL)
        tgc_floats_to_f16(to, from, out->numel);
    tgc_scratch_free(result);
}

int TGC(tgc_window_runs)(const tgc_windows *w, const tgc_operand *x, int64_t first, int64_t count, tgc_run *runs)
{
    int last = w->ndim - 1, made = 0;
    int64_t step = x->phase ? 1 : w->stride[last] * x->step[last], index[TG_MAX_DIMS], rest = first;
    for (int d = last; d >= 0; d--) {
        index[d] = rest % w->out[d];
        rest /= w->out[d];
    }
    for (int64_t at = 0; at < count;) {
        int64_t n = smaller(w->out[last] - index[last], count - at), offset = rest * x->image;
        for (int d = 0; d <= last; d++)
            offset += index[d] * (d == last ? step : w->stride[d] * x->step[d]);
        if (made > 0 && offset == runs[made - 1].offset + runs[made - 1].count * step)
            runs[made - 1].count += n;
        else
            runs[made++] = (tgc_run){at, n, offset};
        at += n;
        index[last] = 0;
        int d = last - 1;
        while (d >= 0 && ++index[d] == w->out[d])
            index[d--] = 0;
        rest += d < 0;
    }
    return made;
}

void TGC(tgc_window_places)(const tgc_windows *w, const tgc_operand *x, int64_t channels, int64_t *places)
{
    for (int64_t i = 0; i < channels * w->taps; i++) {
        int64_t rest = i % w->taps, offset = i / w->taps * x->channel;
        for (int d = w->ndim - 1; d >= 0; d--) {
            int64_t at = rest % w->kernel[d] * w->dilation[d];
            if (x->phase && d == w->ndim - 1)
                offset += at % w->stride[d] * x->phase + at / w->stride[d];
            else
                offset += at * x->step[d];
            rest /= w->kernel[d];
        }
        places[i] = offset;
    }
}
