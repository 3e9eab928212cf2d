"""Rounding to the values that a quantized tensor could have, for training with that in view."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Tensor, composite, get_intercept, pointwise

# A whole zero point is added `after` the rounding, a broken one `before`; the other of them is 0.
# The inverse of the scale comes as an operand, for it is rounded to float32, as the scale is.
_LEVEL = "(round(self * inverse + before) + after)"


def _in_torch(
    torch: Any,
    x: Any,
    scale: float,
    inverse: float,
    before: float,
    after: int,
    low: int,
    high: int,
) -> Any:
    """Say the same where every derivative is known: the gradient is that of the elements kept."""
    level = (x * inverse + before).round() + after
    kept = torch.where((level >= low) & (level <= high), x, 0)
    return kept + ((level.clamp(low, high) - before - after) * scale - kept).detach()


fake_quantize_elements = pointwise(
    "fake_quantize_elements(Tensor self, Operand scale, Operand inverse, Operand before,"
    " Operand after, Scalar quant_min, Scalar quant_max) -> Tensor",
    f"(fmin(fmax({_LEVEL}, quant_min), quant_max) - before - after) * scale",
    dtypes="floating",
    partials={
        "self": f"where(({_LEVEL} >= quant_min) & ({_LEVEL} <= quant_max), 1, 0)",
        "scale": "0",
        "inverse": "0",
        "before": "0",
        "after": "0",
    },
    beyond="wrapped",
    function=False,
    method=False,
    oracle=_in_torch,
    samples=lambda s: [s(s.tensor(3, 4), 0.25, 4.0, 0.0, 1, -4, 3)] if s.is_floating else [],
    doc="Round to a level between two, counted from a zero point in steps of `scale`.",
)


def _check(name: str, input: Any, quant_min: int, quant_max: int) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}; convert the input with .to(dtype)'
        )
    if quant_min > quant_max:
        raise RuntimeError(
            f"{name}: `quant_min` should be less than or equal to `quant_max`, "
            f"got {quant_min} and {quant_max}"
        )


def _computed(input: Any) -> Any:
    """Return the input in the dtype of the arithmetic: no scale is rounded to half precision."""
    return input if input.dtype == tangrad.float64 else input.float()


def _refuse_gradient(name: str, **constants: Any) -> None:
    for parameter, value in constants.items():
        if isinstance(value, tangrad.Tensor) and value.requires_grad:
            raise RuntimeError(
                f"The function '{name}' is not differentiable with respect to argument "
                f"'{parameter}'. This input cannot have requires_grad True; detach it."
            )


def _refuse_zero_point(name: str, found: str, quant_min: int, quant_max: int) -> None:
    raise RuntimeError(
        f"{name}: `zero_point` must be between `quant_min` and `quant_max`, "
        f"got {found} for {quant_min} and {quant_max}"
    )


def _require_levels(name: str, zero_point: Any, quant_min: int, quant_max: int) -> None:
    """Refuse other zero points, where numbers can be seen: not of shapes, nor under vmap."""
    stack = get_intercept()
    if zero_point.is_meta or (stack is not None and stack.levels):
        return
    if not ((zero_point >= quant_min) & (zero_point <= quant_max)).all():
        _refuse_zero_point(name, str(zero_point.tolist()), quant_min, quant_max)


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: (
        [
            s(s.tensor(3, 4), 0.1, 0, -8, 7),
            s(s.tensor(4, strided=True), 0.3, 3, 0, 255),
            s(s.tensor(0, 2), 0.1, 0, 0, 15),
            s(s.tensor(), 0.5, -1, -2, 1),
            s(s.specials(), 0.25, 2, 0, 15),
            s(
                s.tensor(5),
                s.tensor(1, low=0.1, high=0.2, dtype="float32"),
                s.integers(1, 3, 1),
                0,
                9,
            ),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), 0.1, 0, 7, -8), RuntimeError, "less than or equal"),
        (s(s.tensor(2), 0.1, 9, -8, 7), RuntimeError, "must be between"),
        (s(s.tensor(2), 0.1, 0.5, -8, 7), TypeError, "zero_point"),
        (
            s(s.tensor(2), _steps(s, 2), s.integers(0, 3, 1, dtype="int32"), -8, 7),
            RuntimeError,
            "scale must have one element",
        ),
        (s(s.integers(0, 3, 2), 0.1, 0, -8, 7), NotImplementedError, "not implemented"),
    ],
)
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """Round to the values of a quantized tensor; the gradient passes between the outer ones.

    Jacob et al.: "Quantization and training of neural networks for efficient
    integer-arithmetic-only inference", 2018.

    Args:
        input: what is rounded.
        scale: the distance of two values: a number, or a tensor of one element.
        zero_point: the level that stands for zero: an int, or a tensor of one element.
        quant_min: the lowest level.
        quant_max: the highest level.

    Raises:
        RuntimeError: the levels are none, or the zero point is not one of them.
        NotImplementedError: the input is not of a floating-point dtype.
    """
    name = "fake_quantize_per_tensor_affine"
    _check(name, input, quant_min, quant_max)
    _refuse_gradient(name, scale=scale, zero_point=zero_point)
    for parameter, value in (("scale", scale), ("zero_point", zero_point)):
        if isinstance(value, tangrad.Tensor) and value.numel() != 1:
            raise RuntimeError(
                f"{name}: {parameter} must have one element, but its shape is "
                f"{list(value.shape)}; take fake_quantize_per_channel_affine for several"
            )
    if isinstance(zero_point, tangrad.Tensor):
        zero_point = zero_point.reshape(()).float()
    elif not isinstance(zero_point, int):
        raise TypeError(
            f"{name}(): zero_point must be an int or a Tensor, not {type(zero_point).__name__}"
        )
    elif not quant_min <= zero_point <= quant_max:
        _refuse_zero_point(name, str(zero_point), quant_min, quant_max)
    if isinstance(scale, tangrad.Tensor):
        step = scale.reshape(()).float()
    elif not 0 < scale < float("inf"):
        raise RuntimeError(f"{name}: scale must be positive and finite, got {scale}")
    else:
        step = tangrad.tensor(scale, dtype=tangrad.float32, device=input.device)
    rounded = fake_quantize_elements(
        _computed(input), step, step.reciprocal(), 0.0, zero_point, quant_min, quant_max
    )
    if input.dtype == tangrad.float64:
        # PyTorch's values are numbers of float32; the gradient does not pass through that.
        return rounded + (rounded.float() - rounded).detach()
    return rounded.to(input.dtype)


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: (
        [
            s(s.tensor(3, 4), _steps(s, 3), s.integers(0, 3, 3, dtype="int32"), 0, -8, 7),
            s(s.tensor(2, 3, strided=True), _steps(s, 3), _steps(s, 3), 1, 0, 255),
            s(s.tensor(0, 2), _steps(s, 2), s.integers(0, 3, 2, dtype="int32"), 1, -8, 7),
            s(s.tensor(2), _steps(s, 2), s.integers(0, 3, 2, dtype="int32"), 0, -8, 7),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (_channels(s, axis=2), IndexError, "out of range"),
        (_channels(s, axis=-1), RuntimeError, "must be between 0"),
        (_channels(s, scale=s.tensor(2, dtype="float64")), RuntimeError, "Scale must be Float"),
        (_channels(s, zero_point=s.integers(0, 3, 2)), RuntimeError, "Zero-point must be Int32"),
        (_channels(s, zero_point=_steps(s, 3)), RuntimeError, "same dimensions"),
        (_channels(s, scale=_steps(s, 1, 2)), RuntimeError, "1-D tensor"),
        (_channels(s, axis=1), RuntimeError, "not consistent with input"),
        (
            _channels(s, zero_point=s.integers(9, 12, 2, dtype="int32")),
            RuntimeError,
            "must be between `quant_min`",
        ),
    ],
)
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Round to the values of a tensor that is quantized by channels; see the form per tensor.

    Args:
        input: what is rounded.
        scale: the distance of two values in each channel, float32 or bfloat16.
        zero_point: the level that stands for zero in each channel: int32, or broken ones in
            float32 or float16, which need not be levels.
        axis: the dimension of the channels, counted from the first.
        quant_min: the lowest level.
        quant_max: the highest level.

    Raises:
        RuntimeError: the levels are none, a whole zero point is not one of them, or the shapes or
            dtypes do not fit.
        IndexError: there is no dimension `axis`.
        NotImplementedError: the input is not of a floating-point dtype.
    """
    name = "fake_quantize_per_channel_affine"
    _check(name, input, quant_min, quant_max)
    _refuse_gradient(name, scale=scale, zero_point=zero_point)
    whole = zero_point.dtype == tangrad.int32
    _check_channels(name, input, scale, zero_point, axis)
    if whole:
        _require_levels(name, zero_point, quant_min, quant_max)
    shape = [1] * input.ndim
    shape[axis] = -1
    steps = scale.float().reshape(shape)
    zeros = zero_point.float().reshape(shape)
    before, after = (0.0, zeros) if whole else (zeros, 0.0)
    return fake_quantize_elements(
        _computed(input), steps, steps.reciprocal(), before, after, quant_min, quant_max
    ).to(input.dtype)


