"""What a workload is: one statement that every framework with PyTorch's API runs alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy

Prepare = Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Cost:
    """What a workload cannot do without, whoever computes it.

    Attributes:
        nbytes: read and written at least once, each operand and result counted once.
        flops: of the direct algorithm, a multiplication and an addition counted as two.
        kind: the dtype in which the flops are done.
    """

    nbytes: float = 0
    flops: float = 0
    kind: str = "float32"


@dataclass(frozen=True)
class Workload:
    """A statement to time, and what it has to reach.

    Attributes:
        name: what it is called, unique within its group.
        statement: Python source over what `prepare(fw)` returns and `fw`, the framework.
        prepare: make what the statement uses, of the same values in every framework.
        amd: the goal on AMD: our time over PyTorch's. intel: the same on Intel, if it differs.
        cost: what the physical limit follows from.
        numpy: the statement for NumPy, whose names are the same tensors as arrays; empty if none.
        xla: whether JAX compiles NumPy's statement as well.
        peers: other opponents by name; each function returns what to time.
        repeats: how many times the measured thing happens within the statement.
        checked: whether our result must equal PyTorch's. Random results need not.
        tolerance: of that comparison, relative to the largest value.
    """

    name: str
    statement: str
    prepare: Prepare
    amd: float | None = None
    intel: float | None = None
    cost: Cost = field(default_factory=Cost)
    numpy: str = ""
    xla: bool = False
    peers: Mapping[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)
    repeats: int = 1
    checked: bool = True
    tolerance: float = 0.01

    def goal(self, vendor: str) -> float | None:
        """Return the goal on processors of a vendor."""
        return self.intel if vendor == "Intel" and self.intel is not None else self.amd


def threads() -> int:
    """Return how many threads every framework may use."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


@lru_cache(maxsize=4)
def normal(shape: tuple[int, ...], seed: int = 0) -> numpy.ndarray:
    """Return float32 numbers that are the same in every framework and every run."""
    generator = numpy.random.default_rng(seed)
    return generator.standard_normal(shape, dtype=numpy.float32)


def inputs(
    leaves: str = "", dtype: str = "float32", positive: bool = False, **shapes: tuple[int, ...]
) -> Prepare:
    """Prepare tensors of normal numbers.

    Args:
        leaves: names, separated by blanks, of tensors that ask for a gradient.
        dtype: of all of them.
        positive: whether to take absolute values, off zero.
        shapes: by name.
    """

    def prepare(fw: Any) -> dict[str, Any]:
        made = {}
        for seed, (name, shape) in enumerate(shapes.items()):
            values = normal(shape, seed)
            values = numpy.abs(values) + 0.1 if positive else values
            tensor = fw.tensor(values)
            tensor = tensor if dtype == "float32" else tensor.to(getattr(fw, dtype))
            made[name] = tensor.requires_grad_() if name in leaves.split() else tensor
        return made

    return prepare


def integers(high: int, shape: tuple[int, ...]) -> numpy.ndarray:
    """Return integers from 0 to `high`, exclusive, the same in every framework."""
    return numpy.random.default_rng(0).integers(0, high, shape)


def fill(fw: Any, module: Any) -> Any:
    """Give a module the parameters that it has in every framework; return it.

    Vectors of weights belong to normalisations and stay what they are: ones.
    """
    pool = normal((1 << 20,))
    with fw.no_grad():
        for name, parameter in module.named_parameters():
            shape = tuple(parameter.shape)
            count = parameter.numel()
            bias = name.rpartition(".")[2].startswith("bias")
            if len(shape) < 2 and not bias:
                continue
            scale = 0.01 if bias else (count / shape[0]) ** -0.5
            values = numpy.resize(pool, count).reshape(shape) * numpy.float32(scale)
            parameter.copy_(fw.from_numpy(values))
    return module
