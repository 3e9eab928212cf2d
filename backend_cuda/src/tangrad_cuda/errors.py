"""Turn the driver's status numbers, and pycuda's exceptions, into errors that say what to do."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import tangrad
from tangrad_cuda import libraries

OUT_OF_MEMORY = 2
# {status: what to do}. After those of STICKY the context answers every call with the same.
REMEDIES: dict[int, str] = {
    3: "the driver is not initialised, or is shutting down",
    46: "the devices are held by another process in exclusive mode; end it, or choose another",
    100: "the driver sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES",
    101: "there is no device of that index; tangrad.cuda.device_count() tells how many there are",
    200: "the image of the kernel is damaged; remove the folder of TANGRAD_KERNEL_CACHE",
    201: "no context is current in this thread, as after a reset by another library: restart the "
    "process",
    209: "the kernel was compiled for another GPU; remove the folder of TANGRAD_KERNEL_CACHE",
    218: "the driver refuses the PTX; update the driver, or install an NVRTC of its version",
    222: "the driver is older than NVRTC; update the driver, or install nvidia-cuda-nvrtc of its "
    "version",
    400: "a stream or an event of another library was destroyed by it, or never was one: keep it "
    "alive as long as it is used",
    701: "the kernel needs more registers or shared memory than a block may have",
    709: "the context was destroyed, by cudaDeviceReset or another library: restart the process",
    712: "the host memory is page-locked already",
    900: "a graph is being captured, which takes launches and copies and nothing that waits: no "
    "item(), print, cpu(), synchronize, or copy of memory that is not page-locked. Do that before "
    "the capture or after it",
    901: "a call before this one could not be captured, and its error tells which: capture again "
    "without it",
    904: "a stream that took part in the capture has work that the capturing stream does not wait "
    "for: have it wait, by wait_stream, before the capture ends",
    905: "in a capture, a stream waits for an event from before it: wait before it begins",
    906: "work for the default stream would wait for a stream that captures; use another one, as "
    "tangrad.cuda.graph does",
    907: "the event was recorded in a capture: it tells nothing of the device",
    908: "the thread that began a capture has to end it",
    802: "the system is not ready; is the fabric manager running?",
    803: "the driver does not fit the kernel module; reboot after a driver's update",
}
STICKY = frozenset({214, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719})
_RESTART = (
    "every later call on this device fails with it: only what is on the host can still be used; "
    "save that and restart the process. CUDA_LAUNCH_BLOCKING=1 makes the failing op raise by itself"
)

# Of a status that is in neither table.
NO_REASON = (
    "the driver tells no more: try again; if it stays, restart the process, and look at nvidia-smi "
    "and at the system's log for NVRM and Xid"
)
_FULL = (
    "Release tensors that are no longer needed, use smaller batches, or end other processes on the "
    "device (nvidia-smi)"
)


@cache
def describe(status: int) -> tuple[str, str]:
    """Return the driver's name of a status and what it says of it."""
    library, found = libraries.driver_library(), []
    for function in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        getattr(library, function)(status, ctypes.byref(text))
        found.append(text.value.decode() if text.value else f"status {status}")
    return found[0], found[1]


@cache
def _statuses() -> dict[str, int]:
    """Return {what the driver says: status}."""
    return {describe(status)[1]: status for status in range(1, 1000)}


def of_status(status: int, function: str, trail: str = "") -> Exception:
    """Return the error of a status.

    Args:
        status: what a function of the driver returned.
        function: its name.
        trail: what was launched lately, a line each.
    """
    name, words = describe(status)
    if status == OUT_OF_MEMORY:
        return tangrad.OutOfMemoryError(f"CUDA error: {words} ({name}, from {function}); {_FULL}")
    remedy = _RESTART if status in STICKY else REMEDIES.get(status, NO_REASON)
    text = f"CUDA error: {words} ({name}, from {function})"
    error = tangrad.AcceleratorError("\n".join(filter(None, (text, remedy, trail))))
    error.error_code = status
    return error


def of_pycuda(error: Exception, trail: str = "") -> Exception:
    """Return the error for one of pycuda's, whose text is "function failed: words"."""
    function, _, words = str(error).partition(" failed: ")
    words = words.partition(" - ")[0].strip()
    status = _statuses().get(words)
    if status is None:
        return tangrad.AcceleratorError(f"CUDA error: {error}; {NO_REASON}")
    return of_status(status, function, trail)


@contextmanager
def translated() -> Iterator[None]:
    """Let what pycuda raises in a block be an error that says what to do."""
    import pycuda.driver

    try:
        yield
    except pycuda.driver.Error as error:
        raise of_pycuda(error) from None
