# Registered data types and the promotion lattice.

cdef enum:
    MAX_DTYPES = 128
    KIND_BOOL = 0
    KIND_UINT = 1
    KIND_INT = 2
    KIND_FLOAT = 3
    KIND_COMPLEX = 4
    KIND_FOREIGN = 5
    NO_PROMOTION = 255

cdef PyObject* DTYPES[MAX_DTYPES]
cdef int DTYPE_COUNT = 0
cdef unsigned char PROMOTE[MAX_DTYPES][MAX_DTYPES]
cdef unsigned char KIND[MAX_DTYPES]
cdef unsigned char COMPUTE[MAX_DTYPES]
cdef unsigned char REAL_OF[MAX_DTYPES]
cdef int ITEMSIZE[MAX_DTYPES]

QUANTIZED_NAMES = frozenset(("qint8", "quint8", "qint32", "quint4x2", "quint2x4"))
KIND_NAMES = ("bool", "uint", "int", "float", "complex", "foreign")


cdef str shown_as = "tangrad."           # what stands before names of ours in text


def show_as(str name):
    """Have text say another name than tangrad, such as that of what is stood in for."""
    global shown_as
    shown_as = name + "."


def shown(str name):
    """Return a name of the top level as text says it: "tangrad.float32"."""
    return shown_as + name


cdef class dtype:
    """dtype()\n--\n\nA registered element type, e.g. `tangrad.float32`.

    Attributes:
        itemsize: bytes per element.
        kind: one of "bool", "uint", "int", "float", "complex", "foreign".
        compute: name of the type in which kernels compute (float32 for the halves).
        codec: for types NumPy does not know, a pair (decode, encode) between arrays of
            the raw unsigned integers and arrays of the compute type; else None.
        limits: what `finfo` tells of it, as it was registered, or None.
        arithmetic: whether ops compute in it; if not it is stored, printed and converted.
    """
    cdef readonly str name
    cdef readonly int index
    cdef readonly int itemsize
    cdef readonly str format
    cdef readonly object codec
    cdef readonly object limits          # what finfo tells, or None
    cdef readonly bint arithmetic        # False: it stores numbers, and ops that compute refuse it
    cdef int kind_

    def __init__(self):
        raise TypeError("dtype objects are registered, not constructed: see tangrad.plugin.register_dtype")

    @property
    def kind(self):
        return KIND_NAMES[self.kind_]

    @property
    def is_floating_point(self):
        return self.kind_ == KIND_FLOAT or (self.kind_ == KIND_FOREIGN and KIND[COMPUTE[self.index]] == KIND_FLOAT)

    @property
    def is_complex(self):
        return self.kind_ == KIND_COMPLEX

    @property
    def is_signed(self):
        if self.kind_ == KIND_FOREIGN and self.name in QUANTIZED_NAMES:
            raise RuntimeError(f"is_signed is not supported for quantized dtypes, such as {self.name}")
        kind = KIND[COMPUTE[self.index]] if self.kind_ == KIND_FOREIGN else self.kind_
        return kind != KIND_BOOL and kind != KIND_UINT

    @property
    def compute(self):
        return (<dtype>DTYPES[COMPUTE[self.index]]).name

    def to_real(self):
        """Return the dtype of the real and imaginary parts (itself when not complex)."""
        return <object>DTYPES[REAL_OF[self.index]]

    def to_complex(self):
        """Return the complex dtype whose parts have this dtype; complex64 for bfloat16, which none has.

        Raises:
            RuntimeError: it holds integers, or is a float of another kind.
        """
        if self.kind_ == KIND_COMPLEX:
            return self
        found = {"float64": "complex128", "float16": "complex32"}.get(self.name)
        if found is None and self.name not in ("float32", "bfloat16"):
            raise RuntimeError(f"to_complex: no complex dtype has parts of {self!r}; convert to a floating-point "
                               "dtype first")
        return dtype_by_name(found or "complex64")

    def __repr__(self):
        return shown_as + self.name

    def __reduce__(self):
        from tangrad.tensor.exchange import dtype_named
        return dtype_named, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


cdef dict _dtype_names = {}


