"""Define the vectors of evenly spaced numbers: arange, range, linspace, logspace."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.creation.empty_full import (
    allocate,
    dtype_of_number,
    finished,
    require_strided,
    written,
)
from tangrad.ops.definition.define import at_all_sizes, composite, op, overload
from tangrad.ops.definition.signature import Device, DType, Operand, Scalar, Tensor, TensorLayout
from tangrad.tensor.construct import tensor
from tangrad.tensor.ranges import require_fit

_sequence = op(
    "_sequence(Tensor! self, Scalar start, Scalar step) -> Tensor",
    reference=lambda np, self, start, step: _sequence_reference(np, self, start, step),
    vjp="none: the values written do not depend on those before",
    batch=None,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(4), 0, 1), s(s.tensor(3), 2, 3), s(s.tensor(0), 0, 1)],
    oracle=lambda torch, x, start, step: x.copy_(
        torch.arange(x.numel(), dtype=torch.float64).mul(step).add(start).to(x.dtype)
    ),
    doc="Overwrite a vector by start + i * step, computed in float64 or in integers.",
)


def _sequence_reference(np: Any, self: Any, start: Any, step: Any) -> Any:
    positions = np.arange(self.shape[0])
    exact = self.dtype.kind in "iub" and isinstance(start, int) and isinstance(step, int)
    kind = np.int64 if exact else np.float64
    return (positions.astype(kind) * kind(step) + kind(start)).astype(self.dtype)


_spaced = op(
    "_spaced(Tensor! self, float start, float end) -> Tensor",
    reference=lambda np, self, start, end: _spaced_reference(np, self, start, end),
    dtypes="float32 float64",
    vjp="none: the values written do not depend on those before",
    batch=None,
    function=False,
    method=False,
    samples=lambda s: (
        [s(s.tensor(n), 0.5, 2.0) for n in (0, 1, 2, 5)]
        if s.dtype in ("float32", "float64")
        else []
    ),
    oracle=lambda torch, x, start, end: x.copy_(
        torch.linspace(start, end, x.numel(), dtype=x.dtype)
    ),
    doc="Overwrite a vector by evenly spaced numbers, from both ends, so that both are exact.",
)


def _spaced_reference(np: Any, self: Any, start: Any, end: Any) -> Any:
    from tangrad.random.multiply_add import multiply_add

    steps, kind = self.shape[0], self.dtype.type
    start, end = kind(start), kind(end)
    step = (end - start) / kind(max(1, steps - 1))
    place = np.arange(steps)
    from_start = place < max(steps // 2, steps == 1)
    return np.where(
        from_start,
        multiply_add(place.astype(kind), step, start),
        multiply_add((steps - 1 - place).astype(kind), -step, end),
    )


def _whole(start: Any, end: Any, step: Any) -> bool:
    return isinstance(start, int) and isinstance(end, int) and isinstance(step, int)


def _check_range(start: Any, end: Any, step: Any, whole: bool) -> None:
    if not whole and any(isinstance(x, complex) for x in (start, end, step)):
        raise RuntimeError(f"unsupported range of complex numbers: {start} -> {end} by {step}")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not whole and not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError(
            "upper bound and lower bound inconsistent with step sign: "
            f"start {start}, end {end}, step {step}"
        )


def _check_places(kind: Any, *numbers: Any) -> None:
    """Check that what a range is computed in has a place for its numbers.

    Its elements wrap around, as in PyTorch.
    """
    for number in numbers:
        if not kind.is_floating_point:
            require_fit(number, tangrad.int64, "arange")
        elif kind.itemsize == 2:
            require_fit(number, tangrad.float32, "arange")


@at_all_sizes
def _range_length(start: Any, end: Any, step: Any, whole: bool) -> int:
    if whole:
        length = max(0, -((start - end) // step))
    else:
        length = math.ceil((end - start) / step)
    if length >= 2**63:
        raise RuntimeError(f"invalid size, possible overflow: {length} elements")
    return length


def _number(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


def _vector(length: int, dtype: Any, device: Any, out: Any) -> Any:
    if out is None:
        return allocate((length,), dtype, device, None)
    # As PyTorch: an out= of so many elements keeps its shape, and is filled row by row.
    out = written(out, tuple(out.shape) if out.numel() == length else (length,), dtype, device)
    return out if _is_row(out) else allocate((length,), out.dtype, out.device, None)


def _is_row(out: Any) -> bool:
    """Return whether each element of an out= has a place of its own in a row."""
    return out.ndim == 1 and (out.stride(0) != 0 or len(out) < 2)


def _given(vector: Any, requires_grad: bool, out: Any) -> Any:
    if out is None:
        return finished(vector, requires_grad)
    return out if _is_row(out) else out.copy_(vector.reshape(out.shape))


_FAR = 2**62
_WIDE = (tangrad.float32, tangrad.float64)


def _arange(
    start: Any,
    end: Any,
    step: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    out: Any,
) -> Any:
    require_strided(layout)
    usual = type(start) is type(end) is type(step) is int and dtype is out is None
    if usual and step == 1 and -_FAR < start <= end < _FAR:
        # Nothing is rounded, and nothing overflows.
        vector = tangrad.empty((end - start,), dtype=tangrad.int64, device=device)
        return _given(_sequence(vector, start, 1), requires_grad, None)
    start, end, step = _number(start), _number(end), _number(step)
    whole = _whole(start, end, step)
    _check_range(start, end, step, whole)
    if dtype is None and out is None:
        dtype = tangrad.int64 if whole else _C.get_default_dtype()
    kind = dtype if out is None else out.dtype
    if kind.is_complex or kind == tangrad.bool:
        raise NotImplementedError(f"arange: not implemented for {kind}")
    _check_places(kind, start, end, step)
    length = _range_length(start, end, step, whole)
    if not kind.is_floating_point:
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError(f"step must be nonzero, but is so in {kind}")
        if not whole and kind == tangrad.int64:
            length = _range_length(start, end, step, True)
    vector = _vector(length, dtype, device, out)
    return _given(_sequence(vector, start, step), requires_grad, out)


@composite(
    function=False,
    method=False,
    samples=lambda s: [s(1, 4), s(1, 7, 2), s(5, 0, -2), s(0.0, 1.0, 0.25), s(2, 2)],
    oracle="arange",
    errors=lambda s: [
        (s(0, 3, 0), RuntimeError, "step must be nonzero"),
        (s(0, 3, -1), RuntimeError, "inconsistent with step sign"),
        (s(0, float("inf")), RuntimeError, "unsupported range"),
    ],
)
def arange_step(
    start: Scalar,
    end: Scalar,
    step: Scalar = 1,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of start, start + step, ... below end.

    Integers make int64, others the default dtype.
    """
    return _arange(start, end, step, dtype, layout, device, requires_grad, out)


