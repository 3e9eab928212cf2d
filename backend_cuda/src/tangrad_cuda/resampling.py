"""Define resampling by straight lines as one op: what linear modes of `interpolate` are here.

An element is a sum of two neighbours of each spatial dimension, or of one where the size stays.
`depth`, `height` and `width` are how far apart in the input neighbours of the result are, those of
the last dimensions that there are; by `corners` the first and the last elements of both lie on one
another, otherwise their outer edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import op


def _matrix(size: int, out: int, ratio: float, corners: bool) -> Any:
    """Return the weights of a dimension's elements in those of the result."""
    if size == out:
        return np.eye(size)
    i = np.arange(out)
    x = ratio * i if corners else np.maximum(ratio * (i + 0.5) - 0.5, 0)
    lower = np.minimum(x.astype(np.int64), size - 1)
    share = np.clip(x - lower, 0, 1)
    found = np.zeros((out, size))
    found[i, lower] = 1 - share
    found[i, np.minimum(lower + 1, size - 1)] += share
    return found


def _matrices(sizes: Any, outs: Any, ratios: tuple[float, ...], corners: bool) -> list[Any]:
    spatial = zip(sizes, outs, ratios[3 - len(sizes) :], strict=True)
    return [_matrix(n, out, ratio, corners) for n, out, ratio in spatial]


def _applied(x: Any, matrices: list[Any]) -> Any:
    wide = x.float() if x.dtype.itemsize < 4 else x
    for d, matrix in enumerate(matrices, 2):
        weights = tangrad.from_numpy(matrix).to(device=x.device, dtype=wide.dtype)
        wide = (wide.movedim(d, -1) @ weights.t()).movedim(-1, d)
    return wide.to(x.dtype)


def _code(input: Any, sizes: Any, depth: float, height: float, width: float, corners: bool) -> Any:
    ratios = (depth, height, width)
    return _applied(input, _matrices(tuple(input.shape)[2:], sizes, ratios, corners))


def _backward_code(
    grad: Any, shape: Any, depth: float, height: float, width: float, corners: bool
) -> Any:
    outs = tuple(grad.shape)[2:]
    matrices = _matrices(tuple(shape)[2:], outs, (depth, height, width), corners)
    return _applied(grad, [np.ascontiguousarray(matrix.T) for matrix in matrices])


def _check(x: Any, sizes: Any) -> None:
    fits = len(x.shape) in (3, 4, 5) and len(sizes) == len(x.shape) - 2
    if not fits or not x.dtype.is_floating_point:
        raise RuntimeError(
            "_resample_linear: expected floating-point elements of 3, 4 or 5 dimensions and a size "
            f"for each but two, got {list(x.shape)} of {x.dtype} and {list(sizes)}"
        )


def _oracle(torch: Any, input: Any, sizes: Any, *ratios_and_corners: Any) -> Any:
    if not input.is_floating_point():
        raise RuntimeError(f"not implemented for {input.dtype}")
    corners = ratios_and_corners[-1]
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[input.ndim]
    return torch.nn.functional.interpolate(input, sizes, mode=mode, align_corners=corners)


def _oracle_of_gradient(torch: Any, grad: Any, shape: Any, *rest: Any) -> Any:
    input = torch.zeros(shape, dtype=grad.dtype, requires_grad=True)
    result = _oracle(torch, input, tuple(grad.shape[2:]), *rest)
    return torch.autograd.grad(result, input, grad)[0]


resample_linear_backward = op(
    "_resample_linear_backward(Tensor grad, int[] shape, float depth, float height, float width,"
    " bool corners) -> Tensor",
    dtypes="floating",
    check=lambda grad, shape: _check(grad, tuple(shape)[2:]),
    shape=lambda shape: shape,
    dtype=lambda grad: grad.dtype,
    decompose=_backward_code,
    vjp={
        "grad": lambda g, grad_meta, depth, height, width, corners: resample_linear(
            g, tuple(grad_meta.shape)[2:], depth, height, width, corners
        )
    },
    linear=("grad",),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 1, 7), (2, 1, 4), 1.0, 1.0, 4 / 7, False),
        s(s.tensor(1, 2, 3, 5), (1, 2, 6, 4), 1.0, 2.5, 0.75, True),
    ],
    oracle=_oracle_of_gradient,
    doc="Compute the gradient of `_resample_linear` by its input.",
)

resample_linear: Any = op(
    "_resample_linear(Tensor input, int[] sizes, float depth, float height, float width,"
    " bool corners) -> Tensor",
    dtypes="floating",
    check=lambda input, sizes: _check(input, sizes),
    shape=lambda input, sizes: (*input.shape[:2], *sizes),
    dtype=lambda input: input.dtype,
    decompose=_code,
    vjp={
        "input": lambda g, input_meta, depth, height, width, corners: resample_linear_backward(
            g, tuple(input_meta.shape), depth, height, width, corners
        )
    },
    linear=("input",),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 1, 4), (7,), 1.0, 1.0, 4 / 7, False),
        s(s.tensor(1, 2, 6, 4, strided=True), (3, 5), 1.0, 2.5, 0.75, True),
        s(s.tensor(1, 1, 2, 3, 2), (3, 3, 4), 2 / 3, 1.0, 0.5, False),
    ],
    oracle=_oracle,
    doc="Resample the spatial dimensions by straight lines between neighbours.",
)
