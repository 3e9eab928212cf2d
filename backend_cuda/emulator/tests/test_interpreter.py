"""What the interpreter of PTX sees that a GPU does not say."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from emulator_client import INVALID_PTX, LAUNCH_FAILED, MISALIGNED, Compile, CudaError, Gpu

from tangrad_cuda_emulator import last_fault, traffic, watch_races

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry f(.param .u64 f_param_0)
{
    .reg .b32 %r<3>;
    {body}
    ret;
}
"""


def fault(gpu: Gpu) -> tuple[int, str]:
    with pytest.raises(CudaError) as failed:
        gpu.synchronize()
    return failed.value.code, last_fault()


def test_an_instruction_that_is_not_known_is_named(gpu: Gpu) -> None:
    with pytest.raises(CudaError) as failed:
        gpu.load(PTX.replace("{body}", "dance.rn.u32 %r1, %r2;"))
    assert failed.value.code == INVALID_PTX
    assert "does not know the instruction dance.rn.u32 %r1, %r2" in last_fault()


def test_what_cannot_be_read_is_told_with_its_line(gpu: Gpu) -> None:
    with pytest.raises(CudaError):
        gpu.load(PTX.replace("{body}", "add.u32 %r1, %r2 %r2;"))
    assert "PTX, line 7" in last_fault()


def test_an_address_that_is_not_aligned_is_told(gpu: Gpu, interpreted: Compile) -> None:
    source = 'extern "C" __global__ void f(char *x) { *(int *)(x + threadIdx.x) = 1; }'
    gpu.launch(interpreted(source), 1, 2, gpu.allocate(64))
    code, said = fault(gpu)
    assert code == MISALIGNED
    assert "thread 1, st.global.u32" in said
    assert "is no multiple of 4" in said


def test_shared_memory_ends_where_it_ends(gpu: Gpu, interpreted: Compile) -> None:
    source = """extern "C" __global__ void f(int *x) {
        extern __shared__ int s[];
        s[threadIdx.x] = 1;
        *x = s[0];
    }"""
    gpu.launch(interpreted(source), 1, 9, gpu.allocate(4), shared=32)
    assert "byte 32 is beyond the 32 bytes of the block's shared memory" in fault(gpu)[1]


NEIGHBOURS = """
extern "C" __global__ void f(int *o) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    %s
    o[threadIdx.x] = s[(threadIdx.x + %d) %% 64];
}"""


@pytest.mark.parametrize(
    ("barrier", "distance", "races"),
    [("", 1, True), ("__syncwarp();", 1, True), ("__syncthreads();", 1, False), ("", 64, False)],
)
def test_shared_memory_without_a_barrier_is_a_race(
    gpu: Gpu, interpreted: Compile, barrier: str, distance: int, races: bool
) -> None:
    watch_races()
    gpu.launch(interpreted(NEIGHBOURS % (barrier, distance)), 1, 64, gpu.allocate(256))
    if races:
        code, said = fault(gpu)
        assert code == LAUNCH_FAILED
        assert "race: 4 bytes of shared memory" in said
        assert "in no order" in said
    else:
        gpu.synchronize()


def test_a_race_is_found_only_when_asked_for(gpu: Gpu, interpreted: Compile) -> None:
    gpu.launch(interpreted(NEIGHBOURS % ("", 1)), 1, 64, gpu.allocate(256))
    gpu.synchronize()


def test_blocks_that_write_one_address_race_unless_they_do_so_atomically(
    gpu: Gpu, interpreted: Compile
) -> None:
    watch_races()
    source = 'extern "C" __global__ void %s(int *x) { %s; }'
    gpu.launch(interpreted(source % ("f", "atomicAdd(x, 1)")), 4, 32, gpu.put(np.zeros(1, "i4")))
    gpu.synchronize()
    gpu.launch(
        interpreted(source % ("f", "if (threadIdx.x == 0) *x = blockIdx.x")), 4, 32, gpu.allocate(4)
    )
    assert "of block 1 and written by thread 0 of block 0" in fault(gpu)[1]


def test_contiguous_requests_touch_no_more_than_they_need(gpu: Gpu, interpreted: Compile) -> None:
    source = """extern "C" __global__ void contiguous(float4 *x, const float4 *y) {
        x[threadIdx.x] = y[threadIdx.x];
    }"""
    gpu.launch(interpreted(source, "contiguous"), 1, 64, gpu.allocate(1024), gpu.allocate(1024))
    gpu.synchronize()
    loads, stores = traffic("contiguous")
    assert (loads.requests, loads.sectors, loads.ideal) == (2, 32, 32)
    assert stores == loads


def test_strided_requests_touch_a_sector_for_each_thread(gpu: Gpu, interpreted: Compile) -> None:
    source = 'extern "C" __global__ void strided(float *x) { x[threadIdx.x * 16] = 1; }'
    gpu.launch(interpreted(source, "strided"), 1, 64, gpu.allocate(4096))
    gpu.synchronize()
    stores = traffic("strided")[1]
    assert (stores.requests, stores.sectors, stores.ideal) == (2, 64, 8)
    with pytest.raises(KeyError, match="no kernel 'absent'"):
        traffic("absent")


def test_conversions_take_the_nearest_integer_that_there_is(gpu: Gpu, interpreted: Compile) -> None:
    source = """extern "C" __global__ void f(int *o, const float *x) {
        o[threadIdx.x] = (int)x[threadIdx.x];
    }"""
    x = np.array([1e20, -1e20, np.nan, 2.9, -2.9], "f4")
    out = gpu.put(np.zeros(5, "i4"))
    gpu.launch(interpreted(source), 1, 5, out, gpu.put(x))
    assert gpu.get(out, 5, "i4").tolist() == [2**31 - 1, -(2**31), 0, 2, -2]


def test_local_memory_belongs_to_each_thread(gpu: Gpu, interpreted: Compile) -> None:
    source = """extern "C" __global__ void f(int *o, int n) {
        volatile int mine[8];
        for (int i = 0; i < n; i++) mine[i] = threadIdx.x * 10 + i;
        o[threadIdx.x] = mine[n - 1];
    }"""
    out = gpu.put(np.zeros(4, "i4"))
    gpu.launch(interpreted(source), 1, 4, out, ctypes.c_int(5))
    assert gpu.get(out, 4, "i4").tolist() == [4, 14, 24, 34]
