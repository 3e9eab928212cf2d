"""Fake quantization whose scale is observed in the same call, or learned by its own gradient."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Tensor, composite
from tangrad_quantization import qparams

_COMMON: dict[str, Any] = {"method": False, "samples": lambda s: []}


@composite(**_COMMON)
def fused_moving_avg_obs_fake_quant(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """Observe a tensor by moving averages of its ends, and round it by their scale.

    Args:
        self: floating point.
        observer_on: one element; not 0: update the averages.
        fake_quant_on: one element; not 0: write the scale and zero point of the averages and
            round by them, else return the tensor as it is.
        running_min: averages of the smallest elements, written to; infinity before the first.
        running_max: averages of the largest.
        scale: float32, written to.
        zero_point: int32, written to.
        averaging_const: the weight of the new ends.
        quant_min: the lowest integer.
        quant_max: the highest.
        ch_axis: the dimension of the channels.
        per_row_fake_quant: whether each channel has a scale of its own.
        symmetric_quant: whether the middle of the integers stands for zero.

    Raises:
        RuntimeError: an averaging constant outside 0 to 1, or no such dimension.
    """
    name = "fused_moving_avg_obs_fake_quant"
    if per_row_fake_quant and not -self.dim() <= ch_axis < self.dim():
        raise RuntimeError(
            f"{name}: ch_axis {ch_axis} is no dimension of a tensor of shape {list(self.shape)}"
        )
    if not 0 <= averaging_const <= 1:
        raise RuntimeError(f"{name}: averaging_const must lie in 0 to 1, got {averaging_const}")
    with tangrad.no_grad():
        if int(observer_on.item()):
            _observe(
                self.detach(),
                running_min,
                running_max,
                averaging_const,
                ch_axis,
                per_row_fake_quant,
            )
        rounded = bool(fake_quant_on.item())
        if rounded:
            _choose(
                running_min, running_max, scale, zero_point, quant_min, quant_max, symmetric_quant
            )
    if not rounded:
        return self.clone()
    if per_row_fake_quant:
        axis = ch_axis % self.dim()
        return tangrad.fake_quantize_per_channel_affine(
            self, scale, zero_point, axis, quant_min, quant_max
        )
    return tangrad.fake_quantize_per_tensor_affine(self, scale, zero_point, quant_min, quant_max)


def _observe(x: Any, low: Any, high: Any, weight: float, ch_axis: int, by_channel: bool) -> None:
    """Move averages towards the ends of a tensor, or of each of its channels."""
    rows = x.movedim(ch_axis, 0).flatten(1) if by_channel else x.reshape(1, -1)
    if not rows.numel():
        return
    smallest, largest = (found.to(tangrad.float32) for found in tangrad.aminmax(rows, dim=1))
    for average, seen in ((low, smallest), (high, largest)):
        if average.numel() != seen.numel():
            average.resize_(seen.shape)
            average.fill_(float("inf"))
        seen = seen.reshape(average.shape)
        moved = average + weight * (seen - average)
        average.copy_(tangrad.where(average.isinf(), seen, moved))


def _choose(
    low: Any, high: Any, scale: Any, zero_point: Any, qmin: int, qmax: int, symmetric: bool
) -> None:
    """Write the scales and zero points of ranges."""
    ends = zip(low.reshape(-1).tolist(), high.reshape(-1).tolist(), strict=True)
    chosen = [qparams.choose(a, b, qmin, qmax, symmetric=symmetric) for a, b in ends]
    for target, column in ((scale, 0), (zero_point, 1)):
        if target.numel() != len(chosen):
            target.resize_(len(chosen))
        made = tangrad.tensor([pair[column] for pair in chosen], dtype=target.dtype)
        target.copy_(made.reshape(target.shape))


@composite(**_COMMON)
def _fake_quantize_learnable_per_tensor_affine(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Round to the values of a quantized tensor, with gradients of scale and zero point.

    Esser et al.: "Learned step size quantization", 2020; Bhalgat et al.: "LSQ+", 2020.

    Args:
        self: float32.
        scale: float32, one element.
        zero_point: floating point, one element; rounded before it is used.
        quant_min: the lowest integer.
        quant_max: the highest.
        grad_factor: what the gradients of scale and zero point are multiplied by.

    Raises:
        RuntimeError: the levels are none, or scale or zero point have several elements.
    """
    name = "_fake_quantize_learnable_per_tensor_affine"
    for said, value in (("scale", scale), ("zero_point", zero_point)):
        if value.numel() != 1:
            raise RuntimeError(
                f"{name}: {said} must have one element, but its shape is {list(value.shape)}"
            )
    return _learned(name, self, scale, zero_point, None, quant_min, quant_max, grad_factor)


