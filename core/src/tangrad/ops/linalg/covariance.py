"""Covariance and correlation of observations."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad import ops
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.refusal import refuse_values


def _check_weights(name: str, weights: Any, columns: int, integral: bool) -> None:
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
            f"{weights.ndim} dimensions"
        )
    floating = weights.dtype.is_floating_point
    if weights.dtype.is_complex or weights.dtype == tangrad.bool or floating == integral:
        kind = "integral" if integral else "floating point"
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {weights.dtype} dtype"
        )
    if weights.numel() != columns:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input "
            f"but got {weights.numel()} != {columns}"
        )
    refuse_values(~(weights >= 0), f"cov(): {name} cannot be negative, nor NaN")


@composite(
    samples=lambda s: [
        *([] if s.is_bool else [s(s.tensor(3, 4)), s(s.tensor(2, 4, strided=True), correction=0)]),
        *(
            [
                s(s.tensor(5)),
                s(s.tensor(2, 3), fweights=s.values([1, 2, 1], dtype="int64")),
                s(s.tensor(2, 3), aweights=s.values([0.5, 1, 2], dtype="float64")),
            ]
            if s.dtype in ("float64", "complex128")
            else []
        ),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2, 2)), RuntimeError, "two or fewer"),
        (s(s.tensor(2, 2, dtype="bool")), RuntimeError, "bool"),
        (s(s.tensor(2, 2), fweights=s.tensor(2, dtype="float32")), RuntimeError, "integral dtype"),
        (s(s.tensor(2, 2), aweights=s.tensor(3)), RuntimeError, "same numel"),
    ],
)
def cov(
    self: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Estimate the covariance matrix of variables (rows) from observations (columns).

    Args:
        self: (variables, observations), or the observations of one variable.
        correction: subtracted from the number of observations.
        fweights: how often each observation was made. aweights: how much each one counts.
    """
    if self.ndim > 2:
        raise RuntimeError(
            "cov(): expected input to have two or fewer dimensions but got an input with "
            f"{self.ndim} dimensions"
        )
    if self.dtype == tangrad.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = self.reshape((1, -1)) if self.ndim < 2 else self
    count = x.shape[1]
    weights = None
    if fweights is not None:
        _check_weights("fweights", fweights, count, True)
        weights = fweights.reshape((-1,))
    if aweights is not None:
        _check_weights("aweights", aweights, count, False)
        aweights = aweights.reshape((-1,))
        weights = aweights if weights is None else weights * aweights
    if weights is None:
        if count <= correction:
            warnings.warn(
                "cov: degrees of freedom is <= 0; the correction should be less than the number "
                f"of observations, {count}",
                UserWarning,
                stacklevel=4,
            )
        total: Any = count
        mean = x.sum(1, keepdim=True) / count
        freedom: Any = max(count - correction, 0)
    else:
        total = weights.sum()
        refuse_values(total == 0, "cov(): weights sum to zero, can't be normalized")
        mean = (x * weights).sum(1, keepdim=True) / total
        if aweights is None or correction == 0:
            freedom = total - correction
        else:
            part = (weights * aweights).sum() / total
            freedom = total - correction * part
        freedom = freedom.clamp(min=0)
    moved = x - mean
    weighted = moved if weights is None else moved * weights
    covariance = weighted.mm(moved.t().conj().to(weighted.dtype)) / freedom
    return covariance.squeeze()


@composite(
    samples=lambda s: (
        [] if s.is_bool else [s(s.tensor(3, 5)), s(s.tensor(2, 4, strided=True)), s(s.tensor(6))]
    ),
    errors=lambda s: [(s(s.tensor(2, 2, 2)), RuntimeError, "two or fewer")],
)
def corrcoef(self: Tensor) -> Tensor:
    """Estimate the correlation coefficients of variables (rows) from observations (columns)."""
    if self.ndim > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{self.ndim} dimensions"
        )
    covariance = tangrad.cov(self)
    if covariance.ndim == 0:
        return covariance / covariance
    variance = covariance.diagonal()
    deviation = (variance.real if variance.dtype.is_complex else variance).sqrt()
    quotient = covariance / deviation.unsqueeze(-1) / deviation.unsqueeze(0)
    if quotient.dtype.is_complex:
        return ops.complex(quotient.real.clamp(-1, 1), quotient.imag.clamp(-1, 1))
    return quotient.clamp(-1, 1)
