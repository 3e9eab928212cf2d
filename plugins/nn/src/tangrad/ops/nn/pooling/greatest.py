"""Define max pooling: the greatest element of windows."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.convolution import in_format_of
from tangrad.ops.nn.fusing import fuses, plain_on_host
from tangrad.ops.nn.pooling.channels_last import as_volume, lies_last
from tangrad.ops.nn.pooling.one_pass import max_pool_backward, placed
from tangrad.ops.nn.pooling.sizes import POOL_ERRORS, check_pool, pooled_sizes, windows_of
from tangrad.plugin import Ints, Tensor, at_all_sizes, composite, numel_of, op


def _lowest(np: Any, dtype: Any) -> Any:
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def _max_pool_reference(
    np: Any,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> Any:
    spatial = len(kernel_size)
    sizes = self.shape[-spatial:]
    out = pooled_sizes(sizes, kernel_size, stride, padding, dilation, ceil_mode)
    lead = self.shape[:-spatial]
    grown = [
        (p, max(0, (o - 1) * s + (k - 1) * d + 1 - n - p))
        for n, o, k, s, p, d in zip(sizes, out, kernel_size, stride, padding, dilation, strict=True)
    ]
    x = np.pad(self, [*((0, 0) for _ in lead), *grown], constant_values=_lowest(np, self.dtype))
    taps = list(np.ndindex(*kernel_size))
    values = np.full((*lead, *out), _lowest(np, self.dtype), self.dtype)
    chosen = np.zeros(values.shape, np.int64)
    for number, tap in enumerate(taps):
        seen = tuple(
            slice(i * d, i * d + (o - 1) * s + 1, s)
            for i, d, o, s in zip(tap, dilation, out, stride, strict=True)
        )
        value = np.ascontiguousarray(x[(..., *seen)])
        # A NaN wins, and the last of several.
        np.copyto(chosen, number, where=(value > values) | (value != value))
        np.maximum(values, value, out=values)
    places = np.stack([_places(np, tap, sizes, out, stride, padding, dilation) for tap in taps])
    positions = np.arange(numel_of(out))
    flat = chosen.reshape((numel_of(lead), numel_of(out)))
    found = places.reshape(len(taps), -1)[flat, positions]
    return values, found.reshape(values.shape)


def _places(
    np: Any, tap: Ints, sizes: Ints, out: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Any:
    """Give the flat position in the unpadded input that a tap of every window looks at."""
    grid = np.ogrid[tuple(slice(n) for n in out)]
    flat = np.zeros(out, np.int64)
    for axis, n in enumerate(sizes):
        place = grid[axis] * stride[axis] + tap[axis] * dilation[axis] - padding[axis]
        flat = flat * n + np.clip(place, 0, n - 1)
    return flat


@at_all_sizes
def max_pool_vjp(
    g: Any,
    self_meta: Any,
    indices: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
) -> Any:
    """Give each gradient to where the greatest element was; a kernel size of () is adaptive."""
    if (plain_on_host(g, indices) or fuses(g, indices)) and len(stride) <= 3:
        return max_pool_backward(
            g, indices, tuple(self_meta.shape), kernel_size, stride, padding, dilation
        )
    return placed(g, indices, self_meta.shape, stride)


def max_pool_jvp(self_t: Any, kernel_size: Ints, result1: Any) -> Any:
    """Take the tangents of the greatest elements."""
    lead = self_t.ndim - len(kernel_size)
    tangent = self_t.flatten(lead).gather(lead, result1.flatten(lead))
    return tangent.reshape(result1.shape), None


def _max_pool_batch(size: int, dims: Any, self: Any, kernel_size: Ints, *args: Any) -> Any:
    x = self.movedim(dims[0], 0)
    if x.ndim == len(kernel_size) + 2:
        return max_pool_with_indices(x, kernel_size, *args), (0, 0)
    flat = max_pool_with_indices(x.flatten(0, 1), kernel_size, *args)
    return tuple(y.unflatten(0, (size, x.shape[1])) for y in flat), (0, 0)


max_pool_with_indices = op(
    "max_pool_with_indices(Tensor self, int[] kernel_size, int[] stride, int[] padding,"
    " int[] dilation, bool ceil_mode) -> (Tensor values, Tensor indices)",
    dtypes="integral floating",
    check=lambda self, kernel_size, stride, padding, dilation, ceil_mode: check_pool(
        f"max_pool{len(kernel_size)}d", self, kernel_size, stride, padding, dilation, ceil_mode
    ),
    shape=lambda self, kernel_size, stride, padding, dilation, ceil_mode: (
        [
            (
                *self.shape[: -len(kernel_size)],
                *pooled_sizes(
                    self.shape[-len(kernel_size) :],
                    kernel_size,
                    stride,
                    padding,
                    dilation,
                    ceil_mode,
                ),
            )
        ]
        * 2
    ),
    dtype=lambda self: [self.dtype, "int64"],
    reference=_max_pool_reference,
    vjp={
        "self": lambda g0, self_meta, kernel_size, stride, padding, dilation, result1: max_pool_vjp(
            g0, self_meta, result1, kernel_size, stride, padding, dilation
        )
    },
    jvp=max_pool_jvp,
    batch=lambda size, dims, self, kernel_size, stride, padding, dilation, ceil_mode: (
        _max_pool_batch(size, dims, self, kernel_size, stride, padding, dilation, ceil_mode)
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 5), (2, 2), (2, 2), (0, 0), (1, 1), False),
        s(s.tensor(2, 4, 5), (3, 2), (2, 1), (1, 1), (1, 2), True),
    ],
    oracle=lambda torch, x, *args: torch.ops.aten.max_pool2d_with_indices(x, *args),
    doc="Take the greatest element of every window, and its flat position in the input.",
)


def _values_shape(self: Any, kernel_size: Ints, *geometry: Any) -> Ints:
    spatial = len(kernel_size)
    return (*self.shape[:-spatial], *pooled_sizes(self.shape[-spatial:], kernel_size, *geometry))


def _values_vjp(g: Any, self: Any, kernel_size: Ints, *geometry: Any) -> Any:
    places = max_pool_with_indices(self.detach(), kernel_size, *geometry)[1]
    return max_pool_vjp(g, self, places, kernel_size, *geometry[:3])


def _values_jvp(self: Any, self_t: Any, kernel_size: Ints, *geometry: Any) -> Any:
    places = max_pool_with_indices(self.detach(), kernel_size, *geometry)[1]
    return max_pool_jvp(self_t, kernel_size, places)[0]


# What nobody asks for the positions of, and no gradient needs them.
max_pool_values = op(
    "max_pool_values(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation,"
    " bool ceil_mode) -> Tensor",
    dtypes="integral floating",
    check=lambda self, kernel_size, stride, padding, dilation, ceil_mode: check_pool(
        f"max_pool{len(kernel_size)}d", self, kernel_size, stride, padding, dilation, ceil_mode
    ),
    shape=lambda self, kernel_size, stride, padding, dilation, ceil_mode: _values_shape(
        self, kernel_size, stride, padding, dilation, ceil_mode
    ),
    decompose=lambda self, kernel_size, stride, padding, dilation, ceil_mode: max_pool_with_indices(
        self, kernel_size, stride, padding, dilation, ceil_mode
    )[0],
    vjp={
        "self": lambda g, self, kernel_size, stride, padding, dilation, ceil_mode: _values_vjp(
            g, self, kernel_size, stride, padding, dilation, ceil_mode
        )
    },
    jvp=lambda self, self_t, kernel_size, stride, padding, dilation, ceil_mode: _values_jvp(
        self, self_t, kernel_size, stride, padding, dilation, ceil_mode
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 5), (2, 2), (2, 2), (0, 0), (1, 1), False),
        s(s.tensor(2, 4, 5), (3, 2), (2, 1), (1, 1), (1, 2), True),
        s(s.tensor(2, 4, 40, strided=True), (2, 3), (2, 2), (0, 1), (2, 1), False),
    ],
    oracle=lambda torch, x, *args: torch.ops.aten.max_pool2d_with_indices(x, *args)[0],
    doc="Take the greatest element of every window.",
)


def _max_pool(
    spatial: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest elements; their positions if wanted, or if the gradient asks for them."""
    windows = windows_of(spatial, kernel_size, stride, padding, dilation)
    with_grad = input.requires_grad and tangrad.is_grad_enabled()
    if not return_indices and input.is_floating_point() and lies_last(input, spatial):
        # Positions in a volume are none of an image, and nobody asks for them.
        volumes, windows = as_volume(input, windows)
        pooled = (
            max_pool_with_indices(volumes, *windows, ceil_mode)[0]
            if with_grad
            else (max_pool_values(volumes, *windows, ceil_mode))
        )
        return pooled.permute((0, 3, 1, 2))
    if return_indices or with_grad:
        values, indices = max_pool_with_indices(input, *windows, ceil_mode)
        if not input.is_contiguous():
            values, indices = (_in_format_of(y, input, spatial) for y in (values, indices))
        return (values, indices) if return_indices else values
    values = max_pool_values(input, *windows, ceil_mode)
    return values if input.is_contiguous() else _in_format_of(values, input, spatial)


