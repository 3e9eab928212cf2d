"""Memory of the device: what it holds at first, and what reaches it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulator_client import ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY, Compile, CudaError, Gpu

from tangrad_cuda_emulator import allocations, last_fault

STORE = 'extern "C" __global__ void f(float *x, int i) { x[i] = 1.0f; }'


def test_fresh_memory_holds_no_numbers(gpu: Gpu) -> None:
    assert np.isnan(gpu.get(gpu.allocate(400), 100)).all()


def test_the_host_cannot_read_memory_of_the_device() -> None:
    program = (
        "import ctypes\n"
        "from emulator_client import Gpu, library\n"
        "ctypes.string_at(Gpu(library()).allocate(64).value, 1)\n"
    )
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True)
    assert done.returncode == -11


def test_a_kernel_that_writes_behind_an_allocation_is_told(gpu: Gpu, kernel: Compile) -> None:
    x = gpu.allocate(100)
    gpu.launch(kernel(STORE), 1, 1, x, ctypes.c_int(25))
    with pytest.raises(CudaError) as failed:
        gpu.synchronize()
    assert failed.value.code == ILLEGAL_ADDRESS
    assert "kernel f" in last_fault()


def test_a_kernel_that_leaves_its_memory_far_behind_is_told(gpu: Gpu, kernel: Compile) -> None:
    gpu.launch(kernel(STORE), 1, 1, gpu.allocate(100), ctypes.c_int(1 << 20))
    with pytest.raises(CudaError) as failed:
        gpu.synchronize()
    assert failed.value.code == ILLEGAL_ADDRESS
    assert "is in no memory of the device" in last_fault()


def test_memory_that_was_freed_is_gone(gpu: Gpu, kernel: Compile) -> None:
    x = gpu.allocate(100)
    gpu.free(x)
    gpu.launch(kernel(STORE), 1, 1, x, ctypes.c_int(0))
    with pytest.raises(CudaError):
        gpu.synchronize()


def test_a_copy_that_is_longer_than_the_memory_is_refused(gpu: Gpu) -> None:
    with pytest.raises(CudaError) as failed:
        gpu.get(gpu.allocate(100), 26)
    assert failed.value.code == INVALID_VALUE


def test_memory_is_as_much_as_was_said(gpu: Gpu) -> None:
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    x = gpu.allocate(1 << 27)
    gpu("cuMemGetInfo_v2", ctypes.byref(available), ctypes.byref(total))
    assert (available.value, total.value) == (1 << 27, 1 << 28)
    with pytest.raises(CudaError) as failed:
        gpu.allocate((1 << 27) + 1)
    assert failed.value.code == OUT_OF_MEMORY
    gpu.free(x)
    gpu.allocate((1 << 27) + 1)


def test_an_address_is_freed_once_and_only_where_it_begins(gpu: Gpu) -> None:
    before = allocations()
    x = gpu.allocate(100)
    with pytest.raises(CudaError):
        gpu.free(ctypes.c_uint64(x.value + 4))
    gpu.free(x)
    with pytest.raises(CudaError):
        gpu.free(x)
    assert allocations() == before


def test_another_device_needs_leave_to_use_memory(gpu: Gpu, kernel: Compile) -> None:
    x = gpu.allocate(100)
    other = Gpu(gpu._library, 1)
    try:
        store = kernel(STORE)
        other.launch(store, 1, 1, x, ctypes.c_int(0))
        with pytest.raises(CudaError) as failed:
            other.synchronize()
        assert failed.value.code == ILLEGAL_ADDRESS
        assert "memory of device 0" in last_fault()
    finally:
        gpu.use()


def test_rows_and_planes_are_copied_out_of_the_middle(gpu: Gpu) -> None:
    grid = np.arange(60, dtype="f4").reshape(5, 12)
    x = gpu.put(grid)
    for row in range(5):
        address = ctypes.c_uint64(x.value + row * 48 + 8)
        assert gpu.get(address, 3).tolist() == grid[row, 2:5].tolist()


def test_fills_take_one_two_and_four_bytes(gpu: Gpu) -> None:
    x = gpu.allocate(16)
    gpu("cuMemsetD8_v2", x, ctypes.c_ubyte(7), ctypes.c_size_t(16))
    assert gpu.get(x, 16, "u1").tolist() == [7] * 16
    gpu("cuMemsetD16_v2", x, ctypes.c_ushort(700), ctypes.c_size_t(8))
    assert gpu.get(x, 8, "u2").tolist() == [700] * 8
    gpu("cuMemsetD32_v2", x, 70000, ctypes.c_size_t(4))
    assert gpu.get(x, 4, "u4").tolist() == [70000] * 4