@composite(**_COMMON)
def _fake_quantize_learnable_per_channel_affine(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Round each channel to its own values, with gradients of scales and zero points.

    Args:
        self: float32.
        scale: float32, one for each channel.
        zero_point: floating point, one for each channel; rounded before it is used.
        axis: the dimension of the channels.
        quant_min: the lowest integer.
        quant_max: the highest.
        grad_factor: what the gradients of scales and zero points are multiplied by.

    Raises:
        RuntimeError: the levels are none, or there are not as many scales as channels.
    """
    name = "_fake_quantize_learnable_per_channel_affine"
    if not 0 <= axis < self.dim():
        raise RuntimeError(
            f"{name}: axis {axis} is no dimension of a tensor of shape {list(self.shape)}"
        )
    for said, value in (("scale", scale), ("zero_point", zero_point)):
        if tuple(value.shape) != (self.shape[axis],):
            raise RuntimeError(
                f"{name}: {said} must have one element for each of the {self.shape[axis]} "
                f"channels of axis {axis}, but its shape is {list(value.shape)}"
            )
    return _learned(name, self, scale, zero_point, axis, quant_min, quant_max, grad_factor)


def _learned(
    name: str,
    x: Any,
    scale: Any,
    zero_point: Any,
    axis: int | None,
    low: int,
    high: int,
    factor: float,
) -> Any:
    if x.dtype != tangrad.float32 or scale.dtype != tangrad.float32:
        raise RuntimeError(
            f"{name}: expected input and scale of float32, got {x.dtype} and {scale.dtype}; "
            f"call .float()"
        )
    if low > high:
        raise RuntimeError(
            f"{name}: `quant_min` must be less than or equal to `quant_max`, got {low} and {high}"
        )
    if not bool((scale > 0).all()):
        raise RuntimeError(f"{name}: scale must be positive, got {scale.tolist()}")
    return _LearnedRounding.apply(x, scale, zero_point, axis, low, high, factor)


class _LearnedRounding(tangrad.autograd.Function):
    """Rounding with the gradients of LSQ+."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Any,
        scale: Any,
        zero: Any,
        axis: int | None,
        low: int,
        high: int,
        factor: float,
    ) -> Any:
        over = [1] * x.dim()
        if axis is not None:
            over[axis] = -1
        step, level = scale.reshape(over), zero.reshape(over).to(tangrad.float32)
        whole = (level + 0.5).clamp(low, high).trunc()
        ctx.save_for_backward(x, step, level.round().clamp(low, high), scale, zero)
        ctx.rest = axis, low, high, factor
        return ((x * (1 / step)).round() + whole).clamp(low, high).sub(whole) * step

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, step, level, scale, zero = ctx.saved_tensors
        axis, low, high, factor = ctx.rest
        levels = (x * (1 / step)).round() + level
        below, above = levels < low, levels > high
        inside = ~(below | above)
        by_step = ((levels - level) * step - x) / step
        by_step = tangrad.where(below, low - level, tangrad.where(above, high - level, by_step))
        by_level = tangrad.where(inside, tangrad.zeros_like(step), -step)
        dims = [d for d in range(x.dim()) if d != axis]
        found = [
            ((grad * by).sum(dims) if dims else grad * by).mul(factor) for by in (by_step, by_level)
        ]
        return (
            grad * inside,
            found[0].reshape(scale.shape),
            found[1].reshape(zero.shape).to(zero.dtype),
            *(None,) * 4,
        )
