/* Kernels of the package's ops for device cpu, registered through tangrad's table of functions.
 *
 * Each serves contiguous tensors of the usual dtypes and declines others, for which the op's
 * definition in Python computes. Tensors are bytes; whether they are signed, the definition knows. */

#include "call.h"

#include <math.h>

const tg_api *api;
int UINT8, INT8, INT32, FLOAT32;
static const char *level_name;

void *tq_borrowed(tg_scratch *scratch, int64_t bytes)
{
    static void *host;
    if (host == NULL) {
        PyGILState_STATE state = PyGILState_Ensure();
        host = api->device("cpu", 0);
        PyGILState_Release(state);
    }
    if (host == NULL || api->scratch(host, (size_t)bytes + 64, 0, scratch) < 0)
        return NULL;
    return scratch->data;
}

/* ---- products of matrices ---- */

typedef struct matrix_work {
    const tq_product *p;
    const uint8_t *a;
    int64_t lda, rows, columns, row_tile, column_tile, across, down;
} matrix_work;

static void matrix_task(int64_t begin, int64_t end, void *context)
{
    const matrix_work *w = context;
    for (int64_t task = begin; task < end; task++) {
        int64_t row = task / w->across * w->row_tile, column = task % w->across * w->column_tile;
        int64_t bottom = task / w->across + 1 < w->down ? row + w->row_tile : w->rows;
        int64_t right = column + w->column_tile < w->columns ? column + w->column_tile : w->columns;
        tq_level_in_use->rows(w->p, w->a + row * w->lda, w->lda, row, bottom, column, right);
    }
}

/* Tiles depend on the sizes alone: about 2^21 products each, so that threads have something to share.
 * The last one takes up to half a tile of rows more, for which the weights are not read once again. */
static void divide(matrix_work *w, int64_t tile)
{
    w->row_tile = w->rows < tile ? w->rows : tile;
    int64_t wanted = (1 << 21) / (w->row_tile * w->p->quads * 4 + 1);
    w->column_tile = wanted < 64 ? 64 : wanted / 64 * 64;
    w->across = (w->columns + w->column_tile - 1) / w->column_tile;
    w->down = w->rows <= w->row_tile ? 1 : (w->rows + (w->row_tile - 1) / 2) / w->row_tile;
}

enum { SMALL_TILE = 64, TASKS_ENOUGH = 32 };

/* Many rows pass weights that lie in no near cache once, where enough tasks are left. */
void tq_multiply(const tq_product *p, const uint8_t *a, int64_t lda, int64_t rows, int64_t columns)
{
    int64_t tile = tq_level_in_use->row_tile;
    matrix_work w = {p, a, lda, rows, columns};
    if (rows == 0 || columns == 0)
        return;
    divide(&w, tile < SMALL_TILE ? 3 * tile : tile);
    if (tile < SMALL_TILE && w.across * w.down < TASKS_ENOUGH)
        divide(&w, tile);
    parallel(w.across * w.down, matrix_task, &w);
}

/* Rows whose length is no multiple of four are copied to ones that are, for kernels read fours. */
static uint8_t *padded(tg_scratch *scratch, const uint8_t *a, int64_t rows, int64_t depth, int64_t quads)
{
    uint8_t *copy = tq_borrowed(scratch, rows * quads * 4 + 4);
    for (int64_t i = 0; i < rows && copy != NULL; i++) {
        memcpy(copy + i * quads * 4, a + i * depth, (size_t)depth);
        memset(copy + i * quads * 4 + depth, 0, (size_t)(quads * 4 - depth));
    }
    return copy;
}

static int product_kernel(const tg_call *call, void *context)
{
    tq_product p = {0};
    const tg_view *input = tensor(call, 0), *out = call->outs;
    if (!dense(input, UINT8) || !dense_bytes(out) || !weights(call, 1, &p))
        return TG_DECLINED;
    int64_t rows = input->shape[0], columns = out->shape[1];
    p.depth = input->shape[1];
    p.quads = (p.depth + 3) / 4;
    p.row_stride = columns;
    p.input_zero = (int32_t)integer(call, 6);
    p.zero = (int32_t)integer(call, 7);
    p.low = (int32_t)integer(call, 8);
    p.high = (int32_t)integer(call, 9);
    p.bytes = out->data;
    if (p.depth % 4 == 0) {
        tq_multiply(&p, input->data, p.depth, rows, columns);
        return 0;
    }
    tg_scratch scratch;
    uint8_t *copy = padded(&scratch, input->data, rows, p.depth, p.quads);
    if (copy == NULL)
        return -1;
    tq_multiply(&p, copy, p.quads * 4, rows, columns);
    api->release_scratch(&scratch);
    return 0;
}

