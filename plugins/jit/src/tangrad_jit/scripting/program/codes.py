"""The numbers by which PyTorch's files name dtypes, layouts, memory formats and schemes."""

from __future__ import annotations

from typing import Any

import tangrad

__all__ = ["rt_code", "rt_of_code"]

_DTYPES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64"
).split()
_LAYOUTS = "strided sparse_coo sparse_csr _mkldnn sparse_csc sparse_bsr sparse_bsc jagged".split()
_MEMORY_FORMATS = "contiguous_format preserve_format channels_last channels_last_3d".split()
_QSCHEMES = (
    "per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric "
    "per_channel_affine_float_qparams"
).split()
_TABLES = {
    "dtype": _DTYPES,
    "layout": _LAYOUTS,
    "memory_format": _MEMORY_FORMATS,
    "qscheme": _QSCHEMES,
}


def rt_code(value: Any) -> int:
    """Return the number by which files name a dtype, a layout or a memory format."""
    if isinstance(value, int):
        return value
    table = next(t for k, t in _TABLES.items() if isinstance(value, getattr(tangrad, k)))
    return table.index(str(value).partition(".")[2])


def rt_of_code(code: Any, kind: str) -> Any:
    """Return what a number names.

    Raises:
        RuntimeError: it names nothing that is here.
    """
    if not isinstance(code, int):
        return code
    table = _TABLES[kind]
    found = getattr(tangrad, table[code], None) if 0 <= code < len(table) else None
    if found is None:
        raise RuntimeError(f"{code} is the number of no {kind}")
    return found
