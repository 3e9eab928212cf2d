"""Define group normalization, and as one pass each what it does and its gradient."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.convolution import (
    _fold_groups,
    _split_groups,
    in_format_of,
    ordered_channels_last,
)
from tangrad.ops.nn.fusing import by_device, plain_on_host
from tangrad.ops.nn.normalization.layer import layer_norm_jvp, native_layer_norm
from tangrad.plugin import Ints, Tensor, batched_front, composite, numel_of, op, require_floating


def _wide(parameter: Any, x: Any) -> Any:
    return parameter.reshape((-1,) + (1,) * (x.ndim - 2))


def _grouped(x: Any, groups: int) -> Any:
    samples, *rest = x.shape
    return x.reshape((samples, groups, numel_of(rest) // groups))


def _per_channel(x: Any, weight: Any, bias: Any) -> Any:
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and p.numel() != x.shape[1]:
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in "
                f"input, but got {name} of shape {list(p.shape)} and input of shape "
                f"{list(x.shape)}"
            )
    x = x if weight is None else x * _wide(weight, x)
    return x if bias is None else x + _wide(bias, x)


def _check(input: Any, weight: Any, bias: Any, groups: int) -> None:
    require_floating("group_norm", input)
    if input.ndim < 2 or groups < 1 or input.shape[1] % groups:
        raise RuntimeError(
            f"group_norm: expected an input (N, C, ...) with channels that {groups} groups "
            f"divide, got shape {list(input.shape)}"
        )
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and tuple(parameter.shape) != (input.shape[1],):
            raise RuntimeError(
                f"group_norm: expected {name} to have {input.shape[1]} elements, one for each "
                f"channel, got shape {list(parameter.shape)}"
            )


def _format(input: Any) -> Any:
    """Give results the order of the input in memory, as far as it is channels last."""
    if input.ndim not in (4, 5) or input.is_contiguous() or not ordered_channels_last(input):
        return tangrad.contiguous_format
    return tangrad.channels_last if input.ndim == 4 else tangrad.channels_last_3d


def _decomposed(input: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    # Rounded to half precision once: bias may cancel what is scaled, and leave its rounding.
    half = input.dtype.itemsize < 4
    rows = _grouped(input.to(tangrad.float32) if half else input, groups)
    result, mean, rstd = native_layer_norm(rows, (rows.shape[2],), None, None, eps)
    result = _per_channel(result.reshape(input.shape), weight, bias)
    found = (result, mean.squeeze(-1), rstd.squeeze(-1))
    return tuple(x.to(input.dtype) for x in found) if half else found


def _vjp(
    grads: Any,
    input: Any,
    weight: Any,
    groups: int,
    result1: Any,
    result2: Any,
    needs: Any,
) -> tuple[Any, Any, Any]:
    """Differentiate (result, mean, rstd) by input, weight and bias, as those of layer_norm."""
    g0, g1, g2 = grads
    by_input = by_weight = by_bias = None
    if g0 is not None:
        by_input, by_weight, by_bias = fused_group_norm_backward(
            g0, input, result1, result2, weight, groups
        )
    rows = _grouped(input, groups)
    for part in (
        None if g1 is None else (g1 / rows.shape[2]).unsqueeze(-1).expand(rows.shape),
        None
        if g2 is None
        else (rows - result1.unsqueeze(-1)) * (g2 * result2**3 / -rows.shape[2]).unsqueeze(-1),
    ):
        if part is not None:
            part = part.reshape(input.shape)
            by_input = part if by_input is None else by_input + part
    return by_input, by_weight if needs[1] else None, by_bias if needs[2] else None


def _jvp(
    input: Any,
    weight: Any,
    groups: int,
    input_t: Any,
    weight_t: Any,
    bias_t: Any,
    result1: Any,
    result2: Any,
) -> tuple[Any, Any, Any]:
    rows, mean, rstd = _grouped(input, groups), result1.unsqueeze(-1), result2.unsqueeze(-1)
    normal = (rows - mean) * rstd
    moved = None if input_t is None else _grouped(input_t, groups)
    shape = (rows.shape[2],)
    tangents = layer_norm_jvp(rows, shape, None, moved, None, None, normal, mean, rstd)
    tangent = tangents[0].reshape(input.shape)
    tangent = tangent if weight is None else tangent * _wide(weight, input)
    if weight_t is not None:
        tangent = tangent + normal.reshape(input.shape) * _wide(weight_t, input)
    if bias_t is not None:
        tangent = tangent + _wide(bias_t, input)
    return tangent, *(t.squeeze(-1) for t in tangents[1:])


def _among_channels(x: Any, dim: int | None, size: int) -> Any:
    """Merge a batch's dimension into that of the channels, or of the groups."""
    return _fold_groups(batched_front(x, dim, size))


