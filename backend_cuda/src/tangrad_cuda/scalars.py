"""Write scalar programs in CUDA C++: names of types, qualifiers, the machine's own conversions."""

from __future__ import annotations

from tangrad.plugin.render import Dialect

_HEADER = """
#define TG_INF __int_as_float(0x7f800000)
#define TG_NAN __int_as_float(0x7fffffff)
"""

# NVRTC has neither <stdint.h> nor <cuda_fp16.h>; PTX converts halves in one instruction.
_HELPERS = {
    "tg_load_float16": "static __device__ __forceinline__ float tg_load_float16(unsigned short a)"
    ' { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r; }',
}

SCALARS = Dialect(
    "CUDA C++",
    function="static __device__ __forceinline__",
    types={
        "int8": "signed char",
        "int16": "short",
        "int32": "int",
        "int64": "long long",
        "uint8": "unsigned char",
        "uint16": "unsigned short",
        "uint32": "unsigned int",
        "uint64": "unsigned long long",
        "float32": "float",
        "float64": "double",
    },
    header=_HEADER,
)
