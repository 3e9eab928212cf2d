"""Regression losses: pointwise functions of a residual, and their reduction."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.define import composite, pointwise
from tangrad.ops.loss import _reduced, _reduction


def _weighted(loss: Any, weight: Any, reduction: str) -> Any:
    """Reduce elementwise losses; with weights, the mean is the weighted one."""
    if weight is None:
        return _reduced(loss, reduction)
    if tuple(weight.shape) != tuple(loss.shape):
        raise ValueError(
            f"Weights and input must have the same size, got {list(weight.shape)} and "
            f"{list(loss.shape)}"
        )
    if reduction == "mean":
        return (loss * weight).sum() / weight.expand_as(loss).sum()
    return _reduced(loss * weight, reduction)


def _warn_of_sizes(input: Any, target: Any) -> None:
    if input.shape != target.shape:
        import warnings

        warnings.warn(
            f"Using a target size ({tuple(target.shape)}) that is different to the input size "
            f"({tuple(input.shape)}): they are broadcast, which is rarely what a loss should do.",
            UserWarning,
            stacklevel=4,
        )


def _residual(name: str, input: Any, target: Any, wide: bool = False) -> Any:
    """Subtract after broadcasting, so that a 0-d tensor counts in promotion; bools are numbers.

    Args:
        name: of the loss.
        input, target: of any dtypes.
        wide: whether halves give float32, so that what follows is rounded once.

    Raises:
        NotImplementedError: if neither is a real floating-point number.
    """
    _warn_of_sizes(input, target)
    dtype = input.dtype
    if target.dtype != dtype:
        dtype = tangrad.promote_types(dtype, target.dtype)
        input, target = input.to(dtype), target.to(dtype)
    if not dtype.is_floating_point:
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype} and {target.dtype}; convert with '
            ".to(dtype)"
        )
    if wide and dtype.itemsize < 4:
        return input.float() - target.float()
    return input - target


def _loss_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(3, 4), s.tensor(3, 4), reduction="sum"),
        s(s.tensor(2, 3, strided=True), s.tensor(2, 3), reduction="none"),
        s(s.tensor(), s.tensor()),
    ]


def _loss_errors(s: Any) -> list[Any]:
    return [(s(s.tensor(2), s.tensor(2), reduction="product"), ValueError, "product")]


@composite(
    "mse_loss(Tensor input, Tensor target, any size_average=None, any reduce=None, "
    "str reduction='mean', Tensor? weight=None) -> Tensor",
    namespace="nn",
    method=False,
    oracle="nn.functional.mse_loss",
    samples=_loss_samples,
    errors=_loss_errors,
)
def mse_loss(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    """Compute the mean squared error `mean((input - target)**2)`."""
    difference = _residual("mse_loss", input, target)
    reduction = _reduction(size_average, reduce, reduction)
    return _weighted(difference.square(), weight, reduction)


@composite(
    "l1_loss(Tensor input, Tensor target, any size_average=None, any reduce=None, "
    "str reduction='mean', Tensor? weight=None) -> Tensor",
    namespace="nn",
    method=False,
    oracle="nn.functional.l1_loss",
    samples=_loss_samples,
    errors=_loss_errors,
)
def l1_loss(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    """Compute the mean absolute error `mean(abs(input - target))`."""
    _warn_of_sizes(input, target)
    reduction = _reduction(size_average, reduce, reduction)
    dtype = tangrad.promote_types(input.dtype, target.dtype)
    if not (input.dtype is tangrad.bool or target.dtype is tangrad.bool):
        input, target = input.to(dtype), target.to(dtype)
    return _weighted((input - target).abs(), weight, reduction)


@composite(
    "huber_loss(Tensor input, Tensor target, str reduction='mean', float delta=1.0, "
    "Tensor? weight=None) -> Tensor",
    namespace="nn",
    method=False,
    oracle="nn.functional.huber_loss",
    samples=lambda s: [*_loss_samples(s), s(s.tensor(3, 4), s.tensor(3, 4), delta=0.5)],
    errors=_loss_errors,
)
def huber_loss(
    input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    """Compute the Huber loss (1964): quadratic up to `delta`, linear with slope `delta` beyond."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    difference = _residual("huber_loss", input, target, wide=True)
    reduction = _reduction(None, None, reduction)
    loss = huber(difference, delta)
    loss = loss.to(input.dtype if input.dtype.is_floating_point else target.dtype)
    return _weighted(loss, weight, reduction)


@composite(
    "smooth_l1_loss(Tensor input, Tensor target, any size_average=None, any reduce=None, "
    "str reduction='mean', float beta=1.0) -> Tensor",
    namespace="nn",
    method=False,
    oracle="nn.functional.smooth_l1_loss",
    samples=lambda s: [*_loss_samples(s), s(s.tensor(3, 4), s.tensor(3, 4), beta=0.5)],
    errors=_loss_errors,
)
def smooth_l1_loss(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Any:
    """Compute the Huber loss with `delta=beta`, divided by `beta` (Girshick, 2015)."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    difference = _residual("smooth_l1_loss", input, target)
    reduction = _reduction(size_average, reduce, reduction)
    if beta == 0:
        return _reduced(difference.abs(), reduction)
    loss = huber(difference, beta)
    loss = loss if beta == 1 else loss / beta
    return _reduced(loss, reduction)


huber = pointwise(
    "huber(Tensor self, Scalar delta) -> Tensor",
    "where(abs(self) < delta, 0.5 * self * self, delta * (abs(self) - 0.5 * delta))",
    dtypes="floating",
    partials={"self": "minimum(maximum(self, -delta), delta)"},
    function=False,
    method=False,
    oracle=lambda torch, x, delta: torch.nn.functional.huber_loss(
        x, torch.zeros_like(x), reduction="none", delta=delta
    ),
    samples=lambda s: [s(s.tensor(3, 4), 1.0), s(s.tensor(3, 4), 0.5)],
    doc="Apply Huber's function of a residual: quadratic up to `delta`, linear beyond.",
)
