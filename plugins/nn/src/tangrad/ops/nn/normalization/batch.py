"""Define the normalization of channels over a batch."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.fusing import fuses
from tangrad.ops.nn.normalization.batch_gradient import (
    _batch_norm_backward,
    if_floating,
    over_channels,
    per_channel,
    vectors_over_channels,
)
from tangrad.ops.nn.normalization.moments import (
    _batch_moments_,
    channel_axes,
    check_vectors,
    count_per_channel,
    statistics_dtype,
)
from tangrad.plugin import Tensor, at_all_sizes, composite, numel_of, op, open_tensor, overload


def _check_batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool
) -> None:
    check_vectors(input, weight=weight, bias=bias, running_mean=mean, running_var=var)
    if not training and (mean is None or var is None):
        raise RuntimeError(
            "batch_norm: running_mean and running_var must be given in evaluation mode"
        )


def _batch_norm_reference(
    np: Any,
    input: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    eps: float,
) -> Any:
    axes, shape = channel_axes(input), (1, -1) + (1,) * (input.ndim - 2)
    kept = np.float32 if input.dtype.itemsize < 4 else input.dtype
    x = input.astype(kept)
    if training and input.size and mean is None:
        mean = x.mean(axes)
        centered = x - mean.reshape(shape)
        var = (centered * centered).mean(axes)
    elif training and mean is None:
        mean = var = np.zeros(input.shape[1], kept)
    mean, var = mean.astype(kept), var.astype(kept)
    result = (x - mean.reshape(shape)) * (1 / np.sqrt(var + eps)).reshape(shape)
    result = result if weight is None else result * weight.reshape(shape)
    result = result if bias is None else result + bias.reshape(shape)
    return result.astype(input.dtype), mean, var


@at_all_sizes
def _batch_norm_vjp(
    grads: Any,
    input: Any,
    weight: Any,
    bias_meta: Any,
    training: bool,
    eps: float,
    result1: Any,
    result2: Any,
    needs: Any,
) -> tuple[Any, Any, Any]:
    """Differentiate (result, mean, variance) by input, weight and bias.

    The part of the result is an op of its own. In training the mean of n elements adds g1 / n,
    their variance g2 2 (x - mean) / n.
    """
    g0, g1, g2 = grads
    d_input = d_weight = d_bias = None
    if g0 is not None:
        d_input, d_weight, d_bias = _batch_norm_backward(
            g0, input, result1, result2, weight, training, eps
        )
        d_weight = d_weight.to(weight.dtype) if needs[1] else None
        d_bias = d_bias.to(bias_meta.dtype) if needs[2] else None
    if training:
        count = max(1, numel_of([input.shape[d] for d in channel_axes(input)]))
        if g1 is not None:
            part = per_channel(input, g1 / count).expand(input.shape)
            d_input = part if d_input is None else d_input + part
        if g2 is not None:
            centered = input - per_channel(input, result1)
            part = centered * per_channel(input, g2 * (2 / count))
            d_input = part if d_input is None else d_input + part
    return None if d_input is None else d_input.to(input.dtype), d_weight, d_bias


def _batch_norm_statistics_vjp(
    grads: Any,
    input: Any,
    weight: Any,
    mean: Any,
    var: Any,
    training: bool,
    eps: float,
    needs: Any,
) -> tuple[Any, Any]:
    """Differentiate by the statistics that evaluation is given."""
    g0, g1, g2 = grads
    if training:
        return None, None
    by_mean, by_var = g1, g2
    if g0 is not None:
        rstd = (var.to(statistics_dtype(input)) + eps).rsqrt()
        owed = g0 if weight is None else g0 * per_channel(input, weight)
        first = -owed.sum(channel_axes(input)) * rstd
        centered = input - per_channel(input, mean)
        second = (owed * centered).sum(channel_axes(input)) * (rstd**3 * -0.5)
        by_mean = first if by_mean is None else by_mean + first
        by_var = second if by_var is None else by_var + second
    return (
        None if by_mean is None else by_mean.to(mean.dtype),
        None if by_var is None else by_var.to(var.dtype),
    )


def _batch_norm_jvp(
    input: Any,
    weight: Any,
    training: bool,
    eps: float,
    input_t: Any,
    weight_t: Any,
    bias_t: Any,
    mean_t: Any,
    var_t: Any,
    result0: Any,
    result1: Any,
    result2: Any,
) -> tuple[Any, Any, Any]:
    axes = channel_axes(input)
    rstd = (result2 + eps).rsqrt()
    centered = input - per_channel(input, result1)
    moved = tangrad.zeros_like(centered) if input_t is None else input_t
    moments_t = [tangrad.zeros_like(result1), tangrad.zeros_like(result2)]
    if not training:
        for k, given in enumerate((mean_t, var_t)):
            moments_t[k] = moments_t[k] if given is None else given.to(result1.dtype)
    elif input_t is not None and input.numel():
        moments_t[0] = input_t.to(result1.dtype).mean(axes)
        moments_t[1] = (centered * input_t).mean(axes) * 2
    rstd_t = moments_t[1] * rstd**3 * -0.5
    tangent = (moved - per_channel(input, moments_t[0])) * per_channel(input, rstd)
    tangent = tangent + centered * per_channel(input, rstd_t)
    tangent = tangent if weight is None else tangent * per_channel(input, weight)
    if weight_t is not None:
        tangent = tangent + centered * per_channel(input, rstd * weight_t)
    if bias_t is not None:
        tangent = tangent + per_channel(input, bias_t)
    return tangent.to(result0.dtype), moments_t[0], moments_t[1]


def _batch_norm_batch(
    size: int,
    dims: Any,
    input: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    eps: float,
) -> Any:
    x = over_channels(size, input, dims[0])
    vectors = vectors_over_channels(size, (weight, bias, mean, var), dims[1:5])
    result, mean, var = _batch_norm(x, *vectors, training, eps)
    parts = (result.unflatten(1, (size, -1)), mean.reshape((size, -1)), var.reshape((size, -1)))
    return parts, (1, 0, 0)


_batch_norm = op(
    "_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? var,"
    " bool training, float eps) -> (Tensor result, Tensor batch_mean, Tensor batch_var)",
    dtypes="floating",
    check=_check_batch_norm,
    shape=lambda input: [input.shape, (input.shape[1],), (input.shape[1],)],
    dtype=lambda input: [input.dtype, *[statistics_dtype(input)] * 2],
    reference=_batch_norm_reference,
    vjp={
        ("input", "weight", "bias"): _batch_norm_vjp,
        ("mean", "var"): _batch_norm_statistics_vjp,
    },
    jvp=_batch_norm_jvp,
    batch=_batch_norm_batch,
    function=False,
    method=False,
    node="native_batch_norm",
    samples=lambda s: [
        s(s.tensor(4, 2), s.tensor(2), s.tensor(2), None, None, True, 1e-5),
        s(s.tensor(2, 3, 2, strided=True), None, None, None, None, True, 0.1),
        s(
            s.tensor(2, 2, 3),
            s.tensor(2),
            None,
            s.tensor(2),
            s.tensor(2, low=1, high=2),
            False,
            1e-5,
        ),
        *if_floating(s, s.tensor(0, 2), None, None, None, None, True, 0.1),
    ],
    oracle=lambda torch, x, weight, bias, mean, var, training, eps: _normalized_of(
        torch, x, weight, bias, mean, var, training, eps
    ),
    doc="""Normalize each channel by the moments of the batch, or given ones; give them too.

    In training, given moments are those of the batch.
    """,
)


def _normalized_of(
    torch: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, eps: float
) -> Any:
    functional = torch.nn.functional
    result = functional.batch_norm(x, mean, var, weight, bias, training, 0.1, eps)
    kept = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    if training:
        empty = x.numel() == 0
        wide = x.to(kept)
        mean = wide.sum(channel_axes(x)) if empty else wide.mean(channel_axes(x))
        var = wide.sum(channel_axes(x)) if empty else wide.var(channel_axes(x), correction=0)
    return result, mean.to(kept), var.to(kept)


def _channels_last(input: Any) -> bool:
    """Whether the elements of a position lie side by side, and positions one after the other."""
    if input.ndim == 4:
        return bool(input.is_contiguous(memory_format=tangrad.channels_last))
    return input.ndim == 5 and bool(input.is_contiguous(memory_format=tangrad.channels_last_3d))


def _normalized(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, eps: float
) -> tuple[Any, Any, Any]:
    """Call the op; maps of which channels come last are rows of channels, in and out."""
    if input.is_contiguous() or not _channels_last(input):
        found: tuple[Any, Any, Any] = _batch_norm(input, weight, bias, mean, var, training, eps)
        return found
    rows = input.movedim(1, -1)
    result, mean, var = _batch_norm(
        rows.reshape((-1, rows.shape[-1])), weight, bias, mean, var, training, eps
    )
    return result.reshape(rows.shape).movedim(-1, 1), mean, var


def _update_running(running: Any, batch: Any, momentum: float) -> None:
    if running is not None:  # which outlives a level of dual tensors, so it takes no tangent
        seen = open_tensor(batch.detach()).to(running.dtype)
        running.mul_(1 - momentum).add_(seen, alpha=momentum)


@at_all_sizes
def in_one_pass(input: Any, running: list[Any]) -> bool:
    """Whether running statistics, all or none, are moved where the batch's are computed."""
    if (
        len(running) == 1
        or not fuses(input, *running)
        or not input.is_floating_point()
        or input.ndim < 2
    ):
        return False
    kept, vector = statistics_dtype(input), (input.shape[1],)
    usual = all(
        t.dtype == kept and tuple(t.shape) == vector and t.is_contiguous() and not t.requires_grad
        for t in running
    )
    return usual and bool(input.is_contiguous()) and input.numel() > vector[0]


