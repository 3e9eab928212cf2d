"""Give memory of GPUs to other libraries, and take theirs: DLPack and the CUDA array interface.

Both ways memory is shared, in the order of the streams that are named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin import location, tensor_from_pointer

DEVICE_TYPE = 2  # of DLPack: CUDA
_KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
# Of the CUDA array interface: NumPy's codes; bfloat16 has none.
_CODES = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}
_TAKEN = b"used_dltensor"
_GIVEN = b"dltensor"
_DEVICE_ORDINAL = 9  # of cuPointerGetAttribute


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


# {address of a managed tensor: all that must live until its deleter is called}
_lent: dict[int, tuple[Any, ...]] = {}
_python = ctypes.pythonapi


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address: int) -> None:
    _lent.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int) -> None:
    """Release what nobody took out of a capsule."""
    if _python.PyCapsule_IsValid(ctypes.c_void_p(capsule), _GIVEN):
        pointer = _python.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        _lent.pop(pointer(ctypes.c_void_p(capsule), _GIVEN), None)


def _split(dtype: Any) -> tuple[str, int]:
    """Return a dtype's kind and its bits."""
    name = dtype.name
    if name == "bool":
        return name, 8
    kind = name.rstrip("0123456789")
    return kind, int(name[len(kind) :])


def give(driver: Any) -> Any:
    """Return the function by which a tensor becomes a DLPack capsule."""

    def export(x: Any, stream: Any) -> Any:
        _hand_over(driver, x.device.index, stream)
        kind, bits = _split(x.dtype)
        shape = (ctypes.c_int64 * max(1, x.dim()))(*x.shape)
        strides = (ctypes.c_int64 * max(1, x.dim()))(*x.stride())
        place = _Tensor(
            sum(location(x)), _Device(DEVICE_TYPE, x.device.index), x.dim(),
            _Type(_KINDS[kind], bits, 1), shape, strides, 0,
        )  # fmt: skip
        managed = _Managed(place, None, _delete)
        address = ctypes.addressof(managed)
        _lent[address] = managed, shape, strides, x
        make = _python.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, type(_drop))
        return make(address, _GIVEN, _drop)

    return export


def _hand_over(driver: Any, index: int, stream: Any) -> None:
    """Let a consumer's stream wait for what the current one was given.

    Args:
        stream: as DLPack has it: None or 1 is the default stream, -1 none at all.

    Raises:
        BufferError: it is 2, a default stream for each thread.
        AssertionError: it is 0, which would be either.
    """
    if stream == -1:
        return
    if stream == 2:
        raise BufferError("__dlpack__: per-thread default stream is not supported.")
    if stream == 0:
        raise AssertionError("__dlpack__: unsupported stream on CUDA: 0; the default stream is 1")
    streams = driver.streams
    target = streams.adopt(0 if stream in (None, 1) else int(stream), index)
    _wait(streams, target, streams.current_stream(index))


def _wait(streams: Any, later: int, earlier: int) -> None:
    """Let one stream wait for what another was given."""
    if later != earlier:
        event = streams.record_event(earlier)
        streams.wait_event(later, event)
        streams.destroy_event(event)


class _Loan:
    """Memory of another library, given back with the last tensor on it."""

    def __init__(self, memory: Any, address: int, index: int, end: Callable[[], object]) -> None:
        memory.borrow(address, index)
        self._memory, self._address, self._end = memory, address, end

    def __del__(self) -> None:
        self._memory.give_back(self._address)
        self._end()


class _Described(NamedTuple):
    """What is lent: an address, and elements there; strides count them."""

    address: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def take(driver: Any) -> Any:
    """Return the function by which an object with `__dlpack__` becomes a tensor."""

    def import_(source: Any) -> Any:
        index = source.__dlpack_device__()[1]
        stream = driver.streams.handle(driver.streams.current_stream(index)) or 1
        capsule = source.__dlpack__(stream=stream)
        pointer = _python.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        managed = _Managed.from_address(pointer(ctypes.py_object(capsule), _GIVEN))
        told = _described(managed.tensor)
        _python.PyCapsule_SetName(ctypes.py_object(capsule), _TAKEN)
        address = ctypes.addressof(managed)
        return _shared(driver, told, index, lambda: managed.deleter and managed.deleter(address))

    return import_


