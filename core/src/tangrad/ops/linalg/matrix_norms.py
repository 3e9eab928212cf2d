"""Norms of vectors and matrices."""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Dims, Dims1, DType, Ints1, Scalar, Tensor
from tangrad.ops.linalg.matrix_checks import check_floating, check_matrix, regular, wide_only
from tangrad.ops.reduction.moments import p_norm
from tangrad.ops.views.geometry import Ints, wrap_dim

WIDE = "floating complex"
_INFINITY = float("inf")

# Vectors ------------------------------------------------------------------------------------------


def _check_norm_dtype(name: str, self: Any, dtype: Any) -> None:
    if dtype is None:
        return
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {dtype}")
    if self.dtype.is_complex != dtype.is_complex:
        kind = "complex" if self.dtype.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {dtype}")
    if _narrows(self.dtype, dtype):
        raise RuntimeError(
            f"{name}: the dtype of the input ({self.dtype}) should be convertible without "
            f"narrowing to the specified dtype ({dtype})"
        )


def _narrows(given: Any, wanted: Any) -> bool:
    import tangrad

    return tangrad.promote_types(given, wanted) != wanted


def _check_not_empty(name: str, self: Any, p: float, dim: Any) -> None:
    """Refuse a norm of no elements that has no neutral one."""
    if p >= 0 and p != _INFINITY:
        return
    if dim is None or len(dim) == 0:
        if self.numel() == 0:
            raise RuntimeError(
                f"{name} cannot compute the {p} norm on an empty tensor because the operation "
                "does not have an identity"
            )
        return
    for d in dim if self.ndim else ():
        if self.shape[d] == 0:
            raise RuntimeError(
                f"{name} cannot compute the {p} norm on the dimension {d} because this dimension "
                "is empty and the operation does not have an identity"
            )


