"""What goes wrong on demand, and what a context that is lost still does."""

from __future__ import annotations

import pytest
from emulator_client import LAUNCH_FAILED, OUT_OF_MEMORY, TIMEOUT, Compile, CudaError, Gpu

from tangrad_cuda_emulator import called, calls, fail, last_fault


def test_the_call_that_was_named_fails_and_no_other(gpu: Gpu) -> None:
    fail("cuMemAlloc:2")
    gpu.allocate(8)
    with pytest.raises(CudaError) as failed:
        gpu.allocate(8)
    assert failed.value.code == OUT_OF_MEMORY
    gpu.allocate(8)
    assert calls("cuMemAlloc") == called()["cuMemAlloc"] == 3


def test_all_calls_from_one_on_fail_with_the_code_that_was_named(gpu: Gpu) -> None:
    fail("cuStreamCreate:1+:999,cuEventCreate:1")
    for _ in range(2):
        with pytest.raises(CudaError) as failed:
            gpu.stream()
        assert failed.value.code == 999
    with pytest.raises(CudaError):
        gpu.event()
    gpu.event()


@pytest.mark.parametrize("text", ["cuMemAlloc", "cuMemAlloc:0", "cuMemAlloc:x", "malloc:1"])
def test_what_cannot_be_read_is_an_error(gpu: Gpu, text: str) -> None:
    with pytest.raises(ValueError, match="NAME:N"):
        fail(text)


def test_a_launch_that_failed_takes_the_context_with_it(gpu: Gpu, kernel: Compile) -> None:
    function = kernel('extern "C" __global__ void f() {}')
    fail("cuLaunchKernel:1")
    with pytest.raises(CudaError) as failed:
        gpu.launch(function, 1, 1)
    assert failed.value.code == LAUNCH_FAILED
    for again in (gpu.synchronize, lambda: gpu.allocate(8), gpu.stream):
        with pytest.raises(CudaError) as failed:
            again()
        assert failed.value.code == LAUNCH_FAILED


def test_a_device_that_is_reset_works_again(gpu: Gpu) -> None:
    fail("cuStreamCreate:1:700")
    with pytest.raises(CudaError):
        gpu.stream()
    with pytest.raises(CudaError):
        gpu.allocate(8)
    gpu.reset()
    gpu.allocate(8)


def test_threads_that_wait_for_ever_are_told(gpu: Gpu, kernel: Compile) -> None:
    stuck = """extern "C" __global__ void f(int *x) {
        if (threadIdx.x) __syncwarp(); else __syncthreads();
        *x = 1;
    }"""
    gpu.launch(kernel(stuck), 1, 64, gpu.allocate(4))
    with pytest.raises(CudaError) as failed:
        gpu.synchronize()
    assert failed.value.code == TIMEOUT
    assert "1 threads wait at a barrier of the block, 31 (the first is thread 1" in last_fault()


@pytest.mark.parametrize(
    ("grid", "block"), [(0, 1), (1, 0), (1, 1025), (1, (1, 1, 65)), ((1, 65536, 1), 1)]
)
def test_a_size_that_no_gpu_takes_is_refused(
    gpu: Gpu, kernel: Compile, grid: int, block: int
) -> None:
    function = kernel('extern "C" __global__ void f() {}')
    with pytest.raises(CudaError):
        gpu.launch(function, grid, block)


def test_more_shared_memory_than_usual_is_to_be_asked_for(gpu: Gpu, kernel: Compile) -> None:
    source = """extern "C" __global__ void f(float *x) {
        extern __shared__ float s[];
        s[20000] = 1;
        *x = s[20000];
    }"""
    function, x = kernel(source), gpu.allocate(4)
    with pytest.raises(CudaError):
        gpu.launch(function, 1, 1, x, shared=100000)
    gpu("cuFuncSetAttribute", function, 8, 100000)
    gpu.launch(function, 1, 1, x, shared=100000)
    assert gpu.get(x, 1)[0] == 1
