"""Modules of `torch.nn` with inputs of three sizes, for a table in which none is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

SIZES = ("small", "middling", "large")


@dataclass(frozen=True)
class Case:
    """A module and what it is called with.

    Attributes:
        make: an expression of `nn`, the namespace of modules.
        shapes: of the first input, by size.
        kind: what further inputs there are: "" none, "loss" a target of the same shape, "classes"
            a target of class numbers, "pair" the same input again, "ids" the input is of numbers
            below 100.
    """

    make: str
    shapes: tuple[tuple[int, ...], ...]
    kind: str = ""


_FLAT = ((16, 64), (64, 1024), (256, 4096))
_IMAGES = ((1, 8, 8, 8), (8, 32, 28, 28), (8, 64, 56, 56))
_SIGNALS = ((2, 8, 32), (8, 32, 256), (16, 64, 1024))
_VOLUMES = ((1, 4, 4, 4, 4), (2, 8, 16, 16, 16), (2, 16, 32, 32, 32))
_SEQUENCES = ((2, 8, 32), (8, 64, 128), (16, 128, 256))


def _channels(make: str, shapes: tuple[tuple[int, ...], ...], kind: str = "") -> list[Case]:
    """Return a case per size, where the module depends on the number of channels C."""
    return [Case(re.sub(r"\bC\b", str(shape[1]), make), (shape,), kind) for shape in shapes]


def _last(make: str, shapes: tuple[tuple[int, ...], ...], kind: str = "") -> list[Case]:
    """Return a case per size, where the module depends on the last size E."""
    return [Case(re.sub(r"\bE\b", str(shape[-1]), make), (shape,), kind) for shape in shapes]


def _of_size(make: str, shapes: tuple[tuple[int, ...], ...], kind: str = "") -> list[Case]:
    return [Case(make, (shape,), kind) for shape in shapes]


_ACTIVATIONS = (
    "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU "
    "ReLU ReLU6 RReLU SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Dropout "
    "AlphaDropout Identity"
).split()
_LOSSES = "MSELoss L1Loss SmoothL1Loss HuberLoss BCEWithLogitsLoss KLDivLoss SoftMarginLoss".split()

MODULES: dict[str, list[Case]] = {
    **{name: _of_size(f"nn.{name}()", _FLAT) for name in _ACTIVATIONS},
    **{name: _of_size(f"nn.{name}(-1)", _FLAT) for name in ("Softmax", "LogSoftmax", "Softmin")},
    **{name: _of_size(f"nn.{name}()", _FLAT, "loss") for name in _LOSSES},
    "CrossEntropyLoss": _of_size("nn.CrossEntropyLoss()", _FLAT, "classes"),
    "NLLLoss": _of_size("nn.NLLLoss()", _FLAT, "classes"),
    "MultiMarginLoss": _of_size("nn.MultiMarginLoss()", _FLAT, "classes"),
    "CosineSimilarity": _of_size("nn.CosineSimilarity()", _FLAT, "pair"),
    "PairwiseDistance": _of_size("nn.PairwiseDistance()", _FLAT, "pair"),
    "Linear": _last("nn.Linear(E, E)", ((16, 64), (64, 512), (256, 1024))),
    "Bilinear": _last("nn.Bilinear(E, E, 16)", ((16, 16), (64, 64), (64, 128)), "pair"),
    "LayerNorm": _last("nn.LayerNorm(E)", _FLAT),
    "RMSNorm": _last("nn.RMSNorm(E)", _FLAT),
    "Embedding": _of_size("nn.Embedding(100, 64)", ((16, 8), (64, 64), (256, 128)), "ids"),
    "EmbeddingBag": _of_size("nn.EmbeddingBag(100, 64)", ((16, 8), (64, 64), (256, 128)), "ids"),
    **{
        f"BatchNorm{d}d": _channels(f"nn.BatchNorm{d}d(C)", shapes)
        for d, shapes in ((1, _SIGNALS), (2, _IMAGES), (3, _VOLUMES))
    },
    "InstanceNorm2d": _channels("nn.InstanceNorm2d(C)", _IMAGES),
    "GroupNorm": _channels("nn.GroupNorm(4, C)", _IMAGES),
    "LocalResponseNorm": _of_size("nn.LocalResponseNorm(5)", _IMAGES),
    **{
        f"Conv{d}d": _channels(f"nn.Conv{d}d(C, C, 3, padding=1)", shapes)
        for d, shapes in ((1, _SIGNALS), (2, _IMAGES), (3, _VOLUMES))
    },
    "Conv2d, depthwise": _channels("nn.Conv2d(C, C, 3, padding=1, groups=C)", _IMAGES),
    "Conv2d, 1x1": _channels("nn.Conv2d(C, 2 * C, 1)", _IMAGES),
    "Conv2d, stride 2": _channels("nn.Conv2d(C, C, 3, 2, 1)", _IMAGES),
    "ConvTranspose1d": _channels("nn.ConvTranspose1d(C, C, 4, 2, 1)", _SIGNALS),
    "ConvTranspose2d": _channels("nn.ConvTranspose2d(C, C, 4, 2, 1)", _IMAGES),
    **{
        f"{kind}Pool{d}d": _of_size(f"nn.{kind}Pool{d}d(2)", shapes)
        for kind in ("Max", "Avg")
        for d, shapes in ((1, _SIGNALS), (2, _IMAGES), (3, _VOLUMES))
    },
    "MaxPool2d, 3x3": _of_size("nn.MaxPool2d(3, 2, 1)", _IMAGES),
    "LPPool2d": _of_size("nn.LPPool2d(2, 2)", _IMAGES),
    "AdaptiveAvgPool2d": _of_size("nn.AdaptiveAvgPool2d(7)", _IMAGES),
    "AdaptiveMaxPool2d": _of_size("nn.AdaptiveMaxPool2d(7)", _IMAGES),
    "Upsample, nearest": _of_size("nn.Upsample(scale_factor=2)", _IMAGES),
    "Upsample, bilinear": _of_size("nn.Upsample(scale_factor=2, mode='bilinear')", _IMAGES),
    "Upsample, bicubic": _of_size("nn.Upsample(scale_factor=2, mode='bicubic')", _IMAGES),
    "PixelShuffle": _of_size("nn.PixelShuffle(2)", _IMAGES),
    "PixelUnshuffle": _of_size("nn.PixelUnshuffle(2)", _IMAGES),
    "ChannelShuffle": _of_size("nn.ChannelShuffle(4)", _IMAGES),
    "Unfold": _of_size("nn.Unfold(3, padding=1)", _IMAGES),
    "ReflectionPad1d": _of_size("nn.ReflectionPad1d(2)", _SIGNALS),
    "ReflectionPad2d": _of_size("nn.ReflectionPad2d(1)", _IMAGES),
    "ReplicationPad2d": _of_size("nn.ReplicationPad2d(1)", _IMAGES),
    "ZeroPad2d": _of_size("nn.ZeroPad2d(1)", _IMAGES),
    "CircularPad2d": _of_size("nn.CircularPad2d(1)", _IMAGES),
    "RNN": _last("nn.RNN(E, E, batch_first=True)", _SEQUENCES),
    "LSTM": _last("nn.LSTM(E, E, batch_first=True)", _SEQUENCES),
    "GRU": _last("nn.GRU(E, E, batch_first=True)", _SEQUENCES),
    "LSTMCell": _last("nn.LSTMCell(E, E)", ((16, 64), (64, 256), (256, 512))),
    "GRUCell": _last("nn.GRUCell(E, E)", ((16, 64), (64, 256), (256, 512))),
    "TransformerEncoderLayer": _last(
        "nn.TransformerEncoderLayer(E, 4, 4 * E, 0.0, batch_first=True)", _SEQUENCES
    ),
    "TransformerDecoderLayer": _last(
        "nn.TransformerDecoderLayer(E, 4, 4 * E, 0.0, batch_first=True)", _SEQUENCES, "pair"
    ),
}


def arguments(library: Any, case: Case, channels_last: bool) -> list[Any]:
    """Return the inputs of a case in a library, of the same numbers in each."""
    import numpy as np

    g = np.random.default_rng(1)
    shape = case.shapes[0]
    if case.kind == "ids":
        return [library.from_numpy(g.integers(0, 100, shape))]
    x = library.from_numpy(g.standard_normal(shape).astype("float32"))
    if channels_last and x.ndim == 4:
        x = x.contiguous(memory_format=library.channels_last)
    if case.kind == "loss":
        return [x, library.from_numpy(g.random(shape).astype("float32"))]
    if case.kind == "classes":
        return [x, library.from_numpy(g.integers(0, shape[1], shape[:1]))]
    if case.kind == "pair":
        return [x, library.from_numpy(g.standard_normal(shape).astype("float32"))]
    return [x]
