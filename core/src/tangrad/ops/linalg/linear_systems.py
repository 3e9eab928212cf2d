"""Linear systems: general, triangular, and by factors of the matrix."""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.devices import lapack
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.factorization import row_order
from tangrad.ops.linalg.matrix_checks import (
    broadcast_matrices,
    check_floating,
    check_matrix,
    check_same_dtype,
    check_square,
    check_square_floating,
    checked,
    numel,
    regular,
    triangular,
    wide_only,
)
from tangrad.ops.views.geometry import Ints

WIDE = "floating complex"
_SINGULAR = "The solver failed because the input matrix is singular."

# Systems ------------------------------------------------------------------------------------------


def _solve_vjp(g0: Any, A: Any, result0: Any) -> tuple[Any, Any]:
    """Pull back through A X = B: gB solves A^H gB = g, and gA = -gB X^H (Giles 2008)."""
    by_b = ops.linalg_solve(A.mH, g0)
    return -by_b.matmul(result0.mH), by_b


def _solve_jvp(A: Any, A_t: Any, B_t: Any, result: Any) -> Any:
    right = B_t
    if A_t is not None:
        moved = A_t.matmul(result[0])
        right = -moved if right is None else right - moved
    return [ops.linalg_solve(A, right), None]


def _solve_reference(np: Any, A: Any, B: Any, check: str) -> Any:
    return checked(lapack.solve(np, A, B), check, _SINGULAR)


_solve_kernel = op(
    "_linalg_solve(Tensor A, Tensor B, str check='') -> (Tensor result, Tensor info)",
    shape=lambda A, B: (B.shape, A.shape[:-2]),
    dtype=lambda A: (A.dtype, "int32"),
    reference=_solve_reference,
    vjp={("A", "B"): _solve_vjp},
    jvp=_solve_jvp,
    batch="dims",
    function=False,
    method=False,
    doc="""Solve A X = B for square matrices and right sides of one batch shape.

    Args:
        check: name of the function that raises LinAlgError if a matrix is singular, or none.
    """,
)


def _solve(A: Any, B: Any, left: bool, check: str) -> tuple[Any, Any]:
    """Solve A X = B, or X A = B; B may be a vector: (solution, numbers of zero pivots)."""
    name = "linalg.solve"
    check_square_floating(name, A)
    check_same_dtype(name, A, B)
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape)[:-1])
    if vector and not left:
        raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported")
    right = B.unsqueeze(-1) if vector else B
    check_matrix(name, right, "B")
    side = -2 if left else -1
    if right.shape[side] != A.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and "
            f"{right.shape[-2]}x{right.shape[-1]})"
        )
    matrix, right = broadcast_matrices(A, right, name)
    if left:
        found, info = _solve_kernel(matrix, right, check)
    else:
        found, info = _solve_kernel(matrix.mT, right.mT, check)
        found = found.mT
    if tuple(info.shape) != tuple(A.shape)[:-2]:
        info = _of_each(info, tuple(A.shape)[:-2])
    return (found.squeeze(-1) if vector else found), info


def _of_each(info: Any, batch: tuple[int, ...]) -> Any:
    """Return the numbers of matrices of a shape from those of their expanded copies."""
    if info.numel() == 0:
        return info.new_zeros(batch)
    for _ in range(info.ndim - len(batch)):
        info = info.select(0, 0)
    for dim, size in enumerate(batch):
        info = info.narrow(dim, 0, size)
    return info


def _solve_samples(s: Any) -> list[Any]:
    return [
        s(regular(s, 3, 3), s.tensor(3, 2)),
        s(regular(s, 2, 3, 3), s.tensor(2, 3)),
        s(regular(s, 3, 3), s.tensor(3)),
        s(regular(s, 2, 1, 3, 3, strided=True), s.tensor(4, 3, 1)),
        s(regular(s, 3, 3), s.tensor(2, 2, 3), left=False),
        *wide_only(s, s(s.tensor(0, 0), s.tensor(0, 3))),
    ]