def _check_channels(name: str, input: Any, scale: Any, zero_point: Any, axis: int) -> None:
    if scale.dtype not in (tangrad.float32, tangrad.bfloat16):
        raise RuntimeError(f"{name}: Scale must be Float or BFloat16, found {scale.dtype}")
    if zero_point.dtype not in (tangrad.int32, tangrad.float32, tangrad.float16):
        raise RuntimeError(
            f"{name}: Zero-point must be Int32, Float or Half, found {zero_point.dtype}"
        )
    if scale.ndim != 1 or zero_point.ndim != 1:
        raise RuntimeError(
            f"{name}: scale and zero point should each be a 1-D tensor, got {scale.ndim} "
            f"and {zero_point.ndim} dimensions"
        )
    if scale.numel() != zero_point.numel():
        raise RuntimeError(
            f"{name}: scale and zero-point need to have the same dimensions, got "
            f"{scale.numel()} and {zero_point.numel()} elements"
        )
    if axis < 0:
        raise RuntimeError(
            f"{name}: `axis` must be between 0 and number of dimensions of input, got {axis}"
        )
    if axis >= input.ndim:
        raise IndexError(
            f"{name}: axis {axis} is out of range for an input of shape {list(input.shape)}, whose "
            f"dimensions count from 0 to {input.ndim - 1}"
        )
    if scale.numel() != input.size(axis):
        raise RuntimeError(
            f"{name}: dimensions of scale and zero-point are not consistent with input tensor: "
            f"{scale.numel()} and {input.size(axis)} channels"
        )


def _steps(s: Any, *shape: int) -> Any:
    return s.tensor(*shape, low=0.1, high=0.6, dtype="float32")


def _channels(s: Any, *, scale: Any = None, zero_point: Any = None, axis: int = 0) -> Any:
    """Make a call whose arguments fit, but for those that are given."""
    scale = _steps(s, 2) if scale is None else scale
    zero_point = s.integers(0, 3, 2, dtype="int32") if zero_point is None else zero_point
    return s(s.tensor(2, 3), scale, zero_point, axis, -8, 7)
