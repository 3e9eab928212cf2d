"""Train two networks to read handwritten digits.

A multilayer perceptron and a small convolutional network learn the 1,797 images of the UCI
handwritten digits; every fifth is held back to measure the accuracy. The picture shows the loss
curves and the digits that were read wrongly.

    python examples/digits.py --device cpu --epochs 30 --out digits.png
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tangrad
from tangrad import nn
from tangrad.utils.data import DataLoader, TensorDataset

DATA = Path(__file__).resolve().parent / "digits" / "data" / "optdigits.tes.gz"
BATCH = 32
BAR_WIDTH = 24


def multilayer_perceptron() -> nn.Module:
    """Return a network with one hidden layer on the 64 pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))


def convolutional_network() -> nn.Module:
    """Return a network with two convolutions, each followed by pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 12, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 2 * 2, 10),
    )


MODELS = {
    "multilayer perceptron": multilayer_perceptron,
    "convolutional network": convolutional_network,
}


@dataclass
class Outcome:
    """What became of one model: its losses by epoch and its reading of the held-back digits."""

    losses: list[float] = field(default_factory=list)
    held_back_losses: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    predicted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


class ProgressBar:
    """A bar on one line of the terminal, with the loss and the images per second.

    Where the output is no terminal, only the last state is printed.
    """

    def __init__(self, title: str, steps: int) -> None:
        self._title = title
        self._steps = steps
        self._done = 0
        self._images = 0
        self._start = time.perf_counter()
        self._live = sys.stdout.isatty()

    def advance(self, images: int, loss: float) -> None:
        """Count one step over `images` images that had the mean loss `loss`."""
        self._done += 1
        self._images += images
        finished = self._done == self._steps
        if self._live or finished:
            print(self._line(loss), end="\n" if finished else "", flush=True)

    def _line(self, loss: float) -> str:
        filled = BAR_WIDTH * self._done // self._steps
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        seconds = time.perf_counter() - self._start
        start_of_line = "\r" if self._live else ""
        return (
            f"{start_of_line}{self._title:22} {bar} {self._done:>4}/{self._steps} steps"
            f"  loss {loss:6.4f}  {self._images / seconds:>7,.0f} images/s  {seconds:4.1f} s"
        )


def load_digits(device: str) -> tuple[tangrad.Tensor, tangrad.Tensor]:
    """Return the images, shape (1797, 1, 8, 8) with values in [0, 1], and the digits."""
    with gzip.open(DATA, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    images = tangrad.from_numpy(table[:, :64].astype(np.float32) / 16)
    digits = tangrad.from_numpy(table[:, 64].copy())
    return images.reshape(-1, 1, 8, 8).to(device), digits.to(device)


def hold_back_a_fifth(
    images: tangrad.Tensor, digits: tangrad.Tensor
) -> tuple[TensorDataset, TensorDataset]:
    """Split the digits into those to learn from and, every fifth, those to be measured with."""
    held_back = tangrad.arange(len(images), device=images.device) % 5 == 0
    return (
        TensorDataset(images[~held_back], digits[~held_back]),
        TensorDataset(images[held_back], digits[held_back]),
    )


def train(
    title: str, model: nn.Module, training: TensorDataset, held_back: TensorDataset, epochs: int
) -> Outcome:
    """Train `model` with cross entropy and AdamW, and measure it on `held_back`."""
    outcome = Outcome()
    loader = DataLoader(training, batch_size=BATCH, shuffle=True)
    criterion = nn.CrossEntropyLoss()
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-2)
    progress = ProgressBar(title, epochs * len(loader))
    images, digits = held_back.tensors
    for _ in range(epochs):
        losses = []
        for batch, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            progress.advance(len(batch), losses[-1])
        outcome.losses.append(float(np.mean(losses)))
        with tangrad.no_grad():
            scores = model(images)
            outcome.held_back_losses.append(criterion(scores, digits).item())
    predicted = scores.argmax(dim=1)
    outcome.predicted = predicted.cpu().numpy()
    outcome.accuracy = (predicted == digits).float().mean().item()
    return outcome


def draw(outcomes: dict[str, Outcome], held_back: TensorDataset, path: Path) -> None:
    """Draw the loss curves and the misclassified digits into the PNG file `path`."""
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is not drawn: that takes matplotlib (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure: Any = pyplot.figure(figsize=(11, 3.2 * len(outcomes)), layout="constrained")
    rows = np.atleast_1d(figure.subfigures(len(outcomes), 1))
    for row, (title, outcome) in zip(rows, outcomes.items(), strict=True):
        row.suptitle(f"{title}: {outcome.accuracy:.1%} of the held-back digits are read correctly")
        curves, mistakes = row.subfigures(1, 2)
        _draw_curves(curves, outcome)
        _draw_mistakes(mistakes, outcome, held_back)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"loss curves and misclassified digits: {path}")


def _draw_curves(figure: Any, outcome: Outcome) -> None:
    axes = figure.subplots()
    epochs = range(1, len(outcome.losses) + 1)
    axes.semilogy(epochs, outcome.losses, label="training")
    axes.semilogy(epochs, outcome.held_back_losses, label="held back")
    axes.set(xlabel="epoch", ylabel="cross entropy")
    axes.legend()


def _draw_mistakes(
    figure: Any, outcome: Outcome, held_back: TensorDataset, limit: int = 18
) -> None:
    images, digits = (tensor.cpu().numpy() for tensor in held_back.tensors)
    wrong = np.flatnonzero(outcome.predicted != digits)[:limit]
    axes = figure.subplots(3, 6, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, index in zip(axes, wrong, strict=False):
        axis.imshow(images[index, 0], cmap="gray_r")
        axis.set_title(f"{digits[index]} as {outcome.predicted[index]}", fontsize=8)


def main(arguments: list[str] | None = None) -> dict[str, Outcome]:
    parser = argparse.ArgumentParser(description="Train two networks on handwritten digits.")
    parser.add_argument("--device", default="cpu", help="device to train on (default: cpu)")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images")
    parser.add_argument("--out", type=Path, default=Path("digits.png"), help="picture to write")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    tangrad.manual_seed(0)
    training, held_back = hold_back_a_fifth(*load_digits(options.device))
    outcomes = {}
    for title, build in MODELS.items():
        model = build().to(options.device)
        outcomes[title] = train(title, model, training, held_back, options.epochs)
    for title, outcome in outcomes.items():
        print(f"{title}: {outcome.accuracy:.1%} of {len(held_back)} held-back digits")
    draw(outcomes, held_back, options.out)
    return outcomes


if __name__ == "__main__":
    main()
