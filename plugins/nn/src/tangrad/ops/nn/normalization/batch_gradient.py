"""Define the gradient of the normalization of channels over a batch."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.normalization.moments import (
    channel_axes,
    check_vectors,
    statistics_dtype,
)
from tangrad.plugin import op


def per_channel(x: Any, vector: Any) -> Any:
    """Shape a vector over the channels so that it broadcasts to `x`."""
    return vector.reshape((1, -1) + (1,) * (x.ndim - 2))


def over_channels(size: int, x: Any, dim: int | None) -> Any:
    """Make samples of a vmap channels of their own: (size, N, C, ...) to (N, size C, ...)."""
    x = (
        x.unsqueeze(1).expand((x.shape[0], size, *x.shape[1:]))
        if dim is None
        else x.movedim(dim, 1)
    )
    return x.flatten(1, 2)


def vectors_over_channels(size: int, vectors: Any, dims: Any) -> list[Any]:
    return [
        vector
        if vector is None
        else (
            vector.expand((size, *vector.shape)) if dim is None else vector.movedim(dim, 0)
        ).reshape((-1,))
        for vector, dim in zip(vectors, dims, strict=True)
    ]


def _check_backward(grad_out: Any, input: Any, mean: Any, var: Any, weight: Any) -> None:
    check_vectors(input, weight=weight, mean=mean, var=var)
    if tuple(grad_out.shape) != tuple(input.shape) or grad_out.dtype != input.dtype:
        raise RuntimeError(
            f"batch_norm_backward: grad_out must be of shape {list(input.shape)} and "
            f"{input.dtype}, got {list(grad_out.shape)} and {grad_out.dtype}"
        )


def _backward_reference(
    np: Any,
    grad_out: Any,
    input: Any,
    mean: Any,
    var: Any,
    weight: Any,
    training: bool,
    eps: float,
) -> Any:
    axes, shape = channel_axes(input), (1, -1) + (1,) * (input.ndim - 2)
    kept = np.float32 if input.dtype.itemsize < 4 else input.dtype
    g, rstd = grad_out.astype(kept), (1 / np.sqrt(var.astype(kept) + eps)).reshape(shape)
    normal = (input.astype(kept) - mean.astype(kept).reshape(shape)) * rstd
    by_weight, by_bias = (g * normal).sum(axes), g.sum(axes)
    scale = rstd if weight is None else rstd * weight.astype(kept).reshape(shape)
    if training and input.size:
        count = input.size // input.shape[1]
        g = g - (by_bias / count).reshape(shape) - normal * (by_weight / count).reshape(shape)
    return (g * scale).astype(input.dtype), by_weight, by_bias


def _backward_vjp(
    grads: Any,
    grad_out: Any,
    input: Any,
    mean: Any,
    var: Any,
    weight: Any,
    training: bool,
    eps: float,
    needs: Any,
) -> tuple[Any, ...]:
    """Differentiate rstd (h - mean(h) - x̂ mean(h x̂)), sum(g x̂) and sum(g), where h = g weight.

    With u = rstd times the first cotangent: by h it is u - mean(u) - x̂ mean(u x̂), by x̂
    -u mean(h x̂) - h mean(u x̂). In evaluation the first is rstd h.
    """
    c0, c1, c2 = grads
    axes = channel_axes(input)

    def wide(vector: Any) -> Any:
        return per_channel(input, vector)

    rstd = (var + eps).rsqrt()
    centered = input - wide(mean)
    normal = centered * wide(rstd)
    by_g = by_normal = by_rstd = by_weight = None
    if c0 is not None:
        h = grad_out if weight is None else grad_out * wide(weight)
        u = c0 * wide(rstd)
        by_h, shifted = u, h
        if training and input.numel():
            slope, turned = ((x * normal).mean(axes, keepdim=True) for x in (h, u))
            by_h = u - u.mean(axes, keepdim=True) - normal * turned
            by_normal = -u * slope - h * turned
            shifted = h - h.mean(axes, keepdim=True) - normal * slope
        by_g = by_h if weight is None else by_h * wide(weight)
        by_weight = (by_h * grad_out).sum(axes) if needs[4] else None
        by_rstd = (c0 * shifted).sum(axes)
    if c1 is not None:
        by_g = wide(c1) * normal if by_g is None else by_g + wide(c1) * normal
        by_normal = wide(c1) * grad_out if by_normal is None else by_normal + wide(c1) * grad_out
    if c2 is not None:
        by_g = wide(c2).expand(input.shape) if by_g is None else by_g + wide(c2)
    by_input = by_mean = None
    if by_normal is not None:
        by_input = by_normal * wide(rstd)
        by_mean = -by_input.sum(axes)
        moved = (by_normal * centered).sum(axes)
        by_rstd = moved if by_rstd is None else by_rstd + moved
    by_var = None if by_rstd is None else by_rstd * rstd**3 * -0.5
    found = (by_g, by_input, by_mean, by_var, by_weight)
    places = (grad_out, input, mean, var, weight)
    return tuple(
        None if x is None else x.to(like.dtype) for x, like in zip(found, places, strict=True)
    )


def _backward_jvp(
    grad_out: Any,
    input: Any,
    mean: Any,
    var: Any,
    weight: Any,
    training: bool,
    eps: float,
    grad_out_t: Any,
    input_t: Any,
    mean_t: Any,
    var_t: Any,
    weight_t: Any,
    result1: Any,
) -> tuple[Any, Any, Any]:
    axes = channel_axes(input)

    def wide(vector: Any) -> Any:
        return per_channel(input, vector)

    def given(tangent: Any, like: Any) -> Any:
        return tangrad.zeros_like(like) if tangent is None else tangent

    rstd = (var + eps).rsqrt()
    rstd_t = given(var_t, var) * rstd**3 * -0.5
    centered = input - wide(mean)
    normal = centered * wide(rstd)
    normal_t = (given(input_t, input) - wide(given(mean_t, mean))) * wide(rstd)
    normal_t = normal_t + centered * wide(rstd_t)
    g_t = given(grad_out_t, grad_out)
    h = grad_out if weight is None else grad_out * wide(weight)
    h_t = g_t if weight is None else g_t * wide(weight)
    if weight_t is not None:
        h_t = h_t + grad_out * wide(weight_t)
    shifted, shifted_t = h, h_t
    if training and input.numel():

        def average(x: Any) -> Any:
            return x.mean(axes, keepdim=True)

        slope, slope_t = average(h * normal), average(h_t * normal + h * normal_t)
        shifted = h - average(h) - normal * slope
        shifted_t = h_t - average(h_t) - normal_t * slope - normal * slope_t
    tangent = shifted_t * wide(rstd) + shifted * wide(rstd_t)
    by_weight = (g_t * normal + grad_out * normal_t).sum(axes)
    return (
        tangent.to(input.dtype),
        by_weight.to(result1.dtype),
        g_t.sum(axes).to(result1.dtype),
    )


def _backward_batch(
    size: int,
    dims: Any,
    grad_out: Any,
    input: Any,
    mean: Any,
    var: Any,
    weight: Any,
    training: bool,
    eps: float,
) -> Any:
    g, x = (over_channels(size, t, d) for t, d in zip((grad_out, input), dims[:2], strict=True))
    vectors = vectors_over_channels(size, (mean, var, weight), dims[2:5])
    by_input, by_weight, by_bias = _batch_norm_backward(g, x, *vectors, training, eps)
    vectors = [by_weight.reshape((size, -1)), by_bias.reshape((size, -1))]
    return (by_input.unflatten(1, (size, -1)), *vectors), (1, 0, 0)


def _gradient_of(
    torch: Any, g: Any, x: Any, mean: Any, var: Any, weight: Any, training: bool, eps: float
) -> Any:
    if not x.is_floating_point():
        return torch.nn.functional.layer_norm(x, x.shape[1:])
    axes, shape = channel_axes(x), (1, -1) + (1,) * (x.ndim - 2)
    kept = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    rstd = (var.to(kept) + eps).rsqrt()
    normal = (x.to(kept) - mean.to(kept).reshape(shape)) * rstd.reshape(shape)
    wide = g.to(kept)
    by_weight, by_bias = (wide * normal).sum(axes), wide.sum(axes)
    scale = rstd if weight is None else rstd * weight.to(kept)
    if training:
        count = max(1, x.numel() // x.shape[1])
        wide = wide - (by_bias / count).reshape(shape)
        wide = wide - normal * (by_weight / count).reshape(shape)
    return (wide * scale.reshape(shape)).to(x.dtype), by_weight, by_bias


def if_floating(s: Any, *args: Any) -> list[Any]:
    """Give an empty sample for the dtypes that are normalized; PyTorch takes any that is empty."""
    return [s(*args)] if s.is_floating else []


_batch_norm_backward = op(
    "_batch_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor var, Tensor? weight,"
    " bool training, float eps) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
    dtypes="floating",
    check=_check_backward,
    shape=lambda input: [input.shape, (input.shape[1],), (input.shape[1],)],
    dtype=lambda input: [input.dtype, *[statistics_dtype(input)] * 2],
    reference=_backward_reference,
    vjp={("grad_out", "input", "mean", "var", "weight"): _backward_vjp},
    jvp=_backward_jvp,
    batch=_backward_batch,
    function=False,
    method=False,
    node="native_batch_norm_backward",
    samples=lambda s: [
        s(
            s.tensor(4, 2),
            s.tensor(4, 2),
            s.tensor(2),
            s.tensor(2, low=1, high=2),
            s.tensor(2),
            True,
            1e-5,
        ),
        s(
            s.tensor(2, 3, 2, strided=True),
            s.tensor(2, 3, 2),
            s.tensor(3),
            s.tensor(3, low=1, high=2),
            None,
            False,
            0.1,
        ),
        s(s.tensor(0, 2), s.tensor(0, 2), s.tensor(2), s.tensor(2, low=1, high=2), None, True, 0.1),
    ],
    oracle=_gradient_of,
    errors=lambda s: [
        (
            s(s.tensor(2, 3), s.tensor(2, 4), s.tensor(4), s.tensor(4), None, True, 1e-5),
            RuntimeError,
            "grad_out must be of shape",
        )
    ],
    doc="Compute the gradients of batch_norm by input, weight and bias.",
)
