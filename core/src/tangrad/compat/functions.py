"""Functions of the top-level namespace that ask about tensors and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import _C
from tangrad.compat.overridable import overridable
from tangrad.tensor.size import Size

__name__ = "tangrad.functions"  # where PyTorch has it, which pickles say


@overridable
def _assert(condition: Any, message: str) -> None:
    """Raise AssertionError(message) unless the condition, a bool or a tensor of one, is true."""
    if not condition:
        raise AssertionError(message)


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
    """Return the name of a class, a function or the type of anything else, with its module.

    That of a tensor is "tangrad.FloatTensor" or its like.
    """
    if isinstance(obj, _C.Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module, name = getattr(named, "__module__", "") or "", str(named.__qualname__)
    return name if module in ("", "builtins", "__builtin__") else f"{module}.{name}"


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
