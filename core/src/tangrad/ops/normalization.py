"""Define softmax and the normalizations by mean and variance."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.define import composite, op
from tangrad.ops.movement import Ints, numel_of

# Softmax ---------------------------------------------------------------------------------------


def _require_floating(name: str, x: Any) -> None:
    """Refuse other dtypes, as soon as there is an element to compute."""
    if not x.dtype.is_floating_point and numel_of(x.shape):
        raise NotImplementedError(
            f'"{name}" not implemented for {x.dtype}; convert the input or give dtype'
        )


def _softmax_reference(np: Any, self: Any, dim: int) -> Any:
    if self.size == 0:
        return self
    if self.ndim == 0:
        return np.exp(self - self)
    with np.errstate(invalid="ignore"):
        powers = np.exp(self - self.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


def _log_softmax_reference(np: Any, self: Any, dim: int) -> Any:
    if self.size == 0:
        return self
    if self.ndim == 0:
        return self - self
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = self - self.max(dim, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def _softmax_tangent(x_t: Any, result: Any, dim: int) -> Any:
    return result * (x_t - (x_t * result).sum((dim,), keepdim=True))


def _log_softmax_tangent(x_t: Any, result: Any, dim: int) -> Any:
    return x_t - (x_t * result.exp()).sum((dim,), keepdim=True)


_softmax = op(
    "_softmax(Tensor self, dim dim) -> Tensor",
    dtypes="floating",
    check=lambda self: _require_floating("softmax", self),
    shape=lambda self: self.shape,
    reference=_softmax_reference,
    vjp={"self": lambda g, result, dim: _softmax_backward_data(g, result, dim)},
    jvp=lambda self_t, result, dim: _softmax_tangent(self_t, result, dim),
    batch=lambda size, dims, self, dim: _softmax_batch(_softmax, dims, self, dim),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 1), s(s.tensor(2, 3, strided=True), 0)],
    oracle="softmax",
    doc="Compute softmax in the dtype of the input.",
)

_log_softmax = op(
    "_log_softmax(Tensor self, dim dim) -> Tensor",
    dtypes="floating",
    check=lambda self: _require_floating("log_softmax", self),
    shape=lambda self: self.shape,
    reference=_log_softmax_reference,
    vjp={"self": lambda g, result, dim: _log_softmax_backward_data(g, result, dim)},
    jvp=lambda self_t, result, dim: _log_softmax_tangent(self_t, result, dim),
    batch=lambda size, dims, self, dim: _softmax_batch(_log_softmax, dims, self, dim),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 1), s(s.tensor(2, 3, strided=True), 0)],
    oracle="log_softmax",
    doc="Compute log_softmax in the dtype of the input.",
)


def _softmax_batch(rule: Any, dims: Any, self: Any, dim: int) -> Any:
    x = self.movedim(dims[0], 0)
    if x.ndim == 1:
        return rule(x.unsqueeze(1), 1).squeeze(1), 0
    return rule(x, dim + 1), 0


# Their gradients are ops of their own, so that a device computes them in one pass.


def _softmax_backward_reference(np: Any, grad_output: Any, output: Any, dim: int) -> Any:
    products = grad_output * output
    total = products.sum(dim, keepdims=True) if products.ndim else products
    return output * (grad_output - total)


def _log_softmax_backward_reference(np: Any, grad_output: Any, output: Any, dim: int) -> Any:
    total = grad_output.sum(dim, keepdims=True) if grad_output.ndim else grad_output
    return grad_output - np.exp(output) * total


def _check_gradient(name: str, grad_output: Any, output: Any) -> None:
    if grad_output.shape != output.shape or grad_output.dtype != output.dtype:
        raise RuntimeError(
            f"{name}: grad_output and output must have the same shape and dtype, got "
            f"{tuple(grad_output.shape)} of {grad_output.dtype} and {tuple(output.shape)} of "
            f"{output.dtype}"
        )
    _require_floating(name, output)


def _softmax_backward_vjp(
    g: Any, grad_output: Any, output: Any, dim: int, needs: Any
) -> tuple[Any, Any]:
    """Differentiate y (c - sum(c y)) by the cotangent c and by y."""
    shared = (grad_output * output).sum((dim,), keepdim=True)
    by_output = None
    if needs[1]:
        weight = (g * output).sum((dim,), keepdim=True)
        by_output = g * (grad_output - shared) - grad_output * weight
    return _softmax_backward_data(g, output, dim) if needs[0] else None, by_output


def _log_softmax_backward_vjp(
    g: Any, grad_output: Any, output: Any, dim: int, needs: Any
) -> tuple[Any, Any]:
    """Differentiate c - exp(y) sum(c) by the cotangent c and by y."""
    powers = output.exp()
    by_grad = g - (g * powers).sum((dim,), keepdim=True) if needs[0] else None
    by_output = -g * powers * grad_output.sum((dim,), keepdim=True) if needs[1] else None
    return by_grad, by_output


def _softmax_backward_jvp(
    grad_output: Any, output: Any, dim: int, grad_output_t: Any, output_t: Any
) -> Any:
    tangent = 0
    if grad_output_t is not None:
        tangent = _softmax_backward_data(grad_output_t, output, dim)
    if output_t is not None:
        shared = (grad_output * output).sum((dim,), keepdim=True)
        moved = (grad_output * output_t).sum((dim,), keepdim=True)
        tangent = tangent + output_t * (grad_output - shared) - output * moved
    return tangent


def _log_softmax_backward_jvp(
    grad_output: Any, output: Any, dim: int, grad_output_t: Any, output_t: Any
) -> Any:
    tangent = 0
    if grad_output_t is not None:
        tangent = _log_softmax_backward_data(grad_output_t, output, dim)
    if output_t is not None:
        total = grad_output.sum((dim,), keepdim=True)
        tangent = tangent - output.exp() * output_t * total
    return tangent


def _gradient_batch(
    rule: Any, size: int, dims: Any, grad_output: Any, output: Any, dim: int
) -> Any:
    g, y = (
        x.expand((size, *x.shape)) if at is None else x.movedim(at, 0)
        for x, at in ((grad_output, dims[0]), (output, dims[1]))
    )
    if y.ndim == 1:
        return rule(g.unsqueeze(1), y.unsqueeze(1), 1).squeeze(1), 0
    return rule(g, y, dim + 1), 0


def _gradient_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(2, 3), s.tensor(2, 3), 1),
        s(s.tensor(2, 3, strided=True), s.tensor(2, 3), -2),
        s(s.tensor(), s.tensor(), 0),
        s(s.tensor(2, 0), s.tensor(2, 0), 1),
    ]


_softmax_backward_data = op(
    "_softmax_backward_data(Tensor grad_output, Tensor output, dim dim) -> Tensor",
    dtypes="floating",
    check=lambda grad_output, output: _check_gradient(
        "_softmax_backward_data", grad_output, output
    ),
    shape=lambda output: output.shape,
    reference=_softmax_backward_reference,
    vjp={("grad_output", "output"): _softmax_backward_vjp},
    jvp=_softmax_backward_jvp,
    batch=lambda size, dims, grad_output, output, dim: _gradient_batch(
        _softmax_backward_data, size, dims, grad_output, output, dim
    ),
    function=False,
    method=False,
    samples=_gradient_samples,
    errors=lambda s: [(s(s.tensor(2), s.tensor(3), 0), RuntimeError, "same shape")],
    oracle=lambda torch, grad_output, output, dim: (
        output * (grad_output - (grad_output * output).sum(dim, keepdim=True))
    ),
    doc="Compute the gradient of softmax from its result.",
)

_log_softmax_backward_data = op(
    "_log_softmax_backward_data(Tensor grad_output, Tensor output, dim dim) -> Tensor",
    dtypes="floating",
    check=lambda grad_output, output: _check_gradient(
        "_log_softmax_backward_data", grad_output, output
    ),
    shape=lambda output: output.shape,
    reference=_log_softmax_backward_reference,
    vjp={("grad_output", "output"): _log_softmax_backward_vjp},
    jvp=_log_softmax_backward_jvp,
    batch=lambda size, dims, grad_output, output, dim: _gradient_batch(
        _log_softmax_backward_data, size, dims, grad_output, output, dim
    ),
    function=False,
    method=False,
    samples=_gradient_samples,
    errors=lambda s: [(s(s.tensor(2), s.tensor(3), 0), RuntimeError, "same shape")],
    oracle=lambda torch, grad_output, output, dim: (
        grad_output - output.exp() * grad_output.sum(dim, keepdim=True)
    ),
    doc="Compute the gradient of log_softmax from its result.",
)


@composite(
    "softmax(Tensor self, dim dim, dtype? dtype=None) -> Tensor",
    dtypes="floating",
    samples=lambda s: [
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 3, strided=True), -2),
        s(s.tensor(), 0),
        s(s.tensor(2, 0), 1),
        s(s.tensor(0, 2), 1),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), 2), IndexError, "Dimension out of range")],
)
def softmax(self: Any, dim: int, dtype: Any) -> Any:
    """Scale exp(x) along a dimension so that it sums to one.

    Args:
        dtype: convert the input to this first.
    """
    return _softmax(self if dtype is None else self.to(dtype), dim)


@composite(
    "log_softmax(Tensor self, dim dim, dtype? dtype=None) -> Tensor",
    dtypes="floating",
    samples=lambda s: [
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 3, strided=True), -2),
        s(s.tensor(), 0),
        s(s.tensor(2, 0), 1),
        s(s.tensor(0, 2), 1),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), 2), IndexError, "Dimension out of range")],
)
def log_softmax(self: Any, dim: int, dtype: Any) -> Any:
    """Compute log(softmax(x)) along a dimension without overflow.

    Args:
        dtype: convert the input to this first.
    """
    return _log_softmax(self if dtype is None else self.to(dtype), dim)


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
    _require_floating("layer_norm", input)


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
    """Differentiate (result, mean, rstd) by input, weight and bias in one pass.

    With n normalised elements x̂ = (x - mean) rstd and h = g weight:
    dx = rstd (h - mean(h) - x̂ mean(h x̂)) + g1 / n - g2 rstd² x̂ / n.
    """
    g0, g1, g2 = grads
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    lead = tuple(range(input.ndim - len(normalized_shape)))
    count = numel_of(normalized_shape)
    normal = (input - result1) * result2
    d_input = d_weight = d_bias = None
    if g0 is not None:
        h = g0 if weight is None else g0 * weight
        d_input = result2 * (
            h - h.mean(axes, keepdim=True) - normal * (h * normal).mean(axes, keepdim=True)
        )
        d_weight = (g0 * normal).sum(lead) if lead else g0 * normal
        d_bias = g0.sum(lead) if lead else g0
    if g1 is not None:
        part = (g1 / count).expand(input.shape)
        d_input = part if d_input is None else d_input + part
    if g2 is not None:
        part = normal * (g2 * result2 * result2 / -count)
        d_input = part if d_input is None else d_input + part
    return d_input, d_weight if needs[1] else None, d_bias if needs[2] else None


def _layer_norm_jvp(
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
    " float eps) -> (Tensor result, Tensor mean, Tensor rstd)",
    dtypes="floating",
    check=_check_native_layer_norm,
    shape=_layer_norm_shapes,
    dtype=lambda input: [input.dtype] * 3,
    reference=_layer_norm_reference,
    vjp={("input", "weight", "bias"): _layer_norm_vjp},
    jvp=_layer_norm_jvp,
    batch=_layer_norm_batch,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4), (4,), s.tensor(4), s.tensor(4), 1e-5),
        s(s.tensor(2, 2, 3), (2, 3), None, None, 1e-3),
    ],
    doc="Normalize the last dimensions; give also their mean and reciprocal deviation.",
)


@composite(
    "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None,"
    " float eps=1e-05) -> Tensor",
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
def layer_norm(input: Any, normalized_shape: Ints, weight: Any, bias: Any, eps: float) -> Any:
    """Normalize the last dimensions to mean 0 and variance 1, then scale and shift.

    y = (x - mean) / sqrt(var + eps) * weight + bias (Ba, Kiros, Hinton: "Layer normalization",
    2016).
    """
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@composite(
    "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)"
    " -> Tensor",
    dtypes="floating complex",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 4), (4,)),
        s(s.tensor(2, 2, 3), (2, 3), s.tensor(2, 3), 1e-3),
    ],
    oracle="nn.functional.rms_norm",
    errors=lambda s: [(s(s.tensor(2, 3), (2,)), RuntimeError, "expected input with shape")],
)
def rms_norm(input: Any, normalized_shape: Ints, weight: Any, eps: float | None) -> Any:
    """Divide the last dimensions by their root mean square, then scale.

    y = x / sqrt(mean(x²) + eps) * weight (Zhang, Sennrich: "Root mean square layer
    normalization", 2019); eps defaults to the machine epsilon of the dtype.
    """
    _check_layer_norm(input, normalized_shape, weight, None)
    if not input.dtype.is_complex:
        _require_floating("rms_norm", input)
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    half = input.dtype.itemsize < 4
    x = input.to(tangrad.float32) if half else input
    eps = tangrad.finfo(x.dtype).eps if eps is None else eps
    result = x * ((x * x).mean(axes, keepdim=True) + eps).rsqrt()
    result = result.to(input.dtype) if half else result
    return result if weight is None else result * weight


@composite(
    "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None,"
    " float eps=1e-05) -> Tensor",
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 4, 3), 2),
        s(s.tensor(1, 4, 2, 2), 4, s.tensor(4), s.tensor(4)),
        s(s.tensor(3, 4), 2, s.tensor(4)),
    ],
    oracle="nn.functional.group_norm",
    errors=lambda s: [
        (s(s.tensor(2, 3, 2), 2), RuntimeError, "divisible by num_groups"),
        (s(s.tensor(2), 1), RuntimeError, "at least 2 dimensions"),
    ],
)
def group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """Normalize groups of channels of each sample, then scale and shift each channel.

    Wu, He: "Group normalization", 2018. The input is (N, C, ...).
    """
    if input.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    channels = input.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input "
            f"of shape {list(input.shape)} and num_groups={num_groups}"
        )
    size = numel_of(tuple(input.shape)[1:]) // num_groups
    groups = input.reshape((input.shape[0], num_groups, size))
    result = native_layer_norm(groups, (size,), None, None, eps)[0].reshape(input.shape)
    return _per_channel(result, weight, bias)


def _per_channel(x: Any, weight: Any, bias: Any) -> Any:
    shape = (-1,) + (1,) * (x.ndim - 2)
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and p.numel() != x.shape[1]:
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in "
                f"input, but got {name} of shape {list(p.shape)} and input of shape "
                f"{list(x.shape)}"
            )
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


# Batch normalization ---------------------------------------------------------------------------


def _update_running(running: Any, batch: Any, momentum: float) -> None:
    if running is not None:
        running.mul_(1 - momentum).add_(batch.detach().to(running.dtype), alpha=momentum)


@composite(
    "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None,"
    " Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor",
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(4, 2), None, None, s.tensor(2), s.tensor(2), True),
        s(s.tensor(2, 2, 3), s.tensor(2), s.tensor(2, low=1, high=2)),
        s(s.tensor(2, 3, 2, 2), None, None, training=True, eps=0.1),
    ],
    oracle="nn.functional.batch_norm",
    errors=lambda s: [
        (
            s(s.tensor(1, 2), None, None, training=True),
            ValueError,
            "more than 1 value per channel",
        ),
        (s(s.tensor(2, 2), None, None), RuntimeError, "running_mean"),
    ],
)
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalize each channel over the batch, then scale and shift it.

    In training by the batch's own mean and variance, which also move the running ones (the
    variance without bias); otherwise by the running ones (Ioffe, Szegedy: "Batch
    normalization", 2015). The input is (N, C, ...).
    """
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm: expected at least 2D input, got {list(input.shape)}")
    shape = (1, -1) + (1,) * (input.ndim - 2)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "batch_norm: running_mean and running_var must be given in evaluation mode"
            )
        mean, var = running_mean.reshape(shape), running_var.reshape(shape)
        return _per_channel((input - mean) * (var + eps).rsqrt(), weight, bias)
    axes = (0, *range(2, input.ndim))
    count = numel_of([input.shape[d] for d in axes])
    if count <= 1:
        raise ValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{list(input.shape)}"
        )
    mean = input.mean(axes, keepdim=True)
    centered = input - mean
    var = (centered * centered).mean(axes, keepdim=True)
    _update_running(running_mean, mean.reshape((-1,)), momentum)
    _update_running(running_var, var.reshape((-1,)) * (count / (count - 1)), momentum)
    return _per_channel(centered * (var + eps).rsqrt(), weight, bias)
