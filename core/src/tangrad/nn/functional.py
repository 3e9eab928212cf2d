"""Functions of neural networks.

Plain compositions stand here; every other name is an op, found by `tangrad.ops.lookup`.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import ops

# Each reduction of a loss by the function that does it.
_REDUCTIONS = {
    "none": lambda loss: loss,
    "mean": lambda loss: loss.mean(),
    "sum": lambda loss: loss.sum(),
}


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


def hardtanh(
    input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Any:
    """Return the elements clamped to [min_val, max_val].

    Raises:
        ValueError: if `min_val` is greater than `max_val`.
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return input.clamp_(min_val, max_val) if inplace else input.clamp(min_val, max_val)


def relu6(input: Any, inplace: bool = False) -> Any:
    """Return min(max(0, x), 6), elementwise."""
    return hardtanh(input, 0.0, 6.0, inplace)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """Return x where it is positive, `negative_slope` times x elsewhere."""
    return _activation("leaky_relu", inplace, input, negative_slope)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """Return x where it is positive, `alpha` (exp(x) - 1) elsewhere."""
    return _activation("elu", inplace, input, alpha)


def silu(input: Any, inplace: bool = False) -> Any:
    """Return x sigmoid(x), elementwise."""
    return _activation("silu", inplace, input)


def tanh(input: Any) -> Any:
    """Return the hyperbolic tangent, elementwise."""
    return input.tanh()


