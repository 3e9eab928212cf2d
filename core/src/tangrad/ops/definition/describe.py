"""Everything that follows from an op's definition, as text: `python -m tangrad op NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tangrad import _C
from tangrad.expr.dtypes import kinds_of, result_dtype

_PROMOTED = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64")
# The kinds that promotion changes: to the default dtype, or to int64.
_EXACT = ("bool", "uint", "int")
_WIDENED = {"float": _EXACT, "sum": _EXACT, "number": ("bool",)}


def describe(name: str) -> str:
    """Return an op's signature, promotion, expression, C, derivatives, batching and kernels.

    Raises:
        AttributeError: no definition has that name.
    """
    from tangrad.ops import lookup

    op = lookup(name)
    lines: list[str] = []
    members = op.overloads or tuple(op.definition.variants.values()) or (op,)
    if op.overloads:
        lines += [f"{name}: {len(members)} forms", ""]
    for member in members:
        functional = member.functional or member
        lines += _sections(functional)
    return "\n".join(lines).rstrip() + "\n"


def _sections(op: _C.Op) -> Iterator[str]:
    d = op.definition
    yield f"{op.name}({d.signature_text()})"
    if d.doc:
        yield from _indented(d.doc.strip())
    yield f"  kind         {op.kind}, defined in {d.module}"
    yield f"  forms        {', '.join(_forms(op))}"
    if op.kind == "pointwise":
        yield from _pointwise(d)
    elif op.kind in ("reduction", "scan"):
        yield from _fold(d)
    elif d.decompose is not None or op.kind == "composite":
        yield (
            "  decomposes   into tensor code, on devices without a kernel"
            if d.decompose is not None
            else "  decomposes   always: it is tensor code on other ops"
        )
    yield f"  derivative   {_derivative(d)}"
    yield f"  tangent      {_tangent(d)}"
    yield f"  batching     {_batching(d)}"
    yield from _kernels(op)
    if d.c_implementation is not None:
        calls = _C.c_implementations()[d.c_implementation][2]
        yield f"  compiled     C answers first ('{d.c_implementation}'): {calls}"
    yield ""


def _indented(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"  {line.strip()}"


def _forms(op: _C.Op) -> list[str]:
    d = op.definition
    name = d.public_name or op.name
    forms = []
    package, _, last = name.rpartition("::")
    if package:
        forms.append(f"tangrad.ops.{package}.{last}")
        if op.inplace is not None:
            forms.append(f"tangrad.ops.{package}.{last}_")
        return forms
    if d.namespace == "nn":
        forms.append(f"nn.functional.{name}")
    elif d.namespace is not None and d.function:
        forms.append(f"{d.namespace}.{name.removeprefix(d.namespace + '_')}")
    elif d.function or d.public_name:
        forms.append(f"tangrad.{name}")
    if d.is_method or d.public_name:
        forms.append(f"Tensor.{name}")
    if op.inplace is not None:
        forms.append(f"Tensor.{name}_")
    if op.kind in ("pointwise", "reduction", "scan", "kernel"):
        forms.append("out=")
    forms += [f"alias {a}" for a in d.alias]
    return forms or ["internal"]


def _pointwise(d: Any) -> Iterator[str]:
    yield f"  expression   {d.text if isinstance(d.text, str) else d.expression.source}"
    yield f"  promotion    {d.promote}; accepts {d.dtypes}"
    for name in _PROMOTED:
        found = _promotion(d, name)
        if found:
            yield f"    {name:<12} {found}"
    for name in d.inputs:
        if name in d.partials:
            yield f"  ∂/∂{name:<9} {d.partials[name]}"
        elif isinstance(d.vjp, dict) and isinstance(d.vjp.get(name), str):
            yield f"  vjp {name:<8} {d.vjp[name]}"
        elif d.differentiable:
            yield f"  ∂/∂{name:<9} {_derived(d, name)}"
    text = _rendered(d)
    if text:
        yield "  rendered C"
        for line in text.strip().splitlines():
            yield f"    {line}"


def _promotion(d: Any, name: str) -> str:
    """Return "computes in X -> results" for inputs of a dtype, or "" where it is not accepted."""
    promoted = _C.dtype_by_name(name)
    if promoted.kind in _WIDENED.get(d.promote, ()):
        integers = _C.dtype_by_name("int64")
        promoted = _C.get_default_dtype() if d.promote == "float" else integers
    if promoted.kind == "foreign" or promoted.kind[0] not in kinds_of(d.dtypes):
        return ""
    results = ", ".join(result_dtype(result, promoted.name) for result in d.results)
    return f"computes in {promoted.compute} -> {results}"


def _derived(d: Any, name: str) -> str:
    try:
        return d.expression.partial(name).source
    except Exception as error:  # a primitive without derivative says why
        return f"none: {error}"


def _rendered(d: Any) -> str:
    kind = (
        "int64"
        if d.promote == "integral" or d.dtypes in ("integral", "bool integral")
        else "float32"
        if "floating" in d.dtypes or "all" in d.dtypes
        else "complex64"
    )
    types = {n: d.fixed.get(n, kind) for n in d.inputs}
    results = [result_dtype(result, kind) for result in d.results]
    try:
        program = d.expression.typed(types, kind, results)
        return program.render_c(d.name)
    except Exception as error:  # an expression that has no meaning for the sample type
        return f"/* not for {kind}: {error} */"


def _fold(d: Any) -> Iterator[str]:
    yield f"  map          {d.map_text}"
    named = f" ({d.fold})" if d.fold else ""
    yield f"  combine      {d.combine_text}{named}"
    identity = "none: an empty fold is an error" if d.identity is None else d.identity
    yield f"  identity     {identity}"
    if d.finalize_text is not None:
        yield f"  finalize     {d.finalize_text}"
    yield f"  promotion    {d.promote}; accepts {d.dtypes}; results {', '.join(d.results)}"


def _derivative(d: Any) -> str:
    if d.no_derivative_reason is not None:
        return f"none: {d.no_derivative_reason}"
    if d.kind == "pointwise":
        return "one fused pointwise op for all inputs that need it"
    if isinstance(d.vjp, dict):
        reasons = [f"by {k} {f}" for k, f in d.vjp.items() if isinstance(f, str)]
        keys = [", ".join(k) if isinstance(k, tuple) else k
                for k, f in d.vjp.items() if not isinstance(f, str)]  # fmt: skip
        if reasons:
            return "; ".join([*(["tensor code for " + "; ".join(keys)] if keys else []), *reasons])
        return f"tensor code for {'; '.join(keys)}"
    return "that of its parts" if d.function_body is not None else "none stated: backward raises"


def _tangent(d: Any) -> str:
    if d.linear:
        return f"linear in {', '.join(d.linear)}: the op itself on the tangent"
    if d.kind == "pointwise" and d.differentiable:
        return "one fused pointwise op"
    if d.jvp is not None:
        return "tensor code"
    return "that of its parts" if d.function_body is not None else "none"


def _batching(d: Any) -> str:
    if d.batch == "pointwise":
        return "pointwise: batch dimensions aligned and broadcast"
    if d.batch == "dims":
        return "batch dimension in front, dimension arguments counted from the end"
    if callable(d.batch):
        return "a rule of its own"
    return "that of its parts" if d.function_body is not None else "a loop over the batch"


def _kernels(op: _C.Op) -> Iterator[str]:
    if op.kind == "composite":
        yield "  kernels      those of its parts"
        return
    if op.kind == "view":
        yield "  kernels      none needed: a view on every device"
        return
    yield "  kernels"
    for device, provider, state in _devices():
        told = state or _kernels_on(op, device)
        yield f"    {device:<12} {told}{f'  ({provider})' if provider else ''}"
    for (device, layout), names in op.kernels().items():
        if layout != "strided":
            yield f"    {device}/{layout:<{max(1, 11 - len(device))}} {' '.join(names)}"


def _devices() -> Iterator[tuple[str, str, str]]:
    """Yield each device, what brings it, and why it cannot be asked; opens those that work."""
    from tangrad.devices import registry

    for name in registry.device_names():
        if name == "meta":
            continue
        provider, state = registry.availability(name)
        if state == "available":
            try:
                _C.device(name)
                state = ""
            except Exception as error:  # a driver's own, told where it was asked for
                state = f"cannot be opened: {error}"
        yield name, provider if provider != "tangrad" else "", state and f"not asked: {state}"


def _kernels_on(op: _C.Op, device: str) -> str:
    """Tell by what an op is computed on a device."""
    made = _made_when_asked(op, device)
    names = [*op.kernels().get((device, "strided"), ()), *made]
    if op.kind == "pointwise":  # a driver makes kernels of an expression for whatever it is asked
        names = [name for name in names if _promotion(op.definition, name)]
    if names:
        return " ".join(dict.fromkeys(names))
    definition = op.definition
    if definition.loops and not _C.device_types()[device].driver.host:
        return "none: contiguous bytes by the driver's copy_within, all else on the host"
    if definition.native is not None:
        return "the core itself, by the driver's copies"
    if definition.decompose is not None:
        return "none: decomposed into ops"
    if op.kind == "kernel" and definition.reference is None:
        return "none"
    if device == "reference":
        return "NumPy, from this definition, for every dtype above"
    return "none: copied to the host, computed there by NumPy"


def _made_when_asked(op: _C.Op, device: str) -> list[str]:
    """Return the dtypes for which a driver makes a kernel; it may enter them into the table."""
    build = getattr(_C.device_types()[device].driver, "kernel_for", None)
    if device == "reference" or build is None:
        return []
    known = set(op.kernels().get((device, "strided"), ()))
    found = []
    for dtype in _C.registered_dtypes():
        if dtype.name in known:
            continue
        try:
            made = build(op, dtype)
        except Exception:  # what no program could be made for has no kernel
            made = None
        if made is not None:
            found.append(dtype.name)
    return found
