"""Compare exported C with onnxruntime and PyTorch, on one thread: `python benchmarks/export_c.py`.

Needs tangrad-export, a C compiler, onnx and onnxruntime; PyTorch where it is there.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tangrad
from tangrad import nn


def mlp(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Return an MLP 784-256-10 and the shape of its input."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 784)


def lenet(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Return LeNet and the shape of its input."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )
    return model, (1, 1, 28, 28)


def bottleneck(nn: Any, ins: int, mid: int, stride: int) -> Any:
    """Return a block of ResNet-50.

    Args:
        nn: whose modules it is made of.
        ins, mid: channels.
        stride: of the block.
    """

    class Bottleneck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.b1 = nn.Conv2d(ins, mid, 1, bias=False), nn.BatchNorm2d(mid)
            self.c2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False)
            self.b2 = nn.BatchNorm2d(mid)
            self.c3, self.b3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
            self.down: Any = None
            if stride != 1 or ins != 4 * mid:
                self.down = nn.Sequential(
                    nn.Conv2d(ins, 4 * mid, 1, stride, bias=False), nn.BatchNorm2d(4 * mid)
                )

        def forward(self, x: Any) -> Any:
            y = self.b1(self.c1(x)).relu()
            y = self.b2(self.c2(y)).relu()
            y = self.b3(self.c3(y))
            return (y + (x if self.down is None else self.down(x))).relu()

    return Bottleneck()


def resnet50(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Return ResNet-50 and the shape of its input."""
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    ins = 64
    for mid, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(bottleneck(nn, ins, mid, stride if k == 0 else 1))
            ins = 4 * mid
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers), (1, 3, 224, 224)


MODELS = {"mlp": mlp, "lenet": lenet, "resnet50": resnet50}


def least(functions: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the least processor time of each function, in microseconds; they take turns.

    It is that of the calling thread, as others may share the processor.
    """
    found = dict.fromkeys(functions, float("inf"))
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end:
        for name, function in functions.items():
            begin = time.thread_time()
            function()
            found[name] = min(found[name], (time.thread_time() - begin) * 1e6)
    return found


def compared(name: str, seconds: float, torch: Any) -> dict[str, float]:
    """Return the times of a model, by what runs it."""
    tangrad.manual_seed(0)
    model, shape = MODELS[name](nn)
    model.eval()
    x = tangrad.randn(*shape)
    functions: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        tangrad.export.library(model, (x,), Path(folder, f"{name}_c"))
        print(f"{name}: exported and compiled in {time.perf_counter() - begin:.2f} s")
        sys.path.insert(0, folder)
        made = importlib.import_module(f"{name}_c")
        given = x.numpy()
        out = made.run(given)
        run = getattr(made._library, f"{name}_c_run")
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (given, out)]
        functions["C"] = lambda: run(*pointers)
        with tangrad.no_grad():
            print(f"{name}: differs from eager by {np.abs(out - model(x).numpy()).max():.2g}")
        functions |= _onnxruntime(model, x, folder)
        functions |= _eager(name, x, torch)
        return least(functions, seconds)


def _onnxruntime(model: Any, x: Any, folder: str) -> dict[str, Callable[[], Any]]:
    import onnxruntime

    path = str(Path(folder, "model.onnx"))
    tangrad.onnx.export(model, (x,), path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return {"onnxruntime": lambda: session.run(None, feed)}


def _eager(name: str, x: Any, torch: Any) -> dict[str, Callable[[], Any]]:
    if torch is None:
        return {}
    torch.set_num_threads(1)
    twin = MODELS[name](torch.nn)[0].eval()
    given = torch.from_numpy(x.numpy())

    def call() -> Any:
        with torch.no_grad():
            return twin(given)

    return {"PyTorch": call}


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        import torch
    except ImportError:
        torch = None  # type: ignore[assignment]
    for name in options.models:
        times = compared(name, options.seconds, torch)
        told = ", ".join(f"{who} {t:.1f} us" for who, t in times.items())
        print(f"{name}: {told}; C / onnxruntime {times['C'] / times['onnxruntime']:.2f}")


if __name__ == "__main__":
    main()