def normalized_and_counted(
    input: Any,
    running: list[Any],
    weight: Any,
    bias: Any,
    momentum: float,
    eps: float,
    counter: Any = None,
) -> tuple[Any, Any, Any]:
    """Normalize by the batch's moments, move running ones and count the batch where there are."""
    vector, kept = (input.shape[1],), statistics_dtype(input)
    moments = [input.new_empty(vector, dtype=kept), input.new_empty(vector, dtype=kept)]
    counters = [] if counter is None else [counter]
    _batch_moments_(input, [*moments, *running, *counters], momentum)
    found: tuple[Any, Any, Any] = _batch_norm(input, weight, bias, *moments, True, eps)
    return found


def _train(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any]:
    check_vectors(
        input, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    running = [t for t in (running_mean, running_var) if t is not None]
    if in_one_pass(input, running):
        return normalized_and_counted(input, running, weight, bias, momentum, eps)
    count = count_per_channel(input)
    found = _normalized(input, weight, bias, None, None, True, eps)
    if count:
        _update_running(running_mean, found[1], momentum)
        unbiased = found[2] if running_var is None else found[2] * (count / max(count - 1, 1))
        _update_running(running_var, unbiased, momentum)
    return found


_NO_HISTORY = "the statistics come without a history, as PyTorch's"


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    method=False,
    surrogate=_NO_HISTORY,
    samples=lambda s: [
        s(s.tensor(4, 2), s.tensor(2), s.tensor(2), None, None, True, 0.1, 1e-5),
        s(s.tensor(2, 3, 2, 2), None, None, None, None, True, 0.1, 0.1),
    ],
    errors=lambda s: [
        (s(s.tensor(2), None, None, None, None, True, 0.1, 0.1), (RuntimeError, IndexError), "2D"),
    ],
)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize each channel over the batch; give its mean and reciprocal deviation, too.

    The latter two are empty in evaluation. See `nn.functional.batch_norm`.
    """
    if not training:
        _check_batch_norm(input, weight, bias, running_mean, running_var, False)
        result = _normalized(input, weight, bias, running_mean, running_var, False, eps)[0]
        empty = input.new_empty((0,))
        return result, empty, input.new_empty((0,))
    result, mean, var = _train(input, running_mean, running_var, weight, bias, momentum, eps)
    kept = input.dtype if weight is None else weight.dtype
    return result, mean.detach().to(kept), (var.detach() + eps).rsqrt().to(kept)


@composite(
    out=True,
    strict_out_dtype=True,
    dtypes="floating",
    function=False,
    method=False,
    surrogate=_NO_HISTORY,
    samples=lambda s: [s(s.tensor(4, 2), s.tensor(2), s.tensor(2), True, 0.1, 1e-5)],
    oracle="_native_batch_norm_legit",
)
def _native_batch_norm_stateless(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize each channel over the batch, without running statistics."""
    found: tuple[Any, Any, Any] = native_batch_norm(
        input, weight, bias, None, None, training, momentum, eps
    )
    return found


