"""Moments, norms and the logarithm of sums of exponentials."""

from __future__ import annotations

import warnings
from typing import Any

from tangrad import _C
from tangrad.ops.definition.define import composite, overload, reduction
from tangrad.ops.definition.signature import Dims, Scalar, Tensor
from tangrad.ops.reduction.sums import count, dim_errors, mean_vjp, restore
from tangrad.ops.views.geometry import numel_of

# Variance and standard deviation
#
# The state is (mean, sum of squared deviations, count), combined as in Chan, Golub and LeVeque
# (1979), "Updating formulae and a pairwise algorithm for computing sample variances": one pass,
# and no cancellation. An infinite element begins with a NaN, for its deviation is one.

_MOMENTS: dict[str, Any] = {
    "map": "self; self - self; 1",
    "combine": (
        "total = a2 + b2; share = where(total == 0, 0, b2 / where(total == 0, 1, total)); "
        "d = b0 - a0; a0 + d * share; a1 + b1 + d * conj(d) * a2 * share; total"
    ),
    "identity": (0, 0, 0),
    "dtypes": "floating complex",
}
_VARIANCE = "real(a1) / maximum(real(n - correction), 0)"


def _deviation(self: Any, dim: Any, correction: float) -> Any:
    """Return the derivative of the variance by the elements."""
    freedom = count(self, dim) - correction
    scale = 2.0 / freedom if freedom > 0 else float("inf")
    return (self - self.mean(dim, True)) * scale


def _var_vjp(g: Any, self: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    return restore(g, self, dim, keepdim) * _deviation(self, dim, correction)


def _real(tensor: Any) -> Any:
    return tensor.real if tensor.dtype.is_complex else tensor


def _var_jvp(self: Any, self_t: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    return _real(_deviation(self, dim, correction).conj() * self_t).sum(dim, keepdim)


def _half_inverse(g: Any, result: Any) -> Any:
    """Return g / (2 * result), zero where the standard deviation is."""
    return (g / (result * 2)).masked_fill(result == 0, 0)


def _std_vjp(g: Any, self: Any, result: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    return _var_vjp(_half_inverse(g, result), self, dim, correction, keepdim)


def _std_jvp(
    self: Any, self_t: Any, result: Any, dim: Any, correction: float, keepdim: bool
) -> Any:
    return _half_inverse(_var_jvp(self, self_t, dim, correction, keepdim), result)


def _moment_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1), correction=0),
        s(s.tensor(3, 4), dim=1, keepdim=True, correction=2),
        s(s.tensor(2, 0, 3), dim=0),
    ]


def _unbiased_samples(s: Any) -> list[Any]:
    return [s(s.tensor(3, 4), -1, False), s(s.tensor(3, 4), (0, 1), True, True)]


def _check_moment(name: str, self: Any, dim: Any, correction: float) -> None:
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise RuntimeError(f"{name} only support floating point and complex dtypes")
    combined = count(self, dim)
    if not correction < combined and (numel_of(self.shape) or not combined):
        _C.keep_no_plan()
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0; the correction, {correction}, should be less "
            f"than the number of elements that are combined, {combined}",
            UserWarning,
            stacklevel=4,
        )


var_corrected = reduction(
    "var_corrected(Tensor self, dim[]? dim=None, *, Scalar correction=1, bool keepdim=False)"
    " -> Tensor",
    **_MOMENTS,
    finalize=_VARIANCE,
    results=("real",),
    check=lambda self, dim, correction: _check_moment("var", self, dim, correction),
    vjp={"self": _var_vjp},
    jvp=_var_jvp,
    function=False,
    method=False,
    oracle="var",
    samples=_moment_samples,
    errors=lambda s: [
        *dim_errors(s),
        (s(s.tensor(2, dtype="int64")), RuntimeError, "only support floating point"),
    ],
    doc="Compute the variance over dimensions, with `n - correction` in the denominator.",
)

std_corrected = reduction(
    "std_corrected(Tensor self, dim[]? dim=None, *, Scalar correction=1, bool keepdim=False)"
    " -> Tensor",
    **_MOMENTS,
    finalize=f"sqrt({_VARIANCE})",
    results=("real",),
    check=lambda self, dim, correction: _check_moment("std", self, dim, correction),
    vjp={"self": _std_vjp},
    jvp=_std_jvp,
    function=False,
    method=False,
    oracle="std",
    samples=_moment_samples,
    errors=dim_errors,
    doc="Compute the standard deviation over dimensions.",
)


