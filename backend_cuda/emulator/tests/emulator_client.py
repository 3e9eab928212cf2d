"""A small client of the driver: the tests ask the emulator through its C functions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tangrad_cuda_emulator import environment, library_folder, nvrtc

#: What makes a kernel of a source: `kernel(source, name)`.
Compile = Callable[..., ctypes.c_void_p]

OUT_OF_MEMORY, INVALID_VALUE, INVALID_PTX, NOT_FOUND = 2, 1, 218, 500
ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED, TIMEOUT = 700, 719, 716, 702


@cache
def library() -> ctypes.CDLL:
    """Return the stand-in with two GPUs of 256 MB; settings are read at the first call."""
    before = dict(os.environ)
    os.environ.update(environment(devices=2, memory=1 << 28))
    try:
        found = ctypes.CDLL(str(library_folder() / "libcuda.so.1"))
        assert found.cuInit(0) == 0
    finally:
        os.environ.clear()
        os.environ.update(before)
    return found


@cache
def image(source: str, engine: str) -> str:
    """Return what an engine takes for a source: the source itself, or NVRTC's PTX of it."""
    if engine == "host":
        return f"//TANGRAD-SOURCE test\n{source}"
    return nvrtc.compile_to_ptx(source, "--fmad=false")


class CudaError(RuntimeError):
    """A function of the driver failed.

    Attributes:
        code: what it returned.
    """

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: {code}")
        self.code = code


class Gpu:
    """One device by its primary context."""

    def __init__(self, library: ctypes.CDLL, ordinal: int = 0) -> None:
        self._library = library
        self._ordinal = ordinal
        self.retain()

    def retain(self) -> None:
        self.context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self._ordinal)
        self.use()

    def use(self) -> None:
        self("cuCtxSetCurrent", self.context)

    def reset(self) -> None:
        self("cuDevicePrimaryCtxReset_v2", self._ordinal)
        self.retain()

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            raise CudaError(function, code)

    def allocate(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def free(self, address: ctypes.c_uint64) -> None:
        self("cuMemFree_v2", address)

    def pinned(self, count: int, dtype: str = "f4") -> np.ndarray:
        size = count * np.dtype(dtype).itemsize
        address = ctypes.c_void_p()
        self("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), 0)
        return np.frombuffer((ctypes.c_char * size).from_address(address.value or 0), dtype)

    def put(self, values: np.ndarray) -> ctypes.c_uint64:
        address = self.allocate(values.nbytes)
        self(
            "cuMemcpyHtoD_v2",
            address,
            values.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(values.nbytes),
        )
        return address

    def get(self, address: ctypes.c_uint64, count: int, dtype: str = "f4") -> np.ndarray:
        values = np.empty(count, dtype)
        self(
            "cuMemcpyDtoH_v2",
            values.ctypes.data_as(ctypes.c_void_p),
            address,
            ctypes.c_size_t(values.nbytes),
        )
        return values

    def stream(self, flags: int = 1) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(made), flags)
        return made

    def event(self) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(made), 0)
        return made

    def load(self, image: str | bytes) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self(
            "cuModuleLoadData",
            ctypes.byref(made),
            image.encode() if isinstance(image, str) else image,
        )
        return made

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        return found

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: int | tuple[int, int, int],
        block: int | tuple[int, int, int],
        *arguments: Any,
        shared: int = 0,
        stream: ctypes.c_void_p | None = None,
    ) -> None:
        pointers = (ctypes.c_void_p * max(len(arguments), 1))(*map(ctypes.addressof, arguments))
        self(
            "cuLaunchKernel",
            function,
            *_three(grid),
            *_three(block),
            shared,
            stream,
            pointers,
            None,
        )

    def synchronize(self) -> None:
        self("cuCtxSynchronize")


def _three(size: int | Sequence[int]) -> tuple[int, ...]:
    return (size, 1, 1) if isinstance(size, int) else tuple(size)
