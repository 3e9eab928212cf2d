"""Define products of vectors, matrices and tensors that sum over shared dimensions."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Scalar, Tensor
from tangrad.ops.views.geometry import batched_front, numel_of
from tangrad.tensor.ranges import require_fit


def check_dtypes(name: str, a: Any, b: Any) -> None:
    """Raise unless two operands have one dtype, of numbers where there are elements."""
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: expected both operands to have the same dtype, but got: "
            f"{a.dtype} != {b.dtype}"
        )
    if a.dtype.name == "bool" and numel_of(a.shape) and numel_of(b.shape):
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


def _check_ndim(name: str, operand: str, x: Any, ndim: int) -> None:
    if len(x.shape) != ndim:
        raise RuntimeError(
            f"{name}: {operand} must be a {ndim}D tensor, got {len(x.shape)}D with shape "
            f"{list(x.shape)}"
        )


def product_of(np: Any, a: Any, b: Any) -> Any:
    """Return NumPy's product of two matrices or stacks."""
    # NumPy chooses among its libraries' loops, whose last bits differ, by strides as well.
    return np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


# Vectors and matrices ----------------------------------------------------------------------------


def _check_mm(self: Any, mat2: Any) -> None:
    _check_ndim("mm", "self", self, 2)
    _check_ndim("mm", "mat2", mat2, 2)
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({self.shape[0]}x{self.shape[1]} and "
            f"{mat2.shape[0]}x{mat2.shape[1]})"
        )
    check_dtypes("mm", self, mat2)


def _mm_batch(size: int, dims: Any, self: Any, mat2: Any) -> Any:
    if dims[1] is None:
        x = self.movedim(dims[0], 0)
        product = x.reshape((size * x.shape[1], x.shape[2])).mm(mat2)
        return product.reshape((size, x.shape[1], mat2.shape[1])), 0
    return batched_front(self, dims[0], size).bmm(batched_front(mat2, dims[1], size)), 0


mm = op(
    "mm(Tensor self, Tensor mat2) -> Tensor",
    c_implementation="mm",
    strict_out_dtype=True,
    dtypes="integral floating complex",
    check=_check_mm,
    shape=lambda self, mat2: (self.shape[0], mat2.shape[1]),
    reference=lambda np, self, mat2: product_of(np, self, mat2),
    vjp={
        "self": lambda g, mat2: g.mm(mat2.t().conj()),
        "mat2": lambda g, self: self.t().conj().mm(g),
    },
    linear=("self", "mat2"),
    batch=_mm_batch,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(3, 4)),
        s(s.tensor(2, 3, strided=True), s.tensor(3, 4, strided=True)),
        s(s.tensor(2, 0), s.tensor(0, 3)),
        s(s.tensor(0, 3), s.tensor(3, 2)),
        s(s.tensor(2, 3, strided=True), s.tensor(3, 1)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2, 3)), RuntimeError, "cannot be multiplied"),
        (s(s.tensor(3), s.tensor(3, 2)), RuntimeError, "must be a (2D tensor|matrix)"),
        (
            s(s.tensor(2, 2, dtype="float32"), s.tensor(2, 2, dtype="float64")),
            RuntimeError,
            "same dtype",
        ),
    ],
    doc="Multiply two matrices.",
)


def _check_bmm(self: Any, mat2: Any) -> None:
    _check_ndim("bmm", "batch1", self, 3)
    _check_ndim("bmm", "batch2", mat2, 3)
    if self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{self.shape[0]}, {self.shape[2]}] but got: [{mat2.shape[0]}, {mat2.shape[1]}] "
            "(bmm)."
        )
    check_dtypes("bmm", self, mat2)


def _bmm_batch(size: int, dims: Any, self: Any, mat2: Any) -> Any:
    a, b = batched_front(self, dims[0], size), batched_front(mat2, dims[1], size)
    product = a.flatten(0, 1).bmm(b.flatten(0, 1))
    return product.reshape((size, a.shape[1], a.shape[2], b.shape[3])), 0


