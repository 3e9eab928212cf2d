"""Define adaptive pooling: windows that divide the input as evenly as possible.

Window i of `out` over n elements is [floor(i n / out), ceil((i + 1) n / out)).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import tangrad
from tangrad.ops.nn.convolution import in_format_of, ordered_channels_last, repeated
from tangrad.ops.nn.fusing import fuses
from tangrad.ops.nn.pooling.channels_last import (
    average_of_few,
    average_of_lines,
    lies_last,
    of_lines,
)
from tangrad.ops.nn.pooling.greatest import max_pool2d, max_pool_jvp, max_pool_vjp
from tangrad.ops.nn.pooling.one_pass import WITH_PADDING, window_average
from tangrad.plugin import Ints, Tensor, composite, get_intercept, level_of, numel_of, op

_MOST_OF_A_LANE = 1024  # elements of a window that are added up one after the other
_LARGEST = 2**40  # elements along one dimension of a result: more than fits into any memory


@lru_cache(maxsize=256)
def _windows(size: int, out: int) -> tuple[list[int], list[bool], list[int], int]:
    """List the windows, all as wide as the widest.

    Returns:
        The positions that each looks at, flat; which of them are past its end; its number of
        elements; the width.
    """
    bounds = [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
    width = max((stop - start for start, stop in bounds), default=0)
    places = [min(start + k, stop - 1) for start, stop in bounds for k in range(width)]
    beyond = [start + k >= stop for start, stop in bounds for k in range(width)]
    return places, beyond, [stop - start for start, stop in bounds], width


def _split_windows(input: Any, dim: int, out: int, filler: Any) -> Any:
    """Turn dimension `dim` into (windows, elements of each), where `filler` pads short ones."""
    size = input.shape[dim]
    if size % out == 0:
        return input.unflatten(dim, (out, size // out))
    places, beyond, _, width = _windows(size, out)
    index = tangrad.tensor(places, dtype=tangrad.int64, device=input.device)
    taken = input.index_select(dim, index).unflatten(dim, (out, width))
    mask = tangrad.tensor(beyond, dtype=tangrad.bool, device=input.device)
    mask = mask.reshape((out, width) + (1,) * (input.ndim - dim - 1))
    return taken.masked_fill(mask, filler)


def _average(input: Any, dim: int, out: int) -> Any:
    size = input.shape[dim]
    if out == size:
        return input
    split = _split_windows(input, dim, out, 0)
    if size % out == 0:
        return split.mean((dim + 1,))
    counts = tangrad.tensor(_windows(size, out)[2], dtype=input.dtype, device=input.device)
    return split.sum((dim + 1,)) / counts.reshape((out,) + (1,) * (input.ndim - dim - 1))


def _anywhere(spatial: int) -> tuple[Ints, Ints]:
    """Return stride and padding of windows that have no size."""
    return (1,) * spatial, (0,) * spatial


def _refuse(name: str, dtype: Any) -> None:
    raise NotImplementedError(
        f"{name} is not implemented for {dtype}; convert to a floating-point dtype"
    )


def _checked(name: str, spatial: int, shape: Ints, output_size: Any) -> Ints:
    """Check the input's shape and return the sizes wanted."""
    listed = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
    for size in listed:
        if size is not None:
            repeated("output_size", size, 1)
    if isinstance(output_size, (tuple, list)) and spatial > 1 and len(shape) <= len(output_size):
        raise ValueError(
            f"{name}: Input dimension should be at least {len(output_size) + 1}, got input "
            f"{list(shape)}"
        )
    if len(shape) not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"{name}(): Expected {spatial + 1}D or {spatial + 2}D tensor, but got {list(shape)}"
        )
    sizes = shape[-spatial:]
    if isinstance(output_size, (tuple, list)) and any(o is None for o in output_size):
        if len(output_size) != spatial:
            raise RuntimeError(f"{name}: output_size must be {spatial} numbers, got {output_size}")
        output_size = [n if o is None else o for o, n in zip(output_size, sizes, strict=True)]
    wanted = repeated("output_size", output_size, spatial)
    if any(o < 0 for o in wanted):
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0, got "
            f"{list(wanted)}"
        )
    # An average of no channels is one of nothing; a maximum, PyTorch asks of every channel.
    if 0 in (sizes if "avg" in name else shape[1:]):
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {list(shape)}"
        )
    if max(wanted) > _LARGEST:
        raise RuntimeError(
            f"{name}: an output of sizes {list(wanted)} is more than memory can hold"
        )
    return wanted


_known_sizes = lru_cache(maxsize=256, typed=True)(_checked)


