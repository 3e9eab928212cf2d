"""Say why CUDA cannot be used here, without importing or linking anything native."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec

from tangrad_cuda import libraries


def reason() -> str | None:
    """Return what is missing or too old, None if nothing is."""
    for ask in (_driver, _pycuda, _compiler, _devices):
        found = ask()
        if found is not None:
            return found
    return None


def _driver() -> str | None:
    try:
        version = libraries.driver_version()
    except OSError as error:
        if "cannot open shared object file" in str(error):
            return f"no NVIDIA driver: {libraries.DRIVER} not found"
        return f"the NVIDIA driver cannot be loaded: {error}"
    if version < libraries.OLDEST_DRIVER:
        return (
            f"the NVIDIA driver is too old: it serves CUDA {libraries.readable(version)}, and "
            f"{libraries.readable(libraries.OLDEST_DRIVER)} is needed; update the driver"
        )
    return None


def _pycuda() -> str | None:
    if find_spec("pycuda") is None:
        return f"pycuda is not installed; {libraries.INSTALL}"
    return None


def _compiler() -> str | None:
    import ctypes.util

    if libraries.find("libnvrtc.so") or ctypes.util.find_library("nvrtc"):
        return None
    return "NVRTC, which compiles kernels, is not installed; run: pip install nvidia-cuda-nvrtc"


def _devices() -> str | None:
    driver = libraries.driver_library()
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        from tangrad_cuda import errors

        name, words = errors.describe(status)
        remedy = errors.REMEDIES.get(status, errors.NO_REASON)
        return f"the NVIDIA driver refuses: {words} ({name}); {remedy}"
    if count.value == 0:
        return "there is no GPU, or CUDA_VISIBLE_DEVICES hides it"
    return None
