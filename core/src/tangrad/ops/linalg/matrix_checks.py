"""What the ops of linear algebra ask of their matrices, and the matrices of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.devices.lapack import LinAlgError
from tangrad.ops.definition.define import op

_LOW = ("float16", "bfloat16")


def check_floating(name: str, a: Any, low: bool = False) -> None:
    """Refuse matrices that are not floating-point or complex (nor, unless `low`, wide enough).

    Raises:
        RuntimeError: with the dtype and what to do.
    """
    dtype = a.dtype.name
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {dtype}; "
            "convert it with .to(dtype)"
        )
    if not low and dtype in _LOW:
        raise RuntimeError(
            f"{name}: Low precision dtypes not supported. Got {dtype}; convert it with .float()"
        )


def check_matrix(name: str, a: Any, operand: str = "A") -> None:
    """Refuse a tensor without the two dimensions of a matrix."""
    if len(a.shape) < 2:
        raise RuntimeError(
            f"{name}: The input tensor {operand} must have at least 2 dimensions, got shape "
            f"{list(a.shape)}"
        )


def check_square(name: str, a: Any, operand: str = "A") -> None:
    """Refuse matrices that are not square."""
    check_matrix(name, a, operand)
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(
            f"{name}: {operand} must be batches of square matrices, but they are "
            f"{a.shape[-2]} by {a.shape[-1]} matrices"
        )


def check_square_floating(name: str, a: Any, operand: str = "A") -> None:
    """Refuse what is not a batch of square matrices of a wide floating or complex type."""
    check_square(name, a, operand)
    check_floating(name, a)


def check_same_dtype(name: str, a: Any, b: Any) -> None:
    """Refuse two matrices of different dtypes."""
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {a.dtype} and "
            f"B of type {b.dtype} instead"
        )


def real_of(dtype: Any) -> str:
    """Return the name of the real counterpart of a dtype."""
    name = dtype.name
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def complex_of(dtype: Any) -> str:
    """Return the name of the complex counterpart of a dtype."""
    name = dtype.name
    return {"float32": "complex64", "float64": "complex128"}.get(name, name)


def broadcast_matrices(a: Any, b: Any, name: str) -> tuple[Any, Any]:
    """Expand the leading dimensions of two batches of matrices to the common ones."""
    ours, theirs = tuple(a.shape)[:-2], tuple(b.shape)[:-2]
    if ours == theirs:
        return a, b
    import tangrad

    try:
        batch = tuple(tangrad.broadcast_shapes(ours, theirs))
    except RuntimeError as error:
        raise RuntimeError(
            f"{name}: the batch dimensions of shapes {list(a.shape)} and {list(b.shape)} must "
            "match or be 1"
        ) from error
    return a.expand((*batch, *tuple(a.shape)[-2:])), b.expand((*batch, *tuple(b.shape)[-2:]))


def checked(found: tuple[Any, ...], name: str, text: str) -> tuple[Any, ...]:
    """Return a kernel's results, the last of which are LAPACK's numbers of errors.

    Args:
        name: of the function that refuses errors, or "".
        text: the message, with {} for the number.

    Raises:
        LinAlgError: there is an error, and it is refused.
    """
    info = found[-1]
    if name and info.any():
        place = tuple(int(i[0]) for i in info.nonzero()) if info.ndim else ()
        which = f"(Batch element {', '.join(map(str, place))}): " if place else ""
        raise LinAlgError(f"{name}: {which}{text.format(int(info[place]))}")
    return found


def _refuse_dependence(np: Any, part: Any, text: str) -> Any:
    if not np.allclose(part, 0, rtol=0, atol=1e-2):
        raise RuntimeError(text)
    return np.zeros((), np.bool_)


_linalg_check_gauge = op(
    "_linalg_check_gauge(Tensor part, str text) -> Tensor",
    shape=lambda: (),
    dtype="bool",
    reference=_refuse_dependence,
    vjp="none: a check",
    batch=lambda size, dims, part, text: (_linalg_check_gauge(part, text), None),
    function=False,
    method=False,
    doc="""Raise RuntimeError unless all elements are about zero.

    They are the part of a loss's gradient that moves along the phase of vectors, which an
    eigenvalue or singular value problem leaves open.
    """,
)


def diagonal_matrix(values: Any) -> Any:
    """Return matrices with the given diagonals."""
    return values.diag_embed()


# Matrices of samples ------------------------------------------------------------------------------


def regular(s: Any, *shape: int, **kwargs: Any) -> Any:
    """Draw matrices that are far from singular: small elements, and a diagonal that dominates."""
    drawn = s.tensor(*shape, low=0 if s.dtype.startswith("u") else -1, high=1, **kwargs)
    array = drawn.array.copy()
    for i in range(min(shape[-2:])):
        array[..., i, i] += type(array.flat[0])(2 + i) if array.size else 0
    return s.values(array) if not kwargs.get("strided") else _strided(s, array)


def definite(s: Any, *shape: int) -> Any:
    """Draw Hermitian matrices with positive eigenvalues that differ."""
    drawn = s.tensor(*shape, low=0 if s.dtype.startswith("u") else -1, high=1).array
    array = drawn @ drawn.conj().swapaxes(-1, -2)
    for i in range(shape[-1]):
        array[..., i, i] += type(array.flat[0])(1 + i) if array.size else 0
    return s.values(array)


def symmetric(s: Any, *shape: int, hermitian: bool = True) -> Any:
    """Draw Hermitian (or symmetric) matrices."""
    array = regular(s, *shape).array
    other = array.conj() if hermitian else array
    return s.values(array + other.swapaxes(-1, -2))


def _strided(s: Any, array: Any) -> Any:
    from tangrad.ops.definition.samples import SampleTensor

    return SampleTensor(s.values(array).array, s.dtype, True)


def wide_only(s: Any, *samples: Any) -> list[Any]:
    """Return samples for the dtypes that are served: PyTorch takes empty matrices of any."""
    return list(samples) if s.dtype in ("float32", "float64", "complex64", "complex128") else []


def triangular(s: Any, *shape: int) -> Any:
    """Draw lower triangular matrices with a positive diagonal."""
    array = regular(s, *shape).array.copy()
    for i in range(shape[-1]):
        array[..., i, i + 1 :] = 0
        array[..., i, i] = array[..., i, i].real
    return s.values(array)


def square_errors(s: Any) -> list[Any]:
    """List the wrong calls of an op of one batch of square matrices."""
    return [
        (s(s.tensor(3, 2)), RuntimeError, "square"),
        (s(s.tensor(3)), RuntimeError, "at least 2"),
        (s(s.tensor(2, 2, dtype="int64")), RuntimeError, "floating|implemented"),
        (s(s.tensor(2, 2, dtype="float16")), RuntimeError, "Low precision|implemented"),
    ]


def shape_of_batch(a: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the leading dimensions of a batch of matrices, followed by others."""
    return (*a.shape[:-2], *rest)


def numel(shape: Sequence[int]) -> int:
    """Multiply sizes."""
    n = 1
    for size in shape:
        n *= size
    return n
