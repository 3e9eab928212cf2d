/* Ask the other threads of Python to call a function. */
#ifndef TANGRAD_THREADS_H
#define TANGRAD_THREADS_H
#include <Python.h>
#include "state.h"

/* What a thread that was asked runs at its next call or return, as a profile function of one use. */
static int tg_asked(PyObject *function, PyFrameObject *frame, int what, PyObject *argument)
{
    PyObject *result;
    if (tg_tls.below_autograd > 0) /* a kernel in Python: behind it, what stands between is put back as it was */
        return 0;
    Py_INCREF(function);
    PyEval_SetProfile(NULL, NULL);
    result = PyObject_CallNoArgs(function);
    if (result == NULL)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    Py_DECREF(function);
    return 0;
}

/* A thread with a profile function of its own keeps it, and is not asked. */
static int tg_ask_threads(PyObject *function)
{
    PyThreadState *mine = PyThreadState_Get();
    PyThreadState *other = PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(mine));
#if PY_VERSION_HEX < 0x030C0000
    for (; other != NULL; other = PyThreadState_Next(other))
        if (other != mine && other->c_profilefunc == NULL && _PyEval_SetProfile(other, tg_asked, function) < 0)
            return -1;
#else
    int others = 0;
    for (; other != NULL; other = PyThreadState_Next(other)) {
        if (other->c_profilefunc != NULL && other->c_profilefunc != tg_asked)
            return 0;
        others += other != mine;
    }
    if (others) {
        PyEval_SetProfileAllThreads(tg_asked, function);
        PyEval_SetProfile(NULL, NULL);
    }
#endif
    return 0;
}
#endif
