"""Tensors from Python data: `tensor`, `as_tensor`, `asarray`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any, TypeVar

from tangrad import _C
from tangrad.tensor import exchange
from tangrad.tensor.exchange import from_dlpack, from_numpy, frombuffer
from tangrad.tensor.on_storage import on_storage, storage_as
from tangrad.tensor.packing import is_packable, pack

__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer", "tensor"]


_F = TypeVar("_F", bound=Callable[..., Any])


def _open_to_modes(function: _F) -> _F:
    """Let modes take over calls; of what has `__torch_function__` a tensor is made as of others."""
    made: Any = update_wrapper(_C.Overridable(function, modes_only=True), function)
    return made


@_open_to_modes
def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> _C.Tensor:
    """Make a tensor by copying data.

    Args:
        data: a number, nested sequences of numbers, a NumPy array or number, or a tensor. A
            storage is no data: the result shows its memory, whatever it holds, as elements of
            the dtype (of int64 where a storage without a dtype is given none).
        dtype: of the result; inferred if None: bool, int64, the default dtype or its complex
            counterpart for Python's numbers, their own for NumPy's numbers and tensors.
        device: of the result; that of a tensor given as data, else the default device, if None.
        requires_grad: record operations on the result.
        pin_memory: allocate page-locked memory.

    Returns:
        A new tensor without history.

    Raises:
        ValueError: a sequence is ragged, or an integer does not fit in 64 bits.
        TypeError: something is neither a number nor a sequence.
        RuntimeError: a number does not fit the dtype, no dtype can be inferred, or gradients
            are asked of integers.
    """
    made = None
    if type(data) in (list, tuple) and dtype is None and device is None:
        made = _C.tensor_of_numbers(list(data) if type(data) is tuple else data)
    elif type(data) in (float, int) and dtype is None and device is None:
        made = _C.tensor_of_numbers([data], True)
    if made is None:
        made = _copied(data, _checked_dtype("tensor", dtype), device)
    if pin_memory:
        made = made.pin_memory()
    return _requiring_grad(made) if requires_grad else made


@_open_to_modes
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> _C.Tensor:
    """Return data as a tensor, sharing memory and history where dtype and device allow it.

    Args:
        data, dtype, device: as for `tensor`.

    Returns:
        The tensor itself, a tensor on the memory of an array of NumPy or of another library
        (by DLPack), or a copy.

    Raises:
        As `tensor`.
    """
    dtype = _checked_dtype("as_tensor", dtype)
    if _is_tensor(data):
        return _converted(data, dtype, device)
    source = _on_array(data)
    if source is not None:
        return _converted(source, dtype, device)
    return _copied(data, dtype, device)


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> _C.Tensor:
    """Return an object as a tensor, sharing its memory if that is possible and not forbidden.

    Args:
        obj: a tensor, a NumPy array, an object with DLPack or the buffer protocol, a storage, a
            number or nested sequences.
        dtype: of the result; that of the object if None. An object that has only the buffer
            protocol is read as elements of this dtype (the default dtype if None), and so is an
            untyped storage (uint8 if None).
        device: of the result.
        copy: True always copies, False never does, None as needed.
        requires_grad: record operations on the result; False detaches a tensor from its history.

    Raises:
        ValueError: copy is False but the object cannot be shared.
        RuntimeError: as `tensor`.
    """
    dtype = _checked_dtype("asarray", dtype)
    shared = _shared(obj, dtype)
    if shared is None:
        if copy is False:
            if exchange.is_numpy_scalar(obj):
                raise RuntimeError(
                    "can't alias NumPy scalars. Either remove copy=False or make it an ndarray"
                )
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        made = _copied(obj, dtype, device)
    else:
        made = _converted(shared, dtype, device)
        if made is not shared and copy is False:
            raise ValueError(
                f"can't alias tensor with dtype '{shared.dtype}' on device '{shared.device}' into "
                f"dtype '{made.dtype}' on device '{made.device}'."
            )
        if made is shared and copy:
            made = made.clone()
    if requires_grad:
        return made if made.requires_grad else _requiring_grad(made.detach())
    return made.detach() if made.requires_grad else made


def _shared(obj: Any, dtype: Any) -> Any:
    """Return a tensor on the object's own memory, or None if it has none to share."""
    if _is_tensor(obj):
        return obj
    if isinstance(obj, _C.UntypedStorage):
        return on_storage(obj, _C.dtype_by_name("uint8") if dtype is None else dtype)
    if type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    if exchange.is_ndarray(obj):
        return from_numpy(obj)
    if hasattr(obj, "__dlpack__"):
        return from_dlpack(obj)
    shared = exchange.shared_by_protocol(obj)
    if shared is not None or hasattr(obj, "dtype") or not exchange.has_buffer(obj):
        return shared
    return frombuffer(obj, dtype=_default_dtype() if dtype is None else dtype)


