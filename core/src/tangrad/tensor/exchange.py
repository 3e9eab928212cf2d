"""Memory shared with others: NumPy, the buffer protocol, DLPack."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.tensor.packing import is_packable

__all__ = [
    "array_protocol",
    "dlpack",
    "dlpack_device",
    "dtype_named",
    "from_dlpack",
    "from_numpy",
    "from_file",
    "frombuffer",
    "has_buffer",
    "is_ndarray",
    "is_numpy_scalar",
    "name_of",
    "numpy",
    "register_array_protocol",
    "register_dlpack_device",
    "shared_by_protocol",
    "to_dlpack",
]

_NUMPY_DTYPES = (
    "float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, "
    "uint16, uint8, and bool"
)


def name_of(dtype: Any) -> str:
    """Return a dtype's name without its package."""
    return str(dtype).rpartition(".")[2]


def dtype_named(name: str) -> Any:
    """Return the dtype of a name, asking the plugins if it is not registered.

    Raises:
        TypeError: no dtype has the name.
    """
    try:
        return _C.dtype_by_name(name)
    except TypeError:
        from tangrad.tensor.foreign import find_registered

        find_registered(name)
        return _C.dtype_by_name(name)


def is_ndarray(obj: Any) -> bool:
    """Tell whether an object is a NumPy array, without importing NumPy."""
    loaded = sys.modules.get("numpy")
    return loaded is not None and isinstance(obj, loaded.ndarray)


def is_numpy_scalar(obj: Any) -> bool:
    """Tell whether an object is a number of NumPy's, without importing NumPy."""
    loaded = sys.modules.get("numpy")
    return loaded is not None and isinstance(obj, loaded.generic)


def has_buffer(obj: Any) -> bool:
    """Tell whether an object offers its memory by the buffer protocol."""
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


# --- from others ---------------------------------------------------------------------------


def from_numpy(ndarray: Any, *, warn_if_readonly: bool = True) -> _C.Tensor:
    """Return a tensor on the memory of a NumPy array.

    Args:
        ndarray: an array of a dtype that tangrad has, with non-negative strides.
        warn_if_readonly: warn that writing into the result writes into read-only memory.

    Returns:
        Tensor of the same shape and dtype; each sees what the other writes.

    Raises:
        TypeError: this is not an array, or of another dtype.
        ValueError: a stride is negative or no multiple of the element size, or the bytes are
            in foreign order.
    """
    shared = _C.tensor_of_array(ndarray)
    if shared is not None:
        return shared
    if not is_ndarray(ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    strides = _strides_in_elements(ndarray)
    dtype = _dtype_of_array(ndarray)
    if warn_if_readonly and not ndarray.flags.writeable:
        _warn_readonly("NumPy array", "array.copy()")
    address = ndarray.__array_interface__["data"][0]
    return _C.tensor_from_pointer(
        address, _extent(ndarray), ndarray, dtype, ndarray.shape, strides, 0, None
    )


def _extent(ndarray: Any) -> int:
    """Return the number of bytes from the first element's first to the last one's last."""
    if ndarray.size == 0:
        return 0
    steps = zip(ndarray.shape, ndarray.strides, strict=True)
    return ndarray.itemsize + sum((size - 1) * stride for size, stride in steps)


def _dtype_of_array(ndarray: Any) -> Any:
    name = ndarray.dtype.name
    if name == "bfloat16" or not is_packable(name):
        raise TypeError(
            f"can't convert np.ndarray of type {ndarray.dtype.type.__module__}."
            f"{ndarray.dtype.type.__name__}. The only supported types are: {_NUMPY_DTYPES}."
        )
    if not ndarray.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Convert it "
            "with array.astype(array.dtype.newbyteorder('='))."
        )
    return dtype_named(name)


