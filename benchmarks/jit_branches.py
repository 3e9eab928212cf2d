"""Branches of compiled graphs side by side and in turn: `python benchmarks/jit_branches.py`.

Both forms are called alternately, and the least time of a call counts, so that other programs on
the machine matter little. All branches run side by side that are thought to be worth it: none is
timed first, unless with `--timed`, as programs have it. Two threads unless told otherwise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.passes import branches

IN_TURN = branches.Costs(least=float("inf"))


class Towers(nn.Module):
    """Networks beside each other on one input."""

    def __init__(self, count: int, width: int, depth: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(_tower(width, depth) for _ in range(count))
        self.out = nn.Linear(count * width, 16)

    def forward(self, x: Any) -> Any:
        """Return what is made of all of them."""
        return self.out(tangrad.cat([tower(x) for tower in self.towers], 1))


def _tower(width: int, depth: int) -> Any:
    return nn.Sequential(
        *[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    )


class Inception(nn.Module):
    """Convolutions of several sizes beside each other (Szegedy et al., 2015)."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        half = channels // 2
        self.parts = nn.ModuleList([nn.Conv2d(channels, half, 1)])
        for size in (3, 5):
            wide = nn.Conv2d(half, half, size, padding=size // 2)
            self.parts.append(nn.Sequential(nn.Conv2d(channels, half, 1), nn.ReLU(), wide))
        self.parts.append(nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, half, 1)))

    def forward(self, x: Any) -> Any:
        """Return a mean for each channel."""
        return tangrad.cat([part(x) for part in self.parts], 1).relu().mean((2, 3))


class Heads(nn.Module):
    """Attention whose heads have linear layers of their own."""

    def __init__(self, count: int = 4, width: int = 128, each: int = 32) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(width, each) for _ in range(3)) for _ in range(count)
        )

    def forward(self, x: Any) -> Any:
        """Return what the heads see."""
        made = []
        for query, key, value in self.heads:
            weights = (query(x) @ key(x).t() * 0.17).softmax(-1)
            made.append(weights @ value(x))
        return tangrad.cat(made, -1)


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], bool]] = {
    "2 towers of 4×64, b64": (lambda: Towers(2, 64, 4), (64, 64), False),
    "4 towers of 4×64, b64": (lambda: Towers(4, 64, 4), (64, 64), False),
    "4 towers of 4×64, b64, training": (lambda: Towers(4, 64, 4), (64, 64), True),
    "2 towers of 4×128, b16": (lambda: Towers(2, 128, 4), (16, 128), False),
    "2 towers of 4×128, b16, training": (lambda: Towers(2, 128, 4), (16, 128), True),
    "4 towers of 3×256, b1": (lambda: Towers(4, 256, 3), (1, 256), False),
    "inception, 32×14×14": (Inception, (1, 32, 14, 14), False),
    "inception, 32×14×14, training": (Inception, (1, 32, 14, 14), True),
    "4 heads, 64 tokens": (Heads, (64, 128), False),
    "4 heads, 64 tokens, training": (Heads, (64, 128), True),
}


def compiled(make: Callable[[], Any], shape: tuple[int, ...], training: bool) -> Any:
    """Return a compiled call that has been timed in itself."""
    tangrad.manual_seed(0)
    model, x = make(), tangrad.randn(*shape)
    update = tangrad.optim.SGD(model.parameters(), lr=1e-3)

    def train() -> Any:
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss

    if not training:
        model.requires_grad_(False)
    step = train if training else lambda: model(x)
    fast = tangrad.compile(step, fullgraph=True, options={"measure": False})
    for _ in range(60):
        fast()
    return fast


def least_times(calls: list[Any], seconds: float) -> list[float]:
    """Return the least microseconds of each of some calls, made in turn for a while."""
    least = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for k, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            least[k] = min(least[k], 1e6 * (time.perf_counter() - begin))
    return least


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names begin so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each case")
    parser.add_argument("--timed", action="store_true", help="take the branches that are faster")
    given = parser.parse_args()
    tangrad.set_num_threads(given.threads)
    usual = branches.Costs(timed=given.timed)
    for name, case in CASES.items():
        if not name.startswith(given.only):
            continue
        calls = []
        for branches.costs in (IN_TURN, usual):
            calls.append(compiled(*case))
        in_turn, apart = least_times(calls, given.seconds)
        ((plan,),) = (e.plans for e in calls[1].compiled.executables)
        told = [count for count, side_by_side, *_ in plan.program.branches if side_by_side]
        print(
            f"{name:34} in turn {in_turn:7.1f} us  side by side {apart:7.1f} us  "
            f"ratio {apart / in_turn:.2f}  branches {told}"
        )


if __name__ == "__main__":
    main()
