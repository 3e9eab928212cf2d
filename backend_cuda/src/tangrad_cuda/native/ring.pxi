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
# A file that is none of this library's: usually that of the next launch, too.
cdef object _foreign_file = None


def own_folders(tuple folders):
    """Say which folders' lines are none that a user could change."""
    global _own_folders, _foreign_file
    _own_folders, _foreign_file = folders, None
    _own_files.clear()


cdef int is_own(PyObject* file) except -1:
    global _foreign_file
    cdef PyObject* found
    if file == <PyObject*>_foreign_file:
        return 0
    found = PyDict_GetItem(_own_files, file)
    if found != NULL:
        own = <object>found is True
    else:
        _own_files[<object>file] = own = (<str?><object>file).startswith(_own_folders)
    if not own:
        _foreign_file = <object>file
    return own


cdef int note(int index, PyObject* label) except -1:
    """Remember a launch, and the nearest line outside of this library."""
    cdef standing* frame = innermost_frame()
    cdef standing* outer
    cdef PyCodeObject* code
    cdef launched* place
    cdef ring* r = rings[index]
    if r == NULL:
        r = rings[index] = <ring*>calloc(1, sizeof(ring))
        if r == NULL:
            raise MemoryError("the ring of launches")
    if frame == NULL:
        return 0
    code = code_of(frame)
    while is_own(code.co_filename):
        outer = outer_frame(frame)
        if outer == NULL:
            break
        frame, code = outer, code_of(outer)
    place = &r.kept[r.count % KEPT]
    r.count += 1
    cdef PyObject* old_label = place.label
    cdef PyCodeObject* old_code = place.code
    Py_INCREF(<object>label)
    Py_INCREF(<object><PyObject*>code)
    place.label, place.code, place.lasti = label, code, offset_in_code(frame)
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
