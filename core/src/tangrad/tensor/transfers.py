"""Page-locked memory of the host, and copies that the caller does not wait for."""

from __future__ import annotations

from typing import Any

from tangrad import _C


def _above(name: str) -> Any:
    """Return a module that stands on tensors: devices bring what copies are made by."""
    import importlib

    return importlib.import_module(f"tangrad.{name}")


def is_pinned(self: Any, device: Any = None) -> bool:
    """Return whether the memory is page-locked; `device` is accepted and means nothing."""
    if self.device.type != "cpu" or self.numel() == 0:
        return False
    if (held := _C.contents_of(self)) is not None:
        return any(is_pinned(c) for c in held.components.values())
    address = sum(self.untyped_storage()._handle)
    return any(pinned.holds(address) for pinned in _pinning().values())


def pin_memory(self: Any, device: Any = None) -> _C.Tensor:
    """Return the tensor in page-locked memory: itself if it is there already.

    A device that has no use for such memory gets the tensor as it is.

    Raises:
        RuntimeError: it is not on the host, there is no accelerator, or the system refuses to
            lock so much memory.
    """
    accelerator = _above("accelerator")
    if _C._default_accelerator() == "cpu" and not accelerator.is_available():
        raise RuntimeError(
            "pin_memory: Cannot access accelerator device when none is available; use the tensor "
            "as it is (python -m tangrad info says why)"
        )
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{self.type()}': only memory of the host is page-locked")
    if is_pinned(self) or self.numel() == 0:
        return self
    place = accelerator.current_accelerator()
    if place is not None:
        _above("devices.registry").open_device(place.type)
    pinned = next(iter(_pinning().values()), None)
    if pinned is None:
        return self
    made = _on(pinned, self.shape, self.stride(), self)
    return _C.requiring_grad(made.copy_(self.detach()), self.requires_grad)


def _pinning() -> dict[str, Any]:
    """Return {device type: its page-locked memory} of the devices in use."""
    opened = _above("devices.registry").opened_drivers()
    return {driver.name: driver.pinned for driver in opened if driver.pinned is not None}


def _on(pinned: Any, shape: Any, stride: Any, like: Any) -> Any:
    """Return an uninitialised tensor in page-locked memory, dense as another is."""
    from tangrad.tensor.exchange import frombuffer

    shape = tuple(shape)
    count = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if count != like.numel():
        stride, count = _C.format_strides(shape, _C.contiguous_format), like.numel()
    flat = frombuffer(pinned.allocate(count * like.itemsize), dtype=like.dtype, count=count)
    return flat.as_strided(shape, tuple(stride))


def copied(self: Any, dtype: Any, device: Any, memory_format: Any) -> Any:
    """Return a copy on another device that may still be under way.

    Only a copy between the host and a device with streams, of a dense tensor with its dtype and
    strides and without history, overlaps with the caller; any other is done when this returns.
    """
    plain = dtype in (None, self.dtype) and memory_format in (None, _C.preserve_format)
    if plain and not _has_history(self) and _is_dense(self):
        started = _started(self, device)
        if started is not None:
            return started
    return _C.lookup_op("_to_copy")(self, dtype=dtype, device=device, memory_format=memory_format)


def copy_started(target: Any, source: Any) -> bool:
    """Start `target.copy_(source)` where that is possible; return whether it was."""
    if _has_history(target) or _has_history(source) or target.dtype is not source.dtype:
        return False
    if target.shape != source.shape or target.stride() != source.stride():
        return False
    if not _is_dense(target) or target.numel() == 0:
        return False
    return _start(target, source)


def _has_history(x: Any) -> bool:
    if type(x) is not _C.Tensor or _C.level_of(x) is not None:
        return True
    return bool(x.requires_grad and _C.is_grad_enabled())


def _is_dense(x: Any) -> bool:
    plain = not x.is_conj() and not x.is_neg() and x.layout is _C.strided
    return plain and (x.is_contiguous() or _covers(x))


def _covers(x: Any) -> bool:
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return bool(extent == x.numel())


def _started(self: Any, device: Any) -> Any:
    if self.numel() == 0:
        return None
    if device.type == "cpu":
        pinned = _pinning().get(self.device.type)
        if pinned is None:
            return None
        made = _on(pinned, self.shape, self.stride(), self)
    else:
        made = _C.empty_strided(tuple(self.shape), self.stride(), self.dtype, device)
    return made if _start(made, self) else None


def _start(target: Any, source: Any) -> bool:
    """Give the copy to the current stream of the device that is not the host."""
    to_host = target.device.type == "cpu"
    if to_host == (source.device.type == "cpu"):
        return False
    near, far = (target, source) if to_host else (source, target)
    streams = _above("devices.registry").get_driver(far.device.type).streams
    # Of pageable memory a driver makes a copy first, in its own time: nothing is won.
    if streams is None or not is_pinned(near):
        return False
    handle, offset = far.untyped_storage()._handle
    offset += far.storage_offset() * far.itemsize
    bytes_near = near.as_strided((near.numel(),), (1,), near.storage_offset())
    memory = memoryview(bytes_near.view(_C.dtype_by_name("uint8")).numpy())
    stream = streams.current_stream(far.device.index)
    start = streams.copy_to_host if to_host else streams.copy_from_host
    start(handle, offset, memory, stream, near)
    return True
