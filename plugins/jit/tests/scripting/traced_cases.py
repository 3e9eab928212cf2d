"""Programs that are traced on both sides, and call scripts whose branches depend on values."""

# ruff: noqa: UP006, UP035
from typing import Dict, List, Tuple

import scripted_side as torch
from scripted_side import Tensor, nn

CASES = []


def case(*inputs):
    """Add a program to trace on the first of some inputs, and to call on all."""

    def add(program):
        CASES.append((program.__name__, program, inputs))
        return program

    return add


def up(*shape):
    """Return a tensor whose sum is positive."""
    return torch.arange(1, 1 + int(torch.ones(shape).sum())).reshape(shape).float()


@torch.jit.script
def turned(x: Tensor, n: int = 2) -> Tensor:
    if bool(x.sum() > 0):
        x = x * 2
    else:
        x = x - 1
    for i in range(n):
        x = x + i
    return x


@torch.jit.script
def parted(x: Tensor) -> Tuple[Tensor, List[Tensor], Dict[str, Tensor]]:
    if bool(x[0] > 0):
        return x + 1, [x, x * 2], {"a": x}
    return x - 1, [-x, x * 3], {"a": x + 5}


@torch.jit.script
def parted_by(x: Tensor, held: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return held + 1
    return held - x


@torch.jit.script
def counted(x: Tensor) -> int:
    n = 0
    while bool(x.sum() > n):
        n += 1
    return n


@torch.jit.script
def written(x: Tensor, by: Tensor) -> Tensor:
    if bool(by.sum() > 0):
        return x.add_(by)
    return x.mul_(2)


@torch.jit.script_if_tracing
def only_in_traces(x: Tensor) -> Tensor:
    y = x
    while bool(y.sum() < 10):
        y = y + 1
    return y


@case([up(3)], [-up(3)], [up(5)])
def function(x):
    return turned(x + 1) * 3 - turned(x, 1)


@case([up(3)], [-up(3)])
def several(x):
    one, listed, named = parted(x)
    return one + listed[1], named["a"] * listed[0]


@case([up(2)], [-up(2)], [up(4)])
def if_tracing(x):
    return only_in_traces(x * 0.5) + x.size(0)


@case([up(2), up(2)], [up(2), -up(2)])
def in_place(x, y):
    z = x * 1
    written(z, y)
    z[0] = 7
    written(z[1:], y[1:])
    return z


@case([up(2, 3)], [-up(3, 2)], [up(4, 3)])
def of_sizes(x):
    y = turned(x.view(x.shape[0] * x.size(1)), 1)
    return y.reshape(x.size(1), -1), torch.zeros(x.shape[0], 2)


@case([(up(2), [up(2), -up(2)])], [(-up(2), [-up(2), up(2)])])
def of_nested(given):
    x, (y, z) = given
    return turned(x) + turned(y), turned(z)


@case([up(3)], [-up(3)])
def of_constants(x):
    held = torch.tensor([1.0, 2.0, 3.0]) * 1
    held += turned(x)
    return held, torch.stack([held, x]), torch.cat((x, held), 0)


HELD = torch.ones(3) * 4


@case([up(3)], [-up(3)])
def of_what_is_held(x):
    return parted_by(x - 1.0, HELD) + 1.0


INNER = torch.jit.trace(function, (up(3),))


@case([up(3)], [-up(3)])
def of_traced(x):
    return INNER(x) + 1


@torch.jit.script
def scripted_around(x: Tensor) -> Tensor:
    if bool(x[0] > 2):
        return INNER(x)
    return INNER(-x) + 1


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3) * 2)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x[0].sum() > 0):
            return x * self.weight
        return x - self.weight


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(Branching())
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        with torch.no_grad():
            for p in self.linear.parameters():
                p.fill_(0.5)

    def forward(self, x):
        return self.inner(self.norm(self.linear(x))) + turned(x)

    def twice(self, x):
        return self.inner(self.inner(x) - 3)


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.around = nn.Sequential(Around(), nn.ReLU())
        self.script = torch.jit.script(Around().inner)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return self.around(x) + self.script(x) + self.shift


class ScriptAround(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        if bool(x[0, 0] > 2):
            return self.inner(x)
        return self.inner(-x) + 1


MODULES = [("around", Around), ("held", Held)]