def sigmoid(input: Any) -> Any:
    """Return 1 / (1 + exp(-x)), elementwise."""
    return input.sigmoid()


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In training, zero elements with probability `p` and scale the rest by 1 / (1 - p).

    Raises:
        ValueError: if `p` lies outside [0, 1].
    """
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return _activation("dropout", inplace, input, p, training)


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
    return _op("softmax")(input if dtype is None else input.to(dtype), dim)


def log_softmax(
    input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Any:
    """Return the logarithm of `softmax`, computed without overflow.

    Args:
        input: the values.
        dim: dimension along which the exponentials of the results sum to 1.
        _stacklevel: ignored.
        dtype: dtype to which the input is converted first.
    """
    if dim is None:
        dim = _softmax_dim("log_softmax", input.dim())
    return _op("log_softmax")(input if dtype is None else input.to(dtype), dim)


def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """Return `softmax` of the negated input."""
    return softmax(-input, dim, _stacklevel, dtype)


# --- padding, convolution, pooling --------------------------------------------------------------


def _pair(value: Any, length: int = 2) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * length


def _pad_constant(input: Any, dim: int, before: int, after: int, value: float) -> Any:
    """Pad (or, for negative numbers, crop) one dimension."""
    start, stop = max(-before, 0), input.shape[dim] - max(-after, 0)
    if stop < start:
        raise RuntimeError(
            f"pad: padding ({before}, {after}) leaves dimension {dim} of size "
            f"{input.shape[dim]} with a negative size"
        )
    if start or stop != input.shape[dim]:
        input = input.narrow(dim, start, stop - start)
    parts = [_constant_like(input, dim, size, value) for size in (before, after)]
    parts.insert(1, input)
    parts = [part for part in parts if part is not None]
    return tangrad.cat(parts, dim) if len(parts) > 1 else input


def _constant_like(input: Any, dim: int, size: int, value: float) -> Any:
    if size <= 0:
        return None
    shape = list(input.shape)
    shape[dim] = size
    return input.new_full(shape, value)


def _reflected(i: int, n: int) -> int:
    return -i if i < 0 else 2 * (n - 1) - i if i >= n else i


# Where, in a dimension of n elements, the value at the padded position i is taken from.
_PAD_SOURCES = {
    "reflect": _reflected,
    "replicate": lambda i, n: min(max(i, 0), n - 1),
    "circular": lambda i, n: i % n,
}


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """Pad the last dimensions.

    Args:
        input: the tensor.
        pad: numbers of elements (before, after) for the last dimension, then for the one before
            it, and so on; negative numbers crop.
        mode: ``"constant"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        value: what ``"constant"`` pads with; 0 by default.

    Raises:
        RuntimeError: if the padding does not fit the dimensions.
        NotImplementedError: if the mode is unknown.
    """
    if len(pad) % 2 or len(pad) // 2 > input.dim():
        raise RuntimeError(
            f"pad: the padding {tuple(pad)} must have two numbers for each padded dimension, of "
            f"which the input has {input.dim()}"
        )
    if mode != "constant" and mode not in _PAD_SOURCES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if mode != "constant" and value is not None:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    for position in range(len(pad) // 2):
        before, after = pad[2 * position : 2 * position + 2]
        dim = input.dim() - 1 - position
        if mode == "constant":
            input = _pad_constant(input, dim, before, after, value or 0)
        elif before or after:
            input = _pad_from_input(input, dim, before, after, mode)
    return input


def _pad_from_input(input: Any, dim: int, before: int, after: int, mode: str) -> Any:
    size = input.shape[dim]
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    if size == 0 or (limit is not None and max(before, after) > limit):
        raise RuntimeError(
            f"pad: padding size should be at most {limit} in mode {mode!r} for dimension {dim} "
            f"of size {size}, but got ({before}, {after})"
        )
    source = _PAD_SOURCES[mode]
    index = [source(i, size) for i in range(-before, size + after)]
    return input.index_select(dim, tangrad.tensor(index, device=input.device, dtype=tangrad.int64))


def _same_padding(input: Any, kernel: Any, stride: Any, dilation: Any) -> tuple[Any, Any]:
    """Return the input and the padding that keep the size, as padding="same" asks."""
    if any(step != 1 for step in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    # The odd element goes to the end, which the op's symmetric padding cannot express.
    uneven = [n for total in reversed(totals) for n in (0, total % 2)]
    if any(uneven):
        input = pad(input, uneven)
    return input, tuple(total // 2 for total in totals)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Correlate images with filters.

    Args:
        input: of shape (N, C, H, W) or (C, H, W).
        weight: filters of shape (C_out, C / groups, kH, kW).
        bias: of shape (C_out), added to every position.
        stride: step between windows.
        padding: zeros on both sides, or ``"valid"`` (none) or ``"same"`` (output as large as
            the input; stride 1 only).
        dilation: step between the elements of a window.
        groups: number of groups of channels that do not mix.
    """
    stride, dilation = _pair(stride), _pair(dilation)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        input, padding = _same_padding(input, weight.shape[2:], stride, dilation)
    elif isinstance(padding, str):
        raise ValueError(
            f"Invalid padding string {padding!r}, should be one of 'valid', 'same'"
        )
    return _op("conv2d")(input, weight, bias, stride, _pair(padding), dilation, groups)


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Correlate sequences with filters.

    Args:
        input: of shape (N, C, L) or (C, L).
        weight: filters of shape (C_out, C / groups, k).
        bias: of shape (C_out), added to every position.
        stride: step between windows.
        padding: zeros on both sides, or ``"valid"`` or ``"same"``, as for `conv2d`.
        dilation: step between the elements of a window.
        groups: number of groups of channels that do not mix.
    """
    if not isinstance(padding, str):
        padding = (0, *_pair(padding, 1))
    image, filters = input.unsqueeze(-2), weight.unsqueeze(-2)
    stride, dilation = (1, *_pair(stride, 1)), (1, *_pair(dilation, 1))
    return conv2d(image, filters, bias, stride, padding, dilation, groups).squeeze(-2)


def _windows(size: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> list[int]:
    """Return where the windows of a pooling begin, counted from the first real element."""
    room = size + 2 * padding - kernel
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    # A window that begins in the padding at the end would see nothing.
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    if count <= 0:
        raise RuntimeError(
            f"pooling: a window of {kernel} does not fit an input of size {size} with padding "
            f"{padding}: the output would be too small"
        )
    return [i * stride - padding for i in range(count)]


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Return the mean of each window.

    Args:
        input: of shape (N, C, H, W) or (C, H, W).
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: zeros on both sides, at most half of `kernel_size`.
        ceil_mode: round the output's size up.
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: number to divide by instead of the window's size.

    Raises:
        RuntimeError: if the windows do not fit.
    """
    kernel, padding = _pair(kernel_size), _pair(padding)
    stride = kernel if stride is None or stride == () else _pair(stride)
    if any(p > k // 2 for k, p in zip(kernel, padding, strict=True)):
        raise RuntimeError(
            f"avg_pool2d: pad should be at most half of effective kernel size, but got padding "
            f"{padding} and kernel_size {kernel}"
        )
    counts, total = [], input
    for dim, k, s, p in zip((-2, -1), kernel, stride, padding, strict=True):
        size = input.shape[dim]
        starts = _windows(size, k, s, p, ceil_mode)
        end = starts[-1] + k - size
        pads = (p, end) if dim == -1 else (0, 0, p, end)
        total = pad(total, pads)
        low, high = (-p, size + p) if count_include_pad else (0, size)
        counts.append([min(i + k, high) - max(i, low) for i in starts])
    windows = total.unfold(-2, kernel[0], stride[0]).unfold(-2, kernel[1], stride[1])
    total = windows.sum((-2, -1))
    if divisor_override is not None:
        return total / divisor_override
    rows, columns = (total.new_tensor(count) for count in counts)
    return total / (rows.unsqueeze(1) * columns)


# --- normalization ------------------------------------------------------------------------------


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalize each channel over the batch (Ioffe, Szegedy 2015, arXiv:1502.03167).

    Args:
        input: of shape (N, C, *).
        running_mean: of shape (C); changed in place in training, used in evaluation.
        running_var: of shape (C); likewise, by the unbiased variance.
        weight: factor of shape (C).
        bias: summand of shape (C).
        training: use the statistics of this batch.
        momentum: share of this batch in the running statistics.
        eps: added to the variance.

    Raises:
        ValueError: in training, if a channel has but one value.
        RuntimeError: in evaluation, without running statistics.
    """
    channels = [1, -1] + [1] * (input.dim() - 2)
    if training:
        mean, var = _batch_statistics(input, running_mean, running_var, momentum)
    elif running_mean is None or running_var is None:
        raise RuntimeError(
            "batch_norm: expected running_mean and running_var to be tensors when training=False"
        )
    else:
        mean, var = running_mean, running_var
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    output = (input - mean.reshape(channels)) * scale.reshape(channels)
    return output if bias is None else output + bias.reshape(channels)


def _batch_statistics(input: Any, running_mean: Any, running_var: Any, momentum: float) -> Any:
    """Return mean and biased variance per channel; update the running ones in place."""
    count = input.numel() // max(input.shape[1], 1)
    if count == 1:
        raise ValueError(
            "Expected more than 1 value per channel when training, "
            f"got input size {input.shape}"
        )
    dims = [dim for dim in range(input.dim()) if dim != 1]
    mean = input.mean(dims)
    centered = input - mean.reshape([1, -1] + [1] * (input.dim() - 2))
    var = (centered * centered).mean(dims)
    with tangrad.no_grad():
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
        if running_var is not None:
            running_var.mul_(1 - momentum).add_(var, alpha=momentum * count / (count - 1))
    return mean, var


def normalize(
    input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None
) -> Any:
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


# --- losses -------------------------------------------------------------------------------------


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """Return the reduction meant by the two deprecated flags and `reduction`."""
    if size_average is None and reduce is None:
        meant = reduction
    else:
        import warnings

        if reduce is not None and not reduce:
            meant = "none"
        else:
            meant = "mean" if size_average is None or size_average else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{meant}' "
            "instead.",
            stacklevel=3,
        )
    if meant not in _REDUCTIONS:
        raise ValueError(f"{meant} is not a valid value for reduction")
    return meant


def _same_size(name: str, input: Any, target: Any) -> None:
    if input.shape != target.shape:
        import warnings

        warnings.warn(
            f"{name}: the target's size {target.shape} differs from the input's {input.shape}; "
            "broadcasting them is likely a mistake",
            stacklevel=3,
        )


def _weighted(loss: Any, weight: Any, reduction: str) -> Any:
    if weight is None:
        return _REDUCTIONS[reduction](loss)
    loss = loss * weight
    if reduction == "mean":
        return loss.sum() / weight.expand_as(loss).sum()
    return _REDUCTIONS[reduction](loss)


def mse_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    """Return the mean squared difference.

    Args:
        input: predictions.
        target: values of the same shape.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: factor for each element.
    """
    reduction = _reduction(size_average, reduce, reduction)
    _same_size("mse_loss", input, target)
    difference = input - target
    return _weighted(difference * difference, weight, reduction)


def l1_loss(
    input: Any,
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    """Return the mean absolute difference.

    Args:
        input: predictions.
        target: values of the same shape.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: factor for each element.
    """
    reduction = _reduction(size_average, reduce, reduction)
    _same_size("l1_loss", input, target)
    return _weighted((input - target).abs(), weight, reduction)


def binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    """Return the cross entropy of sigmoid(input) against probabilities.

    Args:
        input: logits.
        target: probabilities, of the same shape.
        weight: factor for each element.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: factor for the positive part.

    Raises:
        ValueError: if the shapes differ.
    """
    reduction = _reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    # log(1 + exp(-x)) without overflow: log1p(exp(-|x|)) + max(-x, 0).
    softplus = (-input.abs()).exp().log1p() + (-input).clamp(min=0)
    if pos_weight is None:
        loss = (1 - target) * input + softplus
    else:
        loss = (1 - target) * input + (1 + (pos_weight - 1) * target) * softplus
    if weight is not None:
        loss = loss * weight
    return _REDUCTIONS[reduction](loss)


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """Return the negative log likelihood of the target classes.

    Args:
        input: log probabilities of shape (N, C), (C) or (N, C, *).
        target: class indices of shape (N), () or (N, *).
        weight: factor for each class.
        size_average: deprecated.
        ignore_index: class that does not count.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    reduction = _reduction(size_average, reduce, reduction)
    return _op("nll_loss")(
        input, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Return the cross entropy of softmax(input) against classes.

    Args:
        input: logits of shape (N, C), (C) or (N, C, *).
        target: class indices of shape (N), () or (N, *), or probabilities of the input's shape.
        weight: factor for each class.
        size_average: deprecated.
        ignore_index: class that does not count.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: share of the uniform distribution in the target.
    """
    reduction = _reduction(size_average, reduce, reduction)
    return _op("cross_entropy")(
        input,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


# --- tables -------------------------------------------------------------------------------------


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
    rows = weight.shape[0]
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    else:
        padding_idx %= rows
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    return _op("embedding")(weight, input, padding_idx, scale_grad_by_freq, sparse)


def _shorten(weight: Any, index: Any, max_norm: float, norm_type: float) -> None:
    """Scale down, in place, the rows of `weight` at `index` that are longer than `max_norm`."""
    with tangrad.no_grad():
        index = index.reshape(-1)
        rows = weight[index]
        norms = rows.norm(norm_type, 1, keepdim=True)
        # The same small number as the renorm op: a row never comes out longer than max_norm.
        factor = (max_norm / (norms + 1e-7)).clamp(max=1.0)
        weight[index] = rows * factor


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Return int64 vectors that are 1 at the given class and 0 elsewhere.

    Args:
        tensor: class indices of shape (*).
        num_classes: length of a vector; one more than the largest index by default.

    Returns:
        A tensor of shape (*, num_classes).

    Raises:
        RuntimeError: if `tensor` does not hold int64, is empty without `num_classes`, or holds
            an index outside [0, num_classes).
    """
    if tensor.dtype != tangrad.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if tensor.numel() == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if tensor.numel() and int(tensor.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    largest = int(tensor.max()) if tensor.numel() else -1
    if num_classes == -1:
        num_classes = largest + 1
    if num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    if largest >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    classes = tangrad.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(tangrad.int64)
