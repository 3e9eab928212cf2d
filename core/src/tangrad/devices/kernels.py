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
        op: name of the op, such as "mul"; where `python -m tangrad op NAME` lists forms of
            other names, such as "add_plain", the name of one of those.
        kernel: callable; docs/add-a-device.md says what it receives for each kind of op.
        device: device type.
        dtypes: names of the promoted dtypes it serves; all that are registered by default.
        layout: layout of the operands.

    Raises:
        AttributeError: no op has the name.
        TypeError: the kernel is not callable, a dtype is unknown, or no device can have a
            kernel for the op, because it is a choice of ops, a view or a composition of ops.
    """
    if not callable(kernel):
        raise TypeError(f"register_kernel: the kernel of '{op}' on '{device}' is not callable")
    from tangrad import _C, ops

    found = ops.lookup(op)
    _check_has_kernels(found)
    names = None if dtypes is None else list(dtypes)
    _C.register_kernel(found, _C.register_slot(device, layout), names, kernel)


def _check_has_kernels(op: Any) -> None:
    """Refuse a kernel that would never be called."""
    definition = op.definition
    if definition.members:
        remedy = f"register one for {' or '.join(member.name for member in definition.members)}"
    elif op.kind in ("composite", "view"):
        remedy = "it computes by other ops" if op.kind == "composite" else "it computes nothing"
    elif definition.native is not None:
        remedy = "the core computes it by the driver's copies"
    else:
        return
    raise TypeError(f"register_kernel: '{op.title}' has no kernels of its own: {remedy}")


def location(tensor: Tensor) -> tuple[int, int]:
    """Return where a tensor's first element lies: the driver's handle and the offset in bytes.

    Shape and strides, in elements, are the tensor's own. A kernel is called with tensors that
    are on its device; the handle is one that the driver's `allocate` returned.
    """
    handle, offset = tensor.untyped_storage()._handle
    return handle, offset + tensor.storage_offset() * tensor.itemsize
