"""Random programs that write: into arguments, buffers, constants, views of them and new tensors.

A program is Python source, so that a failure shows it. Variables are matrices (n, 3), rows (3,) and
columns (n,); what a statement writes may be seen by any later one, or by none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

_NEW = {
    "m": ["{m} + {r}", "{m} * {m}", "{m}.clone()", "T.zeros_like({m})", "{m}.relu() - {m}"],
    "r": [
        *("{r} - {r}", "{m}.sum(0)", "T.zeros(3)", "T.tensor([2.0, 3.0, 4.0])", "T.rand(3)"),
        *("T.full((3,), {k})", "{r}.new_ones(3)", "T.empty(3).copy_({r})", "{r}.new_tensor([1.0])"),
        *("T.arange(3) * {r}", "T.stack([{r}, {r}])[1]", "T.eye(3)[0] + {r}"),
    ],
    "c": ["{m}.sum(1)", "{c} * {k}", "T.ones({m}.shape[0])", "{c} + T.arange({m}.shape[0])"],
}
_VIEWS = {
    "m": ["{m}[:]", "{m}.t().t()", "{m}.view(-1).view(-1, 3)", "{r}.expand({m}.shape[0], 3)"],
    "r": ["{m}[0]", "{m}.select(0, -1)", "{r}.view(3)", "{m}.unbind(0)[0]", "{r}.detach()"],
    "c": ["{m}[:, 0]", "{m}.t()[2]", "{c}[:]", "{m}.select(1, 1)"],
}
_WRITES = [
    *("{w}.add_({k})", "{w}.mul_({k})", "{w}.zero_()", "{w}.fill_({k})", "{w}.copy_({v})"),
    *("{w}.sub_({v})", "{w} += {v}", "T.add({v}, {v}, out={w})", "F.relu({w}, inplace=True)"),
    *("T.relu_({w})", "{w}.clamp_(max={k})", "{w}.copy_({w} * {k})", "F.relu({w}, True)"),
]
_ITEMS = [
    *("{m}[:, 1:] = {k}", "{m}[0] = {r}", "{m}[:, 0] = {c}", "{r}[1] = {k}", "{r}[:2] = {k}"),
    *("{m}[{m} > {k}] = 0", "{c}[0] = {k}", "{m}[0, 1:].fill_({k})", "{r}[[0, 2]] = {k}"),
    *("{m}[:, [0, 1]] = {m}[:, 1:]", "{r}[-1:].mul_({k})", "{m}[0][1] = {k}"),
    "{m}[T.tensor([0, 1])] = {r}",
]


class Program:
    """A random program.

    Args:
        seed: of its choices.
        plain: whether it does without what runs while it is traced on proxies: tensors made of
            numbers, those of the module, and assignments to items.
    """

    def __init__(self, seed: int, plain: bool = False) -> None:
        self.random = random.Random(seed)
        self.plain = plain
        rows = ["y"] if plain else ["y", "self.buffer", "self.held"]
        self.names = {"m": ["x"], "r": rows, "c": ["z"]}
        self.lines: list[str] = []
        for number in range(self.random.randint(2, 9)):
            self._add(number)
        kinds = [self._pick(self.random.choice("mrc")) for _ in range(self.random.randint(1, 3))]
        self.lines.append(f"return {', '.join(kinds)},")

    def _add(self, number: int) -> None:
        kind = self.random.choice("mrc")
        what = self.random.random()
        if what < 0.6:
            form = self.random.choice([f for f in _WRITES if self._may(f)])
            if not self.plain and self.random.random() < 0.5:
                form = self.random.choice(_ITEMS)
            self.lines.append(self._filled(form, kind))
            return
        forms = (_NEW if what < 0.8 else _VIEWS)[kind]
        form = self.random.choice([f for f in forms if self._may(f)])
        name = f"v{number}"
        self.lines.append(f"{name} = {self._filled(form, kind)}")
        self.names[kind].append(name)

    def _may(self, form: str) -> bool:
        """Return whether a form may be used; `+=` of a proxy writes nothing, as with PyTorch."""
        return not self.plain or not (form.startswith("T.") or " += " in form)

    def _pick(self, kind: str) -> str:
        return self.random.choice(self.names[kind])

    def _filled(self, form: str, kind: str) -> str:
        given = {k: self._pick(k) for k in "mrc"}
        number = self.random.choice([0.5, 2.0, -1.0, 3.0])
        return form.format(**given, w=self._pick(kind), v=self._pick(kind), k=number)

    @property
    def source(self) -> str:
        """The program as a method of a module."""
        body = "\n    ".join(self.lines)
        return f"def forward(self, x, y, z):\n    {body}\n"


def module(torch: Any, program: Program) -> Any:
    """Return a module of a framework that runs a program."""
    names: dict[str, Any] = {"T": torch, "F": torch.nn.functional}
    exec(program.source, names)

    class Writes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("buffer", torch.tensor([1.0, -2.0, 0.5]))
            self.held = torch.tensor([0.25, 4.0, -1.0])

        forward = names["forward"]

        def restore(self) -> None:
            """Give the tensors of the module the values that they began with."""
            self.buffer.copy_(torch.tensor([1.0, -2.0, 0.5]))
            self.held.copy_(torch.tensor([0.25, 4.0, -1.0]))

    return Writes()


def arguments(torch: Any, rows: int) -> tuple[Any, ...]:
    """Return arguments with so many rows."""
    x = torch.arange(3.0 * rows).reshape(rows, 3) % 7 - 3
    return x, x[0] * 2 + 1, x.sum(1)


def behaviour(torch: Any, run: Callable[..., Any], rows: tuple[int, ...]) -> list[Any]:
    """Return what calls give and leave in their arguments, as nested lists."""
    found = []
    for count in rows:
        torch.manual_seed(count)
        given = arguments(torch, count)
        results = run(*given)
        found.append([t.tolist() for t in (*results, *given)])
    return found
