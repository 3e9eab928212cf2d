"""Numerical limits of dtypes: `finfo` and `iinfo`."""

from __future__ import annotations

from typing import Any

from tangrad import _C

__all__ = ["finfo", "iinfo"]

# name: (bits, significand bits stored, largest exponent, decimal digits that always survive)
_FLOAT_FORMATS = {
    "float16": (16, 10, 15, 3),
    "bfloat16": (16, 7, 127, 2),
    "float32": (32, 23, 127, 6),
    "float64": (64, 52, 1023, 15),
}
# eps, max, smallest normal: their codes leave out what an IEEE format of that size would have.
_FLOAT8_LIMITS = {
    "float8_e4m3fn": (2.0**-3, 448.0, 2.0**-6),
    "float8_e4m3fnuz": (2.0**-3, 240.0, 2.0**-7),
    "float8_e5m2": (2.0**-2, 57344.0, 2.0**-14),
    "float8_e5m2fnuz": (2.0**-3, 57344.0, 2.0**-15),
}
_REAL_PART = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_INTEGERS = {
    f"{prefix}{bits}": (bits, prefix == "int")
    for prefix in ("int", "uint")
    for bits in (8, 16, 32, 64)
}


def _name_of(function: str, dtype: Any) -> str:
    dtype = _C.dtype_of_type(dtype) or dtype
    if not hasattr(dtype, "is_floating_point"):
        raise TypeError(
            f"{function}(): argument 'type' (position 1) must be a dtype, not "
            f"{type(dtype).__name__}"
        )
    return str(dtype).rpartition(".")[2]


def _registered_limits(dtype: Any) -> dict[str, float] | None:
    """Return the limits of a floating-point dtype that a plugin registered; None for all others."""
    dtype = _C.dtype_of_type(dtype) or dtype
    if not isinstance(dtype, _C.dtype) or dtype.codec is None or dtype.is_complex:
        return None
    if not dtype.is_floating_point or dtype.name.endswith("_x2"):
        return None
    said = dict(dtype.limits or {})
    names = ("bits", "eps", "max", "min", "smallest_normal", "resolution")
    if not all(name in said for name in names):
        said = {**_derived_limits(dtype), **said}
    return said


def _derived_limits(dtype: Any) -> dict[str, float]:
    """Read the limits off a codec: all codes of a small type, the compute type's of a large one."""
    import math

    import numpy as np

    if dtype.itemsize > 2:
        wide = finfo(_C.dtype_by_name(dtype.compute))
        names = ("eps", "max", "min", "smallest_normal", "resolution")
        return {"bits": 8 * dtype.itemsize, **{name: getattr(wide, name) for name in names}}
    codes = np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(all="ignore"):
        numbers = np.unique(np.asarray(dtype.codec[0](codes), np.float64))
    numbers = numbers[np.isfinite(numbers)]
    above, positive = numbers[numbers > 1], numbers[numbers > 0]
    eps = float(above[0] - 1) if above.size else 1.0
    return {
        "bits": 8 * dtype.itemsize,
        "eps": eps,
        "max": float(numbers[-1]),
        "min": float(numbers[0]),
        "smallest_normal": float(positive[0]) if positive.size else 0.0,
        "resolution": 10.0 ** -max(0, math.floor(-math.log10(eps))) if eps > 0 else 1.0,
    }


class _Limits:
    """Compare and hash by dtype; attributes are read-only."""

    __slots__ = ("_values",)
    _values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute {name!r} of {type(self).__name__!r} is not writable")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values == other._values

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._values["dtype"]))

    def _set(self, **values: Any) -> None:
        object.__setattr__(self, "_values", values)

    def _text(self, *names: str) -> str:
        parts = [f"{name}={self._values[name]:g}" for name in names]
        return f"{type(self).__name__}({', '.join(parts)}, dtype={self._values['dtype']})"


class finfo(_Limits):
    """Tell the limits of a floating-point dtype.

    Args:
        type: a floating-point or complex dtype (then of its real part); the default dtype if
            left out.

    Attributes:
        bits: size in bits.
        eps: distance from 1 to the next larger number.
        max, min: largest and smallest finite number.
        tiny, smallest_normal: smallest positive number of full precision.
        resolution: 10 to the minus number of decimal digits that always survive.
        dtype: the dtype's name.

    Raises:
        TypeError: the dtype is not floating-point.
    """

    __slots__ = ()

    def __init__(self, type: Any = None) -> None:
        if type is None:
            from tangrad import get_default_dtype

            type = get_default_dtype()
        name = _name_of("finfo", type)
        name = _REAL_PART.get(name, name)
        given = None if name in _FLOAT8_LIMITS else _registered_limits(type)
        if given is not None:
            self._set(
                bits=given["bits"],
                eps=given["eps"],
                max=given["max"],
                min=given["min"],
                tiny=given["smallest_normal"],
                smallest_normal=given["smallest_normal"],
                resolution=given["resolution"],
                dtype=name,
            )
            return
        if name in _FLOAT8_LIMITS:
            bits, digits = 8, 0
            eps, largest, smallest = _FLOAT8_LIMITS[name]
        elif name in _FLOAT_FORMATS:
            bits, stored, exponent, digits = _FLOAT_FORMATS[name]
            eps = 2.0**-stored
            largest = (2.0 - eps) * 2.0**exponent
            smallest = 2.0 ** (1 - exponent)
        else:
            raise TypeError(
                f"finfo() requires a floating point dtype, got {type}; use iinfo() for integers"
            )
        self._set(
            bits=bits,
            eps=eps,
            max=largest,
            min=-largest,
            tiny=smallest,
            smallest_normal=smallest,
            resolution=float(f"1e-{digits}"),
            dtype=name,
        )

    def __repr__(self) -> str:
        return self._text("resolution", "min", "max", "eps", "smallest_normal", "tiny")


class iinfo(_Limits):
    """Tell the limits of an integer dtype.

    Args:
        type: an integer dtype.

    Attributes:
        bits: size in bits.
        max, min: largest and smallest number.
        dtype: the dtype's name.

    Raises:
        TypeError: the dtype is not an integer dtype.
    """

    __slots__ = ()

    def __init__(self, type: Any) -> None:
        name = _name_of("iinfo", type)
        if name not in _INTEGERS:
            raise TypeError(
                f"iinfo() requires an integer dtype, got {type}; use finfo() for floating point"
            )
        bits, signed = _INTEGERS[name]
        span = bits - 1 if signed else bits
        self._set(bits=bits, max=2**span - 1, min=-(2**span) if signed else 0, dtype=name)

    def __repr__(self) -> str:
        return self._text("min", "max")
