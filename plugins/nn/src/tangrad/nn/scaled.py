"""Products of matrices in 8-bit floats with scales; of smaller floats, why they fail here."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import tangrad

__all__ = ["ScalingType", "SwizzleType", "scaled_grouped_mm", "scaled_mm"]


class ScalingType(IntEnum):
    """Say which elements of a matrix share a scale."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(IntEnum):
    """Say in which order scales lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _shown(tensor: Any) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _require_tensors(name: str, **arguments: Any) -> None:
    for argument, given in arguments.items():
        if not isinstance(given, tangrad.Tensor):
            raise TypeError(
                f"{name}(): argument '{argument}' must be Tensor, not {type(given).__name__}"
            )


def _one(name: str, what: str, given: Any) -> Any:
    """Return a scale or recipe that may come in a list, as those of several levels do."""
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise NotImplementedError(
                f"{name}: {what} must be one, got {len(given)}; scales of several levels belong "
                "to 4-bit floats, which tangrad does not have"
            )
        return given[0]
    return given


def _is_small(dtype: Any) -> bool:
    return dtype.name.startswith("float8_")


def _check_matrices(mat_a: Any, mat_b: Any) -> None:
    for what, matrix in (("mat_a", mat_a), ("mat_b", mat_b)):
        if matrix.ndim != 2:
            raise ValueError(f"scaled_mm: {what} must be a matrix, got {_shown(matrix)}")
    if mat_a.shape[1] != mat_b.shape[0]:
        raise ValueError(
            "scaled_mm: mat_a and mat_b shapes cannot be multiplied "
            f"({mat_a.shape[0]}x{mat_a.shape[1]} and {mat_b.shape[0]}x{mat_b.shape[1]})"
        )


def _check_scales(operands: Any, recipes: Any) -> None:
    """Let scales through of which there is one to each matrix, or to each row and column."""
    if not (
        recipes[0] == recipes[1]
        and recipes[0] in (ScalingType.TensorWise, ScalingType.RowWise)
        and all(_is_small(m.dtype) and s.dtype == tangrad.float32 for m, s in operands)
    ):
        raise ValueError(
            "scaled_mm: invalid scaling configuration: mat_a and mat_b must be float8, their "
            "scales float32, and both recipes TensorWise or both RowWise; got "
            + " and ".join(f"{_shown(m)} with {_shown(s)}" for m, s in operands)
            + f" by {recipes[0]!r} and {recipes[1]!r}. Convert the matrices with .float(), "
            "multiply them by their scales, and use matmul."
        )
    for (matrix, scale), what, axis in zip(operands, ("scale_a", "scale_b"), (0, 1), strict=True):
        if recipes[0] == ScalingType.TensorWise:
            if scale.numel() != 1:
                raise ValueError(f"scaled_mm: {what} must have 1 element, got {_shown(scale)}")
            continue
        expected = (matrix.shape[0], 1) if axis == 0 else (1, matrix.shape[1])
        if tuple(scale.shape) != expected:
            raise ValueError(
                f"scaled_mm: {what} must be of shape {list(expected)} to scale the "
                f"{('rows', 'columns')[axis]} of {_shown(matrix)}, got {_shown(scale)}"
            )


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = tangrad.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    """Multiply matrices of 8-bit floats, each of which stands for itself times its scale.

    The product is made in float32.

    Args:
        mat_a: (M, K).
        mat_b: (K, N).
        scale_a: float32, one number by `ScalingType.TensorWise`, (M, 1) by `RowWise`.
        scale_recipe_a: which of them it is.
        scale_b: float32, one number, or (1, N).
        scale_recipe_b: the same recipe as that of `mat_a`.
        swizzle_a: no other than `SwizzleType.NO_SWIZZLE`.
        swizzle_b: no other than `SwizzleType.NO_SWIZZLE`.
        bias: (N), added to each row.
        output_dtype: of the result. None: that of `mat_a`.
        contraction_dim: which dimensions are K: here the last of `mat_a`, the first of `mat_b`.
        use_fast_accum: changes nothing.

    Raises:
        TypeError: a matrix, a scale or the bias is no tensor.
        ValueError: shapes, dtypes or recipes do not fit together.
        NotImplementedError: the scales are of several levels, or in another order.
    """
    _require_tensors("scaled_mm", mat_a=mat_a, mat_b=mat_b)
    _check_matrices(mat_a, mat_b)
    for what, swizzle in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b)):
        if swizzle is not None and _one("scaled_mm", what, swizzle) != SwizzleType.NO_SWIZZLE:
            raise NotImplementedError(
                f"scaled_mm: {what} must be SwizzleType.NO_SWIZZLE, got {swizzle!r}"
            )
    scale_a, scale_b = _one("scaled_mm", "scale_a", scale_a), _one("scaled_mm", "scale_b", scale_b)
    _require_tensors("scaled_mm", scale_a=scale_a, scale_b=scale_b)
    if bias is not None:
        _require_tensors("scaled_mm", bias=bias)
    recipes = (
        _one("scaled_mm", "scale_recipe_a", scale_recipe_a),
        _one("scaled_mm", "scale_recipe_b", scale_recipe_b),
    )
    _check_scales(((mat_a, scale_a), (mat_b, scale_b)), recipes)
    if bias is not None and tuple(bias.shape) != (mat_b.shape[1],):
        raise ValueError(f"scaled_mm: Bias must be size {mat_b.shape[1]} but got {_shown(bias)}")
    if recipes[0] == ScalingType.TensorWise:
        product = (mat_a.float() @ mat_b.float()) * (scale_a.reshape(()) * scale_b.reshape(()))
    else:
        product = (mat_a.float() * scale_a) @ (mat_b.float() * scale_b)
    if bias is not None:
        product = product + bias.float()
    return product.to(mat_a.dtype if output_dtype is None else output_dtype)


def scaled_grouped_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    offs: Any = None,
    output_dtype: Any = tangrad.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    """Multiply groups of scaled matrices of small floats: for packages of other devices.

    Raises:
        NotImplementedError: always, as PyTorch does on its CPU.
        TypeError: a matrix is no tensor.
    """
    _require_tensors("scaled_grouped_mm", mat_a=mat_a, mat_b=mat_b)
    raise NotImplementedError(
        f"scaled_grouped_mm: no device here has it; got {_shown(mat_a)} and {_shown(mat_b)}. "
        "Multiply them by their scales and use grouped_mm."
    )
