"""Export a model to ONNX, run it in onnxruntime, and train a loaded one further.

pip install "tangrad[cpu,onnx]" onnxruntime
python examples/onnx_models.py --out digits.onnx
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import tangrad
from tangrad import nn
from tangrad.export import Dim

CLASSES, FEATURES = 4, 16


def clusters(count: int, seed: int) -> tuple[tangrad.Tensor, tangrad.Tensor]:
    """Return points around the corners of a cube, and which corner each is near."""
    generator = tangrad.Generator().manual_seed(seed)
    corners = tangrad.eye(CLASSES, FEATURES) * 3
    labels = tangrad.arange(count) % CLASSES
    return corners[labels] + tangrad.randn(count, FEATURES, generator=generator), labels


def train(model: nn.Module, steps: int) -> list[float]:
    """Train a classifier; return its losses."""
    x, y = clusters(256, seed=0)
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(arguments: Sequence[str] | None = None) -> tuple[list[float], list[float]]:
    """Run the example and return the losses before and after the way through a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("classifier.onnx"))
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args(arguments)
    tangrad.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.GELU(), nn.Linear(32, CLASSES))
    before = train(model, options.steps)

    x, y = clusters(64, seed=1)
    program = tangrad.onnx.export(
        model, (x[:1],), options.out, dynamic_shapes=({0: Dim("points")},), verify=True
    )
    (scores,) = program(x)
    print(f"{options.out}: {(scores.argmax(1) == y).float().mean().item():.0%} of new points right")

    loaded = tangrad.onnx.load(options.out)
    print(loaded.code)
    after = train(loaded, options.steps)
    print(f"loss {before[0]:.3f} -> {before[-1]:.3f}, loaded {after[0]:.3f} -> {after[-1]:.3f}")
    return before, after


if __name__ == "__main__":
    main()
