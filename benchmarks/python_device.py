"""What a device written in Python adds to its kernels: processor time of an op beside its kernel.

    python benchmarks/python_device.py

The kernels do nothing, so the whole call is overhead; what calling such a function from Python
takes is told beside it. Goal: 3 us.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tangrad
from tangrad.plugin import DeviceDriver

API = 1
GOAL = 3.0
NUMBER, REPEATS = 1_000, 60


class Idle(DeviceDriver):
    """A device whose memory is byte arrays and whose kernels do nothing."""

    def open(self) -> None:
        """Begin without memory."""
        self.blocks: dict[int, bytearray] = {}
        self.handles = itertools.count(1)

    def allocate(self, nbytes: int, index: int) -> int:
        """Return the handle of new memory."""
        handle = next(self.handles)
        self.blocks[handle] = bytearray(nbytes)
        return handle

    def release(self, handle: int, nbytes: int) -> None:
        """Give it back."""
        del self.blocks[handle]

    def copy_from_host(self, handle: int, offset: int, source: Any) -> None:
        """Take bytes."""
        self.blocks[handle][offset : offset + len(source)] = source

    def copy_to_host(self, handle: int, offset: int, target: Any) -> None:
        """Give bytes."""
        target[:] = self.blocks[handle][offset : offset + len(target)]

    def register_kernels(self, register: Callable[..., None]) -> None:
        """One kernel of each kind."""
        register("mul", lambda outs, inputs, params: None)
        register("exp", lambda outs, inputs, params: None)
        register("sum", lambda outs, x, dims, params: None)
        register("cumsum", lambda outs, x, dim, params: None)
        register("mm", lambda outs, args: None)


def install(folder: str) -> None:
    """Let this file be a package that brings the device."""
    told = Path(folder, "tangrad_idle-1.dist-info")
    told.mkdir()
    told.joinpath("METADATA").write_text("Name: tangrad-idle\nVersion: 1\n", "utf-8")
    entry = f"[tangrad.devices]\nidle = {Path(__file__).stem}:Idle\n"
    told.joinpath("entry_points.txt").write_text(entry, "utf-8")
    sys.path.append(folder)


def microseconds(call: Callable[[], Any]) -> float:
    """Return the least processor time of a call, on a busy machine too."""
    runs = timeit.repeat(call, timer=time.process_time, number=NUMBER, repeat=REPEATS)
    return 1e6 * min(runs) / NUMBER


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        install(folder)
        x = tangrad.zeros(4, 4).to("idle")
    leaf = tangrad.zeros(4, 4).to("idle").requires_grad_()
    calls: dict[str, Callable[[], Any]] = {
        "mul": lambda: x * x,
        "mul by a number": lambda: x * 2.0,
        "mul, recorded": lambda: leaf * x,
        "exp": lambda: x.exp(),
        "sum": lambda: x.sum(),
        "cumsum": lambda: x.cumsum(0),
        "mm": lambda: x.mm(x),
    }
    kernel: Callable[[Any, Any, Any], None] = lambda outs, inputs, params: None  # noqa: E731
    alone = microseconds(lambda: kernel((x,), (x, x), {}))
    print(f"a function that does nothing: {alone:.2f} us")
    for name, call in calls.items():
        spent = microseconds(call)
        print(f"{name:16} {spent:5.2f} us, {spent - alone:5.2f} beside the kernel (goal {GOAL})")


if __name__ == "__main__":
    main()
