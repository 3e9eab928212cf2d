"""Run the tests in this process on the emulator, two GPUs of 256 MB, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_void_p

import pytest
from emulator_client import Compile, Gpu, image, library

from tangrad_cuda_emulator import fail, watch_races

ENGINES = ["host", "ptx"]


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    made = Gpu(library())
    yield made
    fail()
    watch_races(False)
    # What a test broke is whole again for the next.
    made("cuDevicePrimaryCtxReset_v2", 0)
    made("cuDevicePrimaryCtxReset_v2", 1)


@pytest.fixture(params=ENGINES)
def kernel(request: pytest.FixtureRequest, gpu: Gpu) -> Compile:
    """Compile a source for one engine and return one of its kernels."""

    def make(source: str, name: str = "f") -> c_void_p:
        return gpu.function(gpu.load(image(source, request.param)), name)

    return make


@pytest.fixture
def interpreted(gpu: Gpu) -> Compile:
    """Return a kernel of a source, run by the interpreter."""

    def make(source: str, name: str = "f") -> c_void_p:
        return gpu.function(gpu.load(image(source, "ptx")), name)

    return make