cpdef dtype dtype_by_name(str name):
    """Return the registered dtype of that name or alias.

    Raises:
        TypeError: no such dtype is registered.
    """
    found = _dtype_names.get(name)
    if found is None:
        raise TypeError(f"no dtype named '{name}' is registered; known: {', '.join(sorted(_dtype_names))}")
    return <dtype>found


cdef int common_dtype(int a, int b) except -1:
    cdef int result = PROMOTE[a][b]
    if result == NO_PROMOTION:
        raise RuntimeError(
            f"promotion of {(<dtype>DTYPES[a])!r} with {(<dtype>DTYPES[b])!r} is not supported; "
            "convert one of the operands first, e.g. with .to(dtype)")
    return result


cdef bint holds_halves(dtype d):
    """Whether complex32 holds the numbers of a dtype, as promotion sees it: integers always, floats by their size."""
    return d.name in ("complex32", "float16") or d.kind_ < KIND_FLOAT


cdef int _promote_builtin(int a, int b):
    """Follow PyTorch's lattice: bool < integers < floats < complex, wider wins in a category."""
    cdef int ka = KIND[a], kb = KIND[b]
    cdef dtype da = <dtype>DTYPES[a], db = <dtype>DTYPES[b]
    if a == b:
        return a
    if ka == KIND_BOOL:
        return b
    if kb == KIND_BOOL:
        return a
    if ka == KIND_COMPLEX or kb == KIND_COMPLEX:
        if holds_halves(da) and holds_halves(db):
            return dtype_by_name("complex32").index
        return dtype_by_name("complex128" if "float64" in (da.name, db.name) or "complex128" in (da.name, db.name)
                             else "complex64").index
    if ka == KIND_FLOAT and kb == KIND_FLOAT:
        if da.itemsize == db.itemsize:
            return dtype_by_name("float32").index
        return a if da.itemsize > db.itemsize else b
    if ka == KIND_FLOAT or kb == KIND_FLOAT:
        return a if ka == KIND_FLOAT else b
    if ka == KIND_UINT and kb == KIND_UINT:
        return NO_PROMOTION
    if ka == KIND_INT and kb == KIND_INT:
        return a if da.itemsize > db.itemsize else b
    if ka == KIND_UINT:
        da, db = db, da
    if db.itemsize > 1:
        return NO_PROMOTION
    return dtype_by_name("int16").index if da.itemsize == 1 else da.index


def register_dtype(str name, int itemsize, str kind, str format, *, aliases=(), compute=None, codec=None,
                   promotes=None, finfo=None, bint arithmetic=True):
    """Register an element type.

    Args:
        name: unique name; the dtype is reached as `tangrad.<name>` afterwards.
        itemsize: bytes per element.
        kind: "bool", "uint", "int", "float", "complex" or "foreign".
        format: `struct` format of one raw element.
        compute: name of the dtype in which kernels compute; itself by default.
        codec: (decode, encode), required for a foreign type: `decode` takes an array of the raw
            unsigned integers and returns one of the compute type, `encode` takes an array of
            numbers of any type and returns one of the raw integers; both keep the shape.
        promotes: for a foreign type, {other dtype name: name of the result}; with itself it
            promotes to itself, with types that are not listed not at all.
        finfo: for a type of floating-point numbers, what `tangrad.finfo` tells: {"eps", "max", "min",
            "smallest_normal", "resolution", "bits"}, those left out derived from the codec.
        arithmetic: False for a type that only stores numbers: ops that compute refuse it.

    Returns:
        The dtype.

    Raises:
        ValueError: a name is taken or no identifier, the kind is unknown, a foreign type lacks
            codec, compute type or a size that raw integers can have, the codec changes shapes, or
            the table is full.
        TypeError: the compute type, or a type that it promotes with, is not registered.
    """
    global DTYPE_COUNT
    if _public_name is not None:  # else this one is built in
        from tangrad.tensor.declared import check
        check(name, itemsize, kind, format, aliases, compute, codec, promotes, finfo, arithmetic)
    if DTYPE_COUNT == MAX_DTYPES - 1:
        raise ValueError(f"cannot register dtype '{name}': the table holds at most {MAX_DTYPES - 1}")
    cdef dtype new = dtype.__new__(dtype)
    cdef int i, index = DTYPE_COUNT, computes = index if compute is None else dtype_by_name(compute).index
    new.name, new.index, new.itemsize, new.format, new.codec = name, index, itemsize, format, codec
    new.kind_ = KIND_NAMES.index(kind)
    new.limits, new.arithmetic = None if finfo is None else dict(finfo), arithmetic
    Py_INCREF(new)
    DTYPES[index] = <PyObject*>new
    KIND[index] = new.kind_
    ITEMSIZE[index] = itemsize
    DTYPE_COUNT += 1
    _dtype_names[name] = new
    for alias in aliases:
        _dtype_names[alias] = new
    COMPUTE[index] = computes
    REAL_OF[index] = index
    if new.kind_ == KIND_COMPLEX:
        REAL_OF[index] = dtype_by_name({4: "float16", 8: "float32"}.get(itemsize, "float64")).index
    fill_promotions(index)
    for other, result in (promotes or {}).items():
        i = dtype_by_name(other).index
        PROMOTE[i][index] = PROMOTE[index][i] = dtype_by_name(result).index
    return new