def _vector_norm(self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    name = "linalg.vector_norm"
    check_floating(name, self, low=True)
    _check_norm_dtype(name, self, dtype)
    if isinstance(p, complex):
        raise RuntimeError(f"{name}: Expected a non-complex scalar as the order of norm, got {p}")
    _check_not_empty(name, self, p, dim)
    if dtype is not None and dtype != self.dtype:
        self = self.to(dtype)
    return p_norm(self, p, dim, keepdim)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), 1, 1),
        s(s.tensor(2, 3, 4, strided=True), 3, (0, -1), keepdim=True),
        s(s.tensor(3, 4), float("inf"), dim=-1),
        s(s.tensor(3, 4), -float("inf")),
        s(s.tensor(3, 4), 0),
        s(s.tensor()),
        s(s.tensor(0, 3), 2, 0),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64")), RuntimeError, "floating point or complex"),
        (s(s.tensor(0), float("inf")), RuntimeError, "does not have an identity"),
        (s(s.tensor(0, 2), -1, dim=0), RuntimeError, "does not have an identity"),
        (s(s.tensor(2), 2, 1), IndexError, "Dimension out of range"),
    ],
)
def linalg_vector_norm(
    self: Tensor,
    ord: Scalar = 2,
    dim: Dims1 | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute vector norms: sum(abs(x)**ord)**(1/ord) over dimensions.

    Args:
        ord: a number; inf and -inf are the extreme absolute values, 0 counts what is not zero.
        dim: the dimensions; all by default, of the flattened tensor.
        dtype: to compute in.
    """
    return _vector_norm(self, ord, dim, keepdim, dtype)


# Matrices -----------------------------------------------------------------------------------------


def _two_dims(name: str, self: Any, dim: Any) -> tuple[int, int]:
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {list(dim)}")
    rows, columns = (wrap_dim(d, self.ndim) for d in dim)
    if rows == columns:
        raise RuntimeError(f"{name}: dims must be different. Got {tuple(dim)}")
    return rows, columns


def _extreme(sums: Any, dim: int, largest: bool, keepdim: bool = False) -> Any:
    """Return the largest of what is not negative, or the smallest; 0 is the largest of nothing."""
    if not largest:
        return sums.amin(dim, keepdim)
    return sums.amax(dim, keepdim) if sums.shape[dim] else sums.sum(dim, keepdim)


def _matrix_norm(self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    name = "linalg.matrix_norm"
    check_matrix(name, self)
    by_values = p == "nuc" or (not isinstance(p, str) and abs(p) == 2)
    known = p in ("fro", "nuc") if isinstance(p, str) else abs(p) in (1, 2, _INFINITY)
    if not known:
        raise RuntimeError(
            f"{name}: Order {p} not supported; choose 'fro', 'nuc', 1, -1, 2, -2, inf or -inf"
        )
    check_floating(name, self, low=not by_values)
    rows, columns = _two_dims(name, self, dim)
    if p == "fro":
        return _vector_norm(self, 2, (rows, columns), keepdim, dtype)
    _check_norm_dtype(name, self, dtype)
    if dtype is not None and dtype != self.dtype:
        self = self.to(dtype)
    if by_values:
        values = ops.linalg_svdvals(self.movedim((rows, columns), (-2, -1)))
        if p == "nuc":
            found = values.sum(-1)
        else:
            found = _extreme(values, -1, p > 0)
        if keepdim:
            for d in sorted((rows, columns)):
                found = found.unsqueeze(d)
        return found
    summed, compared = (rows, columns) if abs(p) == 1 else (columns, rows)
    sums = _vector_norm(self, 1, (summed,), True, None)
    found = _extreme(sums, compared, p > 0, keepdim=True)
    return found if keepdim else found.squeeze((rows, columns))


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), 1),
        s(s.tensor(2, 3, 4), -1, (0, 2)),
        s(s.tensor(2, 3, 4), float("inf"), keepdim=True),
        s(s.tensor(3, 4), -float("inf")),
        s(s.tensor(2, 3, 0), 1),
        *wide_only(
            s,
            s(regular(s, 2, 3, 3), 2),
            s(regular(s, 3, 3), -2, keepdim=True),
            s(s.tensor(0, 3), 2),
            s(regular(s, 2, 3), "nuc"),
            s(s.tensor(0, 2, 2), "nuc"),
        ),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2"),
        (s(s.tensor(2, 2), 3), RuntimeError, "not supported"),
        (s(s.tensor(2, 2), "max"), RuntimeError, "not supported"),
        (s(s.tensor(2, 2), "fro", (0,)), RuntimeError, "2-tuple"),
        (s(s.tensor(2, 2), "fro", (0, 0)), RuntimeError, "different"),
        (s(s.tensor(2, 2, dtype="int64")), RuntimeError, "floating point or complex"),
    ],
)
def linalg_matrix_norm(
    self: Tensor,
    ord: Any = "fro",
    dim: Ints = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute matrix norms over two dimensions.

    Args:
        ord: 'fro'; 'nuc' (sum of singular values); 2, -2 (extreme singular value); inf, -inf
            (extreme row sum); 1, -1 (extreme column sum).
        dim: of the rows and the columns.
        dtype: to compute in.
    """
    return _matrix_norm(self, ord, tuple(dim), keepdim, dtype)


def _dims(dim: Any) -> Any:
    if dim is None:
        return None
    return (dim,) if hasattr(dim, "__index__") else tuple(dim)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4), keepdim=True),
        s(s.tensor(5), 1),
        s(s.tensor(3, 4), 1),
        s(s.tensor(2, 3, 4), 3, dim=1),
        s(s.tensor(2, 3, 4, strided=True), "fro", dim=(-1, 0)),
        s(s.tensor(3, 4), dim=(0,)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2, 2), 1), RuntimeError, "1D or 2D"),
        (s(s.tensor(2, 2, 2), 1, dim=(0, 1, 2)), RuntimeError, "length 1 or 2"),
        (s(s.tensor(2, 2), "max"), RuntimeError, "not supported"),
        (s(s.tensor(2, dtype="int64")), RuntimeError, "floating point or complex"),
    ],
)
def linalg_norm(
    self: Tensor,
    ord: Any = None,
    dim: Ints1 | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute a vector norm or a matrix norm.

    Args:
        ord: of `linalg.vector_norm` or of `linalg.matrix_norm`; None: the Euclidean norm.
        dim: one dimension (a vector norm) or two (a matrix norm). By default all with `ord=None`,
            otherwise those of a vector or a matrix.
        dtype: to compute in.
    """
    dim = _dims(dim)
    if dim is not None and len(dim) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}"
        )
    if dim is None and ord is not None and self.ndim not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
            f"Got {self.ndim}D."
        )
    matrix = ord is not None and (len(dim) == 2 if dim is not None else self.ndim == 2)
    if matrix or isinstance(ord, str):
        return _matrix_norm(self, ord, (-2, -1) if dim is None else dim, keepdim, dtype)
    wrapped = None if dim is None else tuple(wrap_dim(d, self.ndim) for d in dim)
    return _vector_norm(self, 2 if ord is None else ord, wrapped, keepdim, dtype)


@composite(
    strict_out_dtype=True,
    out=True,
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), p=1, dim=1),
        s(s.tensor(3, 4), 3, 0, keepdim=True),
        s(s.tensor(2, 3, strided=True), float("inf"), dim=-1),
        s(s.tensor(3, 4), -float("inf")),
        s(s.tensor(3, 4), 0),
        s(s.tensor(3, 4), "fro", (0, 1)),
        s(s.tensor(3, 4), 1, (0, 1)),
        *wide_only(s, s(regular(s, 3, 3), "nuc"), s(regular(s, 2, 3, 3), "nuc", (1, 2))),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 4), dim=2), IndexError, "Dimension out of range"),
        (s(s.tensor(2, dtype="int64")), RuntimeError, "floating point or complex"),
        (s(s.tensor(2, 2), "max"), RuntimeError, "not supported"),
    ],
)
def norm(
    self: Tensor,
    p: Any = "fro",
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Compute a vector norm over dimensions, or the nuclear norm of matrices.

    Args:
        p: a number; 'fro' and None are the Euclidean norm; 'nuc' sums singular values.
        dim: all by default; two for 'nuc'.
    """
    if p == "nuc" or (isinstance(p, str) and p != "fro"):
        return _matrix_norm(
            self, p, tuple(range(self.ndim)) if dim is None else dim, keepdim, dtype
        )
    return _vector_norm(self, 2 if p in ("fro", None) else p, dim, keepdim, dtype)
