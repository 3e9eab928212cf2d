"""Normalization, and losses."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import broadcasting, operator
from tangrad_onnx.values import TENSOR_TYPES


def _over_channels(p: Any, x: Any) -> Any:
    return p.reshape(-1, *([1] * (x.ndim - 2)))


@operator()
def BatchNormalization(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    if not spatial:
        return ((x - mean) / tangrad.sqrt(var + epsilon) * scale + bias,)
    if not training_mode:
        factors: Any = (mean, var, scale, bias)
        if any(factor.dtype != x.dtype for factor in factors):
            factors = [factor.to(x.dtype) for factor in factors]
        return (F.batch_norm(x, *factors, False, 1 - momentum, epsilon),)
    dims = [i for i in range(x.ndim) if i != 1]
    wide = x.float() if x.element_size() == 2 else x
    spread, centre = tangrad.var_mean(wide, dims, correction=0)
    y = (wide - _over_channels(centre, x)) / tangrad.sqrt(_over_channels(spread, x) + epsilon)
    y = y * _over_channels(scale, x) + _over_channels(bias, x)
    new_mean = mean * momentum + centre.to(mean.dtype) * (1 - momentum)
    new_var = var * momentum + spread.to(var.dtype) * (1 - momentum)
    return y.to(x.dtype), new_mean, new_var


@operator()
def InstanceNormalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    spread, centre = tangrad.var_mean(x, tuple(range(2, x.ndim)), correction=0, keepdim=True)
    y = (x - centre) / tangrad.sqrt(spread + epsilon)
    return y * _over_channels(scale, x) + _over_channels(bias, x)


@operator()
def GroupNormalization(
    x: Any,
    scale: Any,
    bias: Any,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    of_groups: bool = False,
) -> Any:
    wide = x.to(TENSOR_TYPES[stash_type])
    rows = wide.reshape(x.shape[0], num_groups, -1)
    spread, centre = tangrad.var_mean(rows, -1, correction=0, keepdim=True)
    y = ((rows - centre) / tangrad.sqrt(spread + epsilon)).to(x.dtype)
    if of_groups:
        y = y * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)
        return y.reshape(x.shape)
    return y.reshape(x.shape) * _over_channels(scale, x) + _over_channels(bias, x)


@broadcasting()
def LayerNormalization(
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    statistics: bool = True,
) -> Any:
    dims = tuple(range(axis % x.ndim, x.ndim))
    shape = tuple(x.shape[dims[0] :])
    kind = TENSOR_TYPES[stash_type]
    same = kind == x.dtype and tuple(scale.shape) == shape
    same = same and (bias is None or tuple(bias.shape) == shape)
    if same and not statistics:
        return (F.layer_norm(x, shape, scale, bias, epsilon),)
    wide = x.to(TENSOR_TYPES[stash_type])
    spread, centre = tangrad.var_mean(wide, dims, correction=0, keepdim=True)
    inverse = tangrad.rsqrt(spread + epsilon)
    if same:
        return F.layer_norm(x, shape, scale, bias, epsilon), centre, inverse
    y = ((wide - centre) * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias), centre, inverse


@broadcasting()
def RMSNormalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    dims = tuple(range(axis % x.ndim, x.ndim))
    wide = x.to(TENSOR_TYPES[stash_type])
    y = wide * tangrad.rsqrt((wide * wide).mean(dims, keepdim=True) + epsilon)
    return y.to(x.dtype) * scale


@operator()
def LpNormalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    size = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return tangrad.where(size == 0, tangrad.zeros_like(x), x / tangrad.where(size == 0, 1, size))


@operator()
def MeanVarianceNormalization(x: Any, *, axes: Any = (0, 2, 3)) -> Any:
    centre = x.mean(tuple(axes), keepdim=True)
    square = (x * x).mean(tuple(axes), keepdim=True)
    return (x - centre) / (tangrad.sqrt(square - centre * centre) + 1e-9)


@operator()
def LRN(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    checked_count([max(size, 0), *x.shape], x.element_size())
    before = (size - 1) // 2
    widths = [0, 0] * (x.ndim - 2) + [before, size - 1 - before]
    squares = F.pad(x * x, widths)
    total = sum(squares.narrow(1, i, x.shape[1]) for i in range(size))
    return x / (bias + alpha / size * total) ** beta


@operator()
def NegativeLogLikelihoodLoss(
    scores: Any,
    target: Any,
    weight: Any = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:
    kinds = target.to(tangrad.int64)
    ignored = tangrad.zeros_like(kinds, dtype=tangrad.bool)
    if ignore_index is not None:
        ignored = kinds == ignore_index
        kinds = tangrad.where(ignored, tangrad.zeros_like(kinds), kinds)
    if weight is None:
        weight = tangrad.ones(scores.shape[1], dtype=scores.dtype, device=scores.device)
    weights = tangrad.where(ignored, tangrad.zeros((), dtype=scores.dtype), weight[kinds])
    loss = -scores.gather(1, kinds.unsqueeze(1)).squeeze(1) * weights
    # A score of an ignored place may be infinite.
    loss = tangrad.where(ignored, tangrad.zeros_like(loss), loss)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / weights.sum()


@operator()
def SoftmaxCrossEntropyLoss(
    scores: Any,
    labels: Any,
    weights: Any = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:
    logs = tangrad.log_softmax(scores, 1)
    loss = NegativeLogLikelihoodLoss(
        logs, labels, weights, reduction=reduction, ignore_index=ignore_index
    )
    return loss, logs
