# The profile function of a recorded run, which passes over what it has nothing to say of.

cdef extern from "Python.h":
    ctypedef struct PyFrameObject
    ctypedef struct PyCodeObject:
        PyObject* co_filename
    int PyTrace_CALL, PyTrace_RETURN, PyTrace_C_CALL
    ctypedef int (*Py_tracefunc)(PyObject*, PyFrameObject*, int, PyObject*) except -1
    void PyEval_SetProfile(Py_tracefunc, PyObject*)
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    void Py_DECREF(PyCodeObject*)

cdef extern from *:
    """
    /* Later versions change all code to switch a profile function on or off: there it stays on. */
    #if PY_VERSION_HEX < 0x030C0000
    #define tg_is_watching(watcher) (PyThreadState_Get()->c_profileobj == (watcher))
    #else
    #define tg_is_watching(watcher) 0
    #endif
    """
    bint tg_is_watching(PyObject*)


STANDARD = "Python's own"


cdef class CallFilter:
    """Tell a profile function of the calls that it has something to say of: 99 of 100 are the library's own.

    Args:
        told: the function, as `sys.setprofile` takes one.
        libraries: {name of a file: True if it is the library's, STANDARD if Python's}; of others the function
            is told, and of calls of functions in C by the latter.
        seeding: code objects whose calls and returns it is told of anyhow.
        all_calls: it is told of calls of the library's code, too.
    """
    cdef object told
    cdef dict libraries
    cdef tuple seeding
    cdef bint all_calls, pauses

    def __init__(self, told, dict libraries, tuple seeding, bint all_calls):
        self.told, self.libraries, self.seeding, self.all_calls = told, libraries, seeding, all_calls

    def __call__(self, frame, event, arg):
        self.told(frame, event, arg)

    def start(self):
        """Be this thread's profile function until another is set, or an error is raised."""
        PyEval_SetProfile(call_seen, <PyObject*>self)

    def pause(self):
        """Look away while an op runs: Python's own code takes twice as long under a profile function."""
        if not self.all_calls and tg_is_watching(<PyObject*>self):
            self.pauses = True
            PyEval_SetProfile(NULL, NULL)

    def resume(self):
        """Look again, if it was this that looked away."""
        if self.pauses:
            self.pauses = False
            PyEval_SetProfile(call_seen, <PyObject*>self)


cdef int call_seen(PyObject* watcher, PyFrameObject* frame, int what, PyObject* arg) except -1:
    cdef CallFilter own = <CallFilter>watcher
    cdef PyObject* found
    cdef PyCodeObject* code
    cdef bint seeds = False
    if what != PyTrace_CALL and what != PyTrace_RETURN and what != PyTrace_C_CALL:
        return 0
    code = PyFrame_GetCode(frame)
    Py_DECREF(code)     # the frame holds it
    for one in own.seeding:
        seeds = seeds or <PyObject*>one == <PyObject*>code
    if not seeds:
        if what == PyTrace_RETURN:
            return 0
        found = PyDict_GetItem(own.libraries, <object>code.co_filename)
        if found != NULL and (<object>found is True or <object>found is STANDARD and what != PyTrace_C_CALL) \
                and (what != PyTrace_CALL or not own.all_calls):
            return 0
    try:
        own.told(<object>frame, "call" if what == PyTrace_CALL else "return" if what == PyTrace_RETURN else "c_call",
                 None if arg == NULL else <object>arg)
    except BaseException:
        PyEval_SetProfile(NULL, NULL)
        raise
    return 0
