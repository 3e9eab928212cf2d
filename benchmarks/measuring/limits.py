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
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from workloads.workload import Cost

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


Kernel = Callable[[numpy.ndarray], float]


def measure(threads: int) -> Limits:
    """Measure what this machine can do with so many threads."""
    kernels = _compiled() or _by_numpy()
    start = threading.Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:

        def alone(kernel: Kernel, nbytes: int) -> float:
            x = _aligned_ones(nbytes)
            best = 0.0
            for _ in range(ATTEMPTS):
                start.wait()
                best = max(best, kernel(x))
            return best

        def together(name: str, nbytes: int) -> float:
            """Return the work per second of all threads at once."""
            return sum(pool.map(alone, [kernels[name]] * threads, [nbytes] * threads))

        bandwidth = {
            size: max(together("add", size // threads), together("read", size // threads))
            for size in SIZES
        }
        single = together("fma", SIZES[0])
    gemm = {kind: _gemm(kind) for kind in ("float32", "float64", "bfloat16")}
    single = max(single, gemm["float32"])
    # VNNI multiplies four bytes where a fused multiply-add has one number.
    bytes_per_number = 4 if "_vnni" in _cpuinfo() else 2
    peaks = {
        "float32": single,
        "float64": max(single / 2, gemm["float64"]),
        "bfloat16": max(single, gemm["bfloat16"]),
        "int8": max(bytes_per_number * single, 2 * gemm["bfloat16"]),
    }
    return Limits(bandwidth, peaks)


def _aligned_ones(nbytes: int) -> numpy.ndarray:
    """Return ones that start at a cache line."""
    x = numpy.ones(nbytes // 4 + 16, "float32")
    skipped = -x.ctypes.data % 64 // 4
    return x[skipped : skipped + nbytes // 4]


def _gemm(kind: str) -> float:
    """Return the flops per second of PyTorch's matrix product, 1 without PyTorch."""
    try:
        import torch
    except ImportError:
        return 1.0
    n = 1024
    a = torch.ones(n, n, dtype=getattr(torch, kind))
    a @ a
    best = float("inf")
    for _ in range(2 * ATTEMPTS):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


def _compiled() -> dict[str, Kernel] | None:
    """Compile the loops; each takes about SECONDS and returns its work per second."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "limits.so")
        done = subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", path], capture_output=True)
        if done.returncode:
            return None
        library = ctypes.CDLL(path)
    return {name: _kernel(getattr(library, f"limit_{name}")) for name in ("read", "add", "fma")}


def _kernel(function: Any) -> Kernel:
    function.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_double]
    function.restype = ctypes.c_double
    return lambda x: function(x.ctypes.data, x.size, SECONDS)


def _by_numpy() -> dict[str, Kernel]:
    def add(x: numpy.ndarray) -> float:
        third = x.size // 3
        a, b, c = x[:third], x[third : 2 * third], x[2 * third : 3 * third]
        repeats = max(1, int(SECONDS * 1e10 / x.nbytes))
        start = time.thread_time()
        for _ in range(repeats):
            numpy.add(a, b, out=c)
        return 3.0 * repeats * c.nbytes / max(time.thread_time() - start, 1e-9)

    def nothing(_: numpy.ndarray) -> float:
        return 0.0  # PyTorch's matrix product stands for the loop of multiply-adds

    return {"add": add, "read": add, "fma": nothing}