_native_batch_norm_legit = overload(
    "_native_batch_norm_legit", "native_batch_norm", "_native_batch_norm_stateless", method=False
)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(4, 2), None, None, s.tensor(2), s.tensor(2), True),
        s(s.tensor(2, 2, 3), s.tensor(2), s.tensor(2, low=1, high=2)),
        s(s.tensor(2, 3, 2, 2), None, None, training=True, eps=0.1),
        s(s.tensor(2, 3, 2, strided=True), None, None, s.tensor(3), training=True),
        *if_floating(s, s.tensor(0, 2), None, None, None, None, True),
    ],
    oracle="nn.functional.batch_norm",
    errors=lambda s: [
        (
            s(s.tensor(1, 2), None, None, training=True),
            ValueError,
            "more than 1 value per channel",
        ),
        (s(s.tensor(2, 2), None, None), RuntimeError, "running_mean"),
        (
            s(s.tensor(2, 2), None, None, s.tensor(3), training=True),
            RuntimeError,
            "weight should contain 2 elements not 3",
        ),
        (s(s.tensor(2, 2), None, None, training=True, eps=0.0), ValueError, "eps must be positive"),
        (
            s(s.tensor(2, 2), s.tensor(2), s.tensor(2), eps=-1.0),
            ValueError,
            "eps must be non-negative",
        ),
    ],
)
@at_all_sizes
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Normalize each channel over the batch, then scale and shift it.

    In training by the batch's own mean and variance, which also move the running ones (the
    variance without bias); otherwise by the running ones (Ioffe, Szegedy: "Batch
    normalization", 2015). The input is (N, C, ...).
    """
    if input.ndim == 1 and not input.numel():  # PyTorch takes it, too
        return input.clone()
    if not training:
        if eps < 0:
            raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
        return _normalized(input, weight, bias, running_mean, running_var, False, eps)[0]
    if input.ndim >= 2 and count_per_channel(input) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    if eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    return _train(input, running_mean, running_var, weight, bias, momentum, eps)[0]
