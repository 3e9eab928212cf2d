"""Define products of vectors with stacks of matrices: bilinear forms, groups, scaled float8."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import DType, Tensor

# Bilinear forms ----------------------------------------------------------------------------------


def _check_bilinear(input1: Any, input2: Any, weight: Any, bias: Any) -> None:
    if input1.ndim != input2.ndim:
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}"
        )
    for dim in range(input1.ndim - 1):
        if input1.shape[dim] != input2.shape[dim]:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {dim}: got "
                f"{input1.shape[dim]} and {input2.shape[dim]}"
            )
    if input1.ndim == 0 or weight.ndim != 3:
        raise IndexError(
            "bilinear(): Dimension out of range: expected inputs (*, I) and (*, J) and a weight "
            f"(O, I, J), got {list(input1.shape)}, {list(input2.shape)} and {list(weight.shape)}"
        )
    for number, x in enumerate((input1, input2), start=1):
        if x.shape[-1] != weight.shape[number]:
            raise RuntimeError(
                f"bilinear(): input{number} size does not match weight size: got {x.shape[-1]} "
                f"but expected {weight.shape[number]}"
            )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {list(bias.shape)} but "
            f"expected {weight.shape[0]}"
        )
    if not input1.dtype == input2.dtype == weight.dtype:
        raise RuntimeError(
            f"All tensors must have the same dtype, got input1: {input1.dtype}, input2: "
            f"{input2.dtype}, weight: {weight.dtype}"
        )


@composite(
    method=False,
    oracle="nn.functional.bilinear",
    samples=lambda s: (
        [
            s(s.tensor(2, 3), s.tensor(2, 4), s.tensor(5, 3, 4)),
            s(s.tensor(3), s.tensor(2), s.tensor(4, 3, 2), s.tensor(4)),
            s(s.tensor(2, 2, 3, strided=True), s.tensor(2, 2, 1), s.tensor(2, 3, 1), s.tensor(2)),
            s(s.tensor(0, 3), s.tensor(0, 4), s.tensor(5, 3, 4), s.tensor(5)),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3, 4), s.tensor(5, 3, 4)), RuntimeError, "batch dimensions"),
        (s(s.tensor(2, 3), s.tensor(4), s.tensor(5, 3, 4)), RuntimeError, "dimensions do not"),
        (s(s.tensor(2, 3), s.tensor(2, 3), s.tensor(5, 3, 4)), RuntimeError, "input2 size"),
        (
            s(s.tensor(2, 3), s.tensor(2, 4), s.tensor(5, 3, 4), s.tensor(4)),
            RuntimeError,
            "bias size",
        ),
        (s(s.tensor(2, 3), s.tensor(2, 4), s.tensor(5, 3)), IndexError, "out of range"),
    ],
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x1^T A x2 + b for every pair of vectors and every matrix A of a stack.

    Args:
        input1: of shape (*, I).
        input2: of shape (*, J).
        weight: the matrices (O, I, J).
        bias: b (O).

    Returns:
        A tensor of shape (*, O).
    """
    _check_bilinear(input1, input2, weight, bias)
    outputs, first, second = weight.shape
    lead = tuple(input1.shape)[:-1]
    rows = 1
    for size in lead:
        rows *= size
    stacked = weight.permute((1, 0, 2)).reshape((first, outputs * second))
    left = input1.reshape((rows, first)).matmul(stacked).reshape((rows, outputs, second))
    result = left.matmul(input2.reshape((rows, second, 1))).reshape((*lead, outputs))
    return result if bias is None else result + bias


# Groups of matrices ------------------------------------------------------------------------------


