"""Functions of neural networks.

Here stand those that are more than an op: they choose the in-place form, or compose several.
Every other name is an op, found by `tangrad.ops.lookup`.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from tangrad.nn.multi_head import multi_head_attention_forward as multi_head_attention_forward
from tangrad.nn.scaled import ScalingType as ScalingType
from tangrad.nn.scaled import SwizzleType as SwizzleType
from tangrad.nn.scaled import scaled_grouped_mm as scaled_grouped_mm
from tangrad.nn.scaled import scaled_mm as scaled_mm
from tangrad.overrides import handle_torch_function as handle_torch_function
from tangrad.overrides import has_torch_function as has_torch_function
from tangrad.overrides import has_torch_function_unary as has_torch_function_unary
from tangrad.overrides import has_torch_function_variadic as has_torch_function_variadic
from tangrad.plugin import find_op, overridable, plain_ops


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "grad":
        from tangrad.nn import grad

        return grad
    try:
        op = find_op(name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = op
    return op


# Ops of the top level that belong here too.
_SHARED = (
    "adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity hardshrink "
    "native_channel_shuffle pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ "
    "rrelu_ selu_ sigmoid tanh threshold_"
)


def __dir__() -> list[str]:
    shown = {
        name
        for name, op in plain_ops().items()
        if op.definition.namespace == "nn" and op.definition.function and name[0] != "_"
    }
    return sorted({*shown, *_SHARED.split(), *globals()})


def _op(name: str) -> Any:
    """Return the op `name`, which a function of this module may wrap under the same name."""
    found = _ops.get(name)
    if found is None:
        found = _ops[name] = find_op(name)
    return found


_ops: dict[str, Any] = {}


# --- activations ------------------------------------------------------------------------------


def _activation(name: str, inplace: bool, *args: Any) -> Any:
    return _op(name + "_" if inplace else name)(*args)


def _reversible(name: str, inplace: bool, slope: float, result: Tensor) -> Tensor:
    """Refuse to go back through a negative slope in place, whose sign the result does not tell."""
    if inplace and slope < 0 and result.requires_grad:

        def refuse(grad: Tensor) -> None:
            raise RuntimeError(
                f"In-place {name} backward calculation is triggered with a negative slope "
                f"({slope}), which is not supported; call it with inplace=False"
            )

        result.register_hook(refuse)
    return result


@overridable
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(0, x), elementwise."""
    return _activation("relu", inplace, input)


