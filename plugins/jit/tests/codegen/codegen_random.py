"""Random groups: pointwise chains, broadcast patterns, folds, several results."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from codegen_groups import ops

from tangrad_jit.codegen import Const, Group, GroupInput, Step

BINARY = (
    "add_plain",
    "sub_plain",
    "mul",
    "maximum",
    "minimum",
    "fmax",
    "hypot",
    "true_divide",
    "atan2",
)
UNARY = ("relu", "neg", "abs", "square", "sigmoid", "tanh", "exp", "silu", "gelu_none",
"gelu_tanh", "sqrt", "rsqrt",
         "reciprocal", "floor", "sign", "erf", "log1p", "sin", "softplus", "hardswish", "log",
         "expm1", "isnan_")  # fmt: skip
GRADIENTS = (
    "tanh_backward(self)",
    "sigmoid_backward(self)",
    "mul_backward(self,other)",
    "relu_backward(self)",
)
FOLDS = ("sum", "mean", "amax", "amin", "prod", "var_corrected")
PATTERNS = ("full", "full", "full", "row", "column", "scalar", "number")


@dataclass
class Maker:
    """Collect a random group."""

    rng: random.Random
    dtype: str
    inputs: list[GroupInput] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # "full", "row", ... of each value
    last: list[int] = field(default_factory=list)

    def usable(self) -> list[int]:
        return [k for k, kind in enumerate(self.kinds) if kind != "number"]

    def pick(self) -> int:
        """Choose an operand, of late values rather than early ones."""
        return self.late(self.usable())

    def of_own(self) -> int:
        """Choose an operand that decides the promoted dtype."""
        return self.late(
            [v for v in self.usable() if self.of_dtype(v) and self.kinds[v] != "scalar"]
        )

    def late(self, values: list[int]) -> int:
        return values[-1 - min(int(self.rng.expovariate(0.5)), len(values) - 1)]

    def merged(self, args: list[int]) -> str:
        kinds = {self.kinds[a] for a in args} - {"scalar", "number"}
        return "scalar" if not kinds else kinds.pop() if len(kinds) == 1 else "full"

    def append(self, key: str, args: list[int | Const], **params: object) -> None:
        described = ops()[key]
        known = [a for a in args if isinstance(a, int)]
        kind = "row" if key in FOLDS else self.merged(known)
        self.steps.append(Step(described, self.dtype, tuple(args), params))
        self.kinds += [kind] * len(self.steps[-1].typed().result_types)

    def step(self) -> None:
        rng = self.rng
        sort = rng.random()
        full = [v for v in self.usable() if self.kinds[v] == "full" and self.of_dtype(v)]
        if sort < 0.12 and full:
            key = rng.choice(FOLDS)
            self.append(
                key,
                [rng.choice(full[-3:])],
                **({"correction": 1} if "correction" in ops()[key].params else {}),
            )
        elif sort < 0.5:
            second = Const(rng.choice((0.5, -1.25, 2.0, 3))) if rng.random() < 0.25 else self.pick()
            numbers = [k for k, kind in enumerate(self.kinds) if kind == "number"]
            key = rng.choice(BINARY[:3] if numbers else BINARY)
            if key not in ("add_plain", "sub_plain", "mul", "true_divide"):
                second = self.pick()
            elif numbers and rng.random() < 0.4:
                second = rng.choice(numbers)
            elif key == "sub_plain" and isinstance(second, int) and not self.of_dtype(second):
                key = "add_plain"  # bools are not subtracted
            self.append(key, [self.of_own(), second])
        elif sort < 0.6:
            key = rng.choice([g for g in GRADIENTS if g in ops()])
            self.append(key, [self.of_own() for _ in ops()[key].inputs])
        else:
            key = rng.choice([u for u in UNARY if u in ops()])
            self.append(key, [self.of_own()], **dict.fromkeys(ops()[key].params, 1.5))

    def of_dtype(self, value: int) -> bool:
        return value >= len(self.inputs) or self.inputs[value].dtype == self.dtype


def make(seed: int) -> Group:
    """Return the group of a seed."""
    rng = random.Random(seed)
    dtype = rng.choice(("float32",) * 6 + ("float64", "bfloat16", "float16"))
    maker = Maker(rng, dtype)
    for k in range(rng.randint(1, 5)):
        pattern = "full" if k == 0 else rng.choice(PATTERNS)
        own = "float64" if pattern == "number" else rng.choice((dtype,) * 4 + ("bool", "int32"))
        maker.inputs.append(GroupInput(dtype if k == 0 else own, pattern))
        maker.kinds.append(pattern)
    for _ in range(rng.randint(1, 14)):
        maker.step()
    first = len(maker.inputs)
    possible = [v for v in range(first, len(maker.kinds)) if maker.kinds[v] in ("full", "row")]
    while not possible:
        maker.append("neg", [0])
        possible = [len(maker.kinds) - 1]
    outputs = sorted({possible[-1], *rng.sample(possible, min(len(possible), rng.randint(0, 2)))})
    return Group(tuple(maker.inputs), tuple(maker.steps), tuple(outputs))