def _wanted(name: str, spatial: int, shape: Ints, output_size: Any) -> Ints:
    """Return the sizes wanted; those of a program that is recorded may be symbols."""
    if get_intercept() is not None:
        return _checked(name, spatial, shape, output_size)
    given = tuple(output_size) if type(output_size) is list else output_size
    return _known_sizes(name, spatial, shape, given)


def _nothing(name: str, input: Any, lead: Ints, wanted: Ints) -> Any:
    """Return a result without elements; backward raises, as PyTorch's, where it asked for none."""
    empty = input.reshape((-1,))[:0].reshape((*lead, *wanted))
    if 0 not in wanted or not empty.requires_grad or level_of(empty) is not None:
        return empty
    from tangrad.autograd.function import DelayedError

    return DelayedError(
        f"{name}: Expected grad_output to have non-zero size for non-batch dimensions, but it has "
        f"shape {list(empty.shape)}"
    )(empty)


def _adaptive_average(name: str, spatial: int, input: Any, output_size: Any) -> Any:
    shape = tuple(input.shape)
    wanted = _wanted(name, spatial, shape, output_size)
    elements, most = input.numel(), max(wanted)
    if 0 in wanted or elements == 0:
        return _nothing(name, input, shape[:-spatial], wanted)
    is_floating = input.is_floating_point()
    if not (is_floating or input.is_complex()):
        _refuse(name, input.dtype)
    if most > 1 and is_floating:
        window = (wanted, (), *_anywhere(spatial), WITH_PADDING)
        found = average_of_few(input, *window)
        if found is not None:
            return found
        if fuses(input):
            if elements <= _MOST_OF_A_LANE * numel_of(shape[:-spatial] + wanted):
                return in_format_of(window_average(input, *window), input)
        elif of_lines(input, spatial):
            return average_of_lines(input, *window)
    # Narrow floats are averaged in float32: one rounding, at the end.
    x = input.to(tangrad.float32) if input.dtype.itemsize < 4 else input
    if most == 1:
        last = spatial == 2 and len(shape) == 4 and not input.is_contiguous()
        if last and ordered_channels_last(input):
            x = x.mean((2, 3)).reshape((shape[0], 1, 1, shape[1])).permute((0, 3, 1, 2))
        else:
            x = x.mean(tuple(range(-spatial, 0)), True)
    else:
        for dim, out in enumerate(wanted, input.ndim - spatial):
            x = _average(x, dim, out)
    x = in_format_of(x if x.dtype == input.dtype else x.to(input.dtype), input)
    return x.clone() if x is input else x


def _last_nan_or_greatest(x: Any) -> Any:
    """Return where along the last dimension the first of the greatest is, or the last NaN."""
    count = tangrad.arange(1, x.shape[-1] + 1, device=x.device)
    nan = count.masked_fill(x == x, 0).amax((-1,))
    return x.max(-1)[1].where(nan == 0, nan - 1)


def _greatest_by_steps(self: Any, output_size: Ints) -> Any:
    spatial = len(output_size)
    lead, sizes = tuple(self.shape)[:-spatial], tuple(self.shape)[-spatial:]
    x = self.detach()
    flat = tangrad.zeros((), dtype=tangrad.int64, device=self.device)
    first = len(lead)
    for k, (size, out) in enumerate(zip(sizes, output_size, strict=True)):
        x = _split_windows(x, first + 2 * k, out, -math.inf)
        places, _, _, width = _windows(size, out)
        along = tangrad.tensor(places, dtype=tangrad.int64, device=self.device)
        along = along.reshape((out, width) + (1, 1) * (spatial - 1 - k))
        flat = flat + along * numel_of(sizes[k + 1 :])
    windows_first = [2 * k for k in range(spatial)] + [2 * k + 1 for k in range(spatial)]
    order = (*range(first), *(first + d for d in windows_first))
    chosen = _last_nan_or_greatest(x.permute(order).reshape((*lead, numel_of(output_size), -1)))
    flat = flat.permute(windows_first).reshape((numel_of(output_size), -1))
    indices = flat.expand((*lead, *flat.shape)).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    values = self.reshape((*lead, -1)).gather(-1, indices)
    shape = (*lead, *output_size)
    return values.reshape(shape), indices.reshape(shape)


def _check_ordered(self: Any) -> None:
    if not self.dtype.is_floating_point:
        _refuse("adaptive_max_pool", self.dtype)


