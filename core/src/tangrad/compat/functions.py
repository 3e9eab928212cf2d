"""Functions of the top-level namespace that ask about tensors and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import _C
from tangrad.compat.overridable import overridable
from tangrad.tensor.size import Size

__name__ = "tangrad.functions"  # where PyTorch has it, which pickles say


@overridable
def _assert(condition: Any, message: str) -> None:
    """Raise AssertionError(message) unless the condition, a bool or a tensor of one, is true."""
    if not condition:
        raise AssertionError(message)


def _assert_async(
    input: Any, assert_msg: str = "Expected Tensor with single nonzero value"
) -> None:
    """Raise RuntimeError unless a tensor of one element is true: at once, on every device."""
    if not input:
        raise RuntimeError(assert_msg)


def _shape_as_tensor(self: Any) -> Any:
    """Return the shape as a tensor of int64."""
    return tangrad.tensor(list(self.shape), dtype=tangrad.int64)


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False) -> Any:
    """Return where each of `size` rows begins and the last ends, of sorted row numbers."""
    return tangrad.searchsorted(
        input, tangrad.arange(size + 1, dtype=input.dtype, device=input.device), out_int32=out_int32
    )


def _convert_indices_from_csr_to_coo(
    crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    """Return row and column numbers, (2, N), of where rows begin and the column numbers."""
    rows = tangrad.arange(crow_indices.shape[0] - 1, device=crow_indices.device)
    pair = [rows.repeat_interleave(crow_indices.diff()), col_indices]
    return tangrad.stack(pair[::-1] if transpose else pair).to(
        tangrad.int32 if out_int32 else tangrad.int64
    )


def _check_with(error_type: type[Exception], cond: Any, message: Any) -> None:
    """Raise an error of a type unless a condition holds.

    Args:
        error_type: the type.
        cond: a bool, or a number that stands for one.
        message: a function that returns the text, or None.

    Raises:
        TypeError: the condition is a tensor or none at all, or the message no function.
    """
    if isinstance(cond, _C.Tensor) or (
        not isinstance(cond, (bool, int)) and not hasattr(cond, "hint")
    ):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: Any, message: Any = None) -> None:
    """Raise RuntimeError unless a condition holds; `message` is a function."""
    if isinstance(message, str):
        _check_with(RuntimeError, cond, lambda: message)
    else:
        _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """Raise IndexError unless a condition holds."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """Raise ValueError unless a condition holds."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """Raise TypeError unless a condition holds."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """Raise NotImplementedError unless a condition holds."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Raise RuntimeError unless a number may be a size: not negative, and not above `max`."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise an error of a type unless all elements of a tensor of bool are true."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not _C.dtype_by_name("bool"):
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    """Raise RuntimeError unless all elements of a tensor of bool are true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def is_tensor(obj: Any) -> bool:
    """Return whether an object is a tensor."""
    return isinstance(obj, _C.Tensor)


def is_storage(obj: Any) -> bool:
    """Return whether an object is a storage."""
    return isinstance(obj, _C.UntypedStorage)


def _asked(input: Any, name: str) -> Any:
    if not hasattr(input, name):
        raise TypeError(
            f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
    return input


@overridable
def is_floating_point(input: _C.Tensor) -> bool:
    """Return whether the dtype is a floating-point one."""
    return _asked(input, "is_floating_point").is_floating_point()


@overridable
def is_complex(input: _C.Tensor) -> bool:
    """Return whether the dtype is complex."""
    return _asked(input, "is_complex").is_complex()


@overridable
def is_conj(input: _C.Tensor) -> bool:
    """Return whether the conjugate flag is set."""
    return _asked(input, "is_conj").is_conj()


@overridable
def is_neg(input: _C.Tensor) -> bool:
    """Return whether the negation flag is set."""
    return _asked(input, "is_neg").is_neg()


@overridable
def is_inference(input: _C.Tensor) -> bool:
    """Return whether the tensor was made in inference mode."""
    return _asked(input, "is_inference").is_inference()


@overridable
def is_nonzero(input: _C.Tensor) -> bool:
    """Return whether the single element is not zero.

    Raises:
        RuntimeError: the tensor has not exactly one element.
    """
    if _asked(input, "is_nonzero").numel() == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    return bool(input)


@overridable
def numel(input: _C.Tensor) -> int:
    """Return the number of elements."""
    return _asked(input, "numel").numel()


@overridable
def detach_(input: _C.Tensor) -> _C.Tensor:
    """Cut a tensor itself from its history."""
    return _asked(input, "detach_").detach_()


@overridable
def get_device(input: _C.Tensor) -> int:
    """Return the index of a tensor's device, -1 on the host."""
    return _asked(input, "get_device").get_device()


@overridable
def is_distributed(input: _C.Tensor) -> bool:
    """Return whether the elements are spread over processes."""
    return _asked(input, "is_distributed").is_distributed()


@overridable
def is_same_size(input: _C.Tensor, other: _C.Tensor) -> bool:
    """Return whether two tensors have equal shapes."""
    return _asked(input, "is_same_size").is_same_size(other)


@overridable
def is_signed(input: _C.Tensor) -> bool:
    """Return whether the dtype has a sign."""
    return _asked(input, "is_signed").is_signed()


@overridable
def resize_as_(
    input: _C.Tensor, the_template: _C.Tensor, *, memory_format: Any = None
) -> _C.Tensor:
    """Resize a tensor to the shape of another."""
    return input.resize_as_(the_template, memory_format=memory_format)


def typename(obj: Any) -> str:
    """Return the type's name: of tensors as "tangrad.FloatTensor", of others with their module."""
    if isinstance(obj, _C.Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(kind, "__module__", "") or ""
    return (
        kind.__qualname__
        if module in ("", "builtins", "__builtin__")
        else f"{module}.{kind.__qualname__}"
    )


def broadcast_shapes(*shapes: Sequence[int] | int) -> Size:
    """Return the shape that shapes broadcast to.

    Raises:
        RuntimeError: they do not broadcast.
    """
    for s in shapes:
        if not isinstance(s, (int, tuple, Sequence)):
            raise RuntimeError(
                "Input shapes should be of type ints, a tuple of ints, or a list of ints, got "
                f"{typename(s)}"
            )
    lists = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    rank = max((len(s) for s in lists), default=0)
    result = [1] * rank
    for shape in lists:
        for i, size in enumerate(shape, rank - len(shape)):
            if size < 0:
                raise RuntimeError(
                    f"Trying to create tensor with negative dimension ({size}): ({list(shape)})"
                )
            if size != 1 and result[i] not in (1, size):
                raise RuntimeError(
                    "Shape mismatch: objects cannot be broadcast to a single shape: "
                    f"{[list(s) for s in lists]}"
                )
            result[i] = size if size != 1 else result[i]
    return Size(result)
