"""Complex numbers inside of a file: a tensor of them is two, of real and of imaginary parts.

Inputs and results of a file stay real: `view_as_complex` and `view_as_real` lead in and out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import tangrad
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.forms import FORMS
from tangrad_onnx.writing.graph import Size, Value, Writer
from tangrad_onnx.writing.pointwise import FORMS_OF_STEPS

__all__ = ["Pair", "is_complex", "real_dtype", "write_pairs"]


class Pair(NamedTuple):
    """A complex tensor of the graph.

    Attributes:
        re, im: its parts.
    """

    re: Value
    im: Value


def is_complex(value: Any) -> bool:
    """Return whether a value, or one in a list of them, is a pair."""
    if isinstance(value, Pair):
        return True
    if isinstance(value, (list, tuple)) and not isinstance(value, Value):
        return any(map(is_complex, value))
    return False


def real_dtype(dtype: Any) -> Any:
    """Return the dtype of the parts of complex numbers."""
    return tangrad.float64 if dtype is tangrad.complex128 else tangrad.float32


# Ops that do to a complex tensor what they do to its parts.
_BY_PARTS = frozenset(
    "_to_copy _unsafe_view alias as_strided cat clone concat concatenate constant_pad_nd "
    "contiguous detach diagonal expand flip gather index index_select mean permute reshape "
    "resolve_conj resolve_neg select slice split_size split_with_sizes squeeze sum swapaxes "
    "swapdims t transpose tril triu unbind unfold unsafe_split unsqueeze view_size".split()
)


class _Parts:
    """Arithmetic on names of parts of one dtype.

    Args:
        w: the graph.
        dtype: of the parts.
    """

    def __init__(self, w: Writer, dtype: Any) -> None:
        self.w, self.dtype = w, dtype
        self.operand = dtype.name
        self.floats = True

    def op(self, operator: str, *names: str) -> str:
        return str(self.w.op(operator, *names))

    def number(self, value: float) -> str:
        return self.w.constant(value, self.dtype)

    def parts(self, x: Any) -> tuple[str, str | None]:
        """Return names of the parts of an operand; None for an imaginary part of zero."""
        if isinstance(x, Pair):
            pair = (self.w.cast(part.name, part.dtype, self.dtype) for part in x)
            return tuple(pair)  # type: ignore[return-value]
        if isinstance(x, Value):
            return self.w.cast(x.name, x.dtype, self.dtype), None
        number = complex(x)
        return self.number(number.real), self.number(number.imag) if number.imag else None

    def both(self, x: Any) -> tuple[str, str]:
        re, im = self.parts(x)
        return re, self.op("Mul", re, self.number(0)) if im is None else im


Names = tuple[str, str]


def _sum(operator: str) -> Callable[..., Any]:
    def call(s: _Parts, a: Any) -> Names:
        (re, im), (re2, im2) = s.both(a.self), s.both(a.other)
        return s.op(operator, re, re2), s.op(operator, im, im2)

    return call


def _product(s: _Parts, a: Any) -> Names:
    (re, im), (re2, im2) = s.parts(a.self), s.parts(a.other)
    if im is None or im2 is None:
        one, whole = (re, (re2, im2)) if im is None else (re2, (re, im))
        return s.op("Mul", one, whole[0]), s.op("Mul", one, str(whole[1]))
    first = s.op("Sub", s.op("Mul", re, re2), s.op("Mul", im, im2))
    return first, s.op("Add", s.op("Mul", re, im2), s.op("Mul", im, re2))


def _square(s: _Parts, re: str, im: str) -> str:
    return s.op("Add", s.op("Mul", re, re), s.op("Mul", im, im))


def _quotient(s: _Parts, a: Any) -> Names:
    (re, im), (re2, im2) = s.both(a.self), s.parts(a.other)
    if im2 is None:
        return s.op("Div", re, re2), s.op("Div", im, re2)
    over = _square(s, re2, im2)
    first = s.op("Add", s.op("Mul", re, re2), s.op("Mul", im, im2))
    second = s.op("Sub", s.op("Mul", im, re2), s.op("Mul", re, im2))
    return s.op("Div", first, over), s.op("Div", second, over)


def _matrices(s: _Parts, a: Any) -> Names:
    one, other = list(vars(a).values())[:2]
    (re, im), (re2, im2) = s.both(one), s.both(other)
    first = s.op("Sub", s.op("MatMul", re, re2), s.op("MatMul", im, im2))
    return first, s.op("Add", s.op("MatMul", re, im2), s.op("MatMul", im, re2))


def _exponential(s: _Parts, a: Any) -> Names:
    re, im = s.both(a.self)
    size = s.op("Exp", re)
    return s.op("Mul", size, s.op("Cos", im)), s.op("Mul", size, s.op("Sin", im))


def _polar(s: _Parts, a: Any) -> Names:
    size, phase = s.parts(a.absolute)[0], s.parts(a.phase)[0]
    return s.op("Mul", size, s.op("Cos", phase)), s.op("Mul", size, s.op("Sin", phase))


def _conjugate(s: _Parts, a: Any) -> Names:
    re, im = s.both(a.self)
    return re, s.op("Neg", im)


def _negative(s: _Parts, a: Any) -> Names:
    re, im = s.both(a.self)
    return s.op("Neg", re), s.op("Neg", im)


def _of_pairs(s: _Parts, a: Any) -> Names:
    one, other = (s.w.constant(np.array(k, np.int64)) for k in (0, 1))
    name, _ = s.parts(a.self)
    return tuple(str(s.w.op("Gather", name, at, axis=-1)) for at in (one, other))  # type: ignore[return-value]


def _of_parts(s: _Parts, a: Any) -> Names:
    parts = s.parts(a.real_part)[0], s.parts(a.imag_part)[0]
    shape = s.w.shape(s.op("Add", *parts))
    return s.op("Expand", parts[0], shape), s.op("Expand", parts[1], shape)


def _as_pairs(s: _Parts, a: Any) -> str:
    wide = [s.w.unsqueeze(name, [-1]) for name in s.both(a.self)]
    return str(s.w.op("Concat", *wide, axis=-1))


def _size(s: _Parts, a: Any) -> str:
    return s.op("Sqrt", _square(s, *s.both(a.self)))


def _angle(s: _Parts, a: Any) -> str:
    re, im = s.both(a.self)
    return FORMS_OF_STEPS["atan2"](s, im, re)


# --- Fourier transforms ---------------------------------------------------------------------------


def _transformed(s: _Parts, parts: Names, axis: int, forward: bool) -> Names:
    """Return the transform along an axis, without a factor."""
    wide = [s.w.unsqueeze(name, [-1]) for name in parts]
    joined = str(s.w.op("Concat", *wide, axis=-1))
    given: dict[str, Any] = {"inverse": int(not forward)}
    if s.w.opset >= 20:
        found = s.w.op("DFT", joined, None, s.w.size(axis), **given)
    elif s.w.opset >= 17:
        found = s.w.op("DFT", joined, axis=axis, **given)
    else:
        raise UnsupportedOperatorError("Fourier transforms need opset_version=17 or newer")
    return _of_pairs(s, SimpleNamespace(self=_named(s, str(found))))


def _named(s: _Parts, name: str) -> Value:
    return Value(name, s.dtype, 0, ())


def _scaled(s: _Parts, parts: Names, factor: float | str) -> Names:
    if factor == 1:
        return parts
    number = factor if isinstance(factor, str) else s.number(factor)
    return s.op("Mul", parts[0], number), s.op("Mul", parts[1], number)


def _factor(s: _Parts, normalization: int, count: Any) -> float | str:
    if not isinstance(count, Size):
        return (1.0, 1 / math.sqrt(count), 1 / count)[normalization]
    if normalization == 0:
        return 1.0
    number = s.w.cast(count.name, tangrad.int64, s.dtype)
    return s.op("Reciprocal", s.op("Sqrt", number) if normalization == 1 else number)


def _along(s: _Parts, parts: Names, shape: Any, dims: Any, forward: bool) -> Names:
    for dim in dims:
        axis = dim % len(shape)
        parts = _transformed(s, parts, axis, forward)
        if not forward:  # the operator divides by the size
            size = shape[axis]
            varies = isinstance(size, Size)
            number = s.w.cast(size.name, tangrad.int64, s.dtype) if varies else float(size)
            parts = _scaled(s, parts, number)
    return parts


def _complex_transform(s: _Parts, a: Any) -> Names:
    shape = a.self.re.shape if isinstance(a.self, Pair) else a.self.shape
    parts = _along(s, s.both(a.self), shape, a.dim, a.forward)
    return _scaled(s, parts, _factor(s, a.normalization, math.prod(shape[d] for d in a.dim)))


def _real_transform(s: _Parts, a: Any) -> Names:
    shape = a.self.shape
    parts = _along(s, s.both(a.self), shape, reversed(a.dim), True)
    if a.onesided:
        last = a.dim[-1] % len(shape)
        half = shape[last] // 2 + 1
        parts = tuple(s.w.slice(name, last, 0, half) for name in parts)  # type: ignore[assignment]
    return _scaled(s, parts, _factor(s, a.normalization, math.prod(shape[d] for d in a.dim)))


def _to_real_transform(s: _Parts, a: Any) -> str:
    """Complete the half that is given, and take the real part of the transform back."""
    shape, size = list(a.self.re.shape), a.last_dim_size
    last = a.dim[-1] % len(shape)
    parts = _along(s, s.both(a.self), shape, a.dim[:-1], False)
    w, count = s.w, s.w.size(size)
    places = w.counted(size)
    mirrored = w.op("Sub", count, places)
    at = w.op("Min", places, mirrored)
    re, im = (str(w.op("Gather", name, at, axis=last)) for name in parts)
    # The imaginary part changes its sign behind the middle, and is none where it is its own mirror.
    sign = w.op("Sign", w.op("Sub", mirrored, places))
    sign = w.op("Mul", sign, w.op("Sign", places))
    sign = w.reshape(w.cast(sign, tangrad.int64, s.dtype), [-1] + [1] * (len(shape) - 1 - last))
    shape[last] = size
    found = _along(s, (re, s.op("Mul", im, sign)), shape, [last], False)
    total = math.prod(shape[d] for d in a.dim)
    return _scaled(s, found, _factor(s, a.normalization, total))[0]


_FORMS: dict[str, Callable[..., Any]] = {
    "_conj": _conjugate,
    "_conj_physical": _conjugate,
    "_fft_c2c": _complex_transform,
    "_fft_c2r": _to_real_transform,
    "_fft_r2c": _real_transform,
    "_neg_view": _negative,
    "abs": _size,
    "absolute": _size,
    "add_plain": _sum("Add"),
    "angle": _angle,
    "bmm": _matrices,
    "complex": _of_parts,
    "div_unrounded": _quotient,
    "exp": _exponential,
    "matmul": _matrices,
    "mm": _matrices,
    "mul": _product,
    "mv": _matrices,
    "neg": _negative,
    "polar": _polar,
    "sub_plain": _sum("Sub"),
    "view_as_complex": _of_pairs,
    "view_as_real": _as_pairs,
}


def write_pairs(w: Writer, op: Any, arguments: dict[str, Any], out: Any) -> Any:
    """Write a call on complex numbers; return a name, a tuple of two, or of names and of these.

    Raises:
        UnsupportedOperatorError: it has no form.
    """
    found = _FORMS.get(op.name)
    if found is not None:
        dtype = out.dtype if not out.dtype.is_complex else real_dtype(out.dtype)
        return found(_Parts(w, dtype), SimpleNamespace(**arguments))
    if op.name not in _BY_PARTS:
        raise UnsupportedOperatorError(
            f"op {op.name!r} of complex numbers has no form in ONNX", operator=op.name
        )
    made = [_of_part(w, op, arguments, out, part) for part in (0, 1)]
    if isinstance(made[0], tuple):
        return tuple(zip(*made, strict=True))
    return tuple(made)


def _of_part(w: Writer, op: Any, arguments: dict[str, Any], out: Any, part: int) -> Any:
    outs = out if isinstance(out, list) else [out]
    dtype = next(real_dtype(o.dtype) for o in outs if o is not None)

    def chosen(value: Any) -> Any:
        if isinstance(value, Pair):
            return value[part]
        if isinstance(value, Value) and part and op.name in ("_to_copy", "cat"):
            zero = w.op("Mul", w.cast(value.name, value.dtype, dtype), w.constant(0, dtype))
            return value._replace(name=str(zero), dtype=dtype)
        if isinstance(value, (list, tuple)) and not isinstance(value, Value):
            return [chosen(v) for v in value]
        return value

    given = SimpleNamespace(**{key: chosen(value) for key, value in arguments.items()})
    real = [None if o is None else o._replace(dtype=dtype) for o in outs]
    return FORMS[op.name](w, given, real if isinstance(out, list) else real[0])
