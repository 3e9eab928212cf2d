/* Where Python stands, read where the interpreter has it: a frame object for each launch would cost
 * a tenth of the smallest one. Of versions whose headers this was not compiled with, by objects. */
#ifndef TANGRAD_CUDA_FRAMES_H
#define TANGRAD_CUDA_FRAMES_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030E0000 && !defined(TANGRAD_FRAME_OBJECTS)

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include "internal/pycore_frame.h"

typedef struct _PyInterpreterFrame standing;

static inline standing *complete_frame(standing *frame)
{
    while (frame != NULL && _PyFrame_IsIncomplete(frame))
        frame = frame->previous;
    return frame;
}

static inline standing *innermost_frame(void)
{
    PyThreadState *state = PyThreadState_Get();
#if PY_VERSION_HEX < 0x030D0000
    return complete_frame(state->cframe->current_frame);
#else
    return complete_frame(state->current_frame);
#endif
}

static inline standing *outer_frame(standing *frame)
{
    return complete_frame(frame->previous);
}

/* Borrowed from the frame, as long as it runs. */
static inline PyCodeObject *code_of(standing *frame)
{
#if PY_VERSION_HEX < 0x030D0000
    return frame->f_code;
#else
    return _PyFrame_GetCode(frame);
#endif
}

static inline int offset_in_code(standing *frame)
{
    return _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
}

#else

typedef PyFrameObject standing;

/* The thread's stack holds frames that have objects, which these are borrowed from. */
static inline standing *borrowed_frame(standing *frame)
{
    Py_XDECREF((PyObject *)frame);
    return frame;
}

static inline standing *innermost_frame(void)
{
    return borrowed_frame(PyThreadState_GetFrame(PyThreadState_Get()));
}

static inline standing *outer_frame(standing *frame)
{
    return borrowed_frame(PyFrame_GetBack(frame));
}

static inline PyCodeObject *code_of(standing *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_DECREF((PyObject *)code);
    return code;
}

static inline int offset_in_code(standing *frame)
{
    return PyFrame_GetLasti(frame);
}

#endif
#endif
