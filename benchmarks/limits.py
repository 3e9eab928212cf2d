"""What the machine can do at most: bandwidth by size, multiply-adds per second.

Measured at the start of each run, by loops in C where there is a compiler and by NumPy where
there is none, with as many threads as the frameworks get.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy
from workload import Cost

SOURCE = Path(__file__).with_name("limits.c")
FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-shared", "-fPIC")
SIZES = (24 << 10, 384 << 10, 3 << 20, 24 << 20, 192 << 20)
SECONDS = 0.01
ATTEMPTS = 4


@dataclass(frozen=True)
class Limits:
    """What was measured.

    Attributes:
        bandwidth: bytes per second by size of what is touched, all threads together.
        flops: floating-point operations per second by dtype.
    """

    bandwidth: dict[int, float]
    flops: dict[str, float]

    @classmethod
    def from_data(cls, data: dict[str, dict[str, float]]) -> Limits:
        """Return the limits whose fields went through JSON."""
        return cls({int(size): v for size, v in data["bandwidth"].items()}, data["flops"])

    def microseconds(self, cost: Cost) -> float | None:
        """Return the least time that a workload can take, None if nothing bounds it."""
        if not cost.nbytes and not cost.flops:
            return None
        sizes = sorted(self.bandwidth)
        size = next((size for size in sizes if size >= cost.nbytes), sizes[-1])
        moving = cost.nbytes / self.bandwidth[size]
        return max(moving, cost.flops / self.flops[cost.kind]) * 1e6

    def __str__(self) -> str:
        """Tell the limits in one line."""
        speeds = ", ".join(f"{_size(s)} {v / 1e9:.0f}" for s, v in self.bandwidth.items())
        peaks = ", ".join(f"{kind} {value / 1e9:,.0f}" for kind, value in self.flops.items())
        return f"GB/s by size touched: {speeds}; GFLOP/s: {peaks}"


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} kB"


def vendor() -> str:
    """Return "Intel" or "AMD", whose goals differ; what is neither is held to AMD's."""
    return "Intel" if "GenuineIntel" in _cpuinfo() else "AMD"


def machine() -> str:
    """Describe where the figures were taken."""
    lines = _cpuinfo().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return (
        f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _cpuinfo() -> str:
    listing = Path("/proc/cpuinfo")
    return listing.read_text("utf-8") if listing.exists() else ""


def measure(threads: int) -> Limits:
    """Measure what this machine can do with so many threads."""
    kernels = _compiled() or _by_numpy()
    with ThreadPoolExecutor(threads) as pool:

        def together(kernel: Callable[[int], float], amount: int) -> float:
            """Return the work per second of all threads at once."""
            best = 0.0
            for _ in range(ATTEMPTS):
                start = time.perf_counter()
                work = sum(pool.map(kernel, [amount] * threads))
                best = max(best, work / (time.perf_counter() - start))
            return best

        share = {size: size // threads for size in SIZES}
        bandwidth = {
            size: max(together(kernels["add"], part), together(kernels["read"], part))
            for size, part in share.items()
        }
        single = together(kernels["fma"], 0)
    gemm = {kind: _gemm(kind) for kind in ("float32", "float64", "bfloat16")}
    single = max(single, gemm["float32"])
    peaks = {
        "float32": single,
        "float64": max(single / 2, gemm["float64"]),
        "bfloat16": max(single, gemm["bfloat16"]),
        "int8": 2 * max(single, gemm["bfloat16"]),
    }
    return Limits(bandwidth, peaks)


def _gemm(kind: str) -> float:
    """Return the flops per second of PyTorch's matrix product, 0 without PyTorch."""
    try:
        import torch
    except ImportError:
        return 0.0
    n = 1024
    a = torch.ones(n, n, dtype=getattr(torch, kind))
    a @ a
    best = float("inf")
    for _ in range(2 * ATTEMPTS):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


def _compiled() -> dict[str, Callable[[int], float]] | None:
    """Compile the loops; each does about SECONDS of work and returns how much it did."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "limits.so")
        done = subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", path], capture_output=True)
        if done.returncode:
            return None
        library = ctypes.CDLL(path)
    found = {}
    for name in ("read", "add", "fma"):
        function = getattr(library, f"limit_{name}")
        function.argtypes, function.restype = [ctypes.c_long, ctypes.c_double], ctypes.c_double
        found[name] = lambda amount, function=function: function(amount, SECONDS)
    return found


def _by_numpy() -> dict[str, Callable[[int], float]]:
    def add(nbytes: int) -> float:
        a, b, c = (numpy.ones(nbytes // 12, "float32") for _ in range(3))
        repeats = max(1, int(SECONDS * 1e10 / nbytes))
        for _ in range(repeats):
            numpy.add(a, b, out=c)
        return float(repeats * c.nbytes * 3)

    def fma(_: int) -> float:
        a = numpy.ones((512, 512), "float32")
        return 2.0 * 512**3 * bool((a @ a).any())

    return {"add": add, "read": add, "fma": fma}
