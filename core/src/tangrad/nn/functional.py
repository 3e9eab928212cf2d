"""Functions of neural networks.

Here stand those that are more than an op: they choose the in-place form, or compose several.
Every other name is an op, found by `tangrad.ops.lookup`.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import ops


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        op = ops.lookup(name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = op
    return op


def _op(name: str) -> Any:
    """Return the op `name`, which a function of this module may wrap under the same name."""
    found = _ops.get(name)
    if found is None:
        found = _ops[name] = ops.lookup(name)
    return found


_ops: dict[str, Any] = {}


# --- activations ------------------------------------------------------------------------------


def _activation(name: str, inplace: bool, *args: Any) -> Any:
    return _op(name + "_" if inplace else name)(*args)


def relu(input: Any, inplace: bool = False) -> Any:
    """Return max(0, x), elementwise."""
    return _activation("relu", inplace, input)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    """Return x where it is greater than `threshold`, `value` elsewhere."""
    return _activation("threshold", inplace, input, threshold, value)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """Return the elements clamped to [min_val, max_val].

    Raises:
        ValueError: if `min_val` is greater than `max_val`.
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _activation("hardtanh", inplace, input, min_val, max_val)


def relu6(input: Any, inplace: bool = False) -> Any:
    """Return min(max(0, x), 6), elementwise."""
    return _activation("hardtanh", inplace, input, 0, 6)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """Return x where it is positive, `negative_slope` times x elsewhere."""
    return _activation("leaky_relu", inplace, input, negative_slope)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """Return x where it is positive, `alpha` (exp(x) - 1) elsewhere."""
    return _activation("elu", inplace, input, alpha)


def selu(input: Any, inplace: bool = False) -> Any:
    """Return `elu` scaled so that it keeps mean 0 and variance 1 (arXiv:1706.02515)."""
    return _activation("selu", inplace, input)


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """Return x where it is positive, `alpha` (exp(x / alpha) - 1) elsewhere."""
    return _activation("celu", inplace, input, alpha)


def silu(input: Any, inplace: bool = False) -> Any:
    """Return x sigmoid(x), elementwise."""
    return _activation("silu", inplace, input)


def mish(input: Any, inplace: bool = False) -> Any:
    """Return x tanh(softplus(x)), elementwise."""
    return _activation("mish", inplace, input)


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """Return x / 6 + 1 / 2 clamped to [0, 1], elementwise."""
    return _activation("hardsigmoid", inplace, input)


def hardswish(input: Any, inplace: bool = False) -> Any:
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


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
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


def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
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


def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """Return `softmax` of the negated input."""
    return softmax(-input, dim, _stacklevel, dtype)


# --- compositions -----------------------------------------------------------------------------


def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
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


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Return x1^T A x2 + b.

    Args:
        input1: of shape (*, I).
        input2: of shape (*, J).
        weight: A, of shape (O, I, J).
        bias: b, of shape (O).

    Returns:
        A tensor of shape (*, O).
    """
    output = tangrad.einsum("...i,oij,...j->...o", [input1, weight, input2])
    return output if bias is None else output + bias


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Look rows of `weight` up.

    Args:
        input: integers of shape (*).
        weight: table of shape (V, D).
        padding_idx: row that gets no gradient.
        max_norm: norm to which the looked-up rows are shortened, in place.
        norm_type: p of that p-norm.
        scale_grad_by_freq: divide gradients by how often an index occurs.
        sparse: make the gradient a sparse tensor.

    Returns:
        A tensor of shape (*, D).

    Raises:
        AssertionError: if `padding_idx` lies outside.
    """
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    return _op("embedding")(
        input, weight, padding_idx, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def _shorten(weight: Any, index: Any, max_norm: float, norm_type: float) -> None:
    """Scale down, in place, the rows of `weight` at `index` that are longer than `max_norm`."""
    with tangrad.no_grad():
        index = index.reshape(-1)
        rows = weight[index]
        norms = rows.norm(norm_type, 1, keepdim=True)
        # The same small number as the renorm op: a row never comes out longer than max_norm.
        factor = (max_norm / (norms + 1e-7)).clamp(max=1.0)
        weight[index] = rows * factor


# --- patches ------------------------------------------------------------------------------------


def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
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


def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
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


def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """Resample to another size; use `interpolate`, which takes the same arguments."""
    _use_interpolate("upsample")
    return _op("interpolate")(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Resample by the nearest element; use `interpolate`."""
    _use_interpolate("upsample_nearest")
    return _op("interpolate")(input, size, scale_factor)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Resample images linearly, corners on corners; use `interpolate`."""
    _use_interpolate("upsample_bilinear")
    return _op("interpolate")(input, size, scale_factor, "bilinear", True)