def _strides_in_elements(ndarray: Any) -> tuple[int, ...]:
    if any(stride < 0 for stride in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not supported. Make a copy of the array with array.copy()."
        )
    if any(stride % ndarray.itemsize for stride in ndarray.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            "array to reallocate the memory."
        )
    return tuple(stride // ndarray.itemsize for stride in ndarray.strides)


def _warn_readonly(what: str, remedy: str) -> None:
    import warnings

    warnings.warn(
        f"The given {what} is not writable, and writing into a non-writable tensor is undefined "
        f"behavior: copy it first, for example with {remedy}",
        UserWarning,
        stacklevel=3,
    )


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> _C.Tensor:
    """Return a one-dimensional tensor on the memory of an object with the buffer protocol.

    Args:
        buffer: the object, kept alive by the tensor.
        dtype: how its bytes are read.
        count: number of elements; -1 for all.
        offset: first byte.
        requires_grad: record operations on the result.

    Raises:
        ValueError: the object has no buffer, or not that many bytes.
    """
    view = _byte_view(buffer)
    elements = _element_count(view.nbytes, dtype.itemsize, count, offset)
    if view.readonly:
        _warn_readonly("buffer", "bytearray(buffer)")
    part = view[offset : offset + elements * dtype.itemsize]
    made = _C.tensor_from_buffer(part, dtype, (elements,), (1,))
    if requires_grad:
        made.requires_grad = True
    return made


def from_file(
    filename: Any,
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> _C.Tensor:
    """Return a one-dimensional tensor whose memory is a file's.

    Args:
        filename: path of the file.
        shared: whether what is written to the tensor is written to the file, which is then made
            or made longer where it is too short. Else the file must be long enough.
        size: number of elements.
        dtype: how the bytes are read. Default: `get_default_dtype()`.
        device: the host.

    Raises:
        RuntimeError: the file cannot be opened or is too short, the device is not the host, or
            page-locked memory is asked for.
    """
    import mmap
    import os

    from tangrad.tensor.on_storage import files

    dtype = _C.get_default_dtype() if dtype is None else dtype
    if pin_memory:
        raise RuntimeError("from_file: tensors constructed from a file cannot be pinned")
    if device is not None and _C.device(device).type != "cpu":
        raise RuntimeError(f"from_file: only tensors of device cpu map files, got {device}")
    if size < 0:
        raise RuntimeError(f"from_file: size must not be negative, got {size}")
    length = size * dtype.itemsize
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    try:
        file = os.open(filename, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        way = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"unable to open file <{filename}> in {way} mode: {error.strerror} ({error.errno})"
        ) from error
    try:
        found = os.fstat(file).st_size
        if found < length and shared:
            os.ftruncate(file, length)
        elif found < length:
            raise RuntimeError(
                f"file <{filename}> size {found} is smaller than the required mapping size {length}"
            )
        if not length:
            return frombuffer(bytearray(dtype.itemsize), dtype=dtype)[:0]
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        memory = mmap.mmap(file, length, access=access)
    except OSError as error:
        raise RuntimeError(
            f"unable to mmap {length} bytes from file <{filename}>: {error.strerror} "
            f"({error.errno})"
        ) from error
    finally:
        os.close(file)
    made = frombuffer(memory, dtype=dtype, requires_grad=requires_grad)
    if shared:
        files[made.untyped_storage()] = str(filename)
    return made


def to_dlpack(tensor: Any) -> Any:
    """Return a DLPack capsule of a tensor's memory, which may be consumed once.

    Raises:
        BufferError: the device or dtype has no place in DLPack.
        TypeError: it is no tensor.
    """
    if not isinstance(tensor, _C.Tensor):
        raise TypeError(f"to_dlpack(): expected a Tensor, not {type(tensor).__name__}")
    return tensor.__dlpack__()


def _byte_view(buffer: Any) -> memoryview:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    if not view.c_contiguous:
        raise ValueError("frombuffer: the buffer is not contiguous; copy it with bytes(buffer)")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _element_count(length: int, itemsize: int, count: int, offset: int) -> int:
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({length} bytes) minus 1"
        )
    if count > 0:
        if offset + count * itemsize > length:
            raise ValueError(
                f"requested buffer length ({count} * {itemsize} bytes) after offset ({offset} "
                f"bytes) must not be greater than actual buffer length ({length} bytes)"
            )
        return count
    if (length - offset) % itemsize:
        raise ValueError(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({itemsize})"
        )
    return (length - offset) // itemsize


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> _C.Tensor:
    """Return a tensor on the memory of another library's array.

    Args:
        ext_tensor: an object with ``__dlpack__`` and ``__dlpack_device__``, or a DLPack capsule.
        device: where the result shall be; where the memory is if None.
        copy: True always copies, False never does, None as needed.

    Raises:
        RuntimeError: this is neither.
        BufferError: the other library does not give its memory out, or no installed device
            reaches it.
        ValueError: copy is False but the device asks for one.
    """
    if type(ext_tensor).__name__ == "PyCapsule":
        ext_tensor = _Capsule(ext_tensor)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise RuntimeError(
            "from_dlpack expects an object with __dlpack__ or a DLPack capsule, got "
            f"{type(ext_tensor).__name__}"
        )
    shared = _importer(int(ext_tensor.__dlpack_device__()[0]))(ext_tensor)
    made = shared if device is None else shared.to(device)
    if made is shared:
        return made.clone() if copy else made
    if copy is False:
        raise ValueError(
            f"from_dlpack: memory on {shared.device} cannot be shared with {made.device}; use "
            "copy=None"
        )
    return made


class _Capsule:
    """Offer a bare capsule as the object that it came from would have."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        import ctypes

        known = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
        pointer = known(("PyCapsule_GetPointer", ctypes.pythonapi))
        # The tensor comes first, or behind version, context, deleter and flags; in it, an address.
        for name, start in ((b"dltensor", 8), (b"dltensor_versioned", 40)):
            try:
                found = (ctypes.c_int32 * 2).from_address(pointer(self._capsule, name) + start)
            except ValueError:  # it has another name
                continue
            return found[0], found[1]
        return 1, 0  # whose import says what is wrong with the capsule


def _importer(code: int) -> Callable[[Any], Any]:
    from tangrad.discovery import discovery

    # A device tells of its memory when it is opened, as by the first tensor on it.
    for name in ("", *discovery.names(discovery.DEVICES)):
        if name:
            with contextlib.suppress(RuntimeError):
                _C.tensor_from_bytes(b"", _C.dtype_by_name("uint8"), (0,), name)
        for known, _, take in _dlpack_devices.values():
            if known == code:
                return take
    raise BufferError(f"from_dlpack: no installed device has the DLPack device type {code}")


def _import_host(ext_tensor: Any) -> Any:
    try:
        capsule = ext_tensor.__dlpack__(max_version=(1, 0))
    except TypeError:  # from before DLPack had versions
        capsule = ext_tensor.__dlpack__()
    shared, writable = _C.tensor_of_capsule(capsule)
    if not writable:
        _warn_readonly("memory behind DLPack", "clone()")
    return shared


# --- to others -----------------------------------------------------------------------------


def register_dlpack_device(
    device_type: str, code: int, give: Callable[[Any, Any], Any], take: Callable[[Any], Any]
) -> None:
    """Tell how a device's memory goes through DLPack.

    Args:
        device_type: the device's name.
        code: the number that the DLPack standard gives to it.
        give: ``give(tensor, stream)`` returns a capsule.
        take: ``take(object)`` returns a tensor on the memory of an object with ``__dlpack__``.
    """
    _dlpack_devices[device_type] = (code, give, take)


def register_array_protocol(attribute: str, take: Callable[[Any], Any]) -> None:
    """Let objects with an attribute become tensors, in `as_tensor` and its like.

    Args:
        attribute: such as ``__array_interface__``.
        take: ``take(object)`` returns a tensor on the object's memory.
    """
    _protocols[attribute] = take


def shared_by_protocol(obj: Any) -> Any:
    """Return a tensor on an object's memory by a protocol that a device knows, else None."""
    for attribute, take in _protocols.items():
        if hasattr(type(obj), attribute):
            return take(obj)
    return None


def dlpack_device(x: Any) -> tuple[int, int]:
    """Return DLPack's (device type, device id) of a tensor.

    Raises:
        BufferError: the tensor's device is unknown to DLPack.
    """
    known = _dlpack_devices.get(x.device.type)
    if known is None:
        raise BufferError(
            f"Cannot export a tensor on device {x.device} by DLPack; copy it with x.cpu()"
        )
    return known[0], x.device.index or 0


def dlpack(
    x: Any,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Export a tensor's memory as a DLPack capsule (array API standard, ``__dlpack__``).

    Args:
        x: a tensor without history.
        stream: the consumer's stream; None on the CPU.
        max_version: the newest DLPack version the consumer reads; the oldest is always given.
        dl_device: where the consumer wants the memory; only where it is, if not None.
        copy: True exports a copy.

    Raises:
        BufferError: the tensor requires grad, is a conjugate or negative view, or is where
            the consumer cannot read it.
        AssertionError: a stream is given for the CPU.
        TypeError: the stream is no number.
    """
    if stream is not None and not isinstance(stream, int):
        raise TypeError(f"__dlpack__: stream must be an int or None, got {type(stream).__name__}")
    place = dlpack_device(x)
    if x.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if x.is_conj() or x.is_neg():
        raise BufferError(
            "Can't export tensors with the conjugate or negative bit set, use "
            "tensor.resolve_conj() and tensor.resolve_neg()"
        )
    if dl_device is not None and tuple(dl_device) != place:
        raise BufferError(f"Cannot export a tensor on {x.device} to DLPack device {dl_device}")
    if x.device.type == "cpu" and stream not in (None, -1):
        raise AssertionError("stream should be None on cpu.")
    give = _dlpack_devices[x.device.type][1]
    return give(x.clone() if copy else x, stream)


def _export_host(x: Any, stream: Any) -> Any:
    return _C.dlpack_capsule(x)


# By device type: DLPack's number, export, import. A device package adds its own.
_dlpack_devices: dict[str, tuple[int, Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "cpu": (1, _export_host, _import_host)
}
_protocols: dict[str, Callable[[Any], Any]] = {}


def numpy(x: Any, *, force: bool = False) -> Any:
    """Return a NumPy array on the memory of a tensor.

    Args:
        x: a tensor on the CPU without history, not a conjugate or negative view.
        force: True detaches, copies and resolves as needed.

    Raises:
        RuntimeError: the tensor requires grad or is a conjugate or negative view.
        TypeError: it is not on the CPU, not strided, or of a dtype that NumPy lacks.
    """
    import numpy as np

    if not str(x.layout).endswith(".strided"):
        raise TypeError(
            f"can't convert a tensor of layout {x.layout} to numpy. Use Tensor.to_dense() first."
        )
    if force:
        x = x.detach().cpu().resolve_conj().resolve_neg()
    _check_exportable(x)
    name = name_of(x.dtype)
    if name == "bfloat16" or not is_packable(name):
        raise TypeError(
            f"NumPy has no dtype for {x.dtype}; convert the tensor with x.to(), for example to "
            "float32"
        )
    return np.asarray(_C.host_buffer(x))


def _check_exportable(x: Any) -> None:
    if x.device.type != "cpu":
        raise TypeError(
            f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )
    if name_of(x.layout) != "strided":
        raise TypeError(
            f"can't convert {x.layout} layout tensor to numpy. Use Tensor.to_dense() first."
        )
    if x.requires_grad and _C.is_grad_enabled():
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    bits = (("conj", "conjugate", x.is_conj()), ("neg", "negative", x.is_neg()))
    for short, bit, is_set in bits:
        if is_set:
            raise RuntimeError(
                f"Can't call numpy() on Tensor that has {bit} bit set. Use "
                f"tensor.resolve_{short}().numpy() instead."
            )


def array_protocol(x: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    """Return a tensor as a NumPy array, as NumPy's ``__array__`` protocol asks.

    Args:
        x: a tensor that `numpy` takes.
        dtype: of the array; that of the tensor if None.
        copy: True always copies, False never does, None as needed.

    Raises:
        ValueError: copy is False but the dtype asks for one.
    """
    array = numpy(x)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(
                f"Unable to avoid copy while making an array of {dtype} from a tensor of {x.dtype}"
            )
        return array.astype(dtype)
    return array.copy() if copy else array