def _plus(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _varmean_vjp(g0: Any, g1: Any, self: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    by_var = None if g0 is None else _var_vjp(g0, self, dim, correction, keepdim)
    return _plus(by_var, None if g1 is None else mean_vjp(g1, self, dim, keepdim))


def _var_mean_jvp(self: Any, self_t: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    return _var_jvp(self, self_t, dim, correction, keepdim), self_t.mean(dim, keepdim)


def _stdmean_vjp(
    g0: Any, g1: Any, self: Any, result0: Any, dim: Any, correction: float, keepdim: bool
) -> Any:
    by_std = None if g0 is None else _std_vjp(g0, self, result0, dim, correction, keepdim)
    return _plus(by_std, None if g1 is None else mean_vjp(g1, self, dim, keepdim))


def _std_mean_jvp(
    self: Any, self_t: Any, result0: Any, dim: Any, correction: float, keepdim: bool
) -> Any:
    by_std = _std_jvp(self, self_t, result0, dim, correction, keepdim)
    return by_std, self_t.mean(dim, keepdim)


var_mean_corrected = reduction(
    "var_mean_corrected(Tensor self, dim[]? dim=None, *, Scalar correction=1, bool keepdim=False)"
    " -> (Tensor, Tensor)",
    **_MOMENTS,
    finalize=f"{_VARIANCE}; where(n == 0, nan, a0)",
    results=("real", "promoted"),
    check=lambda self, dim, correction: _check_moment("var_mean", self, dim, correction),
    vjp={"self": _varmean_vjp},
    jvp=_var_mean_jvp,
    function=False,
    method=False,
    oracle="var_mean",
    samples=_moment_samples,
    errors=dim_errors,
    doc="Compute the variance and the mean in one pass.",
)

std_mean_corrected = reduction(
    "std_mean_corrected(Tensor self, dim[]? dim=None, *, Scalar correction=1, bool keepdim=False)"
    " -> (Tensor, Tensor)",
    **_MOMENTS,
    finalize=f"sqrt({_VARIANCE}); where(n == 0, nan, a0)",
    results=("real", "promoted"),
    check=lambda self, dim, correction: _check_moment("std_mean", self, dim, correction),
    vjp={"self": _stdmean_vjp},
    jvp=_std_mean_jvp,
    function=False,
    method=False,
    oracle="std_mean",
    samples=_moment_samples,
    errors=dim_errors,
    doc="Compute the standard deviation and the mean in one pass.",
)


@composite(out=True, function=False, method=False, oracle="var", samples=_unbiased_samples)
def var_unbiased(
    self: Tensor, dim: Dims | None = None, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    """Compute the variance with Bessel's correction or without."""
    return self.var(dim, correction=int(unbiased), keepdim=keepdim)


@composite(
    out=True,
    function=False,
    method=False,
    oracle="var",
    samples=lambda s: [s(s.tensor(3, 4), False), s(s.tensor(3, 4), unbiased=True)],
)
def var_total(self: Tensor, unbiased: bool) -> Tensor:
    """Compute the variance of all elements."""
    return self.var(correction=int(unbiased))


@composite(out=True, function=False, method=False, oracle="std", samples=_unbiased_samples)
def std_unbiased(
    self: Tensor, dim: Dims | None = None, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    """Compute the standard deviation with Bessel's correction or without."""
    return self.std(dim, correction=int(unbiased), keepdim=keepdim)


@composite(
    out=True,
    function=False,
    method=False,
    oracle="std",
    samples=lambda s: [s(s.tensor(3, 4), False), s(s.tensor(3, 4), unbiased=True)],
)
def std_total(self: Tensor, unbiased: bool) -> Tensor:
    """Compute the standard deviation of all elements."""
    return self.std(correction=int(unbiased))


@composite(function=False, method=False, oracle="var_mean", samples=_unbiased_samples)
def var_mean_unbiased(
    self: Tensor, dim: Dims | None = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute variance and mean with Bessel's correction or without."""
    return var_mean(self, dim, correction=int(unbiased), keepdim=keepdim)


@composite(function=False, method=False, oracle="std_mean", samples=_unbiased_samples)
def std_mean_unbiased(
    self: Tensor, dim: Dims | None = None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute standard deviation and mean with Bessel's correction or without."""
    return std_mean(self, dim, correction=int(unbiased), keepdim=keepdim)


@composite(
    function=False,
    method=False,
    oracle="var_mean",
    samples=lambda s: [s(s.tensor(3, 4), False), s(s.tensor(3, 4), unbiased=True)],
)
def var_mean_total(self: Tensor, unbiased: bool) -> tuple[Tensor, Tensor]:
    """Compute both over all elements."""
    return var_mean_corrected(self, correction=int(unbiased))


@composite(
    function=False,
    method=False,
    oracle="std_mean",
    samples=lambda s: [s(s.tensor(3, 4), False), s(s.tensor(3, 4), unbiased=True)],
)
def std_mean_total(self: Tensor, unbiased: bool) -> tuple[Tensor, Tensor]:
    """Compute both over all elements."""
    return std_mean_corrected(self, correction=int(unbiased))


@composite(
    function=False,
    method=False,
    out=True,
    oracle="var",
    samples=lambda s: [s(s.tensor(3, 4), 0, correction=None)],
)
def var_default(
    self: Tensor,
    dim: Dims | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Compute the same with a correction that may be None, which is one."""
    correction = 1 if correction is None else correction
    return var_corrected(self, dim, correction=correction, keepdim=keepdim)


@composite(
    function=False,
    method=False,
    out=True,
    oracle="std",
    samples=lambda s: [s(s.tensor(3, 4), 0, correction=None)],
)
def std_default(
    self: Tensor,
    dim: Dims | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Compute the same with a correction that may be None, which is one."""
    correction = 1 if correction is None else correction
    return std_corrected(self, dim, correction=correction, keepdim=keepdim)


@composite(
    function=False,
    method=False,
    oracle="var_mean",
    samples=lambda s: [s(s.tensor(3, 4), 0, correction=None)],
)
def var_mean_default(
    self: Tensor,
    dim: Dims | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute the same with a correction that may be None, which is one."""
    correction = 1 if correction is None else correction
    return var_mean_corrected(self, dim, correction=correction, keepdim=keepdim)


@composite(
    function=False,
    method=False,
    oracle="std_mean",
    samples=lambda s: [s(s.tensor(3, 4), 0, correction=None)],
)
def std_mean_default(
    self: Tensor,
    dim: Dims | None = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute the same with a correction that may be None, which is one."""
    correction = 1 if correction is None else correction
    return std_mean_corrected(self, dim, correction=correction, keepdim=keepdim)


var = overload(
    "var",
    "var_corrected",
    "var_unbiased",
    "var_total",
    "var_default",
    samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(3, 4), 0), s(s.tensor(3, 4), unbiased=False)],
    doc="Compute the variance over dimensions.",
)

std = overload(
    "std",
    "std_corrected",
    "std_unbiased",
    "std_total",
    "std_default",
    samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(3, 4), 0), s(s.tensor(3, 4), unbiased=False)],
    doc="Compute the standard deviation over dimensions.",
)

var_mean = overload(
    "var_mean",
    "var_mean_corrected",
    "var_mean_unbiased",
    "var_mean_total",
    "var_mean_default",
    method=False,
    samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(3, 4), 0)],
    doc="Compute the variance and the mean over dimensions.",
)

std_mean = overload(
    "std_mean",
    "std_mean_corrected",
    "std_mean_unbiased",
    "std_mean_total",
    "std_mean_default",
    method=False,
    samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(3, 4), 0)],
    doc="Compute the standard deviation and the mean over dimensions.",
)


# Logarithm of a sum of exponentials
#
# The state is (maximum m, sum of exp(x - m)), so nothing overflows; equal infinities differ by 0.

logsumexp = reduction(
    "logsumexp(Tensor self, dim[] dim, bool keepdim=False) -> Tensor",
    map="self; 1",
    combine="m = select_complex(a0, where(real(a0) < real(b0), b0, a0), maximum(a0, b0)); m; "
    "a1 * where(a0 == m, 1, exp(a0 - m)) + b1 * where(b0 == m, 1, exp(b0 - m))",
    identity=(-float("inf"), 0),
    # The imaginary part is the principal one: only the real part of the maximum is taken out.
    finalize="select_complex(a0, real(a0) + log(a1 * exp(complex(0, imag(a0)))), a0 + log(a1))",
    promote="float",
    dtypes="floating complex",
    vjp={"self": lambda g, self, result, dim, keepdim: (
        restore(g, self, dim, keepdim) * _softmax(self, result, dim, keepdim).conj()
    )},
    jvp=lambda self, self_t, result, dim, keepdim: (
        (self_t * _softmax(self, result, dim, keepdim)).sum(dim, keepdim)
    ),
    samples=lambda s: [
        s(s.tensor(3, 4), 1),
        s(s.tensor(2, 3, 4, strided=True), (0, -1)),
        s(s.tensor(3, 4), 0, keepdim=True),
        s(s.tensor(), 0),
        s(s.tensor(0, 3), 0),
        *([s(s.values([[-float("inf"), 1.0], [1000.0, 999.0]]), 1)] if s.is_floating else []),
    ],
    errors=lambda s: [(s(s.tensor(3, 4), 2), IndexError, "Dimension out of range")],
    doc="Compute `log(sum(exp(self)))` over dimensions without overflow.",
)  # fmt: skip


def _softmax(self: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    total = restore(result, self, dim, keepdim)
    return (self - total.masked_fill(total == -float("inf"), 0)).exp()


# Norms

norm_euclidean = reduction(
    "norm_euclidean(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="m = abs(self); m * m",
    fold="sum",
    finalize="sqrt(a)",
    dtypes="floating complex",
    results=("real",),
    vjp={"self": lambda g, self, result, dim, keepdim: self * restore(
        _over(g, result), self, dim, keepdim
    )},
    jvp=lambda self, self_t, result, dim, keepdim: _over(
        _real(self.conj() * self_t).sum(dim, keepdim), result
    ),
    function=False,
    method=False,
    oracle=lambda torch, self, dim=None, keepdim=False: torch.linalg.vector_norm(
        self, 2, dim, keepdim
    ),
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1)),
        s(s.tensor(3, 4), dim=1, keepdim=True),
        s(s.values([[0, 0], [3, 4]]), dim=1),
    ],
    errors=dim_errors,
    doc="Compute the Euclidean norm over dimensions; its derivative at zero is zero.",
)  # fmt: skip


