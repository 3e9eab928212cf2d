"""Define power-average pooling, pooling over random windows, and the inverse of max pooling.

Fractional max pooling: Graham, "Fractional max-pooling", 2014 (https://arxiv.org/abs/1412.6071).
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.convolution import in_format_of, repeated
from tangrad.ops.nn.fusing import plain_on_host
from tangrad.ops.nn.pooling.average import avg_pool1d, avg_pool2d, avg_pool3d
from tangrad.ops.nn.pooling.greatest import max_pool1d, max_pool2d, max_pool3d
from tangrad.plugin import Ints, Tensor, composite, get_intercept, numel_of, op

_AVERAGES = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}
_GREATEST = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}


# The p-norm of windows ---------------------------------------------------------------------------


def _lp_pool(
    spatial: int, input: Any, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Any:
    if norm_type in (float("inf"), -float("inf")):
        sign = 1 if norm_type > 0 else -1
        greatest = _GREATEST[spatial](sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        return sign * greatest
    count = numel_of(repeated("kernel_size", kernel_size, spatial))
    mean = _AVERAGES[spatial](input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    # The detour over the absolute value makes the gradient of a sum of zero zero, too.
    return (mean.sign() * mean.abs().relu()).mul(count).pow(1.0 / norm_type)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 5), 2, 2),
        s(s.tensor(2, 5, low=0.5), 1.5, 3, 2, True),
        s(s.tensor(1, 2, 5, strided=True), float("inf"), 2),
    ],
    oracle="nn.functional.lp_pool1d",
    errors=lambda s: [(s(s.tensor(1, 1, 4), 2, 0), RuntimeError, "kernel size|greater than zero")],
)
def lp_pool1d(
    input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """Take the p-th root of the sum of p-th powers of windows of signals (N, C, L) or (C, L)."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 4), 2, 2),
        s(s.tensor(2, 5, 4, low=0.5), 1.5, (3, 2), (2, 1), True),
        s(s.tensor(1, 2, 4, 4, strided=True), -float("inf"), 2),
    ],
    oracle="nn.functional.lp_pool2d",
    errors=lambda s: [(s(s.tensor(4, 4), 2, 2), (RuntimeError, IndexError), "Expected 3D or 4D")],
)
def lp_pool2d(
    input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """Take the p-th root of the sum of p-th powers of windows of images."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 2, 4, 4), 2, 2),
        s(s.tensor(2, 3, 5, 4, low=0.5), 1.5, (2, 3, 2), (1, 2, 1), True),
    ],
    oracle="nn.functional.lp_pool3d",
    errors=lambda s: [(s(s.tensor(4, 4), 2, 2), RuntimeError, "Expected 4D or 5D")],
)
def lp_pool3d(
    input: Tensor, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """Take the p-th root of the sum of p-th powers of windows of volumes."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# Windows at random distances ---------------------------------------------------------------------


def _each(name: str, what: str, value: Any, spatial: int) -> Ints:
    if isinstance(value, (tuple, list)) and len(value) != spatial:
        raise RuntimeError(
            f"{name}: {what} must either be a single int, or a tuple of {spatial} ints, got {value}"
        )
    return repeated(what, value, spatial)


def _fraction_sizes(name: str, spatial: int, input: Any, output_size: Any, ratio: Any) -> Ints:
    if output_size is not None:
        return _each(name, "output_size", output_size, spatial)
    if ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    ratios = tuple(ratio) if isinstance(ratio, (tuple, list)) else (ratio,) * spatial
    if len(ratios) != spatial:
        raise ValueError(
            f"{name} requires output_ratio to either be a single Int or tuple of Ints. It takes "
            f"one number or {spatial}, got {ratio}"
        )
    return tuple(int(n * r) for n, r in zip(tuple(input.shape)[-spatial:], ratios, strict=True))


def _starts(sample: Any, size: int, out: int, kernel: int) -> Any:
    """Return the first positions of the windows, (..., out), of random numbers (...)."""
    if out == 1:
        return sample.new_full((*sample.shape, 1), size - kernel, dtype=tangrad.int64)
    # A half has too few digits to place windows.
    u = (sample.to(tangrad.float32) if sample.dtype.itemsize < 4 else sample).unsqueeze(-1)
    step = (size - kernel) / (out - 1)
    i = tangrad.arange(out - 1, dtype=u.dtype, device=u.device)
    first = ((i + u) * step).to(tangrad.int64) - (u * step).to(tangrad.int64)
    last = first.new_full((*sample.shape, 1), size - kernel)
    return tangrad.cat([first, last], -1)


def _places_by_gathering(self: Any, samples: Any, kernel_size: Ints, output_size: Ints) -> Any:
    kernel, outs = kernel_size, output_size
    shape, sizes, spatial = tuple(self.shape), tuple(self.shape)[2:], self.ndim - 2
    places = tangrad.zeros((), dtype=tangrad.int64, device=self.device)
    for axis, (n, k, o) in enumerate(zip(sizes, kernel, outs, strict=True)):
        # The first random number is of an image's width, but of a volume's depth.
        start = _starts(samples.select(2, 1 - axis if spatial == 2 else axis), n, o, k)
        along = start.unsqueeze(-1) + tangrad.arange(k, device=self.device)
        window = [1] * spatial
        window[axis] = k
        position = [1] * spatial
        position[axis] = o
        placed = along.reshape((*shape[:2], *position, *window))
        places = places + placed * numel_of(sizes[axis + 1 :])
    flat = places.reshape((*shape[:2], numel_of(outs) * numel_of(kernel)))
    taken = self.reshape((*shape[:2], numel_of(sizes))).gather(2, flat)
    taken = taken.reshape((*shape[:2], numel_of(outs), numel_of(kernel)))
    flat = flat.reshape(tuple(taken.shape))
    return flat.gather(3, taken.max(-1, keepdim=True)[1]).reshape((*shape[:2], *outs))


_fractional_places = op(
    "_fractional_places(Tensor self, Tensor samples, int[] kernel_size, int[] output_size)"
    " -> Tensor",
    dtypes="floating",
    shape=lambda self, output_size: (*self.shape[:2], *output_size),
    dtype=lambda: "int64",
    decompose=_places_by_gathering,
    vjp="none: places",
    function=False,
    method=False,
    doc="""Find where the greatest elements of windows at random distances are.

    Images (N, C, H, W) or volumes, and numbers (N, C, 2) or (N, C, 3) from [0, 1), which place the
    windows. Positions are those in an image or volume that is flat.
    """,
)


def _fractional(
    spatial: int, input: Any, kernel_size: Any, output_size: Any, ratio: Any, samples: Any
) -> Any:
    name = f"fractional_max_pool{spatial}d"
    if input.ndim not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D tensor, but got {list(input.shape)}"
        )
    if not input.is_floating_point():
        raise NotImplementedError(
            f"{name} is not implemented for {input.dtype}; convert to a floating-point dtype"
        )
    outs = _fraction_sizes(name, spatial, input, output_size, ratio)
    kernel = _each(name, "kernel_size", kernel_size, spatial)
    x = input if input.ndim == spatial + 2 else input.unsqueeze(0)
    shape = tuple(x.shape)
    sizes = shape[2:]
    if 0 in shape[1:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got "
            f"{list(input.shape)}"
        )
    axes = ("time", "height", "width")[-spatial:]
    for called, n, k, o in zip(axes, sizes, kernel, outs, strict=True):
        if o < 0 or k < 1 or o + k - 1 > n:
            raise RuntimeError(
                f"{name}: pool {called} {k} too large relative to input {called} {n}, of which {o} "
                "results need at least output_size + kernel_size - 1"
            )
    if samples is None:
        samples = tangrad.rand(shape[0], shape[1], spatial, dtype=x.dtype, device=x.device)
    if (
        samples.ndim != 3
        or samples.shape[0] < shape[0]
        or samples.shape[1] < shape[1]
        or (samples.shape[2] != spatial)
    ):
        raise RuntimeError(
            f"{name}: Expect _random_samples to be of shape {[*shape[:2], spatial]}, got "
            f"{list(samples.shape)}"
        )
    if samples.dtype != x.dtype:
        raise RuntimeError(
            f"{name}: expected _random_samples of {x.dtype}, the input's dtype, got {samples.dtype}"
        )
    wanted = (*tuple(input.shape)[:-spatial], *outs)
    if 0 in outs:
        none = input.reshape((-1,))[:0].reshape(wanted)
        return none, tangrad.zeros(wanted, dtype=tangrad.int64, device=input.device)
    samples = samples[: shape[0], : shape[1]]
    # What records calls is shown ops that every device and format has.
    unseen = get_intercept() is None and plain_on_host(x, samples)
    find = _fractional_places if unseen else _places_by_gathering
    places = find(x.detach(), samples, kernel, outs)
    indices = places.reshape((*shape[:2], numel_of(outs)))
    rows = x.reshape((*shape[:2], numel_of(sizes)))
    values = rows.gather(2, indices)
    return values.reshape(wanted), indices.reshape(wanted)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 5, 6), 2, 3, None, False, s.tensor(1, 2, 2, low=0, high=0.99)),
        s(s.tensor(2, 6, 5), (2, 3), None, (0.5, 0.5), True, s.tensor(1, 2, 2, low=0, high=0.99)),
        *([s(s.tensor(0, 2, 5, 5), 2, 3, None, False, s.tensor(0, 2, 2))] if s.is_floating else []),
        s(
            s.tensor(1, 1, 4, 4, strided=True),
            2,
            (1, 3),
            None,
            False,
            s.tensor(1, 1, 2, low=0, high=0.99),
        ),
    ],
    oracle="nn.functional.fractional_max_pool2d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 2), ValueError, "output_size or an output_ratio"),
        (s(s.tensor(1, 1, 4, 4), 3, 3), RuntimeError, "pooling|too (large|small)"),
        (s(s.tensor(4, 4), 2, 2), (RuntimeError, IndexError), "Expected|out of range"),
    ],
)
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Take the greatest element of windows of images that lie at random distances.

    Args:
        kernel_size: size of the windows.
        output_size: how many there are; or
        output_ratio: their number by the size of the input.
        return_indices: also give the flat position of each result.
        _random_samples: numbers from [0, 1) of shape (N, C, 2); drawn by default.
    """
    both = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 5, 6), 2, 3, None, False, s.tensor(1, 2, 2, low=0, high=0.99)),
    ],
    oracle="nn.functional.fractional_max_pool2d_with_indices",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 2), ValueError, "output_size or an output_ratio"),
    ],
)
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Take the greatest of random windows and its position; see `fractional_max_pool2d`."""
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 5, 4), 2, 2, None, False, s.tensor(1, 2, 3, low=0, high=0.99)),
        s(
            s.tensor(1, 4, 6, 5),
            (2, 3, 1),
            None,
            (0.5, 0.5, 0.7),
            True,
            s.tensor(1, 1, 3, low=0, high=0.99),
        ),
        # Each random number places windows of its own dimension.
        s(s.tensor(1, 1, 7, 6, 9), 2, 4, None, True, s.values([[[0.96, 0.3, 0.05]]])),
    ],
    oracle="nn.functional.fractional_max_pool3d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 2), ValueError, "output_size or an output_ratio"),
        (s(s.tensor(1, 1, 4, 4, 4), 3, 3), RuntimeError, "pooling|too (large|small)"),
    ],
)
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Take the greatest element of windows of volumes that lie at random distances.

    Arguments are those of `fractional_max_pool2d`.
    """
    both = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 5, 4), 2, 2, None, False, s.tensor(1, 2, 3, low=0, high=0.99)),
    ],
    oracle="nn.functional.fractional_max_pool3d_with_indices",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 2), ValueError, "output_size or an output_ratio"),
    ],
)
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Take the greatest of random windows and its position; see `fractional_max_pool3d`."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


# The inverse of max pooling ----------------------------------------------------------------------


def _unpooled_sizes(
    sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, output_size: Any
) -> Ints:
    usual = tuple(
        (n - 1) * s + k - 2 * p for n, k, s, p in zip(sizes, kernel, stride, padding, strict=True)
    )
    if output_size is None:
        return usual
    wanted = tuple(output_size)
    if len(wanted) == len(kernel) + 2:
        wanted = wanted[2:]
    if len(wanted) != len(kernel):
        raise ValueError(
            f"output_size should be a sequence containing {len(kernel)} or {len(kernel) + 2} "
            f"elements, but it has a length of {len(wanted)}"
        )
    for d, (n, u, s) in enumerate(zip(wanted, usual, stride, strict=True)):
        if not u - s < n < u + s:
            raise ValueError(
                f"invalid output_size {list(wanted)} (dim {d} must be between {u - s} and {u + s})"
            )
    return wanted


def _unpool(
    spatial: int,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Any:
    name = f"max_unpool{spatial}d"
    kernel = repeated("kernel_size", kernel_size, spatial)
    steps = kernel if stride is None else repeated("stride", stride, spatial)
    if len(input.shape) < spatial:
        raise RuntimeError(f"{name}: too few dimensions in input {list(input.shape)}")
    sizes = _unpooled_sizes(
        tuple(input.shape)[-spatial:],
        kernel,
        steps,
        repeated("padding", padding, spatial),
        output_size,
    )
    if any(n < 0 for n in sizes):
        raise ValueError(f"{name}: the output size must not be negative, got {list(sizes)}")
    if indices.dtype != tangrad.int64:
        raise RuntimeError(
            f"{name}: elements in indices should be type int64 but got: {indices.dtype}"
        )
    if not input.is_floating_point():
        raise NotImplementedError(
            f"{name} is not implemented for {input.dtype}; convert to a floating-point dtype"
        )
    if input.ndim not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"Input to {name} should be a {spatial + 1}d or {spatial + 2}d Tensor, but got a "
            f"tensor with {input.ndim} dimensions"
        )
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            f"{name}: Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
        )
    if any(s < 1 for s in steps):
        raise RuntimeError(f"{name}: strides should be greater than zero, got {list(steps)}")
    if 0 in tuple(input.shape)[1:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got "
            f"{list(input.shape)}"
        )
    lead = tuple(input.shape)[:-spatial]
    flat = (*lead, numel_of(tuple(input.shape)[-spatial:]))
    target = input.new_zeros((*lead, numel_of(sizes)))
    filled = target.scatter(len(lead), indices.reshape(flat), input.reshape(flat))
    return in_format_of(filled.reshape((*lead, *sizes)), input)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3), s.values([[0, 2, 5], [1, 3, 4]], dtype="int64"), 2),
        s(s.tensor(1, 2, 3), s.values([[[0, 2, 5], [6, 3, 4]]], dtype="int64"), 3, 2, 0, (1, 2, 7)),
    ],
    oracle="nn.functional.max_unpool1d",
    errors=lambda s: [
        (
            s(s.tensor(2, 3), s.values([[0, 2], [1, 3]], dtype="int64"), 2),
            RuntimeError,
            "shape of indices",
        ),
        (
            s(s.tensor(1, 1), s.values([[5]], dtype="int64"), 2),
            (RuntimeError, IndexError),
            "max index|out of bounds",
        ),
        (
            s(s.tensor(1, 1), s.values([[0]], dtype="int64"), 2, None, 0, (9,)),
            ValueError,
            "invalid output_size",
        ),
    ],
)
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Put elements of pooled signals back where `max_pool1d` found them, zeros elsewhere.

    Args:
        input: (N, C, L) or (C, L).
        indices: flat position of each element in the result, as `max_pool1d` returns it.
        output_size: size of the result, where pooling left several possible.
    """
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 2), s.values([[[0, 3], [9, 14]]], dtype="int64"), 2),
        s(
            s.tensor(1, 1, 2, 2, strided=True),
            s.values([[[[0, 3], [9, 14]]]], dtype="int64"),
            2,
            2,
            0,
            (5, 4),
        ),
    ],
    oracle="nn.functional.max_unpool2d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 1), s.values([[[0]]], dtype="int32"), 2), RuntimeError, "int64"),
    ],
)
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Put elements of pooled images back where `max_pool2d` found them, zeros elsewhere.

    Args:
        input: (N, C, H, W) or (C, H, W).
        indices: flat position of each element in the result, as `max_pool2d` returns it.
        output_size: size of the result, where pooling left several possible.
    """
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 1, 2, 2), s.values([[[[0, 3], [9, 14]]]], dtype="int64"), 2),
        s(
            s.tensor(1, 1, 1, 2, 2),
            s.values([[[[[0, 3], [9, 14]]]]], dtype="int64"),
            2,
            (2, 2, 2),
            0,
            (3, 4, 4),
        ),
    ],
    oracle="nn.functional.max_unpool3d",
    errors=lambda s: [
        (
            s(s.tensor(1, 1, 1, 1), s.values([[[0]]], dtype="int64"), 2),
            RuntimeError,
            "shape of indices",
        ),
    ],
)
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Put elements of pooled volumes back where `max_pool3d` found them, zeros elsewhere.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        indices: flat position of each element in the result, as `max_pool3d` returns it.
        output_size: size of the result, where pooling left several possible.
    """
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