# Sizes are those that `_checked` lets pass.
adaptive_max_pool = op(
    "adaptive_max_pool(Tensor self, int[] output_size) -> (Tensor values, Tensor indices)",
    dtypes="floating",
    check=_check_ordered,
    shape=lambda self, output_size: [(*self.shape[: -len(output_size)], *output_size)] * 2,
    dtype=lambda self: [self.dtype, "int64"],
    decompose=_greatest_by_steps,
    vjp={
        "self": lambda g0, self_meta, output_size, result1: max_pool_vjp(
            g0, self_meta, result1, (), *_anywhere(len(output_size)), (1,) * len(output_size)
        )
    },
    jvp=lambda self_t, output_size, result1: max_pool_jvp(self_t, output_size, result1),
    batch=lambda size, dims, self, output_size: (
        adaptive_max_pool(self.movedim(dims[0], 0), output_size),
        (0, 0),
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4, 6), (2, 3)),
        s(s.tensor(1, 2, 5, 7, strided=True), (3, 4)),
    ],
    oracle=lambda torch, x, output_size: torch.ops.aten.adaptive_max_pool2d(x, output_size),
    doc="Take the greatest element of each adaptive window, and its flat position.",
)


def _adaptive_greatest(
    name: str, spatial: int, input: Any, output_size: Any, return_indices: bool = True
) -> Any:
    """Return the greatest of each window and its flat position, the last NaN being greatest."""
    wanted = _wanted(name, spatial, tuple(input.shape), output_size)
    if not input.is_floating_point():
        _refuse(name, input.dtype)
    lead = tuple(input.shape)[:-spatial]
    if numel_of(wanted) == 0 or numel_of(lead) == 0:
        shape = (*lead, *wanted)
        places = input.new_zeros(shape, dtype=tangrad.int64)
        return _nothing(name, input, lead, wanted), places
    if not return_indices and lies_last(input, spatial):
        sizes = tuple(input.shape)[2:]
        if all(size % out == 0 for size, out in zip(sizes, wanted, strict=True)):
            # Windows of one size, which are pooled where channels lie.
            kernel = [size // out for size, out in zip(sizes, wanted, strict=True)]
            return max_pool2d(input, kernel), None
    values, indices = adaptive_max_pool(input, wanted)
    return in_format_of(values, input), in_format_of(indices, input)


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 6), 3),
        s(s.tensor(2, 5, strided=True), 3),
        s(s.tensor(1, 1, 3), 5),
        s(s.tensor(0, 2, 3), 2),
    ],
    oracle="nn.functional.adaptive_avg_pool1d",
    errors=lambda s: [
        (s(s.tensor(4), 2), RuntimeError, "Expected 2D or 3D"),
        (s(s.tensor(1, 4), -1), RuntimeError, "greater than or equal to 0"),
        (s(s.tensor(2, 0), 2), RuntimeError, "non-zero size"),
    ],
)
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Average windows of signals (N, C, L) or (C, L), as many as wanted.

    Args:
        output_size: a length.
    """
    return _adaptive_average("adaptive_avg_pool1d", 1, input, output_size)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 6), 3),
        s(s.tensor(2, 5, strided=True), 3),
        s(s.tensor(1, 1, 3), 5),
        s(s.tensor(0, 2, 3), 2),
        s(s.tensor(1, 2, 6), 3, return_indices=True),
        s(s.tensor(2, 5, strided=True), 3, return_indices=True),
    ],
    oracle="nn.functional.adaptive_max_pool1d",
    errors=lambda s: [
        (s(s.tensor(4), 2), RuntimeError, "Expected 2D or 3D"),
        (s(s.tensor(1, 4), -1), RuntimeError, "greater than or equal to 0"),
    ],
)
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Take the greatest element of windows of signals (N, C, L) or (C, L).

    Args:
        output_size: a length.
        return_indices: also give the flat position of each result among the spatial elements.
    """
    both = _adaptive_greatest("adaptive_max_pool1d", 1, input, output_size, return_indices)
    return both if return_indices else both[0]


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 5, strided=True), 3),
    ],
    oracle="nn.functional.adaptive_max_pool1d_with_indices",
    errors=lambda s: [
        (s(s.tensor(4), 2), RuntimeError, "Expected 2D or 3D"),
    ],
)
def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Tensor:
    """Take the greatest element of each window, and its position; see `adaptive_max_pool1d`."""
    return _adaptive_greatest("adaptive_max_pool1d", 1, input, output_size)


