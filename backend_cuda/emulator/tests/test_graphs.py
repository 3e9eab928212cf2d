"""Captures take a stream's work, refuse what cannot be captured, and are launched again."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import pytest
from emulator_client import Compile, CudaError, Gpu

ADD = 'extern "C" __global__ void f(float *x, float a) { x[threadIdx.x] += a; }'
ILLEGAL_STATE, UNSUPPORTED, INVALIDATED, MERGE = 401, 900, 901, 902
UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(903, 909)
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
Add = Callable[..., None]


@pytest.fixture
def add(gpu: Gpu, kernel: Compile) -> Add:
    function = kernel(ADD)

    def run(x: ctypes.c_uint64, a: float, stream: ctypes.c_void_p | None) -> None:
        gpu.launch(function, 1, 4, x, ctypes.c_float(a), stream=stream)

    return run


def own_stream(gpu: Gpu, flags: int = 1) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    gpu("cuStreamCreate", ctypes.byref(made), flags)
    return made


def end(gpu: Gpu, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    gpu("cuStreamEndCapture", stream, ctypes.byref(graph))
    made = ctypes.c_void_p()
    gpu("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
    gpu("cuGraphDestroy", graph)
    return made


def refused(code: int, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(CudaError) as caught:
        call(*arguments)
    assert caught.value.code == code


def event_of(gpu: Gpu, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    gpu("cuEventCreate", ctypes.byref(made), 2)
    gpu("cuEventRecord", made, stream)
    return made


def first(gpu: Gpu, x: ctypes.c_uint64) -> float:
    gpu("cuCtxSynchronize")
    return float(gpu.get(x, 4, "f4")[0])


def test_what_is_captured_is_done_at_each_launch(gpu: Gpu, add: Add) -> None:
    x, stream = gpu.put(np.zeros(4, "f4")), own_stream(gpu)
    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    add(x, 1, stream)
    add(x, 2, stream)
    graph = end(gpu, stream)
    assert first(gpu, x) == 0
    for _ in range(3):
        gpu("cuGraphLaunch", graph, stream)
    assert first(gpu, x) == 9
    gpu("cuGraphExecDestroy", graph)
    refused(400, gpu, "cuGraphLaunch", graph, stream)


def test_a_capture_spreads_by_events_and_has_to_be_joined(gpu: Gpu, add: Add) -> None:
    x, stream, other = gpu.put(np.zeros(4, "f4")), own_stream(gpu), own_stream(gpu)
    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    add(x, 1, stream)
    gpu("cuStreamWaitEvent", other, event_of(gpu, stream), 0)
    add(x, 2, other)
    refused(UNMATCHED, end, gpu, other)
    gpu("cuStreamWaitEvent", stream, event_of(gpu, other), 0)
    graph = end(gpu, stream)
    gpu("cuGraphLaunch", graph, None)
    assert first(gpu, x) == 3

    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    gpu("cuStreamWaitEvent", other, event_of(gpu, stream), 0)
    add(x, 2, other)
    refused(UNJOINED, end, gpu, stream)
    add(x, 4, other)  # it is an ordinary stream again
    assert first(gpu, x) == 7


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("cuStreamSynchronize", UNSUPPORTED),
        ("cuStreamQuery", UNSUPPORTED),
        ("cuCtxSynchronize", UNSUPPORTED),
        ("cuMemAlloc_v2", UNSUPPORTED),
    ],
)
def test_what_waits_makes_a_capture_invalid(function: str, code: int, gpu: Gpu, add: Add) -> None:
    x, stream = gpu.put(np.zeros(4, "f4")), own_stream(gpu)
    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    place = ctypes.c_uint64()
    arguments = {
        "cuCtxSynchronize": (),
        "cuMemAlloc_v2": (ctypes.byref(place), ctypes.c_size_t(64)),
    }.get(function, (stream,))
    refused(code, gpu, function, *arguments)
    refused(INVALIDATED, add, x, 1, stream)
    refused(INVALIDATED, end, gpu, stream)
    add(x, 1, stream)
    assert first(gpu, x) == 1


def test_other_errors_of_a_capture(gpu: Gpu, add: Add) -> None:
    x, stream, other = gpu.put(np.zeros(4, "f4")), own_stream(gpu), own_stream(gpu)
    before = event_of(gpu, other)
    refused(UNSUPPORTED, gpu, "cuStreamBeginCapture_v2", None, GLOBAL)
    refused(ILLEGAL_STATE, end, gpu, stream)
    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    refused(ILLEGAL_STATE, gpu, "cuStreamBeginCapture_v2", stream, GLOBAL)
    refused(CAPTURED_EVENT, gpu, "cuEventSynchronize", event_of(gpu, stream))
    refused(ISOLATION, gpu, "cuStreamWaitEvent", stream, before, 0)
    refused(INVALIDATED, end, gpu, stream)

    blocking = own_stream(gpu, 0)
    gpu("cuStreamBeginCapture_v2", blocking, GLOBAL)
    refused(IMPLICIT, add, x, 1, None)
    refused(INVALIDATED, end, gpu, blocking)

    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    gpu("cuStreamBeginCapture_v2", other, GLOBAL)
    refused(MERGE, gpu, "cuStreamWaitEvent", other, event_of(gpu, stream), 0)
    refused(INVALIDATED, end, gpu, stream)
    refused(INVALIDATED, end, gpu, other)


def test_modes_say_which_threads_may_take_memory(gpu: Gpu) -> None:
    stream = own_stream(gpu)
    place = ctypes.c_uint64()
    allocate = ("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(64))
    found: list[int] = []

    def elsewhere(*call: object) -> None:
        def run() -> None:
            gpu.use()
            try:
                gpu(*call)  # type: ignore[arg-type]
                found.append(0)
            except CudaError as error:
                found.append(error.code)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    gpu("cuStreamBeginCapture_v2", stream, THREAD_LOCAL)
    elsewhere(*allocate)
    elsewhere("cuStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))
    refused(UNSUPPORTED, gpu, *allocate)
    refused(INVALIDATED, end, gpu, stream)
    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    elsewhere(*allocate)
    refused(INVALIDATED, end, gpu, stream)
    gpu("cuStreamBeginCapture_v2", stream, GLOBAL)
    mode = ctypes.c_int(RELAXED)
    gpu("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert mode.value == GLOBAL
    gpu(*allocate)
    gpu("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert mode.value == RELAXED
    end(gpu, stream)
    assert found == [0, WRONG_THREAD, UNSUPPORTED]