def _check_grouped(mat_a: Any, mat_b: Any, offs: Any, bias: Any, out_dtype: Any) -> None:
    for name, x in (("mat_a", mat_a), ("mat_b", mat_b)):
        if x.dtype.name not in ("float32", "bfloat16", "float16"):
            raise RuntimeError(
                f"grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 matrix, got "
                f"{x.dtype}"
            )
        if x.ndim not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d, got {list(x.shape)}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(
            "grouped_mm: contraction dimension of mat_a and mat_b must match, got "
            f"{list(mat_a.shape)} and {list(mat_b.shape)}"
        )
    jagged = mat_a.ndim == 2 or mat_b.ndim == 2
    if jagged != (offs is not None):
        raise RuntimeError(
            "grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both "
            f"matrices are 3d, got {list(mat_a.shape)} and {list(mat_b.shape)}"
        )
    if offs is not None and (offs.ndim != 1 or offs.dtype.name != "int32"):
        raise RuntimeError(
            f"grouped_mm: Offsets have to be int32 and 1-D, got {offs.dtype} of shape "
            f"{list(offs.shape)}"
        )
    groups = {x.shape[0] for x in (mat_a, mat_b) if x.ndim == 3}
    if offs is not None:
        groups.add(offs.shape[0])
    if len(groups) > 1:
        raise RuntimeError(
            f"grouped_mm: matrix batch sizes have to match, got {sorted(groups)} groups"
        )
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet; add it to the result")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise RuntimeError(
            f"Grouped gemm output dtype must match `mat_a` dtype, got {out_dtype} and {mat_a.dtype}"
        )


def _segments(offs: Any, size: int) -> list[tuple[int, int]]:
    """Return (start, length) of each group along a dimension of the given size."""
    ends = offs.tolist()
    starts = [0, *ends[:-1]]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    if ends and (min(lengths) < 0 or ends[-1] > size):
        raise RuntimeError(
            f"grouped_mm: offs must not decrease nor exceed the size {size}, got {ends}"
        )
    return list(zip(starts, lengths, strict=True))


@composite(
    namespace="nn",
    method=False,
    shape_depends_on_data=True,
    oracle="nn.functional.grouped_mm",
    samples=lambda s: (
        [
            s(s.tensor(8, 8), s.tensor(2, 8, 8), offs=s.values([3, 8], dtype="int32")),
            s(s.tensor(8, 16), s.tensor(16, 8), offs=s.values([8, 16], dtype="int32")),
            s(s.tensor(2, 8, 8), s.tensor(8, 16), offs=s.values([8, 16], dtype="int32")),
            s(s.tensor(2, 8, 8), s.tensor(2, 8, 16)),
        ]
        if s.dtype in ("float32", "float16", "bfloat16")
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(8, 8), s.tensor(2, 8, 8)), RuntimeError, "Have to provide offsets"),
        (s(s.tensor(2, 8, 8), s.tensor(2, 4, 8)), RuntimeError, "contraction dimension"),
        (s(s.tensor(2, 8, 8), s.tensor(3, 8, 8)), RuntimeError, "batch sizes"),
        (
            s(s.tensor(8, 8), s.tensor(2, 8, 8), offs=s.values([3, 8], dtype="int64")),
            RuntimeError,
            "int32",
        ),
    ],
)
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """Multiply groups of matrices whose sizes may differ in one dimension.

    Args:
        mat_a: (G, M, K), or (M, K) with rows, or columns if `mat_b` is a matrix too, in groups.
        mat_b: (G, K, N), or (K, N) with columns, or rows if `mat_a` is a matrix too, in groups.
        offs: where each group ends in the dimension that is in groups, int32 (G).
        bias: None.
        out_dtype: None, or the dtype of `mat_a`.

    Returns:
        The products: (M, N), rows or columns behind the last group zero, or (G, M, N).
    """
    _check_grouped(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return mat_a.matmul(mat_b)
    if mat_a.ndim == 2 and mat_b.ndim == 2:
        shared = _segments(offs, mat_a.shape[1])
        return tangrad.stack(
            [mat_a.narrow(1, *part).matmul(mat_b.narrow(0, *part)) for part in shared]
        )
    if mat_a.ndim == 2:
        parts = _segments(offs, mat_a.shape[0])
        done = [mat_a.narrow(0, *p).matmul(b) for p, b in zip(parts, mat_b.unbind(0), strict=True)]
        return _filled(done, mat_a.shape[0], 0)
    parts = _segments(offs, mat_b.shape[1])
    done = [a.matmul(mat_b.narrow(1, *p)) for p, a in zip(parts, mat_a.unbind(0), strict=True)]
    return _filled(done, mat_b.shape[1], 1)


def _filled(products: list[Any], size: int, dim: int) -> Any:
    """Join products along `dim` and fill up with zeros."""
    missing = size - sum(x.shape[dim] for x in products)
    if missing:
        shape = list(products[0].shape)
        shape[dim] = missing
        products = [*products, products[0].new_zeros(shape)]
    return tangrad.cat(products, dim)


# Matrices of float8 with scales ------------------------------------------------------------------


def _check_scaled(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any
) -> None:
    if self.ndim != 2 or mat2.ndim != 2 or self.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            "_scaled_mm: self and mat2 must be matrices that can be multiplied, got shapes "
            f"{list(self.shape)} and {list(mat2.shape)}"
        )
    rows, columns = self.shape[0], mat2.shape[1]
    both = (scale_a, scale_b)
    whole = all(x.numel() == 1 for x in both)
    lines = [list(x.shape) for x in both] == [[rows, 1], [1, columns]] and all(
        x.is_contiguous() for x in both
    )
    float8 = all(x.dtype.name.startswith("float8") for x in (self, mat2))
    if not float8 or any(x.dtype != tangrad.float32 for x in both) or not (whole or lines):
        raise ValueError(
            "Invalid scaling configuration: _scaled_mm takes float8 matrices and float32 scales, "
            f"of one element each or contiguous of shapes {[rows, 1]} and {[1, columns]}; got "
            f"{self.dtype} and {mat2.dtype} with scales {scale_a.dtype} {list(scale_a.shape)} and "
            f"{scale_b.dtype} {list(scale_b.shape)}"
        )
    if bias is not None and bias.numel() != columns:
        raise RuntimeError(
            f"_scaled_mm: bias must be size {columns} but got shape {list(bias.shape)}"
        )
    if scale_result is not None and (
        scale_result.dtype != tangrad.float32 or scale_result.numel() != 1
    ):
        raise RuntimeError(
            "_scaled_mm: scale_result must be a float32 scalar, got "
            f"{scale_result.dtype} of shape {list(scale_result.shape)}"
        )


