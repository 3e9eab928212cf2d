"""Nested Python sequences to packed elements, without NumPy.

`pack` finds shape and dtype as PyTorch does and lays the numbers out in memory order. It speaks
of dtypes by name, so it can be used, and tested, alone.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["infer_shape", "is_packable", "pack"]

_MAX_DIMS = 64

# Codes of the array and struct modules.
_CODES = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
_INTEGER_BITS = {
    f"{prefix}{bits}": (bits, prefix == "int")
    for prefix in ("int", "uint")
    for bits in (8, 16, 32, 64)
}
_COMPLEX_PART = {"complex64": "float32", "complex128": "float64"}
_PYTHON_KINDS = (bool, int, float, complex)
# "float" and "complex" stand for the default dtypes.
_KIND_NAMES = ("bool", "int64", "float", "complex")


def is_packable(dtype: str) -> bool:
    """Tell whether elements of a dtype of this name can be packed here."""
    return dtype in _CODES or dtype in _COMPLEX_PART or dtype == "bfloat16"


def pack(
    data: Any,
    dtype: str | None = None,
    default: str = "float32",
    promote: Callable[[str, str], str] | None = None,
) -> tuple[Any, str, tuple[int, ...]]:
    """Pack a number or nested sequences of numbers.

    Args:
        data: a number (of Python or NumPy), a tensor of one element, or sequences of such.
        dtype: the dtype's name; inferred if None.
        default: the dtype that Python's floats stand for.
        promote: gives the dtype that two dtypes are promoted to; needed only for data that
            mixes NumPy's numbers or tensors with others.

    Returns:
        (buffer, dtype, shape): the elements in row-major order as an object with the buffer
        protocol, the dtype's name and the shape.

    Raises:
        ValueError: a sequence is ragged, or an integer does not fit in 64 bits.
        TypeError: something is neither a number nor a sequence, or loses its imaginary part.
        RuntimeError: the dtype cannot be inferred, or a number does not fit it.
    """
    shape = infer_shape(data)
    leaves = _flatten(data, shape)
    kinds = set(map(type, leaves))
    if not kinds.issubset(_PYTHON_KINDS):
        leaves, found = _resolve(leaves)
    else:
        found = _python_dtypes(kinds)
    dtype = dtype or _promote_all(found, default, promote)
    return _PACKERS.get(dtype, _pack_integers)(leaves, dtype), dtype, shape


# --- shape ---------------------------------------------------------------------------------


def _is_sequence(item: Any) -> bool:
    if type(item) in (list, tuple):
        return True
    kind = type(item)  # a class has what its instances have, but is no sequence of numbers
    if isinstance(item, (str, bytes, dict)) or hasattr(kind, "requires_grad"):
        return False
    # NumPy's numbers and zero-dimensional arrays can be indexed too, but not iterated.
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and _rank(item) != 0


def _rank(item: Any) -> Any:
    return getattr(item, "ndim", None)


def infer_shape(data: Any) -> tuple[int, ...]:
    """Return the shape that nested sequences have if they are not ragged.

    Args:
        data: a number or nested sequences.

    Raises:
        ValueError: the sequences are nested too deeply, hold text, or give no first item.
    """
    shape: list[int] = []
    item = data
    while _is_sequence(item):
        if len(shape) == _MAX_DIMS:
            raise ValueError(f"too many dimensions '{type(item).__name__}'")
        shape.append(len(item))
        if shape[-1] == 0:
            break
        try:
            item = item[0]
        except Exception as error:
            raise ValueError(
                f"could not determine the shape of object type '{type(item).__name__}'"
            ) from error
    if shape and isinstance(item, str):
        raise ValueError("too many dimensions 'str'")
    return tuple(shape)


def _flatten(data: Any, shape: tuple[int, ...]) -> Sequence[Any]:
    if not shape:
        return [data]
    # A bytearray would be taken for packed elements by array().
    level: Any = data if type(data) in (list, tuple) else list(data)
    for depth, size in enumerate(shape[1:], 1):
        rows = level
        level = []
        for row in rows:
            if type(row) in (list, tuple):
                pass
            elif hasattr(type(row), "requires_grad") and _rank(row):
                row = row.detach().unbind()  # a tensor among sequences, though none by itself
            elif not _is_sequence(row):
                raise TypeError(
                    f"not a sequence: expected a sequence of length {size} at dim {depth}, got "
                    f"{type(row).__name__}"
                )
            if len(row) != size:
                raise ValueError(
                    f"expected sequence of length {size} at dim {depth} (got {len(row)})"
                )
            level.extend(row)
    return level


# --- dtype ---------------------------------------------------------------------------------


def _python_dtypes(kinds: Iterable[type]) -> set[str]:
    return {_KIND_NAMES[_PYTHON_KINDS.index(kind)] for kind in kinds}


def _complex_of(default: str) -> str:
    return "complex128" if default == "float64" else "complex64"


def _resolve(leaves: Sequence[Any]) -> tuple[list[Any], set[str]]:
    """Return Python numbers for all leaves, and the dtypes they came with."""
    values, found = [], set()
    for leaf in leaves:
        value, dtype = _number(leaf)
        values.append(value)
        found.add(dtype)
    return values, found


def _number(leaf: Any) -> tuple[Any, str]:
    if hasattr(type(leaf), "dtype") and hasattr(type(leaf), "item"):
        return _element(leaf), _element_dtype(leaf)
    for kind, name in zip(_PYTHON_KINDS, _KIND_NAMES, strict=True):
        if isinstance(leaf, kind):
            return leaf, name
    if hasattr(leaf, "__sym_int__"):
        return int(leaf), "int64"
    if isinstance(leaf, (str, bytes)):
        raise TypeError(f"tensor(): invalid data type '{type(leaf).__name__}'")
    if _is_sequence(leaf):
        raise TypeError(
            f"'{type(leaf).__name__}' object cannot be interpreted as a number; all elements at "
            "one depth must be numbers, or all sequences"
        )
    raise RuntimeError(f"Could not infer dtype of {type(leaf).__name__}")


def _element(leaf: Any) -> Any:
    count = leaf.numel() if hasattr(leaf, "numel") else leaf.size
    if count == 1:
        return leaf.item()
    got = f", got one of shape {list(leaf.shape)}; join tensors with stack()"
    if leaf.dtype.is_floating_point:
        raise ValueError(f"only one element tensors can be converted to Python scalars{got}")
    raise TypeError(f"only integer tensors of a single element can be converted to an index{got}")


def _element_dtype(leaf: Any) -> str:
    name = str(leaf.dtype).rpartition(".")[2]
    if not is_packable(name):
        raise TypeError(
            f"can't convert np.ndarray of type {name}; the supported types are: "
            f"{', '.join([*_CODES, *_COMPLEX_PART])}"
        )
    return name


def _promote_all(found: set[str], default: str, promote: Callable[[str, str], str] | None) -> str:
    if found == {"float"}:
        return default
    ladder = ("bool", "int64", default, _complex_of(default))
    aliases = {"float": default, "complex": _complex_of(default)}
    names = sorted({aliases.get(name, name) for name in found}) or [default]
    if all(name in ladder for name in names):
        return ladder[max(map(ladder.index, names))]
    result = names[0]
    for name in names[1:]:
        if promote is None:
            raise TypeError(f"tensor(): cannot mix numbers of the dtypes {', '.join(names)}")
        result = promote(result, name)
    return result


# --- packing -------------------------------------------------------------------------------


def _pack_bools(leaves: Sequence[Any], dtype: str) -> Any:
    return bytes(map(bool, leaves))


def _pack_integers(leaves: Sequence[Any], dtype: str) -> Any:
    code = _CODES[dtype]
    try:
        return array(code, leaves)
    except (OverflowError, TypeError):
        # A float to truncate, a negative number to wrap, or an error to word.
        return array(code, [_as_integer(leaf, dtype) for leaf in leaves])


def _as_integer(value: Any, dtype: str) -> int:
    if isinstance(value, complex):
        raise TypeError(f"'complex' object cannot be converted to {dtype}")
    bits, signed = _INTEGER_BITS[dtype]
    if isinstance(value, float):
        return _truncated(value, dtype)
    if dtype == "uint64":
        if value < 0:
            raise OverflowError(f"can't convert negative int {value} to uint64")
        if value >= 2**64:
            raise OverflowError(f"int too big to convert to uint64: {value}")
        return value
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"Overflow when unpacking long long: {value}")
    lowest = -(2 ** (bits - 1)) if signed else 1 - 2**bits
    if not lowest <= value < 2 ** (bits - signed):
        raise _does_not_fit(value, dtype)
    return value if signed else value % 2**bits


def _truncated(value: float, dtype: str) -> int:
    bits, signed = _INTEGER_BITS[dtype]
    lowest = -(2 ** (bits - 1)) if signed else 0
    if not (math.isfinite(value) and lowest <= value and int(value) < 2 ** (bits - signed)):
        raise _does_not_fit(value, dtype)
    return int(value)


def _does_not_fit(value: Any, dtype: str) -> RuntimeError:
    return RuntimeError(f"value cannot be converted to type {dtype} without overflow: {value!r}")


def _pack_floats(leaves: Sequence[Any], dtype: str) -> Any:
    try:
        return array(_CODES[dtype], leaves)
    except TypeError:
        raise _not_real(leaves, dtype) from None


def _not_real(leaves: Sequence[Any], dtype: str) -> TypeError:
    found = next(type(leaf).__name__ for leaf in leaves if not isinstance(leaf, (int, float)))
    return TypeError(f"must be real number, not {found} (for dtype {dtype})")


def _pack_halves(leaves: Sequence[Any], dtype: str) -> Any:
    # By way of float32, as the hardware and PyTorch round.
    values = _pack_floats(leaves, "float32").tolist()
    try:
        return struct.pack(f"{len(values)}e", *values)
    except OverflowError:
        return struct.pack(f"{len(values)}e", *map(_half_or_infinite, values))


def _half_or_infinite(value: float) -> float:
    # 65520 is half way from the largest half to the next step, and rounds to even: to infinity.
    return math.copysign(math.inf, value) if abs(value) >= 65520.0 else value


def _pack_bfloat16s(leaves: Sequence[Any], dtype: str) -> Any:
    bits = array("I", _pack_floats(leaves, "float32").tobytes())
    return array("H", map(_upper_half, bits))


def _upper_half(bits: int) -> int:
    """Round the bits of a float32 to those of a bfloat16, ties to even."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _pack_complexes(leaves: Sequence[Any], dtype: str) -> Any:
    parts: list[float] = []
    for leaf in leaves:
        number = complex(leaf)
        parts += (number.real, number.imag)
    return array(_CODES[_COMPLEX_PART[dtype]], parts)


_PACKERS: dict[str, Callable[[Sequence[Any], str], Any]] = {
    "bool": _pack_bools,
    "float16": _pack_halves,
    "bfloat16": _pack_bfloat16s,
    "float32": _pack_floats,
    "float64": _pack_floats,
    "complex64": _pack_complexes,
    "complex128": _pack_complexes,
}
