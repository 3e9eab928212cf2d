"""Scans along a dimension, and ops that put elements into order."""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.ops.definition.define import composite, op, scan
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.pointwise.transcendental import log_of_sum
from tangrad.tensor.memory import suggested_format

REAL = "bool integral floating"


def _reverse(tensor: Any, dim: int) -> Any:
    return tensor.flip(dim) if tensor.ndim else tensor


def _shift(tensor: Any, dim: int, entering: float = 0) -> Any:
    """Move elements one place up a dimension; `entering` becomes the first."""
    if tensor.ndim == 0:
        return tensor.new_full((), entering)
    length = tensor.shape[dim]
    first = tensor.narrow(dim, 0, 1 if length > 0 else 0)
    kept = tensor.narrow(dim, 0, length - 1 if length > 0 else 0)
    return ops.cat((first.new_full(first.shape, entering), kept), dim)


def _shift_back(tensor: Any, dim: int) -> Any:
    return _reverse(_shift(_reverse(tensor, dim), dim), dim)


def _dim_errors(s: Any) -> list[Any]:
    return [(s(s.tensor(3, 4), 2), IndexError, "Dimension out of range")]


def _scan_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4), 1),
        s(s.tensor(2, 3, 4, strided=True), dim=-2),
        s(s.tensor(), 0),
        s(s.tensor(2, 0), 1),
        s(s.tensor(5), 0),
    ]


# Running sums and products

cumsum = scan(
    "cumsum(Tensor self, dim dim, *, dtype? dtype=None) -> Tensor",
    map="self",
    fold="sum",
    promote="sum",
    vjp={"self": lambda g, dim: _reverse(_reverse(g, dim).cumsum(dim), dim)},
    linear=("self",),
    inplace=True,
    samples=lambda s: [*_scan_samples(s), s(s.mask(4), 0)],
    errors=_dim_errors,
    doc="Sum the elements up to each one along a dimension.",
)


def _cumprod_vjp(g: Any, self: Any, dim: int, dtype: Any) -> Any:
    """Differentiate running products without division, so that zeros need no case.

    With `s[i]` the sum over k >= i of `g[k]` times the product of `x[j]`, i < j <= k, which is a
    linear recurrence from the end, the gradient is `s[i]` times the product of all before i.
    """
    factors = (self if dtype is None else self.to(dtype)).conj()
    before = _shift(factors.cumprod(dim), dim, 1)
    decay = _reverse(_shift_back(factors, dim), dim)
    after = _reverse(linear_recurrence(decay, _reverse(g, dim), dim), dim)
    return (before * after).to(self.dtype)


def _cumprod_jvp(self: Any, self_t: Any, result: Any, dim: int) -> Any:
    entering = self_t.to(result.dtype) * _shift(result, dim, 1)
    return linear_recurrence(self.to(result.dtype), entering, dim)


cumprod = scan(
    "cumprod(Tensor self, dim dim, *, dtype? dtype=None) -> Tensor",
    map="self",
    fold="product",
    promote="sum",
    vjp={"self": _cumprod_vjp},
    jvp=_cumprod_jvp,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4, low=-2, high=3), 1),
        s(s.tensor(2, 3, 4, low=-2, high=3, strided=True), dim=-2),
        s(s.tensor(), 0),
        s(s.tensor(2, 0), 1),
        s(s.values([[0, 1, 3], [2, 0, 1], [0, 0, 1]]), 1),
    ],
    errors=_dim_errors,
    doc="Multiply the elements up to each one along a dimension.",
)


def _recurrence(np: Any, decay: Any, input: Any, dim: int) -> Any:
    if input.ndim == 0:
        return input
    output = np.array(input)
    rows, decays = np.moveaxis(output, dim, 0), np.moveaxis(decay, dim, 0)
    for k in range(1, rows.shape[0]):
        rows[k] += decays[k] * rows[k - 1]
    return output


def _check_recurrence(decay: Any, input: Any) -> None:
    if decay.shape != input.shape or decay.dtype != input.dtype:
        raise RuntimeError(
            "linear_recurrence: decay and input must have the same shape and dtype, got "
            f"{tuple(decay.shape)} of {decay.dtype} and {tuple(input.shape)} of {input.dtype}"
        )


def _recurrence_vjp(g: Any, decay: Any, result: Any, dim: int) -> Any:
    """The adjoint of a linear recurrence is the same recurrence, from the end."""
    backward = _reverse(_shift_back(decay.conj(), dim), dim)
    by_input = _reverse(linear_recurrence(backward, _reverse(g, dim), dim), dim)
    return by_input * _shift(result, dim).conj(), by_input