@composite(
    dtypes="floating complex",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 6), 2),
        s(s.tensor(2, 5, 4), (3, None)),
        s(s.tensor(1, 1, 3, 4, strided=True), (1, 1)),
        s(s.tensor(1, 1, 2, 3), (3, 5)),
        s(s.tensor(0, 1, 2, 3), 2),
    ],
    oracle="nn.functional.adaptive_avg_pool2d",
    errors=lambda s: [
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 3D or 4D"),
        (s(s.tensor(1, 4, 4), (-1, 2)), RuntimeError, "greater than or equal to 0"),
        (s(s.tensor(1, 4, 4), (1, 2, 3)), (ValueError, RuntimeError), "output_size|dimension"),
    ],
)
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Average windows of images (N, C, H, W) or (C, H, W), as many as wanted.

    Args:
        output_size: a number for both sizes or a pair; None keeps a size.
    """
    return _adaptive_average("adaptive_avg_pool2d", 2, input, output_size)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 6), 2),
        s(s.tensor(2, 5, 4), (3, None)),
        s(s.tensor(1, 1, 3, 4, strided=True), (1, 1)),
        s(s.tensor(1, 1, 2, 3), (3, 5)),
        s(s.tensor(0, 1, 2, 3), 2),
        s(s.tensor(1, 2, 4, 6), 2, return_indices=True),
        s(s.tensor(2, 5, 4), (3, None), return_indices=True),
    ],
    oracle="nn.functional.adaptive_max_pool2d",
    errors=lambda s: [
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 3D or 4D"),
        (s(s.tensor(1, 4, 4), (-1, 2)), RuntimeError, "greater than or equal to 0"),
    ],
)
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Take the greatest element of windows of images (N, C, H, W) or (C, H, W).

    Args:
        output_size: a number for both sizes or a pair; None keeps a size.
        return_indices: also give the flat position of each result among the spatial elements.
    """
    both = _adaptive_greatest("adaptive_max_pool2d", 2, input, output_size, return_indices)
    return both if return_indices else both[0]


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 5, 4), (3, None)),
    ],
    oracle="nn.functional.adaptive_max_pool2d_with_indices",
    errors=lambda s: [
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 3D or 4D"),
    ],
)
def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Tensor:
    """Take the greatest element of each window, and its position; see `adaptive_max_pool2d`."""
    return _adaptive_greatest("adaptive_max_pool2d", 2, input, output_size)


@composite(
    dtypes="floating complex",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 2, 4, 3), 2),
        s(s.tensor(2, 3, 5, 4), (2, None, 3)),
        s(s.tensor(1, 1, 2, 3, 4, strided=True), 1),
        s(s.tensor(1, 1, 2, 2, 1), (3, 2, 2)),
    ],
    oracle="nn.functional.adaptive_avg_pool3d",
    errors=lambda s: [
        (s(s.tensor(1, 4, 4), 2), RuntimeError, "Expected 4D or 5D"),
        (s(s.tensor(1, 4, 4, 4), (-1, 2, 2)), RuntimeError, "greater than or equal to 0"),
    ],
)
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Average windows of volumes (N, C, D, H, W) or (C, D, H, W), as many as wanted.

    Args:
        output_size: a number for all sizes or a triple; None keeps a size.
    """
    return _adaptive_average("adaptive_avg_pool3d", 3, input, output_size)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 2, 4, 3), 2),
        s(s.tensor(2, 3, 5, 4), (2, None, 3)),
        s(s.tensor(1, 1, 2, 3, 4, strided=True), 1),
        s(s.tensor(1, 1, 2, 2, 1), (3, 2, 2)),
        s(s.tensor(1, 2, 2, 4, 3), 2, return_indices=True),
        s(s.tensor(2, 3, 5, 4), (2, None, 3), return_indices=True),
    ],
    oracle="nn.functional.adaptive_max_pool3d",
    errors=lambda s: [
        (s(s.tensor(1, 4, 4), 2), RuntimeError, "Expected 4D or 5D"),
        (s(s.tensor(1, 4, 4, 4), (-1, 2, 2)), RuntimeError, "greater than or equal to 0"),
    ],
)
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Take the greatest element of windows of volumes (N, C, D, H, W) or (C, D, H, W).

    Args:
        output_size: a number for all sizes or a triple; None keeps a size.
        return_indices: also give the flat position of each result among the spatial elements.
    """
    both = _adaptive_greatest("adaptive_max_pool3d", 3, input, output_size, return_indices)
    return both if return_indices else both[0]


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3, 5, 4), (2, None, 3)),
    ],
    oracle="nn.functional.adaptive_max_pool3d_with_indices",
    errors=lambda s: [
        (s(s.tensor(1, 4, 4), 2), RuntimeError, "Expected 4D or 5D"),
    ],
)
def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> Tensor:
    """Take the greatest element of each window, and its position; see `adaptive_max_pool3d`."""
    return _adaptive_greatest("adaptive_max_pool3d", 3, input, output_size)
