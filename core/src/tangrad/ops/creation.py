"""Define the ops that make tensors out of numbers."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.define import composite, op, overload
from tangrad.ops.movement import Ints, contiguous_stride, wrap_dim
from tangrad.ops.slicing import diagonal_backward
from tangrad.tensor.construct import tensor


def _require_strided(layout: Any) -> None:
    if layout is not None and str(layout).rpartition(".")[2] != "strided":
        raise NotImplementedError(
            f"tensors of layout {layout} are made by the package that brings the layout; "
            "leave layout out for a strided tensor"
        )


def _check_size(size: Ints) -> None:
    if any(n < 0 for n in size):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(size)}: {list(size)}"
        )


def _finished(x: Any, requires_grad: bool) -> Any:
    return _C.as_new(x.requires_grad_() if requires_grad else x)


# Uninitialised ---------------------------------------------------------------------------------


def _channels_last_stride(shape: Ints, order: Ints) -> Ints:
    """Give the stride of a shape whose dimensions lie in memory in the given order."""
    packed = contiguous_stride([shape[d] for d in order])
    stride = [0] * len(shape)
    for position, dim in enumerate(order):
        stride[dim] = packed[position]
    return tuple(stride)


_CHANNELS_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def _format_name(memory_format: Any) -> str:
    return str(memory_format).rpartition(".")[2]


def _in_levels(made: Any, like: Any) -> Any:
    """Take a fresh tensor into the function transforms that act, if any."""
    if _C.get_intercept() is None:
        return made
    from tangrad.dispatch.levels import lift

    return lift(made, like)


def _empty(size: Ints, dtype: Any, device: Any, memory_format: Any, like: Any = None) -> Any:
    return _in_levels(_allocated(size, dtype, device, memory_format), like)


def _allocated(size: Ints, dtype: Any, device: Any, memory_format: Any) -> Any:
    if memory_format is None:
        return _C.empty(size, dtype, device)
    _check_size(size)
    dtype = _C.get_default_dtype() if dtype is None else dtype
    device = _C.get_default_device() if device is None else device
    order = _CHANNELS_LAST.get(_format_name(memory_format))
    if order is None:
        return _C.empty(tuple(size), dtype, device)
    if len(size) != len(order):
        raise RuntimeError(
            f"required rank {len(order)} tensor to use {_format_name(memory_format)} format, "
            f"got size {list(size)}"
        )
    return _C.empty_strided(tuple(size), _channels_last_stride(size, order), dtype, device)


@composite(
    "empty(int[] size, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False, memory_format? memory_format=None)"
    " -> Tensor",
    samples=lambda s: [s((2, 3)), s(()), s((0, 2))],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def empty(
    size: Ints,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
    memory_format: Any,
) -> Any:
    """Make a tensor whose elements are not initialised.

    Args:
        size: the shape, as a tuple or as separate numbers.
        dtype: default: `get_default_dtype()`.
        device: default: `get_default_device()`.
        memory_format: contiguous_format (default) or channels_last.
    """
    _require_strided(layout)
    return _finished(_empty(size, dtype, device, memory_format), requires_grad)


@composite(
    "empty_strided(int[] size, int[] stride, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s((2, 3), (1, 2)), s((2,), (4,)), s((), ())],
    errors=lambda s: [
        (s((2, 3), (1,)), RuntimeError, "mismatch|same"),
        (s((2,), (-1,)), RuntimeError, "egative stride|strides"),
    ],
)
def empty_strided(
    size: Ints,
    stride: Ints,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a tensor of given shape and stride whose elements are not initialised."""
    _require_strided(layout)
    _check_size(size)
    if len(size) != len(stride):
        raise RuntimeError(
            "mismatch in length of strides and shape: sizes and strides must have the same "
            f"length, got {list(size)} and {list(stride)}"
        )
    if any(n < 0 for n in stride):
        raise RuntimeError(f"empty_strided: negative strides are not allowed: {list(stride)}")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    device = _C.get_default_device() if device is None else device
    made = _in_levels(_C.empty_strided(tuple(size), tuple(stride), dtype, device), None)
    return _finished(made, requires_grad)


def _dense(shape: Ints, stride: Ints) -> bool:
    """Tell whether the elements fill a block of memory, each once."""
    expected = 1
    for step, size in sorted(
        (step, size) for size, step in zip(shape, stride, strict=True) if size != 1
    ):
        if step != expected:
            return False
        expected = expected * size
    return True


