"""Define the statistics of order: median, mode, quantiles; and the mean that leaves NaN out."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Dim, Dims, DType, Operand, Tensor
from tangrad.ops.views.geometry import front

# Medians: of an even number of elements the lower one. Among equal ones, the index is that which
# a stable sort puts in the middle.


def _require_order(name: str, dtype: Any) -> None:
    if dtype.is_complex or dtype == tangrad.bool:
        raise NotImplementedError(f"{name}: not implemented for {dtype}")


def _require_elements(name: str, self: Any, dim: int) -> None:
    if self.ndim and self.shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def _median_position(self: Any, dim: int, skip_nan: bool) -> Any:
    """Give the place of the median among sorted elements: NaN are the last ones."""
    middle = (self.shape[dim] - 1) // 2
    if not self.dtype.is_floating_point:
        return middle
    numbers = (self == self).sum(dim, keepdim=True)
    if skip_nan:
        return ((numbers - 1).clamp(min=0)).div(2, rounding_mode="floor")
    return tangrad.where(numbers < self.shape[dim], numbers, middle)


def _median_dim(self: Any, dim: int, keepdim: bool, skip_nan: bool) -> Any:
    name = "nanmedian" if skip_nan else "median"
    _require_order(name, self.dtype)
    _require_elements(name, self, dim)
    if self.ndim == 0:
        return self.clone(), tangrad.zeros((), dtype=tangrad.int64, device=self.device)
    values, indices = self.sort(dim=dim, stable=True)
    position = _median_position(self.detach(), dim, skip_nan)
    if isinstance(position, int):
        values, indices = values.narrow(dim, position, 1), indices.narrow(dim, position, 1)
    else:
        values, indices = values.gather(dim, position), indices.gather(dim, position)
    if keepdim:
        return values.clone(), indices.clone()
    return values.squeeze(dim).clone(), indices.squeeze(dim).clone()


def _median_samples(s: Any) -> list[Any]:
    if s.is_bool or s.is_complex:
        return []
    return [
        s(s.permutation(3, 4), 1),
        s(s.permutation(2, 3, 4), -2, True),
        s(s.tensor(3, 5, strided=True), dim=0),
        s(s.tensor(), 0),
        s(s.tensor(0, 2), 1),
        *([s(s.values([[float("nan"), 1.0, 2.0], [3.0, 2.0, 1.0]]), 1)] if s.is_floating else []),
    ]


def _median_errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(2, 0), 1), IndexError, "non-zero size"),
        (s(s.tensor(3, 4), 2), IndexError, "Dimension out of range"),
        (s(s.tensor(2, dtype="complex64"), 0), NotImplementedError, "not implemented"),
    ]


@composite(
    result_names=("values", "indices"),
    out=True,
    function=False,
    method=False,
    samples=_median_samples,
    errors=_median_errors,
    oracle="median",
)
def median_dim(self: Tensor, dim: Dim, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Find the median along a dimension, the lower of two, and its index; NaN prevails."""
    return _median_dim(self, dim, keepdim, False)