def _in_format_of(result: Any, input: Any, spatial: int) -> Any:
    """Store a result as the input is stored; a single volume is one of a batch."""
    if input.ndim != spatial + 1 or spatial < 3:
        return in_format_of(result, input)
    last = input.movedim(0, -1).is_contiguous()
    return result.movedim(0, -1).contiguous().movedim(-1, 0) if last else result


# What is pooled, and one of it, by number of dimensions.
_POOLED = {
    1: ("signals (N, C, L) or (C, L)", "signal"),
    2: ("images (N, C, H, W) or (C, H, W)", "image"),
    3: ("volumes (N, C, D, H, W) or (C, D, H, W)", "volume"),
}


def _said_of(name: str, doc: str) -> dict[str, Any]:
    return {
        "dtypes": "integral floating",
        "namespace": "nn",
        "oracle": f"nn.functional.{name}",
        "doc": doc,
    }


def _greatest(spatial: int) -> dict[str, Any]:
    """Return what max pooling says of itself in any number of dimensions."""
    pooled, one = _POOLED[spatial]
    return _said_of(
        f"max_pool{spatial}d",
        f"""Take the greatest element of windows of {pooled}.

    Args:
        stride: the distance of windows (default: kernel_size).
        padding: how many elements below all others to add on each side.
        ceil_mode: let a last window reach out of the input.
        return_indices: also give the flat position of each result in its {one}.
    """,
    )


