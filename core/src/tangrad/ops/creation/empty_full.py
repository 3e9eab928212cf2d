"""Define the ops that make tensors of a size: uninitialised, or of one value."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.creation.kept_strides import kept_stride, stride_in_order
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import (
    Device,
    DType,
    MemoryFormat,
    Operand,
    Scalar,
    Tensor,
    TensorLayout,
)
from tangrad.ops.views.geometry import Ints
from tangrad.tensor import memory


def require_strided(layout: Any) -> None:
    if layout not in (None, _C.strided):
        raise NotImplementedError(
            f"tensors of layout {layout} are made by the package that brings the layout; "
            "leave layout out for a strided tensor"
        )


def _of_layout(layout: Any, size: Ints, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """Return a tensor of another layout that holds no element yet; None where it is strided."""
    if layout is None or layout is _C.strided:
        return None
    if layout.definition is None:
        require_strided(layout)
    check_size(size)
    dtype = _C.get_default_dtype() if dtype is None else dtype
    device = _C.get_default_device() if device is None else device
    made = layout.definition.empty(tuple(size), dtype, device)
    return made.requires_grad_() if requires_grad else made


def check_size(size: Ints) -> None:
    if any(n < 0 for n in size):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(size)}: {list(size)}"
        )


def finished(x: Any, requires_grad: bool) -> Any:
    return _C.as_new(_C.requiring_grad(x) if requires_grad else x)


def _uninitialised(x: Any, requires_grad: bool = False) -> Any:
    """Finish a tensor that nobody filled; programs may want to see what they forgot to write."""
    return finished(memory.fill_new(x) if memory.fills_memory else x, requires_grad)


# Uninitialised ---------------------------------------------------------------------------------


def written(out: Any, size: Ints, dtype: Any, device: Any, layout: Any = None) -> Any:
    """Give the tensor of out= in the size asked for; of another layout, without elements.

    Raises:
        RuntimeError: it has another dtype, device or layout than the one asked for, or a gradient
            would be lost.
    """
    if layout is not None and layout is not out.layout:
        raise RuntimeError(f"layout {layout} does not match layout of out parameter ({out.layout})")
    if dtype is not None and dtype != out.dtype:
        raise RuntimeError(f"dtype {dtype} does not match dtype of out parameter ({out.dtype})")
    if device is not None and device.type != out.device.type:
        raise RuntimeError(f"device {device} does not match device of out parameter ({out.device})")
    if (made := _of_layout(out.layout, size, out.dtype, out.device, False)) is not None:
        if _C.is_grad_enabled() and out.requires_grad:
            raise RuntimeError(
                "functions with out=... arguments don't support automatic differentiation, but "
                f"out= ({out.layout}, {list(out.shape)}) requires grad; detach it"
            )
        held = _C.contents_of(made)
        return _C.replace_contents(out, held.components, held.metadata, tuple(size), "out=")
    check_size(size)
    if tuple(out.shape) == tuple(size):
        return out
    if out.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape {list(size)}. "
            "The out tensor will be resized.",
            UserWarning,
            stacklevel=3,
        )
    return out.resize_(tuple(size))


_CHANNELS_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def _format_name(memory_format: Any) -> str:
    return str(memory_format).rpartition(".")[2]


def _in_levels(made: Any, like: Any) -> Any:
    """Take a fresh tensor into the function transforms that act, if any."""
    stack = _C.get_intercept()
    if stack is None:
        return made
    stack.tell_of_allocation(made)
    from tangrad.dispatch.levels import lift

    return lift(made, like)


def allocate(size: Ints, dtype: Any, device: Any, memory_format: Any, like: Any = None) -> Any:
    return _in_levels(_allocated(size, dtype, device, memory_format), like)


def _allocated(size: Ints, dtype: Any, device: Any, memory_format: Any) -> Any:
    if memory_format is None:
        return _C.empty(size, dtype, device)
    check_size(size)
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
    return _C.empty_strided(tuple(size), stride_in_order(size, order), dtype, device)


@composite(
    c_implementation="empty",
    samples=lambda s: [s((2, 3)), s(()), s((0, 2))],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def empty(
    size: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Make a tensor whose elements are not initialised.

    Args:
        size: the shape, as a tuple or as separate numbers.
        dtype: default: `get_default_dtype()`.
        device: default: `get_default_device()`.
        memory_format: contiguous_format (default) or channels_last.
    """
    if out is not None:
        resized = written(out, size, dtype, device, layout)
        resized = memory.fill_new(resized) if memory.fills_memory else resized
        return _C.requiring_grad(resized) if requires_grad else resized
    if (made := _of_layout(layout, size, dtype, device, requires_grad)) is not None:
        return made
    return _uninitialised(allocate(size, dtype, device, memory_format), requires_grad)


