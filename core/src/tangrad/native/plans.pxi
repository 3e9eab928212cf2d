# Plans: what the rules of a general op said of a call, kept for the next call that is like it.
#
# Rules (check, shape, dtype, memory format) are Python and take longer than small kernels. They are
# functions of what a key holds: the geometry and dtype of tensors, the values of all else. A rule
# that looks at the elements of a tensor is noticed, and nothing is kept.

cdef enum:
    PLAN_BITS = 3                        # 8 plans per op; a call has one place, which the last one there keeps
    PLAN_MOST_BITS = 8                   # where programs need more: they take 160 KB then
    PLAN_KEY = 48                        # words
    PLAN_SHAPES = 24                     # words for all results together
    PLAN_RESULTS = 4
    # The first word of what a key holds of an argument tells its kind.
    KEY_NONE = 1
    KEY_INT = 2
    KEY_BOOL = 3
    KEY_FLOAT = 4
    KEY_COMPLEX = 5
    KEY_INTS = 6
    KEY_TEXT = 7
    KEY_DTYPE = 8
    KEY_TENSOR = 9
    KEY_TENSORS = 10
    KEY_TEXT_WORDS = 3                   # texts of up to 24 bytes

cdef struct tg_plan_results:
    int count
    bint last                            # those of as many dimensions as the first are channels last
    int dtypes[PLAN_RESULTS]
    int ranks[PLAN_RESULTS]
    int64_t shapes[PLAN_SHAPES]

cdef struct tg_plan:
    int words                            # of the key; 0: nothing is kept here
    int64_t counters                     # random ops: how many a call takes of its stream, or -1: not asked yet
    tg_plan_results results
    int64_t key[PLAN_KEY]

cdef struct tg_plan_key:
    int words
    uint64_t hash
    int reads                            # tg_tls.reads when the key was made
    int64_t word[PLAN_KEY]


cdef inline uint64_t hashed(uint64_t hash, int64_t word) noexcept:
    return (hash ^ <uint64_t>word) * 0x9E3779B97F4A7C15ULL


cdef inline bint key_put(tg_plan_key* key, int64_t word) noexcept:
    if key.words == PLAN_KEY:
        return False
    key.word[key.words] = word
    key.words += 1
    key.hash = hashed(key.hash, word)
    return True


cdef inline bint key_int(tg_plan_key* key, PyObject* value) noexcept:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(<object>value, &overflow)
    return overflow == 0 and key_put(key, number)


cdef bint key_tensor(tg_plan_key* key, Tensor t) noexcept:
    cdef int64_t header = KEY_TENSOR | t.dtype_.index << 8 | t.ndim_ << 16
    cdef int d
    if t.flags & (CONJ | NEG | PY_DISPATCH) or t.level_ is not None:
        return False
    if not key_put(key, header | <int64_t>t.slot_ << 32 | <int64_t>t.storage_.dev.index << 48):
        return False
    for d in range(t.ndim_):
        if not key_put(key, t.shape_[d]) or not key_put(key, t.stride_[d]):
            return False
    return True


cdef bint key_sequence(tg_plan_key* key, PyObject* value) noexcept:
    """A tuple or list of tensors and None, or of ints."""
    cdef bint is_list = PyList_CheckExact(<object>value)
    cdef Py_ssize_t i, n = PyList_GET_SIZE(<object>value) if is_list else PyTuple_GET_SIZE(<object>value)
    cdef PyObject* item
    if not key_put(key, (KEY_TENSORS if is_list else KEY_INTS) | n << 8):
        return False
    for i in range(n):
        item = PyList_GET_ITEM(<object>value, i) if is_list else PyTuple_GET_ITEM(<object>value, i)
        if is_list and item == Py_None_ptr:
            if not key_put(key, KEY_NONE):
                return False
        elif is_list and exact_tensor(item):
            if not key_tensor(key, <Tensor>item):
                return False
        elif is_list or not PyLong_CheckExact(<object>item) or not key_int(key, item):
            return False
    return True


cdef bint key_text(tg_plan_key* key, PyObject* value) except -1:
    cdef Py_ssize_t length = 0
    cdef const char* text = PyUnicode_AsUTF8AndSize(<object>value, &length)
    cdef int64_t word[KEY_TEXT_WORDS]
    cdef int i
    if length > sizeof(word):
        return False
    memset(word, 0, sizeof(word))
    memcpy(word, text, length)
    for i in range(KEY_TEXT_WORDS):
        if not key_put(key, word[i]):
            return False
    return True


