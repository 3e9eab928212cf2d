"""The kernels of device `cpu`."""

from __future__ import annotations

from tangrad.devices.registry import get_driver

__all__ = ["get_cpu_capability"]

_LEVELS = ("AVX2", "AVX512")


def get_cpu_capability() -> str:
    """Return the instruction set that kernels of device `cpu` use: AVX512, AVX2 or DEFAULT."""
    level = str(get_driver("cpu").properties(0).get("instruction_set", "")).upper()
    return next((known for known in reversed(_LEVELS) if level.startswith(known)), "DEFAULT")
