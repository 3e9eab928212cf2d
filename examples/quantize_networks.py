"""Train four networks, quantize each, and see what is lost: the table of docs/quantization.md.

A convolutional network reads handwritten digits; a residual network of twenty layers tells shapes
that are drawn here, small, turned and noisy; a small GPT and an LSTM predict the next character of
Python's own reference. Nothing is downloaded.

    python examples/quantize_networks.py --only shapes
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import char_gpt
import digits
import quantize_digits

import tangrad
from tangrad import nn
from tangrad.ao import quantization as q
from tangrad.ao.quantization import quantize_fx
from tangrad.nn import functional as F
from tangrad.utils.data import TensorDataset
from tangrad_quantization.weights_only import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

SIZE, SHAPES = 20, 6


class Row(NamedTuple):
    """One line of the table."""

    network: str
    form: str
    score: float
    float_score: float
    allowed: str
    kept: bool

    def __str__(self) -> str:
        return (
            f"{self.network:10} {self.form:28} {self.score:9.4f} {self.float_score:9.4f}  "
            f"{self.allowed:22} {'yes' if self.kept else 'NO'}"
        )


def points(network: str, form: str, score: float, before: float, allowed: float) -> Row:
    """Return the line of an accuracy, of which so many points may be lost."""
    kept = 100 * (before - score) <= allowed
    return Row(network, form, score, before, f"{allowed} points", kept)


def perplexity(network: str, form: str, score: float, before: float, allowed: float) -> Row:
    """Return the line of a perplexity, which may grow by so many percent."""
    kept = 100 * (score / before - 1) <= allowed
    return Row(network, form, score, before, f"+{allowed} % perplexity", kept)


# --- digits: eager, static and trained ----------------------------------------------------------


def digit_rows(steps: float) -> list[Row]:
    """Quantize the network that reads digits, statically and trained on."""
    data = digits.hold_back_a_fifth(*digits.load_digits("cpu"))
    model = quantize_digits.network()
    quantize_digits.train(model, data[0], max(1, round(12 * steps)), 4e-3)
    before = quantize_digits.accuracy(model, data[1])
    static = quantize_digits.quantized_statically(model, data[0])
    trained = quantize_digits.trained_quantized(model, data[0], max(1, round(3 * steps)))
    return [
        points("digits", "static int8", quantize_digits.accuracy(static, data[1]), before, 0.5),
        points("digits", "trained int8", quantize_digits.accuracy(trained, data[1]), before, 0.2),
    ]


# --- shapes: graph mode, static and trained -----------------------------------------------------


def drawn(count: int, seed: int) -> TensorDataset:
    """Draw discs, rings, squares, frames, triangles and crosses: turned, of any size, in noise."""
    tangrad.manual_seed(seed)
    kinds = tangrad.randint(SHAPES, (count,))
    line = tangrad.linspace(-1, 1, SIZE)
    x, y = line[None, None, :], line[None, :, None]
    angle, radius = (tangrad.rand(count, 1, 1) * s + b for s, b in ((6.28, 0.0), (0.3, 0.35)))
    left, top = (tangrad.rand(count, 1, 1) * 0.5 - 0.25 for _ in range(2))
    u = ((x - left) * angle.cos() + (y - top) * angle.sin()) / radius
    v = ((y - top) * angle.cos() - (x - left) * angle.sin()) / radius
    round_, square = (u * u + v * v).sqrt(), tangrad.maximum(u.abs(), v.abs())
    triangle = tangrad.maximum(v - 0.6, u.abs() * 0.87 - v * 0.5 - 0.5)
    cross = tangrad.minimum(
        tangrad.maximum(u.abs() - 1, v.abs() - 0.3), tangrad.maximum(v.abs() - 1, u.abs() - 0.3)
    )
    ring, frame = (round_ - 0.8).abs() - 0.2, (square - 0.8).abs() - 0.2
    distances = tangrad.stack([round_ - 1, ring, square - 1, frame, triangle, cross])
    inside = (distances < 0).float()[kinds, tangrad.arange(count)]
    return TensorDataset((inside + 0.35 * tangrad.randn(count, SIZE, SIZE))[:, None], kinds)


class Block(nn.Module):
    """Two convolutions, added to the input."""

    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(entering, width, 3, stride, 1, bias=False)
        self.norm, self.relu = nn.BatchNorm2d(width), nn.ReLU()
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(width)
        self.short = (
            nn.Sequential(nn.Conv2d(entering, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
        """Return the sum."""
        made = self.last_norm(self.second(self.relu(self.norm(self.first(x)))))
        return F.relu(made + self.short(x))


def residual(width: int = 8) -> nn.Module:
    """Return a residual network of twenty layers (He et al., 2015), narrow."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)]
    layers.append(nn.ReLU())
    entering = width
    for stage in range(3):
        for block in range(3):
            stride = 2 if stage and not block else 1
            layers.append(Block(entering, width << stage, stride))
            entering = width << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(entering, SHAPES)]
    return nn.Sequential(*layers)


