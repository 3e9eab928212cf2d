"""Regression losses: pointwise functions of a residual, and their reduction."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.loss import _reduced, _reduction
from tangrad.plugin import Tensor, composite, pointwise


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


def _check_sizes(name: str, input: Any, target: Any) -> None:
    """Warn where sizes differ.

    Raises:
        RuntimeError: if they cannot be broadcast.
    """
    if input.shape != target.shape:
        import warnings

        for a, b in zip(reversed(input.shape), reversed(target.shape), strict=False):
            if a != b and a != 1 and b != 1:
                raise RuntimeError(
                    f"{name}: The size of tensor a ({a}) must match the size of tensor b ({b}): "
                    f"input has shape {list(input.shape)} and target {list(target.shape)}; reshape "
                    "one of them"
                )
        warnings.warn(
            f"Using a target size ({tuple(target.shape)}) that is different to the input size "
            f"({tuple(input.shape)}): they are broadcast, which is rarely what a loss should do. "
            "Please ensure they have the same size.",
            UserWarning,
            stacklevel=4,
        )


def _promoted(name: str, input: Any, target: Any) -> tuple[Any, Any]:
    """Bring both to one dtype, to which a 0-d tensor counts as any other; bools are numbers.

    Raises:
        NotImplementedError: if neither is a real floating-point number.
        RuntimeError: if their sizes cannot be broadcast.
    """
    _check_sizes(name, input, target)
    dtype = input.dtype
    if target.dtype != dtype:
        dtype = tangrad.promote_types(dtype, target.dtype)
        input, target = input.to(dtype), target.to(dtype)
    if not dtype.is_floating_point:
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype} and {target.dtype}; convert with '
            ".to(dtype)"
        )
    return input, target


def _loss_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(3, 4), s.tensor(3, 4), reduction="sum"),
        s(s.tensor(2, 3, strided=True), s.tensor(2, 3), reduction="none"),
        s(s.tensor(), s.tensor()),
    ]


def _loss_errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(2), s.tensor(2), reduction="product"), ValueError, "product"),
        (s(s.tensor(2, 3), s.tensor(4)), RuntimeError, "loss: .* must match|must match the size"),
    ]


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.mse_loss",
    samples=_loss_samples,
    errors=_loss_errors,
)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the mean squared error `mean((input - target)**2)`."""
    input, target = _promoted("mse_loss", input, target)
    reduction = _reduction(size_average, reduce, reduction)
    # Of halves PyTorch rounds the difference, too, which one op would not.
    halves = input.dtype.itemsize < 4
    squares = (input - target).square() if halves else squared_difference(input, target)
    return _weighted(squares, weight, reduction)


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.l1_loss",
    samples=_loss_samples,
    errors=_loss_errors,
)
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the mean absolute error `mean(abs(input - target))`."""
    _check_sizes("l1_loss", input, target)
    reduction = _reduction(size_average, reduce, reduction)
    dtype = tangrad.promote_types(input.dtype, target.dtype)
    if not (input.dtype is tangrad.bool or target.dtype is tangrad.bool):
        input, target = input.to(dtype), target.to(dtype)
    real = input.dtype.is_floating_point and target.dtype.is_floating_point
    # Rounding a half before or after taking its absolute value is the same.
    errors = absolute_difference(input, target) if real else (input - target).abs()
    return _weighted(errors, weight, reduction)


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.huber_loss",
    samples=lambda s: [*_loss_samples(s), s(s.tensor(3, 4), s.tensor(3, 4), delta=0.5)],
    errors=_loss_errors,
)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the Huber loss (1964): quadratic up to `delta`, linear with slope `delta` beyond."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    dtype = input.dtype if input.dtype.is_floating_point else target.dtype
    input, target = _promoted("huber_loss", input, target)
    reduction = _reduction(None, None, reduction)
    if input.dtype is tangrad.bfloat16:  # PyTorch rounds every step
        delta = _rounded(delta, input.dtype)
        loss = huber_of_bfloat16(input, target, delta)
    else:
        loss = huber_difference(input, target, delta).to(dtype)
    return _weighted(loss, weight, reduction)


@composite(
    namespace="nn",
    method=False,
    oracle="nn.functional.smooth_l1_loss",
    samples=lambda s: [*_loss_samples(s), s(s.tensor(3, 4), s.tensor(3, 4), beta=0.5)],
    errors=_loss_errors,
)
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Compute the Huber loss with `delta=beta`, divided by `beta` (Girshick, 2015)."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    input, target = _promoted("smooth_l1_loss", input, target)
    reduction = _reduction(size_average, reduce, reduction)
    if beta == 0:
        return _reduced(absolute_difference(input, target), reduction)
    if input.dtype is tangrad.float16:  # PyTorch rounds every step, but not in bfloat16
        beta = _rounded(beta, input.dtype)
        return _reduced(smooth_of_float16(input, target, beta), reduction)
    return _reduced(smooth_difference(input, target, beta), reduction)


def _rounded(number: float, dtype: Any) -> float:
    return float(tangrad.tensor(number, dtype=dtype).item())


# Functions of a difference, in one pass.


def _difference_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4), s.tensor(3, 4), 1.0),
        s(s.tensor(3, 4), s.tensor(4), 0.5),
        s(s.tensor(), s.tensor(), 1.0),
        s(s.tensor(0, 3), s.tensor(3), 1.0),
        s(s.tensor(3, 4, strided=True), s.tensor(3, 4), 2.0),
    ]


squared_difference = pointwise(
    "squared_difference(Tensor input, Tensor target) -> Tensor",
    "difference = input - target; difference * difference",
    dtypes="floating",
    function=False,
    method=False,
    oracle=lambda torch, x, y: (x - y).square(),
    samples=lambda s: s.binary(number=False) if s.dtype in ("float32", "float64") else [],
    doc="Square the difference of two tensors.",
)

absolute_difference = pointwise(
    "absolute_difference(Tensor input, Tensor target) -> Tensor",
    "abs(input - target)",
    dtypes="floating",
    function=False,
    method=False,
    oracle=lambda torch, x, y: (x - y).abs(),
    samples=lambda s: s.binary(number=False) if "float" in s.dtype else [],
    doc="Take the absolute value of the difference of two tensors.",
)

huber_difference = pointwise(
    "huber_difference(Tensor input, Tensor target, Scalar delta) -> Tensor",
    "difference = input - target; size = abs(difference); "
    "where(size < delta, 0.5 * difference * difference, delta * (size - 0.5 * delta))",
    dtypes="floating",
    partials={
        "input": "minimum(maximum(input - target, -delta), delta)",
        "target": "-minimum(maximum(input - target, -delta), delta)",
    },
    function=False,
    method=False,
    oracle=lambda torch, x, y, delta: torch.nn.functional.huber_loss(
        *torch.broadcast_tensors(x, y), reduction="none", delta=delta
    ),
    samples=_difference_samples,
    doc="Apply Huber's function to a difference: quadratic up to `delta`, linear beyond.",
)

smooth_difference = pointwise(
    "smooth_difference(Tensor input, Tensor target, float beta) -> Tensor",
    "difference = input - target; size = abs(difference); "
    "where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta)",
    dtypes="floating",
    partials={
        "input": "minimum(maximum((input - target) / beta, -1), 1)",
        "target": "-minimum(maximum((input - target) / beta, -1), 1)",
    },
    function=False,
    method=False,
    oracle=lambda torch, x, y, beta: torch.nn.functional.smooth_l1_loss(
        *torch.broadcast_tensors(x, y), reduction="none", beta=beta
    ),
    samples=_difference_samples,
    doc="Apply Huber's function to a difference, divided by `beta`: slopes of 1 beyond `beta`.",
)

huber_of_bfloat16 = pointwise(
    "huber_of_bfloat16(Tensor input, Tensor target, Scalar delta) -> Tensor",
    "difference = cast(input - target, 'bfloat16'); size = abs(difference); "
    "middle = cast(size - 0.5 * delta, 'bfloat16'); "
    "where(size < delta, 0.5 * size * size, delta * middle)",
    dtypes="floating",
    partials={
        "input": "minimum(maximum(cast(input - target, 'bfloat16'), -delta), delta)",
        "target": "-minimum(maximum(cast(input - target, 'bfloat16'), -delta), delta)",
    },
    function=False,
    method=False,
    oracle=huber_difference.definition.oracle,
    samples=lambda s: _difference_samples(s) if s.dtype == "bfloat16" else [],
    doc="Apply Huber's function to a difference, rounding as PyTorch rounds bfloat16.",
)

smooth_of_float16 = pointwise(
    "smooth_of_float16(Tensor input, Tensor target, float beta) -> Tensor",
    "difference = cast(input - target, 'float16'); size = abs(difference); "
    "where(size < beta, cast(0.5 * size * size, 'float16') / beta, size - 0.5 * beta)",
    dtypes="floating",
    partials={
        "input": "minimum(maximum(cast(input - target, 'float16') / beta, -1), 1)",
        "target": "-minimum(maximum(cast(input - target, 'float16') / beta, -1), 1)",
    },
    function=False,
    method=False,
    oracle=smooth_difference.definition.oracle,
    samples=lambda s: _difference_samples(s) if s.dtype == "float16" else [],
    doc="Apply Huber's function, divided by `beta`, rounding as PyTorch rounds float16.",
)

for _part, _loss in (
    (squared_difference, "mse_loss"),
    (absolute_difference, "l1_loss"),
    (huber_difference, "huber_loss"),
    (smooth_difference, "smooth_l1_loss"),
    (huber_of_bfloat16, "huber_loss"),
    (smooth_of_float16, "smooth_l1_loss"),
):
    _part.title = _loss  # in messages, for nobody calls the parts by name