def _solve_errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(3, 2), s.tensor(3, 2)), RuntimeError, "square"),
        (s(s.tensor(3), s.tensor(3, 2)), RuntimeError, "at least 2"),
        (s(s.tensor(3, 3), s.tensor(2, 2)), RuntimeError, "Incompatible shapes"),
        (s(s.tensor(2, 2), s.tensor(2, 2, dtype="float64")), RuntimeError, "same dtype"),
    ]


@composite(
    result_names=("result", "info"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_solve_samples,
    errors=_solve_errors,
)
def linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Solve A X = B without a check for singular matrices unless asked for.

    Returns:
        The solution, and int32 numbers: 0 or the first pivot that is zero.
    """
    check = "torch.linalg.solve_ex" if check_errors else ""
    return linalg_solve_ex.return_type(*_solve(A, B, left, check))


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_solve_samples,
    errors=lambda s: [
        *_solve_errors(s),
        (s(s.values([[1, 1], [1, 1]]), s.tensor(2)), RuntimeError, "singular"),
    ],
)
def linalg_solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """Solve A X = B (without `left`, X A = B) by elimination with partial pivoting.

    Args:
        A: (..., n, n). B: (..., n, k), or (n,) or (..., n) where those are A's first dimensions.

    Raises:
        LinAlgError: a matrix is singular.
    """
    return _solve(A, B, left, "torch.linalg.solve")[0]


# Triangular systems -------------------------------------------------------------------------------


def _triangle(x: Any, upper: bool, unitriangular: bool) -> Any:
    offset = 1 if unitriangular else 0
    return x.triu(offset) if upper else x.tril(-offset)


def _solve_triangular_vjp(
    g: Any, self: Any, result: Any, needs: Any, upper: bool, left: bool, unitriangular: bool
) -> tuple[Any, Any]:
    by_b = _triangular_kernel(self.mH, g, upper=not upper, left=left, unitriangular=unitriangular)
    if not needs[0]:
        return None, by_b
    by_a = by_b.matmul(result.mH) if left else result.mH.matmul(by_b)
    return -_triangle(by_a, upper, unitriangular), by_b


def _solve_triangular_jvp(
    self: Any, self_t: Any, B_t: Any, result: Any, upper: bool, left: bool, unitriangular: bool
) -> Any:
    right = B_t
    if self_t is not None:
        moving = _triangle(self_t, upper, unitriangular)
        moved = moving.matmul(result) if left else result.matmul(moving)
        right = -moved if right is None else right - moved
    return _triangular_kernel(self, right, upper=upper, left=left, unitriangular=unitriangular)


_triangular_kernel = op(
    "_linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left,"
    " bool unitriangular) -> Tensor",
    shape=lambda B: B.shape,
    reference=lambda np, self, B, upper, left, unitriangular: lapack.solve_triangular(
        np, self, B, upper, left, unitriangular
    ),
    vjp={("self", "B"): _solve_triangular_vjp},
    jvp=_solve_triangular_jvp,
    batch="dims",
    function=False,
    method=False,
    doc="Solve triangular systems of one batch shape.",
)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(regular(s, 3, 3), s.tensor(3, 2), upper=True),
        s(regular(s, 2, 3, 3, strided=True), s.tensor(3, 1), upper=False),
        s(regular(s, 3, 3), s.tensor(2, 2, 3), upper=False, left=False),
        s(regular(s, 3, 3), s.tensor(3, 2, strided=True), upper=True, unitriangular=True),
        *wide_only(s, s(s.tensor(0, 0), s.tensor(0, 2), upper=True)),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 2), s.tensor(3, 2), upper=True), RuntimeError, "square"),
        (s(s.tensor(3, 3), s.tensor(2, 2), upper=True), RuntimeError, "Incompatible shapes"),
        (s(s.tensor(3, 3), s.tensor(3), upper=True), RuntimeError, "at least 2"),
    ],
)
def linalg_solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Solve A X = B (without `left`, X A = B) for triangular A, of which one triangle is read.

    Args:
        self: A, (..., n, n). B: (..., n, k).
        upper: which triangle.
        unitriangular: take the diagonal for ones. Zeros on it give infinities, not an error.
    """
    name = "linalg.solve_triangular"
    check_square(name, self)
    check_floating(name, self)
    check_matrix(name, B, "B")
    check_same_dtype(name, self, B)
    if B.shape[-2 if left else -1] != self.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({self.shape[-2]}x{self.shape[-1]} and "
            f"{B.shape[-2]}x{B.shape[-1]})"
        )
    matrix, right = broadcast_matrices(self, B, name)
    return _triangular_kernel(matrix, right, upper=upper, left=left, unitriangular=unitriangular)


@composite(
    result_names=("solution", "cloned_coefficient"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    # PyTorch's tangent of its own function takes in what moves outside the triangle.
    oracle=lambda torch, b, A, upper=True, transpose=False: (
        torch.linalg.solve_triangular(A.mT if transpose else A, b, upper=upper != transpose),
        A.expand((*b.shape[:-2], *A.shape[-2:])).clone(),
    ),
    samples=lambda s: [
        s(s.tensor(3, 2), regular(s, 3, 3)),
        s(s.tensor(2, 3, 1), regular(s, 3, 3), upper=False, transpose=True),
    ],
    errors=lambda s: [(s(s.tensor(3), s.tensor(3, 3)), RuntimeError, "at least 2")],
)
def triangular_solve(
    self: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    """Solve A X = B (A^T X = B) for triangular A; `linalg.solve_triangular` is the newer name."""
    check_matrix("torch.triangular_solve", self, "b")
    check_matrix("torch.triangular_solve", A, "A")
    matrix, right = broadcast_matrices(A, self, "torch.triangular_solve")
    found = linalg_solve_triangular(
        matrix.mT if transpose else matrix,
        right,
        upper=upper != transpose,
        unitriangular=unitriangular,
    )
    return triangular_solve.return_type(found, matrix.clone())


# Systems by factors -------------------------------------------------------------------------------


def _check_cholesky_solve(self: Any, input2: Any) -> None:
    name = "cholesky_solve"
    check_matrix(name, self, "b")
    check_square_floating(name, input2)
    check_same_dtype(name, input2, self)
    if self.shape[-2] != input2.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible matrix sizes: each A matrix is {input2.shape[-2]} by "
            f"{input2.shape[-1]} but each b matrix is {self.shape[-2]} by {self.shape[-1]}"
        )


def _cholesky_solved(np: Any, self: Any, input2: Any, upper: bool) -> Any:
    adjoint = input2.conj().swapaxes(-1, -2)
    first, second = (adjoint, input2) if upper else (input2, adjoint)
    half = lapack.solve_triangular(np, first, self, False, True, False)
    return lapack.solve_triangular(np, second, half, True, True, False)


def _cholesky_solve_vjp(
    g: Any, input2: Any, result: Any, needs: Any, upper: bool
) -> tuple[Any, Any]:
    """Pull back through A X = B with A = L L^H: gB = inv(A) g, and gA = -gB X^H moves on to L.

    L stands for a whole matrix here, as in PyTorch: the gradient of the triangle that is not read
    is not masked.
    """
    by_b = _cholesky_solve_kernel(g, input2, upper)
    if not needs[1]:
        return by_b, None
    by_matrix = by_b.matmul(result.mH)
    by_matrix = -(by_matrix + by_matrix.mH)
    return by_b, input2.matmul(by_matrix) if upper else by_matrix.matmul(input2)


def _cholesky_solve_jvp(self_t: Any, input2: Any, input2_t: Any, result: Any, upper: bool) -> Any:
    right = self_t
    if input2_t is not None:
        moved = input2_t.mH.matmul(input2) if upper else input2_t.matmul(input2.mH)
        moved = (moved + moved.mH).matmul(result)
        right = -moved if right is None else right - moved
    return _cholesky_solve_kernel(right, input2, upper)


_cholesky_solve_kernel = op(
    "_cholesky_solve(Tensor self, Tensor input2, bool upper) -> Tensor",
    reference=_cholesky_solved,
    vjp={("self", "input2"): _cholesky_solve_vjp},
    jvp=_cholesky_solve_jvp,
    batch="dims",
    function=False,
    method=False,
    doc="Solve A X = B by Cholesky factors of the same batch shape.",
)


@composite(
    out=True,
    dtypes=WIDE,
    samples=lambda s: [
        s(s.tensor(3, 2), regular(s, 3, 3)),
        s(s.tensor(2, 3, 1), regular(s, 3, 3), upper=True),
        *wide_only(s, s(s.tensor(0, 2), s.tensor(0, 0))),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(3, 3)), RuntimeError, "at least 2"),
        (s(s.tensor(3, 2), s.tensor(2, 2)), RuntimeError, "Incompatible"),
    ],
)
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """Solve A X = B by the Cholesky factor of A.

    Args:
        self: B, (..., n, k). input2: L of L L^H, or with `upper` U of U^H U.
    """
    _check_cholesky_solve(self, input2)
    factor, right = broadcast_matrices(input2, self, "cholesky_solve")
    return _cholesky_solve_kernel(right, factor, upper)