#define SMALLEST_SCALE ((double)6.1e-5f)

/* As `qparams.choose`, which says why. */
static void choose(double low, double high, int qmax, float *scale, int *zero)
{
    low = low < 0 ? low : 0;
    high = high > 0 ? high : 0;
    double step = (high - low) / qmax;
    if ((float)step == 0.0f || isinf(1.0f / (float)step))
        step = 0.1;
    if (step < SMALLEST_SCALE) {
        if (low == 0)
            high = SMALLEST_SCALE * qmax;
        else if (high == 0)
            low = -SMALLEST_SCALE * qmax;
        else {
            double wider = SMALLEST_SCALE / (float)step;
            low *= wider;
            high *= wider;
        }
        step = SMALLEST_SCALE;
    }
    double from_low = -(low / step), from_high = qmax - high / step;
    double error_low = -fabs(low / step), error_high = qmax - fabs(high / step);
    double start = error_low < error_high ? from_low : from_high;
    start = nearbyint(start);
    *zero = start < 0 ? 0 : start > qmax ? qmax : (int)start;
    *scale = (float)step;
}

static int dynamic_kernel(const tg_call *call, void *context)
{
    tq_product p = {0};
    const tg_view *input = tensor(call, 0), *out = call->outs;
    if (!dense(input, FLOAT32) || !dense(out, FLOAT32) || !weights(call, 1, &p))
        return TG_DECLINED;
    int64_t rows = input->shape[0], columns = out->shape[1];
    int most = integer(call, 6) ? 127 : 255, finite;
    float low, high, scale;
    tq_level_in_use->range(input->data, input->numel, &low, &high, &finite);
    if (!finite)
        return fails(PyExc_RuntimeError,
                     "quantized linear: the input holds NaN or infinity, which has no integer; look for the layer "
                     "that makes it with tangrad.autograd.detect_anomaly");
    choose(low, high, most, &scale, &p.input_zero);
    p.narrow = most == 127; /* 128 at the most, twice which times -128 fits 16 bits */
    p.depth = input->shape[1];
    p.quads = (p.depth + 3) / 4;
    int64_t stride = row_bytes(p.quads), padding = p.quads * 4 - p.depth;
    tg_scratch scratch;
    float *scales = tq_borrowed(&scratch, columns * (int64_t)sizeof(float) + rows * stride + 4);
    if (scales == NULL)
        return -1;
    uint8_t *quantized = (uint8_t *)(scales + columns);
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *row = quantized + i * stride;
        tq_level_in_use->quantize((const float *)input->data + i * p.depth, row, p.depth, 1.0f / scale, p.input_zero, 0,
                                  255); /* see the definition: of a half above, the last bit is used */
        memset(row + p.depth, 0, (size_t)padding);
    }
    for (int64_t n = 0; n < columns; n++)
        scales[n] = scale * p.scales[n];
    p.scales = scales;
    p.row_stride = columns;
    p.least = integer(call, 7) ? 0.0f : -INFINITY;
    p.floats = out->data;
    tq_multiply(&p, quantized, stride, rows, columns);
    api->release_scratch(&scratch);
    return 0;
}

/* ---- element by element ---- */

enum { ELEMENTS_OF_TASK = 16384 };

typedef struct elements_work {
    const void *a, *b;
    void *out;
    const void *parameters;
    int64_t n;
    int kind;
} elements_work;

typedef struct conversion {
    float scale;
    int zero, low, high, flip;
} conversion;

enum { ADD, MUL, QUANTIZE, DEQUANTIZE, LOOKUP };

static void elements_task(int64_t first, int64_t last, void *context)
{
    const elements_work *w = context;
    const conversion *c = w->parameters;
    int64_t begin = first * ELEMENTS_OF_TASK, end = last * ELEMENTS_OF_TASK;
    int64_t n = (end < w->n ? end : w->n) - begin;
    const uint8_t *a = (const uint8_t *)w->a + begin, *b = (const uint8_t *)w->b + begin;
    uint8_t *out = (uint8_t *)w->out + begin;
    switch (w->kind) {
    case ADD: tq_level_in_use->add(a, b, out, n, w->parameters); return;
    case MUL: tq_level_in_use->mul(a, b, out, n, w->parameters); return;
    case QUANTIZE:
        tq_level_in_use->quantize((const float *)w->a + begin, out, n, c->scale, c->zero, c->low, c->high);
        return;
    case DEQUANTIZE:
        tq_level_in_use->dequantize(a, (float *)w->out + begin, n, c->scale, c->zero, c->flip);
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)w->parameters)[a[i]];
    }
}

