"""Random networks of sequences, for PyTorch and for tangrad: embeddings, bags, LSTMs and GRUs."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

import tangrad

WORDS, STEPS, EXAMPLES = 13, 4, 3


class Recurrent(NamedTuple):
    """A recurrent layer.

    Attributes:
        kind: "LSTM" or "GRU".
        said: its arguments but the first two.
    """

    kind: str
    said: dict[str, Any]


class Sequence(NamedTuple):
    """The description of a network for sequences.

    Attributes:
        start: "Embedding", "EmbeddingBag" or "numbers".
        features: of what goes into the first recurrent or linear layer.
        recurrent: layers in their order; none behind a bag.
        hidden: of each of them.
        linear: outputs of the linear layers behind.
    """

    start: str
    features: int
    recurrent: list[Recurrent]
    hidden: list[int]
    linear: list[int]


def sequence(rng: random.Random, kinds: tuple[str, ...] = ("LSTM", "GRU")) -> Sequence:
    """Return the description of a random network.

    Args:
        rng: the generator.
        kinds: the recurrent layers that may stand in it.
    """
    start = rng.choice(["Embedding", "EmbeddingBag", "numbers"])
    features = rng.randint(2, 12)
    count = 0 if start == "EmbeddingBag" or not kinds else rng.randint(1, 2)
    layers = [
        Recurrent(
            rng.choice(kinds),
            {
                "num_layers": rng.choice([1, 1, 2]),
                "bidirectional": rng.random() < 0.4,
                "batch_first": rng.random() < 0.4,
            },
        )
        for _ in range(count)
    ]
    hidden = [rng.randint(2, 9) for _ in layers]
    return Sequence(start, features, layers, hidden, [rng.randint(1, 7) for _ in range(2)])


def maker(described: Sequence, static: bool) -> Any:
    """Return a function `(nn, quantization) -> model` for `models`.

    Args:
        described: the network.
        static: with stubs around what computes on quantized tensors.
    """

    def make(nn: Any, q: Any) -> Any:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                if described.start != "numbers":
                    said = {"mode": "sum"} if described.start == "EmbeddingBag" else {}
                    self.start = getattr(nn, described.start)(WORDS, described.features, **said)
                width = described.features
                layers = []
                for (kind, said), hidden in zip(described.recurrent, described.hidden, strict=True):
                    layers.append(getattr(nn, kind)(width, hidden, **said))
                    width = hidden * (2 if said["bidirectional"] else 1)
                self.layers = nn.ModuleList(layers)
                sizes = [width, *described.linear]
                self.head = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
                if static:
                    self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()

            def forward(self, x: Any) -> Any:
                x = x if described.start == "numbers" else self.start(x)
                x = self.quant(x) if static else x
                for layer in self.layers:
                    x = layer(x)[0]
                for layer in self.head:
                    x = layer(x)
                return self.dequant(x) if static else x

        return Net()

    return make


def inputs(described: Sequence, seed: int, count: int = 2) -> list[np.ndarray]:
    """Return inputs of a network: words, or numbers of a random spread."""
    rng = np.random.default_rng(seed)
    if described.start != "numbers":
        # A bag is a row, and a word of a sequence is a row of a step.
        return [rng.integers(0, WORDS, (STEPS, EXAMPLES)) for _ in range(count)]
    spread = rng.uniform(0.1, 3)
    shape = (STEPS, EXAMPLES, described.features)
    return [(rng.standard_normal(shape) * spread).astype("float32") for _ in range(count)]


def framework(q: Any) -> Any:
    """Return torch or tangrad, whose `ao.quantization` is given."""
    return torch if q.__name__.startswith("torch") else tangrad