def _kept_stride(x: Any) -> Ints:
    """Give the stride that a result has that keeps the memory layout of `x`.

    A dense tensor keeps its stride; of any other the order of dimensions is kept.
    """
    shape, stride = tuple(x.shape), tuple(x.stride())
    if 0 in shape or _dense(shape, stride):
        return stride if 0 not in shape else contiguous_stride(shape)
    order = sorted(range(len(shape)), key=lambda d: -stride[d])
    return _channels_last_stride(shape, tuple(order))


def _empty_like(x: Any, dtype: Any, device: Any, memory_format: Any) -> Any:
    dtype = x.dtype if dtype is None else dtype
    device = x.device if device is None else device
    if memory_format is None or _format_name(memory_format) == "preserve_format":
        return _in_levels(_C.empty_strided(tuple(x.shape), _kept_stride(x), dtype, device), x)
    return _empty(tuple(x.shape), dtype, device, memory_format, x)


@composite(
    "empty_like(Tensor input, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False, memory_format? memory_format=None)"
    " -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, strided=True)), s(s.tensor())],
)
def empty_like(
    input: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
    memory_format: Any,
) -> Any:
    """Make a tensor like another, whose elements are not initialised.

    Args:
        memory_format: preserve_format (default) keeps the order of dimensions in memory.
    """
    _require_strided(layout)
    return _finished(_empty_like(input, dtype, device, memory_format), requires_grad)


# Filled ----------------------------------------------------------------------------------------


@composite(
    "zeros(int[] size, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s((2, 3)), s(()), s((0, 2))],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def zeros(
    size: Ints, dtype: Any, layout: Any, device: Any, requires_grad: bool, pin_memory: bool
) -> Any:
    """Make a tensor of zeros."""
    _require_strided(layout)
    return _finished(_empty(size, dtype, device, None).fill_(0), requires_grad)


@composite(
    "ones(int[] size, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s((2, 3)), s(()), s((0, 2))],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def ones(
    size: Ints, dtype: Any, layout: Any, device: Any, requires_grad: bool, pin_memory: bool
) -> Any:
    """Make a tensor of ones."""
    _require_strided(layout)
    return _finished(_empty(size, dtype, device, None).fill_(1), requires_grad)


def _dtype_of_number(value: Any) -> Any:
    """Give the dtype that a Python number makes, or the number in a tensor."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return tangrad.bool
    if isinstance(value, int):
        return tangrad.int64
    default = _C.get_default_dtype()
    if isinstance(value, complex):
        return tangrad.complex128 if default == tangrad.float64 else tangrad.complex64
    return default


@composite(
    "full(int[] size, Operand fill_value, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False) -> Tensor",
    method=False,
    samples=lambda s: [s((2, 3), 2), s((), 1.5), s((2,), True), s((0,), 1)],
    errors=lambda s: [(s((2, -1), 0), RuntimeError, "negative dimension")],
)
def full(
    size: Ints,
    fill_value: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a tensor of one value; its dtype follows from the value unless given."""
    _require_strided(layout)
    dtype = _dtype_of_number(fill_value) if dtype is None else dtype
    return _finished(_empty(size, dtype, device, None).fill_(fill_value), requires_grad)


@composite(
    "zeros_like(Tensor input, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False, memory_format? memory_format=None)"
    " -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, strided=True)), s(s.tensor())],
)
def zeros_like(
    input: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
    memory_format: Any,
) -> Any:
    """Make a tensor of zeros like another."""
    _require_strided(layout)
    return _finished(_empty_like(input, dtype, device, memory_format).fill_(0), requires_grad)


@composite(
    "ones_like(Tensor input, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False, memory_format? memory_format=None)"
    " -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, strided=True)), s(s.tensor())],
)
def ones_like(
    input: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
    memory_format: Any,
) -> Any:
    """Make a tensor of ones like another."""
    _require_strided(layout)
    return _finished(_empty_like(input, dtype, device, memory_format).fill_(1), requires_grad)