def _recurrence_jvp(decay: Any, decay_t: Any, input_t: Any, result: Any, dim: int) -> Any:
    entering = result.new_zeros(result.shape) if input_t is None else input_t
    if decay_t is not None:
        entering = entering + decay_t * _shift(result, dim)
    return linear_recurrence(decay, entering, dim)


linear_recurrence = op(
    "linear_recurrence(Tensor decay, Tensor input, dim dim) -> Tensor",
    shape=lambda input: input.shape,
    check=_check_recurrence,
    reference=_recurrence,
    vjp={("decay", "input"): _recurrence_vjp},
    jvp=_recurrence_jvp,
    batch="dims",
    function=False,
    method=False,
    oracle=lambda torch, decay, input, dim: _recurrence_of(torch, decay, input, dim),
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4), 1),
        s(s.tensor(3, 4), s.tensor(3, 4), -2),
        s(s.tensor(2, 5, strided=True), s.tensor(2, 5), 1),
        s(s.tensor(), s.tensor(), 0),
        s(s.tensor(2, 0), s.tensor(2, 0), 1),
    ],
    errors=lambda s: [(s(s.tensor(3), s.tensor(2), 0), RuntimeError, "same shape")],
    doc="Compute `y[i] = decay[i] * y[i - 1] + input[i]` along a dimension, from `y[-1] = 0`.",
)


def _recurrence_of(torch: Any, decay: Any, input: Any, dim: int) -> Any:
    if input.ndim == 0 or input.shape[dim] == 0:
        return input.clone() if input.dtype == torch.bool else input + decay * 0
    torch.broadcast_tensors(decay, input)
    rows: list[Any] = []
    for d, x in zip(decay.unbind(dim), input.unbind(dim), strict=True):
        rows.append(d * rows[-1] + x if rows else x)
    return torch.stack(rows, dim)


def _exp_of_difference(a: Any, b: Any) -> Any:
    """Compute exp(a - b), 1 for equal infinities."""
    return (a - b).masked_fill(a.isinf() & (a == b), 0).exp()


def _next(tensor: Any, dim: int) -> Any:
    """Move elements one place down a dimension; the last one stays where it is, too."""
    if tensor.ndim == 0 or tensor.shape[dim] == 0:
        return tensor
    length = tensor.shape[dim]
    last = tensor.narrow(dim, length - 1, 1)
    return ops.cat((tensor.narrow(dim, 1, length - 1), last), dim)


def _logcumsumexp_vjp(g: Any, self: Any, result: Any, dim: int) -> Any:
    """Sum `g[k] * exp(self[i] - result[k])` over k >= i, with exponents that are never positive.

    Of complex numbers the exponentials are conjugate.

    It is `exp(self[i] - result[i])` times a linear recurrence from the end, whose decays are
    quotients of successive results, which do not decrease.
    """
    decay = _reverse(_exp_of_difference(result, _next(result, dim)), dim).conj()
    sums = _reverse(linear_recurrence(decay, _reverse(g, dim), dim), dim)
    return _exp_of_difference(self, result).conj() * sums


def _logcumsumexp_jvp(self: Any, self_t: Any, result: Any, dim: int) -> Any:
    previous = _reverse(_next(_reverse(result, dim), dim), dim)
    decay = _exp_of_difference(previous, result)
    return linear_recurrence(decay, _exp_of_difference(self, result) * self_t, dim)


logcumsumexp = scan(
    "logcumsumexp(Tensor self, dim dim) -> Tensor",
    strict_out_dtype=True,
    map="self",
    combine=log_of_sum("a", "b"),
    dtypes="floating complex",
    vjp={"self": _logcumsumexp_vjp},
    jvp=_logcumsumexp_jvp,
    samples=lambda s: [
        s(s.tensor(3, 4), 1),
        s(s.tensor(2, 3, 4, strided=True), dim=-2),
        s(s.tensor(), 0),
        s(s.tensor(5, low=900, high=1000), 0),
        s(s.tensor(2, 0), 1),
    ],
    errors=_dim_errors,
    doc="Compute the logarithm of running sums of exponentials without overflow.",
)


# Running extremes: among equal elements the latest is chosen, as PyTorch chooses; NaN prevails.

