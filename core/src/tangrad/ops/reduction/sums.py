"""Reductions: sums, products and truth over dimensions.

A reduction is a map of each element to a state, an associative and commutative way to combine two
states (work is cut into pieces of a fixed size, so the order of combination is not the order of
elements), and a function of the final state. `index` is the position within the reduced dimensions.
"""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.ops.definition.define import reduction

REAL = "bool integral floating"


# What the derivatives share


def spread(g: Any, like: Any, dim: Any, keepdim: bool) -> Any:
    """Give a reduced tensor its dimensions back and expand it to the shape before reduction.

    Args:
        g: the reduced tensor.
        like: anything with the `shape` before the reduction.
        dim: the reduced dimensions, not negative; None or () for all.
        keepdim: whether the reduction kept them with size 1.
    """
    if dim is None or dim == ():  # a scalar expands as it is, and so does one of dimensions kept
        return g.expand(like.shape)
    return restore(g, like, dim, keepdim).expand(like.shape)


def restore(g: Any, like: Any, dim: Any, keepdim: bool) -> Any:
    """Give a reduced tensor its dimensions back, with size 1."""
    ndim = len(like.shape)
    if keepdim:
        return g
    for position in sorted(reduced_dims(dim, ndim)):
        g = g.unsqueeze(position)
    return g


def reduced_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    if ndim == 0:
        return ()
    if isinstance(dim, int):
        return (dim,)
    return tuple(dim) if dim else tuple(range(ndim))


def count(like: Any, dim: Any) -> Any:
    """Return the number of elements that a reduction combines."""
    total = 1
    for position in reduced_dims(dim, len(like.shape)):
        total = total * like.shape[position]
    return total


def _samples(s: Any, **kwargs: Any) -> list[Any]:
    """Make the usual samples of a reduction over any number of dimensions."""
    return [
        s(s.tensor(3, 4), **kwargs),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1), **kwargs),
        s(s.tensor(3, 4), dim=1, keepdim=True, **kwargs),
        s(s.tensor(), dim=0, **kwargs),
        s(s.tensor(2, 0, 3), dim=0, **kwargs),
    ]


def dim_errors(s: Any, **kwargs: Any) -> list[Any]:
    return [
        (s(s.tensor(3, 4), dim=2, **kwargs), IndexError, "Dimension out of range"),
        (s(s.tensor(3, 4), dim=(0, 0), **kwargs), RuntimeError, "dim 0 appears multiple times"),
    ]


# Sums

sum = reduction(
    "sum(Tensor self, dim[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    map="self",
    fold="sum",
    finalize="a",
    promote="sum",
    vjp={"self": lambda g, self_meta, dim, keepdim: spread(g, self_meta, dim, keepdim)},
    linear=("self",),
    samples=lambda s: [
        *_samples(s),
        s(s.tensor(2, 0, 3), dim=1),
        s(s.tensor(3, 4), dtype=s.as_dtype("complex128" if s.is_complex else "float64")),
    ],
    errors=dim_errors,
    doc="Sum the elements over dimensions; bools and integers sum as int64.",
)


def _check_nansum(self: Any, dtype: Any) -> None:
    if self.dtype.is_complex:
        raise RuntimeError(f"nansum does not support complex inputs, got {self.dtype}")
    if dtype is not None and dtype.is_complex and self.dtype.is_floating_point:
        raise NotImplementedError(
            f'"nansum" not implemented for {dtype} of {self.dtype}; use sum, or convert the result'
        )


nansum = reduction(
    "nansum(Tensor self, dim[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    map="where(isnan(self), 0, self)",
    fold="sum",
    finalize="a",
    promote="sum",
    check=_check_nansum,
    vjp={"self": lambda g, self, dim, keepdim: spread(g, self, dim, keepdim) * ~self.isnan()},
    jvp=lambda self, self_t, dim, keepdim: (self_t * ~self.isnan()).sum(dim, keepdim),
    samples=lambda s: (
        [] if s.is_complex else [*_samples(s), s(s.specials(), dim=0), s(s.values([0, 1]))]
    ),
    errors=lambda s: [
        *dim_errors(s),
        (s(s.tensor(2, dtype="complex64")), RuntimeError, "complex"),
        (s(s.tensor(2), dtype=s.as_dtype("complex64")), NotImplementedError, "complex64"),
    ],
    doc="Sum the elements over dimensions, NaN counting as zero.",
)

