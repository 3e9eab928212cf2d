"""Measure what calls cost on the host up to the driver's door: processor time of one thread.

    python -m tangrad_cuda_emulator --sources FOLDER benchmarks/cuda_host.py [name ...]
    python -m tangrad_cuda_emulator --sources FOLDER benchmarks/cuda_host.py --first

The driver's functions that launch and copy are replaced by one that does nothing. With `--first` it
is the first call of each kind, with kernels that an earlier run left on disk, without what the
driver spends; run it twice. Names come with the launches of a call.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tangrad
from tangrad.plugin import get_driver

REPEATS, CALLS = 5, 300
_SPENT = {"within": 0, "nanoseconds": 0}


def calls() -> dict[str, Callable[[], Any]]:
    """Return {name: a call of a usual op on small tensors}."""
    f, d = tangrad.nn.functional, {"device": "cuda"}
    x, y, b = (tangrad.randn(*shape, **d) for shape in ((32, 32), (32, 32), (32,)))
    r = tangrad.randn(32, 32, **d).requires_grad_()
    image, weight = tangrad.randn(2, 8, 16, 16, **d), tangrad.randn(8, 8, 3, 3, **d)
    mean, var = tangrad.randn(8, **d), tangrad.rand(8, **d)
    heads, table = tangrad.randn(2, 4, 16, 8, **d), tangrad.randn(50, 32, **d)
    classes, few = tangrad.randint(0, 32, (32,), **d), tangrad.arange(16, **d)
    whole = tangrad.arange(32, **d).expand(32, 32).contiguous()
    return {
        "add": lambda: x + y,
        "add, recorded": lambda: r + y,
        "add a number": lambda: x + 2,
        "exp": lambda: x.exp(),
        "where": lambda: tangrad.where(x > 0, x, y),
        "gelu": lambda: f.gelu(x),
        "to float16": lambda: x.half(),
        "contiguous": lambda: x.T.contiguous(),
        "view": lambda: x.view(1024),
        "cat": lambda: tangrad.cat([x, y]),
        "sum": lambda: x.sum(0),
        "mean": lambda: x.mean(),
        "var": lambda: x.var(1),
        "argmax": lambda: x.argmax(1),
        "cumsum": lambda: x.cumsum(1),
        "sort": lambda: x.sort(1),
        "topk": lambda: x.topk(3),
        "softmax": lambda: f.softmax(x, 1),
        "cross_entropy": lambda: f.cross_entropy(r, classes),
        "mse_loss": lambda: f.mse_loss(x, y),
        "layer_norm": lambda: f.layer_norm(x, (32,), b, b),
        "group_norm": lambda: f.group_norm(image, 4, mean, var),
        "rms_norm": lambda: f.rms_norm(x, (32,), b),
        "batch_norm": lambda: f.batch_norm(image, mean, var),
        "batch_norm, training": lambda: f.batch_norm(image, mean, var, training=True),
        "matmul": lambda: x @ y,
        "matmul, stacks": lambda: heads @ heads.mT,
        "linear": lambda: f.linear(x, y, b),
        "einsum": lambda: tangrad.einsum("ij,jk->ik", x, y),
        "attention": lambda: f.scaled_dot_product_attention(heads, heads, heads),
        "conv2d": lambda: f.conv2d(image, weight, mean, padding=1),
        "conv_transpose2d": lambda: f.conv_transpose2d(image, weight),
        "max_pool2d": lambda: f.max_pool2d(image, 2),
        "avg_pool2d": lambda: f.avg_pool2d(image, 2),
        "adaptive_avg_pool2d(1)": lambda: f.adaptive_avg_pool2d(image, 1),
        "adaptive_avg_pool2d(4)": lambda: f.adaptive_avg_pool2d(image, 4),
        "interpolate": lambda: f.interpolate(image, scale_factor=2),
        "interpolate, bilinear": lambda: f.interpolate(image, scale_factor=2, mode="bilinear"),
        "embedding": lambda: f.embedding(classes, table),
        "index_select": lambda: x.index_select(0, few),
        "gather": lambda: x.gather(1, whole),
        "scatter_add": lambda: x.scatter_add(0, whole, y),
        "masked_fill": lambda: x.masked_fill(x > 0, 0.0),
        "zeros": lambda: tangrad.zeros(32, 32, **d),
        "arange": lambda: tangrad.arange(32, **d),
        "randn": lambda: tangrad.randn(32, **d),
        "dropout": lambda: f.dropout(x, 0.5),
    }


def close_the_door() -> None:
    """Replace what launches and copies by a function that does nothing."""
    from tangrad_cuda import _launch
    from tangrad_cuda.dialect import DIALECT

    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "door.c", Path(folder) / "door.so"
        source.write_text("int door(void) { return 0; }\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", made, source], check=True)
        door: Any = ctypes.cast(ctypes.CDLL(str(made)).door, ctypes.c_void_p).value
    driver = get_driver("cuda")
    _launch.connect(driver, tangrad.dtype, tangrad.Generator, DIALECT.lanes, door, door)


def watch_the_driver() -> None:
    """Add up what the driver's functions spend."""
    from tangrad_cuda.driver_api import DriverApi

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began, _SPENT["within"] = time.thread_time_ns(), _SPENT["within"] + 1
            try:
                return function(*args)
            finally:
                _SPENT["within"] -= 1
                if not _SPENT["within"]:
                    _SPENT["nanoseconds"] += time.thread_time_ns() - began

        return call

    for name in ("call", "made"):
        setattr(DriverApi, name, timed(getattr(DriverApi, name)))


def launches(work: Callable[[], Any]) -> int:
    """Return how many kernels a call launches."""
    from tangrad_cuda_emulator import calls as counted

    before = counted("cuLaunchKernel")
    work()
    return counted("cuLaunchKernel") - before


def first_uses(works: dict[str, Callable[[], Any]]) -> Iterator[str]:
    """Yield the milliseconds of each first call."""
    watch_the_driver()
    for name, work in works.items():
        _SPENT["nanoseconds"] = 0
        began = time.thread_time_ns()
        work()
        spent = time.thread_time_ns() - began - _SPENT["nanoseconds"]
        yield f"{name:<24} {spent / 1e6:7.2f} ms"


def later_uses(works: dict[str, Callable[[], Any]]) -> Iterator[str]:
    """Yield the microseconds of each call like those before, the least of a few tries."""
    counts = {}
    for name, work in works.items():
        for _ in range(4):
            work()
        counts[name] = launches(work)
    tangrad.cuda.synchronize()
    close_the_door()
    for name, work in works.items():
        least = float("inf")
        for _ in range(REPEATS):
            began = time.thread_time_ns()
            for _ in range(CALLS):
                work()
            least = min(least, (time.thread_time_ns() - began) / CALLS)
        yield f"{name:<24} {least / 1e3:7.2f} µs  {counts[name]} launches"


def main() -> None:
    """Measure, and print a line for each call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="calls (all)")
    parser.add_argument("--first", action="store_true", help="first calls, kernels from disk")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    works = {n: work for n, work in calls().items() if not options.names or n in options.names}
    for line in (first_uses if options.first else later_uses)(works):
        print(line, flush=True)
    # What the door swallowed never ran: nobody is to wait for it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