@composite(
    function=False,
    method=False,
    samples=lambda s: [s(4), s(0), s(2.5)],
    oracle="arange",
    errors=lambda s: [(s(-1), RuntimeError, "inconsistent with step sign")],
)
def arange_end(
    end: Scalar,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of 0, 1, ... below end."""
    return _arange(0, end, 1, dtype, layout, device, requires_grad, out)


arange = overload("arange", "arange_end", "arange_step", method=False)


@composite(
    "range",
    method=False,
    samples=lambda s: [s(1, 4), s(1, 6, 2), s(5, 0, -2), s(0.0, 1.0, 0.25), s(2, 2)],
    errors=lambda s: [
        (s(0, 3, 0), RuntimeError, "step must be nonzero"),
        (s(0, 3, -1), RuntimeError, "inconsistent with step sign"),
        (s(0, float("inf")), RuntimeError, "unsupported range"),
    ],
)
def range_(
    start: Scalar,
    end: Scalar,
    step: Scalar = 1,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of start, start + step, ... up to end, which is included; use `arange`.

    The dtype is the default one, of integers, too.
    """
    require_strided(layout)
    start, end, step = _number(start), _number(end), _number(step)
    _check_range(start, end, step, _whole(start, end, step))
    kind = dtype if out is None else out.dtype
    if kind is not None and (kind.is_complex or kind == tangrad.bool):
        raise NotImplementedError(f"range: not implemented for {kind}")
    if kind is not None:
        _check_places(kind, start, end, step)
    vector = _vector(math.floor((end - start) / step) + 1, dtype, device, out)
    return _given(_sequence(vector, start, step), requires_grad, out)


def _spaced_numbers(start: Any, end: Any, steps: int, length: Any = None) -> list[Any]:
    """List evenly spaced numbers, from both ends towards the middle, so that both are exact.

    Args:
        length: what is divided by the steps. Default: end - start.
    """
    if steps == 1:
        return [start]
    step = (end - start if length is None else length) / (steps - 1)
    half = steps // 2
    return [start + step * i if i < half else end - step * (steps - 1 - i) for i in range(steps)]


def _from_numbers(numbers: list[Any], dtype: Any, device: Any) -> Any:
    whole = not (dtype.is_floating_point or dtype.is_complex)
    listed = [math.trunc(x) for x in numbers] if whole else numbers
    return tensor(listed, dtype=dtype, device=device).reshape((len(numbers),))


def _powers(base: float, exponents: list[Any]) -> list[Any]:
    """Raise a number as tensors are: to infinity beyond the range, to NaN without a root."""
    real = not any(isinstance(x, complex) for x in exponents)
    try:
        return [math.pow(base, x) if real else base**x for x in exponents]
    except (ArithmeticError, ValueError):
        wide = tangrad.float64 if real else tangrad.complex128
        return (base ** tensor(exponents, dtype=wide, device="cpu")).tolist()


def _spacing_dtype(name: str, dtype: Any, start: Any, end: Any) -> Any:
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    if dtype is None:
        dtype = dtype_of_number(1j) if is_complex else _C.get_default_dtype()
    elif is_complex and not dtype.is_complex:
        raise RuntimeError(
            f"torch.{name}(): inferred dtype complex can't be safely cast to {dtype} "
            f"({start} to {end}); ask for a complex dtype"
        )
    for number in (start, end):
        require_fit(number, dtype, name)
    return dtype


def _bound(name: str, x: Any) -> Any:
    """Give the number in a bound, which may be a zero-dimensional tensor."""
    if isinstance(x, tangrad.Tensor) and x.ndim:
        raise RuntimeError(
            f"{name} only supports 0-dimensional start and end tensors, but got a tensor of shape "
            f"{list(x.shape)}"
        )
    return _number(x)


def _check_steps(steps: int) -> None:
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got steps={steps}")


def _seen_by_level(*bounds: Any) -> bool:
    """Tell whether a bound is a tensor of a transform, whose value cannot be told."""
    return any(isinstance(x, tangrad.Tensor) and _C.level_of(x) is not None for x in bounds)


def _spaced_by_tensors(name: str, start: Any, end: Any, steps: int, dtype: Any, device: Any) -> Any:
    """Make evenly spaced numbers from bounds of which one is a tensor, and stays one."""
    known = next(x for x in (start, end) if isinstance(x, tangrad.Tensor))
    bounds = [x if isinstance(x, tangrad.Tensor) else tensor(x) for x in (start, end)]
    for x in bounds:
        if x.ndim:
            _bound(name, x)
    is_complex = any(x.dtype.is_complex for x in bounds)
    dtype = dtype or (dtype_of_number(1j) if is_complex else _C.get_default_dtype())
    device = known.device if device is None else device
    compute = dtype if dtype.is_floating_point or dtype.is_complex else tangrad.float64
    first, last = (x.to(device=device, dtype=dtype).to(compute) for x in bounds)
    place = tangrad.arange(steps, device=device)
    step = (last - first) / max(steps - 1, 1)
    from_end = last - (steps - 1 - place) * step
    spaced = tangrad.where(place < max(steps // 2, steps == 1), place * step + first, from_end)
    return spaced.to(dtype)


def _is_plain(*numbers: Any) -> bool:
    """Tell whether numbers are real and finite, so that a kernel can write the sequence."""
    return all(not isinstance(x, complex) and math.isfinite(x) for x in numbers)


def _write_spaced(vector: Any, start: Any, end: Any) -> Any:
    """Overwrite a vector by evenly spaced numbers, rounded at the places where PyTorch rounds."""
    dtype, steps = vector.dtype, vector.numel()
    if dtype in _WIDE:
        return _spaced(vector, float(start), float(end))
    if dtype.is_complex:
        for part, numbers in (
            (vector.real, (start.real, end.real)),
            (vector.imag, (start.imag, end.imag)),
        ):
            _spaced(part, *map(float, numbers))
        return vector
    if not dtype.is_floating_point:
        numbers = allocate((steps,), tangrad.float64, vector.device, None)
        return vector.copy_(_spaced(numbers, float(start), float(end)))
    # In half precision every step of the computation is rounded.
    numbers = tensor([start, end, max(1, steps - 1)], dtype=dtype, device=vector.device)
    first, last, count = numbers.split(1)
    step = (last - first) / count
    place = tangrad.arange(steps, device=vector.device)
    from_start = place.to(dtype) * step + first
    from_end = last - (steps - 1 - place).to(dtype) * step
    return vector.copy_(tangrad.where(place < max(steps // 2, steps == 1), from_start, from_end))


@composite(
    method=False,
    samples=lambda s: [
        s(0, 1, 5),
        s(3, -1, 4),
        s(2, 3, 1),
        s(0, 1, 0),
        s(0, 10, 4, dtype=s.as_dtype(s.dtype)),
        s(-2.5, 7, 100, dtype=s.as_dtype("float64")),
        s(3.7, 50.2, 7, dtype=s.as_dtype("int64")),
    ],
    errors=lambda s: [
        (s(0, 1, -1), RuntimeError, "steps must be non-negative"),
        (s(s.tensor(2), 1, 3), RuntimeError, "0-dimensional"),
    ],
)
def linspace(
    start: Operand,
    end: Operand,
    steps: int,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of evenly spaced numbers from start to end, both included."""
    kind = _C.get_default_dtype() if dtype is None else dtype
    plain = type(start) in (int, float) and type(end) in (int, float) and layout is out is None
    if plain and steps >= 0 and kind in _WIDE and max(abs(start), abs(end)) < _FAR:
        vector = allocate((steps,), kind, device, None)
        vector = vector if vector.is_meta else _spaced(vector, float(start), float(end))
        return finished(vector, requires_grad)
    require_strided(layout)
    _check_steps(steps)
    if _seen_by_level(start, end) and out is None:
        spaced = _spaced_by_tensors("linspace", start, end, steps, dtype, device)
        return _C.requiring_grad(spaced) if requires_grad else spaced
    start, end = _bound("linspace", start), _bound("linspace", end)
    dtype = _spacing_dtype("linspace", dtype if out is None else dtype or out.dtype, start, end)
    vector = _vector(steps, dtype, device, out)
    if not (dtype.is_floating_point or dtype.is_complex):
        start, end = math.trunc(start), math.trunc(end)  # before the steps are made, as PyTorch
    parts = (start.real, start.imag, end.real, end.imag) if dtype.is_complex else (start, end)
    if _is_plain(*parts) and not vector.is_meta:
        _write_spaced(vector, start, end)
    else:
        vector.copy_(_from_numbers(_spaced_numbers(start, end, steps), dtype, vector.device))
    return _given(vector, requires_grad, out)


@composite(
    method=False,
    samples=lambda s: [s(0, 2, 5), s(-1, 1, 3, 2.0), s(1, 2, 1), s(0, 1, 0)],
    errors=lambda s: [(s(0, 1, -1), RuntimeError, "steps must be non-negative")],
)
def logspace(
    start: Operand,
    end: Operand,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of the powers of base whose exponents are evenly spaced."""
    require_strided(layout)
    _check_steps(steps)
    if _seen_by_level(start, end) and out is None:
        powers = base ** _spaced_by_tensors("logspace", start, end, steps, dtype, device)
        return _C.requiring_grad(powers) if requires_grad else powers
    start, end = _bound("logspace", start), _bound("logspace", end)
    dtype = _spacing_dtype("logspace", dtype if out is None else dtype or out.dtype, start, end)
    if not (dtype.is_floating_point or dtype.is_complex):
        start, end = int(start), int(end)  # as PyTorch: the ends are of the result's dtype
    length = None
    if dtype.is_floating_point and steps > 1 and _is_plain(start, end):
        ends = tensor([start, end], dtype=dtype, device="cpu")
        (start, end), length = ends.tolist(), (ends[1] - ends[0]).item()
        if base > 0 and math.isfinite(length) and dtype is not tangrad.float64:
            # A power in double precision is rounded to the same number as the C library's.
            exponents = allocate((steps,), tangrad.float64, ends.device, None)
            _spaced(exponents, start, start + length)
            exponents.narrow(0, steps // 2, steps - steps // 2).add_(end - (start + length))
            vector = _vector(steps, dtype, device, out)
            vector.copy_(base**exponents)
            return _given(vector, requires_grad, out)
    powers = _powers(base, _spaced_numbers(start, end, steps, length))
    if not (dtype.is_floating_point or dtype.is_complex):
        for number in powers:
            require_fit(number, dtype, "logspace")
    vector = _vector(steps, dtype, device, out)
    vector.copy_(_from_numbers(powers, dtype, vector.device))
    return _given(vector, requires_grad, out)