_LATER = (
    "take = isnan(b0) | (~isnan(a0) & (b0 {sign} a0)); where(take, b0, a0); where(take, b1, a1)"
)


def _selected_vjp(g0: Any, self_meta: Any, result1: Any, dim: int) -> Any:
    """Send the gradient of selected elements to where they came from."""
    return g0.new_zeros(self_meta.shape).scatter_add(dim, result1, g0)


def _selected_jvp(self_t: Any, result1: Any, dim: int) -> Any:
    return self_t.gather(dim, result1), None


def _extreme_samples(s: Any) -> list[Any]:
    if s.is_complex:  # PyTorch takes those without elements to compare
        return []
    return [
        *_scan_samples(s),
        s(s.values([1, 1, 0, 1, 1]), 0),
        *([s(s.values([1.0, float("nan"), 2.0, float("nan"), 0.0]), 0)] if s.is_floating else []),
    ]


cummax = scan(
    "cummax(Tensor self, dim dim) -> (Tensor values, Tensor indices)",
    strict_out_dtype=True,
    map="self; index",
    combine=_LATER.format(sign=">="),
    results=("promoted", "int64"),
    dtypes=REAL,
    vjp={"self": _selected_vjp},
    jvp=_selected_jvp,
    samples=_extreme_samples,
    errors=_dim_errors,
    doc="Compute the maximum up to each element along a dimension, and its index.",
)

cummin = scan(
    "cummin(Tensor self, dim dim) -> (Tensor values, Tensor indices)",
    strict_out_dtype=True,
    map="self; index",
    combine=_LATER.format(sign="<="),
    results=("promoted", "int64"),
    dtypes=REAL,
    vjp={"self": _selected_vjp},
    jvp=_selected_jvp,
    samples=_extreme_samples,
    errors=_dim_errors,
    doc="Compute the minimum up to each element along a dimension, and its index.",
)


# Order: NaN is greater than every number.


def _ranks(np: Any, self: Any, dim: int, descending: bool) -> Any:
    """Return the indices that sort along a dimension; equal elements keep their order."""
    if not descending:
        return np.argsort(self, axis=dim, kind="stable")
    reverse = np.argsort(np.flip(self, dim), axis=dim, kind="stable")
    return self.shape[dim] - 1 - np.flip(reverse, dim)


def _sort(np: Any, self: Any, dim: int, descending: bool) -> Any:
    if self.ndim == 0:
        return self.copy(), np.zeros((), np.int64)
    indices = _ranks(np, self, dim, descending).astype(np.int64)
    return np.take_along_axis(self, indices, dim), indices


def _check_ordered(name: str, self: Any) -> None:
    if self.dtype.is_complex:
        raise NotImplementedError(f"{name}: complex numbers have no order (got {self.dtype})")


sort = op(
    "sort(Tensor self, dim dim=-1, bool descending=False, bool? stable=False)"
    " -> (Tensor values, Tensor indices)",
    strict_out_dtype=True,
    shape=lambda self: [self.shape, self.shape],
    dtype=lambda self: [self.dtype, "int64"],
    memory_format=lambda self: suggested_format(self),
    check=lambda self: _check_ordered("sort", self),
    reference=_sort,
    vjp={"self": _selected_vjp},
    jvp=_selected_jvp,
    batch="dims",
    samples=lambda s: [
        s(s.permutation(3, 4) if not s.is_bool else s.tensor(4)),
        s(s.tensor(2, 3, 4, strided=True), dim=-2, stable=True),
        s(s.tensor(3, 4), dim=0, descending=True, stable=True),
        s(s.tensor(), stable=None),
        s(s.tensor(2, 0)),
        s(s.values([1, 0, 1, 0, 1]), stable=True),
        s(s.values([1, 0, 1, 0, 1]), descending=True, stable=True),
        *([s(s.specials(), stable=True), s(s.specials(), descending=True, stable=True)]
          if s.is_floating else []),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 4), 2), IndexError, "Dimension out of range"),
        (s(s.tensor(2, dtype="complex64")), RuntimeError, "sort"),
    ],
    doc="Sort along a dimension; return values and the indices they had. Always stable.",
)  # fmt: skip