def _described(t: Any) -> _Described:
    names = {code: kind for kind, code in _KINDS.items()}
    kind = names.get(t.dtype.code)
    if kind is None or t.dtype.lanes != 1:
        raise BufferError(f"from_dlpack: no dtype for code {t.dtype.code}, {t.dtype.lanes} lanes")
    name = "bool" if kind == "bool" else f"{kind}{t.dtype.bits}"
    shape = tuple(t.shape[k] for k in range(t.ndim))
    strides = tuple(t.strides[k] for k in range(t.ndim)) if t.strides else _dense(shape)
    if any(stride < 0 for stride in strides):
        raise BufferError("from_dlpack: negative strides; copy the array first")
    return _Described((t.data or 0) + t.byte_offset, getattr(tangrad, name), shape, strides)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _shared(driver: Any, told: _Described, index: int, end: Callable[[], object]) -> Any:
    """Return a tensor on memory of a device that others lend until `end` is called."""
    address, dtype, shape, strides = told
    device = tangrad.device(driver.name, index)
    loan = _Loan(driver.memory, address, index, end)
    if 0 in shape:
        return tangrad.empty(shape, dtype=dtype, device=device)
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    nbytes = extent * dtype.itemsize
    return tensor_from_pointer(address, nbytes, loan, dtype, shape, strides, 0, device)


def take_array(driver: Any) -> Any:
    """Return the function by which an object with the CUDA array interface becomes a tensor."""

    def import_(source: Any) -> Any:
        told = source.__cuda_array_interface__
        found = _described_array(told)
        index = _device_of(driver, found.address) if 0 not in found.shape else 0
        stream = told.get("stream")
        if stream is not None:
            streams = driver.streams
            earlier = streams.adopt(0 if stream in (1, 2) else int(stream), index)
            _wait(streams, streams.current_stream(index), earlier)
        return _shared(driver, found, index, lambda source=source: None)  # type: ignore[misc]

    return import_


def _described_array(told: dict[str, Any]) -> _Described:
    """Return what a CUDA array interface tells.

    Raises:
        TypeError: the memory is read-only or masked, or of a dtype that is not known here.
        ValueError: a stride is negative or no multiple of an element, or the stream is 0.
    """
    (address, read_only), typestr = told["data"], told["typestr"]
    kinds = {code: kind for kind, code in _CODES.items()}
    kind, size = kinds.get(typestr[1]), int(typestr[2:])
    dtype = getattr(tangrad, "bool" if kind == "bool" else f"{kind}{8 * size}", None)
    if dtype is None or typestr[0] == ">":
        raise TypeError(f"__cuda_array_interface__: no dtype for {typestr!r}")
    if read_only or told.get("mask") is not None:
        raise TypeError(
            "__cuda_array_interface__: memory that is read-only or masked is not shared; copy it"
        )
    if told.get("stream") == 0:
        raise ValueError("__cuda_array_interface__: stream 0 is ambiguous; the default one is 1")
    shape, steps = tuple(told["shape"]), told.get("strides")
    steps = tuple(size * s for s in _dense(shape)) if steps is None else tuple(steps)
    if any(step < 0 or step % size for step in steps):
        raise ValueError(
            f"__cuda_array_interface__: strides {steps} of elements of {size} bytes are negative, "
            "or no multiple of that; copy the array first"
        )
    return _Described(int(address), dtype, shape, tuple(step // size for step in steps))


def _device_of(driver: Any, address: int) -> int:
    driver.contexts.enter(driver.contexts.current)
    try:
        found: int = driver.api.number("cuPointerGetAttribute", _DEVICE_ORDINAL, address)
    except tangrad.AcceleratorError as error:
        raise ValueError(
            f"__cuda_array_interface__: {address:#x} is no address of a GPU's memory ({error})"
        ) from None
    return found


def array_interface(driver: Any) -> property:
    """Return Tensor's property of the CUDA array interface, version 3."""

    def interface(self: Any) -> dict[str, Any]:
        if self.device.type != driver.name:
            raise AttributeError(
                f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()}"
            )
        if self.requires_grad:
            raise RuntimeError(
                "Can't get __cuda_array_interface__ on Variable that requires grad; use detach()"
            )
        kind, bits = _split(self.dtype)
        if kind not in _CODES:
            raise TypeError(f"__cuda_array_interface__ has no code for {self.dtype}")
        code = _CODES[kind]
        stride = None if self.is_contiguous() else tuple(s * bits // 8 for s in self.stride())
        stream = driver.streams.handle(driver.streams.current_stream(self.device.index)) or 1
        return {
            "typestr": f"{'|' if bits == 8 else '<'}{code}{bits // 8}",
            "shape": tuple(self.shape),
            "strides": stride,
            "data": (sum(location(self)) if self.numel() else 0, False),
            "version": 3,
            "stream": stream,
        }

    return property(interface)


def connect(driver: Any) -> None:
    """Make both known to tensors; called when the device is opened."""
    from tangrad.plugin import register_array_protocol, register_dlpack_device

    register_dlpack_device(driver.name, DEVICE_TYPE, give(driver), take(driver))
    register_array_protocol("__cuda_array_interface__", take_array(driver))
    tangrad.Tensor.__cuda_array_interface__ = array_interface(driver)
