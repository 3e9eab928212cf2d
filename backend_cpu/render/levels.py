"""What the compiler is told for kernels: for all, and for each instruction-set level of x86-64."""

from __future__ import annotations

import platform
from pathlib import Path

# What kernels need beyond -O2: vector loops of any length, constant loops unrolled. The rest of -O3
# takes half as long again to compile, and no kernel is faster for it but those that setup.py names.
USUAL = "-O2 -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops".split()
# Functions declared inline are, as far as -O3 does it: else loops around long ones stay scalar.
USUAL += ["--param=max-inline-insns-single=200"]
X86_64 = {
    # Processors without AVX2 are rare: a quarter of the time to compile is worth more there.
    "baseline": ["-march=x86-64", "-O1", "-ftree-vectorize", "-fvect-cost-model=dynamic"],
    "avx2": ["-march=x86-64-v3", "-mprefer-vector-width=256"],
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}

# What Linux calls that a level needs beyond the one before it: x86-64-v3, x86-64-v4.
NEEDS = {
    "avx2": "avx avx2 bmi1 bmi2 f16c fma abm movbe",
    "avx512": "avx512f avx512bw avx512cd avx512dq avx512vl",
}


def of_this_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the best level that the processor runs; `baseline` where that cannot be read."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "baseline"
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    best = "baseline"
    for level, needed in NEEDS.items():
        if not set(needed.split()) <= set(flags):
            break
        best = level
    return best
