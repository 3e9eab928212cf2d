"""Quantize a network that reads handwritten digits, and see what that costs and gives.

A convolutional network learns the UCI digits in float. Then it is quantized statically, trained
on with fake quantization, and quantized by `auto`; the table shows accuracy, size and time side by
side, and the report of `auto` is written as a page.

    python examples/quantize_digits.py --epochs 12 --report quantize_digits.html
"""

from __future__ import annotations

import argparse
import copy
import io
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from digits import hold_back_a_fifth, load_digits

import tangrad
from tangrad import nn
from tangrad.ao import quantization as q
from tangrad.utils.data import DataLoader, TensorDataset


def network() -> nn.Module:
    """Return a network with stubs where its numbers become integers, and numbers again."""
    return nn.Sequential(
        q.QuantStub(),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        q.DeQuantStub(),
    )


CHAINS = [["1", "2", "3"], ["5", "6", "7"], ["10", "11"]]


def train(model: nn.Module, data: TensorDataset, epochs: int, rate: float) -> None:
    """Train with cross entropy and AdamW."""
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=rate)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for _ in range(epochs):
        for batch, targets in DataLoader(data, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            criterion(model(batch), targets).backward()
            optimizer.step()
    model.eval()


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Return the part of the digits that is read correctly."""
    images, digits = data.tensors
    with tangrad.no_grad():
        return (model(images).argmax(1) == digits).float().mean().item()


def size(model: nn.Module) -> int:
    """Return the bytes of the model's file."""
    file = io.BytesIO()
    tangrad.save(model.state_dict(), file)
    return len(file.getvalue())


def milliseconds(model: nn.Module, data: TensorDataset) -> float:
    """Return the time of reading all held-back digits at once, the median of several."""
    images = data.tensors[0]
    taken = []
    with tangrad.no_grad():
        for _ in range(7):
            begin = time.perf_counter()
            model(images)
            taken.append(time.perf_counter() - begin)
    return 1e3 * sorted(taken)[len(taken) // 2]


def quantized_statically(model: nn.Module, data: TensorDataset) -> nn.Module:
    """Fuse, observe on some of the training images, and convert."""
    fused = q.fuse_modules(model.eval(), CHAINS)
    fused.qconfig = q.get_default_qconfig("onednn")
    prepared = q.prepare(fused)
    with tangrad.no_grad():
        for batch in data.tensors[0][:512].split(64):
            prepared(batch)
    return q.convert(prepared)


def trained_quantized(model: nn.Module, data: TensorDataset, epochs: int) -> nn.Module:
    """Fuse, train on with weights and outputs rounded, and convert."""
    fused = q.fuse_modules_qat(copy.deepcopy(model).train(), CHAINS)
    fused.qconfig = q.get_default_qat_qconfig("onednn")
    prepared = q.prepare_qat(fused)
    train(prepared, data, epochs, 5e-4)
    return q.convert(prepared)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Quantize a network that reads digits.")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training images")
    parser.add_argument("--report", type=Path, default=Path("quantize_digits.html"))
    options = parser.parse_args(arguments)
    # PyTorch's: the weights' observers are made anew when the model is converted.
    warnings.filterwarnings("ignore", "Please use quant_min and quant_max")

    tangrad.manual_seed(0)
    training, held_back = hold_back_a_fifth(*load_digits("cpu"))
    model = network()
    train(model, training, options.epochs, 4e-3)
    models = {
        "float": q.fuse_modules(model.eval(), CHAINS),
        "static int8": quantized_statically(model, training),
        "trained int8": trained_quantized(model, training, max(1, options.epochs // 4)),
    }
    rows = {}
    print(f"{'':14}  accuracy  bytes   ms for {len(held_back)} digits")
    for name, made in models.items():
        rows[name] = (accuracy(made, held_back), size(made), milliseconds(made, held_back))
        print(f"{name:14}  {rows[name][0]:8.2%}  {rows[name][1]:6}  {rows[name][2]:.2f}")
    batches = list(training.tensors[0][:512].split(64))
    try:
        _, report = q.auto(model, batches, lambda m: accuracy(m, held_back))
    except RuntimeError as refused:  # where float is faster in every layer of so small a network
        report = refused.report
    print(report)
    report.save(options.report)
    print(f"the report with pictures: {options.report}")
    return {"rows": rows, "report": report}


if __name__ == "__main__":
    main()
