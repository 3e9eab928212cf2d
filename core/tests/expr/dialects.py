"""Dialects of C as the packages of two devices would add them."""

from __future__ import annotations

from tangrad.expr.render import DIALECTS, Dialect

_FLOATS = {"float32": "float", "float64": "double"}

DIALECTS.update(
    {
        "cuda": Dialect(
            "cuda",
            function="static __device__ __forceinline__",
            types=_FLOATS
            | {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}
            | {"uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int"}
            | {"uint64": "unsigned long long"},
            header="#define TG_INF __int_as_float(0x7f800000)\n"
            "#define TG_NAN __int_as_float(0x7fc00000)\n",
        ),
        "opencl": Dialect(
            "opencl",
            function="static inline",
            types=_FLOATS
            | {"int8": "char", "int16": "short", "int32": "int", "int64": "long"}
            | {"uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong"},
            header="#define TG_INF INFINITY\n#define TG_NAN NAN\n",
            float_suffix="",
        ),
    }
)
