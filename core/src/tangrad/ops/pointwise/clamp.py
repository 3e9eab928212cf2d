"""Maxima, minima, bounds, and the choice between two tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from tangrad import _C
from tangrad.ops.definition.define import composite, overload, pointwise
from tangrad.ops.definition.signature import Tensor

REAL = "bool integral floating"

# Maxima, minima and bounds. Of two zeros the expressions `maximum` and `minimum` give the first. A
# bound leaves a zero its sign, hence; the ops of these names give the second, as in PyTorch.


maximum = pointwise(
    "maximum(Tensor self, Tensor other) -> Tensor",
    "maximum(other, self)",
    dtypes=REAL,
    samples=lambda s: [*s.binary(number=False), s(s.specials(), s.tensor())],
    errors=lambda s: [
        (s(s.tensor(2, dtype="complex64"), s.tensor(2)), RuntimeError, "not implemented")
    ],
    doc="Compute the larger of two elements; NaN if either is. Equal ones share the gradient.",
)

minimum = pointwise(
    "minimum(Tensor self, Tensor other) -> Tensor",
    "minimum(other, self)",
    dtypes=REAL,
    samples=lambda s: [*s.binary(number=False), s(s.specials(), s.tensor())],
    errors=lambda s: [
        (s(s.tensor(2, dtype="complex64"), s.tensor(2)), RuntimeError, "not implemented")
    ],
    doc="Compute the smaller of two elements; NaN if either is. Equal ones share the gradient.",
)

fmax = pointwise(
    "fmax(Tensor self, Tensor other) -> Tensor",
    "fmax(self, other)",
    dtypes=REAL,
    samples=lambda s: [*s.binary(number=False), s(s.specials(), s.tensor())],
    doc="Compute the larger of two elements; the other one where one is NaN.",
)

fmin = pointwise(
    "fmin(Tensor self, Tensor other) -> Tensor",
    "fmin(self, other)",
    dtypes=REAL,
    samples=lambda s: [*s.binary(number=False), s(s.specials(), s.tensor())],
    doc="Compute the smaller of two elements; the other one where one is NaN.",
)

clamp_min = pointwise(
    "clamp_min(Tensor self, Operand min) -> Tensor",
    "maximum(self, min)",
    dtypes=REAL,
    partials={"self": "where(self >= min, 1, 0)", "min": "where(self < min, 1, 0)"},
    inplace=True,
    samples=lambda s: [s(s.tensor(3, 4), 0), s(s.tensor(3, 4), s.tensor(4)), s(s.specials(), 0)],
    doc="Raise elements below `min` to it.",
)

clamp_max = pointwise(
    "clamp_max(Tensor self, Operand max) -> Tensor",
    "minimum(self, max)",
    dtypes=REAL,
    partials={"self": "where(self <= max, 1, 0)", "max": "where(self > max, 1, 0)"},
    inplace=True,
    samples=lambda s: [s(s.tensor(3, 4), 2), s(s.tensor(3, 4), s.tensor(4)), s(s.specials(), 0)],
    doc="Lower elements above `max` to it.",
)

clamp_both = pointwise(
    "clamp_both(Tensor self, Operand min, Operand max) -> Tensor",
    "minimum(maximum(self, min), max)",
    dtypes=REAL,
    partials={
        "self": "where((self >= min) & (self <= max), 1, 0)",
        "min": "where((self < min) & (min < max), 1, 0)",
        "max": "where((self > max) | (max < min), 1, 0)",
    },
    inplace=True,
    function=False,
    method=False,
    oracle="clamp",
    samples=lambda s: [
        s(s.tensor(3, 4), 1, 2),
        s(s.tensor(3, 4), s.tensor(4), s.tensor(3, 1)),
        s(s.tensor(4, strided=True), 2, 1),
        s(s.specials(), 0, 1),
    ],
    doc="Bound elements from below and above; `max` wins where `max < min`.",
)


clamp_low = pointwise(
    "clamp_low(Tensor self, Operand min, Scalar? max=None) -> Tensor",
    "maximum(self, min)",
    dtypes=REAL,
    partials={"self": "where(self >= min, 1, 0)", "min": "where(self < min, 1, 0)"},
    inplace=True,
    function=False,
    method=False,
    oracle="clamp",
    samples=lambda s: [s(s.tensor(3, 4), 1), s(s.tensor(3, 4), s.tensor(4)), s(s.specials(), 0)],
    doc="Bound elements from below.",
)

clamp_high = pointwise(
    "clamp_high(Tensor self, Scalar? min=None, Operand max) -> Tensor",
    "minimum(self, max)",
    dtypes=REAL,
    partials={"self": "where(self <= max, 1, 0)", "max": "where(self > max, 1, 0)"},
    inplace=True,
    function=False,
    method=False,
    oracle="clamp",
    samples=lambda s: [s(s.tensor(3, 4), max=1), s(s.tensor(4), None, s.tensor(4))],
    doc="Bound elements from above.",
)


@composite(
    function=False,
    method=False,
    inplace=True,
    out=True,
    oracle="clamp",
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "must not be None")],
)
def clamp_neither(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Refuse a clamp without bounds."""
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    raise TypeError(
        "clamp: min and max must be numbers or tensors, "
        f"got {type(min).__name__} and {type(max).__name__}"
    )


