"""What the host's processor can do: as Linux tells it, else as the processor itself does."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tangrad import _C

# PyTorch's names, and Linux's where they differ.
_X86 = dict.fromkeys(
    "sse sse2 ssse3 sse4_1 sse4_2 sse4a avx avx2 avx_vnni avx512_vbmi2 avx512_bitalg "
    "avx512_vpopcntdq avx512_vnni avx512_bf16 avx512_fp16 avx512_vp2intersect avx512_4vnniw "
    "avx512_4fmaps avx10_1 avx10_2 avx_vnni_int8 avx_vnni_int16 avx_ne_convert amx_bf16 amx_tile "
    "amx_int8 amx_fp16 fma4 f16c bmi2 popcnt aes clflush clflushopt clwb".split()
)
_X86.update(sse3="pni", fma3="fma", bmi="bmi1", lzcnt="abm", sha="sha_ni")
_X86.update({f"avx512_{part}": f"avx512{part}" for part in "f cd dq bw vl ifma vbmi".split()})
_ARM = dict.fromkeys("bf16 i8mm sve sve2 sme sme2 atomics crc32 aes sha1 sha2 pmull".split())
_ARM.update(neon="asimd", fp16_arith="asimdhp", dot="asimddp", fhm="asimdfhm", rdm="asimdrdm")
_ARM.update(sve_bf16="svebf16")
# Of CPUID's leaf 7, subleaf 1: register, bit, and the feature without whose registers it is of no
# use. Linux lists these late or not at all (Intel, Architecture Instruction Set Extensions).
_EAX, _EDX = 0, 3
_UNLISTED = {
    "amx_fp16": (_EAX, 21, "amx_tile"),
    "avx_vnni_int8": (_EDX, 4, "avx2"),
    "avx_ne_convert": (_EDX, 5, "avx2"),
    "avx_vnni_int16": (_EDX, 10, "avx2"),
}
_AVX10 = (_EDX, 19, "avx512_f")
_NAMES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}

_found: Mapping[str, Any] | None = None


def get_capabilities() -> Mapping[str, Any]:
    """Return the processor's features by name: whether each is there, and a few sizes.

    Returns:
        A mapping that cannot be written: "architecture" and "num_logical_cores", and on Linux
        features such as "avx2" or "neon" (bool), "cpu_name", "num_physical_cores", "num_sockets",
        "l1d_cache_size" and "l2_cache_size" (bytes), as far as the system tells them.
    """
    global _found
    if _found is None:
        _found = MappingProxyType(_capabilities())
    return _found


def _capabilities() -> dict[str, Any]:
    architecture = platform.machine()
    found: dict[str, Any] = {
        "architecture": {"AMD64": "x86_64", "aarch64": "arm64"}.get(architecture, architecture),
        "num_logical_cores": os.cpu_count() or 1,
    }
    try:
        told = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return found
    found.update(_of_cpuinfo(told, _NAMES.get(architecture, {})))
    found.update(_cache_sizes(Path("/sys/devices/system/cpu/cpu0/cache")))
    return found


def _of_cpuinfo(told: str, names: Mapping[str, str | None]) -> dict[str, Any]:
    """Read what Linux tells of all processors, one paragraph each."""
    processors = []
    for paragraph in told.strip().split("\n\n"):
        lines = [line.partition(":") for line in paragraph.splitlines()]
        processors.append({key.strip(): value.strip() for key, _, value in lines})
    first = processors[0]
    flags = set((first.get("flags") or first.get("Features") or "").split())
    found: dict[str, Any] = {name: (theirs or name) in flags for name, theirs in names.items()}
    if names is _X86:
        found.update(_of_cpuid(found))
    if "model name" in first:
        found["cpu_name"] = first["model name"]
    if "core id" in first:
        cores = {(p.get("physical id"), p.get("core id")) for p in processors}
        found["num_physical_cores"] = len(cores)
        found["num_sockets"] = len({p.get("physical id") for p in processors})
    return found


def _of_cpuid(listed: Mapping[str, bool]) -> dict[str, bool]:
    """Return the features that CPUID tells beyond those that Linux lists."""
    registers = _C.cpuid(7, 1)

    def has(register: int, bit: int, needed: str) -> bool:
        return bool(registers[register] >> bit & 1) and listed[needed]

    found = {name: listed[name] or has(*place) for name, place in _UNLISTED.items()}
    version = _C.cpuid(0x24)[1] & 0xFF if has(*_AVX10) else 0
    found.update({f"avx10_{n}": listed[f"avx10_{n}"] or version >= n for n in (1, 2)})
    return found


def _cache_sizes(folder: Path) -> dict[str, int]:
    found = {}
    for cache in sorted(folder.glob("index*")):
        try:
            kind, level, size = (
                (cache / name).read_text("ascii").strip() for name in ("type", "level", "size")
            )
        except OSError:
            continue
        if level in ("1", "2") and kind != "Instruction" and size.endswith("K"):
            found[f"l{level}{'d' if level == '1' else ''}_cache_size"] = int(size[:-1]) << 10
    return found
