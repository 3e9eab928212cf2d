"""Functions that make, conjugate and measure complex numbers.

The views (`real`, `imag`, `view_as_real`, `view_as_complex`, the lazy `conj`) are in `movement`.
"""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import composite, pointwise
from tangrad.ops.definition.signature import Tensor

conjugated = pointwise(
    "_conj_physical(Tensor self) -> Tensor",
    "conj(self)",
    strict_out_dtype=True,
    vjp={"self": "conj(g)"},
    jvp={"self": "conj(self_t)"},
    samples=lambda s: s.unary(),
    oracle="conj_physical",
    function=False,
    method=False,
    doc="Conjugate every element, in new memory; real numbers stay as they are.",
)


@composite(out=True, strict_out_dtype=True, inplace=True, samples=lambda s: s.unary())
def conj_physical(self: Tensor) -> Tensor:
    """Conjugate every element, in new memory; a real tensor is returned as it is."""
    return conjugated(self) if self.dtype.is_complex else self


angle = pointwise(
    "angle(Tensor self) -> Tensor",
    "angle(self)",
    promote="float",
    results=("real",),
    samples=lambda s: s.unary(),
    doc="Compute the angle in the complex plane: for real numbers 0, or pi for negative ones.",
)


# PyTorch makes complex32 of halves, or refuses.
_FULL = ("float32", "float64")


def _kind(x: Any) -> str:
    """Return the name that PyTorch's messages have for a tensor's dtype, such as Float."""
    kind: str = x.type().rpartition(".")[2]
    return kind.removesuffix("Tensor")


def _check_parts(name: str, first: Any, second: Any) -> None:
    if not (first.dtype.is_floating_point and second.dtype.is_floating_point):
        raise RuntimeError(
            f"{name}: Expected both inputs to be Half, Float or Double tensors but got "
            f"{_kind(first)} and {_kind(second)}; convert with .to(dtype)"
        )
    if first.dtype != second.dtype:
        raise RuntimeError(
            f"{name}: Expected object of scalar type {_kind(first)} but got scalar type "
            f"{_kind(second)} for second argument; convert one with .to(dtype)"
        )


complex = pointwise(
    "complex(Tensor real_part, Tensor imag_part) -> Tensor",
    "complex(real_part, imag_part)",
    strict_out_dtype=True,
    check=lambda real_part, imag_part: _check_parts("complex", real_part, imag_part),
    names={"real": "real_part", "imag": "imag_part"},
    dtypes="floating",
    results=("complex",),
    vjp={"real_part": "real(g)", "imag_part": "imag(g)"},
    jvp={"real_part": "complex(real_part_t, 0)", "imag_part": "complex(0, imag_part_t)"},
    method=False,
    samples=lambda s: s.binary(number=False) if s.dtype in _FULL else [],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64")), RuntimeError, "both inputs"),
        (
            s(s.tensor(2, dtype="float32"), s.tensor(2, dtype="float64")),
            RuntimeError,
            "second argument",
        ),
    ],
    doc="Make complex numbers of their real and imaginary parts; halves give complex64.",
)

polar = pointwise(
    "polar(Tensor absolute, Tensor phase) -> Tensor",
    "complex(absolute * cos(phase), absolute * sin(phase))",
    strict_out_dtype=True,
    check=lambda absolute, phase: _check_parts("polar", absolute, phase),
    names={"abs": "absolute", "angle": "phase"},
    dtypes="floating",
    results=("complex",),
    # real() of the real inputs: beside a complex gradient they are complex, too.
    vjp={
        "absolute": "p = real(phase); real(g) * cos(p) + imag(g) * sin(p)",
        "phase": "p = real(phase); real(absolute) * (imag(g) * cos(p) - real(g) * sin(p))",
    },
    jvp={
        "absolute": "absolute_t * complex(cos(phase), sin(phase))",
        "phase": "phase_t * absolute * complex(-sin(phase), cos(phase))",
    },
    method=False,
    samples=lambda s: s.binary(0.25, 3, number=False) if s.dtype in _FULL else [],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64")), RuntimeError, "both inputs")
    ],
    doc="Make complex numbers of their absolute values and angles; halves give complex64.",
)
