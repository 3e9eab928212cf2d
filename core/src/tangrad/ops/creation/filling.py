"""Define the ops that fill tensors by one value, wholly or where a mask says so."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import at_all_sizes, composite, op, pointwise
from tangrad.ops.definition.signature import Operand, Tensor, WrittenTensor
from tangrad.tensor.overlapping import fill_masked
from tangrad.tensor.ranges import require_fit


def _check_fill(self: Any, value: Any) -> None:
    shape = getattr(value, "shape", ())
    # PyTorch lets a single half overflow, which assignment to elements relies on.
    single = not self.ndim and self.dtype.is_floating_point and self.dtype.itemsize == 2
    if not single or (isinstance(value, complex) and value.imag):
        require_fit(value, self.dtype, "fill_")
    if len(shape):
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{len(shape)} dimensions"
        )


def _filled(np: Any, self: Any, value: Any) -> Any:
    is_real = isinstance(value, complex) and self.dtype.kind != "c"
    # By way of an array: a negative number is one of an unsigned dtype modulo its range.
    return np.full_like(self, np.asarray(value.real if is_real else value).astype(self.dtype))


fill_ = op(
    "fill_(Tensor! self, Operand value) -> Tensor",
    check=_check_fill,
    reference=_filled,
    vjp={"self": lambda g: g.new_zeros(g.shape), "value": lambda g: g.sum()},
    jvp=lambda self, value_t: (
        tangrad.zeros_like(self) if value_t is None else value_t.expand(self.shape)
    ),
    batch="pointwise",
    samples=lambda s: [s(s.tensor(2, 3), 2), s(s.tensor(3, 2, strided=True), 0), s(s.tensor(), 1)],
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2)), RuntimeError, "0-dimension value tensor"),
        (s(s.tensor(2), 1j), RuntimeError, "without overflow"),
        (s(s.integers(0, 3, 2), 2.0**70), RuntimeError, "without overflow"),
        (s(s.integers(0, 3, 2), math.nan), RuntimeError, "without overflow"),
        (s(s.tensor(2, dtype="float32"), 1e300), RuntimeError, "without overflow"),
        (s(s.tensor(2, dtype="float16"), 70000), RuntimeError, "without overflow"),
        (s(s.tensor(dtype="float16"), 1j), RuntimeError, "without overflow"),
    ],
    doc="Overwrite every element by one value.",
)


@composite(
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 2), s(s.tensor(3, 2, strided=True), 0), s(s.tensor(), 1)],
    errors=lambda s: [(s(s.tensor(2), s.tensor(2)), RuntimeError, "0-dimension value tensor")],
)
def fill(self: Tensor, value: Operand) -> Tensor:
    """Make a tensor like another, all of one value; where that is a tensor it has a gradient."""
    # The elements need not be read unless someone is to see that the result is made from them.
    seen = self.requires_grad or _C.get_intercept() is not None
    return (self.clone() if seen else tangrad.empty_like(self)).fill_(value)


@composite(c_implementation="zero", samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor())])
def zero_(self: WrittenTensor) -> Tensor:
    """Overwrite every element by zero."""
    return self.fill_(0)


_masked_fill = pointwise(
    "_masked_fill(Tensor self, Tensor mask, Operand value) -> Tensor",
    "where(mask, value, self)",
    fixed={"mask": "bool"},
    node="masked_fill",
    # As of `where`.
    vjp={"self": "where(mask, 0, g)", "value": "where(mask, g, 0)"},
    jvp={"self": "where(mask, 0, self_t)", "value": "where(mask, value_t, 0)"},
    inplace=True,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), s.mask(2, 3), s.tensor())],
    oracle="masked_fill",
    doc="Replace the elements where `mask` is true; the dtypes are promoted.",
)
_masked_fill.title = "masked_fill"  # in messages, for programs call this by no name
_masked_fill.inplace.title = "masked_fill_"


@at_all_sizes
def _element(value: Any, dtype: Any) -> Any:
    """Convert a number to the kind of a dtype: truncated towards zero, never out of range."""
    require_fit(value, dtype, "masked_fill")
    if dtype == tangrad.bool:
        return bool(value)
    if dtype.is_complex:
        return value
    if isinstance(value, complex):
        value = value.real
    if dtype.is_floating_point:
        return value
    limits = tangrad.iinfo(dtype)
    return int(value) % (limits.max + 1) if limits.min == 0 else int(value)


def _filling(self: Any, value: Any, mask: Any) -> Any:
    """Check and convert what masked_fill writes."""
    if mask.dtype.name != "bool":
        raise RuntimeError(
            f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}"
        )
    is_tensor = isinstance(value, _C.Tensor)  # numbers of NumPy have a dtype, too
    if is_tensor and value.ndim:
        raise RuntimeError(
            "masked_fill only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)"
        )
    if not is_tensor:
        return _element(value, self.dtype)
    if value.dtype.is_complex and not self.dtype.is_complex:
        raise RuntimeError(
            f"a value of dtype {value.dtype} cannot be converted to type {self.dtype} without "
            "overflow (masked_fill)"
        )
    return value.to(self.dtype)


@composite(
    c_implementation="masked_fill",
    inplace=True,
    writes=lambda self, mask, value: _masked_fill.inplace(self, mask, _filling(self, value, mask)),
    overlapping=lambda self, mask, value: fill_masked(self, mask, _filling(self, value, mask)),
    samples=lambda s: [
        s(s.tensor(2, 3), s.mask(2, 3), 1),
        s(s.tensor(2, 3), s.mask(3), 0),
        s(s.tensor(3), s.mask(2, 1), s.tensor()),
        s(s.tensor(3, 2, strided=True), s.mask(3, 2), 1),
        s(s.tensor(2, 3), s.mask(2, 3), 2.5),
        s(s.tensor(2), s.mask(2), -1),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.mask(3), 1), RuntimeError, "must match|broadcast"),
        (s(s.tensor(2), s.tensor(2, dtype="float32"), 1), RuntimeError, "boolean masks"),
        (s(s.integers(0, 3, 2), s.mask(2), math.inf), RuntimeError, "without overflow|cannot be"),
        (s(s.integers(0, 3, 2), s.mask(2), 1j), RuntimeError, "without overflow|cannot be"),
        (s(s.tensor(2), s.mask(2), s.tensor(2)), RuntimeError, "0-dimensional value tensor"),
    ],
)
def masked_fill(self: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Replace the elements where `mask` is true by a value, which is cast to the dtype.

    Args:
        mask: bool, broadcast together with `self`.
        value: a number or a zero-dimensional tensor.
    """
    # The result is contiguous, as PyTorch's, which programs view.
    return _masked_fill(self.contiguous(), mask, _filling(self, value, mask))