def _over(g: Any, result: Any) -> Any:
    zero = result == 0  # masked below too, so that further derivatives are zero, not NaN
    return (g / result.masked_fill(zero, 1)).masked_fill(zero, 0)


norm_power = reduction(
    "norm_power(Tensor self, Scalar p, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="abs(self) ** p",
    fold="sum",
    finalize="a ** (1 / p)",
    dtypes="floating complex",
    results=("real",),
    vjp={"self": lambda g, self, result, p, dim, keepdim: (
        restore(g, self, dim, keepdim) * _norm_slope(self, result, p, dim, keepdim)
    )},
    jvp=lambda self, self_t, result, p, dim, keepdim: _real(
        _norm_slope(self, result, p, dim, keepdim).conj() * self_t
    ).sum(dim, keepdim),
    function=False,
    method=False,
    oracle=lambda torch, self, p, dim=None, keepdim=False: torch.linalg.vector_norm(
        self, p, dim, keepdim
    ),
    samples=lambda s: [
        s(s.tensor(3, 4), 3),
        s(s.tensor(2, 3, 4, strided=True), 1.5, dim=(0, -1)),
        s(s.tensor(3, 4, nonzero=True), 0.5, dim=1, keepdim=True),
        s(s.tensor(3, 4, nonzero=True), -2.0),
    ],
    errors=lambda s: dim_errors(s, p=3.0),
    doc="Compute `sum(abs(self)**p)**(1/p)` over dimensions.",
)  # fmt: skip


