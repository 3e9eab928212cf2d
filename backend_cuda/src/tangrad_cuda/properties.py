"""Read what the driver tells of a GPU, under the names that PyTorch's properties have."""

from __future__ import annotations

from typing import Any

from tangrad_cuda import errors

# {PyTorch's name: pycuda's attribute}
_ATTRIBUTES = {
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "regs_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "L2_cache_size": "L2_CACHE_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "is_integrated": "INTEGRATED",
    "is_multi_gpu_board": "MULTI_GPU_BOARD",
    "pci_bus_id": "PCI_BUS_ID",
    "pci_device_id": "PCI_DEVICE_ID",
    "pci_domain_id": "PCI_DOMAIN_ID",
}


def of(device: Any) -> dict[str, object]:
    """Return the facts of a device of pycuda's; what an old driver does not know is left out."""
    import pycuda.driver

    with errors.translated():
        major, minor = device.compute_capability()
        facts: dict[str, object] = {
            "name": device.name(),
            "major": int(major),
            "minor": int(minor),
            "total_memory": int(device.total_memory()),
        }
    for name, attribute in _ATTRIBUTES.items():
        number = getattr(pycuda.driver.device_attribute, attribute, None)
        try:
            facts[name] = int(device.get_attribute(number))
        except (pycuda.driver.Error, TypeError):
            continue
    return facts
