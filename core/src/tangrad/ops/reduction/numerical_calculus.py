"""Derivatives and integrals of functions that are given by samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, overload, pointwise
from tangrad.ops.definition.signature import Dim, Scalar, Tensor

# Integrals by the trapezoidal rule


def _refuse_bool(name: str, *tensors: Any) -> None:
    if any(t.dtype is tangrad.bool for t in tensors):
        which = "`y`" if len(tensors) == 1 else "`x` or `y`"
        raise RuntimeError(f"{name}: received a bool input for {which}, but bool is not supported")


def _refuse_scalar(name: str, y: Any) -> None:
    if y.ndim == 0:
        raise IndexError(f"{name}: y has no dimensions, so there is none to integrate along")


def _real_step(name: str, dx: Any) -> Any:
    if isinstance(dx, (bool, complex)):
        raise RuntimeError(f"{name}: dx must be a real number, got {dx!r}")
    return dx


def _gaps(name: str, y: Any, x: Any, dim: int) -> Any:
    """Return the distances of the sample points, in a shape that broadcasts with y's."""
    if x.ndim == 0:
        raise RuntimeError(f"{name}: x has no dimensions; give one value for each sample point")
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(
                f"{name}: There must be one `x` value for each sample point, got {x.shape[0]} for "
                f"{y.shape[dim]} samples along dimension {dim} of {list(y.shape)}"
            )
        x = x.reshape((-1,) + (1,) * (y.ndim - 1 - dim))
    x = x.reshape((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    length = x.shape[dim]
    return x.narrow(dim, 1, length - 1) - x.narrow(dim, 0, length - 1)


def _pairs(y: Any, dim: int) -> tuple[Any, Any]:
    """Return neighbours."""
    length = y.shape[dim]
    return y.narrow(dim, 1, length - 1), y.narrow(dim, 0, length - 1)


areas = pointwise(
    "_areas(Tensor self, Tensor other, Tensor width) -> Tensor",
    "width * (self + other)",
    dtypes="integral floating complex",
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(3, 4), s.tensor(3, 4), s.tensor(4))] if s.dtype != "bool" else [],
    oracle=lambda torch, x, y, width: width * (x + y),
    doc="Compute twice the areas of trapezoids.",
)


@composite(
    dtypes="integral floating complex",
    function=False,
    method=False,
    oracle="trapezoid",
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4)),
        s(s.tensor(3, 4), s.tensor(3), dim=0),
        s(s.tensor(2, 3, 4, strided=True), s.tensor(3, 4), dim=-2),
        s(s.tensor(2, 3), s.tensor(2, 3), dim=0),
        s(s.tensor(0, 3), s.tensor(0), dim=0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(2)), RuntimeError, "one `x` value"),
        (s(s.tensor(), s.tensor(1)), IndexError, "no dimensions"),
        (s(s.tensor(3), s.mask(3)), RuntimeError, "bool"),
    ],
)
def trapezoid_points(y: Tensor, x: Tensor, *, dim: Dim = -1) -> Tensor:
    """Integrate samples y at points x along a dimension."""
    _refuse_scalar("trapezoid", y)
    if y.shape[dim] == 0:
        return y.new_zeros(y.shape[:dim] + y.shape[dim + 1 :])
    _refuse_bool("trapezoid", x, y)
    return areas(*_pairs(y, dim), _gaps("trapezoid", y, x, dim)).sum(dim) / 2


@composite(
    dtypes="integral floating complex",
    function=False,
    method=False,
    oracle="trapezoid",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), dx=0.5, dim=0),
        s(s.tensor(2, 3, strided=True), dx=2),
        s(s.tensor(1)),
        s(s.tensor(0, 3), dim=0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), dx=1j), RuntimeError, "real number"),
        (s(s.tensor(3), dim=1), IndexError, "out of range"),
        (s(s.mask(3)), RuntimeError, "bool"),
    ],
)
def trapezoid_step(y: Tensor, *, dx: Scalar = 1, dim: Dim = -1) -> Tensor:
    """Integrate samples y at equal distances dx along a dimension."""
    _refuse_scalar("trapezoid", y)
    if y.shape[dim] == 0:
        return y.new_zeros(y.shape[:dim] + y.shape[dim + 1 :])
    _refuse_bool("trapezoid", y)
    dx = _real_step("trapezoid", dx)
    length = y.shape[dim]
    ends = (y.select(dim, 0) + y.select(dim, length - 1)) * 0.5
    return (y.sum(dim) - ends) * dx