@composite(
    "full_like(Tensor input, Operand fill_value, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False,"
    " memory_format? memory_format=None) -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 2), s(s.tensor(2, 3, strided=True), 1), s(s.tensor(), 0)],
)
def full_like(
    input: Any,
    fill_value: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
    memory_format: Any,
) -> Any:
    """Make a tensor of one value like another."""
    _require_strided(layout)
    filled = _empty_like(input, dtype, device, memory_format).fill_(fill_value)
    return _finished(filled, requires_grad)


@composite(
    "new_empty(Tensor self, int[] size, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3)), s(s.tensor(2), ())],
)
def new_empty(
    self: Any,
    size: Ints,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make an uninitialised tensor of the dtype and device of this one."""
    _require_strided(layout)
    made = _empty(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return _finished(made, requires_grad)


@composite(
    "new_zeros(Tensor self, int[] size, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3)), s(s.tensor(2), ())],
)
def new_zeros(
    self: Any,
    size: Ints,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a tensor of zeros of the dtype and device of this one."""
    _require_strided(layout)
    made = _empty(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return _finished(made.fill_(0), requires_grad)


@composite(
    "new_ones(Tensor self, int[] size, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3)), s(s.tensor(2), ())],
)
def new_ones(
    self: Any,
    size: Ints,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a tensor of ones of the dtype and device of this one."""
    _require_strided(layout)
    made = _empty(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return _finished(made.fill_(1), requires_grad)


@composite(
    "new_full(Tensor self, int[] size, Operand fill_value, *, dtype? dtype=None,"
    " layout? layout=None, device? device=None, bool requires_grad=False,"
    " bool pin_memory=False) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3), 2), s(s.tensor(2), (), 1)],
)
def new_full(
    self: Any,
    size: Ints,
    fill_value: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a tensor of one value of the dtype and device of this one."""
    _require_strided(layout)
    made = _empty(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return _finished(made.fill_(fill_value), requires_grad)


@composite(
    "new_empty_strided(Tensor self, int[] size, int[] stride, *, dtype? dtype=None,"
    " layout? layout=None, device? device=None, bool requires_grad=False,"
    " bool pin_memory=False) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3), (1, 2))],
)
def new_empty_strided(
    self: Any,
    size: Ints,
    stride: Ints,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make an uninitialised tensor of given stride of the dtype and device of this one."""
    return empty_strided(
        size,
        stride,
        dtype=self.dtype if dtype is None else dtype,
        layout=layout,
        device=device or self.device,
        requires_grad=requires_grad,
    )


@composite(
    "scalar_tensor(Scalar s, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s(2), s(1.5)],
)
def scalar_tensor(
    s: Any, dtype: Any, layout: Any, device: Any, requires_grad: bool, pin_memory: bool
) -> Any:
    """Make a zero-dimensional tensor of the default dtype (or `dtype`) of a number."""
    _require_strided(layout)
    return _finished(_empty((), dtype, device, None).fill_(s), requires_grad)


# Sequences -------------------------------------------------------------------------------------

_sequence = op(
    "_sequence(Tensor! self, Scalar start, Scalar step) -> Tensor",
    reference=lambda np, self, start, step: _sequence_reference(np, self, start, step),
    vjp="none: the values written do not depend on those before",
    batch=None,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(4), 0, 1), s(s.tensor(3), 2, 3), s(s.tensor(0), 0, 1)],
    oracle=lambda torch, x, start, step: x.copy_(
        torch.arange(x.numel(), dtype=torch.float64).mul(step).add(start).to(x.dtype)
    ),
    doc="Overwrite a vector by start + i * step, computed in float64 or in integers.",
)


def _sequence_reference(np: Any, self: Any, start: Any, step: Any) -> Any:
    positions = np.arange(self.shape[0])
    exact = self.dtype.kind in "iub" and isinstance(start, int) and isinstance(step, int)
    kind = np.int64 if exact else np.float64
    return (positions.astype(kind) * kind(step) + kind(start)).astype(self.dtype)


def _check_range(start: Any, end: Any, step: Any) -> None:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not all(math.isfinite(x) for x in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError(
            "upper bound and lower bound inconsistent with step sign: "
            f"start {start}, end {end}, step {step}"
        )


def _range_length(start: Any, end: Any, step: Any) -> int:
    if all(isinstance(x, int) for x in (start, end, step)):
        return max(0, -((start - end) // step))
    return math.ceil((end - start) / step)


def _number(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


@composite(
    "arange_step(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None,"
    " layout? layout=None, device? device=None, bool requires_grad=False,"
    " bool pin_memory=False) -> Tensor",
    function=False,
    method=False,
    samples=lambda s: [s(1, 4), s(1, 7, 2), s(5, 0, -2), s(0.0, 1.0, 0.25), s(2, 2)],
    oracle="arange",
    errors=lambda s: [
        (s(0, 3, 0), RuntimeError, "step must be nonzero"),
        (s(0, 3, -1), RuntimeError, "inconsistent with step sign"),
        (s(0, float("inf")), RuntimeError, "unsupported range"),
    ],
)
def arange_step(
    start: Any,
    end: Any,
    step: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a vector of start, start + step, ... below end.

    Integers make int64, others the default dtype.
    """
    _require_strided(layout)
    start, end, step = _number(start), _number(end), _number(step)
    _check_range(start, end, step)
    if dtype is None:
        whole = all(isinstance(x, int) for x in (start, end, step))
        dtype = tangrad.int64 if whole else _C.get_default_dtype()
    vector = _empty((_range_length(start, end, step),), dtype, device, None)
    return _finished(_sequence(vector, start, step), requires_grad)


@composite(
    "arange_end(Scalar end, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False) -> Tensor",
    function=False,
    method=False,
    samples=lambda s: [s(4), s(0), s(2.5)],
    oracle="arange",
    errors=lambda s: [(s(-1), RuntimeError, "inconsistent with step sign")],
)
def arange_end(
    end: Any, dtype: Any, layout: Any, device: Any, requires_grad: bool, pin_memory: bool
) -> Any:
    """Make a vector of 0, 1, ... below end."""
    return arange_step(
        0, end, 1, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


arange = overload("arange", "arange_end", "arange_step", method=False)


def _spaced(start: Any, end: Any, steps: int) -> list[Any]:
    """List evenly spaced numbers, from both ends towards the middle, so that both are exact."""
    if steps == 1:
        return [start]
    step = (end - start) / (steps - 1)
    half = steps // 2
    return [start + step * i if i < half else end - step * (steps - 1 - i) for i in range(steps)]


def _from_numbers(numbers: list[Any], dtype: Any, device: Any) -> Any:
    whole = not (dtype.is_floating_point or dtype.is_complex)
    listed = [math.trunc(x) for x in numbers] if whole else numbers
    return tensor(listed, dtype=dtype, device=device).reshape((len(numbers),))


def _spacing_dtype(dtype: Any, start: Any, end: Any) -> Any:
    if dtype is not None:
        return dtype
    if isinstance(start, complex) or isinstance(end, complex):
        return _dtype_of_number(1j)
    return _C.get_default_dtype()


@composite(
    "linspace(Scalar start, Scalar end, int steps, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool requires_grad=False, bool pin_memory=False) -> Tensor",
    method=False,
    samples=lambda s: [s(0, 1, 5), s(3, -1, 4), s(2, 3, 1), s(0, 1, 0)],
    errors=lambda s: [(s(0, 1, -1), RuntimeError, "steps must be non-negative")],
)
def linspace(
    start: Any,
    end: Any,
    steps: int,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a vector of evenly spaced numbers from start to end, both included."""
    _require_strided(layout)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got steps={steps}")
    start, end = _number(start), _number(end)
    dtype = _spacing_dtype(dtype, start, end)
    return _finished(_from_numbers(_spaced(start, end, steps), dtype, device), requires_grad)


@composite(
    "logspace(Scalar start, Scalar end, int steps, float base=10.0, *, dtype? dtype=None,"
    " layout? layout=None, device? device=None, bool requires_grad=False,"
    " bool pin_memory=False) -> Tensor",
    method=False,
    samples=lambda s: [s(0, 2, 5), s(-1, 1, 3, 2.0), s(1, 2, 1), s(0, 1, 0)],
    errors=lambda s: [(s(0, 1, -1), RuntimeError, "steps must be non-negative")],
)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a vector of the powers of base whose exponents are evenly spaced."""
    _require_strided(layout)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got steps={steps}")
    start, end = _number(start), _number(end)
    powers = [base**x for x in _spaced(start, end, steps)]
    dtype = _spacing_dtype(dtype, start, end)
    return _finished(_from_numbers(powers, dtype, device), requires_grad)


# Matrices --------------------------------------------------------------------------------------


@composite(
    "eye(int n, int? m=None, *, dtype? dtype=None, layout? layout=None, device? device=None,"
    " bool requires_grad=False, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s(3), s(2, 4), s(3, 1), s(0)],
    errors=lambda s: [(s(-1), RuntimeError, "greater or equal to 0")],
)
def eye(
    n: int,
    m: int | None,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pin_memory: bool,
) -> Any:
    """Make a matrix with ones on the diagonal and zeros elsewhere."""
    _require_strided(layout)
    m = n if m is None else m
    if n < 0 or m < 0:
        raise RuntimeError(f"n and m must be greater or equal to 0, got {n} and {m}")
    matrix = _empty((n, m), dtype, device, None).fill_(0)
    if n and m:
        matrix.diagonal().fill_(1)
    return _finished(matrix, requires_grad)


def _triangle(row: int, col: int, offset: int, lower: bool) -> list[list[int]]:
    if row < 0 or col < 0:
        raise RuntimeError(f"row and col must be non-negative, got {row} and {col}")
    sign = 1 if lower else -1
    places = [(i, j) for i in range(row) for j in range(col) if sign * (j - i) <= sign * offset]
    return [[i for i, _ in places], [j for _, j in places]]


@composite(
    "tril_indices(int row, int col, int offset=0, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s(3, 3), s(2, 4, 1), s(3, 2, -1), s(0, 2)],
    errors=lambda s: [(s(-1, 2), RuntimeError, "non-negative")],
)
def tril_indices(
    row: int, col: int, offset: int, dtype: Any, layout: Any, device: Any, pin_memory: bool
) -> Any:
    """List the places on and below a diagonal of a matrix: their rows and their columns."""
    listed = _triangle(row, col, offset, lower=True)
    dtype = tangrad.int64 if dtype is None else dtype
    return tensor(listed, dtype=dtype, device=device).reshape((2, len(listed[0])))


@composite(
    "triu_indices(int row, int col, int offset=0, *, dtype? dtype=None, layout? layout=None,"
    " device? device=None, bool pin_memory=False) -> Tensor",
    samples=lambda s: [s(3, 3), s(2, 4, 1), s(3, 2, -1), s(0, 2)],
    errors=lambda s: [(s(-1, 2), RuntimeError, "non-negative")],
)
def triu_indices(
    row: int, col: int, offset: int, dtype: Any, layout: Any, device: Any, pin_memory: bool
) -> Any:
    """List the places on and above a diagonal of a matrix: their rows and their columns."""
    listed = _triangle(row, col, offset, lower=False)
    dtype = tangrad.int64 if dtype is None else dtype
    return tensor(listed, dtype=dtype, device=device).reshape((2, len(listed[0])))


@composite(
    "diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
    samples=lambda s: [
        s(s.tensor(3)),
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 2), -1, 0, 2),
    ],
    errors=lambda s: [
        (s(s.tensor(2), 0, 1, 1), RuntimeError, "identical"),
        (s(s.tensor(2), 0, 0, 3), IndexError, "Dimension out of range"),
    ],
)
def diag_embed(self: Any, offset: int, dim1: int, dim2: int) -> Any:
    """Put the last dimension on a diagonal of two new dimensions of a tensor of zeros."""
    ndim = self.ndim
    dim1, dim2 = wrap_dim(dim1, ndim + 1), wrap_dim(dim2, ndim + 1)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = self.shape[-1] + abs(offset)
    rest = iter(tuple(self.shape)[:-1])
    shape = tuple(size if d in (dim1, dim2) else next(rest) for d in range(ndim + 1))
    return diagonal_backward(self, shape, offset, dim1, dim2)


@composite(
    "diag(Tensor self, int diagonal=0) -> Tensor",
    samples=lambda s: [s(s.tensor(3)), s(s.tensor(2, 3), 1), s(s.tensor(2), -1)],
    errors=lambda s: [(s(s.tensor(2, 2, 2)), RuntimeError, "Supports 1D or 2D|1- or 2-D")],
)
def diag(self: Any, diagonal: int) -> Any:
    """Take a diagonal of a matrix, or make a matrix with a vector as diagonal."""
    if self.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {self.ndim}D")
    if self.ndim == 1:
        return diag_embed(self, diagonal)
    return self.diagonal(diagonal).clone()