count_nonzero = reduction(
    "count_nonzero(Tensor self, dim[]? dim=None) -> Tensor",
    map="cast(self != 0, 'int64')",
    fold="sum",
    finalize="a",
    results=("int64",),
    vjp="none: integer output",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1)),
        s(s.tensor()),
        s(s.tensor(2, 0, 3), dim=1),
    ],
    errors=dim_errors,
    doc="Count the elements that are not zero (NaN is not) over dimensions.",
)


def _check_mean(self: Any, dtype: Any) -> None:
    kind = self.dtype if dtype is None else dtype
    if not (kind.is_floating_point or kind.is_complex):
        which = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            "mean(): could not infer output dtype. "
            f"{which} dtype must be either a floating point or complex dtype. Got: {kind}"
        )


def mean_vjp(g: Any, self_meta: Any, dim: Any, keepdim: bool) -> Any:
    size = count(self_meta, dim)
    g = spread(g, self_meta, dim, keepdim)
    return g if size == 0 else g / size


mean = reduction(
    "mean(Tensor self, dim[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    map="self",
    fold="sum",
    finalize="a / n",
    dtypes="floating complex",
    check=_check_mean,
    vjp={"self": mean_vjp},
    linear=("self",),
    samples=_samples,
    errors=lambda s: [
        *dim_errors(s),
        (s(s.tensor(2, dtype="int64")), RuntimeError, "could not infer output dtype"),
    ],
    doc="Compute the mean over dimensions; NaN of no elements.",
)


# Products


def _exclusive_products(self: Any, dim: int) -> Any:
    """Multiply all elements along a dimension but the one at each position.

    By products from the left and from the right, so that zeros need no case and the result has
    derivatives of all orders everywhere.
    """
    ones = self.new_ones(()).expand([1 if k == dim else n for k, n in enumerate(self.shape)])
    length = self.shape[dim]
    left = ops.cat((ones, self.narrow(dim, 0, length - 1)), dim).cumprod(dim)
    right = ops.cat((self.narrow(dim, 1, length - 1), ones), dim).flip(dim).cumprod(dim).flip(dim)
    return left * right


def _other_factors(self: Any, dim: int | None) -> Any:
    if self.ndim == 0:
        return self.new_ones(())
    if self.numel() == 0:
        return self
    if dim is None:
        return _exclusive_products(self.reshape(-1), 0).reshape(self.shape)
    return _exclusive_products(self, dim)


def _prod_vjp(g: Any, self: Any, dim: int | None, keepdim: bool, dtype: Any) -> Any:
    factors = self if dtype is None else self.to(dtype)
    g = spread(g, self, None if dim is None else (dim,), keepdim)
    return (g * _other_factors(factors, dim).conj()).to(self.dtype)


def _prod_jvp(self: Any, self_t: Any, dim: int | None, keepdim: bool, dtype: Any) -> Any:
    terms = _other_factors(self, dim) * self_t
    total = terms.sum() if dim is None else terms.sum(dim, keepdim)
    return total if dtype is None else total.to(dtype)


prod = reduction(
    "prod(Tensor self, dim? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    map="self",
    fold="product",
    finalize="a",
    promote="sum",
    vjp={"self": _prod_vjp},
    jvp=_prod_jvp,
    samples=lambda s: [
        s(s.tensor(3, 4, low=-2, high=3)),
        s(s.tensor(2, 3, 4, low=-2, high=3, strided=True), dim=-2),
        s(s.tensor(3, 4), dim=1, keepdim=True),
        s(s.tensor()),
        s(s.tensor(2, 0, 3), dim=1),
        s(s.values([[0, 1, 3], [0, 2, 0], [1, 1, 2]]), dim=1),
    ],
    errors=lambda s: [(s(s.tensor(3, 4), dim=2), IndexError, "Dimension out of range")],
    doc="Multiply the elements, all or along a dimension; integers multiply as int64.",
)


# Truth

any = reduction(
    "any(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="self != 0",
    fold="any",
    finalize="a",
    results=("truth",),
    keeps_without_dims=True,
    strict_out_dtype=True,
    vjp="none: bool output",
    samples=lambda s: [*_samples(s), s(s.tensor(3, 4), dim=())],
    errors=dim_errors,
    doc="Tell whether any element is nonzero.",
)

all = reduction(
    "all(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="self != 0",
    fold="all",
    finalize="a",
    results=("truth",),
    keeps_without_dims=True,
    strict_out_dtype=True,
    vjp="none: bool output",
    samples=lambda s: [*_samples(s), s(s.tensor(3, 4), dim=())],
    errors=dim_errors,
    doc="Tell whether all elements are nonzero.",
)
