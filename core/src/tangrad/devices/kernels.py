"""Register kernels for a device by the names of op, device and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad import Tensor


def register_kernel(
    op: str,
    kernel: Callable[..., Any],
    *,
    device: str,
    dtypes: Iterable[str] | None = None,
    layout: str = "strided",
) -> None:
    """Have an op computed by a function on one device; an earlier kernel is replaced.

    Args:
        op: name of the op, such as "add".
        kernel: callable; docs/add-a-device.md says what it receives for each kind of op.
        device: device type.
        dtypes: names of the promoted dtypes it serves; all that are registered by default.
        layout: layout of the operands.

    Raises:
        AttributeError: no op has the name.
        TypeError: the kernel is not callable, or a dtype is unknown.
    """
    if not callable(kernel):
        raise TypeError(f"register_kernel: the kernel of '{op}' on '{device}' is not callable")
    from tangrad import _C, ops

    names = None if dtypes is None else list(dtypes)
    _C.register_kernel(ops.lookup(op), _C.register_slot(device, layout), names, kernel)


def location(tensor: Tensor) -> tuple[int, int]:
    """Return where a tensor's first element lies: the driver's handle and the offset in bytes.

    Shape and strides, in elements, are the tensor's own. A kernel is called with tensors that
    are on its device; the handle is one that the driver's `allocate` returned.
    """
    handle, offset = tensor.untyped_storage()._handle
    return handle, offset + tensor.storage_offset() * tensor.itemsize