def shape_rows(steps: float) -> list[Row]:
    """Quantize the residual network by its graph, statically and trained on."""
    data, held_back = drawn(4000, 0), drawn(2000, 1)
    model = residual()
    quantize_digits.train(model, data, max(1, round(10 * steps)), 3e-3)
    before = quantize_digits.accuracy(model, held_back)
    example = (data.tensors[0][:1],)
    mapping = q.get_default_qconfig_mapping("onednn")
    prepared = quantize_fx.prepare_fx(copy.deepcopy(model).eval(), mapping, example)
    with tangrad.no_grad():
        for batch in data.tensors[0][:512].split(64):
            prepared(batch)
    static = quantize_fx.convert_fx(prepared)
    mapping = q.get_default_qat_qconfig_mapping("onednn")
    training = quantize_fx.prepare_qat_fx(copy.deepcopy(model).train(), mapping, example)
    quantize_digits.train(training, data, max(1, round(2 * steps)), 3e-4)
    trained = quantize_fx.convert_fx(training)
    return [
        points("shapes", "static int8", quantize_digits.accuracy(static, held_back), before, 0.5),
        points("shapes", "trained int8", quantize_digits.accuracy(trained, held_back), before, 0.2),
    ]


# --- text: weights alone, and dynamic -----------------------------------------------------------


def encoded() -> tuple[tangrad.Tensor, tangrad.Tensor, int]:
    """Return the text to learn from, the text held back, and the size of the alphabet."""
    text = char_gpt.load_text()
    alphabet = sorted(set(text))
    places = {character: n for n, character in enumerate(alphabet)}
    numbers = tangrad.tensor([places[character] for character in text])
    cut = len(numbers) * 9 // 10
    return numbers[:cut], numbers[cut:], len(alphabet)


@tangrad.no_grad()
def perplexity_of(model: Callable[[Any], Any], text: tangrad.Tensor) -> float:
    """Return the perplexity of pieces of a text."""
    length = char_gpt.CONTEXT
    pieces = text[: min(len(text), 200 * (length + 1)) // (length + 1) * (length + 1)]
    pieces = pieces.reshape(-1, length + 1)
    scores = model(pieces[:, :-1])
    loss = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
    return loss.exp().item()


def gpt_rows(steps: float) -> list[Row]:
    """Quantize the weights of a small GPT to 8 and 4 bits."""
    text, held_back, characters = encoded()
    model = char_gpt.CharGPT(characters)
    char_gpt.train(model, text, max(4, round(300 * steps)))
    model.eval()
    before = perplexity_of(model, held_back)
    rows = []
    for form, config, allowed in (
        ("weights of 8 bits", Int8WeightOnlyConfig(), 0.1),
        ("weights of 4 bits, groups of 32", Int4WeightOnlyConfig(group_size=32), 2.0),
    ):
        made = copy.deepcopy(model)
        quantize_(made, config)
        rows.append(perplexity("char-GPT", form, perplexity_of(made, held_back), before, allowed))
    return rows


class CharLSTM(nn.Module):
    """Predict each next character by an LSTM."""

    def __init__(self, characters: int, width: int = 128) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, text: tangrad.Tensor) -> tangrad.Tensor:
        """Return scores of what follows each character."""
        return self.head(self.lstm(self.character(text))[0])


def lstm_rows(steps: float) -> list[Row]:
    """Quantize an LSTM dynamically."""
    text, held_back, characters = encoded()
    model = CharLSTM(characters)
    char_gpt.train(model, text, max(4, round(300 * steps)))  # type: ignore[arg-type]
    model.eval()
    before = perplexity_of(model, held_back)
    made = q.quantize_dynamic(model)
    return [perplexity("LSTM", "dynamic int8", perplexity_of(made, held_back), before, 0.5)]


NETWORKS: dict[str, Callable[[float], list[Row]]] = {
    "digits": digit_rows,
    "shapes": shape_rows,
    "gpt": gpt_rows,
    "lstm": lstm_rows,
}


def main(arguments: list[str] | None = None) -> list[Row]:
    """Train and quantize; return the lines of the table."""
    parser = argparse.ArgumentParser(description="See what quantization loses.")
    parser.add_argument("--only", choices=list(NETWORKS), help="one network")
    parser.add_argument("--steps", type=float, default=1.0, help="part of the training to do")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", "Please use quant_min and quant_max")
    print(f"{'network':10} {'form':28} {'score':>9} {'float':>9}  {'may lose':22} kept")
    rows = []
    for name in [options.only] if options.only else NETWORKS:
        tangrad.manual_seed(0)
        for row in NETWORKS[name](options.steps):
            print(row, flush=True)
            rows.append(row)
    return rows


if __name__ == "__main__":
    main()