bmm = op(
    "bmm(Tensor self, Tensor mat2) -> Tensor",
    c_implementation="bmm",
    strict_out_dtype=True,
    dtypes="integral floating complex",
    check=_check_bmm,
    shape=lambda self, mat2: (self.shape[0], self.shape[1], mat2.shape[2]),
    reference=lambda np, self, mat2: product_of(np, self, mat2),
    vjp={
        "self": lambda g, mat2: g.bmm(mat2.transpose(1, 2).conj()),
        "mat2": lambda g, self: self.transpose(1, 2).conj().bmm(g),
    },
    linear=("self", "mat2"),
    batch=_bmm_batch,
    samples=lambda s: [
        s(s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
        s(s.tensor(2, 2, 3, strided=True), s.tensor(2, 3, 1)),
        s(s.tensor(0, 2, 3), s.tensor(0, 3, 1)),
        s(s.tensor(2, 2, 0), s.tensor(2, 0, 3)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2, 3), s.tensor(2, 2, 3)), RuntimeError, "Expected size for first two"),
        (s(s.tensor(2, 3), s.tensor(2, 3, 1)), RuntimeError, "must be a 3D tensor"),
    ],
    doc="Multiply the matrices of two batches pairwise.",
)


def _check_mv(self: Any, vec: Any) -> None:
    if len(self.shape) != 2 or len(vec.shape) != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got 1, {len(self.shape)}, {len(vec.shape)} "
            "dimensions (mv)"
        )
    if self.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({self.shape[0]}), mat ({self.shape[0]}x{self.shape[1]}), "
            f"vec ({vec.shape[0]})"
        )
    check_dtypes("mv", self, vec)


def _mv_batch(size: int, dims: Any, self: Any, vec: Any) -> Any:
    if dims[0] is None:
        return vec.movedim(dims[1], 0).mm(self.t()), 0
    return batched_front(self, dims[0], size).bmm(
        batched_front(vec, dims[1], size).unsqueeze(2)
    ).squeeze(2), 0


mv = op(
    "mv(Tensor self, Tensor vec) -> Tensor",
    c_implementation="mv",
    strict_out_dtype=True,
    dtypes="integral floating complex",
    check=_check_mv,
    shape=lambda self: (self.shape[0],),
    reference=lambda np, self, vec: product_of(np, self, vec),
    decompose=lambda self, vec: self.mm(vec.unsqueeze(1)).squeeze(1),
    vjp={
        "self": lambda g, vec: g.unsqueeze(1).mm(vec.conj().unsqueeze(0)),
        "vec": lambda g, self: self.t().conj().mv(g),
    },
    linear=("self", "vec"),
    batch=_mv_batch,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(3)),
        s(s.tensor(2, 3, strided=True), s.tensor(3, strided=True)),
        s(s.tensor(2, 0), s.tensor(0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2)), RuntimeError, "size mismatch"),
        (s(s.tensor(2), s.tensor(2)), RuntimeError, "vector \\+ matrix @ vector expected"),
    ],
    doc="Multiply a matrix with a vector.",
)


def _check_dot(self: Any, tensor: Any) -> None:
    if len(self.shape) != 1 or len(tensor.shape) != 1:
        raise RuntimeError(
            f"1D tensors expected, but got {len(self.shape)}D and {len(tensor.shape)}D tensors "
            "(dot)"
        )
    if self.shape[0] != tensor.shape[0]:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{self.shape[0]}] and src "
            f"[{tensor.shape[0]}] to have the same number of elements (dot)"
        )
    check_dtypes("dot", self, tensor)