cdef bint key_value(tg_plan_key* key, PyObject* x) except -1:
    """Add an argument to a key; False for what a key cannot hold."""
    cdef int64_t bits[2]
    cdef double parts[2]
    if x == Py_None_ptr:
        return key_put(key, KEY_NONE)
    if exact_tensor(x):
        return key_tensor(key, <Tensor>x)
    if PyLong_CheckExact(<object>x):
        return key_put(key, KEY_INT) and key_int(key, x)
    if PyBool_Check(<object>x):
        return key_put(key, KEY_BOOL | (<int64_t>(<object>x is True)) << 8)
    if PyFloat_CheckExact(<object>x):
        parts[0] = PyFloat_AS_DOUBLE(<object>x)
        memcpy(bits, parts, 8)
        return key_put(key, KEY_FLOAT) and key_put(key, bits[0])
    if PyTuple_CheckExact(<object>x) or PyList_CheckExact(<object>x):
        return key_sequence(key, x)
    if isinstance(<object>x, str):
        return key_put(key, KEY_TEXT) and key_text(key, x)
    if isinstance(<object>x, dtype):
        return key_put(key, KEY_DTYPE | (<dtype>x).index << 8)
    if PyComplex_CheckExact(<object>x):
        parts[0], parts[1] = (<object>x).real, (<object>x).imag
        memcpy(bits, parts, 16)
        return key_put(key, KEY_COMPLEX) and key_put(key, bits[0]) and key_put(key, bits[1])
    return False


cdef bint plan_key(Op op, PyObject** flat, tg_plan_key* key) except -1:
    """Write down all that the rules of an op may ask of a call; False where that cannot be."""
    # Random numbers are of a call, not of its form, and so is where they are taken from.
    cdef int i, n = op.nparams - 2 if op.random else op.nparams
    key.words, key.hash, key.reads = 0, 0, tg_tls.reads
    if not key_put(key, default_dtype):
        return False
    for i in range(n):
        if i != op.generator_param and not key_value(key, flat[i]):
            return False
    return True


cdef inline tg_plan* place_of_plan(Op op, uint64_t hash) noexcept:
    return &op.plans[hash >> (64 - op.plan_bits)]


cdef inline bint has_key(tg_plan* plan, tg_plan_key* key) noexcept:
    return plan.words == key.words and memcmp(plan.key, key.word, key.words * sizeof(int64_t)) == 0


cdef inline tg_plan* plan_of(Op op, tg_plan_key* key) noexcept:
    """The plan for a key; NULL if there is none."""
    cdef tg_plan* plan
    if op.plans == NULL:
        return NULL
    plan = place_of_plan(op, key.hash)
    return plan if has_key(plan, key) else NULL


cdef int more_plans(Op op) except -1:
    """Have the first places, or four times as many: sizes that change from call to call come again."""
    cdef tg_plan* before = op.plans
    cdef tg_plan* made
    cdef int bits = min(op.plan_bits + 2, <int>PLAN_MOST_BITS) if before != NULL else PLAN_BITS
    cdef int i, k, count = 1 << op.plan_bits if before != NULL else 0
    cdef uint64_t hash
    made = <tg_plan*>calloc(1 << bits, sizeof(tg_plan))
    if made == NULL:
        raise MemoryError("plans of an op")
    op.plans, op.plan_bits, op.plans_lost = made, bits, 0
    for i in range(count):
        if before[i].words:
            hash = 0
            for k in range(before[i].words):
                hash = hashed(hash, before[i].key[k])
            place_of_plan(op, hash)[0] = before[i]
    free(before)
    return 0


cdef int keep_plan(Op op, tg_plan_key* key, list metas, bint last=False) except -1:
    """Keep what the rules said of a call, unless they have looked at elements."""
    cdef tg_plan* plan
    cdef int i, used = 0
    if key.reads != tg_tls.reads or len(metas) > PLAN_RESULTS:
        return 0
    for size, _ in metas:
        used += <int>len(size)
        if last and 0 in size:
            return 0
    if used > PLAN_SHAPES:
        return 0
    if op.plans == NULL:
        more_plans(op)
    plan = place_of_plan(op, key.hash)
    if plan.words and not has_key(plan, key):
        op.plans_lost += 1
        if op.plans_lost > 1 << op.plan_bits and op.plan_bits < PLAN_MOST_BITS:
            more_plans(op)
            plan = place_of_plan(op, key.hash)
    plan.words, plan.counters, plan.results.count, plan.results.last, used = 0, -1, <int>len(metas), last, 0
    for i, (size, dt) in enumerate(metas):
        plan.results.dtypes[i], plan.results.ranks[i] = (<dtype>dt).index, <int>len(size)
        for extent in size:
            plan.results.shapes[used] = extent
            used += 1
    memcpy(plan.key, key.word, key.words * sizeof(int64_t))
    plan.words = key.words
    return 0