def _norm_slope(self: Any, result: Any, p: float, dim: Any, keepdim: bool) -> Any:
    """Return the derivative of a p-norm: sgn(x) * (abs(x) / norm)**(p - 1), zero where x is."""
    size = restore(result, self, dim, keepdim)
    ratio = self.abs() / size.masked_fill(size == 0, 1)
    ratio = ratio.masked_fill(self == 0, 1) ** (p - 1)
    return self.sgn() * ratio


norm_count = reduction(
    "norm_count(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="where(self == 0, 0, 1)",
    fold="sum",
    finalize="a",
    dtypes="floating complex",
    results=("real",),
    vjp={"self": lambda g, self_meta: g.new_zeros(self_meta.shape)},
    jvp=lambda result: result.new_zeros(result.shape),
    function=False,
    method=False,
    oracle=lambda torch, self, dim=None, keepdim=False: torch.linalg.vector_norm(
        self, 0, dim, keepdim
    ),
    samples=lambda s: [s(s.tensor(3, 4)), s(s.values([[0, 0], [3, 4]]), dim=1, keepdim=True)],
    errors=dim_errors,
    doc="Count the elements that are not zero, as a norm: its derivative is zero.",
)


def p_norm(self: Any, p: float, dim: Any, keepdim: bool) -> Any:
    """Compute a vector norm by the reduction that is made for its order."""
    if p == 2:
        return norm_euclidean(self, dim, keepdim)
    if p == 1:
        return self.abs().sum(dim, keepdim)
    if p == 0:
        return norm_count(self, dim, keepdim)
    if p == float("inf"):
        return self.abs().amax(() if dim is None else dim, keepdim)
    if p == -float("inf"):
        return self.abs().amin(() if dim is None else dim, keepdim)
    return norm_power(self, p, dim, keepdim)
