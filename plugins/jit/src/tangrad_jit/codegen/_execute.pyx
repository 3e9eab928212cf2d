# cython: language_level=3, initializedcheck=False, cdivision=True, legacy_implicit_noexcept=False
"""Run compiled groups: executable memory, tiles, and calls of emitted code and compiled loops, without the GIL.

`Kernel.entry` and `Kernel.context` are for executors in C: the entry is an `int (*)(void *context,
char *const *outs, char *const *ins, const tg_scalar *numbers, int64_t rows, int64_t columns)`. `outs` and `ins` are the
addresses of contiguous tensors in the group's order (those of numbers are not read); `numbers` has a number for each
input, in `f` where the input's dtype is float64, else in `i`. It may be called from several threads at once, without
the GIL, which up to 16,384 elements may be held, too. It returns 0, or -1 with an exception set. The context lives as
long as the kernel.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from tangrad.api cimport (
    TG_ABI_VERSION, TG_KERNEL_LOOP, tg_api, tg_found_kernel, tg_import_api, tg_loop, tg_loop_kernel, tg_operand,
    tg_scalar, tg_scratch)

cdef const tg_api* core = tg_import_api(TG_ABI_VERSION)

include "execution/code.pxi"
include "execution/plans.pxi"
include "execution/loops.pxi"
include "execution/stages.pxi"
include "execution/tiles.pxi"
include "execution/several.pxi"


cdef bint clashes(const Group* group, int k, int i, const char* out, const char* given, int64_t rows,
                  int64_t columns) noexcept nogil:
    """Whether result k, written at an address, spoils operand i at another that is still read."""
    cdef int64_t size = extent(group.outs[k].row, group.outs[k].column, rows, columns) * group.outs[k].itemsize
    cdef int64_t other = extent(group.ins[i].row, group.ins[i].column, rows, columns) * group.ins[i].itemsize
    if out >= given + other or given >= out + size:
        return False
    return (group.hazard or out != given or group.ins[i].itemsize != group.outs[k].itemsize
            or group.ins[i].row != group.outs[k].row or group.ins[i].column != group.outs[k].column)


cdef int entry(void* context, char* const* outs, char* const* ins, const tg_scalar* numbers, int64_t rows,
               int64_t columns) noexcept nogil:
    """Run a group; what is written over an operand that is still read is written elsewhere first."""
    cdef const Group* group = <const Group*>context
    cdef char* targets[MOST]
    cdef tg_scratch held[MOST]
    cdef int64_t size
    cdef int k, i, status = 0, moved = 0
    for k in range(group.nout):
        targets[k] = outs[k]
        held[k].data = NULL
        size = extent(group.outs[k].row, group.outs[k].column, rows, columns) * group.outs[k].itemsize
        for i in range(group.nin):
            if group.ins[i].itemsize == 0 or not clashes(group, k, i, outs[k], ins[i], rows, columns):
                continue
            if core.scratch(group.device, size, 0, &held[k]) != 0:
                status = -1
                break
            targets[k] = <char*>held[k].data
            break
        if status:
            break
        moved += held[k].data != NULL
    if status == 0:
        status = run_plan(group, targets, ins, numbers, rows, columns)
    if moved or status:
        for k in range(group.nout):
            if held[k].data == NULL:
                continue
            if status == 0:
                memcpy(outs[k], held[k].data,
                       extent(group.outs[k].row, group.outs[k].column, rows, columns) * group.outs[k].itemsize)
            core.release_scratch(&held[k])
    return status


_PLACES = {"in": IN_INPUT, "out": IN_OUTPUT, "temporary": IN_TEMPORARY, "constant": IN_CONSTANT, "number": IN_NUMBER}
_FORMS = {"f4": AS_FLOAT, "f8": AS_DOUBLE, "i4": AS_INT, "i8": AS_INT, "m4": AS_MASK, "m8": AS_MASK, "byte": AS_BYTE}


cdef int fill_scalar(tg_scalar* to, bytes data) except -1:
    memset(to, 0, sizeof(tg_scalar))
    memcpy(to, <const char*>data, min(16, len(data)))
    return 0


cdef class Kernel:
    """A compiled group; see the module's docstring for its use from C.

    Args:
        plans: as `tiles.py` describes them, the last for all sizes that no other is for; None for one
            that `make` returns when it is first needed.
        ins, outs: (itemsize, whether it moves by row, by column) of each; the itemsize of a number is 0.
        integral: of each input whether its number is an integer.
        hazard: whether an operand may be read after the result has been written.
    """
    cdef Group group
    cdef readonly list plans
    cdef object make

    def __cinit__(self):
        memset(&self.group, 0, sizeof(Group))

    def __init__(self, list plans, list ins, list outs, list integral, bint hazard, make=None):
        cdef int k
        self.plans, self.make = plans, make
        self.group.kernel = <PyObject*>self
        self.group.nin, self.group.nout, self.group.hazard = len(ins), len(outs), hazard
        self.group.device = core.device(b"cpu", 0)
        for k in range(len(ins)):
            self.group.ins[k].itemsize, self.group.ins[k].row, self.group.ins[k].column = ins[k]
            self.group.integral[k] = integral[k]
        for k in range(len(outs)):
            self.group.outs[k].itemsize, self.group.outs[k].row, self.group.outs[k].column = outs[k]
        self.group.plans = <Plan*>calloc(len(plans), sizeof(Plan))
        if self.group.plans == NULL:
            raise MemoryError
        self.group.nplans = len(plans)
        for k in range(len(plans)):
            if plans[k] is not None:
                self.fill(&self.group.plans[k], plans[k])

    cdef complete(self, int k):
        """Make a plan, unless another thread has."""
        if self.group.plans[k].stages == NULL:
            plan = self.make()
            if self.group.plans[k].stages == NULL:
                self.plans[k] = plan
                self.fill(&self.group.plans[k], plan)

    def complete_plans(self):
        """Make all plans, so that no call runs Python to make one."""
        cdef int k
        for k in range(self.group.nplans):
            self.complete(k)

    cdef int fill(self, Plan* to, plan) except -1:
        cdef int k
        cdef Stage* stages
        to.tile, to.grain = plan.tile, plan.grain
        to.folds, to.called_folds, to.flat = plan.folds, plan.called_folds, plan.flat
        to.counted = plan.counted
        to.fold_bytes = plan.fold_bytes
        to.least_columns, to.most_columns = plan.columns
        to.ntemporaries, to.nstages = len(plan.temporaries), len(plan.stages)
        for k in range(to.ntemporaries):
            to.temporaries[k].itemsize, to.temporaries[k].row, to.temporaries[k].column = plan.temporaries[k]
        stages = <Stage*>calloc(max(1, to.nstages), sizeof(Stage))
        if stages == NULL:
            raise MemoryError
        for k in range(to.nstages):
            self.fill_stage(&stages[k], plan.stages[k])
        to.stages = stages  # last: other threads look at it
        return 0

    cdef int fill_stage(self, Stage* to, stage) except -1:
        cdef int k
        to.emitted = <tgj_function><size_t>(0 if stage.code is None else stage.code.address)
        to.called = <tg_loop_kernel><size_t>stage.loop[0]
        to.context = <void*><size_t>stage.loop[1]
        to.noperands, to.nout, to.reduces, to.compute = len(stage.operands), stage.nout, stage.reduces, stage.compute
        to.counter = stage.counter
        for k in range(to.noperands):
            o = stage.operands[k]
            to.operands[k].place, to.operands[k].index = _PLACES[o.place], o.index
            to.operands[k].itemsize, to.operands[k].dtype = o.itemsize, o.dtype
            to.operands[k].row, to.operands[k].column = o.row, o.column
            to.operands[k].number_as = _FORMS[o.form]
            fill_scalar(&to.operands[k].value, o.value)
        to.nnumbers = to.nparams = len(stage.numbers)
        for k in range(to.nparams):
            to.numbers[k].number, form, data = stage.numbers[k]
            to.numbers[k].number_as = _FORMS[form]
            fill_scalar(&to.numbers[k].value, data)
        return 0

    def __dealloc__(self):
        cdef int k
        for k in range(self.group.nplans):
            free(self.group.plans[k].stages)
        free(self.group.plans)

    @property
    def entry(self):
        """The address of the C function."""
        return <size_t>&entry

    @property
    def entry_of_several(self):
        """The address of the C function that takes segments."""
        return <size_t>&entry_of_several

    @property
    def context(self):
        """The address of its context."""
        return <size_t>&self.group

    def run(self, outs, ins, int64_t rows, int64_t columns):
        """Compute; the tensors are contiguous, of the sizes and dtypes that the group says (this is not checked)."""
        cdef char* targets[MOST]
        cdef char* sources[MOST]
        cdef tg_scalar numbers[MOST]
        cdef int k, status
        for k in range(self.group.nout):
            targets[k] = <char*>core.host_data(<PyObject*>outs[k])
        for k in range(self.group.nin):
            sources[k] = NULL
            if self.group.ins[k].itemsize:
                sources[k] = <char*>core.host_data(<PyObject*>ins[k])
            elif self.group.integral[k]:
                numbers[k].i = ins[k]
            else:
                numbers[k].f = ins[k]
        if rows * columns > SMALL:
            with nogil:
                status = entry(&self.group, targets, sources, numbers, rows, columns)
        else:
            status = entry(&self.group, targets, sources, numbers, rows, columns)
        if status != 0:
            raise_pending()


cdef int raise_pending() except -1:
    if PyErr_Occurred() == NULL:
        raise RuntimeError("a compiled group failed")
    return reraise()


cdef extern from *:
    """
    static int tgj_minus_one(void) { return -1; }
    """
    int reraise "tgj_minus_one"() except -1
