"""Find a kernel: the device's own, a decomposition, the reference on the host, or an error.

Asked once per (op, slot, dtype): the compiled core caches the answer in the op's table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch.watching import DECOMPOSITION, HOST, KERNEL, watched
from tangrad.tensor.caller import stacklevel_of_caller

_warned: set[tuple[str, str, str]] = set()
_fallen_back: dict[str, int] = {}
_opened: set[str] = set()


def resolve(op: _C.Op, slot: int, dtype: _C.dtype) -> Any:
    """Return the kernel of an op for a slot and the dtype it is asked for.

    Raises:
        NotImplementedError: nothing serves it; the message says what was tried.
    """
    device, layout = _C.slot_name(slot)
    if not dtype.arithmetic and _computes(op):
        raise NotImplementedError(
            f"'{op.title}' is not implemented for {dtype}, which stores numbers and computes none; "
            "convert first, e.g. with .to(tangrad.float32)"
        )
    tried = [f"a kernel of device '{device}' for layout '{layout}' and {dtype}"]
    kind = _C.device_types()[device]
    if kind.meta:
        return _no_kernel
    if layout == "strided":
        driver = kind.driver
        build = getattr(driver, "kernel_for", None)
        found = build(op, dtype) if build is not None else None
        if found is not None:
            if not callable(found):
                raise TypeError(
                    f"device '{device}': kernel_for('{op.name}', {dtype}) returned {found!r}, "
                    "neither a function nor None"
                )
            return watched(op.name, device, dtype.name, KERNEL, found)
    definition = op.definition
    if op.name == "copy_" and layout == "strided":
        return copy_by_host
    if definition.decompose is not None:
        return watched(op.name, device, dtype.name, DECOMPOSITION, decomposition(op))
    tried.append("a decomposition")
    if layout == "strided" and not _forbids_fallback(op):
        _warn_fallback(op, device)
        return watched(op.name, device, dtype.name, HOST, fallback(op))
    tried.append(
        "the reference on the host"
        if layout == "strided"
        else "the reference (strided tensors only)"
    )
    raise NotImplementedError(
        f"'{op.title}' has no kernel for device '{device}', layout '{layout}', {dtype}. Tried: "
        f"{', '.join(tried)}. Install a backend that has one, register one with "
        f"tangrad.plugin.register_kernel, or move the tensor with .to('{_C.get_default_device()}')."
    )


# What moves, compares or fills elements; all else of these kinds and families computes.
_MOVES = frozenset({"eq", "ne", "where", "fill_", "fill", "masked_fill", "_masked_fill"})
_COMPUTING = ("linalg", "nn", "special", "spectral", "optimizer", "reduction")


def _computes(op: _C.Op) -> bool:
    if op.name in _MOVES:
        return False
    if op.kind in ("pointwise", "reduction", "scan"):
        return True
    return op.definition.module.removeprefix("tangrad.ops.").split(".")[0] in _COMPUTING


def _no_kernel(*args: Any) -> None:
    """Stand for the kernels of a device without memory; it is never called."""


def _forbids_fallback(op: _C.Op) -> bool:
    return bool(getattr(op.definition, "collective", False))


def _warn_fallback(op: _C.Op, device: str) -> None:
    definition = op.definition
    if definition.parent is None:
        remedy = f"tangrad.plugin.register_kernel('{op.name}', kernel, device='{device}') adds one"
    else:
        remedy = (
            f"the driver of '{device}' may have one, by kernel_for, where derived ops are asked"
        )
    _warn_once(op, device, "kernel", "", remedy)


def _warn_once(op: _C.Op, device: str, case: str, told: str, remedy: str) -> None:
    if (op.name, device, case) in _warned:
        return
    _warned.add((op.name, device, case))
    definition = op.definition
    warnings.warn(
        f"{definition.title} has no kernel on device '{device}'{told}: it runs on the host by the "
        f"reference, with copies both ways; {remedy}. `python -m tangrad op "
        f"{definition.parent or op.name}` lists its kernels",
        FallbackWarning,
        stacklevel=stacklevel_of_caller(),
    )


class FallbackWarning(UserWarning):
    """An op runs on the host because its device has no kernel for it."""


def copy_by_host(outs: Any, args: tuple[Any, ...]) -> None:
    """Copy within a device that has no kernel of `copy_` for it, by way of the host."""
    target, source = args[:2]
    old, new = source.dtype.name, target.dtype.name
    case, told = "strided", f" for strided memory of {new}"
    if old != new:
        case, told = "cast", f" for casts such as {old} to {new}"
    tell_copy_by_host(target.device.type, new, case, told)
    _C.copy_staged(target, source)


def tell_copy_by_host(device: str, dtype: str, case: str, told: str) -> None:
    """Warn of a copy within a device by way of the host, once for each case, and count it.

    Args:
        case: what there is no kernel for.
        told: the same, as the end of "has no kernel on device 'box'".
    """
    op = _C.lookup_op("copy_")
    remedy = f"tangrad.plugin.register_kernel('copy_', kernel, device='{device}') adds one"
    _warn_once(op, device, case, told, remedy)
    _fallen_back[op.name] = _fallen_back.get(op.name, 0) + 1
    watched(op.name, device, dtype, HOST, _no_kernel)()


def decomposition(op: _C.Op) -> Callable[..., Any]:
    """Return a kernel that runs the definition's tensor code."""
    definition = op.definition

    def kernel(outs: tuple[Any, ...] | None, args: tuple[Any, ...]) -> Any:
        result = definition.decomposed(args)
        if definition.schema.written_lists:
            return None
        results = result if isinstance(result, (tuple, list)) else (result,)
        if outs is None:
            return tuple(results)
        for out, r in zip(outs, results, strict=True):
            _C.copy_data(out, r)
        return None

    return kernel


