"""Give memory of GPUs to other libraries, and take theirs: DLPack and the CUDA array interface.

What is given out is shared; what is taken is copied, in the order of the streams that are named.
"""

from __future__ import annotations

import ctypes
from typing import Any

import tangrad
from tangrad.plugin import location

DEVICE_TYPE = 2  # of DLPack: CUDA
_KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
# Of the CUDA array interface: NumPy's codes; bfloat16 has none.
_CODES = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}
_TAKEN = b"used_dltensor"
_GIVEN = b"dltensor"


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
    """
    streams = driver.streams
    if stream == -1:
        return
    current = streams.current_stream(index)
    target = streams.adopt(0 if stream in (None, 1, 2) else int(stream), index)
    if target != current:
        event = streams.record_event(current)
        streams.wait_event(target, event)
        streams.destroy_event(event)


def take(driver: Any) -> Any:
    """Return the function by which an object with `__dlpack__` becomes a tensor, by a copy."""

    def import_(source: Any) -> Any:
        index = source.__dlpack_device__()[1]
        stream = driver.streams.handle(driver.streams.current_stream(index)) or 1
        capsule = source.__dlpack__(stream=stream)
        pointer = _python.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        address = pointer(ctypes.py_object(capsule), _GIVEN)
        managed = _Managed.from_address(address)
        try:
            found = _copied(driver, _described(managed.tensor), managed.tensor.device.id)
        finally:
            _python.PyCapsule_SetName(ctypes.py_object(capsule), _TAKEN)
            managed.deleter(address)
        return found

    return import_


def _described(t: Any) -> tuple[int, Any, tuple[int, ...], tuple[int, ...]]:
    names = {code: kind for kind, code in _KINDS.items()}
    kind = names.get(t.dtype.code)
    if kind is None or t.dtype.lanes != 1:
        raise BufferError(f"from_dlpack: no dtype for code {t.dtype.code}, {t.dtype.lanes} lanes")
    name = "bool" if kind == "bool" else f"{kind}{t.dtype.bits}"
    shape = tuple(t.shape[k] for k in range(t.ndim))
    strides = tuple(t.strides[k] for k in range(t.ndim)) if t.strides else _dense(shape)
    return (t.data or 0) + t.byte_offset, getattr(tangrad, name), shape, strides


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _copied(driver: Any, place: tuple[int, Any, Any, Any], index: int) -> Any:
    """Return a tensor with the elements at an address of a device."""
    address, dtype, shape, strides = place
    if any(size == 0 for size in shape):
        return tangrad.empty(shape, dtype=dtype, device=f"cuda:{index}")
    if any(stride < 0 for stride in strides):
        raise BufferError("from_dlpack: negative strides; copy the array first")
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    made = tangrad.empty(extent, dtype=dtype, device=f"cuda:{index}")
    driver.contexts.enter(index)
    stream = driver.streams.handle(driver.streams.current_stream(index))
    size = extent * made.element_size()
    driver.api.call("cuMemcpyAsync", sum(location(made)), address, size, stream)
    return made.as_strided(shape, strides)


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
    from tangrad.plugin import register_dlpack_device

    register_dlpack_device(driver.name, DEVICE_TYPE, give(driver), take(driver))
    tangrad.Tensor.__cuda_array_interface__ = array_interface(driver)
