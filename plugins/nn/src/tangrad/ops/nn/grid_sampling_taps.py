"""Define samples at positions as sums of a few gathered elements, and as one op with its gradient.

The weights of the sums are tensor code, so derivatives of every order follow by input and position.
"""

from __future__ import annotations

import itertools
from typing import Any

import tangrad
from tangrad.ops.nn.weighted_gather import weighted_gather
from tangrad.plugin import Ints, numel_of, op

# Positions ----------------------------------------------------------------------------------------


def _unnormalized(x: Any, size: int, align: bool) -> Any:
    return (x + 1) * ((size - 1) / 2) if align else ((x + 1) * size - 1) / 2


def _clipped(x: Any, size: int) -> Any:
    """Clip to the elements; beyond them, and for a NaN, a constant without a derivative."""
    inside = (x > 0) & (x < size - 1)
    edge = (x >= size - 1).to(x.dtype) * (size - 1)
    return tangrad.where(inside, x, edge.detach())


def _mirrored(x: Any, size: int, align: bool) -> Any:
    """Reflect at the border until inside: at centers of elements, or at their edges."""
    low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
    if span == 0:
        return x.masked_fill(tangrad.ones_like(x, dtype=tangrad.bool), 0.0)  # with a gradient: 0
    away = tangrad.where(x < low, low - x, x - low)
    extra = away.fmod(span)
    flips = ((away - extra) / span).round().detach()
    return tangrad.where(flips.remainder(2) == 0, extra + low, span - extra + low)


def _placed(x: Any, size: int, padding_mode: str, align: bool) -> Any:
    if padding_mode == "zeros":
        return x
    return _clipped(_mirrored(x, size, align) if padding_mode == "reflection" else x, size)


def _cubic_weights(t: Any) -> list[Any]:
    """Return the weights of the elements at -1, 0, 1, 2 for a position t in [0, 1] (a = -3/4)."""
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return (((x - 5) * x + 8) * x - 4) * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


# Sums of gathered elements ------------------------------------------------------------------------


def _summed(flat: Any, axes: list[list[tuple[Any, Any]]], sizes: Ints) -> Any:
    """Sum over the taps of all dimensions, each a list of (coordinate, weight).

    Args:
        flat: the input as (N, C, elements).
        axes: of each dimension, first to last, (N, positions) each; whole coordinates, without
            derivative.
    """
    known = []
    for taps, size in zip(axes, sizes, strict=True):
        found = []
        for x, w in taps:
            within = (x >= 0) & (x <= size - 1)
            found.append((within, tangrad.where(within, x, 0).to(tangrad.int64), w))
        known.append(found)
    places, weights = [], []
    for combined in itertools.product(*known):
        inside, place, weight = combined[0]
        for (within, whole, w), size in zip(combined[1:], tuple(sizes)[1:], strict=True):
            inside, place, weight = inside & within, place * size + whole, weight * w
        # Outside there is nothing: not even zero times an infinite weight.
        places.append(tangrad.where(inside, place, -1))
        weights.append(tangrad.where(inside, weight, 0))
    return weighted_gather(flat, tangrad.stack(places, 1), tangrad.stack(weights, 1))


def by_taps(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
    """Sample as `grid_sample` says, by tensor code; of float32 or float64."""
    lead, sizes = tuple(input.shape)[:2], tuple(input.shape)[2:]
    flat = input.reshape((*lead, numel_of(sizes)))
    points = grid.reshape((lead[0], -1, len(sizes)))
    axes = []
    for axis, size in enumerate(sizes):
        raw = _unnormalized(points.select(2, len(sizes) - 1 - axis), size, align_corners)
        if mode == "bicubic":
            start = raw.floor().detach()
            weights = _cubic_weights(raw - start)
            places = [
                _placed(start + k, size, padding_mode, align_corners).detach() for k in range(-1, 3)
            ]
            axes.append(list(zip(places, weights, strict=True)))
            continue
        at = _placed(raw, size, padding_mode, align_corners)
        if mode == "nearest":
            # The weight is one; it carries the derivative by the position, which is zero.
            axes.append([(at.round().detach(), tangrad.where(at == at, at * 0 + 1, 1))])
            continue
        start = at.floor().detach()
        share = at - start
        axes.append([(start, 1 - share), (start + 1, share)])
    return _summed(flat, axes, sizes).reshape(_sampled_shape(input, grid))


# In one pass --------------------------------------------------------------------------------------


def _sampled_shape(input: Any, grid: Any) -> Ints:
    return (*tuple(input.shape)[:2], *tuple(grid.shape)[1:-1])


def _gradients(
    grad: Any,
    input: Any,
    grid: Any,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    by_input: bool,
    by_grid: bool,
) -> tuple[Any, Any]:
    """Pull a gradient back through the tensor code, which can be differentiated again."""

    def samples(x: Any, positions: Any) -> Any:
        return by_taps(x, positions, mode, padding_mode, align_corners)

    first, second = tangrad.func.vjp(samples, input, grid)[1](grad)
    return first if by_input else input.new_empty(0), second if by_grid else grid.new_empty(0)


def _vjp(
    grads: Any,
    input: Any,
    grid: Any,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    needs: Any,
) -> tuple[Any, Any]:
    pull = _gradients if tangrad.is_grad_enabled() else _sampled_backward
    given = (mode, padding_mode, align_corners, needs[0], needs[1])
    first, second = pull(grads[0], input, grid, *given)
    return first if needs[0] else None, second if needs[1] else None


def _jvp(
    input: Any,
    grid: Any,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    input_t: Any,
    grid_t: Any,
) -> Any:
    return tangrad.func.jvp(
        lambda x, positions: by_taps(x, positions, mode, padding_mode, align_corners),
        (input, grid),
        tuple(
            tangrad.zeros_like(x) if x_t is None else x_t
            for x, x_t in ((input, input_t), (grid, grid_t))
        ),
    )[1]


sampled = op(
    "_grid_sampled(Tensor input, Tensor grid, str mode, str padding_mode, bool align_corners)"
    " -> Tensor",
    dtypes="floating",
    shape=_sampled_shape,
    dtype=lambda input: input.dtype,
    decompose=by_taps,
    vjp={("input", "grid"): _vjp},
    jvp=_jvp,
    function=False,
    method=False,
    node="grid_sampler_2d",
    doc="Sample images or volumes at positions: what `grid_sample` says, of checked arguments.",
)

_sampled_backward = op(
    "_grid_sampled_backward(Tensor grad, Tensor input, Tensor grid, str mode, str padding_mode,"
    " bool align_corners, bool by_input, bool by_grid) -> (Tensor, Tensor)",
    dtypes="floating",
    shape=lambda input, grid, by_input, by_grid: [
        tuple(input.shape) if by_input else (0,),
        tuple(grid.shape) if by_grid else (0,),
    ],
    dtype=lambda input: [input.dtype] * 2,
    decompose=_gradients,
    vjp="none: `_grid_sampled` takes tensor code where further derivatives may follow",
    function=False,
    method=False,
    doc="Compute the gradients of `_grid_sampled` by input and grid; of one not wanted, nothing.",
)
