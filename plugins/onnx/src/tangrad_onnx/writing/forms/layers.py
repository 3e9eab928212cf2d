"""Products, convolution, pooling, normalization, attention and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Value, Writer


@form("mm", "bmm", "mv", "dot", "matmul", "vdot")
def _product(w: Writer, a: Any, out: Any) -> Any:
    one, other = list(vars(a).values())[:2]
    return w.op("MatMul", one.name, other.name)


@form("linear", whole=True)
def _linear(w: Writer, a: Any, out: Any) -> Any:
    bias = None if a.bias is None else a.bias.name
    if a.weight.rank == 1:
        product = w.op("MatMul", a.input.name, a.weight.name)
        return product if bias is None else w.op("Add", product, bias)
    if a.input.rank == 2:
        return w.op("Gemm", a.input.name, a.weight.name, bias, transB=1)
    product = w.op("MatMul", a.input.name, w.op("Transpose", a.weight.name, perm=[1, 0]))
    return product if bias is None else w.op("Add", product, bias)


def for_each(value: Any, rank: int) -> list[Any]:
    """Return what is given for each of several dimensions, one number for all of them."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def _conv(w: Writer, a: Any, out: Any) -> Any:
    rank = a.weight.rank - 2
    bias = getattr(a, "bias", None)
    auto = None
    pads: list[int] | None = None
    if isinstance(a.padding, str):
        auto = "SAME_UPPER" if a.padding == "same" else "VALID"
        if auto == "SAME_UPPER" and any(d != 1 for d in for_each(a.dilation, rank)):
            auto, pads = None, _same_pads(a, rank)
    else:
        pads = for_each(a.padding, rank) * 2
    name = a.input.name
    unbatched = a.input.rank == rank + 1
    if unbatched:
        name = w.unsqueeze(name, [0])
    found = w.op(
        "Conv",
        name,
        a.weight.name,
        None if bias is None else bias.name,
        kernel_shape=list(a.weight.shape[2:]),
        strides=for_each(a.stride, rank),
        dilations=for_each(a.dilation, rank),
        group=a.groups,
        pads=pads,
        auto_pad=auto,
    )
    return w.squeeze(found, [0]) if unbatched else found


def _same_pads(a: Any, rank: int) -> list[int]:
    total = [
        d * (k - 1) for d, k in zip(for_each(a.dilation, rank), a.weight.shape[2:], strict=True)
    ]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


form("conv1d", "conv2d", "conv3d", whole=True)(_conv)
form("convolution", "convolution_biased")(_conv)


@form("convolution_input")
def _input_gradient(w: Writer, a: Any, out: Any) -> Any:
    kernel = a.weight.shape[2:]
    ends = zip(a.shape[2:], a.grad.shape[2:], kernel, a.stride, a.padding, a.dilation, strict=True)
    more = [n - (g - 1) * s + 2 * p - d * (k - 1) - 1 for n, g, k, s, p, d in ends]
    return w.op(
        "ConvTranspose",
        a.grad.name,
        a.weight.name,
        kernel_shape=list(kernel),
        strides=list(a.stride),
        dilations=list(a.dilation),
        group=a.groups,
        pads=list(a.padding) * 2,
        output_padding=more,
    )


@form("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", whole=True)
def _conv_transpose(w: Writer, a: Any, out: Any) -> Any:
    rank = a.weight.rank - 2
    name = a.input.name
    unbatched = a.input.rank == rank + 1
    if unbatched:
        name = w.unsqueeze(name, [0])
    found = w.op(
        "ConvTranspose",
        name,
        a.weight.name,
        None if a.bias is None else a.bias.name,
        kernel_shape=list(a.weight.shape[2:]),
        strides=for_each(a.stride, rank),
        dilations=for_each(a.dilation, rank),
        group=a.groups,
        pads=for_each(a.padding, rank) * 2,
        output_padding=for_each(a.output_padding, rank),
    )
    return w.squeeze(found, [0]) if unbatched else found


