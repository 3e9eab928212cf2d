"""From a call with a tensor of another layout to a kernel, or to the dense form.

`dispatch` comes here where recording begins, and for composites before they are expanded.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.devices import kernels
from tangrad.dispatch import python_dispatch
from tangrad.dispatch.intercept import in_tensor_code
from tangrad.dispatch.levels import map_tensors
from tangrad.dispatch.python_dispatch import fresh
from tangrad.dispatch.stack import current, flat_tensors
from tangrad.layouts.definition import LayoutWarning
from tangrad.layouts.tensors import dense, replace_components, to_layout

_warned: set[tuple[str, str]] = set()
# Kernels that serve every device: {(op, layout): {dtype, or None for all: kernel}}.
_anywhere: dict[tuple[str, str], dict[str | None, LayoutKernel]] = {}


class LayoutKernel:
    """A function that computes an op on tensors of a layout.

    Attributes:
        function: takes the op's arguments in the order of its signature, returns its result.
        records: it is made of differentiable ops and is called with recording as it is.
    """

    __slots__ = ("function", "records")

    def __init__(self, function: Callable[..., Any], records: bool) -> None:
        self.function, self.records = function, records

    def __call__(self, *args: Any) -> Any:
        """Compute."""
        return self.function(*args)


def register(
    op: _C.Op,
    kernel: Callable[..., Any],
    layout: str,
    device: str | None,
    dtypes: Any,
    records: bool,
) -> None:
    """Enter a kernel for a layout; `tangrad.plugin.register_kernel` is the public way."""
    entry = LayoutKernel(kernel, records)
    names = None if dtypes is None else list(dtypes)
    if device is not None:
        _C.register_kernel(op, _C.register_slot(device, layout), names, entry)
        return
    table = _anywhere.setdefault((op.name, layout), {})
    table.update(dict.fromkeys([None] if names is None else names, entry))


def kernel_of(op: _C.Op, tensors: list[Any]) -> LayoutKernel | None:
    """Return the kernel for the first tensor of another layout that has one."""
    for t in tensors:
        held = _C.contents_of(t)
        if held is None:
            continue
        slot = _C.register_slot(t.device.type, held.layout.name)
        found = _C.kernel_at(op, slot, t.dtype)
        if isinstance(found, LayoutKernel):
            return found
        table = _anywhere.get((op.name, held.layout.name))
        if table:
            found = table.get(t.dtype.name) or table.get(None)
            if found is not None:
                return found
    return None


def composite(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> tuple[bool, Any]:
    """Run a composite that has a kernel of its own for a layout: (done, result)."""
    if out is not None:
        return False, None
    tensors = flat_tensors(args)
    kernel = kernel_of(op, tensors)
    if kernel is None:
        return False, None
    return True, _by_kernel(kernel, op, functional, args)


def run(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
    """Run a call in which a tensor of another layout takes part."""
    tensors = flat_tensors(args)
    if out is None:
        kernel = kernel_of(op, tensors)
        if kernel is not None:
            return _by_kernel(kernel, op, functional, args)
        built_in = _BUILT_IN.get(op.name)
        if built_in is not None and _C.contents_of(args[0]) is not None:
            return _below(built_in, op, functional, args)
    if functional.definition.schema.written_lists:
        return in_tensor_code(functional, args)  # its ops find the layouts' kernels
    if op is not functional and _C.contents_of(args[0]) is not None:
        return _in_place(op, functional, args)
    if op.name == "copy_" and _C.contents_of(args[0]) is not None:
        return _copy(*args)
    written = functional.definition.schema.written
    if op.name != "copy_" and written >= 0 and _C.contents_of(args[written]) is not None:
        return _written(op, functional, args, args[written])
    for o in flat_tensors((out,)):
        if _C.contents_of(o) is not None:
            kernel = kernel_of(functional, tensors) if o is out else None
            if kernel is not None:
                return _into(o, _by_kernel(kernel, functional, functional, args), op.title)
            raise NotImplementedError(
                f"{op.title}(): out= of layout {o.layout} is not supported; use the result"
            )
    if op.name != "copy_":
        _densifies(op, tensors)
    return python_dispatch.recorded(op, functional, map_tensors(dense, args), out, current())


def _check_cast(title: str, result: Any, target: Any) -> None:
    if not _C.can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"{title}: result type {result.dtype} can't be cast to the desired output type "
            f"{target.dtype} of the tensor of layout {target.layout} that is written"
        )


def _into(out: Any, result: Any, title: str) -> Any:
    """Overwrite the tensor of out= with a result; it takes the result's shape."""
    if _C.is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{title}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    _check_cast(title, result, out)
    found = to_layout(result, out.layout)
    found = _C.contents_of(out.layout.definition.converted(found, out.dtype, out.device))
    replace_components(
        out, found.components, metadata=found.metadata, shape=result.shape, writer=title
    )
    return out


def _by_kernel(kernel: LayoutKernel, op: _C.Op, functional: _C.Op, args: tuple[Any, ...]) -> Any:
    if kernel.records:
        return kernel.function(*args)
    return _below(kernel.function, op, functional, args)