@composite(
    samples=lambda s: [s((2, 3, 4), (2, 0, 1)), s((2, 3), (0, 1)), s((), ()), s((0, 2), (1, 0))],
    errors=lambda s: [
        (s((2, 3), (1,)), RuntimeError, "does not match the length"),
        (s((2, 3), (0, 0)), RuntimeError, "Duplicate dim"),
        (s((2, 3), (0, -1)), RuntimeError, "out of range"),
    ],
)
def empty_permuted(
    size: Ints,
    physical_layout: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a dense tensor, not initialised, whose dimensions lie in memory in a given order.

    Args:
        physical_layout: the dimensions, from the one with the largest stride to the innermost.
    """
    require_strided(layout)
    check_size(size)
    if len(size) != len(physical_layout):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(size)} is not equal to len(physical_layout) = "
            f"{len(physical_layout)}"
        )
    for position, dim in enumerate(physical_layout):
        if not 0 <= dim < len(size):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got "
                f"{dim} at index {position})"
            )
    if len(set(physical_layout)) != len(size):
        raise RuntimeError(f"Duplicate dim not allowed, got {list(physical_layout)}")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    device = _C.get_default_device() if device is None else device
    stride = stride_in_order(size, physical_layout)
    return _uninitialised(
        _in_levels(_C.empty_strided(tuple(size), stride, dtype, device), None), requires_grad
    )


@composite(
    samples=lambda s: [s((2, 3), (1, 2)), s((2,), (4,)), s((), ())],
    errors=lambda s: [
        (s((2, 3), (1,)), RuntimeError, "mismatch|same"),
        (s((2,), (-1,)), RuntimeError, "egative stride|strides"),
    ],
)
def empty_strided(
    size: Ints,
    stride: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of given shape and stride whose elements are not initialised."""
    require_strided(layout)
    check_size(size)
    if len(size) != len(stride):
        raise RuntimeError(
            "mismatch in length of strides and shape: dimensionality of sizes "
            f"({len(size)}) must match dimensionality of strides ({len(stride)}), got {list(size)} "
            f"and {list(stride)}"
        )
    if any(n < 0 for n in stride):
        raise RuntimeError(f"empty_strided: negative strides are not allowed: {list(stride)}")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    device = _C.get_default_device() if device is None else device
    made = _in_levels(_C.empty_strided(tuple(size), tuple(stride), dtype, device), None)
    return _uninitialised(made, requires_grad)


def _empty_like(x: Any, dtype: Any, device: Any, memory_format: Any) -> Any:
    dtype = x.dtype if dtype is None else dtype
    device = x.device if device is None else device
    if memory_format is None or _format_name(memory_format) == "preserve_format":
        return _in_levels(_C.empty_strided(tuple(x.shape), kept_stride(x), dtype, device), x)
    return allocate(tuple(x.shape), dtype, device, memory_format, x)


@composite(
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, strided=True)), s(s.tensor())],
)
def empty_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make a tensor like another, whose elements are not initialised.

    Args:
        memory_format: preserve_format (default) keeps the order of dimensions in memory.
    """
    kind = (input.dtype if dtype is None else dtype, input.device if device is None else device)
    if (made := _of_layout(layout, input.shape, *kind, requires_grad)) is not None:
        return made
    if memory_format is not None and input.layout is not _C.strided:
        raise RuntimeError(
            f"memory format option is only supported by strided tensors, not by {input.layout}: "
            "empty_like"
        )
    return _uninitialised(_empty_like(input, dtype, device, memory_format), requires_grad)


# Filled ----------------------------------------------------------------------------------------


@composite(
    c_implementation="zeros",
    samples=lambda s: [s((2, 3)), s(()), s((0, 2))],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def zeros(
    size: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a tensor of zeros."""
    if out is not None:
        out = written(out, size, dtype, device, layout)
        return out.fill_(0) if out.layout is _C.strided else out
    if (made := _of_layout(layout, size, dtype, device, requires_grad)) is not None:
        return made
    return finished(allocate(size, dtype, device, None).fill_(0), requires_grad)


