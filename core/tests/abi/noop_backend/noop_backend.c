/* A backend whose kernels do nothing: what remains is the core's own time per op. */
#include "native/tangrad_abi.h"

static int nothing(const tg_loop *loop, void *context)
{
    (void)loop;
    (void)context;
    return 0;
}

static PyObject *install(PyObject *self, PyObject *args)
{
    const char *op, *device, *dtype;
    tg_api *api = PyCapsule_Import(TG_CAPSULE_NAME, 0);
    (void)self;
    if (api == NULL || !PyArg_ParseTuple(args, "sss", &op, &device, &dtype))
        return NULL;
    if (api->register_loop_kernel(op, device, "strided", dtype, nothing, NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *built_against(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(TG_ABI_VERSION);
}

static PyObject *table_version(PyObject *self, PyObject *unused)
{
    tg_api *api = PyCapsule_Import(TG_CAPSULE_NAME, 0);
    (void)self;
    (void)unused;
    return api == NULL ? NULL : Py_BuildValue("(ii)", api->version, api->size);
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, "install(op, device, dtype): register the do-nothing kernel."},
    {"built_against", built_against, METH_NOARGS, "Return the table version this was compiled with."},
    {"table_version", table_version, METH_NOARGS, "Return (version, size) of the core's table."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "noop_backend", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_noop_backend(void)
{
    return PyModule_Create(&module);
}
