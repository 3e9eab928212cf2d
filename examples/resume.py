"""Train an image classifier, break off, and go on from a checkpoint as if nothing had happened.

The network learns the handwritten digits of `digits.py`. After half of the epochs everything that
training depends on (weights, optimizer, schedule, random numbers) goes to a file; a new network,
loaded from it, does the second half. The picture shows that both ways meet.

    python examples/resume.py --epochs 6 --out resume.png
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np

import tangrad
from tangrad import nn
from tangrad.nn import functional as F

DATA = Path(__file__).resolve().parent / "digits" / "data" / "optdigits.tes.gz"
BATCH = 64


class Training:
    """A network with all that its training depends on.

    Args:
        epochs: number of epochs that the schedule is made for.
    """

    def __init__(self, epochs: int) -> None:
        self.model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(32 * 2 * 2, 10),
        )
        self.optimizer = tangrad.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = tangrad.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": tangrad.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to where a checkpoint was made."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        tangrad.set_rng_state(state["random"])

    def run(self, images: tangrad.Tensor, digits: tangrad.Tensor, epochs: int) -> list[float]:
        """Train for some epochs, and return the loss of every step."""
        losses = []
        self.model.train()
        for _ in range(epochs):
            for chosen in tangrad.randperm(len(images)).split(BATCH):
                loss = F.cross_entropy(self.model(images[chosen]), digits[chosen])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
            self.schedule.step()
        return losses

    @tangrad.no_grad()
    def accuracy(self, images: tangrad.Tensor, digits: tangrad.Tensor) -> float:
        """Return the share of images that are read correctly."""
        self.model.eval()
        return (self.model(images).argmax(1) == digits).float().mean().item()


def load_digits() -> tuple[tangrad.Tensor, tangrad.Tensor]:
    """Return the images, (1797, 1, 8, 8) with values in [0, 1], and the digits."""
    with gzip.open(DATA, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    images = tangrad.from_numpy(table[:, :64].astype(np.float32) / 16)
    return images.reshape(-1, 1, 8, 8), tangrad.from_numpy(table[:, 64].copy())


def draw(through: list[float], resumed: list[float], half: int, path: Path) -> None:
    """Draw both loss curves into the PNG file `path`."""
    try:
        import matplotlib
    except ImportError:
        print(f"{path} is not drawn: that takes matplotlib (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    axes.semilogy(range(1, len(through) + 1), through, linewidth=3, label="without a break")
    axes.semilogy(range(1, len(resumed) + 1), resumed, linewidth=1, label="with a checkpoint")
    axes.axvline(half + 0.5, color="gray", linestyle=":", label="checkpoint")
    axes.set(xlabel="step", ylabel="cross entropy", title="Training broken off and resumed")
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"both loss curves: {path}")


def main(arguments: list[str] | None = None) -> tuple[list[float], list[float], float]:
    parser = argparse.ArgumentParser(description="Train, save, load and go on.")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the training images")
    parser.add_argument("--checkpoint", type=Path, default=Path("resume.pt"), help="file to write")
    parser.add_argument("--out", type=Path, default=Path("resume.png"), help="picture to write")
    options = parser.parse_args(arguments)
    if options.epochs < 2:
        parser.error("--epochs must be at least 2")

    images, digits = load_digits()
    held_back = tangrad.arange(len(images)) % 5 == 0
    training = images[~held_back], digits[~held_back]
    half = options.epochs // 2

    tangrad.manual_seed(0)
    whole = Training(options.epochs)
    first = whole.run(*training, half)
    tangrad.save(whole.state(), options.checkpoint)
    through = first + whole.run(*training, options.epochs - half)

    resumed = Training(options.epochs)
    resumed.restore(tangrad.load(options.checkpoint))
    again = first + resumed.run(*training, options.epochs - half)

    accuracy = resumed.accuracy(images[held_back], digits[held_back])
    same = "the same" if through == again else "NOT the same"
    print(f"{len(through)} steps, {accuracy:.1%} of {int(held_back.sum())} held-back digits")
    print(f"losses after the checkpoint: {same} as without a break")
    draw(through, again, len(first), options.out)
    return through, again, accuracy


if __name__ == "__main__":
    main()
