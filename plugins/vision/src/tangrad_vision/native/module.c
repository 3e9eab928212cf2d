/* The extension: kernels of the ops for device cpu, and what decoders call. */

#include "vision.h"

const tg_api *tv_api;
int tv_float32, tv_float64, tv_int64, tv_int32;

static const struct {
    const char *op;
    tg_call_kernel kernel;
    intptr_t context;
} KERNELS[] = {
    {"vision::suppressed", tv_nms, 0},
    {"vision::roi_align", tv_roi_align, 0},
    {"vision::roi_align_backward", tv_roi_align_backward, 0},
    {"vision::ps_roi_align", tv_roi_align, 1},
    {"vision::ps_roi_align_backward", tv_roi_align_backward, 1},
    {"vision::ps_roi_pool", tv_roi_align, 2},
    {"vision::ps_roi_pool_backward", tv_roi_align_backward, 2},
    {"vision::roi_pool", tv_roi_pool, 0},
    {"vision::deform_columns", tv_deform_columns, 0},
    {"vision::deform_columns_backward", tv_deform_columns_backward, 0},
};

static PyObject *register_kernels(PyObject *self, PyObject *device)
{
    static const char *const dtypes[] = {"float32", "float64"};
    const char *name = PyUnicode_AsUTF8(device);
    if (name == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        for (size_t d = 0; d < 2; d++)
            if (tv_api->register_call_kernel(KERNELS[i].op, name, "strided", dtypes[d], KERNELS[i].kernel,
                                             (void *)KERNELS[i].context) < 0)
                return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"register", register_kernels, METH_O, "Register all kernels for a device whose memory the host reaches."},
    {"unfilter", tv_unfilter, METH_VARARGS, "Undo the filters of rows of a PNG in place; return a row of none, or -1."},
    {"lzw", tv_lzw, METH_VARARGS, "Decompress the indices of a GIF; return them and how many there were."},
    {"colours", tv_colours, METH_VARARGS, "Return three of each four bytes of an Arrow array as a bytearray."},
    {NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", "Kernels of ops for pictures.", -1, METHODS};

PyMODINIT_FUNC PyInit__kernels(void)
{
    tv_api = tg_import_api(3);
    if (tv_api == NULL)
        return NULL;
    tv_float32 = tv_api->dtype_by_name("float32");
    tv_float64 = tv_api->dtype_by_name("float64");
    tv_int64 = tv_api->dtype_by_name("int64");
    tv_int32 = tv_api->dtype_by_name("int32");
    return PyModule_Create(&MODULE);
}
