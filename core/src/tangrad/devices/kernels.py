"""Register kernels for a device by the names of op, device and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


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
