"""Which GPUs there are, what they are, and which one a thread means."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from tangrad_cuda.namespace._place import driver, index_of, usable

_SYNC_MODES = ("default", "warn", "error")


def is_available() -> bool:
    """Return whether there is a GPU that can be used; `python -m tangrad info` says why not."""
    return usable()


def is_initialized() -> bool:
    """Return whether the driver was initialised by this process."""
    from tangrad_cuda.driver import Cuda

    return Cuda.opened


def init() -> None:
    """Initialise the driver; the first use of the device does so by itself.

    Raises:
        RuntimeError: it cannot be used here.
    """
    driver()


def device_count() -> int:
    """Return how many GPUs can be used: 0 where CUDA cannot."""
    return int(driver().device_count()) if usable() else 0


def current_device() -> int:
    """Return the index of the device that `cuda` means in the calling thread."""
    return index_of()


def set_device(device: Any) -> None:
    """Choose what `cuda` without an index means in the calling thread; a negative one nothing."""
    if isinstance(device, int) and device < 0:
        return
    driver().set_device(index_of(device))


class device:
    """Choose the current device in a `with` block.

    Args:
        device: index, name or device; None or a negative index changes nothing, and nothing does
            on a machine without a GPU.
    """

    def __init__(self, device: Any) -> None:
        nothing = device is None or (isinstance(device, int) and device < 0) or not usable()
        self.idx = -1 if nothing else index_of(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exc_info: object) -> bool:
        if self.idx >= 0:
            set_device(self.prev_idx)
        return False


class device_of(device):
    """Choose the device of a tensor or storage as the current one in a `with` block."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "cuda" else None)


class _Properties(SimpleNamespace):
    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count})"
        )


@cache
def _properties(index: int) -> _Properties:
    facts = driver().properties(index)
    del facts["free_memory"]  # it changes
    return _Properties(**facts)


def get_device_properties(device: Any = None) -> Any:
    """Return name, major, minor, total_memory, multi_processor_count and more as attributes."""
    return _properties(index_of(device))


def get_device_name(device: Any = None) -> str:
    """Return the name that NVIDIA gave the device."""
    return str(get_device_properties(device).name)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return the compute capability, such as (9, 0)."""
    found: tuple[int, int] = driver().capability(index_of(device))
    return found


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Return whether a device reaches the memory of another without the host.

    Raises:
        AssertionError: one of them does not exist.
    """
    contexts = driver().contexts
    for name, given in (("device", device), ("peer device", peer_device)):
        if isinstance(given, int) and not 0 <= given < len(contexts):
            raise AssertionError(f"Invalid {name} id")
    first, second = index_of(device), index_of(peer_device)
    return bool(contexts.device(first).can_access_peer(contexts.device(second)))


def synchronize(device: Any = None) -> None:
    """Wait for all work of a device; what its kernels found wrong is raised here."""
    driver().synchronize(index_of(device))


def get_arch_list() -> list[str]:
    """Return the architectures that kernels can be compiled for: those that NVRTC knows."""
    if not usable():
        return []
    from tangrad_cuda import nvrtc

    return [f"sm_{number}" for number in nvrtc.architectures()]


def get_gencode_flags() -> str:
    """Return nvcc's flags for these architectures."""
    numbers = [name.removeprefix("sm_") for name in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{n},code=sm_{n}" for n in numbers)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 can be computed with; before sm_80 that is by float32."""
    return usable() and (including_emulation or get_device_capability() >= (8, 0))


def is_tf32_supported() -> bool:
    """Return whether the GPU has TF32; no kernel here uses it."""
    return usable() and get_device_capability() >= (8, 0)


def get_sync_debug_mode() -> int:
    """Return 0, or 1 or 2 where calls that wait for the device warn or raise."""
    return int(driver().sync_debug_mode)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Have calls that wait for the device warn or raise, to find them.

    Args:
        debug_mode: 0 or "default", 1 or "warn", 2 or "error".

    Raises:
        RuntimeError: it is another one.
    """
    allowed: tuple[Any, ...] = _SYNC_MODES if isinstance(debug_mode, str) else (0, 1, 2)
    if debug_mode not in allowed:
        raise RuntimeError(
            f"invalid value of debug_mode, expected one of {', '.join(map(str, allowed))}, but "
            f"got {debug_mode}"
        )
    driver().sync_debug_mode = allowed.index(debug_mode)


class CudaError(RuntimeError):
    """A status of the CUDA runtime as an error.

    Args:
        code: the status.
    """

    def __init__(self, code: int) -> None:
        from tangrad_cuda import errors

        super().__init__(f"{errors.describe(code)[1]} ({code})")


class DeferredCudaCallError(Exception):
    """What PyTorch raises where a call that waited for the driver fails; not raised here."""


class cudaStatus:
    """Numbers of two statuses."""

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


def check_error(res: int) -> None:
    """Raise `CudaError` unless a status is success."""
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def ipc_collect() -> None:
    """Forget memory shared with processes that have ended; none is shared by this package."""


def cudart() -> Any:
    """Refuse: the CUDA runtime is not used.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "tangrad.cuda.cudart: this package calls the driver and not CUDA's runtime library; use "
        "cuda-python for calls of your own in the same primary context"
    )


def _refuse_library(name: str, library: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"tangrad.cuda.{name}: {library} is not used yet")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuse: {library} is not used yet."
    return refuse


current_blas_handle = _refuse_library("current_blas_handle", "cuBLAS")
current_solver_handle = _refuse_library("current_solver_handle", "cuSOLVER")


# --- what NVIDIA's management library tells -------------------------------------------------------


def _nvml() -> Any:
    try:
        import pynvml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pynvml does not seem to be installed or it can't be imported; run: pip install "
            "nvidia-ml-py"
        ) from error
    pynvml.nvmlInit()
    return pynvml


def _managed(device: Any) -> tuple[Any, Any]:
    nvml = _nvml()
    bus = driver().contexts.device(index_of(device)).pci_bus_id()
    return nvml, nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())


def utilization(device: Any = None) -> int:
    """Return in how many percent of the last second a kernel was running."""
    nvml, handle = _managed(device)
    return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def memory_usage(device: Any = None) -> int:
    """Return in how many percent of the last second memory was read or written."""
    nvml, handle = _managed(device)
    return int(nvml.nvmlDeviceGetUtilizationRates(handle).memory)


def device_memory_used(device: Any = None) -> int:
    """Return how many bytes all processes hold on a device."""
    nvml, handle = _managed(device)
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def temperature(device: Any = None) -> int:
    """Return the temperature in degrees Celsius."""
    nvml, handle = _managed(device)
    return int(nvml.nvmlDeviceGetTemperature(handle, 0))


def power_draw(device: Any = None) -> int:
    """Return the power drawn in milliwatts."""
    nvml, handle = _managed(device)
    return int(nvml.nvmlDeviceGetPowerUsage(handle))


def clock_rate(device: Any = None) -> int:
    """Return the clock of the multiprocessors in MHz."""
    nvml, handle = _managed(device)
    return int(nvml.nvmlDeviceGetClockInfo(handle, 1))


def list_gpu_processes(device: Any = None) -> str:
    """Return which processes hold memory on a device, as a text."""
    nvml, handle = _managed(device)
    lines = [f"GPU:{index_of(device)}"]
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    lines += [
        f"process {p.pid:>10d} uses {p.usedGpuMemory / 2**20:>12.3f} MB GPU memory"
        for p in processes
    ]
    return "\n".join(lines if processes else [*lines, "no processes are running"])