def _cholesky_inverse_vjp(g: Any, self: Any, result: Any, upper: bool) -> Any:
    by_matrix = -result.matmul(g + g.mH).matmul(result)
    return self.matmul(by_matrix) if upper else by_matrix.matmul(self)


def _cholesky_inverse_jvp(self: Any, self_t: Any, result: Any, upper: bool) -> Any:
    moved = self_t.mH.matmul(self) if upper else self_t.matmul(self.mH)
    return -result.matmul(moved + moved.mH).matmul(result)


cholesky_inverse = op(
    "cholesky_inverse(Tensor self, bool upper=False) -> Tensor",
    dtypes=WIDE,
    # PyTorch's tangent of its own function is that of triangular changes alone.
    oracle=lambda torch, factor, upper=False: torch.cholesky_solve(
        torch.eye(factor.shape[-1], dtype=factor.dtype), factor, upper
    ),
    check=lambda self: check_square_floating("cholesky_inverse", self),
    reference=lambda np, self, upper: lapack.cholesky_inverse(np, self, upper),
    vjp={"self": _cholesky_inverse_vjp},
    jvp=_cholesky_inverse_jvp,
    batch="dims",
    samples=lambda s: [s(triangular(s, 3, 3)), *wide_only(s, s(s.tensor(0, 0)))],
    errors=lambda s: [(s(s.tensor(3, 2)), RuntimeError, "square")],
    doc="""Invert A by its Cholesky factor: L of L L^H, or with `upper` U of U^H U.

    As in PyTorch, the gradient of the triangle that is not read is not masked.
    """,
)