def as_batch(w: Writer, x: Value, rank: int) -> tuple[str, bool]:
    """Return images of so many dimensions as a batch, and whether it is of a single one."""
    unbatched = x.rank == rank + 1
    return (w.unsqueeze(x.name, [0]) if unbatched else x.name), unbatched


@form("max_pool_values")
def _max_pool(w: Writer, a: Any, out: Any) -> Any:
    rank = len(a.kernel_size)
    name, unbatched = as_batch(w, a.self, rank)
    found = w.op(
        "MaxPool",
        name,
        kernel_shape=list(a.kernel_size),
        strides=list(a.stride),
        pads=list(a.padding) * 2,
        dilations=list(a.dilation),
        ceil_mode=int(a.ceil_mode),
    )
    return w.squeeze(found, [0]) if unbatched else found


@form("max_pool_with_indices")
def _max_pool_indices(w: Writer, a: Any, out: Any) -> Any:
    rank = len(a.kernel_size)
    name, unbatched = as_batch(w, a.self, rank)
    values, at = w.op(
        "MaxPool",
        name,
        kernel_shape=list(a.kernel_size),
        strides=list(a.stride),
        pads=list(a.padding) * 2,
        dilations=list(a.dilation),
        ceil_mode=int(a.ceil_mode),
        outputs=2,
    )
    # ONNX counts through the whole tensor, PyTorch through each image.
    shape = w.slice(w.shape(name), 0, 2, 2**31)
    at = w.op("Mod", at, w.op("ReduceProd", shape, keepdims=0))
    if unbatched:
        return w.squeeze(values, [0]), w.squeeze(at, [0])
    return values, at


def _avg_pool(rank: int) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        if getattr(a, "divisor_override", None):
            raise UnsupportedOperatorError("an average with a divisor of its own")
        x = a.first
        name, unbatched = as_batch(w, x, rank)
        kernel = for_each(a.kernel_size, rank)
        strides = for_each(a.stride, rank) if a.stride not in (None, ()) else kernel
        if a.ceil_mode and w.opset < 19:
            raise UnsupportedOperatorError("ceil_mode of averages is defined from opset 19 on")
        found = w.op(
            "AveragePool",
            name,
            kernel_shape=kernel,
            strides=strides,
            pads=for_each(a.padding, rank) * 2,
            ceil_mode=int(a.ceil_mode),
            count_include_pad=int(a.count_include_pad),
        )
        return w.squeeze(found, [0]) if unbatched else found

    return call


for _rank in (1, 2, 3):
    form(f"avg_pool{_rank}d", whole=True)(_avg_pool(_rank))


def _ones(w: Writer, like: Value, value: float) -> str:
    return w.constant(np.full(like.shape, value), like.dtype)


@form("batch_norm", whole=True)
def _batch_norm(w: Writer, a: Any, out: Any) -> Any:
    if a.training or a.running_mean is None:
        raise UnsupportedOperatorError("batch norm by the statistics of a batch; use model.eval()")
    scale = a.weight.name if a.weight else _ones(w, a.running_mean, 1)
    shift = a.bias.name if a.bias else _ones(w, a.running_mean, 0)
    mean, var = a.running_mean.name, a.running_var.name
    return w.op("BatchNormalization", a.input.name, scale, shift, mean, var, epsilon=a.eps)


def _layer(w: Writer, x: Value, shape: Any, weight: Any, bias: Any, eps: float) -> str:
    dims = list(range(x.rank - len(shape), x.rank))
    if w.opset >= 17:
        scale = weight.name if weight else w.constant(np.ones(tuple(shape)), x.dtype)
        shift = None if bias is None else bias.name
        made = w.op("LayerNormalization", x.name, scale, shift, axis=dims[0], epsilon=eps)
        return str(made)
    normal = _standard(w, x.name, x.dtype, dims, eps)
    if weight is not None:
        normal = w.op("Mul", normal, weight.name)
    return normal if bias is None else str(w.op("Add", normal, bias.name))


