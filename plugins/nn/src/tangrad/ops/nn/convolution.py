"""Define the kernels of convolution over any number of spatial dimensions.

Convolution is bilinear in input and weight. Its three faces (result, input and weight as the
unknown) are ops of their own and each other's derivatives, so every order of derivative and
the transposed convolution come from the same three kernels.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.fusing import plain_on_host
from tangrad.plugin import (
    Ints,
    at_all_sizes,
    batched_front,
    find_op,
    get_driver,
    get_intercept,
    numel_of,
    op,
)

# Maps of a result whose channels are neighbours, to be worth lanes of their own.
LEAST_MAPS = 8

# Sizes of input, weight and result, and (stride, padding, dilation, groups).
SAMPLES: tuple[tuple[Ints, Ints, Ints, tuple[Ints, Ints, Ints, int]], ...] = (
    ((2, 2, 5), (3, 2, 2), (2, 3, 3), ((2,), (1,), (1,), 1)),
    ((1, 2, 4, 3), (2, 1, 2, 2), (1, 2, 2, 4), ((1, 1), (0, 1), (2, 1), 2)),
)


def gradients_of_torch(
    torch: Any, grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, *rest: Any
) -> Any:
    """Return PyTorch's gradients of a convolution by input, weight and bias."""
    dilation, groups = rest
    window = (stride, padding, dilation, False, [0] * len(stride), groups)
    wanted = (True, True, True)
    return torch.ops.aten.convolution_backward(
        grad, input, weight, [weight.shape[0]], *window, wanted
    )


@at_all_sizes
def _out_sizes(sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    )


# NumPy kernels: a convolution is one matrix product per group over a copy of all windows --------


def _window_view(np: Any, x: Any, kernel: Ints, out: Ints, stride: Ints, dilation: Ints) -> Any:
    """View a padded (N, C, sizes...) array as (N, C, kernel..., out...)."""
    lead, spatial = x.strides[:2], x.strides[2:]
    steps = tuple(b * d for b, d in zip(spatial, dilation, strict=True))
    moves = tuple(b * s for b, s in zip(spatial, stride, strict=True))
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:2], *kernel, *out), (*lead, *steps, *moves), writeable=False
    )


