"""Define sampling of images and volumes at given positions (Jaderberg et al., 2015).

"Spatial transformer networks", https://arxiv.org/abs/1506.02025. Positions run from -1 to 1 over
the input.
"""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad.ops.nn.fusing import fuses, plain_on_host
from tangrad.ops.nn.grid_sampling_taps import by_taps, sampled
from tangrad.plugin import Ints, Tensor, composite, numel_of, op


def _align(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            f"{name}: align_corners defaults to False. Say align_corners=True where the positions "
            "-1 and 1 are to be the centers of the corner elements instead of their outer edges.",
            stacklevel=4,
        )
    return bool(align_corners)


def _homogeneous(theta: Any, size: Ints, align: bool) -> Any:
    """Return the positions (1, H * W, 3) before the map, (x, y, 1) each, or one more of volumes."""
    spatial = tuple(size)[2:]
    columns = []
    for axis in reversed(range(len(spatial))):
        n = spatial[axis]
        along = tangrad.arange(n, dtype=theta.dtype, device=theta.device)
        if align:
            line = along * (2 / (n - 1)) - 1 if n > 1 else along
        else:
            line = (along * 2 + (1 - n)) / n
        shape = [1] * len(spatial)
        shape[axis] = n
        columns.append(line.reshape(shape).expand(spatial))
    columns.append(tangrad.ones(spatial, dtype=theta.dtype, device=theta.device))
    return tangrad.stack(columns, -1).reshape((1, numel_of(spatial), len(spatial) + 1))


def _mapped(theta: Any, size: Ints, align_corners: bool) -> Any:
    base = _homogeneous(theta, size, align_corners)
    grid = base.expand((size[0], -1, -1)).bmm(theta.transpose(1, 2))
    return grid.reshape((size[0], *tuple(size)[2:], len(size) - 2))


def _map_gradient(g: Any, size: Ints, align_corners: bool) -> Any:
    base = _homogeneous(g, size, align_corners).expand((size[0], -1, -1))
    return g.reshape((size[0], base.shape[1], len(size) - 2)).transpose(1, 2).bmm(base)


# An op of its own, because nothing needs to be saved for its gradient.
_affine_positions = op(
    "_affine_positions(Tensor theta, int[] size, bool align_corners) -> Tensor",
    dtypes="floating",
    shape=lambda size: (size[0], *tuple(size)[2:], len(size) - 2),
    decompose=_mapped,
    vjp={"theta": _map_gradient},
    linear=("theta",),
    function=False,
    method=False,
    oracle="nn.functional.affine_grid",
    samples=lambda s: [
        s(s.tensor(1, 2, 3), (1, 1, 2, 3), False),
        s(s.tensor(2, 3, 4, strided=True), (2, 1, 3, 2, 2), True),
    ],
    doc="Apply affine maps to the positions of the elements of images or volumes.",
)


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 3), (1, 1, 2, 3), False),
        s(s.tensor(2, 2, 3, strided=True), (2, 3, 4, 2), True),
        s(s.tensor(1, 3, 4), (1, 1, 2, 2, 3), False),
        s(s.tensor(2, 3, 4), (2, 1, 3, 2, 2), align_corners=True),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2, 3), (1, 1, 2), False), NotImplementedError, "4D and 5D sizes"),
        (s(s.tensor(1, 3, 4), (1, 1, 2, 2), False), ValueError, "2D affine matrices"),
        (s(s.tensor(1, 2, 3), (1, 1, 2, 2, 2), False), ValueError, "3D affine matrices"),
        (s(s.tensor(1, 2, 3), (1, 1, 0, 2), False), ValueError, "non-zero, positive"),
        (s(s.tensor(2, 2, 3), (1, 1, 2, 2), False), RuntimeError, "batch"),
        (s(s.tensor(1, 2, 3, dtype="int64"), (1, 1, 2, 2), False), ValueError, "floating point"),
    ],
)
def affine_grid(theta: Tensor, size: Ints, align_corners: bool | None = None) -> Tensor:
    """Make the positions at which `grid_sample` applies affine maps.

    Args:
        theta: matrices (N, 2, 3), or (N, 3, 4) for volumes.
        size: (N, C, H, W) or (N, C, D, H, W) of the result of `grid_sample`.
        align_corners: whether -1 and 1 are the centers of the corner elements.

    Returns:
        Positions (N, H, W, 2), (x, y) each, or (N, D, H, W, 3), (x, y, z) each.
    """
    align = _align("affine_grid", align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    rank = len(size) - 2
    if rank not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {list(size)}."
        )
    if theta.ndim != 3 or tuple(theta.shape)[1:] != (rank, rank + 1):
        raise ValueError(
            f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size "
            f"{list(size)}. Got {list(theta.shape)}."
        )
    if min(size) < 1:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    if theta.shape[0] != size[0]:
        raise RuntimeError(
            f"affine_grid: expected theta and size of the same batch, got theta of shape "
            f"{list(theta.shape)} and size {list(size)}"
        )
    spatial = tuple(size)[2:]
    if align and min(spatial) == 1:
        warnings.warn(
            "affine_grid: with align_corners=True the only element of a dimension of size 1 is "
            f"taken to lie in the middle, got size {list(size)}. See the documentation of "
            "affine_grid for details.",
            stacklevel=3,
        )
    return _affine_positions(theta, size, align)


