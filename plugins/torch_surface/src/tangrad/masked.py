"""Reductions and normalisations of the elements that a mask shows: `torch.masked`.

A mask is a bool tensor, True where an element counts, that broadcasts to the input. An element
that does not count is replaced by what changes no result: 0 in a sum, 1 in a product, -inf in a
maximum. Masked tensors, which carry their mask with them, do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.plugin import attribute_of

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]

Dims = int | Sequence[int] | None

__getattr__ = attribute_of(__name__)


# The mask ----------------------------------------------------------------------------------------


def _shown(input: Any, mask: Any) -> Any:
    """Return the mask in the shape of the input.

    Raises:
        IndexError: the mask has more dimensions than the input.
    """
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            f"input: shapes {list(mask.shape)} and {list(input.shape)})"
        )
    return mask.to(tangrad.bool).expand(input.shape)


def _filled(input: Any, mask: Any, neutral: complex) -> Any:
    """Replace what the mask hides by a number."""
    if mask is None:
        return input
    value = tangrad.tensor(neutral, dtype=input.dtype, device=input.device)
    return tangrad.where(_shown(input, mask), input, value)


def _limits(input: Any) -> tuple[float, float]:
    """Return the least and the greatest number of the input's dtype.

    Raises:
        TypeError: complex numbers have no order.
        NotImplementedError: the dtype is bool.
    """
    if input.is_floating_point():
        return -tangrad.inf, tangrad.inf
    if input.is_complex():
        raise TypeError(f"masked: numbers of {input.dtype} are not ordered")
    if input.dtype == tangrad.bool:
        raise NotImplementedError(f"masked: no element of {input.dtype} can be left out")
    limits = tangrad.iinfo(input.dtype)
    return limits.min, limits.max


def _dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """List the dimensions meant, from 0 on; None means all.

    Raises:
        RuntimeError: a dimension occurs twice.
        IndexError: a dimension is out of range.
    """
    if dim is None or dim == () or dim == []:
        return tuple(range(ndim))
    found: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -max(ndim, 1) <= d < max(ndim, 1):
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, "
                f"{max(ndim, 1) - 1}], but got {d})"
            )
        if d % max(ndim, 1) in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        found.append(d % max(ndim, 1))
    return tuple(sorted(found)) if ndim else (0,)


def _total_dtype(input: Any, dtype: Any) -> Any:
    """Return the dtype of a total: small integers are added up as int64."""
    if dtype is not None:
        return dtype
    exact = not (input.is_floating_point() or input.is_complex())
    return tangrad.int64 if exact and input.dtype.itemsize < 8 else input.dtype


# Reductions --------------------------------------------------------------------------------------


def sum(
    input: Any,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Add the elements that the mask shows; 0 where it shows none.

    Args:
        input: of any shape and dtype.
        dim: the dimensions to reduce; all by default.
        keepdim: keep them, with size one.
        dtype: of the result; integers of less than 64 bits become int64 by default.
        mask: bool, True where an element counts; broadcast to the input.

    Returns:
        The reduced tensor.
    """
    axes, wanted = _dims(dim, input.ndim), _total_dtype(input, dtype)
    return tangrad.sum(_filled(input, mask, 0), axes, bool(keepdim), dtype=wanted)


