# ruff: noqa: E501 - the texts of programs' lines break badly
"""Random programs in forward mode: dual numbers, views of tensors that have or lack tangents, writes.

They are those of `random_programs` inside a dual level: leaves are plain tensors or dual numbers,
and in the end every variable is unpacked.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import random_programs
from random_programs import Outcome, Program, Writer

TIMES_ITSELF = re.compile(r"(x\d+)(\.mul_\(| \*= )\1\b")


class DualWriter(Writer):
    """Write one program of views and writes among dual numbers and plain tensors."""

    def __init__(self, seed: int, library: Any) -> None:
        super().__init__(seed, library)
        self.state["FW"] = forward_ad(library)

    def leaf(self) -> None:
        shape = tuple(self.random.choice((1, 2, 2, 3)) for _ in range(self.random.randint(0, 3)))
        name, values = self.new(), self.values(shape)
        if self.one_in(3):
            values = f"FW.make_dual({values}.clone(), {self.values(shape)}.clone())"
        elif self.one_in(3):
            values = f"T.zeros({shape}, dtype=D)"
        self.add(f"{name} = {values}")

    def write(self, steps: int) -> Program:
        self.add(f"{self.new()} = FW.make_dual(T.ones(2, dtype=D), T.tensor([3., 4.], dtype=D))")
        for _ in range(self.random.randint(2, 3)):
            self.leaf()
        for _ in range(self.random.randint(3, steps)):
            if not self.add(self.a_step()):
                return self.program
        self.program.outcome = Outcome(self.state)
        return self.program

    def a_step(self) -> str:
        kinds = [self.view] * 4 + [self.several_views, self.arithmetic, self.index, self.join]
        kinds += [self.write_in_place] * 4 + [self.assign] * 2 + [self.write_dual] * 4
        line = self.random.choice([*kinds, self.other_numbers, self.without_tangent])()
        if TIMES_ITSELF.search(line):  # torch takes the tangent after the write
            return self.view()
        if self.one_in(8):
            return f"with {self.random.choice(('T.no_grad()', 'T.enable_grad()'))}: {line}"
        return line

    def write_dual(self) -> str:
        """Write the values of a dual number into a tensor that may have no tangent yet."""
        x, y = self.writable(), self.tensor()
        if x is None:
            return self.view()
        shape = tuple(self.state[x].shape)
        value = f"{y}.sum().expand({shape})"
        mask, d = f"({x} <= {x}.mean())", self.dim(x)
        choices = [f"{x}.copy_({value})", f"{x}.mul_({value})", f"{x}.add_({value})"]
        if shape:
            choices += [
                f"{x}[0] = {y}.sum()",
                f"{x}[..., -1] = {y}.sum()",
                f"{x}.masked_fill_({mask}, {y}.sum())",
                f"{x}.index_put_((T.tensor([0]),), {y}.sum())",
                f"{x}.index_copy_({d}, T.tensor([0]), {value}.narrow({d}, 0, 1))",
                f"{x}.select({d}, 0).copy_({y}.sum())",
                f"{x}.index_add_({d}, T.tensor([0]), {value}.narrow({d}, 0, 1))",
            ]
        return self.random.choice(choices)

    def other_numbers(self) -> str:
        """Write views of pairs as complex numbers, or take them."""
        pairs = [n for n in self.names() if self.is_paired(n)]
        if not pairs:
            return self.view()
        z, y = f"T.view_as_complex({self.random.choice(pairs)})", self.tensor()
        return self.random.choice(
            (
                f"{self.new()} = {z}.imag",
                f"{self.new()} = {z}.conj().imag",
                f"{z}.real.copy_({y}.sum())",
                f"{z}.conj().imag.mul_({y}.sum())",
                f"{z}.mul_({y}.sum() * 2j)",
            )
        )

    def is_paired(self, name: str) -> bool:
        x = self.state[name]
        steps = (*x.stride()[:-1], x.storage_offset()) if x.ndim else (1,)
        return not any(s % 2 for s in steps) and x.shape[-1] == 2 and x.stride(-1) == 1

    def without_tangent(self) -> str:
        x = self.tensor()
        return f"{self.new()} = {x}.{self.random.choice(('data', 'detach()'))}"


def forward_ad(library: Any) -> Any:
    """Return a library's module of dual numbers."""
    return importlib.import_module(f"{library.__name__}.autograd.forward_ad")


def write(seed: int, library: Any, steps: int = 12) -> tuple[Program, dict[str, Any]]:
    """Write the program of a seed in a dual level, and return it and what its variables are."""
    with forward_ad(library).dual_level():
        program = DualWriter(seed, library).write(steps)
        return program, unpacked(program.outcome.state)


def run(lines: list[str], library: Any) -> tuple[Outcome, dict[str, Any]]:
    """Run a program's lines in a dual level until the first that raises."""
    with forward_ad(library).dual_level():
        state = random_programs.fresh_state(library) | {"FW": forward_ad(library)}
        for i, line in enumerate(lines):
            error = random_programs.step(line, state)
            if error is not None:
                return Outcome(state, i, error), {}
        return Outcome(state), unpacked(state)


def unpacked(state: dict[str, Any]) -> dict[str, Any]:
    """Return {name: (primal, tangent)} of the tensors of a program."""
    return {
        name: state["FW"].unpack_dual(x)
        for name, x in state.items()
        if random_programs.NAME.fullmatch(name) and hasattr(x, "detach")
    }


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """Say which variable differs first, in its values or its tangent, or return None."""
    for name, expected in theirs.items():
        found = ours[name]
        if not random_programs.close(found.primal, expected.primal):
            return f"{name}: value {found.primal}, in torch {expected.primal}"
        if not random_programs.same_gradient(found.tangent, expected.tangent):
            return f"{name}: tangent {found.tangent}, in torch {expected.tangent}"
    return None
