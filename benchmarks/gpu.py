"""Measure device `cuda` on a GPU beside PyTorch: `python benchmarks/gpu.py`, in under 8 minutes.

Rows: pointwise ops and reductions against the bandwidth of a copy that is measured here, products
of matrices, convolutions, steps of training with their peak memory, what the host needs for an op,
and what cuBLASLt and cuDNN make of products and convolutions beside the own kernels. Both sides are
timed in one run, in turn. A row that fails tells why, and the next one goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = 8 * 60.0
REPEATS = 5
SIZE = 64 * 2**20
Row = dict[str, Any]
Work = Callable[[], Any]


class Side:
    """One framework on its GPU."""

    def __init__(self, name: str, framework: Any) -> None:
        self.name, self.t = name, framework
        self.f = framework.nn.functional

    def seconds(self, work: Work, budget: float) -> float:
        """Return the time of a call, by events in the stream."""
        cuda = self.t.cuda
        work()
        cuda.synchronize()
        began = time.perf_counter()
        work()
        cuda.synchronize()
        once = max(time.perf_counter() - began, 1e-6)
        calls = max(1, min(200, int(budget / once / REPEATS)))
        found = []
        for _ in range(REPEATS):
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                work()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / calls / 1000)
        return statistics.median(found)

    def peak(self, work: Work) -> int:
        """Return the most bytes that tensors hold during a call."""
        self.t.cuda.reset_peak_memory_stats()
        work()
        self.t.cuda.synchronize()
        return int(self.t.cuda.max_memory_allocated())


def pointwise(side: Side) -> Iterator[tuple[str, Work, float]]:
    """Yield rows whose last figure is the bytes that have to be read and written."""
    t, bytes_of = side.t, 4.0 * SIZE
    x = t.randn(SIZE, device="cuda")
    y, out = t.randn(SIZE, device="cuda"), t.empty(SIZE, device="cuda")
    yield "copy", lambda: out.copy_(x), 2 * bytes_of
    yield "add", lambda: t.add(x, y, out=out), 3 * bytes_of
    yield "add fresh", lambda: x + y, 3 * bytes_of
    yield "exp", lambda: t.exp(x, out=out), 2 * bytes_of
    yield "gelu", lambda: side.f.gelu(x), 2 * bytes_of
    yield "where", lambda: t.where(x > 0, x, y), 3.25 * bytes_of
    half, halves = x.half(), y.half()
    yield "add float16", lambda: half + halves, 1.5 * bytes_of
    yield "sum", lambda: x.sum(), bytes_of
    rows = x.view(-1, 1024)
    yield "mean last", lambda: rows.mean(1), bytes_of
    yield "sum first", lambda: rows.sum(0), bytes_of
    yield "softmax", lambda: side.f.softmax(rows, 1), 2 * bytes_of
    yield "layer_norm", lambda: side.f.layer_norm(rows, (1024,)), 2 * bytes_of
    yield "transpose", lambda: rows.t().contiguous(), 2 * bytes_of


def products(side: Side) -> Iterator[tuple[str, Work, float]]:
    """Yield rows whose last figure is the floating-point operations."""
    t = side.t
    for size in (1024, 4096):
        a = t.randn(size, size, device="cuda")
        yield f"mm {size}", lambda a=a: a @ a, 2.0 * size**3
    b = t.randn(64, 128, 128, device="cuda")
    yield "bmm 64x128", lambda: b @ b, 2.0 * 64 * 128**3
    image = t.randn(32, 64, 56, 56, device="cuda")
    for kernel in (1, 3):
        weight = t.randn(64, 64, kernel, kernel, device="cuda")
        flops = 2.0 * 32 * 64 * 64 * 56 * 56 * kernel**2
        yield (
            f"conv {kernel}x{kernel}",
            lambda w=weight, k=kernel: side.f.conv2d(image, w, padding=k // 2),
            flops,
        )
    q = t.randn(8, 8, 512, 64, device="cuda")
    attend = side.f.scaled_dot_product_attention
    yield "attention", lambda: attend(q, q, q, is_causal=True), 4.0 * 64 * 512**2 * 64


def steps(side: Side) -> Iterator[tuple[str, Work, float]]:
    """Yield steps of training."""
    t, nn = side.t, side.t.nn
    mlp = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)).to("cuda")
    cnn = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 10),
    ).to("cuda")  # fmt: skip
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    gpt = nn.Sequential(layer, nn.Linear(256, 10)).to("cuda")
    for name, model, shape in (
        ("mlp", mlp, (256, 784)),
        ("cnn", cnn, (64, 3, 32, 32)),
        ("transformer", gpt, (16, 128, 256)),
    ):
        x = t.randn(*shape, device="cuda")
        optimizer = t.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

        def step(model: Any = model, x: Any = x, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        yield f"step {name}", step, 0.0


GROUPS: dict[str, tuple[Callable[[Side], Iterator[tuple[str, Work, float]]], str]] = {
    "pointwise": (pointwise, "GB/s"),
    "products": (products, "GFLOP/s"),
    "training": (steps, ""),
}


def host_seconds(side: Side) -> float:
    """Return what the host needs for an op on small tensors: calls that nobody waits for."""
    x = side.t.ones(4, device="cuda")
    x + x
    side.t.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(500):
        x + x
    found = (time.perf_counter() - began) / 500
    side.t.cuda.synchronize()
    return found


@contextlib.contextmanager
def by_library(side: Side, library: str) -> Iterator[None]:
    """Let a vendor's library compute, in full precision."""
    backends = side.t.backends
    if library == "cublaslt":
        backends.cuda.preferred_blas_library("cublaslt")
        try:
            yield
        finally:
            backends.cuda.preferred_blas_library("default")
        return
    if not backends.cudnn.is_available():
        raise RuntimeError("cuDNN cannot be loaded; run: pip install nvidia-cudnn-cu13")
    with backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def vendors(side: Side, size: int = 1024, images: int = 32) -> Iterator[tuple[str, str, Work]]:
    """Yield (row, library, what it computes)."""
    t, gradients = side.t, side.t.autograd.grad
    a, b = (t.randn(size, size, device="cuda") for _ in range(2))
    yield f"mm {size}", "cublaslt", lambda: a @ b
    yield f"linear {size}", "cublaslt", lambda: side.f.linear(a, b, b[0])
    image = t.randn(images, 64, 28, 28, device="cuda", requires_grad=True)
    weight = t.randn(64, 64, 3, 3, device="cuda", requires_grad=True)

    def convolved() -> Any:
        return side.f.conv2d(image, weight, padding=1)

    def with_gradients() -> Any:
        result = convolved()
        return t.cat([g.reshape(-1) for g in gradients(result.sum(), (image, weight))])

    yield "conv 3x3", "cudnn", convolved
    yield "conv 3x3 and back", "cudnn", with_gradients


