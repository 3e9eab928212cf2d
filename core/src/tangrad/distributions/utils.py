"""What distributions share: broadcasting of parameters, probabilities and logits, matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "euler_constant",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def is_tensor_like(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__torch_function__")


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Broadcast numbers and tensors together; numbers take the dtype and device of the tensors.

    Returns:
        Tensors of one shape; of the default dtype if all values are numbers.

    Raises:
        ValueError: a value is neither a number nor a tensor.
    """
    if not all(is_tensor_like(v) or isinstance(v, (int, float, complex)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number or Tensor, got "
            f"{', '.join(type(v).__name__ for v in values)}"
        )
    first = next((v for v in values if is_tensor_like(v)), None)
    options = (
        {"dtype": tangrad.get_default_dtype()}
        if first is None
        else {"dtype": first.dtype, "device": first.device}
    )
    return tuple(
        tangrad.broadcast_tensors(
            *(v if is_tensor_like(v) else tangrad.tensor(v, **options) for v in values)
        )
    )


def standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Draw standard normal numbers."""
    return tangrad.normal(
        tangrad.zeros(shape, dtype=dtype, device=device),
        tangrad.ones(shape, dtype=dtype, device=device),
    )


def sum_rightmost(value: Any, dims: int) -> Any:
    """Sum the last dimensions."""
    return value if dims == 0 else value.reshape((*value.shape[:-dims], -1)).sum(-1)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Turn logits into probabilities: of one event, or of the places of the last dimension."""
    return tangrad.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Keep probabilities away from 0 and 1 by their dtype's epsilon, so logits are finite."""
    eps = tangrad.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Turn probabilities into logits: of one event, or of the places of the last dimension."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """Compute an attribute on first use and keep it."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return property(self.wrapped)
        with tangrad.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """Take the lower triangles, row by row.

    Args:
        mat: shape (..., n, n).
        diag: the diagonal that ends the triangle.
    """
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tangrad.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Lay vectors out as lower triangles, row by row; the inverse of `tril_matrix_to_vec`.

    Args:
        vec: shape (..., k).
        diag: the diagonal that ends the triangle.

    Raises:
        ValueError: no triangle has k elements.
    """
    k = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * k + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if abs(round(n) - n) > 1e-9:
        raise ValueError(
            f"The size of last dimension is {k} which cannot be expressed as the lower triangular"
            " part of a square D x D matrix."
        )
    size = round(n)
    rows, columns = tangrad.tril_indices(size, size, diag, device=vec.device)
    matrix = vec.new_zeros((*vec.shape[:-1], size, size))
    matrix[..., rows, columns] = vec
    return matrix


# PyTorch's private names, which packages of distributions import.
_standard_normal = standard_normal
_sum_rightmost = sum_rightmost