clamp = overload(
    "clamp",
    "clamp_both",
    "clamp_low",
    "clamp_high",
    "clamp_neither",
    alias=("clip",),
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), min=1, max=2),
        s(s.tensor(3), min=0),
        s(s.tensor(3), 1),
        s(s.tensor(3), max=1),
        s(s.tensor(3), None, 2),
        s(s.tensor(3), 1, None),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "must not be None"),
        (s(s.tensor(3), "a"), TypeError, "clamp"),
    ],
    doc="Bound elements by numbers or tensors: `min(max(self, min), max)`.",
)


# Choice


def _check_where(condition: Any) -> None:
    kind = condition.dtype.name
    if kind == "uint8":
        _C.keep_no_plan()
        warnings.warn(
            "where received a uint8 condition tensor, which is deprecated; use a bool one",
            UserWarning,
            stacklevel=4,
        )
    elif kind != "bool":
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype}"
        )


where_choice = pointwise(
    "where_choice(Tensor condition, Operand self, Operand other) -> Tensor",
    "where(condition, self, other)",
    strict_out_dtype=True,
    numbers=True,
    fixed={"condition": "bool"},
    check=_check_where,
    # Chosen, not multiplied: a gradient that is NaN stays where it is.
    vjp={"self": "where(condition, g, 0)", "other": "where(condition, 0, g)"},
    jvp={"self": "where(condition, self_t, 0)", "other": "where(condition, 0, other_t)"},
    function=False,
    method=False,
    oracle="where",
    samples=lambda s: [
        s(s.mask(3, 4), s.tensor(3, 4), s.tensor(3, 4)),
        s(s.mask(4), s.tensor(3, 1), s.tensor()),
        s(s.mask(3, 1), s.tensor(2, strided=True), 1),
        s(s.mask(0), s.tensor(0), s.tensor(1)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.tensor(2), s.tensor(2)), RuntimeError,
         "where expected condition to be a boolean tensor"),
    ],
    doc="Choose `self` where `condition`, `other` elsewhere.",
)  # fmt: skip


@composite(function=False, method=False, oracle="where", samples=lambda s: [s(s.mask(3, 4))])
def where_nonzero(condition: Tensor) -> Sequence[Tensor]:
    """Return the indices of the nonzero elements, a tensor per dimension."""
    return condition.nonzero(as_tuple=True)


where = overload(
    "where",
    "where_choice",
    "where_nonzero",
    method=False,
    samples=lambda s: [s(s.mask(3, 4), s.tensor(3, 4), s.tensor(4))],
    doc="Choose between two tensors; given the condition alone, return where it holds.",
)


@cache
def _largest(dtype: Any) -> float:
    """Return the greatest finite number of a floating or complex dtype."""
    from tangrad.tensor.finfo import finfo

    return float(finfo(dtype).max)


@composite(
    strict_out_dtype=True,
    out=True,
    inplace=True,
    samples=lambda s: [*s.unary(), s(s.specials(), nan=1.0, posinf=2.0, neginf=-2.0)],
)
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN by `nan` (default 0) and infinities by the greatest and least finite numbers."""
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        return self.clone()
    largest = _largest(self.dtype)
    return nan_to_number(
        self,
        0.0 if nan is None else nan,
        largest if posinf is None else posinf,
        -largest if neginf is None else neginf,
    )


def _replaced(part: str) -> str:
    return (
        f"where(isnan({part}), real(nan_value), where({part} == inf, real(posinf), "
        f"where({part} == -inf, real(neginf), {part})))"
    )


nan_to_number = pointwise(
    "nan_to_number(Tensor self, float nan_value, float posinf, float neginf) -> Tensor",
    f"re = real(self); im = imag(self); select_complex("
    f"self, complex({_replaced('re')}, {_replaced('im')}), {_replaced('re')})",
    dtypes="floating complex",
    inplace=True,
    function=False,
    method=False,
    oracle="nan_to_num",
    samples=lambda s: [s(s.specials(), 1.0, 2.0, -2.0)] if s.is_floating or s.is_complex else [],
    doc="Replace NaN and infinities by the given numbers, in both parts of complex ones.",
)
