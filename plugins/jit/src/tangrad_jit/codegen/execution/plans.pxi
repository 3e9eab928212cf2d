# What a kernel holds: plans of stages, whose operands and numbers say where they are in a call.

cdef enum:
    MOST = 64  # streams of an emitted program, and values of a group's kernel
    MOST_LOOP = 20
    MOST_PARAMS = 12

# Where the value of an operand is.
cdef enum:
    IN_INPUT
    IN_OUTPUT
    IN_TEMPORARY
    IN_CONSTANT
    IN_NUMBER

# How a number of the call is written for whom it is.
cdef enum:
    AS_FLOAT
    AS_DOUBLE
    AS_INT
    AS_MASK
    AS_BYTE

# Bytes of a row from which on the compiled reductions may cut what they fold into parts.
cdef enum:
    PARTED_BYTES = 131072
# Bytes of a row up to which the order of a compiled reduction depends on whether there are 64 rows.
cdef enum:
    SHORT_BYTES = 1024
cdef enum:
    MANY_ROWS = 64
# Random numbers of one counter: tiles of what draws them begin at multiples of as many elements.
cdef enum:
    COUNTED = 4
# Up to so many elements a call runs on one thread, and with the GIL if it is held.
cdef enum:
    SMALL = 16384

cdef struct Operand:
    int place, index, itemsize, dtype
    int row, column
    int number_as
    tg_scalar value

cdef struct Param:
    int number        # the input that gives it, -1: constant
    int number_as
    tg_scalar value

cdef struct Stage:
    tgj_function emitted
    tg_loop_kernel called
    void* context
    int noperands, nnumbers, nout, nparams, reduces, compute
    int counter  # the parameter that counts random numbers from an element's place, -1: none
    Operand operands[MOST]
    Param numbers[MOST]     # of emitted code: 8 bytes each; of a loop: its parameters

cdef struct Temporary:
    int itemsize, row, column

cdef struct Plan:
    int nstages, ntemporaries, folds, called_folds, flat, counted, fold_bytes
    int64_t tile, grain
    int64_t least_columns, most_columns
    Temporary temporaries[MOST]
    Stage* stages

cdef struct Shape:
    int itemsize, row, column

cdef struct Group:
    int nplans, nin, nout, hazard
    Plan* plans
    Shape ins[MOST]
    Shape outs[MOST]
    uint8_t integral[MOST]  # of inputs that are numbers: whether `i` holds them
    void* device
    PyObject* kernel        # whom a plan is asked of that is made when it is first needed

cdef struct Segment:        # one group of several that are one call
    char* const* outs
    char* const* ins
    const tg_scalar* numbers
    int64_t rows, columns

cdef struct Call:
    const Group* group
    const Plan* plan
    char* const* outs
    char* const* ins
    const tg_scalar* numbers
    int64_t rows, columns, tile_rows, tile_columns, row_tiles, column_tiles
    int64_t offsets[MOST]
    int64_t scratch
    int failed
    int64_t failed_tile
    PyObject* error