def prod(
    input: Any,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Multiply the elements that the mask shows; 1 where it shows none. See `sum`."""
    result = _filled(input, mask, 1).to(_total_dtype(input, dtype))
    # As PyTorch: no dimensions are none of them here, where other reductions take all.
    none = isinstance(dim, (tuple, list)) and not dim
    for d in () if none else reversed(_dims(dim, input.ndim)):
        result = result.prod(d, bool(keepdim))
    return result


def amax(
    input: Any,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Take the greatest element that the mask shows; the least number where it shows none."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[0])
    return tangrad.amax(shown, _dims(dim, input.ndim), bool(keepdim)).to(dtype or input.dtype)


def amin(
    input: Any,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Take the least element that the mask shows; the greatest number where it shows none."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[1])
    return tangrad.amin(shown, _dims(dim, input.ndim), bool(keepdim)).to(dtype or input.dtype)


def argmax(
    input: Any,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Give the place of the greatest element that the mask shows, in the input's dtype."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[0])
    return tangrad.argmax(shown, dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(
    input: Any,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Give the place of the least element that the mask shows, in the input's dtype."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[1])
    return tangrad.argmin(shown, dim, bool(keepdim)).to(dtype or input.dtype)


def _count(input: Any, dim: Dims, keepdim: bool, mask: Any) -> Any:
    """Count the elements that the mask shows."""
    ones = tangrad.ones(input.shape, dtype=tangrad.int64, device=input.device)
    return sum(ones, dim, keepdim=keepdim, mask=mask)


def mean(
    input: Any,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Average the elements that the mask shows; NaN where it shows none. See `sum`.

    Raises:
        ValueError: the dtype is neither floating nor complex.
    """
    wanted = dtype or input.dtype
    if not (wanted.is_floating_point or wanted.is_complex):
        raise ValueError(
            "mean(): Could not infer output dtype. The dtype must be either a floating point or "
            f"complex dtype. Got: {wanted}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=wanted, mask=mask)
    return total / _count(input, dim, bool(keepdim), mask)


def median(
    input: Any,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Take the median, the lower of two, of the elements that the mask shows.

    Raises:
        ValueError: the mask hides a whole row of integers, which have no NaN.
    """
    axis = _dims(dim, input.ndim)[0]
    floats = input if input.is_floating_point() else input.to(tangrad.float32)
    found = tangrad.nanmedian(_filled(floats, mask, tangrad.nan), axis, keepdim).values
    if input.is_floating_point():
        return found
    if found.isnan().any():
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point, got "
            f"{input.dtype}"
        )
    return found.to(dtype or input.dtype)


def logsumexp(
    input: Any,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Compute log(sum(exp(x))) of the elements that the mask shows; -inf where it shows none."""
    neutral = -tangrad.inf if input.is_complex() or mask is None else _limits(input)[0]
    shown = _filled(input, mask, neutral)
    return tangrad.logsumexp(shown, _dims(dim, input.ndim), keepdim).to(dtype or input.dtype)


def norm(
    input: Any,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Compute the vector norm of order `ord` of the elements that the mask shows. See `sum`."""
    shown = _filled(input, mask, tangrad.inf if ord == -tangrad.inf else 0)
    axes = _dims(dim, input.ndim)
    return tangrad.linalg.vector_norm(shown, ord, axes, bool(keepdim), dtype=dtype or input.dtype)


def var(
    input: Any,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Compute the variance of the elements that the mask shows.

    Args:
        input: of any shape and dtype.
        dim: the dimensions to reduce; all by default.
        unbiased: divide by one less than the count (default), or by the count.
        correction: what to subtract from the count instead.
        keepdim: keep the dimensions, with size one.
        dtype: of the result; float32 for integers by default.
        mask: bool, True where an element counts; broadcast to the input.

    Returns:
        The reduced tensor.

    Raises:
        ValueError: both `unbiased` and `correction` are given.
    """
    if unbiased is not None and correction is not None:
        raise ValueError("masked var: only one of unbiased and correction may be given")
    if correction is None:
        correction = 0.0 if unbiased is False else 1.0
    if dtype is None:
        inexact = input.is_floating_point() or input.is_complex()
        dtype = input.dtype if inexact else tangrad.float32
    inexact = dtype.is_floating_point or dtype.is_complex
    computed = dtype if inexact else tangrad.float32
    center = sum(input, dim, keepdim=True, dtype=dtype, mask=mask)
    deviation = input - center / _count(input, dim, True, mask)
    squares = deviation * deviation.conj()
    total = sum(squares, dim, keepdim=keepdim, dtype=computed, mask=mask)
    count = _count(input, dim, bool(keepdim), mask)
    if correction:
        count = count.to(computed.to_real()) - correction
        count = count.clamp(min=0)
    return (total / count).to(dtype)


def std(
    input: Any,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Compute the standard deviation of the elements that the mask shows. See `var`."""
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()


# Results of the input's shape --------------------------------------------------------------------


def cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Add up the elements along a dimension, passing over what the mask hides."""
    wanted, axis = dtype or input.dtype, _dims(dim, input.ndim)[0]
    return tangrad.cumsum(_filled(input, mask, 0), axis, dtype=wanted)


def cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Multiply up the elements along a dimension, passing over what the mask hides."""
    wanted, axis = dtype or input.dtype, _dims(dim, input.ndim)[0]
    return tangrad.cumprod(_filled(input, mask, 1), axis, dtype=wanted)


def softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Scale exp(x) along a dimension to the sum one; what the mask hides becomes 0."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[0])
    return tangrad.softmax(shown, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Compute the logarithm of `softmax`; what the mask hides becomes -inf."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[0])
    return tangrad.log_softmax(shown, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)


def softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Scale exp(-x) along a dimension to the sum one; what the mask hides becomes 0."""
    shown = input if mask is None else _filled(input, mask, _limits(input)[1])
    return tangrad.softmax(-shown, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)


def normalize(
    input: Any,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Divide by the norm, or `eps` where that is greater, of what the mask shows; see `norm`."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    return _filled(input, mask, 0) / tangrad.maximum(length, length.new_full((), eps))


def logaddexp(
    input: Any,
    other: Any,
    *,
    dtype: Any = None,
    input_mask: Any = None,
    other_mask: Any = None,
) -> Any:
    """Compute log(exp(x) + exp(y)) of two tensors with a mask each, hidden elements being -inf."""
    pairs = ((input, input_mask), (other, other_mask))
    x, y = (t if mask is None else _filled(t, mask, _limits(t)[0]) for t, mask in pairs)
    return tangrad.logaddexp(x, y).to(dtype or input.dtype)
