"""Describe CUDA C++ for the kernels that tangrad.plugin.compiled writes: the page of this device.

NVRTC compiles without headers, so no type and no function here comes from one.
"""

from __future__ import annotations

from tangrad.plugin.compiled import Kernel, KernelDialect

_HEADER = """
#define TG_INF __int_as_float(0x7f800000)
#define TG_NAN __int_as_float(0x7fffffff)
"""
_EXCHANGED = "__shfl_xor_sync(0xffffffffu, {value}, {mask})"


class CudaDialect(KernelDialect):
    """CUDA C++, whose kernels read their numbers where the driver puts them."""

    def kernel(self, kernel: Kernel) -> str:
        """Return the text of a kernel.

        A structure of numbers whose arrays are indexed would be copied into every thread's local
        memory, if the compiler were not told that it may stay in constant memory.
        """
        numbers = f"const {kernel.name}_numbers g"
        return super().kernel(kernel).replace(numbers, f"const __grid_constant__ {numbers[6:]}", 1)


DIALECT = CudaDialect(
    "CUDA C++",
    function="static __device__ inline",
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
    lanes=256,
    max_blocks=2048,
    kernel='extern "C" __global__ void __launch_bounds__(256) {name}({params})',
    block="blockIdx.x",
    blocks="gridDim.x",
    lane="threadIdx.x",
    barrier="__syncthreads()",
    shared="__shared__",
    warp=32,
    shuffle=dict.fromkeys(("int32", "int64", "float32", "float64"), _EXCHANGED),
    align="__align__({n})",
    vector_bytes=16,
)
