"""Steps of a program that Python takes: ops without a compiled kernel, draws, numbers, allocations.

`taken` gives the register of a value that a step reads; registers of what it makes are -1 where
nobody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_jit._run import Program
from tangrad_jit.graph.ir import Node, Value, map_values, values_in
from tangrad_jit.graph.types import TensorType

__all__ = ["add_allocation", "add_draw", "add_number", "add_op"]

Taken = Callable[[Value], int]


def add_allocation(program: Program, type: TensorType, line: str, register: int) -> None:
    """Add the making of a tensor with strides of its own, without values."""
    dtype = getattr(tangrad, type.dtype)

    def make(held: list[Any]) -> tuple[int, ...]:
        held[register] = tangrad.empty_strided(
            type.shape, type.stride, dtype=dtype, device=type.device
        )
        return (register,)

    program.add_python(line, make)


def add_op(program: Program, node: Node, line: str, taken: Taken, made: list[int]) -> None:
    """Add an op's call."""
    args: list[Any] = []
    slots: list[tuple[int, Any]] = []
    for k, item in enumerate(node.args):
        if isinstance(item, Value):
            slots.append((k, taken(item)))
            args.append(None)
        elif isinstance(item, (tuple, list)) and any(True for _ in values_in(item)):
            members = [(taken(m),) if isinstance(m, Value) else m for m in item]
            slots.append((k, (members, isinstance(item, tuple))))
            args.append(None)
        else:
            args.append(item)
    out: Any = None
    if node.form == "inplace":
        out = taken(node.args[0])
    elif node.form == "out":
        out = tuple(map(taken, node.outs))
        out = out[0] if len(out) == 1 else out
    program.add_op(line, node.op, args, slots, node.form == "inplace", out, tuple(made))


def add_draw(program: Program, node: Node, line: str, taken: Taken, made: list[int]) -> None:
    """Add the taking of a seed and an offset of a random stream."""
    inputs = {value: taken(value) for value in node.inputs}
    definition, template = node.op.definition, node.args
    # What a call takes of which generator follows from sizes and devices, those of this plan.
    of_types = all(isinstance(value.type, TensorType) for value in node.inputs)
    known: list[Any] = []

    def draw(held: list[Any]) -> tuple[int, ...]:
        if not known or not of_types:
            args = map_values(lambda value: held[inputs[value]], template)
            known[:] = definition.generator_of(args), definition.counters(args)
        generator, counters = known
        drawn = definition.take(generator, counters)
        for register, number in zip(made, drawn, strict=True):
            if register >= 0:
                held[register] = number
        return ()

    program.add_python(line, draw)


def add_number(program: Program, node: Node, line: str, taken: Taken, made: int) -> None:
    """Add arithmetic with Python's numbers."""
    places = [taken(item) if isinstance(item, Value) else -1 for item in node.args]
    compute, given = node.op.compute, node.args

    def run(held: list[Any]) -> tuple[int, ...]:
        held[made] = compute(
            *(held[p] if p >= 0 else item for p, item in zip(places, given, strict=True))
        )
        return ()

    program.add_python(line, run)
