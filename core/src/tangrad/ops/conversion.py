"""Copies that keep values: clone, changes of dtype and device, copy_, detach, conjugates."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.ops.definition.define import composite, op, view
from tangrad.ops.definition.signature import Tensor


def _like(self: Any) -> Any:
    return self.shape


clone = op(
    "clone(Tensor self, *, memory_format? memory_format=None) -> Tensor",
    native=lambda self, memory_format: _C.copy_with(self, None, None, memory_format),
    shape=_like,
    vjp={"self": lambda g: g},
    linear=("self",),
    batch=lambda size, dims, self, memory_format: (self.clone(), dims[0]),
    samples=lambda s: [
        s(s.tensor(2, 3)),
        s(s.tensor()),
        s(s.tensor(3, 2, strided=True)),
        s(s.tensor(0, 2)),
    ],
    doc="Copy a tensor; the copy is differentiable.",
)

_to_copy = op(
    "_to_copy(Tensor self, *, dtype? dtype=None, device? device=None, "
    "memory_format? memory_format=None) -> Tensor",
    c_implementation="to_copy",
    native=lambda self, dtype, device, memory_format: _C.copy_with(
        self, dtype, device, memory_format
    ),
    shape=_like,
    dtype=lambda self, dtype: self.dtype if dtype is None else dtype,
    vjp={"self": lambda g, self_meta: _convert_back(g, self_meta)},
    linear=("self",),
    batch=lambda size, dims, self, dtype, device, memory_format: (
        _to_copy(self, dtype=dtype, device=device),
        dims[0],
    ),
    node="to_copy",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3)),
        s(s.tensor(3, 2, strided=True), dtype=s.as_dtype("complex128")),
        s(s.tensor()),
        s(s.tensor(0, 2)),
    ],
    oracle=lambda torch, x, dtype=None, device=None: x.to(device, dtype, copy=True),
    doc="Copy a tensor to another dtype or device.",
)


def _convert_back(g: Any, meta: Any) -> Any:
    if g.dtype.is_complex and not meta.dtype.is_complex:
        g = g.real
    return g.to(device=meta.device, dtype=meta.dtype)


copy_ = op(
    "copy_(Tensor! self, Operand src, bool non_blocking=False) -> Tensor",
    loops=True,
    names={"other": "src"},
    native=_C.copy_checked,
    node="CopyBackwards",
    vjp={"self": lambda g: _zeros(g), "src": lambda g, src_meta: _source_gradient(g, src_meta)},
    jvp=lambda self, self_t, src_t: (
        src_t.to(self.dtype).expand(self.shape) if src_t is not None else self_t * 0
    ),
    batch=None,
    mixes_devices=True,
    function=False,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 3)),
        s(s.tensor(2, 3), s.tensor(3)),
        s(s.tensor(2), 3),
    ],
    doc="Overwrite a tensor with another's values, converted and broadcast, or with a number.",
)


def _zeros(g: Any) -> Any:
    return g * 0


def _source_gradient(g: Any, meta: Any) -> Any:
    return g.to(device=meta.device)


detach = view(
    "detach(Tensor self) -> Tensor",
    c_implementation="detach",
    geometry=lambda self: (self.shape, self.stride, self.offset),
    vjp="none: it cuts the history",
    batch=lambda size, dims, self: (self.detach(), dims[0]),
    samples=lambda s: [s(s.tensor(2, 3))],
    doc="Return a view without history; it shares storage and version.",
)


def _flagged(flip: int) -> Any:
    return lambda self: (self.shape, self.stride, self.offset, None, self.flags ^ flip)


_conj = view(
    "_conj(Tensor self) -> Tensor",
    geometry=_flagged(4),
    vjp={"self": lambda g: g.conj()},
    batch=lambda size, dims, self: (self.conj(), dims[0]),
    function=False,
    method=False,
    node="conj",
    samples=lambda s: [s(s.tensor(2, 3))],
    dtypes="complex",
    oracle="conj",
    doc="View a complex tensor as its conjugate, without a copy.",
)


def _check_neg_view(self: Any) -> None:
    if self.dtype is _C.dtype_by_name("bool"):
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        )


_neg_view = view(
    "_neg_view(Tensor self) -> Tensor",
    check=_check_neg_view,
    geometry=_flagged(8),
    vjp={"self": lambda g: g.neg()},
    batch=lambda size, dims, self: (_neg_view(self), dims[0]),
    function=False,
    node="neg_view",
    samples=lambda s: [] if s.is_bool else [s(s.tensor(2, 3))],
    oracle="neg",
    doc="View a tensor as its negation, without a copy.",
)


@composite(samples=lambda s: [s(s.tensor(2, 3))])
def conj(self: Tensor) -> Tensor:
    """Return a lazily conjugated view of a complex tensor; a real tensor is returned as it is."""
    return _conj(self) if self.dtype.is_complex else self


@composite(samples=lambda s: [s(s.tensor(2, 3))])
def resolve_conj(self: Tensor) -> Tensor:
    """Return the tensor with a lazy conjugation carried out."""
    return clone(self) if self.is_conj() else self


@composite(samples=lambda s: [s(s.tensor(2, 3))])
def resolve_neg(self: Tensor) -> Tensor:
    """Return the tensor with a lazy negation carried out."""
    return clone(self) if self.is_neg() else self