cdef int check_once(Op op, PyObject** flat) except -1:
    """Run the check of an op that is no general one, unless it had nothing to say of a call like this."""
    cdef tg_plan_key key
    cdef bint keyed = plan_key(op, flat, &key)
    if keyed and plan_of(op, &key) != NULL:
        return 0
    op.definition.check_arguments(tuple_of(flat, op.nparams))
    if keyed:
        keep_plan(op, &key, [])
    return 0


def keep_no_plan():
    """Have the rule that calls this asked every time: it warns, and every call deserves the warning."""
    tg_tls.reads += 1


cdef Tensor first_of(Op op, PyObject** flat):
    """The first tensor of a call, or None."""
    cdef int i
    for i in range(op.nparams):
        x = <object>flat[i]
        if isinstance(x, Tensor):
            return <Tensor>x
        if op.ptype[i] == P_TENSORS:
            for member in <list>x:
                if member is not None:
                    return <Tensor>member
    return None


cdef object run_planned(Op op, tg_plan* plan, PyObject** flat):
    """Run a general op whose results are known beforehand."""
    cdef DeviceRuntime dev = first_of(op, flat).storage_.dev
    # An allocation may collect garbage, hence run programs, and these keep another plan here.
    cdef tg_plan_results results = plan.results
    cdef int64_t* shape = results.shapes
    cdef int64_t stride[MAX_DIMS]
    cdef int i, rank
    cdef list made = []
    for i in range(results.count):
        rank = results.ranks[i]
        if results.last and rank == results.ranks[0]:
            channels_last_stride(rank, shape, stride)
            made.append(empty_strided_c(rank, shape, stride, results.dtypes[i], dev))
        else:
            made.append(empty_contiguous(rank, shape, results.dtypes[i], dev))
        shape += rank
    run_into(op, dev, made, flat)
    if op.nout == 1:
        return made[0]
    return op.return_type(*made) if op.return_type is not None else tuple(made)


cdef inline bint in_place_of(tg_plan* plan, Tensor out) noexcept:
    """Whether the result of a plan is what the tensor of an in-place form can hold as it is."""
    return plan.results.dtypes[0] == out.dtype_.index and has_shape(out, plan.results.ranks[0], plan.results.shapes)


cdef object run_planned_into(Op op, PyObject** flat, Tensor out):
    """The same for an in-place form whose result has the shape and dtype of its tensor."""
    cdef Tensor o = out
    cdef list made
    cdef tg_kernel* kernel = find_kernel(op, out.slot_, out.dtype_.index)
    if overlaps_itself(out):
        raise overlap_error(op, out)
    # A kernel in C may read its first argument while it writes it, but no other.
    if shares_storage(out, tuple_of(flat, op.nparams), kernel.kind == KERNEL_CALL):
        o = empty_contiguous(out.ndim_, out.shape_, out.dtype_.index, out.storage_.dev)
    made = [o]
    run_into(op, out.storage_.dev, made, flat)
    if o is not out:
        copy_into(out, o)
    return out


cdef Tensor run_planned_writing(Op op, PyObject** flat):
    """Run an op that writes one of its arguments and whose check had nothing to say."""
    cdef Tensor t = <Tensor>flat[op.written]
    run_into(op, t.storage_.dev, [t], flat)
    return t


cdef object run_planned_dynamic(Op op, PyObject** flat):
    """Run an op whose results only its kernel knows and whose check had nothing to say."""
    cdef Tensor first = first_of(op, flat)
    return call_python_kernel(op, find_kernel(op, first.storage_.dev.slot, first.dtype_.index),
                              (None, tuple_of(flat, op.nparams)))


cdef int run_into(Op op, DeviceRuntime dev, list made, PyObject** flat) except -1:
    cdef tg_kernel* kernel = find_kernel(op, dev.slot, first_of(op, flat).dtype_.index)
    if kernel.kind != KERNEL_CALL:
        call_python_kernel(op, kernel, (tuple(made), tuple_of(flat, op.nparams)))
    elif call_c_kernel(op, kernel, dev, made, flat) == TG_DECLINED:
        run_tensor_code(op, made, tuple_of(flat, op.nparams))
    return 0
