"""Write random programs of ops and modules, export them, and compare them with eager.

A script, too: `python random_programs_in_c.py COUNT [FIRST SEED]`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ops_in_c

import tangrad
from tangrad import nn

F = nn.functional

# Of one tensor of (rows, columns); results have two dimensions, too.
ONE: tuple[Callable[[Any, random.Random], Any], ...] = (
    lambda x, r: x.relu(),
    lambda x, r: x.tanh() * r.choice((0.5, 2.0)),
    lambda x, r: x.softmax(r.choice((0, 1))),
    lambda x, r: x.t(),
    lambda x, r: x.flip(r.choice((0, 1))),
    lambda x, r: x - x.mean(1, keepdim=True),
    lambda x, r: x / (x.abs().amax(0, keepdim=True) + 1),
    lambda x, r: x.cumsum(1),
    lambda x, r: x.sort(1)[0],
    lambda x, r: x[:, x.argmax(1) % x.shape[1]],
    lambda x, r: tangrad.cat([x, x[: r.randint(1, x.shape[0])]], 0),
    lambda x, r: x.reshape(-1)[: x.numel() // 2 * 2].reshape(2, -1),
    lambda x, r: x.masked_fill(x > 0.5, 0.25),
    lambda x, r: x.expand(2, *x.shape).transpose(0, 1).reshape(x.shape[0], -1),
    lambda x, r: F.layer_norm(x, x.shape[-1:]),
    lambda x, r: F.pad(x, (1, 0), value=0.5),
    lambda x, r: x.roll(1, 0).clamp(-2, 2),
    lambda x, r: tangrad.where(x < 0, x * 0.1, x.sqrt()),
)
TWO: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x @ y.t() if x.shape[1] == y.shape[1] else x * y.mean(),
    lambda x, y: x + y if x.shape == y.shape else x - y.sum(),
    lambda x, y: x.maximum(y) if x.shape == y.shape else x.minimum(y.amax()),
)


class Program(nn.Module):
    """A program that a seed decides.

    Args:
        seed: of its ops.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        tangrad.manual_seed(seed)
        self.layer = nn.Linear(5, 4)
        self.image = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: Any, y: Any) -> Any:
        """Compute some results of two tensors."""
        r = random.Random(self.seed)
        values = [x, y]
        for _ in range(r.randint(3, 9)):
            kind = r.random()
            value = r.choice(values)
            if kind < 0.6:
                made = r.choice(ONE)(value, r)
            elif kind < 0.8:
                made = r.choice(TWO)(value, r.choice(values))
            elif kind < 0.9 and value.shape[1] == 5:
                made = self.layer(value)
            else:
                made = self.image(value[None, None]).mean(1)[0]
            if made.numel() <= 400:
                values.append(made)
        return tuple(values[2:]) or (x + y,)


def differences(count: int, first: int) -> dict[int, str]:
    """Return {seed: how its program differs, or why it is refused}."""
    from tangrad_export.exporting import module_of

    cases, found = [], {}
    for seed in range(first, first + count):
        model = Program(seed).eval()
        given = (tangrad.randn(4, 5), tangrad.randn(4, 5))
        try:
            module, entries = module_of(
                model,
                given,
                f"p{seed}",
                dynamic_shapes=None,
                training=False,
                loss=None,
                targets=None,
                optimizer=None,
                weights="source",
                arena="static",
                simd="auto",
            )
        except RuntimeError as error:
            found[seed] = f"{type(error).__name__}: {error}"
            continue
        cases.append(ops_in_c.Case(str(seed), str(seed), module, entries[0]))
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(cases), ops_in_c.BATCH):
            told = ops_in_c.compared(cases[start : start + ops_in_c.BATCH], Path(folder))
            found |= {int(label): text for label, text in told.items() if text}
    return found


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]] or [20]
    told = differences(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    for seed, text in told.items():
        print(seed, text)
    print(f"{numbers[0] - len(told)} of {numbers[0]} programs are as eager computes them")
