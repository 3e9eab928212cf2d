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
    device: str | None = None,
    dtypes: Iterable[str] | None = None,
    layout: str = "strided",
    records: bool = False,
) -> None:
    """Have an op computed by a function on one device; an earlier kernel is replaced.

    A kernel for another layout than strided takes the op's arguments in the order of its
    signature and returns its result; composites, views and in-place forms may have one, too.

    Args:
        op: name of the op, such as "mul"; where `python -m tangrad op NAME` lists forms of
            other names, such as "add_plain", the name of one of those.
        kernel: callable; docs/add-a-device.md says what it receives for each kind of op.
        device: device type; None, for another layout only, is every device.
        dtypes: the promoted dtypes it serves, by name or themselves; all by default.
        layout: layout of the operands; of one of them suffices.
        records: for another layout: the kernel is made of differentiable ops or of
            `autograd.Function` and is called with recording as it is. Otherwise it runs without
            recording, and the op's own derivative is recorded.

    Raises:
        AttributeError: no op has the name.
        ValueError: no layout has the name, or no device is known by it.
        TypeError: the kernel is not callable, a dtype is unknown, or no device can have a
            kernel for the op, because it is a choice of ops, a view or a composition of ops.
    """
    if not callable(kernel):
        raise TypeError(f"register_kernel: the kernel of '{op}' on '{device}' is not callable")
    from tangrad import _C
    from tangrad.dispatch.watching import KERNEL, is_watched, watched

    found = _C.lookup_op(op)
    name = layout.name if isinstance(layout, _C.layout) else layout
    if dtypes is not None:
        given = [dtypes] if isinstance(dtypes, (str, _C.dtype)) else dtypes
        dtypes = [dtype.name if isinstance(dtype, _C.dtype) else dtype for dtype in given]
    if _C.layout_named(name) is not _C.strided:
        _register_of_layout(found, kernel, name, device, dtypes, records)
        return
    if device is None or records:
        raise TypeError(
            f"register_kernel: a kernel of '{op}' for strided tensors is of one device and is not "
            "recorded: give device=, and leave records= out"
        )
    _check_has_kernels(found)
    slot = _C.register_slot(device, layout)
    if not is_watched(device):
        _C.register_kernel(found, slot, dtypes, kernel)
        return
    for dtype in dtypes or [known.name for known in _C.registered_dtypes()]:
        _C.register_kernel(found, slot, [dtype], watched(found.name, device, dtype, KERNEL, kernel))


def _register_of_layout(
    op: Any, kernel: Any, layout: str, device: str | None, dtypes: Any, records: bool
) -> None:
    if device is not None:
        from tangrad import _C

        _C.device(device)
    for form in op.overloads or (op,):
        of_layouts(form, kernel, layout, device, dtypes, records)


def of_layouts(*entry: Any) -> None:
    """Enter a kernel for another layout; the part above replaces this when there is one."""
    raise NotImplementedError("no layout with a definition is registered")


def _check_has_kernels(op: Any) -> None:
    """Refuse a kernel that would never be called."""
    definition = op.definition
    if definition.members:
        remedy = f"register one for {' or '.join(member.name for member in definition.members)}"
    elif op.kind in ("composite", "view"):
        remedy = "it computes by other ops" if op.kind == "composite" else "it computes nothing"
    elif definition.native is not None and not definition.loops:
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


def reference_kernel(op: Any, dtype: Any) -> Callable[..., Any] | None:
    """Return the kernel by which the reference device computes an op for a promoted dtype.

    A driver whose memory the host can read hands on to it what it has no kernel for: from
    `kernel_for`, or from a kernel that meets an unusual case. None where NumPy has no say.
    """
    from tangrad.devices import reference

    return reference.kernel_for(op, dtype)