def _columns(
    np: Any,
    x: Any,
    kernel: Ints,
    out: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    """Copy the windows of an input to (groups, C/groups * taps, N * positions)."""
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    windows = _window_view(np, padded, kernel, out, stride, dilation)
    spatial = len(kernel)
    taps_first = (1, *range(2, 2 + spatial), 0, *range(2 + spatial, 2 + 2 * spatial))
    shape = (groups, x.shape[1] // groups * numel_of(kernel), x.shape[0] * numel_of(out))
    return np.ascontiguousarray(windows.transpose(taps_first)).reshape(shape)


def _rows(np: Any, y: Any, groups: int) -> Any:
    """Copy a (N, O, out...) array to (groups, O/groups, N * positions)."""
    moved = np.ascontiguousarray(np.moveaxis(y, 1, 0))
    return moved.reshape((groups, y.shape[1] // groups, y.shape[0] * numel_of(y.shape[2:])))


def _convolve(
    np: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    out = _out_sizes(input.shape[2:], weight.shape[2:], stride, padding, dilation)
    columns = _columns(np, input, weight.shape[2:], out, stride, padding, dilation, groups)
    taps = weight.reshape((groups, weight.shape[0] // groups, columns.shape[1]))
    product = np.matmul(taps, columns).reshape((weight.shape[0], input.shape[0], *out))
    return np.ascontiguousarray(np.moveaxis(product, 0, 1))


def _convolve_weight(
    np: Any,
    input: Any,
    grad: Any,
    shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    out = grad.shape[2:]
    columns = _columns(np, input, shape[2:], out, stride, padding, dilation, groups)
    return np.matmul(_rows(np, grad, groups), columns.transpose(0, 2, 1)).reshape(shape)


def _convolve_input(
    np: Any,
    weight: Any,
    grad: Any,
    shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    kernel, out = weight.shape[2:], grad.shape[2:]
    if not weight.size or not grad.size:
        return np.zeros(shape, grad.dtype)
    taps = weight.reshape((groups, weight.shape[0] // groups, -1))
    columns = np.matmul(taps.transpose(0, 2, 1), _rows(np, grad, groups))
    columns = columns.reshape((shape[1], *kernel, shape[0], *out))
    sizes = tuple(n + 2 * p for n, p in zip(shape[2:], padding, strict=True))
    padded = np.zeros((shape[1], shape[0], *sizes), grad.dtype)
    for tap in np.ndindex(*kernel):
        covered = tuple(
            slice(i * d, i * d + (n - 1) * s + 1, s)
            for i, d, n, s in zip(tap, dilation, out, stride, strict=True)
        )
        padded[(slice(None), slice(None), *covered)] += columns[(slice(None), *tap)]
    inner = tuple(slice(p, p + n) for p, n in zip(padding, shape[2:], strict=True))
    return np.ascontiguousarray(np.moveaxis(padded[(slice(None), slice(None), *inner)], 0, 1))


def _is_integer(n: Any) -> bool:
    return hasattr(n, "__index__") and not isinstance(n, bool) and not getattr(n, "ndim", 0)


_ONLY_INT = {int}


def repeated(name: str, value: Any, count: int) -> Ints:
    """Repeat a single number for all spatial dimensions.

    Raises:
        TypeError: neither integers nor an integer.
        RuntimeError: another count of integers.
    """
    if type(value) is int:  # the usual case, before the checks that cost more than small kernels
        return (value,) * count
    if type(value) is tuple and len(value) == count and _ONLY_INT.issuperset(map(type, value)):
        return value
    listed = (value,) if _is_integer(value) else value
    if not isinstance(listed, (tuple, list)) or not all(map(_is_integer, listed)):
        raise TypeError(
            f"{name} must be an integer or {count} integers, got {value!r} ({type(value).__name__})"
        )
    if len(listed) == 1:
        return tuple(listed) * count
    if len(listed) != count:
        raise RuntimeError(f"expected {name} to be a single integer or {count} values, got {value}")
    return tuple(listed)


def in_format_of(result: Any, input: Any, weight: Any = None) -> Any:
    """Store a result of images or volumes channels last where the strides of what is given say so.

    A single image may be channels last without: the stride of its batch can be any.
    """
    if input.ndim not in (4, 5):
        return result
    by_input = not input.is_contiguous() and ordered_channels_last(input)
    # Windows of one element say so while they are contiguous.
    by_weight = weight is not None and weight.stride(1) == 1 and ordered_channels_last(weight)
    if not by_input and not by_weight:
        return result
    wanted = tangrad.channels_last if input.ndim == 4 else tangrad.channels_last_3d
    return result.contiguous(memory_format=wanted)


def ordered_channels_last(x: Any) -> bool:
    """Whether the strides grow from channels over the last dimension to the first, gaps or not."""
    shape = x.shape
    # The usual case, where no size leaves strides open; sizes of a recorded program are not asked.
    if (
        get_intercept() is None
        and len(shape) == 4
        and 1 not in shape
        and 0 not in shape
        and x.is_contiguous(memory_format=tangrad.channels_last)
    ):
        return True
    stride, reach = x.stride(), 0
    if stride[1] == 0 or 0 in shape:
        return False
    for d in (1, *range(x.ndim - 1, 1, -1), 0):
        # Where nothing but the first dimension is longer than one, either order is the same.
        if stride[d] < reach or (d == 0 and reach == stride[1]):
            return False
        reach = stride[d] * shape[d]
    return True


# The three faces ---------------------------------------------------------------------------------


def check_geometry(name: str, **values: Ints) -> None:
    for what, least in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)):
        if any(n < least for n in values.get(what, ())):
            raise RuntimeError(
                f"{name}: {what} should be at least {least}, got {list(values[what])}"
                + (" (negative padding is not supported)" if what == "padding" else "")
                + (" (non-positive stride is not supported)" if what == "stride" else "")
            )


def check_convolution(
    input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> None:
    check_geometry("convolution", stride=stride, padding=padding, dilation=dilation)
    if groups < 1:
        raise RuntimeError(f"convolution: non-positive groups is not supported, got {groups}")
    if input.dtype.name == "bool" and 0 not in input.shape:
        raise NotImplementedError("convolution is not implemented for bool; convert to a number")
    if any(k < 1 for k in weight.shape[2:]):
        raise RuntimeError(
            f"convolution: kernel size should be greater than zero, got {list(weight.shape[2:])}"
        )
    if weight.shape[0] < groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0 and "
            f"divisible by it, but got weight of size {list(weight.shape)} instead"
        )
    if input.shape[1] != weight.shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input"
            f"{list(input.shape)} to have {weight.shape[1] * groups} channels, but got "
            f"{input.shape[1]} channels instead"
        )
    if input.dtype != weight.dtype:
        raise RuntimeError(
            f"convolution: Input type ({input.type()}) and weight type ({weight.type()}) should be "
            "the same"
        )
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    padded = [n + 2 * p for n, p in zip(input.shape[2:], padding, strict=True)]
    if any(n < r for n, r in zip(padded, reach, strict=True)):
        sizes, kernel = (" x ".join(map(str, of)) for of in (padded, reach))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({sizes}). Kernel size: ({kernel}). "
            "Kernel size can't be greater than actual input size"
        )


def _fold_groups(x: Any) -> Any:
    """Merge a leading batch dimension into the channels: (B, N, C, ...) to (N, B * C, ...)."""
    return x.movedim(0, 1).flatten(1, 2)


def _split_groups(x: Any, size: int) -> Any:
    return x.unflatten(1, (size, -1)).movedim(1, 0)


def _convolution_batch(
    size: int,
    dims: Any,
    input: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    x = batched_front(input, dims[0], size)
    if dims[1] is None:
        flat = convolution(x.flatten(0, 1), weight, stride, padding, dilation, groups)
        return flat.unflatten(0, (size, x.shape[1])), 0
    taps = weight.movedim(dims[1], 0).flatten(0, 1)
    wide = convolution(_fold_groups(x), taps, stride, padding, dilation, size * groups)
    return _split_groups(wide, size), 0


convolution = op(
    "convolution(Tensor input, Tensor weight, int[] stride, int[] padding, int[] dilation,"
    " int groups) -> Tensor",
    dtypes="floating complex",
    check=check_convolution,
    shape=lambda input, weight, stride, padding, dilation: (
        input.shape[0],
        weight.shape[0],
        *_out_sizes(input.shape[2:], weight.shape[2:], stride, padding, dilation),
    ),
    reference=_convolve,
    vjp={
        "input": lambda g, input_meta, weight, stride, padding, dilation, groups: convolution_input(
            weight.conj(), g, input_meta.shape, stride, padding, dilation, groups
        ),
        "weight": lambda g, input, weight_meta, stride, padding, dilation, groups: (
            convolution_weight(
                input.conj(), g, weight_meta.shape, stride, padding, dilation, groups
            )
        ),
    },
    linear=("input", "weight"),
    batch=_convolution_batch,
    function=False,
    method=False,
    samples=lambda s: [
        *(s(s.tensor(*x), s.tensor(*w), *window) for x, w, _, window in SAMPLES),
        s(s.tensor(1, 1, 2, 3, 2), s.tensor(1, 1, 1, 2, 2), (1,) * 3, (0,) * 3, (1,) * 3, 1),
        s(s.tensor(0, 1, 3), s.tensor(1, 1, 2), (1,), (0,), (1,), 1),
    ],
    oracle=lambda torch, x, w, stride, padding, dilation, groups: torch.ops.aten.convolution(
        x, w, None, stride, padding, dilation, False, [0] * len(stride), groups
    ),
    errors=lambda s: [
        (
            s(s.tensor(1, 2, 3), s.tensor(1, 1, 2), (1,), (0,), (1,), 1),
            RuntimeError,
            "channels",
        ),
        (
            s(s.tensor(1, 2, 3), s.tensor(0, 2, 2), (1,), (0,), (1,), 1),
            RuntimeError,
            "at least 1 at dimension 0",
        ),
    ],
    doc="""Correlate an input (N, C, sizes...) with a weight (O, C / groups, kernel...).

    The common core of conv1d, conv2d and conv3d.
    """,
)


def _convolution_input_batch(
    size: int,
    dims: Any,
    weight: Any,
    grad: Any,
    shape: Ints,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    y = batched_front(grad, dims[1], size)
    if dims[0] is None:
        folded = (size * shape[0], *shape[1:])
        flat = convolution_input(weight, y.flatten(0, 1), folded, stride, padding, dilation, groups)
        return flat.unflatten(0, (size, shape[0])), 0
    taps = weight.movedim(dims[0], 0).flatten(0, 1)
    folded = (shape[0], size * shape[1], *shape[2:])
    wide = convolution_input(
        taps, _fold_groups(y), folded, stride, padding, dilation, size * groups
    )
    return _split_groups(wide, size), 0


def _cut_to(x: Any, shape: Ints) -> Any:
    """Drop window positions that a transposed convolution left out.

    Its output padding, which may exceed the stride where the dilation does, can make room for
    positions beyond those of its input.
    """
    for d, n in enumerate(tuple(shape)[2:], 2):
        if x.shape[d] != n:
            x = x.narrow(d, 0, n)
    return x


def _convolved(
    x: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """Convolve with channels that stay neighbours in memory where they are."""
    last = x.ndim == 4 and not x.is_contiguous() and plain_on_host(x, weight)
    if (
        not last
        or groups != 1
        or weight.shape[0] < LEAST_MAPS
        or not ordered_channels_last(x)
        or not (x.is_floating_point() and x.dtype.itemsize > 2)
    ):
        return convolution(x, weight, stride, padding, dilation, groups)
    of_pixels = find_op("convolution_channels_last")
    found = of_pixels(x.permute((0, 2, 3, 1)), weight, stride, padding, dilation)
    return found.permute((0, 3, 1, 2))


convolution_input = op(
    "convolution_input(Tensor weight, Tensor grad, int[] shape, int[] stride, int[] padding,"
    " int[] dilation, int groups) -> Tensor",
    dtypes="floating complex",
    shape=lambda shape: shape,
    memory_format=lambda grad: (
        tangrad.channels_last
        if grad.ndim == 4
        and not grad.is_contiguous()
        and get_driver(grad.device.type).host
        and ordered_channels_last(grad)
        else tangrad.contiguous_format
    ),
    reference=_convolve_input,
    vjp={
        "weight": lambda g, weight_meta, grad, stride, padding, dilation, groups: (
            convolution_weight(g, grad.conj(), weight_meta.shape, stride, padding, dilation, groups)
        ),
        "grad": lambda g, weight, grad_meta, stride, padding, dilation, groups: _cut_to(
            _convolved(g, weight.conj(), stride, padding, dilation, groups), grad_meta.shape
        ),
    },
    linear=("weight", "grad"),
    batch=_convolution_input_batch,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(*w), s.tensor(*y), x, *window) for x, w, y, window in SAMPLES],
    oracle=lambda torch, w, g, shape, *window: gradients_of_torch(
        torch, g, torch.zeros(shape, dtype=g.dtype), w, *window
    )[0],
    doc="Apply the adjoint of a convolution in its input: the transposed convolution.",
)


def _convolution_weight_batch(
    size: int,
    dims: Any,
    input: Any,
    grad: Any,
    shape: Ints,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    x, y = batched_front(input, dims[0], size), batched_front(grad, dims[1], size)
    wide = convolution_weight(
        _fold_groups(x),
        _fold_groups(y),
        (size * shape[0], *shape[1:]),
        stride,
        padding,
        dilation,
        size * groups,
    )
    return wide.unflatten(0, (size, shape[0])), 0


convolution_weight = op(
    "convolution_weight(Tensor input, Tensor grad, int[] shape, int[] stride, int[] padding,"
    " int[] dilation, int groups) -> Tensor",
    dtypes="floating complex",
    shape=lambda shape: shape,
    reference=_convolve_weight,
    vjp={
        "input": lambda g, input_meta, grad, stride, padding, dilation, groups: convolution_input(
            g, grad.conj(), input_meta.shape, stride, padding, dilation, groups
        ),
        "grad": lambda g, input, grad_meta, stride, padding, dilation, groups: _cut_to(
            convolution(input.conj(), g, stride, padding, dilation, groups), grad_meta.shape
        ),
    },
    linear=("input", "grad"),
    batch=_convolution_weight_batch,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(*x), s.tensor(*y), w, *window) for x, w, y, window in SAMPLES],
    oracle=lambda torch, x, g, shape, *window: gradients_of_torch(
        torch, g, x, torch.zeros(shape, dtype=g.dtype), *window
    )[1],
    doc="Apply the adjoint of a convolution in its weight.",
)