def _pooling(spatial: int, always: bool = False) -> Any:
    """Return max pooling in a number of dimensions; with positions always, or where asked for."""

    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tensor:
        places = always or return_indices
        return _max_pool(spatial, input, kernel_size, stride, padding, dilation, ceil_mode, places)

    return pool


def _with_places(spatial: int) -> dict[str, Any]:
    """Return what max pooling with positions says of itself in any number of dimensions."""
    name = f"max_pool{spatial}d"
    doc = f"Take the greatest element of windows, and its flat position; see `{name}`."
    return _said_of(f"{name}_with_indices", doc)


max_pool1d = composite(
    "max_pool1d",
    **_greatest(1),
    samples=lambda s: [
        s(s.tensor(1, 2, 5), 2),
        s(s.tensor(2, 5, strided=True), 3, 2, 1, 1, True, return_indices=True),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 4), 0), RuntimeError, POOL_ERRORS),
    ],
)(_pooling(1))


max_pool1d_with_indices = composite(
    "max_pool1d_with_indices",
    **_with_places(1),
    samples=lambda s: [
        s(s.tensor(1, 2, 5), 2),
        s(s.tensor(2, 5, strided=True), 3, 2, 1, 1, True),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 4), 0), RuntimeError, POOL_ERRORS),
    ],
)(_pooling(1, always=True))


max_pool2d = composite(
    "max_pool2d",
    **_greatest(2),
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 4), 2),
        s(s.tensor(2, 5, 4), (3, 2), (2, 1), 1, 1, True),
        s(s.tensor(1, 1, 5, 5), 2, 2, 0, 2, return_indices=True),
        s(s.tensor(0, 1, 4, 4), 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 0), RuntimeError, POOL_ERRORS),
        (s(s.tensor(1, 1, 4, 4), 2, 2, 2), RuntimeError, "half of effective kernel size"),
        (s(s.tensor(1, 1, 2, 2), 3), RuntimeError, "Output size is too small"),
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 3D or 4D"),
    ],
)(_pooling(2))


max_pool2d_with_indices = composite(
    "max_pool2d_with_indices",
    **_with_places(2),
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 4), 2),
        s(s.tensor(2, 5, 4), (3, 2), (2, 1), 1, 1, True),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 0), RuntimeError, POOL_ERRORS),
    ],
)(_pooling(2, always=True))


max_pool3d = composite(
    "max_pool3d",
    **_greatest(3),
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 4, 4), 2),
        s(s.tensor(2, 4, 3, 4), (2, 3, 2), (2, 1, 1), 1, 1, True),
        s(s.tensor(1, 1, 3, 3, 4, strided=True), 2, 1, 0, (2, 1, 1), return_indices=True),
        s(s.tensor(0, 1, 2, 4, 4), 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 0), RuntimeError, POOL_ERRORS),
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 4D or 5D"),
        (s(s.tensor(1, 1, 4, 4, 4), 2, (1, 1)), RuntimeError, "stride"),
    ],
)(_pooling(3))


max_pool3d_with_indices = composite(
    "max_pool3d_with_indices",
    **_with_places(3),
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 4, 4), 2),
        s(s.tensor(2, 4, 3, 4), (2, 3, 2), (2, 1, 1), 1, 1, True),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 0), RuntimeError, POOL_ERRORS),
    ],
)(_pooling(3, always=True))
