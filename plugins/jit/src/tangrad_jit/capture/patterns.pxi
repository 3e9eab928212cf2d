# The structure of arguments, and which of them share memory.

cdef class Pattern:
    """The structure of arguments: nested tuples, lists and dicts of tensors and of constants.

    Attributes:
        leaves: (path, kind, what): "tensor" with its Geometry, or "constant" with the object.
    """
    cdef object shape, given
    cdef readonly list leaves

    def __init__(self, args, kwargs, given=()):
        self.leaves, self.given = [], given
        self.shape = (self.learn(args, "args"), self.learn(kwargs, "kwargs"))

    def learn(self, item, path):
        kind = type(item)
        if API.is_tensor(<PyObject*>item):
            geometry = Geometry(item, True)
            self.leaves.append((path, "tensor", geometry))
            return geometry
        if kind is tuple or kind is list:
            return (kind, [self.learn(member, f"{path}[{i}]") for i, member in enumerate(item)])
        if kind is dict:
            return (kind, list(item), [self.learn(value, f"{path}[{key!r}]") for key, value in item.items()])
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return (kind, [self.learn(member, f"{path}[{i}]") for i, member in enumerate(item)])
        if ("argument", path) in self.given:
            self.leaves.append((path, "number", type(item)))
            return Constant(Any(kind))
        self.leaves.append((path, "constant", item))
        return Constant(item)

    def watch_gradients(self):
        """Compare of all tensors whether they have a gradient, also where they require none."""
        for _, kind, geometry in self.leaves:
            if kind == "tensor":
                (<Geometry>geometry).watched = True

    def match(self, tuple args, dict kwargs):
        """Return the tensors in order, or None where the arguments are of another structure."""
        cdef list found = []
        if fits(self.shape[0], args, found) and fits(self.shape[1], kwargs, found):
            return found
        return None


cdef class Constant:
    cdef object value

    def __init__(self, value):
        self.value = value


cdef bint fits(object shape, object item, list found):
    cdef Py_ssize_t i
    cdef list members
    if type(shape) is Geometry:
        if not API.is_tensor(<PyObject*>item) or not (<Geometry>shape).fits(item):
            return False
        found.append(item)
        return True
    if type(shape) is Constant:
        return item is (<Constant>shape).value or fitting(item, (<Constant>shape).value)
    if type(item) is not shape[0]:
        return False
    if shape[0] is dict:
        if len(<dict>item) != len(shape[1]) or list(<dict>item) != shape[1]:
            return False
        members = shape[2]
        for i, value in enumerate((<dict>item).values()):
            if not fits(members[i], value, found):
                return False
        return True
    members = shape[1]
    if len(item) != len(members):
        return False
    for i in range(len(members)):
        if not fits(members[i], item[i], found):
            return False
    return True


cdef class Identities:
    """Which arguments are one object, and which are tensors that the program holds: as they were, or others.

    Programs ask (`key is value`), and an object has one gradient.

    Args:
        arguments: the tensors of the call. held: those of the program. pinned: arguments that must come again.
    """
    cdef int count
    cdef int* first
    cdef void** wanted
    cdef void** held
    cdef void** seen
    cdef size_t held_mask, seen_mask
    cdef list kept

    def __init__(self, list arguments, list held, list pinned):
        cdef int k
        cdef dict known = {}
        self.count, self.kept = len(arguments), [*held, *pinned]
        self.held_mask, self.seen_mask = mask_for(len(self.kept)), mask_for(self.count)
        self.first = <int*>malloc((self.count + 1) * sizeof(int))
        self.wanted = <void**>malloc((self.count + 1) * sizeof(void*))
        self.held = <void**>calloc(self.held_mask + 1, sizeof(void*))
        self.seen = <void**>calloc(self.seen_mask + 1, sizeof(void*))
        if self.first == NULL or self.wanted == NULL or self.held == NULL or self.seen == NULL:
            raise MemoryError(f"no memory to compare {self.count} arguments")
        for tensor in self.kept:
            put_in(self.held, self.held_mask, <void*>tensor)
        for k, tensor in enumerate(arguments):
            self.first[k] = known.setdefault(id(tensor), k)
            self.wanted[k] = <void*>tensor if is_in(self.held, self.held_mask, <void*>tensor) else NULL

    def __dealloc__(self):
        free_memory(self.first)
        free_memory(self.wanted)
        free_memory(self.held)
        free_memory(self.seen)

    cpdef bint hold(self, list given):
        """Return whether it is so for these arguments."""
        cdef int k
        cdef void* tensor
        memset(self.seen, 0, (self.seen_mask + 1) * sizeof(void*))
        for k in range(self.count):
            tensor = <void*>PyList_GET_ITEM(given, k)
            if self.wanted[k] != NULL:
                if tensor != self.wanted[k]:
                    return False
            elif is_in(self.held, self.held_mask, tensor):
                return False
            if self.first[k] != k:
                if tensor != <void*>PyList_GET_ITEM(given, self.first[k]):
                    return False
            elif not put_in(self.seen, self.seen_mask, tensor):
                return False
        return True


