# Kernels of ops whose result has as many elements as the data say: they allocate it themselves.
import tangrad

cdef extern from "indices/masked.h":
    enum:
        TGC_MASK_CHUNK
    ctypedef struct tgc_masked:
        void (*count)(const uint8_t*, int64_t, int64_t*) noexcept nogil
        void (*select)(const uint8_t*, int64_t, const int64_t*, const char*, char*, int) noexcept nogil
        void (*places)(const uint8_t*, int64_t, const int64_t*, int, const int64_t*, int64_t, int64_t*) noexcept nogil
        void (*range)(const int64_t*, int64_t, int64_t*, int64_t*) noexcept nogil
        void (*histogram)(const int64_t*, int64_t, const double*, int64_t*, double*) noexcept nogil


cdef const tgc_masked* masked() except NULL:
    return <const tgc_masked*>(<const tgc_kernel*><size_t>found[("masked parts", "")]).context


cdef void* memory(object tensor):
    return core.host_data(<PyObject*>tensor)


cdef object packed(object tensor):
    """Return a tensor's elements side by side, at addresses that C can load them from."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % tensor.itemsize else tensor


cdef object new(object shape, object dtype, object like):
    """Return an uninitialised tensor."""
    return like.new_empty(shape, dtype=dtype)


cdef object first_places(object mask):
    """Return (where each chunk of a packed mask begins to write, how many elements are true)."""
    cdef int64_t n = mask.numel(), total = 0, c, here
    cdef int64_t chunks = (n + TGC_MASK_CHUNK - 1) // TGC_MASK_CHUNK
    starts = new((chunks,), tangrad.int64, mask)
    cdef int64_t* counts = <int64_t*>memory(starts)
    cdef const uint8_t* bits = <const uint8_t*>memory(mask)
    cdef const tgc_masked* parts = masked()
    if n == 0:
        return starts, 0
    with nogil:
        parts.count(bits, n, counts)
        for c in range(chunks):
            here = counts[c]
            counts[c] = total
            total += here
    return starts, total


def masked_select(outs, args):
    """List the elements of a tensor where a mask, broadcast together with it, is true."""
    self, mask = args if args[0].shape == args[1].shape else tangrad.broadcast_tensors(*args)
    self, mask = self.contiguous(), mask.contiguous()
    starts, total = first_places(mask)
    result = new((total,), self.dtype, self)
    cdef int64_t n = mask.numel()
    cdef int itemsize = self.itemsize
    cdef const uint8_t* bits = <const uint8_t*>memory(mask)
    cdef const int64_t* first = <const int64_t*>memory(starts)
    cdef const char* source = <const char*>memory(self)
    cdef char* target = <char*>memory(result)
    cdef const tgc_masked* parts = masked()
    if total:
        with nogil:
            parts.select(bits, n, first, source, target, itemsize)
    return (result,)


def nonzero_table(outs, args):
    """List the places of the elements that are not zero, one column per element."""
    mask = args[0].to(tangrad.bool).contiguous()
    starts, total = first_places(mask)
    result = new((mask.ndim, total), tangrad.int64, mask)
    cdef int64_t n = mask.numel(), count = total
    cdef int ndim = mask.ndim
    cdef const uint8_t* bits = <const uint8_t*>memory(mask)
    cdef const int64_t* first = <const int64_t*>memory(starts)
    cdef const int64_t* shape = core.shape(<PyObject*>mask)
    cdef int64_t* target = <int64_t*>memory(result)
    cdef const tgc_masked* parts = masked()
    if total and ndim:
        with nogil:
            parts.places(bits, n, first, ndim, shape, count, target)
    return (result,)


def bincount(outs, args):
    """Count how often each number occurs, or add up the weights of its occurrences."""
    self, weights, minlength = args
    numbers = packed(self.to(tangrad.int64))
    cdef int64_t n = numbers.numel(), least = 0, most = -1
    cdef const int64_t* values = <const int64_t*>memory(numbers)
    cdef const double* added = NULL
    cdef int64_t* counts = NULL
    cdef double* sums = NULL
    cdef const tgc_masked* parts = masked()
    if n:
        with nogil:
            parts.range(values, n, &least, &most)
    if least < 0:
        raise RuntimeError(f"bincount only supports 1-d non-negative integral inputs, got the value {least}")
    size = max(most + 1, minlength)
    result = tangrad.zeros((size,), dtype=tangrad.int64 if weights is None else tangrad.float64, device=self.device)
    if weights is None:
        counts = <int64_t*>memory(result)
    else:
        wide = packed(weights.to(tangrad.float64))
        added = <const double*>memory(wide)
        sums = <double*>memory(result)
    with nogil:
        parts.histogram(values, n, added, counts, sums)
    if weights is not None and weights.dtype == tangrad.float32:
        result = result.to(tangrad.float32)
    return (result,)


def distinct(outs, args):
    """List the distinct elements of a tensor, or its runs; slices are left to the reference."""
    self, dim, consecutive, inverse, counts = args
    count = self.numel()
    if (dim is not None and self.ndim) or count == 0:
        from tangrad.plugin import find_op, reference_kernel
        return reference_kernel(find_op("_distinct"), self.dtype)(outs, args)
    order = None
    placed = self.reshape((-1,))
    if not consecutive:
        placed, order = placed.sort()
    # NaN differs from itself, so that each is distinct.
    starts = new((count,), tangrad.bool, self)
    starts[0] = True
    tangrad.ne(placed[1:], placed[:-1], out=starts[1:])
    which = how_many = new((0,), tangrad.int64, self)
    if inverse:
        which = starts.cumsum(0).sub_(1)
        which = which if order is None else new((count,), tangrad.int64, self).scatter_(0, order, which)
        which = which.reshape(self.shape)
    if counts:
        first = starts.nonzero().reshape((-1,))
        end = new((1,), tangrad.int64, self).fill_(count)
        how_many = tangrad.cat((first[1:], end)).sub_(first)
    return tangrad.masked_select(placed, starts), which, how_many


DYNAMIC = {"masked_select": masked_select, "nonzero_table": nonzero_table, "bincount": bincount,
           "_distinct": distinct}
