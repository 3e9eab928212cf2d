"""Write random functions with branches and loops."""

from __future__ import annotations

import random

# Expressions of two values of three elements, and a number.
_FORMS = (
    "{a} + {b}",
    "{a} * {k}",
    "T.tanh({a}) - {b}",
    "{a}.clone().add_({b})",
    "T.where({a} > {k}, {a}, {b})",
    "{a}.flip(0)",
    "{a} * T.tensor([1.0, {k}, 2.0])",
    "T.tanh(L({a}))",
    "{a} - {b}.mean()",
    "({a}[:, None] * {b}).t().amax(0)",
    "T.cat([{a}[1:], {b}[:1]])",
    "{a}.cumsum(0).tanh()",
    "{a}.flip(0).cumsum(0) * 0.5 - {b}",
    "({a} * 0.5).cumsum(0)",
    "{a}[{b}.argmax().reshape(1)] + {b}",
)


class Writer:
    """Writes a function `program(x, y)` that a seed decides.

    Its values are tensors of three elements; `T` is tangrad, `L` a layer.

    Args:
        seed: of its statements.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def text(self) -> str:
        """Return the function."""
        values = ["x", "y"]
        self._statements(values, "    ", 3)
        for kind in (self._cond, self._loop):
            kind(values, "    ", 2)
        results = self.random.sample(values, min(3, len(values)))
        self.lines.append(f"    return {', '.join(results)}")
        return "\n".join(["def program(x, y):", *self.lines])

    def _name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _statements(self, values: list[str], indent: str, depth: int) -> None:
        kinds = [self._plain, self._plain, self._cond, self._loop]
        for _ in range(self.random.randint(1, 3)):
            self.random.choice(kinds if depth else kinds[:1])(values, indent, depth)

    def _plain(self, values: list[str], indent: str, depth: int) -> None:
        a, b = self.random.choices(values, k=2)
        form = self.random.choice(_FORMS).format(a=a, b=b, k=self.random.randint(-2, 3))
        made = self._name("v")
        self.lines.append(f"{indent}{made} = {form}")
        values.append(made)

    def _function(self, values: list[str], params: list[str], indent: str, depth: int) -> str:
        made = self._name("f")
        self.lines.append(f"{indent}def {made}({', '.join(params)}):")
        inner = [*values, *params]
        self._statements(inner, indent + "    ", depth - 1)
        results = self.random.choice(inner[-4:]), self.random.choice(inner[-4:])
        self.lines.append(f"{indent}    return {', '.join(results)}")
        return made

    def _cond(self, values: list[str], indent: str, depth: int) -> None:
        params = [self._name("p") for _ in range(self.random.randint(0, 2))]
        operands = "".join(f"{self.random.choice(values)}, " for _ in params)
        functions = [self._function(values, params, indent, depth) for _ in range(2)]
        test = f"{self.random.choice(values)}.sum() > {self.random.randint(-1, 1)}.37"
        a, b = self._name("v"), self._name("v")
        call = f"T.cond({test}, {', '.join(functions)}, ({operands}))"
        self.lines.append(f"{indent}{a}, {b} = {call}")
        values += [a, b]

    def _loop(self, values: list[str], indent: str, depth: int) -> None:
        params = [self._name("p") for _ in range(2)]
        step = self._function(values, params, indent, depth)
        body, a, b, i = (self._name(stem) for stem in ("f", "v", "v", "i"))
        rounds = self.random.randint(0, 4)
        p, q = params
        bounded = self.random.random() < 0.5
        given = ", ".join(f"T.tanh({n})" if bounded else n for n in (p, q))
        first = ", ".join(self.random.choices(values, k=2))
        self.lines += [
            f"{indent}def {body}({i}, {p}, {q}):",
            f"{indent}    {p}, {q} = {step}({p}, {q})",
            f"{indent}    return {i} + 1, {given}",
            f"{indent}{i}, {a}, {b} = T.while_loop(lambda i, p, q: (i < {rounds}) & "
            f"(p.sum() < 4.37), {body}, (T.zeros((), dtype=T.int64), {first}))",
        ]
        values += [a, b]
