/* What decoders of pictures do byte by byte: PNG's filters and GIF's compression. */

#include "vision.h"

#include "levels.h"

static inline uint8_t paeth(int left, int above, int corner)
{
    int p = left + above - corner;
    int a = abs(p - left), b = abs(p - above), c = abs(p - corner);
    return (uint8_t)(a <= b && a <= c ? left : b <= c ? above : corner);
}

/* Undo the filter of one row, whose bytes follow the byte that names it. */
static int unfilter_row(uint8_t *row, const uint8_t *above, Py_ssize_t n, Py_ssize_t pixel, int filter)
{
    Py_ssize_t i = 0, first = pixel < n ? pixel : n;
    switch (filter) {
    case 0:
        return 0;
    case 1:
        for (i = pixel; i < n; i++)
            row[i] = (uint8_t)(row[i] + row[i - pixel]);
        return 0;
    case 2:
        for (i = 0; i < n && above != NULL; i++)
            row[i] = (uint8_t)(row[i] + above[i]);
        return 0;
    case 3:
        for (; i < first; i++)
            row[i] = (uint8_t)(row[i] + (above == NULL ? 0 : above[i] >> 1));
        for (; i < n; i++)
            row[i] = (uint8_t)(row[i] + ((row[i - pixel] + (above == NULL ? 0 : above[i])) >> 1));
        return 0;
    case 4:
        for (; i < first; i++)
            row[i] = (uint8_t)(row[i] + (above == NULL ? 0 : above[i]));
        for (; i < n && above != NULL; i++)
            row[i] = (uint8_t)(row[i] + paeth(row[i - pixel], above[i], above[i - pixel]));
        for (; i < n; i++)
            row[i] = (uint8_t)(row[i] + row[i - pixel]);
        return 0;
    }
    return -1;
}

/* unfilter(rows, height, width, pixel): in place; returns the first row of an unknown filter, or -1. */
PyObject *tv_unfilter(PyObject *self, PyObject *args)
{
    Py_buffer rows;
    Py_ssize_t height, width, pixel, wrong = -1;
    if (!PyArg_ParseTuple(args, "w*nnn", &rows, &height, &width, &pixel))
        return NULL;
    if (height < 0 || width < 0 || pixel < 1 || width >= PY_SSIZE_T_MAX / (height + 1) ||
        rows.len < height * (width + 1)) {
        PyBuffer_Release(&rows);
        PyErr_SetString(PyExc_ValueError, "unfilter: the buffer is shorter than the rows");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    uint8_t *row = rows.buf, *above = NULL;
    for (Py_ssize_t i = 0; i < height && wrong < 0; i++, above = row + 1, row += width + 1)
        if (unfilter_row(row + 1, above, width, pixel, *row) < 0)
            wrong = i;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&rows);
    return PyLong_FromSsize_t(wrong);
}

enum { CODES = 4096 };

typedef struct lzw_table {
    uint16_t before[CODES];
    uint16_t length[CODES];
    uint8_t first[CODES], last[CODES];
} lzw_table;

/* Decompress at most n bytes; returns how many there were, or -1 for a code that cannot be. */
static Py_ssize_t lzw(const uint8_t *in, Py_ssize_t nin, int least, uint8_t *out, Py_ssize_t n, lzw_table *t)
{
    int clear = 1 << least, end = clear + 1, next = end + 1, bits = least + 1, previous = -1;
    uint32_t held = 0;
    int nheld = 0;
    Py_ssize_t at = 0, made = 0;
    for (int i = 0; i < clear; i++)
        t->length[i] = 1, t->first[i] = t->last[i] = (uint8_t)i, t->before[i] = 0;
    while (made < n) {
        while (nheld < bits) {
            if (at >= nin)
                return made;
            held |= (uint32_t)in[at++] << nheld;
            nheld += 8;
        }
        int code = (int)(held & ((1u << bits) - 1));
        held >>= bits;
        nheld -= bits;
        if (code == end)
            return made;
        if (code == clear) {
            next = end + 1, bits = least + 1, previous = -1;
            continue;
        }
        if (code > next || (code == next && (previous < 0 || next >= CODES)) || (previous < 0 && code > end))
            return -1;
        if (previous >= 0 && next < CODES) {
            t->before[next] = (uint16_t)previous;
            t->length[next] = (uint16_t)(t->length[previous] + 1);
            t->first[next] = t->first[previous];
            t->last[next] = t->first[code == next ? previous : code];
            next++;
            if (next == 1 << bits && bits < 12)
                bits++;
        }
        Py_ssize_t length = t->length[code], to = made + length;
        for (int c = code; to > made; c = t->before[c])
            if (--to < n)
                out[to] = t->last[c];
        made = made + length < n ? made + length : n;
        previous = code;
    }
    return made;
}

/* lzw(data, least, pixels): returns (bytearray of pixels, zero where data ends early; how many). */
PyObject *tv_lzw(PyObject *self, PyObject *args)
{
    Py_buffer data;
    int least;
    Py_ssize_t n, made = -1;
    if (!PyArg_ParseTuple(args, "y*in", &data, &least, &n))
        return NULL;
    PyObject *out = NULL;
    lzw_table *table = NULL;
    if (least < 1 || least > 8 || n < 0) {
        PyErr_SetString(PyExc_ValueError, "lzw: codes start with 1 to 8 bits");
        goto done;
    }
    out = PyByteArray_FromStringAndSize(NULL, n);
    table = malloc(sizeof *table);
    if (out == NULL || table == NULL) {
        Py_CLEAR(out);
        PyErr_NoMemory();
        goto done;
    }
    uint8_t *pixels = (uint8_t *)PyByteArray_AS_STRING(out);
    Py_BEGIN_ALLOW_THREADS
    memset(pixels, 0, (size_t)n);
    made = lzw(data.buf, data.len, least, pixels, n, table);
    Py_END_ALLOW_THREADS
done:
    free(table);
    PyBuffer_Release(&data);
    return out == NULL ? NULL : Py_BuildValue("(Nn)", out, made);
}

/* An array of Arrow's C data interface, whose layout its specification fixes. */
typedef struct arrow_array {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct arrow_array **children, *dictionary;
    void (*release)(struct arrow_array *);
    void *private_data;
} arrow_array;

LEVELS static void without_fourth(const uint8_t *restrict from, uint8_t *restrict to, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        to[3 * i] = from[4 * i];
        to[3 * i + 1] = from[4 * i + 1];
        to[3 * i + 2] = from[4 * i + 2];
    }
}

/* colours(capsule, pixels): the first three of each four bytes that an Arrow array has, as a bytearray. */
PyObject *tv_colours(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "On", &capsule, &n))
        return NULL;
    const arrow_array *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array == NULL)
        return NULL;
    const arrow_array *bytes = array->n_children == 1 ? array->children[0] : NULL;
    if (n < 0 || bytes == NULL || array->length != n || array->offset != 0 || bytes->offset != 0 ||
        bytes->n_buffers != 2 || bytes->length != 4 * n || bytes->buffers[1] == NULL) {
        PyErr_SetString(PyExc_ValueError, "colours: the array does not hold four bytes for each pixel");
        return NULL;
    }
    PyObject *made = PyByteArray_FromStringAndSize(NULL, 3 * n);
    if (made == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyByteArray_AS_STRING(made);
    Py_BEGIN_ALLOW_THREADS
    without_fourth(bytes->buffers[1], to, n);
    Py_END_ALLOW_THREADS
    return made;
}
