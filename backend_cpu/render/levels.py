"""The instruction-set levels of x86-64, and what the compiler is told for each."""

from __future__ import annotations

X86_64 = {
    # Processors without AVX2 are rare: a quarter of the time to compile is worth more there.
    "baseline": ["-march=x86-64", "-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic"],
    "avx2": ["-march=x86-64-v3", "-mprefer-vector-width=256"],
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}