def _standard(w: Writer, name: str, dtype: Any, dims: list[int], eps: float) -> str:
    """Return values without their mean, by their deviation."""
    distance = w.op("Sub", name, w.reduce("ReduceMean", name, dims, True))
    spread = w.reduce("ReduceMean", w.op("Mul", distance, distance), dims, True)
    return str(w.op("Div", distance, w.op("Sqrt", w.op("Add", spread, w.constant(eps, dtype)))))


@form("layer_norm", whole=True)
def _layer_norm(w: Writer, a: Any, out: Any) -> Any:
    return _layer(w, a.input, a.normalized_shape, a.weight, a.bias, a.eps)


@form("native_layer_norm")
def _native_layer_norm(w: Writer, a: Any, out: Any) -> Any:
    y = _layer(w, a.input, a.normalized_shape, a.weight, a.bias, a.eps)
    dims = list(range(a.input.rank - len(a.normalized_shape), a.input.rank))
    mean = w.reduce("ReduceMean", a.input.name, dims, True)
    distance = w.op("Sub", a.input.name, mean)
    spread = w.reduce("ReduceMean", w.op("Mul", distance, distance), dims, True)
    inner = w.op("Add", spread, w.constant(a.eps, a.input.dtype))
    return y, mean, w.op("Reciprocal", w.op("Sqrt", inner))


def _by_channel(w: Writer, p: Value, rank: int) -> str:
    return w.reshape(p.name, [-1] + [1] * (rank - 2)) if rank > 2 else p.name


@form("group_norm", whole=True)
def _group_norm(w: Writer, a: Any, out: Any) -> Any:
    x = a.input
    rows = w.reshape(x.name, [0, a.num_groups, -1], copies=True)
    normal = w.op("Reshape", _standard(w, rows, x.dtype, [2], a.eps), w.shape(x.name))
    if a.weight is not None:
        normal = w.op("Mul", normal, _by_channel(w, a.weight, x.rank))
    return normal if a.bias is None else w.op("Add", normal, _by_channel(w, a.bias, x.rank))


@form("instance_norm", whole=True)
def _instance_norm(w: Writer, a: Any, out: Any) -> Any:
    x = a.input
    if not a.use_input_stats:
        raise UnsupportedOperatorError("instance norm by running statistics")
    normal = _standard(w, x.name, x.dtype, list(range(2, x.rank)), a.eps)
    if a.weight is not None:
        normal = w.op("Mul", normal, _by_channel(w, a.weight, x.rank))
    return normal if a.bias is None else w.op("Add", normal, _by_channel(w, a.bias, x.rank))


def _softmax(operator: str) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        name = w.cast(a.self.name, a.self.dtype, out.dtype)
        if not a.self.rank:
            row = w.op(operator, w.reshape(name, [1]), axis=0)
            return w.reshape(row, [])
        return w.op(operator, name, axis=a.dim % a.self.rank)

    return call


form("_softmax")(_softmax("Softmax"))
form("_log_softmax")(_softmax("LogSoftmax"))


@form(
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    whole=True,
)
def _dropout(w: Writer, a: Any, out: Any) -> Any:
    if a.training and a.p:
        raise UnsupportedOperatorError("dropout draws numbers; use model.eval()")
    return a.first.name


