# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
"""The loop that runs a planned graph: kernels called directly, on memory laid out once.

A `Program` is a list of steps over registers (Python objects) and buffers (addresses). Everything a
kernel is told is filled in when the program is built; what differs between calls are the addresses
of inputs, outputs and of what ops in Python return, and they are patched where they changed.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from time import perf_counter_ns

from tangrad cimport api as tg
from tangrad.plugin import call_recorded

cdef const tg.tg_api* API = tg.tg_import_api(3)

include "run/steps.pxi"
include "run/branches.pxi"


cdef struct tg_patch:
    void** data
    uint64_t* handle              # of an operand or a view: beside its pointer; NULL elsewhere
    int64_t offset

cdef struct tg_buffer:
    char* base
    int count
    int room
    tg_patch* patches


cdef object names_of_dtypes = {}


cdef int dtype_index(str name) except -2:
    found = names_of_dtypes.get(name)
    if found is None:
        encoded = name.encode()
        found = API.dtype_by_name(encoded)
        if found < 0:
            raise ValueError(f"no dtype is named {name!r}")
        names_of_dtypes[name] = found
    return found


cdef class Kernel:
    """What runs an op for a device and a dtype."""
    cdef tg.tg_found_kernel found

    def __init__(self, op, str device, str dtype):
        layout = b"strided"
        where, kind = device.encode(), dtype.encode()
        API.find_kernel(<PyObject*>op, where, layout, kind, &self.found)

    @property
    def form(self):
        """"loop", "call" or "python"."""
        return {tg.TG_KERNEL_LOOP: "loop", tg.TG_KERNEL_CALL: "call"}.get(self.found.kind, "python")


cdef class Program:
    """A planned graph.

    Attributes:
        registers: the values that are Python objects: inputs first, then what steps make.
        busy: whether a run is under way: another one, of another thread or from within, is refused.
    """
    cdef public list registers
    cdef public list outputs          # registers that are returned
    cdef public list clears           # registers that are emptied after a run
    cdef public list keep             # what the addresses belong to
    cdef public list items
    cdef public list places           # per step: what a person is told where it fails
    cdef public bint busy
    cdef int ninputs
    cdef tg_step* steps
    cdef int nsteps, step_room
    cdef tg_buffer* buffers
    cdef int nbuffers
    cdef int* buffer_of               # register -> buffer, or -1
    cdef int nregisters
    cdef list blocks
    cdef object fixed

    def __cinit__(self, int registers, int inputs, list buffer_registers):
        """Args:
            registers: how many there are.
            inputs: how many of them, the first, are inputs.
            buffer_registers: per buffer the register whose tensor's memory it is, or -1.
        """
        cdef int i
        self.registers = [None] * registers
        self.nregisters, self.ninputs = registers, inputs
        self.outputs, self.clears, self.keep, self.items, self.places = [], [], [], [], []
        self.blocks = []
        self.nbuffers = len(buffer_registers)
        self.buffers = <tg_buffer*>PyMem_Malloc((self.nbuffers + 1) * sizeof(tg_buffer))
        self.buffer_of = <int*>PyMem_Malloc((registers + 1) * sizeof(int))
        if self.buffers == NULL or self.buffer_of == NULL:
            raise MemoryError("a program's buffers")
        memset(self.buffers, 0, self.nbuffers * sizeof(tg_buffer))
        for i in range(registers):
            self.buffer_of[i] = -1
        for i in range(self.nbuffers):
            if buffer_registers[i] >= 0:
                self.buffer_of[buffer_registers[i]] = i

    def __dealloc__(self):
        cdef int i
        if self.buffers != NULL:
            for i in range(self.nbuffers):
                PyMem_Free(self.buffers[i].patches)
        PyMem_Free(self.buffers)
        PyMem_Free(self.buffer_of)
        PyMem_Free(self.steps)

    cdef void* space(self, size_t nbytes) except NULL:
        """Memory that lasts as long as the program."""
        block = bytearray(nbytes + 16)
        self.blocks.append(block)
        cdef char* start = block
        memset(start, 0, nbytes + 16)
        return <void*>((<size_t>start + 15) & ~<size_t>15)

    cdef tg_step* step(self, int kind, str place) except NULL:
        cdef tg_step* made
        if self.nsteps == self.step_room:
            self.step_room = 2 * self.step_room + 8
            self.steps = <tg_step*>PyMem_Realloc(self.steps, self.step_room * sizeof(tg_step))
            if self.steps == NULL:
                raise MemoryError("a program's steps")
        made = &self.steps[self.nsteps]
        memset(made, 0, sizeof(tg_step))
        made.kind, made.item = kind, -1
        self.nsteps += 1
        self.places.append(place)
        return made

    cdef int place(self, int buffer, int64_t offset, void** data, uint64_t* handle) except -1:
        """Note that an address is within a buffer."""
        cdef tg_buffer* b = &self.buffers[buffer]
        if b.count == b.room:
            b.room = 2 * b.room + 4
            b.patches = <tg_patch*>PyMem_Realloc(b.patches, b.room * sizeof(tg_patch))
            if b.patches == NULL:
                raise MemoryError("a program's addresses")
        b.patches[b.count].data, b.patches[b.count].handle, b.patches[b.count].offset = data, handle, offset
        b.count += 1
        if b.base != NULL:
            data[0] = b.base + offset
            if handle != NULL:
                handle[0] = <uint64_t>(b.base + offset)
        return 0

    cdef void move(self, tg_buffer* b, char* base) noexcept:
        cdef int i
        cdef char* at
        b.base = base
        for i in range(b.count):
            at = base + b.patches[i].offset
            b.patches[i].data[0] = at
            if b.patches[i].handle != NULL:
                b.patches[i].handle[0] = <uint64_t>at

    def fix(self, int buffer, tensor):
        """Give the one buffer that is fixed the memory of a tensor, or of none."""
        self.fixed = tensor
        self.move(&self.buffers[buffer], <char*>API.host_data(<PyObject*>tensor) if tensor is not None else NULL)

    def address(self, tensor):
        """Return the address of a tensor's first element."""
        return <size_t>API.host_data(<PyObject*>tensor)

    # --- building --------------------------------------------------------------------------

    def add_loop(self, Kernel kernel, str place, tuple shape, list operands, list params, str compute, int nout,
                 int nreduced=0):
        """Add a loop kernel's call.

        Args:
            shape: of the loop. operands: outputs first; (buffer, offset, dtype, strides in bytes), or
                the bytes of a number in the compute type.
            params: bytes of the parameters. compute: name of the compute type.
        """
        cdef tg_step* s = self.step(LOOP, place)
        cdef tg.tg_loop* loop = <tg.tg_loop*>self.space(sizeof(tg.tg_loop))
        cdef int i, d, ndim = len(shape)
        cdef int64_t* numbers = <int64_t*>self.space((len(operands) + 1) * (ndim + 1) * sizeof(int64_t))
        cdef int64_t numel = 1
        cdef tg.tg_scalar* given
        for d in range(ndim):
            numbers[d] = shape[d]
            numel *= numbers[d]
        loop.version, loop.ndim, loop.nout, loop.nin = 1, ndim, nout, len(operands) - nout
        loop.compute_dtype, loop.numel, loop.shape = dtype_index(compute), numel, numbers
        loop.nreduced, loop.nparams = nreduced, len(params)
        given = <tg.tg_scalar*>self.space((len(params) + 1) * sizeof(tg.tg_scalar))
        for i in range(len(params)):
            memcpy(given[i].bytes, <char*>(<bytes>params[i]), len(params[i]))
        loop.params = given
        for i, operand in enumerate(operands):
            numbers += ndim
            loop.operands[i].strides = numbers
            if isinstance(operand, bytes):
                loop.operands[i].is_scalar = 1
                loop.operands[i].dtype = loop.compute_dtype
                memcpy(loop.operands[i].value.bytes, <char*>(<bytes>operand), len(operand))
                loop.operands[i].data = &loop.operands[i].value
                continue
            buffer, offset, dtype, strides = operand
            loop.operands[i].dtype = dtype_index(dtype)
            for d in range(ndim):
                numbers[d] = strides[d]
            self.place(buffer, offset, &loop.operands[i].data, &loop.operands[i].handle)
        s.function, s.context, s.data = <void*>kernel.found.loop, kernel.found.context, loop
        s.big = numel > HELD_ELEMENTS
        self.keep.append(kernel)

    def add_call(self, Kernel kernel, str place, list outs, list args, otherwise):
        """Add a call kernel's call.

        Args:
            outs: views (buffer, offset, dtype, shape, strides in elements).
            args: pairs (kind, value): "tensor" a view, "tensors" views or None, "none", "int", "ints", "float",
                "bool", "text" bytes, "dtype" its name, "complex", "number" a float's register, "other".
            otherwise: called with no arguments where the kernel declines.
        """
        cdef tg_step* s = self.step(CALL, place)
        cdef tg.tg_call* call = <tg.tg_call*>self.space(sizeof(tg.tg_call))
        cdef tg.tg_argument* arguments = <tg.tg_argument*>self.space((len(args) + 1) * sizeof(tg.tg_argument))
        cdef tg.tg_view* views
        cdef int64_t elements = 0
        cdef int64_t* ints
        cdef double* parts
        cdef tg_number* numbers = <tg_number*>self.space((len(args) + 1) * sizeof(tg_number))
        cdef int k, i, nnumbers = 0
        views = <tg.tg_view*>self.space((len(outs) + 1) * sizeof(tg.tg_view))
        for k, view in enumerate(outs):
            elements += self.view(&views[k], view)
        call.version, call.nout, call.nargs, call.outs, call.args = 2, len(outs), len(args), views, arguments
        for k, (kind, value) in enumerate(args):
            if kind == "tensor" or kind == "tensors":
                members = [value] if kind == "tensor" else value
                views = <tg.tg_view*>self.space((len(members) + 1) * sizeof(tg.tg_view))
                for i, view in enumerate(members):
                    if view is None:
                        views[i].ndim = -1
                    else:
                        elements += self.view(&views[i], view)
                arguments[k].kind = tg.TG_ARG_TENSOR if kind == "tensor" else tg.TG_ARG_TENSORS
                arguments[k].count, arguments[k].value.tensors = len(members), views
            elif kind == "none":
                arguments[k].kind = tg.TG_ARG_NONE
            elif kind == "int":
                arguments[k].kind = tg.TG_ARG_INT
                arguments[k].value.i = <int64_t>(<uint64_t>(value & 0xFFFFFFFFFFFFFFFF))
            elif kind == "number":
                arguments[k].kind = tg.TG_ARG_FLOAT
                numbers[nnumbers].register, numbers[nnumbers].argument = value, &arguments[k]
                nnumbers += 1
            elif kind == "bool":
                arguments[k].kind, arguments[k].value.i = tg.TG_ARG_BOOL, value
            elif kind == "float":
                arguments[k].kind, arguments[k].value.f = tg.TG_ARG_FLOAT, value
            elif kind == "ints":
                ints = <int64_t*>self.space((len(value) + 1) * sizeof(int64_t))
                for i in range(len(value)):
                    ints[i] = value[i]
                arguments[k].kind, arguments[k].count, arguments[k].value.ints = tg.TG_ARG_INTS, len(value), ints
            elif kind == "complex":
                parts = <double*>self.space(2 * sizeof(double))
                parts[0], parts[1] = value.real, value.imag
                arguments[k].kind, arguments[k].value.parts = tg.TG_ARG_COMPLEX, parts
            elif kind == "text":
                self.keep.append(value)
                arguments[k].kind, arguments[k].value.text = tg.TG_ARG_TEXT, <char*>(<bytes>value)
            elif kind == "dtype":
                arguments[k].kind, arguments[k].value.i = tg.TG_ARG_DTYPE, dtype_index(value)
            else:
                arguments[k].kind = tg.TG_ARG_OTHER
        s = &self.steps[self.nsteps - 1]
        s.function, s.context, s.data = <void*>kernel.found.call, kernel.found.context, call
        s.numbers, s.nnumbers = numbers, nnumbers
        s.big = elements > HELD_ELEMENTS
        s.item = len(self.items)
        self.items.append(otherwise)
        self.keep.append(kernel)

    cdef int64_t view(self, tg.tg_view* made, tuple view) except -1:
        cdef int d
        cdef int64_t* numbers
        buffer, offset, dtype, shape, strides = view
        numbers = <int64_t*>self.space((2 * len(shape) + 1) * sizeof(int64_t))
        made.dtype, made.ndim, made.numel = dtype_index(dtype), len(shape), 1
        for d in range(made.ndim):
            numbers[d], numbers[made.ndim + d] = shape[d], strides[d]
            made.numel *= numbers[d]
        made.shape, made.strides = numbers, numbers + made.ndim
        self.place(buffer, offset, &made.data, &made.handle)
        return made.numel

    def add_copy(self, str place, tuple to, tuple source, int64_t nbytes):
        """Add a copy of bytes from (buffer, offset) to (buffer, offset)."""
        cdef tg_step* s = self.step(COPY, place)
        cdef tg_copy* copy = <tg_copy*>self.space(sizeof(tg_copy))
        copy.nbytes = nbytes
        s.data, s.big = copy, nbytes > 8 * HELD_ELEMENTS
        self.place(to[0], to[1], &copy.to, NULL)
        self.place(source[0], source[1], &copy.source, NULL)

    def add_group(self, str place, size_t entry, size_t context, list outs, list ins, list numbers, int64_t rows,
                  int64_t columns, object owner):
        """Add a fused group: its C entry and context; outs and ins are (buffer, offset).

        Args:
            numbers: of each of ins 1 for a float, 2 for an integer, whose register stands for the buffer.
        """
        cdef tg_step* s = self.step(GROUP, place)
        cdef tg_group* group = <tg_group*>self.space(sizeof(tg_group))
        s.numbers = <tg_number*>self.space((len(ins) + 1) * sizeof(tg_number))
        self.fill_group(s, group, outs, ins, numbers, rows, columns)
        s.function, s.context, s.data = <void*>entry, <void*>context, group
        s.big = rows * columns > HELD_ELEMENTS
        self.keep.append(owner)

    def add_groups(self, str place, size_t entry, size_t context, list members, object owner):
        """Add fused groups of one kernel, in one call: members are (outs, ins, numbers, rows, columns)."""
        cdef tg_step* s = self.step(GROUPS, place)
        cdef tg_group* groups = <tg_group*>self.space(len(members) * sizeof(tg_group))
        cdef int64_t elements = 0
        cdef int k
        s.numbers = <tg_number*>self.space((sum([len(m[1]) for m in members]) + 1) * sizeof(tg_number))
        for k, (outs, ins, numbers, rows, columns) in enumerate(members):
            self.fill_group(s, &groups[k], outs, ins, numbers, rows, columns)
            elements += rows * columns
        s.function, s.context, s.data, s.item = <void*>entry, <void*>context, groups, len(members)
        s.big = elements > HELD_ELEMENTS
        self.keep.append(owner)

    cdef int fill_numbers(self, tg_step* s) except -1:
        """Write the numbers of registers to where kernels read them; of an integer all its bits."""
        cdef int i
        for i in range(s.nnumbers):
            if s.kind == CALL:
                s.numbers[i].argument.value.f = self.registers[s.numbers[i].register]
            elif s.numbers[i].integral:
                s.numbers[i].scalar.i = <int64_t>PyLong_AsUnsignedLongLongMask(self.registers[s.numbers[i].register])
            else:
                s.numbers[i].scalar.f = self.registers[s.numbers[i].register]
        return 0

    cdef int fill_group(self, tg_step* s, tg_group* group, list outs, list ins, list numbers, int64_t rows,
                        int64_t columns) except -1:
        cdef int i
        group.outs = <void**>self.space((len(outs) + 1) * sizeof(void*))
        group.ins = <void**>self.space((len(ins) + 1) * sizeof(void*))
        group.numbers = <tg.tg_scalar*>self.space((len(ins) + 1) * sizeof(tg.tg_scalar))
        group.rows, group.columns = rows, columns
        for i, where in enumerate(outs):
            self.place(where[0], where[1], &group.outs[i], NULL)
        for i, where in enumerate(ins):
            if not numbers[i]:
                self.place(where[0], where[1], &group.ins[i], NULL)
                continue
            s.numbers[s.nnumbers].register, s.numbers[s.nnumbers].scalar = where[0], &group.numbers[i]
            s.numbers[s.nnumbers].integral = numbers[i] == 2
            s.nnumbers += 1
        return 0

    def add_python(self, str place, run):
        """Add a step in Python: `run(registers)` reads and writes registers; returns those it wrote."""
        cdef tg_step* s = self.step(PYTHON, place)
        s.item = len(self.items)
        self.items.append(run)

    def add_op(self, str place, op, list args, slots, bint inplace, out, tuple results):
        """Add an op called from below autograd.

        Args:
            args: constants, None where a register goes. slots: pairs (position, register, or a list of
                registers and constants in a pair).
            out: register of what is written, a tuple of them, or None. results: registers to write.
        """
        cdef tg_step* s = self.step(PYTHON, place)
        s.item = len(self.items)
        self.items.append((op, args, tuple(slots), inplace, out, results))

    def add_let_go(self, tuple registers):
        """Empty registers that nobody needs any more."""
        cdef tg_step* s = self.step(LET_GO, "")
        s.item = len(self.items)
        self.items.append(registers)

    def add_fresh(self, str place, int register, tuple shape, str dtype, like):
        """Add the allocation of a contiguous tensor on the device of `like`."""
        cdef tg_step* s = self.step(FRESH, place)
        s.item = len(self.items)
        self.items.append((register, shape, like))
        s.big = dtype_index(dtype)

    @property
    def count(self):
        """How many steps there are."""
        return self.nsteps

    def begin_parallel_region(self):
        """Begin a parallel region of steps that are branches; return its place."""
        cdef tg_step* s = self.step(PARALLEL_REGION, "")
        s.data = self.space(sizeof(tg_parallel_region))
        return self.nsteps - 1

    def end_parallel_region(self, int begin, list branches, bint always):
        """End a parallel region.

        Args:
            begin: what `begin_parallel_region` has returned.
            branches: the places of each one's steps, in order.
            always: run them apart, untimed, and on one thread one after the other.
        """
        cdef tg_parallel_region* region = <tg_parallel_region*>self.steps[begin].data
        cdef int i, k
        region.count, region.length = len(branches), self.nsteps - begin - 1
        region.branches = <tg_branch*>self.space(region.count * sizeof(tg_branch))
        for k, places in enumerate(branches):
            region.branches[k].count = len(places)
            region.branches[k].steps = <int*>self.space(len(places) * sizeof(int))
            for i in range(len(places)):
                region.branches[k].steps[i] = places[i]
        region.always = always
        if always:
            region.tries, region.apart = TRIES, True

    # --- running ---------------------------------------------------------------------------

    cdef int fill(self, int register) except -1:
        """Follow the tensor that a register holds now."""
        cdef int buffer = self.buffer_of[register]
        cdef char* base
        if buffer < 0 or self.buffers[buffer].count == 0:
            return 0
        tensor = self.registers[register]
        base = <char*>API.host_data(<PyObject*>tensor)
        if base != self.buffers[buffer].base:
            self.move(&self.buffers[buffer], base)
        return 0

    cdef int run_op(self, tuple item) except -1:
        cdef list args
        cdef Py_ssize_t i
        op, template, slots, inplace, out, results = item
        args = list(template)
        for position, held in slots:
            if type(held) is int:
                args[position] = self.registers[<Py_ssize_t>held]
            else:
                members = [self.registers[m[0]] if type(m) is tuple else m for m in held[0]]
                args[position] = tuple(members) if held[1] else members
        if out is not None:
            target = self.registers[out] if type(out) is int else tuple([self.registers[o] for o in out])
            made = call_recorded(op, tuple(args), target, inplace)
        else:
            made = call_recorded(op, tuple(args), None, False)
        if len(results) == 1 and not isinstance(made, (tuple, list)):
            self.registers[results[0]] = made
            self.fill(results[0])
            return 0
        for i in range(len(results)):
            if results[i] >= 0:
                self.registers[results[i]] = made[i]
                self.fill(results[i])
        return 0

    cdef int run_fresh(self, tuple item, int dtype) except -1:
        cdef int64_t shape[64]
        cdef int d, n
        register, sizes, like = item
        n = len(<tuple>sizes)
        for d in range(n):
            shape[d] = (<tuple>sizes)[d]
        made = <object>API.empty(n, shape, dtype, <PyObject*>like)
        # The table gives a new reference, and taking it as an object took one more.
        release(made)
        self.registers[register] = made
        return self.fill(register)

    cdef int run_step(self, tg_step* s) except -1:
        cdef int status = 0
        if is_native(s):
            self.fill_numbers(s)
            if s.big:
                with nogil:
                    status = run_native(s)
            else:
                status = run_native(s)
            if status == tg.TG_DECLINED and s.kind == CALL:
                self.items[s.item]()
            elif status != 0:
                raise_failed(status)
        elif s.kind == LET_GO:
            for register in <tuple>self.items[s.item]:
                self.registers[<Py_ssize_t>register] = None
        elif s.kind == FRESH:
            self.run_fresh(self.items[s.item], s.big)
        elif s.kind == PYTHON:
            item = self.items[s.item]
            if type(item) is tuple:
                self.run_op(item)
            else:
                for register in item(self.registers):
                    self.fill(register)
        return 0

    cdef int run_parallel_region(self, tg_parallel_region* region, int* at) except -1:
        """Run a parallel region, side by side where that is faster; `at` is the step where it fails."""
        cdef int i, begin = at[0] + 1
        cdef int64_t started = 0
        cdef bint apart = is_faster_apart(region), timed = region.tries < TRIES
        if API.pool().threads() < 2 and not region.always:
            apart = timed = False
        if timed:
            started = perf_counter_ns()
        if not apart:
            for i in range(begin, begin + region.length):
                at[0] = i
                self.run_step(&self.steps[i])
        else:
            for i in range(begin, begin + region.length):
                self.fill_numbers(&self.steps[i])
            region.steps = self.steps
            with nogil:
                API.pool().run(region.count, run_branch, region)
            self.finish_parallel_region(region, at)
        if timed:
            note_time(region, apart, perf_counter_ns() - started)
        at[0] = begin + region.length - 1
        return 0

    cdef int finish_parallel_region(self, tg_parallel_region* region, int* at) except -1:
        """Do what branches have left, in the program's order, and raise the first error there is."""
        cdef tg_branch* branch
        cdef int status
        try:
            branch = first_unfinished(region)
            while branch != NULL:
                at[0] = branch.steps[branch.done]
                status, branch.status = branch.status, 0
                if status == 0:
                    self.run_step(&self.steps[at[0]])
                elif status == tg.TG_DECLINED and self.steps[at[0]].kind == CALL:
                    # A kernel that declines does so each time.
                    region.tries, region.apart = TRIES, False
                    self.items[self.steps[at[0]].item]()
                else:
                    raise_kept(branch, status)
                branch.done += 1
                branch = first_unfinished(region)
        finally:
            let_go_of_errors(region)
        return 0

    def run(self, inputs):
        """Run on tensors and numbers in the order of the inputs; return the list of the outputs.

        Raises:
            RuntimeError: a run is under way.
            Exception: what a kernel raised, with a note on the program's line.
        """
        cdef int i = 0
        cdef Py_ssize_t k
        cdef list given = <list>inputs
        if self.busy:
            raise RuntimeError("a program of the jit runs already")
        if len(given) != self.ninputs:
            raise ValueError(f"a program of the jit has {self.ninputs} inputs, got {len(given)}")
        self.busy = True
        try:
            for k in range(self.ninputs):
                self.registers[k] = given[k]
                self.fill(<int>k)
            while i < self.nsteps:
                if self.steps[i].kind == PARALLEL_REGION:
                    self.run_parallel_region(<tg_parallel_region*>self.steps[i].data, &i)
                else:
                    self.run_step(&self.steps[i])
                i += 1
            return [self.registers[r] for r in self.outputs]
        except BaseException as error:
            if i < len(self.places) and self.places[i]:
                error.add_note(f"in the compiled graph, at {self.places[i]}")
            raise
        finally:
            for r in self.clears:
                self.registers[r] = None
            self.busy = False

    @property
    def kinds(self):
        """What the steps are, in order."""
        names = ("loop", "call", "copy", "python", "fresh", "group", "groups", "let go", "branches")
        return [names[self.steps[i].kind] for i in range(self.nsteps)]

    @property
    def timed(self):
        """Whether it is known of each region of branches how it is faster."""
        for i in range(self.nsteps):
            if self.steps[i].kind == PARALLEL_REGION and (<tg_parallel_region*>self.steps[i].data).tries < TRIES:
                return False
        return True

    @property
    def branches(self):
        """Of each region of branches (how many there are, whether they run side by side or None, seconds in turn,
        seconds side by side); the least of some runs, 0 where there was none.
        """
        found = []
        for i in range(self.nsteps):
            if self.steps[i].kind == PARALLEL_REGION:
                found.append(told(<tg_parallel_region*>self.steps[i].data))
        return found


cdef extern from "Python.h":
    void Py_DECREF(object)
    unsigned long long PyLong_AsUnsignedLongLongMask(object) except? 0


cdef int release(object made) except -1:
    Py_DECREF(made)
    return 0


cdef int raise_failed(int status) except -1:
    if PyErr_Occurred() != NULL:
        return -1
    raise RuntimeError(f"a kernel failed with status {status}")
