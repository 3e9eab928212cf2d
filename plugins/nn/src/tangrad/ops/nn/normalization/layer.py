"""Define the normalizations by mean and variance."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.fusing import by_device
from tangrad.plugin import Ints, Tensor, batched_front, composite, numel_of, op, require_floating

# Layer normalization ---------------------------------------------------------------------------


def _check_layer_norm(input: Any, normalized_shape: Ints, weight: Any, bias: Any) -> None:
    if not normalized_shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            "one element, but got normalized_shape = []"
        )
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and tuple(x.shape) != tuple(normalized_shape):
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of "
                f"shape {list(x.shape)} and normalized_shape = {list(normalized_shape)}"
            )
    count = len(normalized_shape)
    if tuple(input.shape[-count:]) != tuple(normalized_shape):
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized_shape))}], but got input of size"
            f"{list(input.shape)}"
        )


def _check_native_layer_norm(input: Any, normalized_shape: Ints, weight: Any, bias: Any) -> None:
    _check_layer_norm(input, normalized_shape, weight, bias)
    require_floating("layer_norm", input)


def _layer_norm_shapes(input: Any, normalized_shape: Ints) -> list[Ints]:
    lead = len(input.shape) - len(normalized_shape)
    per_sample = (*input.shape[:lead], *(1 for _ in normalized_shape))
    return [input.shape, per_sample, per_sample]


def _layer_norm_reference(
    np: Any, input: Any, normalized_shape: Ints, weight: Any, bias: Any, eps: float
) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    if numel_of(normalized_shape) == 0:
        empty = np.zeros((*input.shape[: axes[0]], *(1 for _ in axes)), input.dtype)
        return input, empty, empty
    mean = input.mean(axes, keepdims=True)
    centered = input - mean
    rstd = 1 / np.sqrt((centered * centered).mean(axes, keepdims=True) + eps)
    result = centered * rstd
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias), mean, rstd


def _layer_norm_vjp(
    grads: Any,
    input: Any,
    normalized_shape: Ints,
    weight: Any,
    result1: Any,
    result2: Any,
    needs: Any,
) -> tuple[Any, Any, Any]:
    """Differentiate (result, mean, rstd) by input, weight and bias.

    The part of the result is an op of its own; those of mean and rstd, which only derivatives of
    derivatives ask for, add g1 / n - g2 rstd² x̂ / n, with n elements x̂ = (x - mean) rstd.
    """
    g0, g1, g2 = grads
    count = numel_of(normalized_shape)
    d_input = d_weight = d_bias = None
    if g0 is not None:
        d_input, d_weight, d_bias = native_layer_norm_backward(
            g0, input, normalized_shape, result1, result2, weight
        )
    if g1 is not None:
        part = (g1 / count).expand(input.shape)
        d_input = part if d_input is None else d_input + part
    if g2 is not None:
        part = (input - result1) * (g2 * result2**3 / -count)
        d_input = part if d_input is None else d_input + part
    return d_input, d_weight if needs[1] else None, d_bias if needs[2] else None


def _check_layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Ints, mean: Any, rstd: Any, weight: Any
) -> None:
    _check_layer_norm(input, normalized_shape, weight, None)
    require_floating("layer_norm", input)
    per_row = _layer_norm_shapes(input, normalized_shape)[1]
    for name, x, shape in (
        ("grad_out", grad_out, input.shape), ("mean", mean, per_row), ("rstd", rstd, per_row)
    ):  # fmt: skip
        if tuple(x.shape) != tuple(shape) or x.dtype != input.dtype:
            raise RuntimeError(
                f"native_layer_norm_backward: {name} must be of shape {list(shape)} and "
                f"{input.dtype}, got {list(x.shape)} and {x.dtype}"
            )


def _layer_norm_backward_reference(
    np: Any, grad_out: Any, input: Any, normalized_shape: Ints, mean: Any, rstd: Any, weight: Any
) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    lead = tuple(range(input.ndim - len(normalized_shape)))
    normal = (input - mean) * rstd
    h = grad_out if weight is None else grad_out * weight
    by_weight, by_bias = (grad_out * normal).sum(lead), grad_out.sum(lead)
    if numel_of(normalized_shape) == 0:
        return h, by_weight, by_bias
    slope = (h * normal).mean(axes, keepdims=True)
    return rstd * (h - h.mean(axes, keepdims=True) - normal * slope), by_weight, by_bias


def _over_rows(x: Any, count: int) -> Any:
    """Sum over the dimensions before the last `count`."""
    lead = tuple(range(x.ndim - count))
    return x.sum(lead) if lead else x


def _layer_norm_backward_vjp(
    grads: Any,
    grad_out: Any,
    input: Any,
    normalized_shape: Ints,
    mean: Any,
    rstd: Any,
    weight: Any,
    needs: Any,
) -> tuple[Any, ...]:
    """Differentiate rstd (h - mean(h) - x̂ mean(h x̂)), sum(g x̂) and sum(g), where h = g weight.

    With u = rstd times the first cotangent: by h it is u - mean(u) - x̂ mean(u x̂), by x̂
    -u mean(h x̂) - h mean(u x̂).
    """
    c0, c1, c2 = grads
    count = len(normalized_shape)
    axes = tuple(range(input.ndim - count, input.ndim))
    normal = (input - mean) * rstd
    by_g, by_normal, by_rstd, by_weight = None, None, None, None
    if c0 is not None:
        h = grad_out if weight is None else grad_out * weight
        u = rstd * c0
        slope, turned = ((x * normal).mean(axes, keepdim=True) for x in (h, u))
        by_h = u - u.mean(axes, keepdim=True) - normal * turned
        by_g = by_h if weight is None else by_h * weight
        by_weight = _over_rows(by_h * grad_out, count)
        by_normal = -u * slope - h * turned
        by_rstd = (c0 * (h - h.mean(axes, keepdim=True) - normal * slope)).sum(axes, keepdim=True)
    if c1 is not None:
        by_g = c1 * normal if by_g is None else by_g + c1 * normal
        by_normal = c1 * grad_out if by_normal is None else by_normal + c1 * grad_out
    if c2 is not None:
        by_g = c2.expand(input.shape) if by_g is None else by_g + c2
    by_input = by_mean = None
    if by_normal is not None:
        by_input = by_normal * rstd
        by_mean = -by_input.sum(axes, keepdim=True)
        moved = (by_normal * (input - mean)).sum(axes, keepdim=True)
        by_rstd = moved if by_rstd is None else by_rstd + moved
    return by_g, by_input, by_mean, by_rstd, by_weight if needs[4] else None


def _layer_norm_backward_jvp(
    grad_out: Any,
    input: Any,
    normalized_shape: Ints,
    mean: Any,
    rstd: Any,
    weight: Any,
    grad_out_t: Any,
    input_t: Any,
    mean_t: Any,
    rstd_t: Any,
    weight_t: Any,
) -> tuple[Any, Any, Any]:
    count = len(normalized_shape)
    axes = tuple(range(input.ndim - count, input.ndim))
    zeros = tangrad.zeros_like

    def given(x: Any, like: Any) -> Any:
        return zeros(like) if x is None else x

    g_t, r_t = given(grad_out_t, grad_out), given(rstd_t, rstd)
    normal = (input - mean) * rstd
    moved = given(input_t, input) - given(mean_t, mean)
    normal_t = moved * rstd + (input - mean) * r_t
    h = grad_out if weight is None else grad_out * weight
    h_t = g_t if weight is None else g_t * weight
    if weight_t is not None:
        h_t = h_t + grad_out * weight_t

    def average(x: Any) -> Any:
        return x.mean(axes, keepdim=True)

    slope, slope_t = average(h * normal), average(h_t * normal + h * normal_t)
    tangent = rstd * (h_t - average(h_t) - normal_t * slope - normal * slope_t)
    tangent = tangent + r_t * (h - average(h) - normal * slope)
    by_weight = _over_rows(g_t * normal + grad_out * normal_t, count)
    return tangent, by_weight, _over_rows(g_t, count)


def _layer_norm_backward_batched(
    size: int,
    dims: Any,
    grad_out: Any,
    input: Any,
    normalized_shape: Ints,
    mean: Any,
    rstd: Any,
    weight: Any,
) -> tuple[Any, Any]:
    """Take the calls of a batch as further rows; sums over rows stay those of each call."""
    g, x, mean, rstd = (
        batched_front(t, dims[k], size)
        for k, t in ((0, grad_out), (1, input), (3, mean), (4, rstd))
    )
    rows = x.ndim - 1 - len(normalized_shape)
    scaled = g
    if weight is not None:
        scale = batched_front(weight, dims[5], size)
        scaled = g * scale.reshape(size, *(1,) * rows, *normalized_shape)
    d_input = native_layer_norm_backward(scaled, x, normalized_shape, mean, rstd, None)[0]
    by_weight, by_bias = g * ((x - mean) * rstd), g
    if rows:
        axes = tuple(range(1, rows + 1))
        by_weight, by_bias = by_weight.sum(axes), by_bias.sum(axes)
    return (d_input, by_weight.to(x.dtype), by_bias.to(x.dtype)), (0, 0, 0)


native_layer_norm_backward = op(
    "native_layer_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape,"
    " Tensor mean, Tensor rstd, Tensor? weight)"
    " -> (Tensor, Tensor, Tensor)",
    dtypes="floating",
    check=_check_layer_norm_backward,
    shape=lambda input, normalized_shape: [input.shape, normalized_shape, normalized_shape],
    dtype=lambda input: [input.dtype] * 3,
    reference=_layer_norm_backward_reference,
    vjp={("grad_out", "input", "mean", "rstd", "weight"): _layer_norm_backward_vjp},
    jvp=_layer_norm_backward_jvp,
    batch=_layer_norm_backward_batched,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4), s.tensor(2, 4), (4,), s.tensor(2, 1), s.tensor(2, 1), s.tensor(4)),
        s(
            s.tensor(2, 2, 3, strided=True),
            s.tensor(2, 2, 3),
            (2, 3),
            s.tensor(2, 1, 1),
            s.tensor(2, 1, 1),
            None,
        ),
        s(s.tensor(0, 3), s.tensor(0, 3), (3,), s.tensor(0, 1), s.tensor(0, 1), None),
    ],
    oracle=lambda torch, g, x, shape, mean, rstd, weight: _layer_norm_gradient_of(
        torch, g, x, shape, mean, rstd, weight
    ),
    errors=lambda s: [
        (
            s(s.tensor(2, 3), s.tensor(2, 4), (4,), s.tensor(2, 1), s.tensor(2, 1), None),
            RuntimeError,
            "grad_out must be of shape",
        )
    ],
    doc="Compute the gradients of layer_norm by input, weight and bias.",
)


def _layer_norm_gradient_of(
    torch: Any, g: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any
) -> Any:
    if not x.is_floating_point():
        return torch.nn.functional.layer_norm(x, shape)
    axes, lead = tuple(range(-len(shape), 0)), tuple(range(x.ndim - len(shape)))
    normal = (x - mean) * rstd
    h = g if weight is None else g * weight
    slope = (h * normal).mean(axes, keepdim=True)
    return (
        rstd * (h - h.mean(axes, keepdim=True) - normal * slope),
        (g * normal).sum(lead),
        g.sum(lead),
    )


def layer_norm_jvp(
    input: Any,
    normalized_shape: Ints,
    weight: Any,
    input_t: Any,
    weight_t: Any,
    bias_t: Any,
    result0: Any,
    result1: Any,
    result2: Any,
) -> tuple[Any, Any, Any]:
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    normal = (input - result1) * result2
    tangent = tangrad.zeros_like(result0)
    mean_t, rstd_t = tangrad.zeros_like(result1), tangrad.zeros_like(result2)
    if input_t is not None:
        mean_t = input_t.mean(axes, keepdim=True)
        shared = (normal * (input_t - mean_t)).mean(axes, keepdim=True)
        rstd_t = -result2 * result2 * shared
        tangent = result2 * (input_t - mean_t - normal * shared)
        tangent = tangent if weight is None else tangent * weight
    if weight_t is not None:
        tangent = tangent + normal * weight_t
    if bias_t is not None:
        tangent = tangent + bias_t
    return tangent, mean_t, rstd_t


def _layer_norm_batch(
    size: int, dims: Any, input: Any, normalized_shape: Ints, weight: Any, bias: Any, eps: float
) -> Any:
    x = input.movedim(dims[0], 0) if dims[0] is not None else input.expand((size, *input.shape))
    if dims[2] is None and dims[3] is None:
        return native_layer_norm(x, normalized_shape, weight, bias, eps), (0, 0, 0)
    result, mean, rstd = native_layer_norm(x, normalized_shape, None, None, eps)
    ones = (1,) * (x.ndim - 1 - len(normalized_shape))

    def per_sample(p: Any, dim: int | None) -> Any:
        return p if dim is None else p.movedim(dim, 0).reshape((size, *ones, *normalized_shape))

    result = result if weight is None else result * per_sample(weight, dims[2])
    result = result if bias is None else result + per_sample(bias, dims[3])
    return (result, mean, rstd), (0, 0, 0)


native_layer_norm = op(
    "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias,"
    " float eps) -> (Tensor, Tensor, Tensor)",
    c_implementation="layer_norm",
    dtypes="floating",
    check=_check_native_layer_norm,
    shape=_layer_norm_shapes,
    dtype=lambda input: [input.dtype] * 3,
    reference=_layer_norm_reference,
    vjp={("input", "weight", "bias"): _layer_norm_vjp},
    jvp=layer_norm_jvp,
    batch=_layer_norm_batch,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4), (4,), s.tensor(4), s.tensor(4), 1e-5),
        s(s.tensor(2, 2, 3), (2, 3), None, None, 1e-3),
    ],
    doc="Normalize the last dimensions; give also their mean and reciprocal deviation.",
)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 4), (4,)),
        s(s.tensor(2, 2, 3), (2, 3), s.tensor(2, 3), s.tensor(2, 3)),
        s(s.tensor(2, 4, strided=True), (4,), s.tensor(4), eps=0.1),
        s(s.tensor(0, 3), (3,)),
    ],
    oracle="nn.functional.layer_norm",
    errors=lambda s: [
        (s(s.tensor(2, 3), (2,)), RuntimeError, "expected input with shape"),
        (s(s.tensor(2, 3), ()), RuntimeError, "at least 1-dimensional"),
        (s(s.tensor(2, 3), (3,), s.tensor(2)), RuntimeError, "Expected weight to be of same"),
    ],
)
def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Normalize the last dimensions to mean 0 and variance 1, then scale and shift.

    y = (x - mean) / sqrt(var + eps) * weight + bias (Ba, Kiros, Hinton: "Layer normalization",
    2016).
    """
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@composite(
    dtypes="floating complex",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 4), (4,)),
        s(s.tensor(2, 2, 3), (2, 3), s.tensor(2, 3), 1e-3),
    ],
    oracle="nn.functional.rms_norm",
    errors=lambda s: [(s(s.tensor(2, 3), (2,)), RuntimeError, "expected input with shape")],
)
def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide the last dimensions by their root mean square, then scale.

    y = x / sqrt(mean(x²) + eps) * weight (Zhang, Sennrich: "Root mean square layer
    normalization", 2019); eps defaults to the machine epsilon of the dtype.
    """
    _check_layer_norm(input, normalized_shape, weight, None)
    if not input.dtype.is_complex:
        require_floating("rms_norm", input)
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    half = input.dtype.itemsize < 4
    wide = tangrad.float32 if half else input.dtype
    eps = tangrad.finfo(wide).eps if eps is None else eps
    found = by_device("rms_norm", input, normalized_shape, weight, eps)
    if found is not None:
        return found
    x = input.to(wide) if half else input
    result = x * ((x * x).mean(axes, keepdim=True) + eps).rsqrt()
    if weight is not None:
        result = result * (weight.to(x.dtype) if half else weight)
    return result.to(input.dtype)
