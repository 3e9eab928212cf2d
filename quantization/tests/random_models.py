"""Random networks, their calibration data and configurations, for PyTorch and for tangrad alike."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

import tangrad

# Of one tensor [batch, channels, height, width], without a weight.
POINTWISE = ("relu", "relu6", "hardtanh", "leaky_relu", "hardswish", "elu", "sigmoid", "tanh")
# Averages are left out: PyTorch's are at times one step beside (docs/quantization.md).
POOLS = ("max_pool2d",)


class Step(NamedTuple):
    """One step of a network.

    Attributes:
        kind: "conv", a name of `POINTWISE` or `POOLS`, "add", "mul" or "cat".
        said: what belongs to it: arguments of the layer, or the earlier step.
        follows: of convolutions, "", "bn", "relu" or "bn relu".
    """

    kind: str
    said: dict[str, Any]
    follows: str = ""


class Network(NamedTuple):
    """The description of a network.

    Attributes:
        channels: of the input.
        steps: what it does.
        features: size of the vector before the last layers.
        hidden: outputs of linear layers, the last of them the network's.
    """

    channels: int
    steps: list[Step]
    features: int
    hidden: list[int]


def network(
    rng: random.Random,
    pointwise: tuple[str, ...] = POINTWISE,
    joins: tuple[str, ...] = ("add", "mul", "cat"),
) -> Network:
    """Return the description of a random network for images of 8 by 8.

    Args:
        rng: the generator.
        pointwise: functions of one tensor that may stand in it.
        joins: functions of two tensors.
    """
    channels = first = rng.choice([1, 2, 3, 4, 8])
    size, steps, shapes = 8, [], []
    for _ in range(rng.randint(1, 5)):
        step = _step(rng, channels, size, shapes, pointwise, joins)
        steps.append(step)
        if step.kind == "conv":
            channels = step.said["out_channels"]
            size = (size + 2 * step.said["padding"] - step.said["kernel_size"]) // step.said[
                "stride"
            ] + 1
        elif step.kind in POOLS:
            size = (size - 2) // 2 + 1
        elif step.kind == "cat":
            channels += shapes[step.said["with"]][0]
        shapes.append((channels, size))
    hidden = [rng.randint(1, 12) for _ in range(rng.randint(1, 2))]
    return Network(first, steps, channels * size * size, hidden)


def _step(rng: Any, channels: int, size: int, shapes: Any, pointwise: Any, joins: Any) -> Step:
    kinds = ["conv"] * 4 + ["pointwise"] * 2 + (["pool"] if size >= 4 else [])
    same = [n for n, shape in enumerate(shapes[:-1]) if shape == (channels, size)]
    kinds += ["add", "mul"] if same else []
    joined = [n for n, shape in enumerate(shapes[:-1]) if shape[1] == size]
    kinds += ["cat"] if joined and "cat" in joins else []
    kind = rng.choice(kinds)
    if kind == "conv":
        # Depthwise ones are left out: PyTorch's saturate in 16 bits (docs/quantization.md).
        groups = 2 if channels in (4, 6, 8) and rng.random() < 0.3 else 1
        kernel = rng.choice([1, 3] if size >= 3 else [1])
        said = {
            "in_channels": channels,
            "out_channels": groups * rng.randint(1, max(1, 8 // groups)),
            "kernel_size": kernel,
            "stride": rng.choice([1, 1, 2]),
            "padding": rng.choice([0, 1]) if kernel == 3 else 0,
            "groups": groups,
            "bias": rng.random() < 0.7,
        }
        return Step("conv", said, rng.choice(["", "bn", "relu", "bn relu"]))
    if kind == "pool":
        return Step(rng.choice(POOLS), {})
    if kind == "pointwise":
        return Step(rng.choice(pointwise), {})
    return Step(kind, {"with": rng.choice(joined if kind == "cat" else same)})


def _layer(nn: Any, step: Step) -> Any:
    if step.kind == "conv":
        conv = nn.Conv2d(**step.said)
        parts = [conv]
        for name in step.follows.split():
            parts.append(nn.BatchNorm2d(conv.out_channels) if name == "bn" else nn.ReLU())
        return nn.Sequential(*parts)
    made = {
        "relu": nn.ReLU, "relu6": nn.ReLU6, "hardtanh": nn.Hardtanh, "leaky_relu": nn.LeakyReLU,
        "hardswish": nn.Hardswish, "elu": nn.ELU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh,
    }  # fmt: skip
    if step.kind in made:
        return made[step.kind]()
    if step.kind in POOLS:
        return nn.MaxPool2d(2)
    return nn.Identity()


def maker(described: Network, eager: bool) -> Any:
    """Return a function `(nn, quantization) -> model` for `models`.

    Args:
        described: the network.
        eager: with stubs and functional modules, as the eager workflow needs them.
    """

    def make(nn: Any, q: Any) -> Any:
        framework = torch if nn is torch.nn else tangrad
        functional = framework.ao.nn.quantized.FloatFunctional if eager else None

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.steps = nn.ModuleList([_layer(nn, step) for step in described.steps])
                sizes = [described.features, *described.hidden]
                self.head = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
                if eager:
                    self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
                    joins = [s.kind in ("add", "mul", "cat") for s in described.steps]
                    self.joins = nn.ModuleList(
                        [functional() if joined else nn.Identity() for joined in joins]
                    )

            def join(self, n: int, kind: str, x: Any, y: Any) -> Any:
                if eager:
                    join = self.joins[n]
                    return join.cat([x, y], 1) if kind == "cat" else getattr(join, kind)(x, y)
                if kind == "cat":
                    return framework.cat([x, y], 1)
                return x + y if kind == "add" else x * y

            def forward(self, x: Any) -> Any:
                x = self.quant(x) if eager else x
                seen: list[Any] = []
                for n, step in enumerate(described.steps):
                    if step.kind in ("add", "mul", "cat"):
                        x = self.join(n, step.kind, x, seen[step.said["with"]])
                    else:
                        x = self.steps[n](x)
                    seen.append(x)
                x = framework.flatten(x, 1)
                for layer in self.head:
                    x = layer(x)
                return self.dequant(x) if eager else x

        return Net()

    return make


def chains(described: Network) -> list[list[str]]:
    """Return the names of the modules that the eager workflow fuses."""
    return [
        [f"steps.{n}.{k}" for k in range(1 + len(step.follows.split()))]
        for n, step in enumerate(described.steps)
        if step.follows
    ]


def qconfig(rng: random.Random, q: Any, full: bool) -> Any:
    """Return a random static configuration; the same for both sides by the same generator.

    Args:
        rng: the generator.
        q: `ao.quantization` of a side.
        full: whether activations may use all 8 bits, which PyTorch's kernels without VNNI do not
            take without saturating.
    """
    framework = torch if q.__name__.startswith("torch") else tangrad
    symmetric = framework.per_tensor_symmetric
    kinds = (q.MinMaxObserver, q.MovingAverageMinMaxObserver, q.HistogramObserver)
    observer = rng.choice(kinds)
    highest = rng.choice([127, 255] if full else [127])
    activation = observer.with_args(
        dtype=framework.quint8,
        qscheme=rng.choice([framework.per_tensor_affine, symmetric]),
        quant_min=0,
        quant_max=highest,
    )
    weights = (
        q.default_weight_observer,
        q.default_per_channel_weight_observer,
        q.MinMaxObserver.with_args(dtype=framework.qint8, qscheme=framework.per_tensor_affine),
    )
    return q.QConfig(activation=activation, weight=rng.choice(weights))


def batches(seed: int, channels: int, count: int = 2) -> list[np.ndarray]:
    """Return calibration data of a random spread and offset."""
    rng = np.random.default_rng(seed)
    spread, offset = rng.uniform(0.1, 4), rng.uniform(-2, 2)
    return [
        (rng.standard_normal((2, channels, 8, 8)) * spread + offset).astype("float32")
        for _ in range(count)
    ]