trapezoid = overload(
    "trapezoid",
    "trapezoid_points",
    "trapezoid_step",
    alias=("trapz",),
    method=False,
    samples=lambda s: [s(s.tensor(3, 4), s.tensor(4)), s(s.tensor(3, 4), dx=2)],
    doc="Integrate samples by the trapezoidal rule, at points `x` or at equal distances `dx`.",
)


@composite(
    dtypes="integral floating complex",
    function=False,
    method=False,
    oracle="cumulative_trapezoid",
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4)),
        s(s.tensor(3, 4), s.tensor(3), dim=0),
        s(s.tensor(2, 3, 4, strided=True), s.tensor(3, 4), dim=-2),
        s(s.tensor(2, 3), s.tensor(2, 3), dim=0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(2)), RuntimeError, "one `x` value"),
        (s(s.tensor(), s.tensor(1)), IndexError, "no dimensions"),
        (s(s.tensor(3), s.mask(3)), RuntimeError, "bool"),
    ],
)
def cumulative_trapezoid_points(y: Tensor, x: Tensor, *, dim: Dim = -1) -> Tensor:
    """Integrate samples y at points x up to each one along a dimension."""
    _refuse_scalar("cumulative_trapezoid", y)
    _refuse_bool("cumulative_trapezoid", x, y)
    if y.shape[dim] == 0:
        return y.cumsum(dim) / 2
    found = areas(*_pairs(y, dim), _gaps("cumulative_trapezoid", y, x, dim))
    return found.cumsum(dim) / 2


@composite(
    dtypes="integral floating complex",
    function=False,
    method=False,
    oracle="cumulative_trapezoid",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), dx=0.5, dim=0),
        s(s.tensor(2, 3, strided=True), dx=2),
        s(s.tensor(1)),
        s(s.tensor(0, 3), dim=0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), dx=1j), RuntimeError, "real number"),
        (s(s.tensor(3), dim=1), IndexError, "out of range"),
        (s(s.mask(3)), RuntimeError, "bool"),
    ],
)
def cumulative_trapezoid_step(y: Tensor, *, dx: Scalar = 1, dim: Dim = -1) -> Tensor:
    """Integrate samples y at equal distances dx up to each one along a dimension."""
    _refuse_scalar("cumulative_trapezoid", y)
    _refuse_bool("cumulative_trapezoid", y)
    if y.shape[dim] == 0:
        return y.cumsum(dim) / 2
    first, second = _pairs(y, dim)
    return (first + second).cumsum(dim) * (_real_step("cumulative_trapezoid", dx) / 2)


cumulative_trapezoid = overload(
    "cumulative_trapezoid",
    "cumulative_trapezoid_points",
    "cumulative_trapezoid_step",
    method=False,
    samples=lambda s: [s(s.tensor(3, 4), s.tensor(4)), s(s.tensor(3, 4), dx=2)],
    doc="Integrate samples by the trapezoidal rule up to each of them.",
)


# Derivatives by differences


def _dimensions(self: Any, dim: Any) -> list[int]:
    chosen = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    found: list[int] = []
    for given in chosen:
        if not -self.ndim <= given < self.ndim:
            raise IndexError(
                f"gradient: Dimension out of range (expected to be in range of [{-self.ndim}, "
                f"{self.ndim - 1}], but got {given})"
            )
        if given % self.ndim in found:
            raise RuntimeError(
                f"gradient: dim {given % self.ndim} appears multiple times in the list of dims"
            )
        found.append(given % self.ndim)
    return found


def _spacings(self: Any, spacing: Any, dim: Any, count: int) -> list[Any]:
    if isinstance(spacing, tangrad.Tensor):
        raise TypeError(
            "gradient(): argument 'spacing' must be a number, or a list of numbers or of tensors, "
            "not a Tensor; give [spacing]"
        )
    if spacing is None or not isinstance(spacing, (list, tuple)):
        return [1 if spacing is None else spacing] * count
    kinds = {isinstance(each, tangrad.Tensor) for each in spacing}
    if len(kinds) > 1:
        raise TypeError("gradient(): argument 'spacing' mixes tensors and numbers")
    if len(spacing) != count:
        against = (
            f"the number of dimensions, {self.ndim}, since dim is not given"
            if dim is None
            else f"the number of dims, {count}"
        )
        raise RuntimeError(
            "gradient: expected spacing to be unspecified, a scalar, or a list as long as "
            f"{against}; it has length {len(spacing)}"
        )
    return list(spacing)


