"""Programs that both libraries trace: each takes the module `torch` that it is written against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def convolutional(torch: Any) -> Any:
    """Return a module with a parameter, a buffer, a container and a constant of its own."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.ReLU())
            self.scale = torch.nn.Parameter(torch.ones(3, 1, 1))
            self.register_buffer("shift", torch.full((3, 1, 1), 0.5))

        def forward(self, x):  # type: ignore[no-untyped-def]
            hidden = self.blocks(x) * self.scale + self.shift
            hidden = torch.cat([hidden, -hidden], dim=1)[:, 1:5]
            mean = hidden.mean((2, 3)) + torch.ones(4)
            return {"mean": mean, "pair": (hidden.flatten(1), [mean.shape[0], 2**mean])}

    return Net()


def unpacking(torch: Any) -> Any:
    """Return a function that unpacks, indexes and compares."""

    def program(x, y=2, *rest, scale=3.0, **more):  # type: ignore[no-untyped-def]
        a, b = torch.chunk(x, 2)
        mask = (a > 0) & (b <= y)
        c = torch.where(mask, a, b) // 2 - rest[0] + more["z"]
        return abs(c) ** scale @ x.T, torch.stack([c, c], 1), x.size(0), math.inf * c

    return program


def functions(torch: Any) -> Any:
    """Return a function that calls functions of several modules by several forms."""

    def program(x):  # type: ignore[no-untyped-def]
        y = torch.add(x, 1, alpha=2).clamp(min=0)
        y = y.to(torch.float64).contiguous(memory_format=torch.contiguous_format)
        z = torch.zeros(x.shape[0], dtype=torch.float64, device=torch.device("cpu"))
        return torch.einsum("ij,i->j", y, z + 1), torch.linalg.norm(y), y.max(dim=1)[0]

    return program


def nested(torch: Any) -> Any:
    """Return a module in modules, one of them called twice."""

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.drop(self.inner(self.inner(x)))

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Twice(), torch.nn.ModuleList([Twice(), Twice()])

        def forward(self, x):  # type: ignore[no-untyped-def]
            for block in (self.one, *self.two):
                x = x + block(x)
            return x

    return Outer()


PROGRAMS: dict[str, tuple[Callable[[Any], Any], tuple[tuple[int, ...], ...]]] = {
    "convolutional": (convolutional, ((2, 2, 4, 4),)),
    "functions": (functions, ((3, 5),)),
    "nested": (nested, ((2, 4),)),
}