def _of_channels(parameter: Any, dim: int | None, size: int) -> Any:
    return None if parameter is None else batched_front(parameter, dim, size).flatten(0, 1)


def _batch(
    size: int, dims: Any, input: Any, weight: Any, bias: Any, groups: int, eps: float
) -> Any:
    found = fused_group_norm(
        _among_channels(input, dims[0], size),
        _of_channels(weight, dims[1], size),
        _of_channels(bias, dims[2], size),
        size * groups,
        eps,
    )
    return tuple(_split_groups(x, size) for x in found), (0, 0, 0)


fused_group_norm = op(
    "fused_group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    dtypes="floating",
    check=_check,
    shape=lambda input, groups: [input.shape, *[(input.shape[0], groups)] * 2],
    dtype=lambda input: [input.dtype] * 3,
    memory_format=_format,
    decompose=_decomposed,
    vjp={("input", "weight", "bias"): _vjp},
    jvp=_jvp,
    batch=_batch,
    node="native_group_norm",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4, 3), s.tensor(4), s.tensor(4), 2, 1e-5),
        s(s.tensor(1, 6, 2, 3, strided=True), None, s.tensor(6), 3, 0.1),
        s(s.tensor(3, 4), s.tensor(4), None, 1, 1e-3),
        s(s.tensor(2, 2, 70), s.tensor(2), s.tensor(2), 2, 1e-5),
    ],
    oracle=lambda torch, x, weight, bias, groups, eps: torch.ops.aten.native_group_norm(
        x.contiguous(), weight, bias, x.shape[0], x.shape[1], x[0, 0].numel(), groups, eps
    ),
    errors=lambda s: [
        (s(s.tensor(2, 3, 2), None, None, 2, 0.1), RuntimeError, "groups divide"),
        (s(s.tensor(2, 2, 2), s.tensor(3), None, 2, 0.1), RuntimeError, "weight to have 2"),
    ],
    doc="Normalize groups of channels; give also their mean and reciprocal deviation (N, groups).",
)


def _gradient(grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, groups: int) -> Any:
    if input.dtype.itemsize < 4:
        scale = None if weight is None else weight.float()
        wide = _gradient(grad.float(), input.float(), mean.float(), rstd.float(), scale, groups)
        return tuple(x.to(input.dtype) for x in wide)
    rows, h = _grouped(input, groups), grad if weight is None else grad * _wide(weight, input)
    mean, rstd, h = mean.unsqueeze(-1), rstd.unsqueeze(-1), _grouped(h, groups)
    normal = (rows - mean) * rstd
    slope = (h * normal).mean(-1, keepdim=True)
    by_input = rstd * (h - h.mean(-1, keepdim=True) - normal * slope)
    others = [d for d in range(input.ndim) if d != 1]
    by_weight = (grad * normal.reshape(input.shape)).sum(others)
    return by_input.reshape(input.shape), by_weight, grad.sum(others)


def _gradient_vjp(
    grads: Any,
    grad: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    groups: int,
    needs: Any,
) -> tuple[Any, ...]:
    """Differentiate the gradient: walk the graph of the tensor code that computes the same."""
    from tangrad.func import vjp

    given = [grad, input, mean, rstd] if weight is None else [grad, input, mean, rstd, weight]

    def gradient(g: Any, x: Any, mean: Any, rstd: Any, weight: Any = None) -> Any:
        return _gradient(g, x, mean, rstd, weight, groups)

    found, back = vjp(gradient, *given)
    zeros = (
        g if g is not None else y.new_zeros(y.shape) for g, y in zip(grads, found, strict=True)
    )
    by = back(tuple(zeros))
    return (*by, *[None] * (5 - len(by)))


def _gradient_jvp(
    grad: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    groups: int,
    grad_t: Any,
    input_t: Any,
    mean_t: Any,
    rstd_t: Any,
    weight_t: Any,
) -> Any:
    from tangrad.func import jvp

    pairs = [(grad, grad_t), (input, input_t), (mean, mean_t), (rstd, rstd_t)]
    pairs += [] if weight is None else [(weight, weight_t)]

    def gradient(g: Any, x: Any, mean: Any, rstd: Any, weight: Any = None) -> Any:
        return _gradient(g, x, mean, rstd, weight, groups)

    values = tuple(x for x, _ in pairs)
    tangents = tuple(x.new_zeros(x.shape) if t is None else t for x, t in pairs)
    return jvp(gradient, values, tangents)[1]


def _gradient_batch(
    size: int,
    dims: Any,
    grad: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    groups: int,
) -> Any:
    tensors = (grad, input, mean, rstd)
    merged = (_among_channels(x, d, size) for x, d in zip(tensors, dims, strict=False))
    by_input, by_weight, by_bias = fused_group_norm_backward(
        *merged, _of_channels(weight, dims[4], size), size * groups
    )
    flat = (x.unflatten(0, (size, -1)) for x in (by_weight, by_bias))
    return (_split_groups(by_input, size), *flat), (0, 0, 0)