@composite(
    result_names=("values", "indices"),
    out=True,
    function=False,
    method=False,
    samples=_median_samples,
    errors=_median_errors,
    oracle="nanmedian",
)
def nanmedian_dim(self: Tensor, dim: Dim, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Find the median along a dimension of what is not NaN, the lower of two, and its index."""
    return _median_dim(self, dim, keepdim, True)


def _median_of_none(self: Any) -> Any:
    """Give what PyTorch does: NaN, or the least integer."""
    if self.dtype.is_floating_point:
        return self.new_full((), float("nan"))
    return self.new_full((), tangrad.iinfo(self.dtype).min)


def _median_of_all(self: Any, skip_nan: bool) -> Any:
    count = self.numel()
    if count == 0:
        return _median_of_none(self)
    if skip_nan:
        return _median_dim(self.reshape((-1,)), 0, False, True)[0]
    values = self.reshape((-1,)).sort(stable=True).values
    middle, last = values.select(0, (count - 1) // 2), values.select(0, count - 1)
    # NaN come last.
    return tangrad.where(last == last, middle, last)


def _is_value(self: Any, value: Any) -> Any:
    return (self == value) | (self != self) & (value != value)


def _evenly(g: Any, self: Any, result: Any) -> Any:
    """Give the elements that equal the median equal parts of its gradient."""
    chosen = _is_value(self, result)
    return chosen.to(g.dtype) * (g / chosen.sum())


def _evenly_tangent(self: Any, self_t: Any, result: Any) -> Any:
    chosen = _is_value(self, result)
    return self_t.masked_fill(~chosen, 0).sum() / chosen.sum()


def _batched_median(size: int, x: Any, median_of_rows: Any) -> Any:
    if x.numel() == 0:
        return _median_of_none(x).expand((size,)), 0
    return median_of_rows(x.reshape((size, -1)), 1)[0], 0


def _median_all_samples(s: Any) -> list[Any]:
    if s.is_bool or s.is_complex:
        return []
    return [
        s(s.tensor(3, 4)),
        s(s.tensor(5, strided=True)),
        s(s.tensor()),
        s(s.values([2, 1, 2, 2])),
        *([s(s.tensor(0)), s(s.values([float("nan"), 1.0, 3.0]))] if s.is_floating else []),
    ]


median_all = op(
    "median_all(Tensor self) -> Tensor",
    shape=lambda: (),
    check=lambda self: _require_order("median", self.dtype),
    decompose=lambda self: _median_of_all(self, False),
    vjp={"self": _evenly},
    jvp=_evenly_tangent,
    batch=lambda size, dims, self: _batched_median(size, front(self, dims[0]), median_dim),
    out=False,
    function=False,
    method=False,
    samples=_median_all_samples,
    errors=lambda s: [(s(s.tensor(2, dtype="bool")), NotImplementedError, "not implemented")],
    oracle="median",
    doc="Find the median of all elements, the lower of two; NaN prevails.",
)

nanmedian_all = op(
    "nanmedian_all(Tensor self) -> Tensor",
    shape=lambda: (),
    check=lambda self: _require_order("nanmedian", self.dtype),
    decompose=lambda self: _median_of_all(self, True),
    vjp={"self": _evenly},
    jvp=_evenly_tangent,
    batch=lambda size, dims, self: _batched_median(size, front(self, dims[0]), nanmedian_dim),
    out=False,
    function=False,
    method=False,
    samples=_median_all_samples,
    errors=lambda s: [(s(s.tensor(2, dtype="bool")), NotImplementedError, "not implemented")],
    oracle="nanmedian",
    doc="Find the median of all elements that are not NaN, the lower of two.",
)

median = overload("median", "median_all", "median_dim")
nanmedian = overload("nanmedian", "nanmedian_all", "nanmedian_dim")


def _mode_by_sorting(self: Any, dim: int) -> Any:
    values, indices = self.sort(dim=dim, stable=True)
    size = self.shape[dim]
    shape = [1] * self.ndim
    shape[dim] = size
    positions = tangrad.arange(size, device=self.device).reshape(shape).expand(self.shape)
    new = values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)
    first = positions.narrow(dim, 0, 1)
    begins = tangrad.cat([first, positions.narrow(dim, 1, size - 1).where(new, 0)], dim)
    length = positions - begins.cummax(dim).values
    return indices.gather(dim, length.argmax(dim, keepdim=True))


_mode_place = op(
    "_mode_place(Tensor self, dim dim) -> Tensor",
    shape=lambda self, dim: (*self.shape[:dim], 1, *self.shape[dim + 1 :]),
    dtype=lambda: "int64",
    decompose=_mode_by_sorting,
    vjp="none: places",
    batch=lambda size, dims, self, dim: (_mode_place(front(self, dims[0]), dim + 1), 0),
    function=False,
    method=False,
    doc="Find the place of what `mode` gives, of a tensor with elements along the dimension.",
)


@composite(
    result_names=("values", "indices"),
    strict_out_dtype=True,
    out=True,
    samples=lambda s: (
        []
        if s.is_complex
        else [
            s(s.values([[1, 0, 1, 0, 2], [2, 2, 0, 1, 0]])),
            s(s.tensor(3, 4, low=0, high=3), 0, True),
            s(s.tensor(4, 3, strided=True), dim=-2),
            s(s.tensor()),
            s(s.tensor(0, 2)),
        ]
    ),
    errors=lambda s: [
        (s(s.tensor(2, 0)), IndexError, "non-zero size"),
        (s(s.tensor(3, 4), 2), IndexError, "Dimension out of range"),
        (s(s.tensor(2, dtype="complex64")), NotImplementedError, "not implemented"),
    ],
)
def mode(self: Tensor, dim: Dim = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Find the most frequent element along a dimension and the last index that it has.

    Among equally frequent ones it is the least. A NaN equals nothing, so each is on its own.
    """
    if self.dtype.is_complex:
        raise NotImplementedError(f"mode: not implemented for {self.dtype}, which has no order")
    _require_elements("mode", self, dim)
    if self.ndim == 0:
        return self.clone(), tangrad.zeros((), dtype=tangrad.int64, device=self.device)
    fixed = self.detach()
    # What records calls is shown ops that every device and format has.
    unseen = _C.get_intercept() is None and type(fixed) is tangrad.Tensor
    indices = (_mode_place if unseen else _mode_by_sorting)(fixed, dim)
    values = self.gather(dim, indices)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


# Quantiles ---------------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(name: str, self: Any, q: Any, interpolation: str) -> Any:
    """Check the arguments and give q as a tensor."""
    if self.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if self.dtype not in (tangrad.float32, tangrad.float64):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype, got {self.dtype}"
        )
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    if not isinstance(q, tangrad.Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        return tangrad.full((), q, dtype=self.dtype, device=self.device)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, got shape {list(q.shape)}")
    if q.dtype != self.dtype:
        raise RuntimeError(
            f"{name}() q tensor must be same dtype as the input tensor, got {q.dtype} and "
            f"{self.dtype}"
        )
    known = q.device.type != "meta" and _C.level_of(q) is None
    if known and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _ranks(values: Any, q: Any, skip_nan: bool) -> Any:
    """Give the places of quantiles among the sorted elements of the last dimension."""
    last = values.shape[-1] - 1
    numbers = (values == values).sum(-1, keepdim=True)
    if skip_nan:
        return (q * (numbers - 1)).clamp(min=0)
    return tangrad.where(numbers <= last, float(last), q * last)


def _quantile(
    name: str, self: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Any:
    q = _check_quantile(name, self, q, interpolation)
    rows = self.reshape((-1,)) if dim is None or self.ndim == 0 else self.movedim(dim, -1)
    values = rows.sort(dim=-1, stable=True).values
    ranks = _ranks(values.detach(), q.reshape((-1,)), name == "nanquantile")
    if interpolation == "nearest":
        ranks = ranks.round()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    below = ranks.floor()
    found = values.gather(-1, below.detach().to(tangrad.int64))
    if interpolation in ("linear", "midpoint"):
        weight = tangrad.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - below
        found = found.lerp(values.gather(-1, ranks.detach().ceil().to(tangrad.int64)), weight)
    if keepdim and dim is None:
        found = found.reshape((*(1,) * self.ndim, found.shape[-1]))
    elif keepdim and self.ndim:
        found = found.unsqueeze(dim if dim != self.ndim - 1 else -2)
    return found.squeeze(-1) if q.ndim == 0 else found.movedim(-1, 0)


def _quantile_samples(s: Any) -> list[Any]:
    if s.dtype not in ("float32", "float64"):
        return []
    nan = float("nan")
    return [
        s(s.tensor(3, 4), 0.3),
        s(s.tensor(3, 4), 0.75, 1),
        s(s.tensor(2, 3, 4, strided=True), s.values([0.1, 0.5, 1.0]), -2, True),
        s(s.tensor(2, 3, 4), s.values([0.1, 0.5]), keepdim=True),
        s(s.tensor(2, 3), 0.4, 0, True),
        *(s(s.tensor(3, 4), 0.4, 1, interpolation=name) for name in _INTERPOLATIONS),
        s(s.values([[nan, 1.0, 2.0], [nan, nan, nan], [3.0, 1.0, 2.0]]), 0.4, 1),
        s(s.tensor(), 0.5),
        s(s.tensor(2, 3), s.tensor(0), 1),
    ]


def _quantile_errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(0), 0.5), RuntimeError, "non-empty"),
        (s(s.tensor(2, dtype="int64"), 0.5), RuntimeError, "float or double"),
        (s(s.tensor(2), 1.5), RuntimeError, "range \\[0, 1\\]"),
        (s(s.tensor(2), s.values([2.0])), RuntimeError, "range \\[0, 1\\]"),
        (s(s.tensor(2), s.tensor(1, 1)), RuntimeError, "scalar or 1D"),
        (s(s.tensor(2), s.tensor(1, dtype="float64")), RuntimeError, "same dtype"),
        (s(s.tensor(2), 0.5, interpolation="up"), RuntimeError, "interpolation must be one of"),
    ]


