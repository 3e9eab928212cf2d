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


class Keeper:
    """A distribution or transform: it keeps values that follow from its attributes."""


# Attributes from which nothing follows: what is kept, and a reference to the inverse.
_KEPT = ("_computed", "_cached_x_y", "_cached_of", "_inverse_of")


def sources(value: Any) -> list[tuple[Any, Any]]:
    """Return what a value consists of, and of tensors the version: another after a write."""
    if isinstance(value, Tensor):
        return [(value, None if value.is_inference() else value._version)]
    if isinstance(value, Keeper):
        computed = vars(value).get("_computed", ())
        names = (name for name in vars(value) if name not in computed and name not in _KEPT)
        return [part for name in names for part in sources(vars(value)[name])]
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in sources(item)]
    return [(value, None)]


def unchanged(before: Any, now: Any) -> bool:
    """Tell whether two results of `sources` are the same objects in the same versions."""
    return len(before) == len(now) and all(
        x is y and v == w for (x, v), (y, w) in zip(before, now, strict=True)
    )


class lazy_property:
    """Compute an attribute on first use, and keep it until what it followed from changes."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return property(self.wrapped)
        name, held = self.wrapped.__name__, vars(instance)
        value, computed = held.get(name, self), held.get("_computed", {})
        if value is not self:
            if name not in computed or computed[name][0] is not value:
                return value  # given, not computed
            if unchanged(computed[name][1], sources(instance)):
                return value
        with tangrad.enable_grad():
            value = self.wrapped(instance)
        keep_computed(instance, name, value)
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        forget(instance, self.wrapped.__name__)
        vars(instance)[self.wrapped.__name__] = value


def keep_computed(instance: Any, name: str, value: Any) -> None:
    """Keep a value that follows from the attributes that an instance has now."""
    held = vars(instance)
    held[name] = value
    computed = held.setdefault("_computed", {})
    computed[name] = (value, ())  # so that it is none of the sources
    computed[name] = (value, sources(instance))


def forget(instance: Any, *names: str) -> None:
    """Take away attributes, whether given or computed."""
    for name in names:
        vars(instance).pop(name, None)
        vars(instance).get("_computed", {}).pop(name, None)


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
