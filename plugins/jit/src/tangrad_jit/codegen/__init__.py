"""Machine code of fused groups: what is computed (`Group`), whether it can be, and the kernel.

A group is some pointwise ops and folds over one space of rows and columns, in the order in which
they are computed. Its kernel runs over tiles that stay in the caches: what the emitter has
instructions for is emitted as one loop, all else is a compiled loop of the device on the tile.
Results equal those of the ops called one by one to the bit (a NaN's sign and payload aside).

    group = Group(
        (GroupInput("float32", "full"), GroupInput("float32", "column")),
        (Step(describe(ops.add_plain), "float32", (0, 1)), Step(describe(ops.tanh), "float32",
        (2,))),
        outputs=(3,),
    )
    if can_compile(group) is None:
        compile_group(group).run([out], [x, bias], rows, columns)
"""

from __future__ import annotations

from tangrad_jit.codegen.compiled import CompiledGroup, can_compile, compile_group
from tangrad_jit.codegen.group import Cast, Const, Group, GroupInput, Number, Step
from tangrad_jit.codegen.tiles import Refused

__all__ = [
    "Cast",
    "CompiledGroup",
    "Const",
    "Group",
    "GroupInput",
    "Number",
    "Refused",
    "Step",
    "can_compile",
    "compile_group",
]