def library_rows(side: Side, budget: float = 1.0) -> Iterator[Row]:
    """Yield how fast libraries are beside the own kernels, and how far their results are apart."""
    for name, library, work in vendors(side):
        row: Row = {"group": "libraries", "name": name, "library": library}
        try:
            own = work()
            row["own seconds"] = side.seconds(work, budget)
            with by_library(side, library):
                theirs = work()
                row["library seconds"] = side.seconds(work, budget)
            row["differs"] = float((own - theirs).abs().max() / own.abs().max())
        except Exception as error:
            row["error"] = told(error)
        yield row


def measure(sides: list[Side], deadline: float) -> Iterator[Row]:
    """Yield rows as they are measured, until time is up."""
    for group, (make, unit) in GROUPS.items():
        works: dict[str, dict[str, tuple[Work, float]]] = {}
        for side in sides:
            try:
                for name, work, amount in make(side):
                    works.setdefault(name, {})[side.name] = (work, amount)
            except Exception as error:
                yield {"group": group, "name": f"setup of {side.name}", "error": told(error)}
        for name, of_side in works.items():
            left = deadline - time.monotonic()
            if left < 5:
                yield {"group": group, "name": name, "error": "no time was left"}
                continue
            row: Row = {"group": group, "name": name, "unit": unit}
            for side in sides:
                if side.name in of_side:
                    row |= one(side, *of_side[side.name], group == "training")
            yield row
    for side in sides:
        try:
            yield {"group": "host", "name": "add", side.name: host_seconds(side), "unit": ""}
        except Exception as error:
            yield {"group": "host", "name": "add", "error": told(error)}
    yield from library_rows(sides[0])


def one(side: Side, work: Work, amount: float, with_memory: bool) -> Row:
    """Measure a row on one side; a failure is the row."""
    try:
        seconds = side.seconds(work, 1.0)
        found: Row = {side.name: seconds}
        if amount:
            found[f"{side.name} rate"] = amount / seconds / 1e9
        if with_memory:
            found[f"{side.name} peak"] = side.peak(work)
        return found
    except Exception as error:
        return {f"{side.name} error": told(error)}


def told(error: Exception) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]


def line(row: Row) -> str:
    """Return a row as it is printed."""
    parts = [f"{row['group']:<10} {row['name']:<18}"]
    for name in ("tangrad", "torch"):
        if name in row:
            parts.append(f"{name} {row[name] * 1e6:10.1f} µs")
        if f"{name} rate" in row:
            parts.append(f"{row[f'{name} rate']:9.0f} {row['unit']}")
        if f"{name} peak" in row:
            parts.append(f"{row[f'{name} peak'] / 2**20:8.1f} MiB")
        if f"{name} error" in row:
            parts.append(f"{name} failed: {row[f'{name} error']}")
    if "tangrad" in row and "torch" in row:
        parts.append(f"ratio {row['tangrad'] / row['torch']:.2f}")
    if "differs" in row:
        parts.append(f"own {row['own seconds'] * 1e6:10.1f} µs")
        parts.append(f"{row['library']} {row['library seconds'] * 1e6:10.1f} µs")
        parts.append(f"results differ by {row['differs']:.1e} of the greatest")
    if "error" in row:
        parts.append(row["error"])
    return "  ".join(parts)


def open_sides() -> list[Side]:
    """Return the frameworks that have a GPU here, ours first."""
    import tangrad

    if not tangrad.cuda.is_available():
        tangrad.cuda.init()  # raises, with the reason
    sides = [Side("tangrad", tangrad)]
    try:
        import torch
    except ModuleNotFoundError:
        return sides
    if torch.cuda.is_available():
        sides.append(Side("torch", torch))
    return sides


def main() -> None:
    """Measure all rows and print them; write them as JSON if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file for the rows")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to stop (480)")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    sides = open_sides()
    print("  ".join(f"{s.name} {s.t.__version__}: {s.t.cuda.get_device_name()}" for s in sides))
    rows = []
    for row in measure(sides, deadline):
        rows.append(row)
        print(line(row), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    sys.exit(any("error" in key for row in rows for key in row))


if __name__ == "__main__":
    main()
