"""Define products of vectors, matrices and tensors that sum over shared dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import ops
from tangrad.ops.define import composite, op
from tangrad.ops.movement import numel_of

Ints = tuple[int, ...]


def _front(x: Any, dim: int | None, size: int) -> Any:
    return x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0)


def _check_dtypes(name: str, a: Any, b: Any) -> None:
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: expected both operands to have the same dtype, but got: "
            f"{a.dtype} != {b.dtype}"
        )
    if str(a.dtype).endswith(".bool"):
        raise RuntimeError(f'"{name}" not implemented for \'Bool\'')


def _check_ndim(name: str, operand: str, x: Any, ndim: int) -> None:
    if len(x.shape) != ndim:
        raise RuntimeError(
            f"{name}: {operand} must be a {ndim}D tensor, got {len(x.shape)}D with shape "
            f"{list(x.shape)}"
        )


# Vectors and matrices --------------------------------------------------------------------------


def _check_mm(self: Any, mat2: Any) -> None:
    _check_ndim("mm", "self", self, 2)
    _check_ndim("mm", "mat2", mat2, 2)
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({self.shape[0]}x{self.shape[1]} and {mat2.shape[0]}x{mat2.shape[1]})"
        )
    _check_dtypes("mm", self, mat2)


def _mm_batch(size: int, dims: Any, self: Any, mat2: Any) -> Any:
    if dims[1] is None:
        x = self.movedim(dims[0], 0)
        product = x.reshape((size * x.shape[1], x.shape[2])).mm(mat2)
        return product.reshape((size, x.shape[1], mat2.shape[1])), 0
    return _front(self, dims[0], size).bmm(_front(mat2, dims[1], size)), 0


mm = op(
    "mm(Tensor self, Tensor mat2) -> Tensor",
    check=_check_mm,
    shape=lambda self, mat2: (self.shape[0], mat2.shape[1]),
    reference=lambda np, self, mat2: np.matmul(self, mat2),
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
    _check_dtypes("bmm", self, mat2)


def _bmm_batch(size: int, dims: Any, self: Any, mat2: Any) -> Any:
    a, b = _front(self, dims[0], size), _front(mat2, dims[1], size)
    product = a.flatten(0, 1).bmm(b.flatten(0, 1))
    return product.reshape((size, a.shape[1], a.shape[2], b.shape[3])), 0


bmm = op(
    "bmm(Tensor self, Tensor mat2) -> Tensor",
    check=_check_bmm,
    shape=lambda self, mat2: (self.shape[0], self.shape[1], mat2.shape[2]),
    reference=lambda np, self, mat2: np.matmul(self, mat2),
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
            "vector + matrix @ vector expected, got "
            f"1, {len(self.shape)}, {len(vec.shape)} dimensions (mv)"
        )
    if self.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({self.shape[0]}), mat ({self.shape[0]}x{self.shape[1]}), "
            f"vec ({vec.shape[0]})"
        )
    _check_dtypes("mv", self, vec)


def _mv_batch(size: int, dims: Any, self: Any, vec: Any) -> Any:
    if dims[0] is None:
        return vec.movedim(dims[1], 0).mm(self.t()), 0
    return _front(self, dims[0], size).bmm(_front(vec, dims[1], size).unsqueeze(2)).squeeze(2), 0


mv = op(
    "mv(Tensor self, Tensor vec) -> Tensor",
    check=_check_mv,
    shape=lambda self: (self.shape[0],),
    reference=lambda np, self, vec: np.matmul(self, vec),
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
            "1D tensors expected, but got "
            f"{len(self.shape)}D and {len(tensor.shape)}D tensors (dot)"
        )
    if self.shape[0] != tensor.shape[0]:
        raise RuntimeError(
            "inconsistent tensor size, expected tensor [{}] and src [{}] to have the same number "
            "of elements (dot)".format(self.shape[0], tensor.shape[0])
        )
    _check_dtypes("dot", self, tensor)


dot = op(
    "dot(Tensor self, Tensor tensor) -> Tensor",
    check=_check_dot,
    shape=lambda: (),
    reference=lambda np, self, tensor: np.matmul(self, tensor),
    decompose=lambda self, tensor: self.unsqueeze(0).mm(tensor.unsqueeze(1)).reshape(()),
    vjp={
        "self": lambda g, tensor: g * tensor.conj(),
        "tensor": lambda g, self: g * self.conj(),
    },
    linear=("self", "tensor"),
    batch=lambda size, dims, self, tensor: (
        (_front(self, dims[0], size) * _front(tensor, dims[1], size)).sum(1),
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
    "vdot(Tensor self, Tensor other) -> Tensor",
    samples=lambda s: [s(s.tensor(3), s.tensor(3))],
    errors=lambda s: [(s(s.tensor(2), s.tensor(3)), RuntimeError, "inconsistent tensor size")],
)
def vdot(self: Any, other: Any) -> Any:
    """Sum the products of the conjugated first vector with the second."""
    return dot(self.conj(), other)


@composite(
    "outer(Tensor self, Tensor vec2) -> Tensor",
    alias=("ger",),
    samples=lambda s: [s(s.tensor(2), s.tensor(3)), s(s.tensor(0), s.tensor(2))],
    errors=lambda s: [(s(s.tensor(2, 2), s.tensor(2)), RuntimeError, "1-D")],
)
def outer(self: Any, vec2: Any) -> Any:
    """Multiply every element of one vector with every element of another."""
    if self.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(
            "outer: Expected 1-D arguments self and vec2, but got "
            f"{self.ndim}-D and {vec2.ndim}-D"
        )
    return self.unsqueeze(1) * vec2.unsqueeze(0)


def _matmul_shapes(a: Any, b: Any) -> RuntimeError:
    return RuntimeError(
        f"matmul: shapes cannot be multiplied, got {list(a.shape)} and {list(b.shape)}"
    )


@composite(
    "matmul(Tensor self, Tensor other) -> Tensor",
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
        (s(s.tensor(2, 2, 3), s.tensor(3, 3, 2)), RuntimeError, "must match"),
    ],
)
def matmul(self: Any, other: Any) -> Any:
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
        return mm(self.unsqueeze(0), other).squeeze(0)
    if left == 2 and right == 2:
        return mm(self, other)
    if left == 1:
        return matmul(self.unsqueeze(0), other).squeeze(-2)
    if right == 1:
        return matmul(self, other.unsqueeze(1)).squeeze(-1)
    if self.shape[-1] != other.shape[-2]:
        raise _matmul_shapes(self, other)
    if right == 2:
        rows = self.reshape((numel_of(tuple(self.shape)[:-1]), self.shape[-1]))
        return mm(rows, other).reshape((*tuple(self.shape)[:-1], other.shape[-1]))
    batch = ops.broadcast_shapes(tuple(self.shape)[:-2], tuple(other.shape)[:-2])
    count = numel_of(batch)
    a = self.expand((*batch, *tuple(self.shape)[-2:]))
    b = other.expand((*batch, *tuple(other.shape)[-2:]))
    product = bmm(
        a.reshape((count, *tuple(self.shape)[-2:])), b.reshape((count, *tuple(other.shape)[-2:]))
    )
    return product.reshape((*batch, self.shape[-2], other.shape[-1]))


# With addition ---------------------------------------------------------------------------------


@composite(
    "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
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
def addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    """Compute beta * self + alpha * (mat1 @ mat2); with beta 0, `self` is not read."""
    return _scaled_sum(self, mm(mat1, mat2), beta, alpha)


@composite(
    "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)"
    " -> Tensor",
    samples=lambda s: [
        s(s.tensor(2, 2, 4), s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
        s(s.tensor(4), s.tensor(2, 2, 3), s.tensor(2, 3, 4), beta=2, alpha=3),
    ],
    errors=lambda s: [
        (
            s(s.tensor(3), s.tensor(2, 2, 3), s.tensor(2, 3, 4)),
            RuntimeError,
            "must match|expanded size",
        ),
    ],
)
def baddbmm(self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    """Compute beta * self + alpha * bmm(batch1, batch2); with beta 0, `self` is not read."""
    return _scaled_sum(self, bmm(batch1, batch2), beta, alpha)


@composite(
    "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    samples=lambda s: [s(s.tensor(2), s.tensor(2, 3), s.tensor(3), beta=2, alpha=3)],
)
def addmv(self: Any, mat: Any, vec: Any, beta: Any, alpha: Any) -> Any:
    """Compute beta * self + alpha * (mat @ vec); with beta 0, `self` is not read."""
    return _scaled_sum(self, mv(mat, vec), beta, alpha)


def _scaled_sum(self: Any, product: Any, beta: Any, alpha: Any) -> Any:
    added = self.expand(product.shape)
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return scaled + (added if beta == 1 else added * beta)


def _check_linear(input: Any, weight: Any, bias: Any) -> None:
    if len(weight.shape) not in (1, 2):
        raise RuntimeError(
            f"linear: weight must be a matrix or vector, got shape {list(weight.shape)}"
        )
    if not input.shape or input.shape[-1] != weight.shape[-1]:
        rows = numel_of(input.shape[:-1])
        last = input.shape[-1] if input.shape else 1
        out = weight.shape[0] if len(weight.shape) == 2 else 1
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{last} and "
            f"{weight.shape[-1]}x{out}): linear of input {list(input.shape)} with weight "
            f"{list(weight.shape)}"
        )
    _check_dtypes("linear", input, weight)
    if bias is None:
        return
    _check_dtypes("linear", input, bias)
    features = weight.shape[:-1]
    if tuple(bias.shape) not in (tuple(features), ()) and not (
        len(bias.shape) == 1 and bias.shape[0] == 1
    ):
        raise RuntimeError(
            f"linear: bias of shape {list(bias.shape)} does not fit the {list(features)} output "
            "features of the weight; its size must match"
        )


def _linear_reference(np: Any, input: Any, weight: Any, bias: Any) -> Any:
    product = np.matmul(input, weight.T)
    return product if bias is None else product + bias


def _linear_decomposed(input: Any, weight: Any, bias: Any) -> Any:
    product = input.matmul(weight.t())
    return product if bias is None else product + bias


def _linear_weight_vjp(g: Any, input: Any, weight_meta: Any) -> Any:
    rows = input.reshape((numel_of(tuple(input.shape)[:-1]), input.shape[-1]))
    if len(weight_meta.shape) == 1:
        return rows.t().conj().mv(g.reshape((-1,)))
    return g.reshape((rows.shape[0], g.shape[-1])).t().mm(rows.conj())


def _linear_input_vjp(g: Any, weight: Any) -> Any:
    if weight.ndim == 1:
        return g.unsqueeze(-1) * weight.conj()
    return g.matmul(weight.conj())


def _linear_jvp(
    input: Any, weight: Any, input_t: Any, weight_t: Any, bias_t: Any, result: Any
) -> Any:
    parts = []
    if input_t is not None:
        parts.append(ops.linear(input_t, weight, None))
    if weight_t is not None:
        parts.append(ops.linear(input, weight_t, None))
    if bias_t is not None:
        parts.append(bias_t.expand(result.shape))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _linear_batch(size: int, dims: Any, input: Any, weight: Any, bias: Any) -> Any:
    if dims[1] is None and (bias is None or dims[2] is None):
        return ops.linear(input.movedim(dims[0], 0), weight, bias), 0
    x, w = _front(input, dims[0], size), _front(weight, dims[1], size)
    vector = w.ndim == 2
    w = w.unsqueeze(1) if vector else w
    rows = x.reshape((size, numel_of(tuple(x.shape)[1:-1]), x.shape[-1]))
    product = rows.bmm(w.transpose(1, 2))
    if bias is not None:
        product = product + _front(bias, dims[2], size).reshape((size, 1, -1))
    shape = tuple(x.shape)[:-1] if vector else (*tuple(x.shape)[:-1], w.shape[1])
    return product.reshape(shape), 0


linear = op(
    "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    namespace="nn",
    check=_check_linear,
    shape=lambda input, weight: (*input.shape[:-1], *weight.shape[:-1]),
    reference=_linear_reference,
    decompose=_linear_decomposed,
    vjp={
        "input": _linear_input_vjp,
        "weight": _linear_weight_vjp,
        "bias": lambda g, bias_meta: g.sum_to_size(
            bias_meta.shape if g.ndim >= len(bias_meta.shape) else g.shape
        ).reshape(bias_meta.shape),
    },
    jvp=_linear_jvp,
    batch=_linear_batch,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(4, 3), s.tensor(4)),
        s(s.tensor(2, 3), s.tensor(4, 3)),
        s(s.tensor(3), s.tensor(2, 3), s.tensor(2)),
        s(s.tensor(2, 2, 3), s.tensor(4, 3), s.tensor(4)),
        s(s.tensor(2, 3), s.tensor(3)),
        s(s.tensor(0, 3), s.tensor(2, 3), s.tensor(2)),
    ],
    oracle="nn.functional.linear",
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3, 4)), RuntimeError, "cannot be multiplied"),
        (s(s.tensor(2, 3), s.tensor(4, 3), s.tensor(3)), RuntimeError, "must match|expanded"),
    ],
    doc=r"""Apply y = x Wᵀ + b to the last dimension.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features) or (in_features).
        bias: (out_features) or ().
    """,
)


# Traces ----------------------------------------------------------------------------------------


@composite(
    "trace(Tensor self) -> Tensor",
    samples=lambda s: [s(s.tensor(3, 3)), s(s.tensor(2, 4)), s(s.tensor(0, 2))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "expected a matrix")],
)
def trace(self: Any) -> Any:
    """Sum the diagonal of a matrix."""
    if self.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    return self.diagonal().sum()


def _contracted_dims(a: Any, b: Any, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects 0 <= dims <= ndim, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    ours, theirs = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(ours) != len(theirs):
        raise RuntimeError("both dimension lists should have same length")
    return [d % a.ndim for d in ours], [d % b.ndim for d in theirs]


@composite(
    "tensordot(Tensor a, Tensor b, any dims=2) -> Tensor",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, 2), s.tensor(3, 2, 2)),
        s(s.tensor(2, 3), s.tensor(2, 3), ([0], [0])),
        s(s.tensor(2), s.tensor(3), 0),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2, 3), 1), RuntimeError, "contracted dimensions"),
    ],
)
def tensordot(a: Any, b: Any, dims: Any) -> Any:
    """Sum the products of two tensors over pairs of dimensions.

    Args:
        dims: a number n (the last n of `a` with the first n of `b`) or two lists.
    """
    ours, theirs = _contracted_dims(a, b, dims)
    for i, j in zip(ours, theirs, strict=True):
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                "contracted dimensions need to match, but first has size "
                f"{a.shape[i]} in dim {i} and second has size {b.shape[j]} in dim {j}"
            )
    free_a = [d for d in range(a.ndim) if d not in ours]
    free_b = [d for d in range(b.ndim) if d not in theirs]
    summed = numel_of([a.shape[d] for d in ours])
    rows = a.permute((*free_a, *ours)).reshape((numel_of([a.shape[d] for d in free_a]), summed))
    columns = b.permute((*theirs, *free_b)).reshape(
        (summed, numel_of([b.shape[d] for d in free_b]))
    )
    shape = (*(a.shape[d] for d in free_a), *(b.shape[d] for d in free_b))
    return rows.mm(columns).reshape(shape)


# Einstein summation ----------------------------------------------------------------------------
#
# Every operand becomes a tensor whose dimensions are labels in one common order (absent ones
# of size one). Operands are then multiplied from left to right, and a label is summed as soon
# as nothing that follows mentions it: as a batched matrix product where both operands have it.


def _parse_einsum(equation: str, operands: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
    """Give the labels of every operand and of the result; ellipses become numbers < 0."""
    terms, arrow, output = equation.replace(" ", "").partition("->")
    inputs = terms.split(",")
    if len(inputs) != len(operands):
        raise RuntimeError(
            f"einsum(): the equation '{equation}' has {len(inputs)} operands, "
            f"but {len(operands)} were provided"
        )
    labels = [_operand_labels(term, x) for term, x in zip(inputs, operands, strict=True)]
    rest = sorted({c for term in labels for c in term if isinstance(c, int)})
    if arrow:
        return labels, _output_labels(output, rest, labels)
    letters = [c for term in labels for c in term if isinstance(c, str)]
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return labels, [*rest, *once]


def _check_letters(term: str) -> None:
    if not all(c.isascii() and c.isalpha() for c in term.replace("...", "", 1)):
        raise RuntimeError(
            f"einsum(): invalid subscript given in '{term}', subscripts must be in [a-zA-Z]"
        )


def _operand_labels(term: str, x: Any) -> list[Any]:
    _check_letters(term)
    before, dots, after = term.partition("...")
    covered = x.ndim - len(before) - len(after)
    if covered < 0 or (covered and not dots):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(before) + len(after)}) "
            f"does not match the number of dimensions ({x.ndim}) for operand '{term}'"
        )
    return [*before, *range(-covered, 0), *after]


def _output_labels(output: str, rest: list[Any], labels: list[list[Any]]) -> list[Any]:
    _check_letters(output)
    before, dots, after = output.partition("...")
    named = [*before, *after]
    for c in named:
        if named.count(c) > 1:
            raise RuntimeError(f"einsum(): output subscript {c} appears more than once")
        if not any(c in term for term in labels):
            raise RuntimeError(
                f"einsum(): output subscript {c} does not appear in the equation for any input "
                "operand"
            )
    return [*before, *(rest if dots else []), *after]


def _without_repeats(x: Any, labels: list[Any]) -> tuple[Any, list[Any]]:
    """Take the diagonal of dimensions that carry one label."""
    labels = list(labels)
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            first = labels.index(c)
            second = labels.index(c, first + 1)
            if x.shape[first] != x.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {c} is repeated for an operand but the sizes don't "
                    f"match, {x.shape[first]} != {x.shape[second]}"
                )
            x = x.diagonal(0, first, second)
            labels = [d for i, d in enumerate(labels) if i not in (first, second)] + [c]
    return x, labels


def _aligned(x: Any, labels: list[Any], order: list[Any]) -> Any:
    """Permute a tensor to the common order of labels, with size one where it lacks a label."""
    x = x.permute(tuple(labels.index(c) for c in order if c in labels))
    sizes = iter(x.shape)
    return x.reshape(tuple(next(sizes) if c in labels else 1 for c in order))


def _label_sizes(operands: Sequence[Any], labels: list[list[Any]]) -> dict[Any, int]:
    sizes: dict[Any, int] = {}
    for x, term in zip(operands, labels, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            known = sizes.get(c, 1)
            if 1 not in (known, n) and known != n:
                raise RuntimeError(
                    f"einsum(): subscript {c} has size {n} for one operand which does not "
                    f"broadcast with previously seen size {known}"
                )
            sizes[c] = n if known == 1 else known
    return sizes


def _sum_of_products(a: Any, b: Any, summed: list[int]) -> Any:
    """Multiply two aligned tensors and sum dimensions, which stay with size one."""
    both = [d for d in summed if a.shape[d] != 1 and b.shape[d] != 1]
    alone = [d for d in summed if d not in both]
    for d in alone:
        if a.shape[d] != 1:
            a = a.sum((d,), keepdim=True)
        elif b.shape[d] != 1:
            b = b.sum((d,), keepdim=True)
    if not both:
        return a * b
    others = [d for d in range(a.ndim) if d not in both]
    batch = [d for d in others if a.shape[d] != 1 and b.shape[d] != 1]
    rows = [d for d in others if d not in batch and b.shape[d] == 1]
    columns = [d for d in others if d not in batch and d not in rows]
    count = {
        id(part): numel_of([max(a.shape[d], b.shape[d]) for d in part])
        for part in (batch, rows, columns, both)
    }
    left = a.permute((*batch, *rows, *both, *columns)).reshape(
        (count[id(batch)], count[id(rows)], count[id(both)])
    )
    right = b.permute((*batch, *both, *columns, *rows)).reshape(
        (count[id(batch)], count[id(both)], count[id(columns)])
    )
    sizes = [max(a.shape[d], b.shape[d]) for d in (*batch, *rows, *columns)]
    product = left.bmm(right).reshape((*sizes, *(1 for _ in both)))
    order = [*batch, *rows, *columns, *both]
    return product.permute(tuple(order.index(d) for d in range(a.ndim)))


@composite(
    "einsum(str equation, Tensor[] operands) -> Tensor",
    method=False,
    samples=lambda s: [
        s("ij,jk->ik", [s.tensor(2, 3), s.tensor(3, 2)]),
        s("bij,bjk", [s.tensor(2, 2, 3), s.tensor(2, 3, 2)]),
        s("ii->i", [s.tensor(3, 3)]),
        s("ij->", [s.tensor(2, 3)]),
        s("...i,...i->...", [s.tensor(2, 3), s.tensor(3)]),
        s("i,j,k->kij", [s.tensor(2), s.tensor(2), s.tensor(3)]),
    ],
    errors=lambda s: [
        (s("ij,jk", [s.tensor(2, 3)]), RuntimeError, "operands"),
        (s("ij,jk", [s.tensor(2, 3), s.tensor(2, 3)]), RuntimeError, "does not broadcast"),
        (s("ij->k", [s.tensor(2, 3)]), RuntimeError, "does not appear"),
        (s("ijk", [s.tensor(2, 3)]), RuntimeError, "does not match the number of dimensions"),
    ],
)
def einsum(equation: str, operands: Sequence[Any]) -> Any:
    """Sum products of tensors over labelled dimensions (Einstein's convention).

    Args:
        equation: labels of each operand, comma separated, and after "->" of the result
            (default: the labels that occur once, sorted). "..." stands for broadcast dimensions.
    """
    labels, output = _parse_einsum(equation, operands)
    plain = [_without_repeats(x, term) for x, term in zip(operands, labels, strict=True)]
    operands, labels = [x for x, _ in plain], [term for _, term in plain]
    sizes = _label_sizes(operands, labels)
    order = [*output, *(c for c in sizes if c not in output)]
    aligned = [_aligned(x, term, order) for x, term in zip(operands, labels, strict=True)]
    result = aligned[0]
    for i, operand in enumerate(aligned[1:], 1):
        later = {c for term in labels[i + 1 :] for c in term}
        done = [d for d, c in enumerate(order) if c not in output and c not in later]
        result = _sum_of_products(result, operand, done)
    left = tuple(d for d in range(len(output), len(order)) if result.shape[d] != 1)
    result = result.sum(left, keepdim=True) if left else result
    return result.reshape(tuple(result.shape)[: len(output)])
