"""Define what is done to lists of tensors at once: zeros, sums, products and norms.

Each op that writes lists is defined by its tensor code, one tensor after the other; a device may
have a kernel that takes all of them in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import DType, Scalar, Tensor
from tangrad.tensor.ranges import require_fit


def _tensors(s: Any, lists: int, count: int, *shape: int, **how: Any) -> list[Any]:
    return [[s.tensor(*shape, **how) for _ in range(count)] for _ in range(lists)]


def _zero_each(self: Any) -> None:
    for tensor in self:
        tensor.zero_()


_foreach_zero_ = op(
    "_foreach_zero_(Tensor[]! self) -> Tensor[]",
    decompose=_zero_each,
    vjp="none: its arguments are overwritten",
    method=False,
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor()]),
        s([s.tensor(0), s.tensor(4, strided=True)]),
    ],
    doc="Fill each tensor with zeros.",
)


def _mul_by_number(self: Any, scalar: Any) -> None:
    for tensor in self:
        tensor.mul_(scalar)


_foreach_mul_scalar_ = op(
    "_foreach_mul_scalar_(Tensor[]! self, Scalar scalar) -> Tensor[]",
    dtypes="floating complex",
    decompose=_mul_by_number,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_mul_",
    samples=lambda s: [s([s.tensor(2, 3), s.tensor()], 0.3), s([s.tensor(4, strided=True)], 2)],
    doc="Multiply each tensor by a number.",
)


def _mul_by_tensor(self: Any, other: Any) -> None:
    for tensor in self:
        tensor.mul_(other)


def _check_single(name: str, other: Any) -> None:
    if other.numel() != 1 or other.ndim != 0:
        raise RuntimeError(
            f"{name}: a tensor that all are combined with has no dimensions, but got shape "
            f"{tuple(other.shape)}; give a list of tensors for one each"
        )


_foreach_mul_tensor_ = op(
    "_foreach_mul_tensor_(Tensor[]! self, Tensor other) -> Tensor[]",
    dtypes="floating complex",
    check=lambda other: _check_single("_foreach_mul_", other),
    decompose=_mul_by_tensor,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_mul_",
    samples=lambda s: [s([s.tensor(2, 3), s.tensor(4, strided=True)], s.tensor())],
    errors=lambda s: [(s([s.tensor(2)], s.tensor(2)), RuntimeError, "no dimensions|0 dim")],
    doc="Multiply each tensor by a tensor without dimensions.",
)


def _mul_by_each(self: Any, other: Any) -> None:
    for tensor, factor in zip(self, other, strict=True):
        tensor.mul_(factor)


def _check_as_many(name: str, self: Any, other: Any) -> None:
    if not isinstance(other, (list, tuple)):
        raise TypeError(f"{name}: expected a number, a tensor, or a list of either, not {other!r}")
    if self and not (other and isinstance(other[0], tangrad.Tensor)) and len(self) != len(other):
        raise RuntimeError(
            f"{name}: Tensor list must have same number of elements as scalar list, got "
            f"{len(self)} and {len(other)}"
        )
    if len(self) != len(other):
        raise RuntimeError(
            f"{name}: Tensor lists must have the same number of tensors, got {len(self)} and "
            f"{len(other)}"
        )
    if not self:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")


_foreach_mul_list_ = op(
    "_foreach_mul_list_(Tensor[]! self, Tensor[] other) -> Tensor[]",
    dtypes="floating complex",
    check=lambda self, other: _check_as_many("_foreach_mul_", self, other),
    decompose=_mul_by_each,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_mul_",
    samples=lambda s: [s(*_tensors(s, 2, 2, 2, 3)), s([s.tensor(2, 3)], [s.tensor(3)])],
    errors=lambda s: [(s([s.tensor(2)], _tensors(s, 1, 2, 2)[0]), RuntimeError, "same number")],
    doc="Multiply each tensor by its own tensor.",
)

_foreach_mul_numbers_ = op(
    "_foreach_mul_numbers_(Tensor[]! self, any scalars) -> Tensor[]",
    dtypes="floating complex",
    check=lambda self, scalars: _check_as_many("_foreach_mul_", self, scalars),
    decompose=lambda self, scalars: _mul_by_each(self, scalars),
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_mul_",
    samples=lambda s: [s(_tensors(s, 1, 2, 2, 3)[0], [0.5, 2.0])],
    doc="Multiply each tensor by its own number.",
)

_foreach_mul_ = overload(
    "_foreach_mul_",
    "_foreach_mul_tensor_",
    "_foreach_mul_scalar_",
    "_foreach_mul_list_",
    "_foreach_mul_numbers_",
    method=False,
)


def _add_number(self: Any, scalar: Any) -> None:
    for tensor in self:
        tensor.add_(scalar)


_foreach_add_scalar_ = op(
    "_foreach_add_scalar_(Tensor[]! self, Scalar scalar) -> Tensor[]",
    dtypes="floating complex",
    decompose=_add_number,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_add_",
    samples=lambda s: [s([s.tensor(2, 3), s.tensor()], 0.3), s([s.tensor(4, strided=True)], 2)],
    doc="Add a number to each tensor.",
)


def _add_tensor(self: Any, other: Any, alpha: Any) -> None:
    for tensor in self:
        tensor.add_(other, alpha=alpha)


def _check_add_tensor(self: Any, other: Any, alpha: Any) -> None:
    _check_single("_foreach_add_", other)
    for tensor in self:
        require_fit(alpha, tensor.dtype, "_foreach_add_")


_foreach_add_tensor_ = op(
    "_foreach_add_tensor_(Tensor[]! self, Tensor other, *, Scalar alpha=1) -> Tensor[]",
    dtypes="floating complex",
    check=_check_add_tensor,
    decompose=_add_tensor,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_add_",
    samples=lambda s: [s([s.tensor(2, 3), s.tensor(4, strided=True)], s.tensor(), alpha=2)],
    errors=lambda s: [(s([s.tensor(2)], s.tensor(2)), RuntimeError, "no dimensions|0 dim")],
    doc="Add alpha times a tensor without dimensions to each tensor.",
)


def _add_each(self: Any, other: Any, alpha: Any) -> None:
    for tensor, term in zip(self, other, strict=True):
        tensor.add_(term, alpha=alpha)


def _check_add_list(self: Any, other: Any, alpha: Any) -> None:
    _check_as_many("_foreach_add_", self, other)
    for tensor in self:
        require_fit(alpha, tensor.dtype, "_foreach_add_")


_foreach_add_list_ = op(
    "_foreach_add_list_(Tensor[]! self, Tensor[] other, *, Scalar alpha=1) -> Tensor[]",
    dtypes="floating complex",
    check=_check_add_list,
    decompose=_add_each,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_add_",
    samples=lambda s: [
        s(*_tensors(s, 2, 2, 2, 3)),
        s(*_tensors(s, 2, 2, 2, 3), alpha=-0.5),
        s([s.tensor(2, 3)], [s.tensor(3)]),
    ],
    errors=lambda s: [(s([s.tensor(2)], _tensors(s, 1, 2, 2)[0]), RuntimeError, "same number")],
    doc="Add alpha times its own tensor to each tensor.",
)


def _add_numbers(self: Any, scalars: Any) -> None:
    for tensor, term in zip(self, scalars, strict=True):
        tensor.add_(term)


_foreach_add_numbers_ = op(
    "_foreach_add_numbers_(Tensor[]! self, any scalars) -> Tensor[]",
    dtypes="floating complex",
    check=lambda self, scalars: _check_as_many("_foreach_add_", self, scalars),
    decompose=_add_numbers,
    vjp="none: its arguments are overwritten",
    function=False,
    method=False,
    oracle="_foreach_add_",
    samples=lambda s: [s(_tensors(s, 1, 2, 2, 3)[0], [0.5, 2.0])],
    doc="Add its own number to each tensor.",
)

_foreach_add_ = overload(
    "_foreach_add_",
    "_foreach_add_tensor_",
    "_foreach_add_scalar_",
    "_foreach_add_list_",
    "_foreach_add_numbers_",
    method=False,
)


# Norms -----------------------------------------------------------------------------------------


def _check_norms(self: Any) -> None:
    if not self:
        raise RuntimeError("_norms: expected at least one tensor, but the list is empty")
    for tensor in self:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            raise RuntimeError(
                "_foreach_norm: expected floating point or complex tensors, but got "
                f"{tensor.dtype}; convert it with .to(dtype)"
            )


def _norms_dtype(self: Any) -> Any:
    found = self[0].dtype
    for tensor in self[1:]:
        if tensor.dtype is not found:
            found = tangrad.promote_types(found, tensor.dtype)
    return found.to_real()


_norms = op(
    "_norms(Tensor[] self, Scalar ord=2) -> Tensor",
    dtypes="floating complex",
    check=_check_norms,
    shape=lambda self: (len(self),),
    dtype=_norms_dtype,
    decompose=lambda self, ord: tangrad.stack([tensor.norm(ord) for tensor in self]),
    vjp="none: `_foreach_norm` records the norm of each tensor",
    function=False,
    method=False,
    oracle=lambda torch, self, ord=2: torch.stack([x.detach().norm(ord) for x in self]),
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor(), s.tensor(0)]),
        s([s.tensor(2, 3), s.tensor(4, strided=True)], 1),
        s([s.tensor(2, 3)], float("inf")),
    ],
    doc="Compute the vector norm of each tensor.",
)


_total_norm = op(
    "_total_norm(Tensor[] self, Scalar ord=2) -> Tensor",
    dtypes="floating complex",
    check=_check_norms,
    shape=lambda self: (),
    dtype=_norms_dtype,
    decompose=lambda self, ord: _norms(self, ord).norm(ord),
    vjp="none: `tangrad.nn.utils.get_total_norm` is not recorded",
    method=False,
    oracle=lambda torch, self, ord=2: torch.nn.utils.get_total_norm(
        [x.detach() for x in self], ord
    ),
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor(), s.tensor(0)]),
        s([s.tensor(2, 3), s.tensor(4, strided=True)], 1),
        s([s.tensor(2, 3)], float("inf")),
    ],
    doc="Compute the vector norm of all tensors taken as one vector.",
)


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor()]),
        s([s.tensor(2, 3), s.tensor(4, strided=True)], 1),
        s([s.tensor(2, 3)], float("inf")),
    ],
)
def _foreach_norm(self: Sequence[Tensor], ord: Scalar = 2, dtype: DType | None = None) -> Any:
    """Compute the vector norm of each tensor; return a tuple of tensors without dimensions."""
    if dtype is not None:
        self = [tensor.to(dtype) for tensor in self]
    derived = tangrad.is_grad_enabled() or _C.get_intercept() is not None
    if derived or len({tensor.dtype for tensor in self}) != 1:
        return tuple(tensor.norm(ord) for tensor in self)
    return tuple(_norms(self, ord).unbind())