cdef size_t mask_for(Py_ssize_t count):
    cdef size_t size = 4
    while size < 2 * <size_t>count:
        size *= 2
    return size - 1


cdef inline bint is_in(void** table, size_t mask, void* item) noexcept:
    cdef size_t at = (<size_t>item >> 4) & mask
    while table[at] != NULL:
        if table[at] == item:
            return True
        at = (at + 1) & mask
    return False


cdef inline bint put_in(void** table, size_t mask, void* item) noexcept:
    """Put an address into a table, unless it is there; return whether it was not."""
    cdef size_t at = (<size_t>item >> 4) & mask
    while table[at] != NULL:
        if table[at] == item:
            return False
        at = (at + 1) & mask
    table[at] = item
    return True


cdef class Overlaps:
    """Whether an argument shares bytes with what is written, or is written and shares bytes with an input.

    Args:
        tensors: per input the tensor that the program holds, or None for an argument; arguments come first.
        graded: per input whether it is that tensor's gradient.
        extents: bytes from the first element's to the last one's end; 0 for numbers, which share none.
        written: places of what is written. nargs: how many tensors are arguments.
    """
    cdef list tensors
    cdef int64_t* extents
    cdef size_t* starts
    cdef int* pairs
    cdef int* asked
    cdef int npairs, nasked, nargs

    def __init__(self, list tensors, list graded, list extents, list written, int nargs):
        cdef int k, count = len(tensors)
        self.tensors, self.nargs = tensors, nargs
        chosen = {
            (min(a, w), max(a, w)) for w in written for a in range(count)
            if a != w and min(a, w) < nargs and extents[a] and extents[w]
        }
        self.extents = <int64_t*>malloc((count + 1) * sizeof(int64_t))
        self.starts = <size_t*>malloc((count + 1) * sizeof(size_t))
        self.asked = <int*>malloc((2 * count + 1) * sizeof(int))
        self.pairs = <int*>malloc((2 * len(chosen) + 1) * sizeof(int))
        if self.extents == NULL or self.starts == NULL or self.asked == NULL or self.pairs == NULL:
            raise MemoryError(f"no memory to compare {count} inputs")
        for k in range(count):
            self.extents[k] = extents[k]
        for k in sorted({k for pair in chosen for k in pair}):
            self.asked[2 * self.nasked], self.asked[2 * self.nasked + 1] = k, graded[k]
            self.nasked += 1
        for a, b in sorted(chosen):
            self.pairs[2 * self.npairs], self.pairs[2 * self.npairs + 1] = a, b
            self.npairs += 1

    def __dealloc__(self):
        free_memory(self.extents)
        free_memory(self.starts)
        free_memory(self.asked)
        free_memory(self.pairs)

    cpdef bint found(self, list arguments):
        """Return whether it is so for these arguments."""
        cdef int i, a, b
        cdef size_t p, q
        for i in range(self.nasked):
            a = self.asked[2 * i]
            tensor = arguments[a] if a < self.nargs else self.tensors[a]
            if self.asked[2 * i + 1]:
                tensor = tensor.grad
            self.starts[a] = <size_t>API.host_data(<PyObject*>tensor) or <size_t>tensor.data_ptr()
        for i in range(self.npairs):
            a, b = self.pairs[2 * i], self.pairs[2 * i + 1]
            p, q = self.starts[a], self.starts[b]
            if p < q + <size_t>self.extents[b] and q < p + <size_t>self.extents[a]:
                if arguments[a] is not (arguments[b] if b < self.nargs else self.tensors[b]):
                    return True
        return False