@composite(
    out=True,
    samples=lambda s: [
        s(s.permutation(3, 4) if not s.is_bool else s.values([1, 0])),
        s(s.tensor(3, 4), dim=0, descending=True, stable=True),
        s(s.tensor()),
    ],
    errors=_dim_errors,
)
def argsort(self: Tensor, dim: Dim = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return the indices that sort a tensor along a dimension."""
    return self.sort(dim=dim, descending=descending, stable=stable).indices


@composite(
    strict_out_dtype=True,
    out=True,
    samples=lambda s: [s(s.tensor(4, 3)), s(s.tensor(5)), s(s.tensor(0))],
)
def msort(self: Tensor) -> Tensor:
    """Sort along the first dimension."""
    return self.sort(0).values


def _length(tensor: Any, dim: int) -> Any:
    return tensor.shape[dim] if tensor.ndim else 1


def _check_topk(self: Any, k: int, dim: int) -> None:
    _check_ordered("topk", self)
    if self.dtype.name == "bool":
        raise RuntimeError("topk: bools have too few values to rank; convert with .to(dtype)")
    if k < 0 or k > _length(self, dim):
        raise RuntimeError(
            f"topk: selected index k out of range: got k={k} for dimension {dim} of a tensor of "
            f"shape {tuple(self.shape)}; k must be between 0 and {_length(self, dim)}"
        )


def _with_size(self: Any, dim: int, size: Any) -> tuple[Any, ...]:
    shape = tuple(self.shape)
    return (*shape[:dim], size, *shape[dim + 1 :]) if shape else shape


def _topk(np: Any, self: Any, k: int, dim: int, largest: bool) -> Any:
    values, indices = _sort(np, self, dim, largest)
    if self.ndim == 0:
        return values, indices
    first = (slice(None),) * dim + (slice(0, k),)
    return values[first], indices[first]


topk = op(
    "topk(Tensor self, int k, dim dim=-1, bool largest=True, bool sorted=True)"
    " -> (Tensor values, Tensor indices)",
    strict_out_dtype=True,
    shape=lambda self, k, dim: [_with_size(self, dim, k)] * 2,
    dtype=lambda self: [self.dtype, "int64"],
    check=_check_topk,
    reference=_topk,
    vjp={"self": _selected_vjp},
    jvp=_selected_jvp,
    batch="dims",
    samples=lambda s: [
        s(s.permutation(3, 4) if not s.is_bool else s.values([1, 0]), 2),
        s(s.permutation(2, 3, 2) if not s.is_bool else s.values([1, 0]), k=1, dim=0),
        s(s.permutation(3, 4) if not s.is_bool else s.values([1, 0]), 2, largest=False),
        s(s.tensor(), 1),
        s(s.permutation(5) if not s.is_bool else s.values([1, 0]), 0),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 4), 5), RuntimeError, "selected index k out of range"),
        (s(s.tensor(3, 4), 1, 2), IndexError, "Dimension out of range"),
    ],
    doc="Find the `k` largest (or smallest) elements along a dimension, in order.",
)


def _check_kthvalue(self: Any, k: int, dim: int) -> None:
    _check_ordered("kthvalue", self)
    length = _length(self, dim)
    if length == 0:
        raise IndexError(f"kthvalue(): Expected reduction dim {dim} to have non-zero size.")
    if k < 1 or k > length:
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: got {k} for a tensor "
            f"of shape {tuple(self.shape)}; k must be between 1 and {length}"
        )


@composite(
    result_names=("values", "indices"),
    strict_out_dtype=True,
    strict_out=True,
    out=True,
    samples=lambda s: [
        s(s.permutation(3, 4) if not s.is_bool else s.values([1, 0]), 2),
        s(s.permutation(3, 4) if not s.is_bool else s.values([1, 0]), 1, 0, True),
        *([] if s.is_complex else [s(s.tensor(), 1)]),
        *([] if s.is_bool else [s(s.permutation(3, 4), 4)]),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 4), 5), RuntimeError, "selected number k out of range"),
        (s(s.tensor(3, 4), 0), RuntimeError, "selected number k out of range"),
    ],
)
def kthvalue(self: Tensor, k: int, dim: Dim = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Find the `k`-th smallest element along a dimension, counted from 1, and its index."""
    _check_kthvalue(self, k, dim)
    if self.ndim == 0:
        return self.sort(dim=dim, stable=True)
    # What lies beyond the k-th need not be in order.
    few = 2 * k <= _length(self, dim)
    values, indices = self.topk(k, dim, largest=False) if few else self.sort(dim=dim, stable=True)
    if keepdim:
        return values.narrow(dim, k - 1, 1).clone(), indices.narrow(dim, k - 1, 1).clone()
    return values.select(dim, k - 1).clone(), indices.select(dim, k - 1).clone()
