"""Convolutions, pooling and normalisation of eight pictures.

The flops of a convolution are those of the direct algorithm: Winograd's may beat this limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workloads.workload import Cost, Prepare, Workload, inputs

FLOAT = 4
PICTURES = 8


@dataclass(frozen=True)
class Convolution:
    """A square convolution without bias, padded to keep the size.

    Attributes:
        size: of the kernel. inside, outside: channels. picture: height and width of the input.
        stride: of the kernel. groups: of channels. amd, intel: goals of the forward pass.
        backward: goals with the backward pass, empty if that is not measured.
    """

    size: int
    inside: int
    outside: int
    picture: int
    stride: int = 1
    groups: int = 1
    amd: float = 1.0
    intel: float | None = None
    backward: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Return the workload's name."""
        kernel = f"{self.size}×{self.size}{'/2' if self.stride == 2 else ''}"
        if self.groups > 1:
            return f"depthwise {kernel} {self.inside}@{self.picture}"
        return f"conv {kernel} {self.inside}→{self.outside}@{self.picture}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of input, weight and result."""
        result = self.picture // self.stride
        return {
            "x": (PICTURES, self.inside, self.picture, self.picture),
            "w": (self.outside, self.inside // self.groups, self.size, self.size),
            "g": (PICTURES, self.outside, result, result),
        }

    def cost(self, passes: int) -> Cost:
        """Return the cost: with gradients there are three products of the same size."""
        counts = [_product(shape) for shape in self.shapes.values()]
        taps = self.size**2 * self.inside / self.groups
        return Cost(FLOAT * passes * sum(counts), 2.0 * passes * counts[2] * taps)

    def call(self) -> str:
        """Return the call that convolves."""
        padding = self.size // 2
        return f"fw.nn.functional.conv2d(x, w, None, {self.stride}, {padding}, 1, {self.groups})"

    def workloads(self) -> list[Workload]:
        """Return the forward pass and, if it is measured, both."""
        forward = inputs(x=self.shapes["x"], w=self.shapes["w"])
        made = [Workload(self.name, self.call(), forward, self.amd, self.intel, self.cost(1))]
        if self.backward:
            statement = f"x.grad = w.grad = None; {self.call()}.backward(g)"
            prepare = inputs(leaves="x w", **self.shapes)
            made.append(Workload(f"{self.name}, fwd + bwd", statement, prepare, *self.backward,
                                 cost=self.cost(3)))  # fmt: skip
        return made


CONVOLUTIONS = [
    Convolution(7, 3, 64, 224, 2, amd=0.3, intel=0.35),
    Convolution(3, 64, 64, 56, amd=1.0, intel=0.9, backward=(0.9,)),
    Convolution(3, 128, 128, 28, amd=1.0),
    Convolution(3, 256, 256, 14, amd=1.0),
    Convolution(3, 512, 512, 7, amd=1.0),
    Convolution(3, 128, 128, 56, 2, amd=0.9, backward=(0.9,)),
    Convolution(1, 64, 256, 56, amd=0.2, intel=0.3),
    Convolution(1, 256, 64, 56, amd=0.6, intel=0.7, backward=(0.4, 0.5)),
    Convolution(1, 256, 1024, 14, amd=0.95),
    Convolution(1, 256, 512, 56, 2, amd=0.7, intel=0.7),
    Convolution(3, 128, 128, 56, groups=128, amd=0.3, intel=0.3, backward=(0.3, 0.2)),
    Convolution(3, 512, 512, 14, groups=512, amd=0.7),
]


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


STEM = (PICTURES, 64, 112, 112)
MAPS = (PICTURES, 64, 56, 56)


def leaf(fw: Any) -> dict[str, Any]:
    return {**inputs(leaves="x", x=MAPS)(fw), "functional": fw.nn.functional}


def with_functional(shape: tuple[int, ...]) -> Prepare:
    return lambda fw: {**inputs(x=shape)(fw), "functional": fw.nn.functional}


def batch_norm(training: bool, leaves: str = "") -> Prepare:
    def prepare(fw: Any) -> dict[str, Any]:
        layer = fw.nn.BatchNorm2d(MAPS[1])
        layer.train(training)
        return {"layer": layer, **inputs(leaves=leaves, x=MAPS, g=MAPS)(fw)}

    return prepare


def pooling() -> list[Workload]:
    """Return pooling, forward and with its gradient."""
    maps, stem, count = with_functional(MAPS), with_functional(STEM), _product(MAPS)
    quarter = Cost(FLOAT * count * 5 / 4)
    both = Cost(FLOAT * count * 9 / 4)
    return [
        Workload("max_pool 2×2 64@56", "functional.max_pool2d(x, 2)", maps, 0.05, cost=quarter),
        Workload("max_pool 3×3/2 64@112", "functional.max_pool2d(x, 3, 2, 1)", stem, 0.2,
                 cost=Cost(FLOAT * _product(STEM) * 5 / 4)),
        Workload("avg_pool 2×2 64@56", "functional.avg_pool2d(x, 2)", maps, 0.1, cost=quarter),
        Workload("max_pool 2×2 64@56, fwd + bwd",
                 "x.grad = None; functional.max_pool2d(x, 2).sum().backward()", leaf, 0.15,
                 cost=both),
        Workload("avg_pool 2×2 64@56, fwd + bwd",
                 "x.grad = None; functional.avg_pool2d(x, 2).sum().backward()", leaf, 0.15,
                 cost=both),
    ]  # fmt: skip


def normalisation() -> list[Workload]:
    """Return batch and group normalisation."""
    count = _product(MAPS)
    copied = Cost(2 * FLOAT * count)
    backward = "layer.zero_grad(); x.grad = None; layer(x).backward(g)"
    group = "functional.group_norm(x, 8)"
    return [
        Workload("batch_norm train 64@56", "layer(x)", batch_norm(True), 0.3, cost=copied),
        Workload("batch_norm train 64@56, fwd + bwd", backward, batch_norm(True, "x"), 0.4,
                 cost=Cost(5 * FLOAT * count)),
        Workload("batch_norm eval 64@56", "layer(x)", batch_norm(False), 1.0, cost=copied),
        Workload("group_norm 64@56", group, with_functional(MAPS), 0.9, cost=copied),
    ]  # fmt: skip


def resampling() -> list[Workload]:
    """Return what changes the size of pictures."""
    maps, count = with_functional((PICTURES, 64, 28, 28)), PICTURES * 64 * 28 * 28
    transposed = inputs(x=(PICTURES, 64, 28, 28), w=(64, 32, 4, 4))
    return [
        Workload("bilinear ×2 64@28",
                 "functional.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)",
                 maps, 0.3, cost=Cost(5 * FLOAT * count)),
        Workload("unfold 3×3 64@28", "functional.unfold(x, 3, padding=1)", maps, 0.3,
                 cost=Cost(10 * FLOAT * count)),
        Workload("conv_transpose 4×4/2 64→32@28",
                 "fw.nn.functional.conv_transpose2d(x, w, None, 2, 1)", transposed, 1.0,
                 cost=Cost(FLOAT * count * 3, 2.0 * count * 32 * 16)),
    ]  # fmt: skip


WORKLOADS = [
    *(workload for convolution in CONVOLUTIONS for workload in convolution.workloads()),
    *pooling(),
    *normalisation(),
    *resampling(),
]