def _check_lu_solve(name: str, LU: Any, pivots: Any, B: Any, left: bool) -> None:
    check_square_floating(name, LU, "LU")
    check_matrix(name, B, "B")
    check_same_dtype(name, LU, B)
    if pivots.dtype.name != "int32":
        raise RuntimeError(
            f"{name}: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}"
        )
    if tuple(pivots.shape) != tuple(LU.shape)[:-1]:
        raise RuntimeError(
            f"{name}: Number of pivots per batch should be same as the dimension of the matrix, "
            f"and the batch dimensions must match: got {list(pivots.shape)} for {list(LU.shape)}"
        )
    if B.shape[-2 if left else -1] != LU.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of LU and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({LU.shape[-2]}x{LU.shape[-1]} and "
            f"{B.shape[-2]}x{B.shape[-1]})"
        )


def _take_rows(matrices: Any, order: Any) -> Any:
    """Return the rows of matrices in an order that each has of its own, or all have in common."""
    if order.ndim == 1:
        return matrices.index_select(-2, order)
    return matrices.gather(-2, order.unsqueeze(-1).expand(matrices.shape))


def _lu_solve_samples(s: Any) -> list[Any]:
    return [
        s(regular(s, 3, 3), s.values([2, 3, 3], dtype="int32"), s.tensor(3, 2)),
        s(regular(s, 2, 2, 2), s.values([[1, 2], [2, 2]], dtype="int32"), s.tensor(2, 3)),
        s(regular(s, 2, 2), s.values([2, 2], dtype="int32"), s.tensor(2, 3, 2), left=False),
        s(regular(s, 3, 3), s.values([2, 3, 3], dtype="int32"), s.tensor(3, 2), adjoint=True),
    ]


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_lu_solve_samples,
    errors=lambda s: [
        (s(s.tensor(2, 2), s.values([1, 2], dtype="int64"), s.tensor(2, 1)), RuntimeError, "int32"),
        (
            s(s.tensor(2, 2), s.values([1, 2], dtype="int32"), s.tensor(3, 1)),
            RuntimeError,
            "Incompatible",
        ),
    ],
)
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Solve A X = B (without `left`, X A = B) by the factors of `linalg.lu_factor`.

    Args:
        adjoint: solve with the adjoint of A instead.
    """
    name = "torch.linalg.lu_solve"
    _check_lu_solve(name, LU, pivots, B, left)
    factors, right = broadcast_matrices(LU, B, name)
    if not left:  # X A = B is A^H X^H = B^H
        return linalg_lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    size = LU.shape[-1]
    if adjoint:
        half = linalg_solve_triangular(factors.mH, right, upper=False)
        half = linalg_solve_triangular(factors.mH, half, upper=True, unitriangular=True)
        return _take_rows(half, row_order(pivots, size).argsort())
    half = _take_rows(right, row_order(pivots, size))
    half = linalg_solve_triangular(factors, half, upper=False, unitriangular=True)
    return linalg_solve_triangular(factors, half, upper=True)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    samples=lambda s: [s(s.tensor(3, 2), regular(s, 3, 3), s.values([2, 3, 3], dtype="int32"))],
    errors=lambda s: [
        (
            s(s.tensor(3, 1), s.tensor(2, 2), s.values([1, 2], dtype="int32")),
            RuntimeError,
            "Incompatible",
        )
    ],
)
def lu_solve(self: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """Solve A X = B by LU factors; `linalg.lu_solve` is the newer name."""
    return linalg_lu_solve(LU_data, LU_pivots, self)


# Tensors as matrices ------------------------------------------------------------------------------


@composite(
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(_as_tensor(s, regular(s, 6, 6), 2, 3, 6), 2),
        s(_as_tensor(s, regular(s, 6, 6), 6, 3, 2), ind=1),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), 0), RuntimeError, "strictly positive"),
        (s(s.tensor(2, 3), 1), RuntimeError, "to satisfy|product"),
    ],
)
def linalg_tensorinv(self: Tensor, ind: int = 2) -> Tensor:
    """Invert a tensor as a map from its dimensions `ind` and later ones to those before.

    Raises:
        LinAlgError: the map is singular.
    """
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    rows, columns = tuple(self.shape)[:ind], tuple(self.shape)[ind:]
    if numel(rows) != numel(columns):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {numel(columns)} != {numel(rows)} for shape "
            f"{list(self.shape)} and ind={ind}"
        )
    inverted = ops.linalg_inv(self.reshape((numel(rows), numel(columns))))
    return inverted.reshape((*columns, *rows))


@composite(
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(_as_tensor(s, regular(s, 6, 6), 2, 3, 6), s.tensor(2, 3)),
        s(_as_tensor(s, regular(s, 6, 6), 2, 6, 3), s.tensor(2, 3), dims=(1,)),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), s.tensor(2)), RuntimeError, "to satisfy|product")],
)
def linalg_tensorsolve(self: Tensor, other: Tensor, dims: Ints | None = None) -> Tensor:
    """Solve tensordot(A, X) = B for X.

    Args:
        self: A, whose first dimensions have as many elements as B. other: B.
        dims: dimensions of A to move to its end first.
    """
    tensor = self
    if dims is not None:
        tensor = self.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    rest = tuple(tensor.shape)[other.ndim :]
    if numel(rest) != numel(tensor.shape[: other.ndim]) or numel(rest) != numel(other.shape):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {numel(rest)} != "
            f"{numel(tensor.shape[: other.ndim])} for shapes {list(tensor.shape)} and "
            f"{list(other.shape)}"
        )
    n = numel(rest)
    return linalg_solve(tensor.reshape((n, n)), other.reshape((n,))).reshape(rest)


def _as_tensor(s: Any, matrix: Any, *shape: int) -> Any:
    return s.values(matrix.array.reshape(shape))