cdef int fill_promotions(int index) except -1:
    cdef int i
    if "complex128" not in _dtype_names:
        return 0
    for i in range(DTYPE_COUNT):
        if KIND[index] == KIND_FOREIGN or KIND[i] == KIND_FOREIGN:
            PROMOTE[i][index] = PROMOTE[index][i] = index if i == index else NO_PROMOTION
        else:
            PROMOTE[i][index] = PROMOTE[index][i] = _promote_builtin(i, index)
    return 0


def registered_dtypes():
    """Return all registered dtypes in order of registration."""
    return [<object>DTYPES[i] for i in range(DTYPE_COUNT)]


def _register_builtin_dtypes():
    register_dtype("bool", 1, "bool", "?")
    for bits, fmt in ((8, "b"), (16, "h"), (32, "i"), (64, "q")):
        alias = {16: ("short",), 32: ("int",), 64: ("long",)}.get(bits, ())
        register_dtype(f"uint{bits}", bits // 8, "uint", fmt.upper())
        register_dtype(f"int{bits}", bits // 8, "int", fmt, aliases=alias)
    register_dtype("float32", 4, "float", "f", aliases=("float",))
    register_dtype("float64", 8, "float", "d", aliases=("double",))
    register_dtype("float16", 2, "float", "e", aliases=("half",), compute="float32")
    register_dtype("bfloat16", 2, "float", "H", compute="float32")
    register_dtype("complex64", 8, "complex", "Zf", aliases=("cfloat",))
    register_dtype("complex128", 16, "complex", "Zd", aliases=("cdouble",))
    for d in registered_dtypes():
        fill_promotions((<dtype>d).index)


cdef int _index_of(str name):
    return (<dtype>_dtype_names[name]).index


_register_builtin_dtypes()
cdef int BOOL = _index_of("bool"), UINT8 = _index_of("uint8"), INT32 = _index_of("int32"), INT64 = _index_of("int64")
cdef int FLOAT16 = _index_of("float16"), BFLOAT16 = _index_of("bfloat16")
cdef int FLOAT32 = _index_of("float32"), FLOAT64 = _index_of("float64")
cdef int COMPLEX64 = _index_of("complex64"), COMPLEX128 = _index_of("complex128")
cdef int INT8 = _index_of("int8"), INT16 = _index_of("int16")
cdef int LAST_BUILTIN = COMPLEX128
cdef int UINT16 = _index_of("uint16"), UINT32 = _index_of("uint32"), UINT64 = _index_of("uint64")
cdef int default_dtype = FLOAT32


def get_default_dtype():
    """Return the dtype of floating-point tensors made from Python numbers."""
    return <object>DTYPES[default_dtype]


def set_default_dtype(dtype d not None):
    """Set the dtype of floating-point tensors made from Python numbers.

    Raises:
        TypeError: `d` is not a floating-point dtype, or one that is known by a codec only.
    """
    global default_dtype
    if d.is_floating_point and d.codec is not None:
        raise TypeError(f"{d!r} cannot be the default dtype: programs compute in it what they do not name, and its "
                        f"kernels go through a codec; make tensors of it by dtype=, or take {d.compute} as the default")
    if not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, not {d!r}")
    default_dtype = d.index


cdef int default_complex():
    return COMPLEX128 if default_dtype == FLOAT64 else COMPLEX64


def dtype_of_type(kind):
    """Return the dtype that a type of Python's numbers names, None for anything else."""
    if kind is float:
        return <object>DTYPES[FLOAT64]
    if kind is int:
        return <object>DTYPES[INT64]
    if kind is bool:
        return <object>DTYPES[BOOL]
    return <object>DTYPES[COMPLEX128] if kind is complex else None


def promote_types(dtype type1 not None, dtype type2 not None):
    """Return the smallest dtype to which both can be promoted.

    Raises:
        RuntimeError: the pair has no common dtype.
    """
    return <object>DTYPES[common_dtype(type1.index, type2.index)]


def can_cast(dtype from_ not None, dtype to not None):
    """Return whether a cast keeps the category (bool < integral < floating < complex)."""
    return can_cast_index(from_.index, to.index)


cdef bint can_cast_index(int a, int b):
    cdef int ka = KIND[COMPUTE[a]], kb = KIND[COMPUTE[b]]
    if ka == KIND_COMPLEX and kb != KIND_COMPLEX:
        return False
    if ka == KIND_FLOAT and kb < KIND_FLOAT:
        return False
    return not (ka != KIND_BOOL and kb == KIND_BOOL)


# The numbers that a dtype has a place for: of integers from LEAST to GREATEST, of the others up to MOST in size.
_COUNTS = {1: 0x100, 2: 0x10000, 4: 0x100000000, 8: 0x10000000000000000}  # of integers, by their bytes
cdef int64_t LEAST[MAX_DTYPES]
cdef int64_t GREATEST[MAX_DTYPES]
cdef double MOST[MAX_DTYPES]
for _i in range(MAX_DTYPES):
    LEAST[_i], GREATEST[_i], MOST[_i] = 0, -1, 0  # every number
for _i in range(LAST_BUILTIN + 1):
    if KIND[_i] == KIND_INT:
        LEAST[_i], GREATEST[_i] = -(_COUNTS[ITEMSIZE[_i]] // 2), _COUNTS[ITEMSIZE[_i]] // 2 - 1
    elif KIND[_i] == KIND_UINT:  # of 64 bits, what is above is asked for apart
        GREATEST[_i] = min(_COUNTS[ITEMSIZE[_i]] - 1, _COUNTS[8] // 2 - 1)
MOST[FLOAT16], MOST[BFLOAT16] = 65504.0, 3.3895313892515355e38
MOST[FLOAT32] = MOST[COMPLEX64] = 3.4028234663852886e38
MOST[FLOAT64] = MOST[COMPLEX128] = 1.7976931348623157e308


cdef bint holds_number(int index, object number, bint modulo) except -1:
    """Whether a dtype has a place for a number (see `tangrad.tensor.ranges`).

    A fraction is cut off. With `modulo`, an unsigned dtype takes negative integers down to -GREATEST, as PyTorch's.
    """
    cdef int kind = KIND[index], overflow = 0
    cdef int64_t i
    cdef double f, most = MOST[index]
    if PyLong_Check(number):
        i = PyLong_AsLongLongAndOverflow(number, &overflow)
        if kind > KIND_INT:
            return most == 0 or overflow == 0 and (most > 1e37 or -most <= i <= most) or -most <= number <= most
        if overflow:
            return GREATEST[index] < 0 or overflow > 0 and index == UINT64 and number >> 64 == 0
        return GREATEST[index] < 0 or (-GREATEST[index] if modulo and kind == KIND_UINT else LEAST[index]) <= i \
            <= GREATEST[index]
    if PyComplex_Check(number):
        if kind == KIND_COMPLEX:
            return holds_number(index, number.real, False) and holds_number(index, number.imag, False)
        return kind == KIND_BOOL or number.imag == 0 and holds_number(index, number.real, False)
    f = number
    if kind > KIND_INT:
        return most == 0 or -most <= f <= most or f - f != 0
    if ITEMSIZE[index] == 8:
        return LEAST[index] <= f < (1.8446744073709552e19 if kind == KIND_UINT else 9.223372036854775808e18)
    return GREATEST[index] < 0 or LEAST[index] <= f <= GREATEST[index]


cdef int encode_scalar(object value, int index, void* out) except -1:
    """Write a Python number as one element of the dtype."""
    cdef int kind = KIND[index], size = ITEMSIZE[index]
    cdef int64_t i
    cdef uint64_t u
    cdef double f
    cdef float single
    cdef uint32_t bits
    cdef uint16_t half
    cdef double complex z
    if kind == KIND_COMPLEX and size == 4:
        return encode_foreign(complex(value), index, out)
    if kind == KIND_COMPLEX:
        z = value
        if size == 16:
            (<double*>out)[0] = z.real
            (<double*>out)[1] = z.imag
        else:
            (<float*>out)[0] = <float>z.real
            (<float*>out)[1] = <float>z.imag
        return 0
    if kind == KIND_BOOL:
        (<unsigned char*>out)[0] = 1 if value else 0
        return 0
    if kind == KIND_FLOAT:
        f = value.real if isinstance(value, complex) else value
        if index == FLOAT32:
            (<float*>out)[0] = <float>f
        elif index == FLOAT64:
            (<double*>out)[0] = f
        elif index == BFLOAT16:
            single = <float>f
            memcpy(&bits, &single, 4)
            if single != single:
                half = 0x7FC0
            else:
                half = <uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
            (<uint16_t*>out)[0] = half
        elif index != FLOAT16:
            return encode_foreign(f, index, out)
        else:
            packed = struct_pack("<e", f) if -65520 < f < 65520 or f != f else struct_pack("<e", math_copysign(INF, f))
            memcpy(out, <char*>packed, 2)
        return 0
    if index > LAST_BUILTIN:
        return encode_foreign(value, index, out)
    if isinstance(value, float):
        value = int(value)
    elif isinstance(value, complex):
        value = int(value.real)
    if kind == KIND_UINT and value >= 0 and size == 8:
        u = value
        memcpy(out, &u, 8)
        return 0
    i = value
    memcpy(out, &i, size)
    return 0


cdef int encode_foreign(object value, int index, void* out) except -1:
    from tangrad.tensor.foreign import encode_element
    packed = encode_element(<object>DTYPES[index], value)
    memcpy(out, <char*>packed, ITEMSIZE[index])
    return 0


cdef object decode_scalar(int index, const void* data):
    """Read one element as a Python number."""
    cdef uint32_t bits
    cdef float single
    if index == FLOAT32:
        return <double>(<float*>data)[0]
    if index == INT64:
        return (<int64_t*>data)[0]
    if index == FLOAT64:
        return (<double*>data)[0]
    if index == BOOL:
        return (<unsigned char*>data)[0] != 0
    if index == INT32:
        return (<int32_t*>data)[0]
    if index == UINT8:
        return (<uint8_t*>data)[0]
    if index == INT8:
        return (<int8_t*>data)[0]
    if index == INT16:
        return (<int16_t*>data)[0]
    if index == UINT16:
        return (<uint16_t*>data)[0]
    if index == UINT32:
        return (<uint32_t*>data)[0]
    if index == UINT64:
        return (<uint64_t*>data)[0]
    if index == BFLOAT16:
        bits = <uint32_t>(<uint16_t*>data)[0] << 16
        memcpy(&single, &bits, 4)
        return <double>single
    if index == COMPLEX64:
        return complex((<float*>data)[0], (<float*>data)[1])
    if index == COMPLEX128:
        return complex((<double*>data)[0], (<double*>data)[1])
    raw = (<char*>data)[:ITEMSIZE[index]]
    if index > LAST_BUILTIN:
        from tangrad.tensor.foreign import decode_element
        return decode_element(<object>DTYPES[index], raw)
    return struct_unpack("<" + (<dtype>DTYPES[index]).format, raw)[0]
