# A call of a kernel as a key: all that the kernel may look at but the addresses of its operands.

cdef enum:
    MAX_TENSORS = 12
    MAX_NUMBERS = 24
    MAX_WORDS = 192
    KEY_NONE = 1
    KEY_INT = 2
    KEY_BOOL = 3
    KEY_FLOAT = 4
    KEY_SEQUENCE = 5
    KEY_DICT = 6
    KEY_TEXT = 7
    KEY_DTYPE = 8
    KEY_TENSOR = 9
    KEY_NUMBER = 10
    # Vector loads are of 16 bytes at most.
    ALIGNMENT = 15

cdef struct call:
    int ntensors
    int nnumbers
    int nwords
    uint64_t hash
    void* device
    uint64_t address[MAX_TENSORS]
    uint64_t end[MAX_TENSORS]
    PyObject* number[MAX_NUMBERS]
    int64_t word[MAX_WORDS]

cdef int64_t _itemsize[256]


cdef inline bint put(call* c, int64_t word) noexcept:
    if c.nwords == MAX_WORDS:
        return False
    c.word[c.nwords] = word
    c.nwords += 1
    c.hash = (c.hash ^ <uint64_t>word) * 0x9E3779B97F4A7C15ULL
    return True


cdef bint take_tensor(call* c, PyObject* t) except -1:
    """Add a tensor; False where the call cannot be kept."""
    cdef int ndim = api.ndim(t), dtype = api.dtype_index(t), d, k = c.ntensors
    cdef const int64_t* shape = api.shape(t)
    cdef const int64_t* strides = api.strides(t)
    cdef void* device = api.device_of(t)
    cdef uint64_t address
    cdef int64_t extent = 1
    if k == MAX_TENSORS or not 0 <= dtype < 256 or (c.device != NULL and device != c.device):
        return False
    c.device = device
    address = (<object>t).data_ptr()
    if not put(c, KEY_TENSOR | dtype << 8 | ndim << 16 | <int64_t>(address & ALIGNMENT) << 32):
        return False
    for d in range(ndim):
        if strides[d] < 0 or not put(c, shape[d]) or not put(c, strides[d]):
            return False
        extent = 0 if shape[d] == 0 else extent + (shape[d] - 1) * strides[d]
    if _itemsize[dtype] == 0:
        _itemsize[dtype] = (<object>t).itemsize
    c.address[k], c.end[k] = address, address + <uint64_t>(extent * _itemsize[dtype])
    c.ntensors += 1
    return True


cdef bint take_number(call* c, PyObject* x) except -1:
    """Add a number whose value a replay writes anew."""
    if c.nnumbers == MAX_NUMBERS:
        return False
    c.number[c.nnumbers] = x
    c.nnumbers += 1
    return put(c, KEY_NUMBER | <int64_t>(x == Py_None_ptr) << 8)


cdef bint take_text(call* c, PyObject* x) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text = PyUnicode_AsUTF8AndSize(<object>x, &size)
    cdef int64_t word[4]
    cdef int i
    if size > <Py_ssize_t>sizeof(word):
        return False
    memset(word, 0, sizeof(word))
    memcpy(word, text, size)
    if not put(c, KEY_TEXT | size << 8):
        return False
    for i in range(4):
        if not put(c, word[i]):
            return False
    return True


cdef bint take(call* c, PyObject* x, bint by_place) except -1:
    """Add an argument; False for what a key cannot hold.

    by_place: the kernel gets numbers as they are, and a replay writes them anew.
    """
    cdef int overflow = 0
    cdef int64_t number
    cdef double value
    cdef Py_ssize_t i, n
    if api.is_tensor(x):
        return take_tensor(c, x)
    if PyTuple_Check(<object>x):
        n = PyTuple_GET_SIZE(<object>x)
        if not put(c, KEY_SEQUENCE | n << 8):
            return False
        for i in range(n):
            if not take(c, PyTuple_GET_ITEM(<object>x, i), by_place):
                return False
        return True
    if PyList_Check(<object>x):
        n = PyList_GET_SIZE(<object>x)
        if not put(c, KEY_SEQUENCE | n << 8):
            return False
        for i in range(n):
            if not take(c, PyList_GET_ITEM(<object>x, i), by_place):
                return False
        return True
    if PyDict_Check(<object>x):
        # An op's parameters: the names are always the same.
        if not put(c, KEY_DICT | <int64_t>len(<dict><object>x) << 8):
            return False
        for item in (<dict><object>x).values():
            if not take(c, <PyObject*>item, by_place):
                return False
        return True
    if x == Py_None_ptr:
        return take_number(c, x) if by_place else put(c, KEY_NONE)
    if PyBool_Check(<object>x):
        return take_number(c, x) if by_place else put(c, KEY_BOOL | <int64_t>(<object>x is True) << 8)
    if PyLong_CheckExact(<object>x):
        if by_place:
            return take_number(c, x)
        number = PyLong_AsLongLongAndOverflow(<object>x, &overflow)
        return overflow == 0 and put(c, KEY_INT) and put(c, number)
    if PyFloat_CheckExact(<object>x):
        if by_place:
            return take_number(c, x)
        value = PyFloat_AS_DOUBLE(<object>x)
        memcpy(&number, &value, 8)
        return put(c, KEY_FLOAT) and put(c, number)
    if PyUnicode_CheckExact(<object>x):
        return take_text(c, x)
    if isinstance(<object>x, _dtype_type):
        return put(c, KEY_DTYPE) and put(c, <int64_t>x)
    # A generator has told where its stream stands: the numbers are what a kernel looks at.
    return by_place and isinstance(<object>x, (complex, _generator_type)) and take_number(c, x)


cdef bint take_call(call* c, tuple args, bint by_place) except -1:
    """Write a call down; False where it cannot be kept."""
    cdef int i, j
    cdef int64_t relation
    c.ntensors, c.nnumbers, c.nwords, c.hash, c.device = 0, 0, 0, 0, NULL
    # A list, such as of a fused optimizer, may be long: its kernels do without.
    for i in range(<int>PyTuple_GET_SIZE(args)):
        if not take(c, PyTuple_GET_ITEM(args, i), by_place):
            return False
    # A kernel is loaded for one device.
    if not put(c, <int64_t>c.device):
        return False
    # Who shares memory with whom decides whether a kernel copies first.
    for i in range(c.ntensors):
        for j in range(i):
            if c.address[i] == c.address[j]:
                relation = 1
            elif c.address[i] < c.end[j] and c.address[j] < c.end[i]:
                relation = 2
            else:
                continue
            if not put(c, relation | i << 8 | j << 16):
                return False
    return True