def _shapes(input: Any) -> list[Ints]:
    return [input.shape, (input.shape[1],), (input.shape[1],)]


fused_group_norm_backward = op(
    "fused_group_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd,"
    " Tensor? weight, int groups) -> (Tensor, Tensor, Tensor)",
    dtypes="floating",
    check=lambda input, weight, groups: _check(input, weight, None, groups),
    shape=_shapes,
    dtype=lambda input: [input.dtype] * 3,
    memory_format=_format,
    decompose=_gradient,
    vjp={("grad", "input", "mean", "rstd", "weight"): _gradient_vjp},
    jvp=_gradient_jvp,
    batch=_gradient_batch,
    node="native_group_norm_backward",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4, 3), s.tensor(2, 4, 3), s.tensor(2, 2), s.tensor(2, 2), s.tensor(4), 2),
        s(
            s.tensor(1, 6, 2, 3, strided=True),
            s.tensor(1, 6, 2, 3),
            s.tensor(1, 3),
            s.tensor(1, 3),
            None,
            3,
        ),
        s(s.tensor(2, 2, 70), s.tensor(2, 2, 70), s.tensor(2, 1), s.tensor(2, 1), s.tensor(2), 1),
    ],
    oracle=lambda torch, g, x, mean, rstd, weight, groups: (
        _gradient(g, x, mean, rstd, weight, groups)
        if x.is_floating_point()
        else torch.nn.functional.group_norm(x, groups)
    ),
    doc="Compute the gradients of group_norm by input, weight and bias.",
)


@composite(
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
        (s(s.tensor(1, 4, 1), 4), ValueError, "more than 1 value per channel"),
    ],
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Normalize groups of channels of each sample, then scale and shift each channel.

    Wu, He: "Group normalization", 2018. The input is (N, C, ...).
    """
    shape = tuple(input.shape)
    grouped = input.ndim >= 2 and num_groups > 0
    # PyTorch's count, of which the samples are a part.
    if grouped and shape[0] * shape[1] // num_groups * numel_of(shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{list(shape)} (group_norm of {num_groups} groups)"
        )
    return _group_norm(input, num_groups, weight, bias, eps)[0]


def _group_norm(
    input: Any, num_groups: int, weight: Any, bias: Any, eps: float
) -> tuple[Any, Any, Any]:
    """Normalize groups of channels; give the mean and reciprocal deviation of each, too."""
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
    own = by_device("group_norm", input, num_groups, weight, bias, eps)
    if own is not None:
        return in_format_of(own[0], input), *own[1:]
    parameters = [p for p in (weight, bias) if p is not None]
    same = all(p.dtype == input.dtype and tuple(p.shape) == (channels,) for p in parameters)
    if (
        same
        and input.dtype.itemsize > 2
        and input.is_floating_point()
        and plain_on_host(input, *parameters)
    ):
        found = fused_group_norm(input, weight, bias, num_groups, eps)
        return in_format_of(found[0], input), *found[1:]
    groups = input.reshape((input.shape[0], num_groups, size))
    # Rounded to half precision once: bias may cancel what is scaled, and leave its rounding.
    half = input.dtype.itemsize < 4 and (weight is not None or bias is not None)
    groups = groups.to(tangrad.float32) if half else groups
    found = native_layer_norm(groups, (size,), None, None, eps)
    result = _per_channel(found[0].reshape(input.shape), weight, bias)
    result = result.to(input.dtype) if half else result
    return in_format_of(result, input), found[1].squeeze(-1), found[2].squeeze(-1)


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4, 3), s.tensor(4), s.tensor(4), 2, 4, 3, 2, 1e-5),
        s(s.tensor(1, 4, 2, 2), None, None, 1, 4, 4, 4, 0.1),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3, 2), None, None, 2, 3, 2, 2, 0.1), RuntimeError, "divisible by"),
        (s(s.tensor(2, 3, 2), None, None, 2, 3, 4, 3, 0.1), RuntimeError, "elements"),
    ],
)
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize groups of channels; give the mean and reciprocal deviation (N, group), too.

    See `nn.functional.group_norm`. N, C and HxW tell the input's sizes again.
    """
    if input.ndim < 2 or tuple(input.shape)[:2] != (N, C) or input.numel() != N * C * HxW:
        raise RuntimeError(
            f"native_group_norm: expected an input of N={N} samples, C={C} channels and HxW={HxW} "
            f"elements of each, got shape {list(input.shape)}"
        )
    result, *moments = _group_norm(input, group, weight, bias, eps)
    return result, *(x.to(input.dtype) for x in moments)
