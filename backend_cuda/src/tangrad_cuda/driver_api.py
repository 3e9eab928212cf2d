"""Call NVIDIA's driver by ctypes where pycuda has no binding, or a slow one.

pycuda brings contexts, memory and facts of devices. It hides the handles of modules and
functions, cannot take over a stream that it did not make, knows no priorities of streams, and a
launch by it takes 14 µs. What is called here takes and returns plain numbers. Launches and copies
within a device are called by `_launch`, in C, which gets their addresses here.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tangrad_cuda import errors, libraries

_SIZE, _POINTER, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_UINT, _ADDRESS = ctypes.c_uint, ctypes.c_uint64

# {function: types of its arguments}; by the names that the library exports.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuCtxSynchronize": (),
    "cuEventCreate": (_POINTER, _UINT),
    "cuEventDestroy_v2": (_POINTER,),
    "cuEventElapsedTime": (_POINTER, _POINTER, _POINTER),
    "cuEventQuery": (_POINTER,),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventSynchronize": (_POINTER,),
    "cuGraphDebugDotPrint": (_POINTER, ctypes.c_char_p, _UINT),
    "cuGraphDestroy": (_POINTER,),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphGetNodes": (_POINTER, _POINTER, _POINTER),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, ctypes.c_ulonglong),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuFuncGetAttribute": (_POINTER, _INT, _POINTER),
    "cuLaunchHostFunc": (_POINTER, _POINTER, _POINTER),
    "cuMemcpyAsync": (_ADDRESS, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, _SIZE, _POINTER),
    "cuMemcpyPeerAsync": (_ADDRESS, _POINTER, _ADDRESS, _POINTER, _SIZE, _POINTER),
    "cuModuleGetFunction": (_POINTER, _POINTER, ctypes.c_char_p),
    "cuModuleLoadData": (_POINTER, _POINTER),
    "cuPointerGetAttribute": (_POINTER, _INT, _ADDRESS),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_POINTER, _POINTER, _INT, _SIZE),
    "cuStreamBeginCapture_v2": (_POINTER, _INT),
    "cuStreamEndCapture": (_POINTER, _POINTER),
    "cuStreamIsCapturing": (_POINTER, _POINTER),
    "cuThreadExchangeStreamCaptureMode": (_POINTER,),
    "cuStreamCreateWithPriority": (_POINTER, _UINT, _INT),
    "cuCtxGetStreamPriorityRange": (_POINTER, _POINTER),
    "cuStreamGetPriority": (_POINTER, _POINTER),
    "cuStreamQuery": (_POINTER,),
    "cuStreamSynchronize": (_POINTER,),
    "cuStreamWaitEvent": (_POINTER, _POINTER, _UINT),
}
# Drivers from CUDA 12.8 on have it under a new name, and those from 13 on may have that alone.
_RENAMED = {"cuEventElapsedTime": "cuEventElapsedTime_v2"}

NOT_READY = 600
DISABLE_TIMING, BLOCKING_SYNC, INTERPROCESS = 2, 1, 4
NON_BLOCKING = 1
RELAXED = 2  # of the modes in which a thread may capture

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DriverApi:
    """The driver's functions, by their names; each raises what its status says."""

    def __init__(self) -> None:
        self._library = libraries.driver_library()
        self._called = {name: self._typed(self._library, name) for name in _FUNCTIONS}

    @staticmethod
    def _typed(library: ctypes.CDLL, name: str) -> Any:
        found = getattr(library, _RENAMED.get(name, name), None) or getattr(library, name)
        found.argtypes, found.restype = _FUNCTIONS[name], _INT
        return found

    def call(self, name: str, *args: Any) -> None:
        """Call a function.

        Raises:
            AcceleratorError, OutOfMemoryError: its status, with the function's name and a remedy.
        """
        status = self._called[name](*args)
        if status:
            raise errors.of_status(status, name)

    def query(self, name: str, handle: int) -> bool:
        """Call cuStreamQuery or cuEventQuery: whether the work is done."""
        status = self._called[name](handle)
        if status == NOT_READY:
            return False
        if status:
            raise errors.of_status(status, name)
        return True

    def made(self, name: str, *args: Any) -> int:
        """Call a function that returns a handle through its first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *args)
        return handle.value or 0

    def number(self, name: str, *args: Any) -> int:
        """Call a function that returns an int through its first argument."""
        number = ctypes.c_int()
        self.call(name, ctypes.byref(number), *args)
        return number.value

    def address(self, name: str) -> int:
        """Return the address of a function, for callers in C."""
        return ctypes.cast(getattr(self._library, name), _POINTER).value or 0
