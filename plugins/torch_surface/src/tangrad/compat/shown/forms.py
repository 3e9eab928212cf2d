"""PyTorch's inner ops by ours, where the arguments differ: {name: function of PyTorch's}."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad.plugin import find_op
from tangrad.utils.weak import WeakIdKeyDictionary

_ALL = slice(None)
REDUCTIONS = ("none", "mean", "sum")
SELU = 1.6732632423543772, 1.0507009873554805  # alpha and scale


def _value_of(self: Any) -> Any:
    return self.item()


def _without_nan(self: Any, dim: int, dtype: Any = None) -> Any:
    """Apply softmax; a row of -inf gives zeros."""
    masked = (self == -float("inf")).all(dim, keepdim=True)
    # Filled before, too: the gradient of softmax is NaN there.
    return tangrad.softmax(self.masked_fill(masked, 0.0), dim, dtype).masked_fill(masked, 0.0)


def _dtype_within(half_to_float: bool) -> Any:
    return tangrad.float32 if half_to_float else None


def _softmax_gradient(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """Return the gradient of softmax, in a dtype."""
    return find_op("_softmax_backward_data")(grad_output, output, dim).to(input_dtype)


def _log_softmax_gradient(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """Return the gradient of log_softmax, in a dtype."""
    return find_op("_log_softmax_backward_data")(grad_output, output, dim).to(input_dtype)


def _pooled_gradient(
    grad_output: Any,
    self: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    """Return the gradient of max_pool2d: each one goes to where its maximum was."""
    planes = grad_output.new_zeros(self.shape).flatten(-2)
    places, values = indices.flatten(-2), grad_output.flatten(-2)
    return planes.scatter_add(-1, places, values).reshape(self.shape)


def _pooled(
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    return F.max_pool2d_with_indices(
        self, kernel_size, tuple(stride) or None, padding, dilation, ceil_mode
    )


def _updating_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Normalize in training; no kernel of ours wants the memory that the fourth result reserves."""
    found = tangrad.native_batch_norm(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return *found, input.new_empty((0,), dtype=tangrad.uint8)


def _batch_norm_gradient(
    grad_out: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Any,
) -> tuple[Any, ...]:
    """Return the gradients of batch norm by input, weight and bias."""
    mean, var = (save_mean, save_invstd**-2 - eps) if train else (running_mean, running_var)
    found = find_op("_batch_norm_backward")(grad_out, input, mean, var, weight, train, eps)
    return tuple(g if wanted else None for g, wanted in zip(found, output_mask, strict=True))


def _layer_norm_gradient(
    grad_out: Any,
    input: Any,
    normalized_shape: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Any,
) -> tuple[Any, ...]:
    """Return the gradients of layer norm by input, weight and bias."""
    shape = tuple(normalized_shape)
    found = find_op("native_layer_norm_backward")(grad_out, input, shape, mean, rstd, weight)
    return tuple(g if wanted else None for g, wanted in zip(found, output_mask, strict=True))


def _convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Convolve, or apply the transpose of a convolution."""
    n = weight.ndim - 2
    if transposed:
        call = (tangrad.conv_transpose1d, tangrad.conv_transpose2d, tangrad.conv_transpose3d)[n - 1]
        return call(
            input, weight, bias, tuple(stride), tuple(padding), tuple(output_padding), groups,
            tuple(dilation),
        )  # fmt: skip
    call = (tangrad.conv1d, tangrad.conv2d, tangrad.conv3d)[n - 1]
    return call(input, weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)


def _nll_loss(
    self: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """Return the negative log likelihood and the weight of all targets together."""
    how = REDUCTIONS[reduction]
    loss = F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=how)
    if how == "none":
        return loss, self.new_zeros(())
    counted = target != ignore_index
    scales = counted if weight is None else weight[target.where(counted, 0)] * counted
    return loss, scales.sum().to(self.dtype)


def _nll_loss_gradient(
    grad_output: Any,
    self: Any,
    target: Any,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Any,
) -> Any:
    counted = target != ignore_index
    places = target.where(counted, 0)
    scales = counted.to(self.dtype) if weight is None else weight[places] * counted
    if REDUCTIONS[reduction] == "mean":
        scales = scales / total_weight
    at = 1 if self.ndim > 1 else 0
    owed = tangrad.where(counted, -grad_output * scales, 0).to(self.dtype)
    return tangrad.zeros_like(self).scatter_(at, places.unsqueeze(at), owed.unsqueeze(at))


def _embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    row = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, row, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def _embedding_gradient(
    grad_output: Any,
    indices: Any,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Any:
    rows, owed = indices.flatten(), grad_output.reshape(-1, grad_output.shape[-1])
    if scale_grad_by_freq:
        owed = owed / rows.bincount(minlength=num_weights)[rows].unsqueeze(1)
    if padding_idx >= 0:
        owed = owed.masked_fill((rows == padding_idx).unsqueeze(1), 0)
    return owed.new_zeros((num_weights, owed.shape[1])).index_add_(0, rows, owed)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    by = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return find_op("_attention")(query, key, value, attn_mask, is_causal, by)


def _attention_gradient(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    by = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return find_op("_attention_backward")(
        grad_out, query, key, value, attn_mask, out, logsumexp, is_causal, by
    )


def _elu(self: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    if (scale, input_scale) == (1, 1):
        return F.elu(self, alpha)
    if (alpha, scale, input_scale) == (*SELU, 1):
        return F.selu(self)
    return tangrad.where(self > 0, self * scale, (self * input_scale).expm1() * (alpha * scale))


def _elu_gradient(
    grad_output: Any, alpha: float, scale: float, input_scale: float, is_result: bool, by: Any
) -> Any:
    below = (by + alpha * scale) if is_result else (by * input_scale).exp() * (alpha * scale)
    return grad_output * tangrad.where(by > 0, scale, below * input_scale)


def _gradient_of(name: str) -> Any:
    """Return the fused gradient of an op, of (gradient of the result, input)."""
    return find_op(name).definition.gradient(("self",))[0]


def _gelu_gradient(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    return _gradient_of(f"gelu_{approximate}")(grad_output, self)


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss whose reduction is a number."""

    def loss(self: Any, target: Any, reduction: int = 1, **more: Any) -> Any:
        return function(self, target, reduction=REDUCTIONS[reduction], **more)

    return loss


def _mse_gradient(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    factor = 2 / self.numel() if REDUCTIONS[reduction] == "mean" else 2
    return (self - target) * factor * grad_output


def _resized(mode: str) -> Callable[..., Any]:
    """Return what resizes pictures as PyTorch's inner op of a mode does."""

    def resize(self: Any, output_size: Any, *rest: Any) -> Any:
        n = self.ndim - 2
        corners = {} if mode == "nearest" else {"align_corners": rest[0]}
        scales = rest if mode == "nearest" else rest[1:]
        if len(scales) == n and None not in scales:
            return F.interpolate(self, scale_factor=tuple(scales), mode=mode, **corners)
        return F.interpolate(self, tuple(output_size), mode=mode, **corners)

    return resize


def _padded(mode: str) -> Callable[..., Any]:
    return lambda self, padding: F.pad(self, tuple(padding), mode)


def _cross_entropy_of_event(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    return F.binary_cross_entropy(self, target, weight, reduction=REDUCTIONS[reduction])


def _cross_entropy_of_score(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    return F.binary_cross_entropy_with_logits(
        self, target, weight, reduction=REDUCTIONS[reduction], pos_weight=pos_weight
    )


# {result of an activation: what it was applied to}, where gradients are computed of that.
SOURCES = WeakIdKeyDictionary()


def _of_output(name: str, slope: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the gradient of an activation by its result, whose slope is lost in the tails."""

    def gradient(grad_output: Any, output: Any) -> Any:
        source = SOURCES.get(output)
        if source is None:
            return grad_output * slope(output)
        return _gradient_of(name)(grad_output, source)

    return gradient


def _copied(self: Any, *, layout: Any = None, pin_memory: Any = None, **options: Any) -> Any:
    options.pop("non_blocking", None)
    made = find_op("_to_copy")(self, **options)
    if layout not in (None, made.layout):
        made = made.to_dense() if layout is tangrad.strided else made.to_sparse(layout=layout)
    return made.pin_memory() if pin_memory else made


def _log_sigmoid(self: Any) -> tuple[Any, Any]:
    return F.logsigmoid(self), self.new_empty(0)


def _at(self: Any, indices: Any) -> Any:
    return self[tuple(_ALL if index is None else index for index in indices)]


FORMS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": lambda self, output_size: F.adaptive_avg_pool2d(self, output_size),
    "_batch_norm_with_update": _updating_batch_norm,
    "_local_scalar_dense": _value_of,
    "_log_softmax": lambda self, dim, half_to_float: tangrad.log_softmax(
        self, dim, _dtype_within(half_to_float)
    ),
    "_log_softmax_backward_data": _log_softmax_gradient,
    "_prelu_kernel": lambda self, weight: find_op("prelu_elements")(self, weight),
    "_safe_softmax": _without_nan,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_gradient,
    "_softmax": lambda self, dim, half_to_float: tangrad.softmax(
        self, dim, _dtype_within(half_to_float)
    ),
    "_softmax_backward_data": _softmax_gradient,
    "_to_copy": _copied,
    "adaptive_max_pool2d": lambda self, output_size: find_op("adaptive_max_pool")(
        self, tuple(output_size)
    ),
    "binary_cross_entropy": _cross_entropy_of_event,
    "binary_cross_entropy_with_logits": _cross_entropy_of_score,
    "convolution": _convolution,
    "copy": lambda self, src, non_blocking=False: src.to(self).expand(self.shape).clone(),
    "elu": _elu,
    "elu_backward": _elu_gradient,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_gradient,
    "gelu_backward": _gelu_gradient,
    "hardtanh_backward": lambda grad_output, self, min_val, max_val: tangrad.where(
        (self > min_val) & (self < max_val), grad_output, 0
    ),
    "huber_loss": lambda self, target, reduction=1, delta=1.0: F.huber_loss(
        self, target, reduction=REDUCTIONS[reduction], delta=delta
    ),
    "index": _at,
    "leaky_relu_backward": lambda grad_output, self, slope, is_result: tangrad.where(
        self > 0, grad_output, grad_output * slope
    ),
    "lift_fresh": lambda self: self,
    "log_sigmoid_backward": lambda grad_output, self, buffer: _gradient_of("logsigmoid")(
        grad_output, self
    ),
    "log_sigmoid_forward": _log_sigmoid,
    "max_pool2d_with_indices": _pooled,
    "max_pool2d_with_indices_backward": _pooled_gradient,
    "mse_loss": _loss(F.mse_loss),
    "mse_loss_backward": _mse_gradient,
    "native_batch_norm_backward": _batch_norm_gradient,
    "native_dropout_backward": lambda grad_output, mask, scale: grad_output * mask * scale,
    "native_layer_norm_backward": _layer_norm_gradient,
    "nll_loss2d_backward": _nll_loss_gradient,
    "nll_loss2d_forward": _nll_loss,
    "nll_loss_backward": _nll_loss_gradient,
    "nll_loss_forward": _nll_loss,
    **{f"reflection_pad{n}d": _padded("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _padded("replicate") for n in (1, 2, 3)},
    "rsub": lambda self, other, alpha=1: other - self * alpha,
    "sigmoid_backward": _of_output("sigmoid", lambda output: output * (1 - output)),
    "smooth_l1_loss": lambda self, target, reduction=1, beta=1.0: F.smooth_l1_loss(
        self, target, reduction=REDUCTIONS[reduction], beta=beta
    ),
    "soft_margin_loss": _loss(F.soft_margin_loss),
    "sym_size": lambda self, dim: self.shape[dim],
    "tanh_backward": _of_output("tanh", lambda output: 1 - output * output),
    "threshold_backward": lambda grad_output, self, threshold: tangrad.where(
        self <= threshold, 0, grad_output
    ),
    **{f"upsample_nearest{n}d": _resized("nearest") for n in (1, 2, 3)},
    "upsample_bicubic2d": _resized("bicubic"),
    "upsample_bilinear2d": _resized("bilinear"),
    "upsample_linear1d": _resized("linear"),
    "upsample_trilinear3d": _resized("trilinear"),
}
