"""Kernels of fused groups for devices that compile source: the same steps, in their language.

Each step is the scalar function that the device's own kernel of the op calls, from stored elements
to stored elements, so that results equal those of the ops called one by one to the bit. One loop
over the elements calls them all, and the device's compiler makes one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.plugin import get_driver
from tangrad.plugin.compiled import CompilingDriver, Kernel, KernelDialect, Unit, numbers
from tangrad.plugin.render import (
    DerivativeError,
    ExpressionTypeError,
    PointwiseOp,
    Program,
    compute_type,
)
from tangrad_jit._run import Kernel as FoundKernel
from tangrad_jit.codegen.group import Cast, Const, Group, Number, Step
from tangrad_jit.codegen.tiles import Refused, Value, values_of

__all__ = ["RenderedGroup", "compiling_driver", "render_group"]

# A number of the kernel: who gives it (the group's input, or a constant), and as which dtype.
Given = tuple[int | Const, str]

_LOOP = """    for (tk_int i = (tk_int)TG_BLOCK * TG_LANES + TG_LANE; i < g.n;
         i += (tk_int)TG_BLOCKS * TG_LANES) {{
        const tk_int r = i / g.columns, c = i - r * g.columns;
{body}
    }}"""
# By whether a value differs between rows and columns: where its element is, and who writes it.
_PLACES = {
    (True, True): ("i", ""),
    (True, False): ("r", "if (c == 0) "),
    (False, True): ("c", "if (r == 0) "),
    (False, False): ("0", "if (i == 0) "),
}
_made: dict[tuple[Any, ...], RenderedGroup | str] = {}


def compiling_driver(device: str) -> CompilingDriver | None:
    """Return the driver of a device that compiles source, None of every other."""
    driver = get_driver(device.partition(":")[0])
    return driver if isinstance(driver, CompilingDriver) else None


def render_group(group: Group, driver: CompilingDriver) -> RenderedGroup | str:
    """Return the kernel of a group for a device, or the reason why there is none."""
    key = (driver.name, group.key)
    if key not in _made:
        try:
            _made[key] = RenderedGroup(group, driver)
        except (Refused, ExpressionTypeError, DerivativeError) as error:
            _made[key] = str(error)
    return _made[key]


class RenderedGroup:
    """The kernel of a group, for all sizes.

    Args:
        group: what it computes.
        driver: of the device.

    Raises:
        Refused: a step is no scalar function of its operands, or the device has another kernel.
        ExpressionTypeError: the device's language has no text for it.
    """

    def __init__(self, group: Group, driver: CompilingDriver) -> None:
        self.group, self.driver = group, driver
        self._values = values_of(group)
        self._given: dict[str, Given] = {}  # by who gives it, as text: 0.0 and -0.0 are equal
        self._functions: dict[tuple[Any, ...], str] = {}
        text, lines = "", []
        number = len(group.inputs)
        for step in group.steps:
            program = self._program(step, self._values[number])
            name, source = self._function(step, program)
            text += source
            lines += self._call(step, program, name, number)
            number += len(step.result_types)
        kernel = Kernel("group", self._buffers(), self._fields(), self._loop(lines))
        self._unit = Unit(driver, [kernel], text)
        self._unit.label = ", ".join(step.described.title for step in group.steps)

    def run(self, outs: Sequence[Any], ins: Sequence[Any], rows: int, columns: int) -> None:
        """Compute into `outs`: contiguous tensors of the device, as are those of `ins`.

        Args:
            outs: results.
            ins: operands, Python numbers in the places of numbers.
            rows, columns: how many there are.
        """
        given: list[Any] = []
        for who, dtype in self._given.values():
            given += numbers.encode(who.value if isinstance(who, Const) else ins[who], dtype)
        tensors = [t for t, i in zip(ins, self.group.inputs, strict=True) if i.pattern != "number"]
        blocks = self.driver.blocks_for(rows * columns)
        index = outs[0].device.index
        self._unit.launch(
            "group", blocks, [*outs, *tensors], [rows * columns, columns, *given], index
        )

    def listing(self) -> str:
        """Return its source."""
        return self._unit.source

    # --- what is compiled -------------------------------------------------------------------------

    @property
    def _dialect(self) -> KernelDialect:
        return self.driver.dialect

    def _program(self, step: Step, result: Value) -> Program:
        """Return what a step computes of its operands, in the dtypes that they have in memory."""
        op = step.described
        if isinstance(op, Cast) or not isinstance(op, PointwiseOp):
            raise Refused(f"{op.title} is no scalar function")
        if not (self._is_found(op.op, step.dtype) and self.driver.fuses(op.op)):
            raise Refused(f"{self.driver.name} has a kernel of its own of {op.title}, or none")
        types = {
            name: self._dtype(step, arg) for name, arg in zip(op.inputs, step.args, strict=True)
        }
        program: Program = op.expression.typed(
            types, compute_type(step.dtype), list(step.result_types)
        )
        if program.divides:
            raise Refused(f"{op.title} divides integers")
        if program.indexed and not (result.row and result.column):
            raise Refused(f"{op.title} draws random numbers for what all rows or columns share")
        return program

    def _is_found(self, op: Any, dtype: str) -> bool:
        """Tell whether the device has a kernel that Python calls, as those from expressions are."""
        try:
            return FoundKernel(op, self.driver.name, dtype).form == "python"
        except (NotImplementedError, TypeError):
            return False

    def _is_number(self, arg: int | Const) -> bool:
        if isinstance(arg, Const):
            return True
        inputs = self.group.inputs
        return arg < len(inputs) and inputs[arg].pattern == "number"

    def _dtype(self, step: Step, arg: int | Const) -> str:
        if self._is_number(arg):
            return str(compute_type(step.dtype))
        assert isinstance(arg, int)
        return self._values[arg].dtype

    def _function(self, step: Step, program: Program) -> tuple[str, str]:
        """Return the name of a step's scalar function, and its source where it is a new one."""
        op = step.described
        types = tuple(self._dtype(step, arg) for arg in step.args)
        key = (op.op.definition, step.dtype, types)
        if key in self._functions:
            return self._functions[key], ""
        name = self._functions[key] = f"tk_step{len(self._functions)}"
        storage = dict(zip(op.inputs, types, strict=True))
        return name, program.render_c(name, storage, step.result_types, self._dialect)

    def _call(self, step: Step, program: Program, name: str, first: int) -> list[str]:
        operands = dict(zip(step.described.inputs, step.args, strict=True))
        used = {str(s.value): s.type for s in program.instructions if s.op == "param"}
        # Random numbers follow from the place of an element, which results of eager have as well.
        args = ["i"] if program.indexed else []
        args += [self._operand(step, operands[wanted]) for wanted in program.inputs]
        for param in program.params:
            item = step.params.get(param)
            who = item.input if isinstance(item, Number) else Const(item or 0)
            args.append(self._number(who, used.get(param, program.compute)))
        results = [f"v{first + k}" for k in range(len(step.result_types))]
        lines = [
            f"{self._dialect.type(dtype)} {result};"
            for dtype, result in zip(step.result_types, results, strict=True)
        ]
        return [*lines, f"{name}({', '.join([*args, *(f'&{result}' for result in results)])});"]

    def _operand(self, step: Step, arg: int | Const) -> str:
        if self._is_number(arg):
            return self._number(arg, str(compute_type(step.dtype)))
        assert isinstance(arg, int)
        if arg < len(self.group.inputs):
            value = self._values[arg]
            return f"x{arg}[{_place(value)[0]}]"
        return f"v{arg}"

    def _number(self, who: int | Const, dtype: str) -> str:
        key = f"{who!r} {dtype}"
        self._given.setdefault(key, (who, dtype))
        return numbers.text(f"s{list(self._given).index(key)}", dtype, self._dialect)

    def _buffers(self) -> tuple[tuple[str, str], ...]:
        outs = [(self._values[o].dtype, f"y{k}") for k, o in enumerate(self.group.outputs)]
        ins = [
            (given.dtype, f"x{k}")
            for k, given in enumerate(self.group.inputs)
            if given.pattern != "number"
        ]
        return (*outs, *ins)

    def _fields(self) -> tuple[numbers.Field, ...]:
        found: list[numbers.Field] = [("int64", "n", 0), ("int64", "columns", 0)]
        for k, (_, dtype) in enumerate(self._given.values()):
            found += numbers.fields(f"s{k}", dtype)
        return tuple(found)

    def _loop(self, lines: list[str]) -> str:
        stores = []
        for k, output in enumerate(self.group.outputs):
            place, guard = _place(self._values[output])
            stores.append(f"{guard}y{k}[{place}] = v{output};")
        return _LOOP.format(body="\n".join(f"        {line}" for line in [*lines, *stores]))


def _place(value: Value) -> tuple[str, str]:
    return _PLACES[value.row, value.column]
