"""Typed SSA: the steps of a program, every value of which has a dtype."""

from __future__ import annotations

from tangrad.expr.dtypes import KINDS
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.ssa import Scalar


class Instruction:
    """Hold one typed step of a program.

    ``op`` is ``"load"`` (an input, of storage dtype ``storage``), ``"param"``, ``"literal"``,
    ``"convert"`` (to ``type``) or a primitive; ``args`` index earlier instructions; ``operand`` is
    the type of the operands; ``value`` is the name, the literal, or a cast's dtype.
    """

    __slots__ = ("args", "op", "operand", "storage", "type", "value")

    def __init__(
        self,
        op: str,
        dtype: str,
        args: tuple[int, ...] = (),
        operand: str | None = None,
        value: Scalar | None = None,
        storage: str | None = None,
    ) -> None:
        self.op, self.type, self.args = op, dtype, args
        self.operand = operand or dtype
        self.value, self.storage = value, storage

    def __str__(self) -> str:
        words = [self.op]
        if self.value is not None:
            words.append(str(self.value) if self.op in ("load", "param") else repr(self.value))
        words.append(", ".join(f"%{arg}" for arg in self.args))
        stored = f" ({self.storage})" if self.storage not in (None, self.type) else ""
        return " ".join(word for word in words if word) + f" : {self.type}{stored}"

    def _key(self) -> tuple:
        return self.op, self.type, self.args, self.operand, repr(self.value), self.storage


class Steps:
    """Hold typed SSA: ``instructions`` in order, ``results`` the indices of the outputs."""

    __slots__ = ("compute", "inputs", "instructions", "params", "results")

    def __init__(
        self,
        inputs: tuple[str, ...],
        params: tuple[str, ...],
        compute: str,
        instructions: list[Instruction],
        results: list[int],
    ) -> None:
        self.inputs, self.params, self.compute = inputs, params, compute
        self.instructions, self.results = instructions, results

    @property
    def result_types(self) -> tuple[str, ...]:
        """The outputs' dtypes."""
        return tuple(self._stored(self.instructions[k]) for k in self.results)

    @staticmethod
    def _stored(instruction: Instruction) -> str:
        rounded = instruction.op == "cast" and instruction.storage is not None
        return str(instruction.storage) if rounded else instruction.type

    @property
    def divides(self) -> bool:
        """Whether an integer division by zero can happen: the C function takes an error flag."""
        return any(
            PRIMITIVES[step.op].divides and KINDS[step.operand] in "ui"
            for step in self.instructions
            if step.op in PRIMITIVES
        )

    @property
    def indexed(self) -> bool:
        """Whether the element's linear index is used (by random bits)."""
        return any(step.op == "philox_uniform" for step in self.instructions)

    def __str__(self) -> str:
        lines = [f"%{k} = {step}" for k, step in enumerate(self.instructions)]
        return "\n".join([*lines, "return " + ", ".join(f"%{k}" for k in self.results)])
