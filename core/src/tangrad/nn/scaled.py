"""Products of matrices in 8-bit floats and 4-bit floats: their names, and why they fail here."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

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


def _refuse(name: str, mat_a: Any, mat_b: Any) -> NoReturn:
    raise NotImplementedError(
        f"{name}: needs matrices of 8-bit or 4-bit floats, which tangrad does not have; got "
        f"{mat_a.dtype}{list(mat_a.shape)} and {mat_b.dtype}{list(mat_b.shape)}. Multiply by the "
        "scales and use matmul, or grouped_mm."
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
    """Multiply scaled matrices of small floats.

    Raises:
        NotImplementedError: always: there are no such dtypes.
    """
    _refuse("scaled_mm", mat_a, mat_b)


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
    """Multiply groups of scaled matrices of small floats.

    Raises:
        NotImplementedError: always: there are no such dtypes.
    """
    _refuse("scaled_grouped_mm", mat_a, mat_b)