dot = op(
    "dot(Tensor self, Tensor tensor) -> Tensor",
    c_implementation="dot",
    strict_out_dtype=True,
    dtypes="integral floating complex",
    check=_check_dot,
    shape=lambda: (),
    reference=lambda np, self, tensor: product_of(np, self, tensor),
    decompose=lambda self, tensor: self.unsqueeze(0).mm(tensor.unsqueeze(1)).reshape(()),
    vjp={"self": lambda g, tensor: g * tensor.conj(), "tensor": lambda g, self: g * self.conj()},
    linear=("self", "tensor"),
    batch=lambda size, dims, self, tensor: (
        (batched_front(self, dims[0], size) * batched_front(tensor, dims[1], size)).sum(1),
        0,
    ),
    samples=lambda s: [
        s(s.tensor(3), s.tensor(3)),
        s(s.tensor(3, strided=True), s.tensor(3)),
        s(s.tensor(0), s.tensor(0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(3)), RuntimeError, "inconsistent tensor size"),
        (s(s.tensor(2, 2), s.tensor(2)), RuntimeError, "1D tensors expected"),
    ],
    doc="Sum the products of the elements of two vectors (without conjugation).",
)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [s(s.tensor(3), s.tensor(3))],
    errors=lambda s: [(s(s.tensor(2), s.tensor(3)), RuntimeError, "inconsistent tensor size")],
)
def vdot(self: Tensor, other: Tensor) -> Tensor:
    """Sum the products of the conjugated first vector with the second."""
    if other.is_conj() and not self.is_conj():
        return dot(self, other.conj()).conj()
    return dot(self.conj(), other)


@composite(
    out=True,
    alias=("ger",),
    samples=lambda s: [s(s.tensor(2), s.tensor(3)), s(s.tensor(0), s.tensor(2))],
    errors=lambda s: [(s(s.tensor(2, 2), s.tensor(2)), RuntimeError, "1-D")],
)
def outer(self: Tensor, vec2: Tensor) -> Tensor:
    """Multiply every element of one vector with every element of another."""
    if self.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(
            f"outer: Expected 1-D arguments self and vec2, but got {self.ndim}-D and {vec2.ndim}-D"
        )
    return self.unsqueeze(1) * vec2.unsqueeze(0)


def _matmul_shapes(a: Any, b: Any) -> RuntimeError:
    return RuntimeError(
        f"matmul: shapes cannot be multiplied, got {list(a.shape)} and {list(b.shape)}"
    )


@composite(
    c_implementation="matmul",
    strict_out_dtype=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(3), s.tensor(3)),
        s(s.tensor(2, 3), s.tensor(3)),
        s(s.tensor(3), s.tensor(3, 2)),
        s(s.tensor(2, 3), s.tensor(3, 2)),
        s(s.tensor(2, 2, 3), s.tensor(3, 2)),
        s(s.tensor(2, 3), s.tensor(2, 3, 2)),
        s(s.tensor(2, 1, 2, 3), s.tensor(2, 3, 2)),
        s(s.tensor(3), s.tensor(2, 3, 2)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2, 3)), RuntimeError, "cannot be multiplied"),
        (s(s.tensor(), s.tensor(2)), RuntimeError, "at least 1D"),
        (s(s.tensor(2, 2, 3), s.tensor(3, 3, 2)), RuntimeError, "must match|broadcast"),
    ],
)
def matmul(self: Tensor, other: Tensor) -> Tensor:
    """Multiply vectors, matrices or batches of matrices; batch dimensions broadcast.

    A vector on the left counts as a row, on the right as a column, and that dimension is
    dropped from the result.
    """
    left, right = self.ndim, other.ndim
    if left == 0 or right == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {left}D and {right}D"
        )
    if left == 1 and right == 1:
        return dot(self, other)
    if left == 2 and right == 1:
        return mv(self, other)
    if left == 1 and right == 2:
        return _own(mm(self.unsqueeze(0), other), (other.shape[1],))
    if left == 2 and right == 2:
        return mm(self, other)
    if left == 1:
        product = matmul(self.unsqueeze(0), other)
        return _own(product, (*tuple(product.shape)[:-2], product.shape[-1]))
    if right == 1:
        product = matmul(self, other.unsqueeze(1))
        return _own(product, tuple(product.shape)[:-1])
    if self.shape[-1] != other.shape[-2]:
        raise _matmul_shapes(self, other)
    if right == 2:
        rows = self.reshape((numel_of(tuple(self.shape)[:-1]), self.shape[-1]))
        return _own(mm(rows, other), (*tuple(self.shape)[:-1], other.shape[-1]))
    batch, matrix, others = tuple(self.shape)[:-2], tuple(self.shape)[-2:], tuple(other.shape)
    if batch != others[:-2]:
        batch = tuple(tangrad.broadcast_shapes(batch, others[:-2]))
        self, other = self.expand((*batch, *matrix)), other.expand((*batch, *others[-2:]))
    count = numel_of(batch)
    product = bmm(self.reshape((count, *matrix)), other.reshape((count, *others[-2:])))
    return _own(product, (*batch, matrix[0], others[-1]))


