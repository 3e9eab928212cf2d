"""Define sums of neighbours along a dimension, each result with weights of its own.

A matrix of bands: every result looks at a run of elements, later results at runs that begin and end
no earlier. The adjoint of such a matrix is one, too, so that the op is its own derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import tangrad
from tangrad.ops.nn.convolution import ordered_channels_last
from tangrad.plugin import constant, get_intercept, op

Taps = tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]


class Band(NamedTuple):
    """A matrix of bands: where each row's run starts, and its weights, which may be none."""

    starts: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]

    def turned(self, size: int) -> Band:
        """Return the transposed matrix, of `size` rows."""
        starts, rows = [0] * size, [[] for _ in range(size)]  # type: list[int], list[list[float]]
        for i, (start, weights) in enumerate(zip(self.starts, self.rows, strict=True)):
            for j, weight in enumerate(weights, start):
                if not rows[j]:
                    starts[j] = i
                rows[j].append(weight)
        return Band(tuple(starts), tuple(map(tuple, rows)))

    def tensors(self, dtype: Any, device: Any) -> tuple[Any, Any]:
        """Return starts and counts (2, rows), and the weights (rows, most), zero past their end."""
        counts = [len(weights) for weights in self.rows]
        most = max(counts, default=0)
        padded = [w for row in self.rows for w in (*row, *[0.0] * (most - len(row)))]
        runs = tangrad.tensor([self.starts, counts], dtype=tangrad.int64, device=device)
        weights = tangrad.tensor(padded, dtype=dtype, device=device)
        return runs, weights.reshape((len(counts), most))


def band_of(taps: Taps) -> Band:
    """Return the band that taps make; an element that several of a result's taps name comes once.

    Args:
        taps: for each tap the element of each result, and its weight; places grow with the taps.
    """
    starts, rows = taps[0][0], []
    for i, start in enumerate(starts):
        row = [0.0] * (taps[-1][0][i] - start + 1)
        for places, weights in taps:
            row[places[i] - start] += weights[i]
        rows.append(tuple(row))
    return Band(starts, tuple(rows))


def _check(input: Any, runs: Any, weights: Any, dim: int) -> None:
    if not 0 <= dim < len(input.shape):
        raise RuntimeError(f"_weighted_lines: there is no dimension {dim}: {list(input.shape)}")
    if tuple(runs.shape) != (2, weights.shape[0]) or runs.dtype.name != "int64":
        raise RuntimeError(
            f"_weighted_lines: expected int64 runs of shape {[2, weights.shape[0]]}, got "
            f"{list(runs.shape)} and {runs.dtype}"
        )
    if weights.dtype != input.dtype:
        raise RuntimeError(
            f"_weighted_lines: weights must be {input.dtype} as the input is, got {weights.dtype}"
        )


def _taken(input: Any, runs: Any, most: int, dim: int) -> tuple[Any, Any]:
    """Return the elements of all runs, in two dimensions in place of `dim`, and which there are."""
    step = tangrad.arange(most, device=input.device)
    places = (runs[0].unsqueeze(1) + step).clamp(max=input.shape[dim] - 1).reshape((-1,))
    inside = (step < runs[1].unsqueeze(1)).reshape((-1, most, *_ones_after(input, dim)))
    return input.index_select(dim, places).unflatten(dim, (inside.shape[0], most)), inside


def _ones_after(input: Any, dim: int) -> tuple[int, ...]:
    return (1,) * (input.ndim - dim - 1)


def _sum(input: Any, runs: Any, weights: Any, back_runs: Any, back_weights: Any, dim: int) -> Any:
    out, most = weights.shape
    if 0 in (most, input.shape[dim]):
        return input.new_zeros((*input.shape[:dim], out, *input.shape[dim + 1 :]))
    taken, inside = _taken(input, runs, most, dim)
    parts = taken * weights.reshape((out, most, *_ones_after(input, dim)))
    return tangrad.where(inside, parts, 0).sum(dim + 1, dtype=input.dtype)


def _by_weights(g: Any, input: Any, runs: Any, weights_meta: Any, dim: int) -> Any:
    most = weights_meta.shape[1]
    if 0 in (most, input.shape[dim]):
        return g.new_zeros(weights_meta.shape)
    taken, inside = _taken(input, runs, most, dim)
    parts = tangrad.where(inside, taken.conj() * g.unsqueeze(dim + 1), 0)
    others = [d for d in range(parts.ndim) if d not in (dim, dim + 1)]
    return parts.sum(others) if others else parts


def _jvp(
    input: Any,
    input_t: Any,
    runs: Any,
    weights: Any,
    weights_t: Any,
    back_runs: Any,
    back_weights: Any,
    dim: int,
    result: Any,
) -> Any:
    back = (back_runs, back_weights, dim)
    moved = result.new_zeros(result.shape)
    if input_t is not None:
        moved = weighted_lines(input_t, runs, weights, *back)
    if weights_t is not None:
        moved = moved + weighted_lines(input, runs, weights_t, *back)
    return moved


