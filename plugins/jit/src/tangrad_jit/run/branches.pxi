# Branches of a program: steps that run without the GIL, on the threads of the pool.

cdef enum:
    # A parallel region is timed so often each way before one is taken; the first run, in turn, does not count.
    TRIES = 21

cdef struct tg_branch:
    int* steps                    # their places in the program, in order
    int count
    int done                      # how many have run, of the last run
    int status                    # of the one that has ended it early, else 0
    PyObject* error               # its exception

cdef struct tg_parallel_region:           # the steps that follow, as branches
    tg_step* steps                # of the program
    tg_branch* branches
    int count
    int length                    # how many steps the branches have together
    int tries                     # how often it has run, up to TRIES
    bint always                   # whether it runs side by side without being timed
    bint apart                    # whether it runs side by side from there on
    int64_t in_turn, side_by_side  # nanoseconds, the least so far; 0: none


cdef extern from "Python.h":
    ctypedef struct PyThreadState
    ctypedef int PyGILState_STATE
    PyThreadState* PyGILState_GetThisThreadState() noexcept nogil
    PyGILState_STATE PyGILState_Ensure() noexcept nogil
    PyThreadState* PyEval_SaveThread() noexcept nogil
    PyObject* PyErr_Occurred()
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_NormalizeException(PyObject**, PyObject**, PyObject**)
    void PyErr_SetObject(PyObject*, PyObject*)
    PyObject* type_of "(PyObject *)Py_TYPE"(PyObject*) noexcept
    void Py_XDECREF(PyObject*)


cdef void run_branch(int64_t index, void* context) noexcept nogil:
    """Run a branch's steps, up to one that fails or declines."""
    cdef tg_parallel_region* region = <tg_parallel_region*>context
    cdef tg_branch* branch = &region.branches[index]
    branch.done = branch.status = 0
    if PyGILState_GetThisThreadState() == NULL:
        # The interpreter's state of this thread stays: else an exception would go with it, as soon as
        # the kernel that has raised it gives up the GIL.
        PyGILState_Ensure()
        PyEval_SaveThread()
    while branch.done < branch.count:
        branch.status = run_native(&region.steps[branch.steps[branch.done]])
        if branch.status != 0:
            if branch.status != tg.TG_DECLINED:
                keep_error(branch)
            return
        branch.done += 1


cdef void keep_error(tg_branch* branch) noexcept with gil:
    """Take the exception of this thread, for the one that waits."""
    cdef PyObject* kind = NULL
    cdef PyObject* trace = NULL
    PyErr_Fetch(&kind, &branch.error, &trace)
    if kind != NULL:
        PyErr_NormalizeException(&kind, &branch.error, &trace)
    Py_XDECREF(kind)
    Py_XDECREF(trace)


cdef tg_branch* first_unfinished(const tg_parallel_region* region) noexcept:
    """The branch whose next step is the first in the program's order, NULL where all have run."""
    cdef tg_branch* found = NULL
    cdef tg_branch* branch
    cdef int k
    for k in range(region.count):
        branch = &region.branches[k]
        if branch.done < branch.count and (found == NULL or branch.steps[branch.done] < found.steps[found.done]):
            found = branch
    return found


cdef void let_go_of_errors(tg_parallel_region* region) noexcept:
    cdef int k
    for k in range(region.count):
        Py_XDECREF(region.branches[k].error)
        region.branches[k].error = NULL


cdef int raise_kept(tg_branch* branch, int status) except -1:
    cdef PyObject* error = branch.error
    if error == NULL:
        return raise_failed(status)
    branch.error = NULL
    PyErr_SetObject(type_of(error), error)
    Py_XDECREF(error)
    return raise_failed(status)


cdef bint is_faster_apart(const tg_parallel_region* region) noexcept:
    """Whether a parallel region is to run side by side: as was faster, or to see which way is."""
    return region.apart if region.tries == TRIES else region.tries % 2 == 1


cdef void note_time(tg_parallel_region* region, bint apart, int64_t taken) noexcept:
    """Note how long a run took; after the last try the faster way is taken.

    Where other programs have the machine's threads, both ways take about as long: it may be free later.
    """
    region.tries += 1
    if apart and (region.side_by_side == 0 or taken < region.side_by_side):
        region.side_by_side = taken
    if not apart and region.tries > 1 and (region.in_turn == 0 or taken < region.in_turn):
        region.in_turn = taken
    region.apart = region.side_by_side < 1.02 * region.in_turn


cdef tuple told(const tg_parallel_region* region):
    return (region.count, region.apart if region.tries == TRIES else None, 1e-9 * region.in_turn,
            1e-9 * region.side_by_side)