static void elements(int kind, const void *a, const void *b, void *out, int64_t n, const void *parameters)
{
    elements_work w = {a, b == NULL ? a : b, out, parameters, n, kind};
    if (n > 0)
        parallel((n + ELEMENTS_OF_TASK - 1) / ELEMENTS_OF_TASK, elements_task, &w);
}

static int binary_kernel(const tg_call *call, void *context)
{
    const tg_view *a = tensor(call, 0), *b = tensor(call, 1), *out = call->outs;
    if (!dense_bytes(a) || !dense_bytes(b) || !dense_bytes(out) || a->dtype != b->dtype || a->numel != b->numel)
        return TG_DECLINED;
    int flip = a->dtype == INT8 ? 128 : 0;
    tq_binary p = {(float)number(call, 2), (float)number(call, 4), (float)number(call, 6)};
    p.zero_a = (int)integer(call, 3) + flip;
    p.zero_b = (int)integer(call, 5) + flip;
    p.zero = (int)integer(call, 7) + flip;
    p.low = (int)integer(call, 8) + flip;
    p.high = (int)integer(call, 9) + flip;
    p.flip = flip;
    elements(context == NULL ? ADD : MUL, a->data, b->data, out->data, a->numel, &p);
    return 0;
}

static int quantize_kernel(const tg_call *call, void *context)
{
    const tg_view *x = tensor(call, 0), *out = call->outs;
    if (!dense(x, FLOAT32) || !dense_bytes(out))
        return TG_DECLINED;
    conversion c = {(float)number(call, 1), (int)integer(call, 2), (int)integer(call, 3), (int)integer(call, 4), 0};
    elements(QUANTIZE, x->data, NULL, out->data, x->numel, &c);
    return 0;
}

static int dequantize_kernel(const tg_call *call, void *context)
{
    const tg_view *x = tensor(call, 0), *out = call->outs;
    if (!dense_bytes(x) || !dense(out, FLOAT32))
        return TG_DECLINED;
    int flip = x->dtype == INT8 ? 128 : 0;
    conversion c = {(float)number(call, 1), (int)integer(call, 2) + flip, 0, 0, flip};
    elements(DEQUANTIZE, x->data, NULL, out->data, x->numel, &c);
    return 0;
}

static int lookup_kernel(const tg_call *call, void *context)
{
    const tg_view *x = tensor(call, 0), *table = tensor(call, 1), *out = call->outs;
    if (!dense_bytes(x) || !dense_bytes(table) || !dense_bytes(out) || table->numel != 256)
        return TG_DECLINED;
    elements(LOOKUP, x->data, NULL, out->data, x->numel, table->data);
    return 0;
}

/* ---- weights in groups ---- */

typedef struct groups_work {
    tq_groups weight;
    const float *x;
    float *prepared, *out;
    const tq_level **levels; /* of each row */
    int64_t rows, columns, depth;
} groups_work;

static void groups_task(int64_t first, int64_t last, void *context)
{
    const groups_work *w = context;
    int64_t right = last * 64 < w->columns ? last * 64 : w->columns;
    for (int64_t left = first * 64; left < right; left += 64)
        for (int64_t m = 0; m < w->rows; m++)
            w->levels[m]->grouped(&w->weight, w->x + m * w->depth, w->prepared + m * tq_prepared_size(w->depth), left,
                                  left + 64 < right ? left + 64 : right, w->out + m * w->columns);
}

enum { GROUPED_ROWS = 8 };