def _shapes(input: Any, grid: Any) -> str:
    return f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"


def _check(input: Any, grid: Any, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if input.ndim < 3 or not grid.ndim or input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got "
            f"{_shapes(input, grid)}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but "
            f"got {_shapes(input, grid)}"
        )
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got {_shapes(input, grid)}"
        )
    if 0 in tuple(input.shape)[2:]:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but got "
            f"{_shapes(input, grid)}"
        )
    if mode == "bicubic" and input.ndim != 4:
        raise RuntimeError(
            "grid_sampler(): bicubic interpolation only supports 4D input, but got "
            f"{_shapes(input, grid)}"
        )
    if input.dtype != grid.dtype:
        raise RuntimeError(
            "grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: (
        [
            s(
                s.tensor(2, 2, 3, 4, strided=volume),
                s.tensor(2, 2, 3, 2, low=-1.3, high=1.3),
                mode,
                padding,
                align,
            )
            for mode, padding, align, volume in (
                ("bilinear", "zeros", False, False),
                ("bilinear", "border", True, False),
                ("bilinear", "reflection", False, True),
                ("nearest", "zeros", True, False),
                ("nearest", "reflection", True, False),
                ("bicubic", "zeros", False, False),
                ("bicubic", "border", False, False),
                ("bicubic", "reflection", True, False),
            )
        ]
        + [
            s(
                s.tensor(1, 2, 3, 2, 4),
                s.tensor(1, 2, 2, 3, 3, low=-1.3, high=1.3),
                mode,
                padding,
                align,
            )
            for mode, padding, align in (
                ("bilinear", "zeros", True),
                ("bilinear", "reflection", False),
                ("nearest", "border", False),
            )
        ]
        + [s(s.tensor(0, 1, 2, 2), s.tensor(0, 1, 2, 2), align_corners=False)]
    ),
    errors=lambda s: [
        (
            s(s.tensor(1, 1, 2, 2), s.tensor(2, 2, 2, 2), align_corners=False),
            RuntimeError,
            "same batch size",
        ),
        (
            s(s.tensor(1, 1, 2, 2), s.tensor(1, 2, 2, 3), align_corners=False),
            RuntimeError,
            "size 2 in last dimension",
        ),
        (
            s(s.tensor(1, 1, 2, 2), s.tensor(1, 2, 2, 2), "area", align_corners=False),
            ValueError,
            "expected mode",
        ),
        (
            s(s.tensor(1, 1, 2, 2), s.tensor(1, 2, 2, 2), "nearest", "wrap", False),
            ValueError,
            "expected padding_mode",
        ),
        (
            s(s.tensor(1, 1, 2, 2, 2), s.tensor(1, 2, 2, 2, 3), "bicubic", align_corners=False),
            RuntimeError,
            "only supports 4D",
        ),
        (
            s(s.tensor(1, 1, 0, 2), s.tensor(1, 2, 2, 2), align_corners=False),
            RuntimeError,
            "non-empty spatial",
        ),
        (
            s(s.tensor(1, 1, 2, 2), s.tensor(1, 2, 2, 2, dtype="float64"), align_corners=False),
            RuntimeError,
            "dtype|expected scalar type",
        ),
    ],
)
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample images (N, C, H, W) or volumes (N, C, D, H, W) at positions.

    Args:
        grid: positions (N, H', W', 2), (x, y) each, or (N, D', H', W', 3), (x, y, z) each; -1 is
            one end of the input, 1 the other.
        mode: "bilinear" (in volumes trilinear), "nearest" or, for images, "bicubic".
        padding_mode: what lies outside: "zeros", the nearest element of the "border", or the
            "reflection" of the input.
        align_corners: whether -1 and 1 are the centers of the corner elements, instead of their
            outer edges.

    Returns:
        A tensor of shape (N, C, H', W') or (N, C, D', H', W').
    """
    _check(input, grid, mode, padding_mode)
    align = _align("grid_sample", align_corners)
    shape = (*tuple(input.shape)[:2], *tuple(grid.shape)[1:-1])
    if numel_of(shape) == 0:
        # Of both arguments, so that a gradient of either passes.
        nothing = input.reshape((-1,))[:0] + grid.reshape((-1,))[:0].to(input.dtype)
        return nothing.reshape(shape)
    if not input.is_floating_point():
        raise NotImplementedError(
            f"grid_sampler() is not implemented for {input.dtype}; convert to a floating-point "
            "dtype"
        )
    narrow = input.dtype.itemsize < 4
    x = input.to(tangrad.float32) if narrow else input
    positions = grid.to(tangrad.float32) if narrow else grid
    whole = plain_on_host(x, positions) or fuses(x, positions)
    found = (sampled if whole else by_taps)(x, positions, mode, padding_mode, align)
    return found.to(input.dtype) if narrow else found


# PyTorch's names beneath it, which take modes as numbers.

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _sampled(
    name: str,
    spatial: int | None,
    input: Any,
    grid: Any,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Any:
    if input.ndim and grid.ndim and input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            f"{name}: expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if spatial is not None and input.ndim != spatial + 2:
        raise RuntimeError(
            f"{name}: expected an input of {spatial + 2} dimensions, got shape {list(input.shape)}"
        )
    for what, number, names in (
        ("interpolation_mode", interpolation_mode, _MODES),
        ("padding_mode", padding_mode, _PADDINGS),
    ):
        if not 0 <= number < len(names):
            raise RuntimeError(
                f"{name}: {what} must be 0, 1 or 2 ({', '.join(names)}), got {number}"
            )
    mode, padding = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    return grid_sample(input, grid, mode, padding, align_corners)


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: (
        [
            s(s.tensor(2, 2, 3, 4), s.tensor(2, 2, 3, 2, low=-1.3, high=1.3), 1, 2, True),
            s(s.tensor(1, 2, 3, 2, 4), s.tensor(1, 2, 2, 3, 3), 0, 1, False),
        ]
    ),
    errors=lambda s: [
        (s(s.tensor(1, 1, 2, 2), s.tensor(2, 2, 2, 2), 0, 0, False), RuntimeError, "batch size"),
    ],
)
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Sample images or volumes at positions; see `nn.functional.grid_sample`.

    Args:
        interpolation_mode: 0, 1 or 2: bilinear, nearest, bicubic.
        padding_mode: 0, 1 or 2: zeros, border, reflection.
    """
    return _sampled(
        "grid_sampler", None, input, grid, interpolation_mode, padding_mode, align_corners
    )


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 2, 3, 4), s.tensor(2, 2, 3, 2, low=-1.3, high=1.3), 2, 1, False),
        s(s.tensor(2, 2, 3, 4, strided=True), s.tensor(2, 2, 3, 2), 0, 0, True),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1, 2, 2), s.tensor(2, 2, 2, 2), 0, 0, False), RuntimeError, "batch size"),
    ],
)
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Sample images at positions; see `grid_sampler`."""
    return _sampled(
        "grid_sampler_2d", 2, input, grid, interpolation_mode, padding_mode, align_corners
    )


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 2, 4), s.tensor(1, 2, 2, 3, 3, low=-1.3, high=1.3), 1, 0, True),
    ],
    errors=lambda s: [
        (
            s(s.tensor(1, 1, 2, 2, 2), s.tensor(2, 2, 2, 2, 3), 0, 0, False),
            RuntimeError,
            "batch size",
        ),
    ],
)
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Sample volumes at positions; see `grid_sampler`."""
    return _sampled(
        "grid_sampler_3d", 3, input, grid, interpolation_mode, padding_mode, align_corners
    )