def fallback_calls() -> dict[str, int]:
    """Return how often each op ran on the reference because its device had no kernel."""
    return dict(_fallen_back)


def fallback(op: _C.Op) -> Callable[..., Any]:
    """Return a kernel that copies to the host, runs the reference there and copies back."""
    build = _C.device_types().get("reference")
    if build is None:
        _C.device("reference")
    from tangrad.devices import reference

    kernels: dict[str, Any] = {}

    def kernel(outs: tuple[Any, ...] | None, *rest: Any) -> Any:
        _fallen_back[op.name] = _fallen_back.get(op.name, 0) + 1
        like = outs[0] if outs is not None else None
        moved = tuple(to_reference(value) for value in rest)
        dtype = _key_dtype(op, moved, outs)
        run = kernels.get(dtype.name)
        if run is None:
            run = reference.kernel_for(op, dtype)
            if run is None:
                raise NotImplementedError(
                    f"'{op.title}' has neither a kernel nor a reference for {dtype}"
                )
            kernels[dtype.name] = run
        if outs is None:
            results = run(None, *moved)
            device = next(t for t in _tensors(rest)).device
            return tuple(_C.copy_with(r, None, device) for r in results)
        hosts = tuple(_C.copy_with(o, None, "reference") for o in outs)
        run(hosts, *moved)
        for out, host in zip(outs, hosts, strict=True):
            _C.copy_data(out, host)
        return like

    return kernel


def _key_dtype(op: _C.Op, moved: tuple[Any, ...], outs: Any) -> Any:
    if op.kind == "pointwise":
        fixed = op.definition.fixed
        found = [
            t
            for name, t in zip(op.definition.inputs, moved[0], strict=True)
            if isinstance(t, _C.Tensor) and name not in fixed
        ]
        return found[0].dtype if found else outs[0].dtype
    for t in _tensors(moved):
        return t.dtype
    return _C.get_default_dtype()


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, _C.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def to_reference(value: Any) -> Any:
    """Copy tensors (also inside tuples, lists and dicts) to the reference device."""
    if isinstance(value, _C.Tensor):
        return _C.copy_with(value, None, "reference")
    if isinstance(value, (tuple, list)):
        return (
            type(value)(to_reference(v) for v in value) if not hasattr(value, "_fields") else value
        )
    if isinstance(value, dict):
        return {k: to_reference(v) for k, v in value.items()}
    return value


_C.set_resolver(resolve)
_C.set_copy_fallback(copy_by_host)