@composite(
    "_scaled_mm",
    method=False,
    out=True,
    strict_out_dtype=True,
    samples=lambda s: [],  # matrices of float8: core/tests/ops/test_scaled_products.py
    errors=lambda s: [
        (
            s(s.tensor(2, 3), s.tensor(3, 4), s.values(1.0), s.values(1.0)),
            ValueError,
            "Invalid scaling configuration",
        ),
        (
            s(s.tensor(2, 3), s.tensor(2, 4), s.values(1.0), s.values(1.0)),
            RuntimeError,
            "can be multiplied",
        ),
    ],
)
def scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Multiply matrices of float8, each times its scales; sums are of float32.

    Args:
        self: float8 (N, K).
        mat2: float8 (K, M).
        scale_a, scale_b: float32, one element each, or (N, 1) and (1, M).
        bias: None, or what is added to each row (M).
        scale_result: None, or what a result of float8 is divided by, float32 of one element.
        out_dtype: the result's; that of `self` by default.
        use_fast_accum: without effect, as for the CPU of PyTorch.

    Returns:
        A tensor (N, M). Beyond its greatest number float8_e4m3fn saturates.

    Raises:
        ValueError: dtypes or the scales' shapes are others.
        RuntimeError: shapes do not fit.
    """
    _check_scaled(self, mat2, scale_a, scale_b, bias, scale_result)
    dtype = self.dtype if out_dtype is None else out_dtype
    if scale_a.numel() == 1:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    result = (self.to(tangrad.float32) * scale_a).matmul(mat2.to(tangrad.float32) * scale_b)
    if bias is not None:
        result = result + bias.reshape((-1,)).to(tangrad.float32)
    if scale_result is not None and dtype.name.startswith("float8"):
        result = result / scale_result.reshape(())
    if dtype.name == "float8_e4m3fn":
        result = result.clamp(-448.0, 448.0)
    return result.to(dtype)
