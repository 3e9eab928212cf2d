"""Define averages over windows and their gradient, and that of the greatest elements, as one pass.

Windows have a size, stride and padding; without a size, window i of `out` over n elements is
[floor(i n / out), ceil((i + 1) n / out)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.plugin import Ints, numel_of, op

# A divisor above 0 is one; else sums are divided by the elements of their window, padding included.
WITH_PADDING, WITHOUT_PADDING = 0, -1


def bounds(
    n: int, out: int, d: int, kernel: Ints, stride: Ints, padding: Ints, divisor: int
) -> list[tuple[int, int, int]]:
    """Return of each window along a dimension where it begins and ends, and how much it counts."""
    if not kernel:
        ends = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
        return [(begin, end, end - begin) for begin, end in ends]
    found = []
    for i in range(out):
        start = i * stride[d] - padding[d]
        stop = min(start + kernel[d], n + padding[d])
        begin, end = max(start, 0), min(stop, n)
        found.append((begin, end, stop - start if divisor == WITH_PADDING else end - begin))
    return found


def _counted(np: Any, windows: list[list[tuple[int, int, int]]], divisor: int, dtype: Any) -> Any:
    if divisor > 0:
        return dtype.type(divisor)
    product = np.ones((), dtype)
    for rows in windows:
        product = product[..., None] * np.array([count for _, _, count in rows], dtype)
    return product


def _check(self: Any) -> None:
    if not self.dtype.is_floating_point:
        raise NotImplementedError(
            f"averages of windows are not implemented for {self.dtype}; convert with .to(dtype)"
        )


def _laid(
    np: Any, x: Any, sizes: Ints, output_size: Ints, window: tuple[Ints, Ints, Ints, int]
) -> tuple[Any, Any, Any]:
    """Return x in the dtype of sums, all windows, and what their sums are divided by."""
    x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    windows = [
        bounds(n, out, d, *window)
        for d, (n, out) in enumerate(zip(sizes, output_size, strict=True))
    ]
    return x, windows, _counted(np, windows, window[-1], x.dtype)


def _average_reference(
    np: Any,
    self: Any,
    sizes: Ints,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    divisor: int,
) -> Any:
    first = self.ndim - len(sizes)
    window = (kernel_size, stride, padding, divisor)
    x, windows, counts = _laid(np, self, self.shape[first:], sizes, window)
    for d, rows in enumerate(windows, first):
        parts = [x.take(range(begin, end), d).sum(d) for begin, end, _ in rows]
        x = np.stack(parts, d)
    return (x / counts).astype(self.dtype)


def _spread_reference(
    np: Any,
    self: Any,
    sizes: Ints,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    divisor: int,
) -> Any:
    first = self.ndim - len(sizes)
    window = (kernel_size, stride, padding, divisor)
    g, windows, counts = _laid(np, self, sizes, self.shape[first:], window)
    g = g / counts
    for d, rows in enumerate(windows, first):
        spread = np.zeros((*g.shape[:d], sizes[d - first], *g.shape[d + 1 :]), g.dtype)
        for i, (begin, end, _) in enumerate(rows):
            spread[(slice(None),) * d + (slice(begin, end),)] += g.take([i], d)
        g = spread
    return g.astype(self.dtype)


def _resized(self: Any, sizes: Ints) -> Ints:
    return (*tuple(self.shape)[: len(self.shape) - len(sizes)], *sizes)


_EMPTY = ((), (1, 1), (0, 0), 0)


def _average_of(torch: Any, x: Any, out: Ints, k: Ints, s: Ints, p: Ints, divisor: int) -> Any:
    if not x.is_floating_point():
        return torch.nn.functional.layer_norm(x, x.shape[1:])
    if not k:
        return torch.nn.functional.adaptive_avg_pool2d(x, out)
    given = divisor if divisor > 0 else None
    return torch.ops.aten.avg_pool2d(x, k, s, p, False, divisor != WITHOUT_PADDING, given)


def _by_adjoint(adjoint: Callable[[], Any]) -> Callable[..., Any]:
    """Return the gradient of a linear op: its adjoint, over the sizes that came in."""

    def vjp(
        g: Any, self_meta: Any, kernel_size: Ints, stride: Ints, padding: Ints, divisor: int
    ) -> Any:
        sizes = tuple(self_meta.shape)[len(self_meta.shape) - len(stride) :]
        return adjoint()(g, sizes, kernel_size, stride, padding, divisor)

    return vjp


window_average = op(
    "window_average(Tensor self, int[] sizes, int[] kernel_size, int[] stride, int[] padding,"
    " int divisor) -> Tensor",
    dtypes="floating",
    check=_check,
    shape=_resized,
    reference=_average_reference,
    vjp={"self": _by_adjoint(lambda: window_average_backward)},
    linear=("self",),
    batch=lambda size, dims, self, *given: (window_average(self.movedim(dims[0], 0), *given), 0),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, 4, 5), (2, 3), (2, 3), (2, 2), (0, 1), WITH_PADDING),
        s(s.tensor(2, 4, 5, strided=True), (3, 3), (2, 3), (1, 2), (0, 1), WITHOUT_PADDING),
        s(s.tensor(1, 4, 4), (2, 2), (2, 2), (2, 2), (0, 0), 3),
        s(s.tensor(2, 4, 5), (3, 2), *_EMPTY),
    ],
    oracle=_average_of,
    doc="Average windows over the last dimensions.",
)

window_average_backward = op(
    "window_average_backward(Tensor self, int[] sizes, int[] kernel_size, int[] stride,"
    " int[] padding, int divisor) -> Tensor",
    dtypes="floating",
    check=_check,
    shape=_resized,
    reference=_spread_reference,
    vjp={"self": _by_adjoint(lambda: window_average)},
    linear=("self",),
    batch=lambda size, dims, self, *given: (
        window_average_backward(self.movedim(dims[0], 0), *given),
        0,
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, 2, 3), (4, 5), (2, 3), (2, 2), (0, 1), WITH_PADDING),
        s(s.tensor(2, 3, 3), (4, 5), (2, 3), (1, 2), (0, 1), WITHOUT_PADDING),
        s(s.tensor(1, 2, 2), (4, 4), (2, 2), (2, 2), (0, 0), 3),
        s(s.tensor(2, 3, 2), (4, 5), *_EMPTY),
    ],
    oracle=lambda torch, g, size, *given: torch.func.vjp(
        lambda x: _average_of(torch, x, tuple(g.shape)[-2:], *given),
        torch.zeros(_resized(g, size), dtype=g.dtype),
    )[1](g)[0],
    doc="Apply the adjoint of `window_average`: each place gets its windows' shares.",
)


def placed(grad: Any, indices: Any, shape: Ints, stride: Ints) -> Any:
    """Add up gradients at flat places of the last dimensions, as many as there are strides."""
    lead = tuple(shape)[: len(shape) - len(stride)]
    area, outs = (numel_of(tuple(s)[len(lead) :]) for s in (shape, grad.shape))
    zeros = grad.new_zeros((*lead, area))
    flat = (*lead, outs)
    return zeros.scatter_add(len(lead), indices.reshape(flat), grad.reshape(flat)).reshape(shape)


def _chosen(g: Any, indices: Any, stride: Ints) -> Any:
    lead = g.ndim - len(stride)
    return g.flatten(lead).gather(lead, indices.flatten(lead)).reshape(indices.shape)


# Indices are those that the windows' greatest elements have: each lies in its window.
max_pool_backward = op(
    "max_pool_backward(Tensor grad, Tensor indices, int[] shape, int[] kernel_size, int[] stride,"
    " int[] padding, int[] dilation) -> Tensor",
    dtypes="integral floating",
    shape=lambda shape: shape,
    dtype=lambda grad: grad.dtype,
    decompose=lambda grad, indices, shape, kernel_size, stride, padding, dilation: placed(
        grad, indices, shape, stride
    ),
    vjp={"grad": lambda g, indices, stride: _chosen(g, indices, stride)},
    linear=("grad",),
    function=False,
    method=False,
    samples=lambda s: [
        s(
            s.tensor(2, 1, 1),
            s.integers(0, 20, 2, 1, 1),
            (2, 4, 5),
            (4, 5),
            (1, 1),
            (0, 0),
            (1, 1),
        ),
        s(s.tensor(2, 1, 1), s.integers(0, 6, 2, 1, 1), (2, 2, 3), *_EMPTY[:3], (1, 1)),
    ],
    oracle=lambda torch, g, indices, shape, *_: (
        torch.zeros(shape, dtype=g.dtype)
        .flatten(1)
        .scatter_add(1, indices.flatten(1), g.flatten(1))
        .reshape(shape)
    ),
    doc="Give each gradient to where the greatest element of its window was.",
)