def _is_tensor(obj: Any) -> bool:
    return isinstance(obj, _C.Tensor)


def _on_array(data: Any, warn_if_readonly: bool = True) -> Any:
    """Return a tensor on the memory of an array of another library, or None for all else."""
    if exchange.is_ndarray(data):
        return from_numpy(data, warn_if_readonly=warn_if_readonly)
    if hasattr(type(data), "__dlpack__"):
        return from_dlpack(data)
    return exchange.shared_by_protocol(data)


def _on_storage(data: Any, dtype: Any, device: Any) -> Any:
    """Return the elements of a storage, on its own memory; None for what is no storage."""
    storage = storage_as("tensor", data, dtype)
    if storage is None:
        return None
    kept = dtype or getattr(data, "dtype", None) or _C.dtype_by_name("int64")
    return _converted(on_storage(storage, kept), None, device)


def _copied(data: Any, dtype: Any, device: Any) -> Any:
    if _is_tensor(data):
        import warnings

        warnings.warn(
            "to copy a tensor use x.detach().clone() rather than tensor(x)",
            UserWarning,
            stacklevel=3,
        )
        source = data.detach()
        made = _converted(source, dtype, device)
        return made.clone() if made is source else made
    source = _on_array(data, warn_if_readonly=False)
    if source is not None:
        made = _converted(source, dtype, device)
        return made.clone() if made is source else made
    made = _on_storage(data, dtype, device)
    return _from_python(data, dtype, device) if made is None else made


def _from_python(data: Any, dtype: Any, device: Any) -> Any:
    wanted = None if dtype is None else exchange.name_of(dtype)
    if wanted is not None and not is_packable(wanted):
        # A dtype that a plugin registered: only its own cast knows its bits.
        return _from_python(data, None, device).to(dtype)
    buffer, name, shape = pack(data, wanted, exchange.name_of(_default_dtype()), _promote)
    return _lifted(_C.tensor_from_bytes(buffer, exchange.dtype_named(name), shape, device))


def _lifted(made: Any) -> Any:
    stack = _C.get_intercept()
    return made if stack is None else stack.lift(made)


def index_vector(numbers: Iterable[int], device: Any) -> Any:
    """Return a vector of int64 of what is known to be integers, as indices are that an op makes.

    `tensor` finds out first what it is given, which takes longer than to index by few of them.
    """
    packed = array("q", numbers)
    made = _C.tensor_from_bytes(packed, _C.dtype_by_name("int64"), (len(packed),), device)
    return _lifted(made)


def _converted(x: Any, dtype: Any, device: Any) -> Any:
    """Return the tensor itself if it is as wanted, else a copy that is."""
    wanted = {
        name: value for name, value in (("dtype", dtype), ("device", device)) if value is not None
    }
    return x.to(**wanted) if wanted else x


def _requiring_grad(x: Any) -> Any:
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(
            f"Only Tensors of floating point and complex dtype can require gradients, got {x.dtype}"
        )
    x.requires_grad = True
    return x


def _checked_dtype(function: str, dtype: Any) -> Any:
    if dtype is None or hasattr(dtype, "is_floating_point"):
        return dtype
    named = _C.dtype_of_type(dtype)
    if named is not None:
        return named
    raise TypeError(f"{function}(): argument 'dtype' must be a dtype, not {type(dtype).__name__}")


def _default_dtype() -> Any:
    from tangrad import get_default_dtype

    return get_default_dtype()


def _promote(a: str, b: str) -> str:
    from tangrad import promote_types

    return exchange.name_of(promote_types(exchange.dtype_named(a), exchange.dtype_named(b)))
