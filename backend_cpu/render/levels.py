"""What the compiler is told for kernels: for all, and for each instruction-set level of x86-64."""

from __future__ import annotations

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