def _sum_of(
    torch: Any, input: Any, runs: Any, weights: Any, back_runs: Any, back_weights: Any, dim: int
) -> Any:
    rows = []
    for i, (start, count) in enumerate(zip(*runs.tolist(), strict=True)):
        taken = input.narrow(dim, start, count)
        shape = [count if d == dim else 1 for d in range(input.ndim)]
        rows.append((taken * weights[i, :count].reshape(shape)).sum(dim, dtype=input.dtype))
    return torch.stack(rows, dim)


def _samples(s: Any) -> list[Any]:
    def sample(shape: Sequence[int], dim: int, rows: Sequence[tuple[int, int]]) -> Any:
        size = shape[dim]
        band = Band(
            tuple(start for start, _ in rows),
            tuple(tuple(0.5 + (3 * i + k) % 5 for k in range(n)) for i, (_, n) in enumerate(rows)),
        )
        matrices = []
        for each in (band, band.turned(size)):
            most = max((len(row) for row in each.rows), default=0)
            padded = [[*row, *[0.0] * (most - len(row))] for row in each.rows]
            counts = [len(row) for row in each.rows]
            matrices += [s.values([list(each.starts), counts], dtype="int64"), s.values(padded)]
        return s(s.tensor(*shape), *matrices, dim)

    return [
        sample((2, 3, 5, 4), 2, [(0, 2), (1, 3), (3, 2)]),
        sample((2, 3, 5), 2, [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (4, 1)]),
        sample((5, 2), 0, [(0, 5), (2, 3)]),
        sample((2, 2, 3, 6), 3, [(0, 6)]),
    ]


weighted_lines = op(
    "_weighted_lines(Tensor input, Tensor runs, Tensor weights, Tensor back_runs,"
    " Tensor back_weights, int dim) -> Tensor",
    dtypes="integral floating complex",
    check=_check,
    shape=lambda input, weights, dim: (
        *input.shape[:dim],
        weights.shape[0],
        *input.shape[dim + 1 :],
    ),
    dtype=lambda input: input.dtype,
    memory_format=lambda input: (
        tangrad.channels_last
        if len(input.shape) == 4 and not input.is_contiguous() and ordered_channels_last(input)
        else tangrad.contiguous_format
    ),
    decompose=_sum,
    vjp={
        "input": lambda g, runs, weights, back_runs, back_weights, dim: weighted_lines(
            g, back_runs, back_weights.conj(), runs, weights.conj(), dim
        ),
        "weights": lambda g, input, runs, weights_meta, dim: _by_weights(
            g, input, runs, weights_meta, dim
        ),
        "back_weights": lambda g, back_weights_meta: g.new_zeros(back_weights_meta.shape),
    },
    jvp=_jvp,
    function=False,
    method=False,
    out=False,
    samples=_samples,
    oracle=_sum_of,
    doc="""Sum weights[i, k] input[..., runs[0, i] + k, ...] over k below runs[1, i], along `dim`.

    Args:
        input: of any shape.
        runs: (2, results), int64: where each result's elements start, and how many they are.
        weights: (results, most), of the input's dtype.
        back_runs, back_weights: the same of the transposed matrix, for the derivative.
        dim: counted from the front.
    """,
)


@lru_cache(maxsize=256)
def _bands(make: Callable[..., Band], size: int, given: tuple[Any, ...]) -> tuple[Band, Band]:
    band = make(size, *given)
    return band, band.turned(size)


def _made(
    make: Callable[..., Band], size: int, given: tuple[Any, ...], dtype: Any, device: Any
) -> list[Any]:
    made = [x for band in _bands(make, size, given) for x in band.tensors(dtype, device)]
    return [constant(x) for x in made]


@lru_cache(maxsize=128)
def _kept(make: Callable[..., Any], *given: Any) -> Any:
    # A tensor of inference mode could not be kept for a derivative.
    with tangrad.inference_mode(False):
        return make(*given)


def kept(make: Callable[..., Any], *given: Any) -> Any:
    """Return the tensors that a function makes; they are kept while no program is recorded."""
    return _kept(make, *given) if get_intercept() is None else make(*given)


def summed_lines(input: Any, dim: int, make: Callable[..., Band], *given: Any) -> Any:
    """Sum lines of a tensor in the host's memory by a matrix of bands.

    Args:
        dim: counted from the front.
        make: function of the dimension's size and `given`, which can be hashed, that returns the
            matrix; a function of a module, as matrices are kept by it.
    """
    size = int(input.shape[dim])
    return weighted_lines(input, *kept(_made, make, size, given, input.dtype, input.device), dim)