def _check_gradient(self: Any, dims: Sequence[int], edge_order: int) -> None:
    if edge_order not in (1, 2):
        raise RuntimeError(
            f"gradient only supports edge_order=1 and edge_order=2, got {edge_order}"
        )
    if self.dtype is tangrad.uint8:
        raise RuntimeError("gradient does not support uint8 input: its differences wrap around")
    for dim in dims:
        if self.shape[dim] < edge_order + 1:
            raise RuntimeError(
                "gradient expected each dimension size to be at least edge_order+1, got "
                f"{list(self.shape)} with edge_order={edge_order}"
            )


def _uniform_differences(f: Any, dim: int, step: Any, edge_order: int) -> Any:
    length = f.shape[dim]

    def at(place: int) -> Any:
        return f.narrow(dim, place % length, 1)

    if edge_order == 1:
        first, last = at(1) - at(0), at(-1) - at(-2)
    else:
        first = at(0) * -1.5 + at(1) * 2 + at(2) * -0.5
        last = at(-1) * 1.5 + at(-2) * -2 + at(-3) * 0.5
    middle = (f.narrow(dim, 2, length - 2) - f.narrow(dim, 0, length - 2)) / 2
    return tangrad.cat([first / 1, middle, last / 1], dim) / step


def _differences_at(f: Any, dim: int, points: Any, edge_order: int) -> Any:
    """Differentiate the parabola through each three neighbours, in the wider dtype of the two."""
    length = f.shape[dim]
    if points.ndim != 1 or points.shape[0] != length:
        raise RuntimeError(
            f"gradient: the coordinates along dimension {dim} must be a tensor of shape "
            f"[{length}], got {list(points.shape)}"
        )
    f = f.to(tangrad.promote_types(f.dtype, points.dtype))  # before differences are rounded
    gaps = (points.narrow(0, 1, length - 1) - points.narrow(0, 0, length - 1)).reshape(
        (-1,) + (1,) * (f.ndim - 1 - dim)
    )
    slopes = (f.narrow(dim, 1, length - 1) - f.narrow(dim, 0, length - 1)) / gaps
    along = dim - f.ndim
    before, after = gaps.narrow(along, 0, length - 2), gaps.narrow(along, 1, length - 2)
    left, right = slopes.narrow(dim, 0, length - 2), slopes.narrow(dim, 1, length - 2)
    middle = (left * after + right * before) / (before + after)
    first, last = slopes.narrow(dim, 0, 1), slopes.narrow(dim, length - 2, 1)
    if edge_order == 2:
        first = first * 2 - middle.narrow(dim, 0, 1)
        last = last * 2 - middle.narrow(dim, length - 3, 1)
    return tangrad.cat([first, middle, last], dim)


@composite(
    method=False,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), dim=1, edge_order=2),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1), spacing=2.0),
        s(s.tensor(3, 4), spacing=(0.5, 2.0)),
        s(s.tensor(4), spacing=(s.values([0, 1, 3, 4]),)),
        s(s.tensor(2, 4), spacing=(s.values([0, 1, 3, 4]),), dim=1, edge_order=2),
        s(s.tensor()),
    ],
    errors=lambda s: [
        (s(s.tensor(1)), RuntimeError, "at least edge_order"),
        (s(s.tensor(4), edge_order=3), RuntimeError, "edge_order=1 and edge_order=2"),
        (s(s.tensor(4), dim=1), IndexError, "out of range"),
        (s(s.tensor(4, 4), dim=(0, 0)), RuntimeError, "multiple times"),
        (s(s.tensor(4, 4), spacing=(1.0,)), RuntimeError, "length 1"),
        (s(s.tensor(4), spacing=s.tensor(4)), TypeError, "spacing"),
        (s(s.integers(0, 4, 4, dtype="uint8")), RuntimeError, "uint8"),
    ],
)
def gradient(
    self: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> Sequence[Tensor]:
    """Estimate the derivatives of sampled values along dimensions by central differences.

    Args:
        spacing: the distance of neighbouring samples; or one for each dimension; or a tensor of
            coordinates for each.
        dim: the dimensions. Default: all.
        edge_order: order of the differences at both ends, 1 or 2.

    Returns:
        A tuple with a tensor of the input's shape for each dimension.
    """
    dims = _dimensions(self, dim)
    spacings = _spacings(self, spacing, dim, len(dims))
    _check_gradient(self, dims, edge_order)
    return tuple(
        _differences_at(self, each, step, edge_order)
        if isinstance(step, tangrad.Tensor)
        else _uniform_differences(self, each, step, edge_order)
        for each, step in zip(dims, spacings, strict=True)
    )