@composite(strict_out_dtype=True, out=True, samples=_quantile_samples, errors=_quantile_errors)
def quantile(
    self: Tensor,
    q: Operand,
    dim: Dim | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Find the values below which parts q of the elements lie; NaN prevails.

    Args:
        q: from 0 to 1: a number, or a vector, whose dimension comes first in the result.
        dim: default: of all elements.
        interpolation: what lies between two elements: "linear", "lower", "higher", "midpoint" or
            "nearest" (of two equally near the one whose place is even).
    """
    return _quantile("quantile", self, q, dim, keepdim, interpolation)


@composite(strict_out_dtype=True, out=True, samples=_quantile_samples, errors=_quantile_errors)
def nanquantile(
    self: Tensor,
    q: Operand,
    dim: Dim | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Find the values below which parts q of the elements that are not NaN lie; see `quantile`."""
    return _quantile("nanquantile", self, q, dim, keepdim, interpolation)


@composite(
    out=True,
    samples=lambda s: (
        [
            s(s.tensor(3, 4)),
            s(s.values([[float("nan"), 1.0], [2.0, float("nan")]]), 1, True),
            s(s.tensor(2, 3, 4, strided=True), (0, -1)),
            s(s.tensor()),
            s(s.tensor(0, 2), 0),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64")), RuntimeError, "floating point"),
        (s(s.tensor(2, dtype="complex64")), RuntimeError, "complex"),
    ],
)
def nanmean(
    self: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Compute the mean of the elements that are not NaN; of none it is NaN."""
    if self.dtype.is_complex:
        raise RuntimeError(f"nanmean does not support complex inputs, got {self.dtype}")
    if not self.dtype.is_floating_point:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{self.dtype}"
        )
    fixed = self.detach()
    count = (fixed == fixed).sum(dim, keepdim)
    return self.nansum(dim, keepdim, dtype=dtype) / count