@overridable
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return x where it is greater than `threshold`, `value` elsewhere."""
    return _activation("threshold", inplace, input, threshold, value)


@overridable
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Return the elements clamped to [min_val, max_val]; for integers these lose fractions.

    Raises:
        TypeError: if the input is no tensor.
        ValueError: if `min_val` is greater than `max_val`.
        RuntimeError: if `min_val` is negative and the input unsigned, or the input is bool.
    """
    if not isinstance(input, Tensor):
        raise TypeError(
            f"hardtanh(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype is tangrad.bool:
        raise RuntimeError("Bool inputs not supported for hardtanh: convert with .to(dtype)")
    if input.dtype.is_floating_point or input.is_quantized:
        return _activation("hardtanh", inplace, input, min_val, max_val)
    min_val, max_val = int(min_val), int(max_val)
    if min_val < 0 and not input.dtype.is_signed:
        raise RuntimeError(
            f"cannot do hardtanh on an unsigned type with negative limits: {input.dtype}, {min_val}"
        )
    return _activation("clamp", inplace, input, min_val, max_val)


@overridable
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Apply `hardtanh` in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


@overridable
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Return min(max(0, x), 6), elementwise."""
    return _activation("relu6", inplace, input)


@overridable
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return x where it is positive, `negative_slope` times x elsewhere."""
    made = _activation("leaky_relu", inplace, input, negative_slope)
    return _reversible("leaky_relu", inplace, negative_slope, made)


@overridable
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x where it is positive, `alpha` (exp(x) - 1) elsewhere."""
    return _reversible("elu", inplace, alpha, _activation("elu", inplace, input, alpha))


@overridable
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `elu` scaled so that it keeps mean 0 and variance 1 (arXiv:1706.02515)."""
    return _activation("selu", inplace, input)


@overridable
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x where it is positive, `alpha` (exp(x / alpha) - 1) elsewhere."""
    return _reversible("celu", inplace, alpha, _activation("celu", inplace, input, alpha))


@overridable
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x sigmoid(x), elementwise."""
    return _activation("silu", inplace, input)


@overridable
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x tanh(softplus(x)), elementwise."""
    return _activation("mish", inplace, input)


@overridable
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x / 6 + 1 / 2 clamped to [0, 1], elementwise."""
    return _activation("hardsigmoid", inplace, input)


@overridable
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x hardsigmoid(x), elementwise."""
    return _activation("hardswish", inplace, input)


def _softmax_dim(name: str, dimensions: int) -> int:
    import warnings

    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if dimensions in (0, 1, 3) else 1


@overridable
def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: tangrad.dtype | None = None
) -> Tensor:
    """Return exp(x) divided by its sum along `dim`.

    Args:
        input: the values.
        dim: dimension along which the results sum to 1.
        _stacklevel: ignored.
        dtype: dtype to which the input is converted first.
    """
    if dim is None:
        dim = _softmax_dim("softmax", input.dim())
    return _op("softmax")(input, dim, dtype)


@overridable
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: tangrad.dtype | None = None
) -> Tensor:
    """Return the logarithm of `softmax`, computed without overflow.

    Args:
        input: the values.
        dim: dimension along which the exponentials of the results sum to 1.
        _stacklevel: ignored.
        dtype: dtype to which the input is converted first.
    """
    if dim is None:
        dim = _softmax_dim("log_softmax", input.dim())
    return _op("log_softmax")(input, dim, dtype)


@overridable
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: tangrad.dtype | None = None
) -> Tensor:
    """Return `softmax` of the negated input."""
    return softmax(-input, dim, _stacklevel, dtype)


@overridable
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Return x where it is positive, a slope times x elsewhere.

    Args:
        input: the values.
        lower: least slope.
        upper: greatest slope.
        training: draw the slope of each element; else it is the middle of the range.
        inplace: write into the input.
    """
    return _activation("rrelu", inplace, input, lower, upper, training)


# --- compositions -----------------------------------------------------------------------------


@overridable
def normalize(
    input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Divide by the p-norm along `dim`.

    Args:
        input: the vectors.
        p: the norm's exponent.
        dim: dimension, or dimensions, of the vectors.
        eps: smallest divisor.
        out: tensor to write into.
    """
    norm = input.norm(p, dim, keepdim=True).clamp_min(eps)
    if out is None:
        return input / norm.expand_as(input)
    return tangrad.div(input, norm.expand_as(input), out=out)


@overridable
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Ask a negative to be farther from the anchor than the positive is, by a margin.

    Args:
        anchor: vectors (N, D) or (D).
        positive: vectors like the anchor.
        negative: vectors unlike the anchor.
        distance_function: of two tensors; default: `pairwise_distance`.
        margin: greater than 0.
        swap: take the distance of positive and negative where that is less.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: if `reduction` is none of these, or `margin` is not positive.
        RuntimeError: if the numbers of dimensions differ.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and "
            f"negative {negative.ndim}D inputs"
        )
    distance = distance_function or _op("pairwise_distance")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = tangrad.minimum(far, distance(positive, negative))
    loss = (near - far + margin).clamp(min=0)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


# --- patches ------------------------------------------------------------------------------------


@overridable
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Copy the sliding windows of images into columns.

    The method `Tensor.unfold` is something else: a view of windows along one dimension.

    Args:
        input: images (N, C, H, W) or (C, H, W).
        kernel_size: size of the windows.
        dilation: step between the elements of a window.
        padding: zeros on all sides.
        stride: step between windows.

    Returns:
        A tensor of shape (N, C prod(kernel_size), number of windows), or without N.
    """
    return _op("im2col")(input, kernel_size, dilation, padding, stride)


@overridable
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Add columns up where `unfold` took them from: its adjoint.

    Args:
        input: columns (N, C prod(kernel_size), number of windows), or without N.
        output_size: size of the images.
        kernel_size: size of the windows.
        dilation: step between the elements of a window.
        padding: zeros that surrounded the images.
        stride: step between windows.

    Returns:
        A tensor of shape (N, C, *output_size), or without N.
    """
    return _op("col2im")(input, output_size, kernel_size, dilation, padding, stride)


# --- older names --------------------------------------------------------------------------------


def _use_interpolate(name: str) -> None:
    import warnings

    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=3,
    )


@overridable
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resample to another size; use `interpolate`, which takes the same arguments."""
    _use_interpolate("upsample")
    return _op("interpolate")(input, size, scale_factor, mode, align_corners)


@overridable
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Resample by the nearest element; use `interpolate`."""
    _use_interpolate("upsample_nearest")
    return _op("interpolate")(input, size, scale_factor)


@overridable
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Resample images linearly, corners on corners; use `interpolate`."""
    _use_interpolate("upsample_bilinear")
    return _op("interpolate")(input, size, scale_factor, "bilinear", True)
