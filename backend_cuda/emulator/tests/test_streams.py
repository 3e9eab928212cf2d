"""Streams work as late as the rules allow, so that what was not ordered shows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from emulator_client import Compile, CudaError, Gpu

ADD = 'extern "C" __global__ void f(float *x, float a) { x[threadIdx.x] += a; }'
NOT_READY = 600


@pytest.fixture
def add(gpu: Gpu, kernel: Compile) -> Callable[..., None]:
    function = kernel(ADD)

    def run(x: ctypes.c_uint64, a: float, stream: ctypes.c_void_p | None) -> None:
        gpu.launch(function, 1, 4, x, ctypes.c_float(a), stream=stream)

    return run


def zeros(gpu: Gpu) -> ctypes.c_uint64:
    return gpu.put(np.zeros(4, "f4"))


def send(gpu: Gpu, x: ctypes.c_uint64, source: np.ndarray, stream: ctypes.c_void_p) -> None:
    """Let a stream copy the host's numbers."""
    address = source.ctypes.data_as(ctypes.c_void_p)
    gpu("cuMemcpyHtoDAsync_v2", x, address, ctypes.c_size_t(source.nbytes), stream)


def read(gpu: Gpu, x: ctypes.c_uint64, stream: ctypes.c_void_p) -> float:
    """Read the first number in the order of one stream alone."""
    target = gpu.pinned(4)
    address = target.ctypes.data_as(ctypes.c_void_p)
    gpu("cuMemcpyDtoHAsync_v2", address, x, ctypes.c_size_t(16), stream)
    gpu("cuStreamSynchronize", stream)
    return float(target[0])


def test_a_stream_does_its_work_in_order(gpu: Gpu, add: Callable[..., None]) -> None:
    x, stream = zeros(gpu), gpu.stream()
    add(x, 1, stream)
    add(x, 2, stream)
    assert read(gpu, x, stream) == 3


def test_without_an_event_another_stream_sees_the_old_values(
    gpu: Gpu, add: Callable[..., None]
) -> None:
    x, first, second = zeros(gpu), gpu.stream(), gpu.stream()
    add(x, 1, first)
    assert read(gpu, x, second) == 0


def test_an_event_orders_two_streams(gpu: Gpu, add: Callable[..., None]) -> None:
    x, first, second, event = zeros(gpu), gpu.stream(), gpu.stream(), gpu.event()
    add(x, 1, first)
    gpu("cuEventRecord", event, first)
    add(x, 10, first)
    gpu("cuStreamWaitEvent", second, event, 0)
    assert read(gpu, x, second) == 1


def test_the_legacy_stream_comes_after_blocking_streams_and_before_them(
    gpu: Gpu, add: Callable[..., None]
) -> None:
    x, blocking = zeros(gpu), gpu.stream(flags=0)
    add(x, 1, blocking)
    add(x, 2, None)
    assert read(gpu, x, blocking) == 3


def test_the_legacy_stream_does_not_wait_for_others(gpu: Gpu, add: Callable[..., None]) -> None:
    x, free = zeros(gpu), gpu.stream(flags=1)
    add(x, 1, free)
    assert gpu.get(x, 4)[0] == 0


def test_a_source_that_is_not_locked_is_read_at_once(gpu: Gpu) -> None:
    x, stream, source = zeros(gpu), gpu.stream(), np.ones(4, "f4")
    send(gpu, x, source, stream)
    source[:] = 2
    assert read(gpu, x, stream) == 1


def test_a_locked_source_that_is_used_again_too_early_arrives_changed(gpu: Gpu) -> None:
    x, stream, source = zeros(gpu), gpu.stream(), gpu.pinned(4)
    source[:] = 1
    send(gpu, x, source, stream)
    source[:] = 2
    assert read(gpu, x, stream) == 2


def test_who_only_asks_comes_to_an_end(gpu: Gpu, add: Callable[..., None]) -> None:
    x, stream, event = zeros(gpu), gpu.stream(), gpu.event()
    add(x, 1, stream)
    gpu("cuEventRecord", event, stream)
    asked = 0
    while gpu._library.cuEventQuery(event) == NOT_READY:
        asked += 1
    assert 1 <= asked <= 3
    assert read(gpu, x, stream) == 1


def test_time_between_events_is_told_when_they_have_passed(
    gpu: Gpu, add: Callable[..., None]
) -> None:
    stream, first, last = gpu.stream(), gpu.event(), gpu.event()
    gpu("cuEventRecord", first, stream)
    add(zeros(gpu), 1, stream)
    gpu("cuEventRecord", last, stream)
    elapsed = ctypes.c_float(-1)
    with pytest.raises(CudaError) as failed:
        gpu("cuEventElapsedTime_v2", ctypes.byref(elapsed), first, last)
    assert failed.value.code == NOT_READY
    gpu("cuEventSynchronize", last)
    gpu("cuEventElapsedTime_v2", ctypes.byref(elapsed), first, last)
    assert elapsed.value >= 0


def test_a_function_of_the_host_runs_in_its_place(gpu: Gpu, add: Callable[..., None]) -> None:
    said: list[str] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def call(data: int) -> None:
        said.append("called")

    x, stream = zeros(gpu), gpu.stream()
    add(x, 1, stream)
    gpu("cuLaunchHostFunc", stream, call, None)
    assert said == []
    gpu("cuStreamSynchronize", stream)
    assert said == ["called"]
