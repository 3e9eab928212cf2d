"""Define the counts of elements by intervals, in one dimension and in several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import _C
from tangrad.dispatch.batching import looped
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Scalar, Tensor
from tangrad.ops.refusal import refuse_values
from tangrad.ops.views.geometry import numel_of
from tangrad.tensor.ranges import require_fit

_FLOATS = ("float32", "float64")


def _name(dtype: Any) -> str:
    return dtype.name


def _positive(bins: int, dim: int = 0) -> None:
    if bins <= 0:
        raise RuntimeError(f"histogram(): bins must be > 0, but got {bins} for dimension {dim}")


def _extremes(x: Any) -> tuple[float, float]:
    """Give the least and the greatest element; 0 and 1 of none."""
    if x.numel() == 0:
        return 0.0, 1.0
    low, high = x.aminmax()
    return low.item(), high.item()


def _widened(low: float, high: float) -> tuple[float, float]:
    return (low - 0.5, high + 0.5) if low == high else (low, high)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    samples=lambda s: (
        [
            s(s.tensor(20), 4, -2, 2),
            s(s.tensor(3, 5, strided=True), 5),
            s(s.tensor(6), bins=3, min=0, max=3),
            s(s.values([1.0, 1.0, 1.0]), 4),
            s(s.values([0.0, 1.0, float("nan"), 3.0, 4.0]), 3, 0, 3),
            s(s.tensor(0), 4),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(3), 0), RuntimeError, "bins must be > 0"),
        (s(s.tensor(3), 4, 3, 0), RuntimeError, "max must be larger than min"),
        (s(s.values([1.0, float("inf")]), 4), RuntimeError, "is not finite"),
        (s(s.tensor(3, dtype="int64"), 4), NotImplementedError, "not implemented"),
    ],
)
def histc(self: Tensor, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Tensor:
    """Count the elements in equal intervals from min to max; others, and NaN, are left out.

    Args:
        bins: how many intervals; the last one includes its upper end.
        min, max: if equal, the extremes of the elements.
    """
    if not self.dtype.is_floating_point:
        raise NotImplementedError(f"histc: not implemented for {self.dtype}; convert to floats")
    _positive(bins)
    x = self.detach().reshape((-1,))
    for bound in (min, max):
        require_fit(bound, self.dtype, "histc")
    low, high = float(min), float(max)
    if low == high and x.numel() and _C.level_of(x) is not None:
        return _counts(x, *_extremes_of_samples(x), bins, self.dtype)
    if low == high and x.numel():
        low, high = _extremes(x)
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"histc: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"histc: max must be larger than min, got {high} and {low}")
    if (high - low) * bins > tangrad.finfo(self.dtype).max:
        smaller = 0.5 ** (bins.bit_length() + 1)
        x, low, high = x * smaller, low * smaller, high * smaller
    return _counts(x, low, high, bins, self.dtype)


def _extremes_of_samples(x: Any) -> tuple[Any, Any]:
    """Give the extremes as tensors: inside of vmap each sample has its own."""
    low, high = x.aminmax()
    equal = low == high
    return low.where(~equal, low - 1), high.where(~equal, high + 1)


def _counts(x: Any, low: Any, high: Any, bins: int, dtype: Any) -> Any:
    # Each step is rounded to the input's dtype, so that a half falls where PyTorch counts it.
    ends = [end if hasattr(end, "dtype") else x.new_full((), end) for end in (low, high)]
    low, high = ends
    inside = (x >= low) & (x <= high)
    place = ((x - low) * bins / (high - low)).masked_fill(~inside, 0)
    place = place.to(tangrad.int64).clamp(max=bins - 1)
    counts = tangrad.zeros((bins,), dtype=tangrad.int64, device=x.device)
    return counts.index_add(0, place, inside.to(tangrad.int64)).to(dtype)


# Edges -------------------------------------------------------------------------------------------


def _check_input(self: Any, weight: Any, shape: Sequence[int]) -> None:
    if _name(self.dtype) not in _FLOATS:
        raise NotImplementedError(
            f'"histogramdd" not implemented for {self.dtype}; convert to float32 or float64'
        )
    if weight is None:
        return
    if tuple(weight.shape) != tuple(shape):
        raise RuntimeError(
            "histogramdd: if weight tensor is provided it should have the same shape as the input "
            f"tensor excluding its innermost dimension, but got shapes {list(weight.shape)} and "
            f"{list(shape)}"
        )
    if weight.dtype != self.dtype:
        raise RuntimeError(
            "histogramdd: if weight tensor is provided, input tensor and weight tensor should have "
            f"the same dtype, but got {self.dtype} and {weight.dtype}"
        )


def _check_edges(edges: Any, dtype: Any, dim: int) -> Any:
    if edges.ndim != 1:
        raise RuntimeError(
            "histogramdd: bins tensor should have one dimension, but got "
            f"{edges.ndim} dimensions in the bins tensor for dimension {dim}"
        )
    if edges.dtype != dtype:
        raise RuntimeError(
            "histogramdd: input tensor and bins tensors should have the same dtype, but got "
            f"{dtype} and bins for dimension {dim} of {edges.dtype}"
        )
    _positive(edges.shape[0] - 1, dim)
    return edges


def _even_edges(column: Any, bins: int, bounds: Sequence[float] | None, dim: int) -> Any:
    _positive(bins, dim)
    if bounds is None and column.numel() and _C.level_of(column) is not None:
        return _even_edges_of_samples(column, bins, dim)
    low, high = _extremes(column) if bounds is None else map(float, bounds)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"histogramdd: dimension {dim}'s range [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(
            f"histogramdd: min should not exceed max, but got min {low} max {high} for dimension "
            f"{dim}"
        )
    low, high = _widened(low, high)
    return tangrad.linspace(low, high, bins + 1, dtype=column.dtype, device=column.device)


def _even_edges_of_samples(column: Any, bins: int, dim: int) -> Any:
    """Give each sample of a batch edges of its own."""
    low, high = column.aminmax()
    refuse_values(
        ~(low.isfinite() & high.isfinite()),
        f"histogramdd: dimension {dim}'s range is not finite in a sample",
    )
    equal = low == high
    low, high = low.where(~equal, low - 0.5), high.where(~equal, high + 0.5)
    return tangrad.linspace(low, high, bins + 1, dtype=column.dtype, device=column.device)


def _places(column: Any, edges: Any) -> tuple[Any, Any]:
    """Give the interval of each element, and whether it is in any; the last one is closed."""
    bins = edges.shape[0] - 1
    inside = (column >= edges[0]) & (column <= edges[-1])
    place = tangrad.searchsorted(edges, column.contiguous(), right=True) - 1
    return place.clamp(min=0, max=bins - 1), inside


def _counted(rows: Any, edges: Sequence[Any], weight: Any, density: bool) -> Any:
    """Count rows of coordinates by the boxes that edges make."""
    shape = tuple(e.shape[0] - 1 for e in edges)
    flat = tangrad.zeros((rows.shape[0],), dtype=tangrad.int64, device=rows.device)
    inside = tangrad.ones((rows.shape[0],), dtype=tangrad.bool, device=rows.device)
    for d, e in enumerate(edges):
        place, within = _places(rows.select(1, d), e)
        flat, inside = flat * shape[d] + place, inside & within
    if weight is None:
        weight = tangrad.ones((rows.shape[0],), dtype=rows.dtype, device=rows.device)
    counted = weight.masked_fill(~inside, 0)
    hist = counted.new_zeros((numel_of(shape),)).index_add(0, flat, counted).reshape(shape)
    if not density:
        return hist
    hist = hist / hist.sum()
    for d, e in enumerate(edges):
        widths = [1] * len(shape)
        widths[d] = shape[d]
        hist = hist / e.diff().reshape(widths)
    return hist


@composite(
    result_names=("hist", "bin_edges"),
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    samples=lambda s: (
        [
            s(s.tensor(20), 4),
            s(s.tensor(3, 5, strided=True), 5, range=(-1.0, 2.0)),
            s(s.tensor(6), s.values([-2.0, 0.0, 0.5, 3.0]), weight=s.tensor(6)),
            s(s.tensor(20), 3, density=True),
            s(s.values([1.0, 1.0]), 4),
            s(s.tensor(0), 4),
        ]
        if s.dtype in _FLOATS
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(3), 0), RuntimeError, "bins must be > 0"),
        (s(s.tensor(3, dtype="int64"), 4), NotImplementedError, "not implemented"),
        (s(s.tensor(3), 4, weight=s.tensor(2)), RuntimeError, "same shape"),
        (s(s.tensor(3), 4, range=(3.0, 1.0)), RuntimeError, "min should not exceed max"),
        (s(s.tensor(3), s.tensor(2, 2)), RuntimeError, "one dimension"),
        (s(s.values([1.0, float("nan")]), 4), RuntimeError, "is not finite"),
    ],
)
def histogram(
    self: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """Count the elements by intervals.

    Args:
        bins: how many equal intervals, or a vector of ascending edges; the last one is closed.
        range: (least, greatest) edge; default: the extremes of the elements.
        weight: what each element counts, instead of one.
        density: divide by the sum and the widths, so that the integral is one.

    Returns:
        The counts, and the edges.

    Raises:
        NotImplementedError: the dtype is neither float32 nor float64.
    """
    _check_input(self, weight, tuple(self.shape))
    x = self.detach().reshape((-1,))
    if isinstance(bins, tangrad.Tensor):
        if range is not None:
            raise TypeError("histogram(): range goes with a number of bins, not with edges")
        edges = _check_edges(bins, self.dtype, 0).detach().clone()
    else:
        edges = _even_edges(x, _as_count(bins), range, 0)
    weight = None if weight is None else weight.detach().reshape((-1,))
    return _counted(x.unsqueeze(1), [edges], weight, density), edges


def _as_count(bins: Any) -> int:
    if isinstance(bins, bool) or not hasattr(bins, "__index__"):
        raise TypeError(f"histogram(): bins must be an int or a Tensor, not {type(bins).__name__}")
    return int(bins.__index__())


def _edges_by_dimension(columns: Any, bins: Any, bounds: Any) -> list[Any]:
    count = columns.shape[1]
    listed = [bins] * count if isinstance(bins, int) else list(bins)
    if len(listed) != count:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input, "
            f"got {len(listed)} and {count}"
        )
    if bounds is not None and len(bounds) != 2 * count:
        raise RuntimeError(
            f"histogramdd: range should have {2 * count} elements, two per dimension, but got "
            f"{len(bounds)}"
        )
    edges = []
    for d, b in enumerate(listed):
        if isinstance(b, tangrad.Tensor):
            edges.append(_check_edges(b, columns.dtype, d).detach())
        else:
            pair = None if bounds is None else bounds[2 * d : 2 * d + 2]
            edges.append(_even_edges(columns.select(1, d), _as_count(b), pair, d))
    return edges


@composite(
    result_names=("hist", "bin_edges"),
    dtypes="floating",
    method=False,
    samples=lambda s: (
        [
            s(s.tensor(20, 2), [3, 4]),
            s(s.tensor(3, 4, 3, strided=True), 2, weight=s.tensor(3, 4)),
            s(s.tensor(20, 2), [2, 3], [-1.0, 2.0, 0.0, 1.0], density=True),
            s(s.tensor(6, 1), [s.values([-2.0, 0.0, 3.0])]),
        ]
        if s.dtype in _FLOATS
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(3), [2]), RuntimeError, "at least 2 dimensions"),
        (s(s.tensor(3, 2), [2]), RuntimeError, "innermost dimension"),
        (s(s.tensor(3, 2, dtype="int64"), [2, 2]), NotImplementedError, "not implemented"),
    ],
)
def histogramdd(
    self: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Sequence[Tensor]]:
    """Count points, the rows of the last dimension, by boxes.

    Args:
        bins: how many equal intervals each dimension has (one number, or one for each), or a list
            of vectors of ascending edges.
        range: least and greatest edge of each dimension, one after the other.
        weight: what each point counts, instead of one.
        density: divide by the sum and the volumes, so that the integral is one.

    Returns:
        The counts, and a tuple of the edges of each dimension.
    """
    if self.ndim < 2:
        raise RuntimeError("histogramdd: input tensor should have at least 2 dimensions")
    _check_input(self, weight, tuple(self.shape)[:-1])
    columns = self.detach().reshape((-1, self.shape[-1]))
    edges = _edges_by_dimension(columns, bins, range)
    weight = None if weight is None else weight.detach().reshape((-1,))
    return _counted(columns, edges, weight, density), tuple(edges)


def _check_bincount(self: Any, weights: Any, minlength: int) -> None:
    if len(self.shape) != 1:
        raise RuntimeError(
            f"bincount only supports 1-d non-negative integral inputs, got {list(self.shape)}"
        )
    if self.dtype.is_floating_point or self.dtype.is_complex:
        raise NotImplementedError(f'"bincount" not implemented for {self.dtype}')
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}")
    if weights is not None and tuple(weights.shape) != tuple(self.shape):
        raise RuntimeError(
            "weights should be 1-d and have the same length as input, got "
            f"{list(weights.shape)} for {list(self.shape)}"
        )


def _bincount_dtype(weights: Any) -> str:
    if weights is None:
        return "int64"
    return "float32" if weights.dtype.name == "float32" else "float64"


def _bincount_reference(np: Any, self: Any, weights: Any, minlength: int) -> Any:
    if self.size and self.min() < 0:
        raise RuntimeError(
            f"bincount only supports 1-d non-negative integral inputs, got the value {self.min()}"
        )
    return np.bincount(self.astype(np.int64), weights, minlength)


def _bincount_batch(size: int, dims: Any, *args: Any) -> Any:
    """Count sample by sample; the counts must be equally many, as `minlength` can make them."""
    return looped(bincount, size, dims, args)


bincount = op(
    "bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor",
    check=_check_bincount,
    shape=None,
    shape_depends_on_data=True,
    dtype=_bincount_dtype,
    reference=_bincount_reference,
    vjp={
        "weights": lambda g, self, weights_meta: g.index_select(0, self.to(tangrad.int64)).to(
            weights_meta.dtype
        )
    },
    linear=("weights",),
    batch=_bincount_batch,
    samples=lambda s: [
        s(s.integers(0, 4, 6)),
        s(s.integers(0, 4, 6), minlength=8),
        s(s.integers(0, 4, 3), s.tensor(3, dtype="float32")),
        s(s.integers(0, 4, 0)),
    ],
    errors=lambda s: [
        (s(s.integers(-2, -1, 3)), RuntimeError, "non-negative"),
        (s(s.integers(0, 1, 2, 2)), RuntimeError, "1-d"),
        (s(s.integers(0, 1, 2), None, -1), RuntimeError, "minlength"),
    ],
    doc="""Count how often each number occurs in a vector of non-negative integers.

    Args:
        weights: what an occurrence counts, instead of one.
        minlength: the least length of the result.
    """,
)
