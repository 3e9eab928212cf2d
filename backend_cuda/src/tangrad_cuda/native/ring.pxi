# The last launches of each device: what a fault of the GPU, which comes to light later, is told with.

cdef enum:
    KEPT = 64

cdef struct launched:
    PyObject* label              # owned, as is the code
    PyCodeObject* code
    int lasti

cdef struct ring:
    int64_t count
    int64_t done
    launched kept[KEPT]

cdef ring* rings[64]
# {file: whether it is this library's}. Not by code objects, which end, and whose places are used again.
cdef dict _own_files = {}
cdef tuple _own_folders = ()


def own_folders(tuple folders):
    """Say which folders' lines are none that a user could change."""
    global _own_folders
    _own_folders = folders
    _own_files.clear()


cdef bint is_own(PyObject* file) except -1:
    cdef PyObject* found = PyDict_GetItem(_own_files, file)
    if found != NULL:
        return <object>found is True
    _own_files[<object>file] = own = (<str?><object>file).startswith(_own_folders)
    return own


cdef int note(int index, PyObject* label) except -1:
    """Remember a launch, and the nearest line outside of this library."""
    cdef PyFrameObject* frame
    cdef PyFrameObject* outer
    cdef PyCodeObject* code
    cdef launched* place
    cdef ring* r = rings[index]
    cdef int lasti
    if r == NULL:
        r = rings[index] = <ring*>calloc(1, sizeof(ring))
        if r == NULL:
            raise MemoryError("the ring of launches")
    frame = PyThreadState_GetFrame(PyThreadState_Get())
    if frame == NULL:
        return 0
    code = PyFrame_GetCode(frame)
    while is_own(code.co_filename):
        outer = PyFrame_GetBack(frame)
        if outer == NULL:
            break
        Py_DECREF_void(code)
        Py_DECREF_void(frame)
        frame, code = outer, PyFrame_GetCode(outer)
    lasti = PyFrame_GetLasti(frame)
    Py_DECREF_void(frame)
    place = &r.kept[r.count % KEPT]
    r.count += 1
    cdef PyObject* old_label = place.label
    cdef PyCodeObject* old_code = place.code
    Py_INCREF(<object>label)
    place.label, place.code, place.lasti = label, code, lasti
    # Last, for what goes may run programs.
    Py_XDECREF(old_label)
    Py_XDECREF(<PyObject*>old_code)
    return 0


def passed(int index):
    """All launches so far are known to have worked."""
    if rings[index] != NULL:
        rings[index].done = rings[index].count


def launched_lately(int index):
    """Return what is not known to have worked, the latest first, as (label, code, offset in it); and how much it is."""
    cdef ring* r = rings[index]
    cdef int64_t k, first
    found = []
    if r == NULL:
        return found, 0
    first = max(r.done, r.count - KEPT)
    k = r.count - 1
    while k >= first:
        if r.kept[k % KEPT].label != NULL:
            found.append((<object>r.kept[k % KEPT].label, <object><PyObject*>r.kept[k % KEPT].code,
                          r.kept[k % KEPT].lasti))
        k -= 1
    return found, r.count - first