def _below(
    function: Callable[..., Any], op: _C.Op, functional: _C.Op, args: tuple[Any, ...]
) -> Any:
    """Compute with nothing standing between and without recording; record by the op's rule."""
    writes = op is not functional or functional.definition.schema.written >= 0
    needs = (
        _C.is_grad_enabled()
        and op.name != "detach"
        and (functional.definition.differentiable or functional.kind == "composite")
        and any(t.requires_grad for t in flat_tensors(args))
    )
    if writes and needs:
        raise NotImplementedError(
            f"{op.title}(): an in-place call on a tensor of layout {args[0].layout} is not "
            "recorded; use the form that returns a new tensor"
        )
    if needs and functional.kind == "composite":
        raise NotImplementedError(
            f"{op.title}: its kernel for the layout is not recorded; register it with records=True"
        )
    stack = current()
    previous = _C._set_grad_enabled(False)
    _C.set_intercept(None)
    try:
        result = function(*args)
    finally:
        _C._set_grad_enabled(previous)
        stack.install()
    if needs:
        result = fresh(result, args)
        _C.record_call(functional, args, result)
    return result


def _in_place(op: _C.Op, functional: _C.Op, args: tuple[Any, ...]) -> Any:
    """Write the result of the functional form into the tensor, in the tensor's layout."""
    target = args[0]
    if _C.is_grad_enabled() and any(t.requires_grad for t in flat_tensors(args)):
        raise NotImplementedError(
            f"{op.title}(): an in-place call on a tensor of layout {target.layout} is not "
            "recorded; use the form that returns a new tensor"
        )
    result = run(functional, functional, args, None)
    _check_cast(op.title, result, target)
    return _copy(target, result, False, op.title)


def _written(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], target: Any) -> Any:
    _densifies(op, [target])
    written = dense(target).clone()
    held = map_tensors(lambda t: written if t is target else dense(t), args)
    python_dispatch.recorded(op, functional, held, None, current())
    return _copy(target, written, writer=op.title)


def _copy(target: Any, source: Any, non_blocking: bool = False, writer: str = "copy_") -> Any:
    """Overwrite a tensor of another layout with the values of any tensor of its shape."""
    if not isinstance(source, _C.Tensor):
        source = _C.lookup_op("full")(tuple(target.shape), source, dtype=target.dtype)
    if tuple(source.shape) != tuple(target.shape):
        raise RuntimeError(
            f"{writer}: a tensor of shape {list(source.shape)} does not fit one of "
            f"{list(target.shape)} of layout {target.layout}"
        )
    if _C.is_grad_enabled() and (source.requires_grad or target.requires_grad):
        raise NotImplementedError(
            f"{writer}: a write into a tensor of layout {target.layout} is not recorded; "
            "call it under no_grad()"
        )
    layout = target.layout
    if source.layout is not layout:
        source = to_layout(source, layout, **layout.definition.options(target))
    held = layout.definition.converted(source, target.dtype, target.device)
    held = _C.contents_of(held)
    return replace_components(target, held.components, metadata=held.metadata, writer=writer)


def _densifies(op: _C.Op, tensors: list[Any]) -> None:
    """Warn that an op runs on the dense form, or refuse it, as the layouts say."""
    for t in tensors:
        held = _C.contents_of(t)
        if held is None:
            continue
        device, layout = t.device.type, held.layout
        if layout.definition.missing == "refuse":
            raise NotImplementedError(
                f"'{op.title}' has no kernel for layout {layout} on device '{device}' "
                f"({t.dtype}{list(t.shape)}), and the layout refuses to be made dense unasked: "
                "call to_dense() on the tensor, or register a kernel with "
                f"tangrad.plugin.register_kernel('{op.name}', ..., layout='{layout.name}')"
            )
        if layout.definition.missing == "warn" and (op.name, layout.name) not in _warned:
            _warned.add((op.name, layout.name))
            warnings.warn(
                f"'{op.title}' has no kernel for layout {layout} on device '{device}': it runs on "
                "the dense form of the tensor. Call to_dense() to say so yourself, or register a "
                f"kernel with tangrad.plugin.register_kernel(..., layout='{layout.name}')",
                LayoutWarning,
                stacklevel=_users_frame(),
            )


def _users_frame() -> int:
    """Return the stack level, seen from the caller, of the first frame outside the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tangrad."):
        level, frame = level + 1, frame.f_back
    return level


def _detach(t: Any) -> Any:
    return _C.plain_alias(t)


def _clone(t: Any, memory_format: Any = None) -> Any:
    return t.layout.definition.clone(t)


def _to_copy(t: Any, dtype: Any, device: Any, memory_format: Any = None) -> Any:
    return t.layout.definition.converted(t, dtype, device)


_BUILT_IN: dict[str, Callable[..., Any]] = {
    "detach": _detach,
    "alias": _detach,
    "clone": _clone,
    "_to_copy": _to_copy,
}

python_dispatch.of_layouts, python_dispatch.composite_of_layouts = run, composite
kernels.of_layouts = register