@form("_attention")
def _attention(w: Writer, a: Any, out: Any) -> Any:
    q, k, v = a.query, a.key, a.value
    order = [*range(q.rank - 2), q.rank - 1, q.rank - 2]
    scaled = w.op("Mul", q.name, w.constant(a.scale, q.dtype))
    scores = w.op("MatMul", scaled, w.op("Transpose", k.name, perm=order))
    lowest = w.constant(-math.inf, q.dtype)
    if a.is_causal:
        rows, columns = (
            w.op("Range", w.size(0), w.op("Gather", w.shape(x.name), w.size(x.rank - 2)), w.size(1))
            for x in (q, k)
        )
        seen = w.op("LessOrEqual", columns, w.unsqueeze(rows, [1]))
        scores = w.op("Where", seen, scores, lowest)
    if a.mask is not None:
        if a.mask.dtype is tangrad.bool:
            scores = w.op("Where", a.mask.name, scores, lowest)
        else:
            scores = w.op("Add", scores, a.mask.name)
    weights = w.op("Softmax", scores, axis=-1)
    if a.mask is not None:
        empty = w.op("IsNaN", weights)  # a query that may attend to nothing
        weights = w.op("Where", empty, w.constant(0, q.dtype), weights)
    return w.op("MatMul", weights, v.name), None


_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}


@form("_recurrent_layer")
def _recurrent_layer(w: Writer, a: Any, out: Any) -> Any:
    if a.batch_sizes is not None:
        raise UnsupportedOperatorError("recurrent layers over packed sequences")
    gates = _GATES[a.mode]
    hidden = a.weight.shape[1]
    width = len(gates) * hidden

    def ordered(name: str, axis: int = 0) -> str:
        if len(gates) == 1:
            return name
        rows = np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in gates])
        return str(w.op("Gather", name, w.constant(rows.astype(np.int64)), axis=axis))

    if getattr(a, "linear", None):  # what enters is a product of the layer's input
        entering, weight, bias = a.linear
        weight = ordered(weight)
        first = ordered(bias) if bias else w.constant(np.zeros(width), a.entering.dtype)
    else:
        entering = a.entering.name
        weight = ordered(w.constant(np.eye(width), a.entering.dtype))
        first = w.constant(np.zeros(width), a.entering.dtype)
    zero = w.constant(np.zeros(width), a.entering.dtype)
    second = ordered(a.bias.name) if a.bias is not None else zero
    both = w.unsqueeze(w.op("Concat", first, second, axis=0), [0])
    count = a.states.shape[0]
    states = [w.slice(a.states.name, 0, i, i + 1) for i in range(count)]
    given = [entering, w.unsqueeze(weight, [0]), w.unsqueeze(ordered(a.weight.name), [0]), both]
    operator = a.mode.partition("_")[0]
    results = w.op(
        operator,
        *given,
        None,
        *states,
        hidden_size=hidden,
        direction="reverse" if a.backwards else "forward",
        activations=["Relu"] if a.mode == "RNN_RELU" else None,
        linear_before_reset=1 if operator == "GRU" else None,
        outputs=1 + count,
    )
    output = w.squeeze(results[0], [1])
    last = results[1] if count == 1 else w.op("Concat", *results[1:], axis=0)
    return output, last, None


@form("grid_sampler_2d", "grid_sampler", "grid_sampler_3d", whole=True)
def _grid_sampler(w: Writer, a: Any, out: Any) -> Any:
    if w.opset < 16 or (a.input.rank == 5 and w.opset < 20):
        raise UnsupportedOperatorError("GridSample needs opset 16, and 20 for volumes")
    new = w.opset >= 20
    modes = ("linear", "nearest", "cubic") if new else ("bilinear", "nearest", "bicubic")
    return w.op(
        "GridSample",
        a.input.name,
        a.grid.name,
        mode=modes[a.interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[a.padding_mode],
        align_corners=int(a.align_corners),
    )


@form("pixel_shuffle", whole=True)
def _pixel_shuffle(w: Writer, a: Any, out: Any) -> Any:
    if a.self.rank != 4:
        raise UnsupportedOperatorError("pixel_shuffle of other than four dimensions")
    return w.op("DepthToSpace", a.self.name, blocksize=a.upscale_factor, mode="CRD")


@form("linalg_det", "det")
def _det(w: Writer, a: Any, out: Any) -> Any:
    return w.op("Det", a.first.name)