@composite(
    c_implementation="ones",
    samples=lambda s: [s((2, 3)), s(()), s((0, 2))],
    errors=lambda s: [(s((2, -1)), RuntimeError, "negative dimension")],
)
def ones(
    size: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a tensor of ones."""
    require_strided(layout)
    if out is not None:
        return written(out, size, dtype, device).fill_(1)
    return finished(allocate(size, dtype, device, None).fill_(1), requires_grad)


def dtype_of_number(value: Any) -> Any:
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


def _check_one_value(name: str, value: Any) -> None:
    if getattr(value, "ndim", 0):
        raise TypeError(
            f"{name}(): argument 'fill_value' (position 2) must be Number, not Tensor of shape "
            f"{list(value.shape)}; expand() or clone() makes a tensor of several values"
        )


@composite(
    method=False,
    samples=lambda s: [s((2, 3), 2), s((), 1.5), s((2,), True), s((0,), 1)],
    errors=lambda s: [
        (s((2, -1), 0), RuntimeError, "negative dimension"),
        (s((2,), s.tensor(1)), TypeError, "must be Number, not Tensor"),
    ],
)
def full(
    size: Ints,
    fill_value: Operand,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a tensor of one value; its dtype follows from the value unless given."""
    _check_one_value("full", fill_value)
    require_strided(layout)
    if out is not None:
        return written(out, size, dtype, device).fill_(fill_value)
    dtype = dtype_of_number(fill_value) if dtype is None else dtype
    return finished(allocate(size, dtype, device, None).fill_(fill_value), requires_grad)


@composite(
    c_implementation="zeros_like",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, strided=True)), s(s.tensor())],
)
def zeros_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make a tensor of zeros like another."""
    kind = (input.dtype if dtype is None else dtype, input.device if device is None else device)
    if (made := _of_layout(layout, input.shape, *kind, requires_grad)) is not None:
        return made
    return finished(_empty_like(input, dtype, device, memory_format).fill_(0), requires_grad)


@composite(
    c_implementation="ones_like",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, strided=True)), s(s.tensor())],
)
def ones_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make a tensor of ones like another."""
    require_strided(layout)
    return finished(_empty_like(input, dtype, device, memory_format).fill_(1), requires_grad)


@composite(
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 2), s(s.tensor(2, 3, strided=True), 1), s(s.tensor(), 0)],
)
def full_like(
    input: Tensor,
    fill_value: Operand,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make a tensor of one value like another."""
    _check_one_value("full_like", fill_value)
    require_strided(layout)
    filled = _empty_like(input, dtype, device, memory_format).fill_(fill_value)
    return finished(filled, requires_grad)


@composite(
    c_implementation="new_empty",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3)), s(s.tensor(2), ())],
)
def new_empty(
    self: Tensor,
    size: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make an uninitialised tensor of the dtype and device of this one."""
    require_strided(layout)
    made = allocate(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return _uninitialised(made, requires_grad)


@composite(
    c_implementation="new_zeros",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3)), s(s.tensor(2), ())],
)
def new_zeros(
    self: Tensor,
    size: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of zeros of the dtype and device of this one."""
    require_strided(layout)
    made = allocate(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return finished(made.fill_(0), requires_grad)


@composite(
    c_implementation="new_ones",
    function=False,
    samples=lambda s: [s(s.tensor(2), (2, 3)), s(s.tensor(2), ())],
)
def new_ones(
    self: Tensor,
    size: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of ones of the dtype and device of this one."""
    require_strided(layout)
    made = allocate(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return finished(made.fill_(1), requires_grad)


@composite(function=False, samples=lambda s: [s(s.tensor(2), (2, 3), 2), s(s.tensor(2), (), 1)])
def new_full(
    self: Tensor,
    size: Ints,
    fill_value: Operand,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of one value of the dtype and device of this one."""
    _check_one_value("new_full", fill_value)
    require_strided(layout)
    made = allocate(size, self.dtype if dtype is None else dtype, device or self.device, None, self)
    return finished(made.fill_(fill_value), requires_grad)


@composite(function=False, samples=lambda s: [s(s.tensor(2), (2, 3), (1, 2))])
def new_empty_strided(
    self: Tensor,
    size: Ints,
    stride: Ints,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make an uninitialised tensor of given stride of the dtype and device of this one."""
    return empty_strided(
        size,
        stride,
        dtype=self.dtype if dtype is None else dtype,
        layout=layout,
        device=device or self.device,
        requires_grad=requires_grad,
    )


@composite(samples=lambda s: [s(2), s(1.5)])
def scalar_tensor(
    s: Scalar,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a zero-dimensional tensor of the default dtype (or `dtype`) of a number."""
    require_strided(layout)
    return finished(allocate((), dtype, device, None).fill_(s), requires_grad)