static int groups_kernel(const tg_call *call, void *context)
{
    const tg_view *x = tensor(call, 0), *weight = tensor(call, 1), *scales = tensor(call, 2);
    const tg_view *zeros = tensor(call, 3), *out = call->outs;
    const tq_level *levels[GROUPED_ROWS];
    groups_work w = {{weight->data, scales->data, zeros == NULL ? NULL : zeros->data}, x->data};
    w.rows = x->shape[0];
    w.depth = x->shape[1];
    w.columns = out->shape[1];
    w.weight.bits = integer(call, 4);
    w.weight.group = integer(call, 5);
    if (!dense(x, FLOAT32) || !dense_bytes(weight) || !dense(scales, FLOAT32) || !dense(out, FLOAT32) ||
        (zeros != NULL && !dense(zeros, FLOAT32)) || w.rows > GROUPED_ROWS || w.weight.group % 32 != 0 ||
        w.depth % w.weight.group != 0)
        return TG_DECLINED;
    w.weight.groups = w.depth / w.weight.group;
    tg_scratch scratch;
    w.prepared = tq_borrowed(&scratch, w.rows * tq_prepared_size(w.depth) * (int64_t)sizeof(float));
    if (w.prepared == NULL)
        return -1;
    for (int64_t m = 0; m < w.rows; m++) {
        const float *row = w.x + m * w.depth;
        float *to = w.prepared + m * tq_prepared_size(w.depth);
        levels[m] = tq_level_in_use;
        if (!levels[m]->prepare(&w.weight, row, to)) {
            levels[m] = tq_level_named("scalar");
            levels[m]->prepare(&w.weight, row, to);
        }
    }
    w.levels = levels;
    w.out = out->data;
    parallel((w.columns + 63) / 64, groups_task, &w);
    api->release_scratch(&scratch);
    return 0;
}

/* ---- the module ---- */

static const struct {
    const char *op;
    tg_call_kernel kernel;
    void *context;
} KERNELS[] = {
    {"quantized_product", product_kernel, NULL},
    {"quantized_product_dynamic", dynamic_kernel, NULL},
    {"quantized_convolution", tq_convolution_kernel, NULL},
    {"quantized_sum", binary_kernel, NULL},
    {"quantized_times", binary_kernel, (void *)1},
    {"quantized_from_float", quantize_kernel, NULL},
    {"quantized_to_float", dequantize_kernel, NULL},
    {"quantized_lookup", lookup_kernel, NULL},
    {"grouped_linear", groups_kernel, NULL},
};

static PyObject *register_kernels(PyObject *self, PyObject *device)
{
    static const char *const dtypes[] = {"uint8", "int8", "float32"};
    const char *name = PyUnicode_AsUTF8(device);
    if (name == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        for (size_t d = 0; d < 3; d++)
            if (api->register_call_kernel(KERNELS[i].op, name, "strided", dtypes[d], KERNELS[i].kernel,
                                          KERNELS[i].context) < 0)
                return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_level(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    const tq_level *found = text == NULL ? NULL : tq_level_named(text);
    if (text == NULL)
        return NULL;
    if (found == NULL)
        return PyErr_Format(PyExc_ValueError, "this machine has no level '%s'; there are scalar, avx2, vnni and amx", text);
    tq_level_in_use = found;
    static const char *const levels[] = {"scalar", "avx2", "vnni", "amx"};
    for (int i = 0; i < 4; i++)
        if (strcmp(text, levels[i]) == 0)
            level_name = levels[i];
    Py_RETURN_NONE;
}

static PyObject *get_level(PyObject *self, PyObject *none) { return PyUnicode_FromString(level_name); }

static PyMethodDef METHODS[] = {
    {"register", register_kernels, METH_O, "Register all kernels for a device whose memory the host reaches."},
    {"set_level", set_level, METH_O, "Use the kernels of an instruction-set level."},
    {"level", get_level, METH_NOARGS, "Return the instruction-set level in use."},
    {NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", "Kernels of quantized ops.", -1, METHODS};

/* The level that tangrad-cpu is told to keep to, which complains about names that it does not know;
 * its highest has AMX within. */
static const char *first_level(void)
{
    const char *wanted = getenv("TANGRAD_CPU_ISA");
    if (wanted != NULL && strcmp(wanted, "baseline") == 0)
        return "scalar";
    if (wanted != NULL && strcmp(wanted, "avx2") == 0 && tq_level_named("avx2") != NULL)
        return "avx2";
    return tq_best_level();
}

PyMODINIT_FUNC PyInit__kernels(void)
{
    api = tg_import_api(3);
    if (api == NULL)
        return NULL;
    UINT8 = api->dtype_by_name("uint8");
    INT8 = api->dtype_by_name("int8");
    INT32 = api->dtype_by_name("int32");
    FLOAT32 = api->dtype_by_name("float32");
    level_name = first_level();
    tq_level_in_use = tq_level_named(level_name);
    return PyModule_Create(&MODULE);
}