def _own(product: Any, shape: tuple[int, ...]) -> Any:
    """Give a fresh product its final shape; it is no view, for nobody holds what it was."""
    return tangrad._unsafe_view(product, shape)


# With addition -----------------------------------------------------------------------------------


@composite(
    old_form=(("beta", "alpha"), 2),
    strict_out_dtype=True,
    inplace=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(2, 4), s.tensor(2, 3), s.tensor(3, 4)),
        s(s.tensor(4), s.tensor(2, 3), s.tensor(3, 4), beta=2, alpha=3),
        s(s.tensor(), s.tensor(2, 3), s.tensor(3, 4), beta=0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(2, 3), s.tensor(3, 4)), RuntimeError, "must match|expanded size"),
        (s(s.tensor(2), s.tensor(2, 3), s.tensor(2, 2)), RuntimeError, "cannot be multiplied"),
    ],
)
def addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """Compute beta * self + alpha * (mat1 @ mat2); with beta 0, `self` is not read."""
    return _scaled_sum("addmm", self, mm(mat1, mat2), beta, alpha)


def _require_batches(name: str, batch1: Any, batch2: Any) -> None:
    for operand, x in (("batch1", batch1), ("batch2", batch2)):
        if len(x.shape) != 3:
            raise IndexError(f"{name}: {operand} must be a 3D tensor, got shape {list(x.shape)}")


@composite(
    old_form=(("beta", "alpha"), 2),
    strict_out_dtype=True,
    inplace=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(2, 2, 4), s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
        s(s.tensor(4), s.tensor(2, 2, 3), s.tensor(2, 3, 4), beta=2, alpha=3),
    ],
    errors=lambda s: [
        (
            s(s.tensor(3), s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
            RuntimeError,
            "must match|expanded size",
        )
    ],
)
def baddbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """Compute beta * self + alpha * bmm(batch1, batch2); with beta 0, `self` is not read."""
    _require_batches("baddbmm", batch1, batch2)
    return _scaled_sum("baddbmm", self, bmm(batch1, batch2), beta, alpha)


@composite(
    old_form=(("beta", "alpha"), 2),
    strict_out_dtype=True,
    inplace=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [s(s.tensor(2), s.tensor(2, 3), s.tensor(3), beta=2, alpha=3)],
)
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """Compute beta * self + alpha * (mat @ vec); with beta 0, `self` is not read."""
    return _scaled_sum("addmv", self, mv(mat, vec), beta, alpha)


@composite(
    old_form=(("beta", "alpha"), 2),
    strict_out_dtype=True,
    out=True,
    inplace=True,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(2, 4), s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
        s(s.tensor(4), s.tensor(2, 2, 3), s.tensor(2, 3, 4), beta=2, alpha=3),
        *([] if s.is_bool else [s(s.tensor(2, 2), s.tensor(0, 2, 3), s.tensor(0, 3, 2))]),
    ],
    errors=lambda s: [
        (
            s(s.tensor(3), s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
            RuntimeError,
            "must match|expanded size|expand",
        ),
        (
            s(s.tensor(2), s.tensor(2, 3), s.tensor(3, 2)),
            IndexError,
            "must be a 3D tensor|Dimension out of range",
        ),
        (
            s(s.tensor(2, 2), s.tensor(2, 2, 3), s.tensor(2, 2, 2)),
            RuntimeError,
            "Expected size|Incompatible matrix sizes",
        ),
    ],
)
def addbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """Compute beta * self + alpha * the sum of a batch's products."""
    _require_batches("addbmm", batch1, batch2)
    total = bmm(batch1, batch2).sum(0, dtype=batch1.dtype)
    return _scaled_sum("addbmm", self, total, beta, alpha)


