"""Random programs of two tensors and two numbers, for tests and for longer runs by hand.

python plugins/jit/tests/random_numbers.py 300
"""

from __future__ import annotations

import random
import sys
from typing import Any

import tangrad

Tensor = tangrad.Tensor
# name -> what a program does with two of its values; x and y are tensors of one shape.
STEPS: dict[str, Any] = {
    "add": lambda a, b, x, y: a + b,
    "sub": lambda a, b, x, y: a - b,
    "mul": lambda a, b, x, y: a * b * 0.37,
    "abs": lambda a, b, x, y: abs(a) + 1.5,
    "branch": lambda a, b, x, y: a if isinstance(a, Tensor) or a > 5.25 else -a,
    "lerp": lambda a, b, x, y: x if isinstance(b, Tensor) else x.lerp(y, b * 0.01),
    "addcmul": lambda a, b, x, y: x if isinstance(b, Tensor) else x.addcmul(y, y, value=b),
    "clamp": lambda a, b, x, y: (
        a.clamp(min=b) if isinstance(a, Tensor) and not isinstance(b, Tensor) else a
    ),
    "floor": lambda a, b, x, y: a if isinstance(a, Tensor) else a // 1.7,
    "power": lambda a, b, x, y: (
        a.abs() ** b if isinstance(a, Tensor) and not isinstance(b, Tensor) else a
    ),
    "in place": lambda a, b, x, y: x.clone().mul_(2.5 if isinstance(b, Tensor) else b),
}


def program(seed: int) -> Any:
    """Return a function of (x, y, k, m) that is made at random."""
    dice = random.Random(seed)
    chosen = [
        (STEPS[dice.choice(list(STEPS))], dice.randrange(5 + k), dice.randrange(5 + k))
        for k in range(8)
    ]

    def run(x: Any, y: Any, k: Any, m: Any) -> list[Any]:
        held = [x, y, k, m, k * m]
        for step, a, b in chosen:
            held.append(step(held[a], held[b], x, y))
        return held[5:]

    return run


def difference(seed: int) -> str:
    """Return where a program, compiled, is not itself; "" if nowhere."""
    dice = random.Random(-seed)
    eager = program(seed)
    fast = tangrad.compile(eager, recompile_limit=60, options={"measure": False})
    for turn in range(7):
        k = round(4.1 + turn * 0.61 * (1 + seed % 3), 3)
        m = dice.choice((0.5, 2.0, -1.0, 3.3, 7.7 + turn))
        x, y = tangrad.randn(3, 4), tangrad.randn(3, 4)
        for a, b in zip(fast(x, y, k, m), eager(x, y, k, m), strict=True):
            if _bits(a) != _bits(b):
                return f"program {seed} at k = {k}, m = {m}: {a} is not {b}"
    return ""


def _bits(item: Any) -> str:
    return repr(item.tolist() if isinstance(item, Tensor) else item)


if __name__ == "__main__":
    found = [told for told in map(difference, range(int(sys.argv[1]))) if told]
    print("\n".join(found) or "no difference")
