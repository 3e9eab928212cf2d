"""Steps of training as many programs make them: what an author's kernels are needed for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import nn

STEPS = 2


def mlp() -> tuple[Any, Any]:
    """Return a classifier of rows, and a batch."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    return model, tangrad.randn(32, 64)


def cnn() -> tuple[Any, Any]:
    """Return a classifier of images, and a batch."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return model, tangrad.randn(4, 1, 12, 12)


class Transformer(nn.Module):
    """Embed tokens, attend once, tell the next."""

    def __init__(self, words: int = 50, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Any) -> Any:
        """Return logits of every place."""
        return self.head(self.layer(self.embed(tokens))).flatten(0, 1)


def transformer() -> tuple[Any, Any]:
    """Return a model of sequences, and a batch."""
    return Transformer(), tangrad.randint(0, 50, (2, 9))


MODELS: dict[str, tuple[Callable[[], tuple[Any, Any]], Callable[..., Any]]] = {
    "MLP": (mlp, tangrad.optim.SGD),
    "CNN": (cnn, tangrad.optim.Adam),
    "Transformer": (transformer, tangrad.optim.AdamW),
}


def train(name: str, device: str) -> None:
    """Make two steps of one of `MODELS` on a device."""
    build, optimizer_class = MODELS[name]
    tangrad.manual_seed(0)
    model, batch = build()
    model, batch = model.to(device), batch.to(device)
    optimizer = optimizer_class(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        logits = model(batch)
        labels = tangrad.arange(logits.shape[0], device=device) % 10
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