def _check_factor(name: str, dtype: Any, number: Any) -> None:
    whole = isinstance(number, bool) or hasattr(number, "__index__")
    if not (dtype.is_floating_point or dtype.is_complex or whole):
        raise RuntimeError(
            f"For integral input tensors, argument {name} must not be a floating point number."
        )
    if isinstance(number, complex) and not dtype.is_complex:
        raise RuntimeError(f"argument {name} must be real for {dtype}, got {number}")
    require_fit(number, dtype, "addr")


@composite(
    old_form=(("beta", "alpha"), 2),
    out=True,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2), s.tensor(3)),
        s(s.tensor(3), s.tensor(2), s.tensor(3, strided=True), beta=2, alpha=3),
        s(s.tensor(), s.tensor(2), s.tensor(3), beta=0),
        s(s.tensor(0, 3), s.tensor(0), s.tensor(3)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2), s.tensor(2, 1), s.tensor(2)), RuntimeError, "1-D"),
        (s(s.tensor(4), s.tensor(2), s.tensor(3)), RuntimeError, "expand|must match|size"),
    ],
)
def addr(
    self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """Compute beta * self + alpha * the outer product; with beta 0, `self` is not read."""
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(
            f"addr: Expected 1-D arguments vec1 and vec2, but got {vec1.ndim}-D and {vec2.ndim}-D"
        )
    dtype = tangrad.promote_types(self.dtype, tangrad.promote_types(vec1.dtype, vec2.dtype))
    _check_factor("beta", dtype, beta)
    _check_factor("alpha", dtype, alpha)
    if beta == 1 and dtype != tangrad.bool:
        added = self.expand((vec1.shape[0], vec2.shape[0]))
        return tangrad.addcmul(added, vec1.unsqueeze(1), vec2, value=alpha)
    product = outer(vec1, vec2)
    added = self.expand(product.shape)
    if dtype == tangrad.bool:
        scaled = product & bool(alpha)
        return scaled | added if beta else scaled
    scaled = (product if alpha == 1 else product * alpha).to(dtype)
    return scaled if beta == 0 else scaled + (added if beta == 1 else added * beta)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(3), s.tensor(3)),
        s(s.tensor(2, 3), s.tensor(4, 3, strided=True)),
        s(s.tensor(2, 2, 3), s.tensor(3)),
        s(s.tensor(), s.tensor(2, 3)),
        s(s.tensor(2, 0), s.tensor(3, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2)), RuntimeError, "last dimension must match"),
        (s(s.tensor(2), s.tensor(2, dtype="float64")), RuntimeError, "same dtype"),
    ],
)
def inner(self: Tensor, other: Tensor) -> Tensor:
    """Sum the products over the last dimensions of two tensors; a number is a factor."""
    if self.ndim == 0 or other.ndim == 0:
        return self * other
    if self.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(self.shape)} and {list(other.shape)}"
        )
    if self.ndim == other.ndim == 1:
        return self.dot(other)
    if self.ndim == other.ndim == 2:
        return self.mm(other.t())
    return tangrad.tensordot(self, other, ([-1], [-1]))


def _as_factor(name: str, number: Any, like: Any) -> Any:
    """Return a factor in the kind of a tensor's dtype: of integers, its integral part."""
    if type(number) is int and number in (0, 1):
        return number  # the usual ones, which every dtype has
    half = like.dtype.is_floating_point and like.dtype.itemsize == 2
    require_fit(number, tangrad.float32 if half else like.dtype, name)
    if like.dtype.is_complex:
        return number
    number = number.real if isinstance(number, complex) else number
    return number if like.dtype.is_floating_point else int(number)


def _scaled_sum(name: str, self: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if self.dtype != product.dtype:
        raise RuntimeError(
            f"{name}: self and the matrices must have the same dtype, but got {self.dtype} and "
            f"{product.dtype}"
        )
    beta, alpha = _as_factor(name, beta, product), _as_factor(name, alpha, product)
    added = self.expand(product.shape)
    if beta == 0:
        return product if alpha == 1 else product * alpha
    # One sum with a factor rounds once, which matters for halves.
    return tangrad.add(added if beta == 1 else added * beta, product, alpha=alpha)
