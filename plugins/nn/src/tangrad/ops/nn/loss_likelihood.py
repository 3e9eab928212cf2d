"""Define likelihoods of numbers: of counts, and of normally distributed ones."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.ops.nn.loss import _reduced, _reduction
from tangrad.plugin import Operand, Tensor, composite, op


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.poisson_nll_loss",
    samples=lambda s: (
        [
            s(s.tensor(2, 3), s.tensor(2, 3, low=0)),
            s(s.tensor(2, 3, low=0.1), s.tensor(2, 3, low=0), False, reduction="sum"),
            s(
                s.tensor(2, 3, strided=True),
                s.tensor(3, low=0, high=6),
                full=True,
                reduction="none",
            ),
            s(s.tensor(), s.tensor(low=2), full=True),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2), reduction="avg"), ValueError, "not a valid value"),
    ],
)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-08,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Take the negative log-likelihood of counts that are Poisson distributed.

    Args:
        input: the expected count, or its logarithm.
        target: the counts.
        log_input: whether the input is a logarithm.
        full: add the logarithm of the count's factorial, by Stirling's formula for counts above 1.
        eps: added to an expected count before its logarithm is taken.
        reduction: "mean", "sum" or "none".
    """
    reduction = _reduction(size_average, reduce, reduction)
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduced(loss, reduction)


def _variance_reference(np: Any, self: Any, eps: float) -> Any:
    if (self < 0).any():
        raise ValueError("var has negative entry/entries")
    return np.maximum(self, np.asarray(eps, dtype=self.dtype))


checked_variance = op(
    "checked_variance(Tensor self, float eps) -> Tensor",
    shape=lambda self: self.shape,
    reference=_variance_reference,
    vjp={"self": lambda g: g},
    jvp=lambda self_t: self_t,
    surrogate="a variance that was raised can still grow",
    batch="dims",
    function=False,
    method=False,
    oracle=lambda torch, x, eps: x + (x.detach().clamp(min=eps) - x.detach()),
    samples=lambda s: (
        [
            s(s.tensor(2, 3, low=0), 0.5),
            s(s.tensor(low=0), 1e-6),
            s(s.tensor(0, 2), 0.5),
            s(s.tensor(2, 3, low=0, strided=True), 1.0),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [(s(s.tensor(2, low=-2, high=-1), 0.5), ValueError, "negative entr")],
    doc="""Refuse negative variances and raise small ones to `eps`.

    The gradient passes as if nothing had been raised: such a variance can still grow.
    """,
)


def _variance_like(input: Any, var: Any) -> Any:
    """Bring a variance to a shape that broadcasts to the input, if its shape is one allowed."""
    ours, theirs = tuple(input.shape), tuple(var.shape)
    if ours == theirs:
        return var
    if ours[:-1] == theirs:
        return var.unsqueeze(-1)
    differing = [theirs[i] for i in range(len(theirs)) if ours[i : i + 1] != theirs[i : i + 1]]
    if len(ours) != len(theirs) or sum(differing) != 1:
        raise ValueError(
            f"var is of incorrect size: {list(theirs)} for input of size {list(ours)}; one "
            "dimension may be missing at the end or be 1"
        )
    return var


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.gaussian_nll_loss",
    samples=lambda s: (
        [
            s(s.tensor(2, 3), s.tensor(2, 3), s.tensor(2, 3, low=0)),
            s(s.tensor(2, 3), s.tensor(2, 3), s.tensor(2, 1, low=0), True, 0.5, reduction="none"),
            s(s.tensor(2, 3), s.tensor(3), s.tensor(2, low=0), reduction="sum"),
            s(s.tensor(2, 3, strided=True), s.tensor(2, 1), 0.5),
            s(s.tensor(2), s.tensor(2), 0.0, full=True),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2), s.tensor(3, low=0)), ValueError, "var is of incorrect size"),
        (s(s.tensor(2), s.tensor(2), s.tensor(2, low=-2, high=-1)), ValueError, "negative entr"),
        (s(s.tensor(2), s.tensor(2), -1.0), ValueError, "negative entr"),
        (s(s.tensor(2), s.tensor(2), 1.0, reduction="avg"), ValueError, "avg is not"),
    ],
)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Operand,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor:
    """Take the negative log-likelihood of normally distributed numbers.

    Nix, Weigend: "Estimating the mean and variance of the target probability distribution", 1994.

    Args:
        input: the expected numbers.
        target: the numbers.
        var: their variances, of the input's shape, of that shape with the last dimension missing
            or one dimension 1, or a number.
        full: add the constant log(2 pi) / 2.
        eps: least variance; gradients pass it.
        reduction: "mean", "sum" or "none".
    """
    if not isinstance(var, tangrad.Tensor):
        if var < 0:
            raise ValueError(f"var has negative entry/entries: {var}")
        var = tangrad.full_like(input, var)
    if not var.dtype.is_floating_point:
        raise RuntimeError(
            f"gaussian_nll_loss: var must be of a floating-point dtype, got {var.dtype}"
        )
    var = checked_variance(_variance_like(input, var), eps)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid: choose 'none', 'mean' or 'sum'")
    difference = input - target
    loss = 0.5 * (var.log() + difference * difference / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)
