"""Steps of groups as calls of scalar functions, for devices that compile source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tangrad.plugin.compiled import CompilingDriver, numbers
from tangrad.plugin.render import PointwiseOp, Program, compute_type
from tangrad_jit._run import Kernel as FoundKernel
from tangrad_jit.codegen.conversions import rounded_number
from tangrad_jit.codegen.group import Cast, Const, Group, Number, Step
from tangrad_jit.codegen.tiles import Refused, Value, values_of

__all__ = ["StepTexts", "has_kernel_of"]

# A number of the kernel: who gives it (the group's input, or a constant), and as which dtype.
Given = tuple[int | Const, str]


def has_kernel_of(driver: CompilingDriver, op: Any, dtype: str) -> bool:
    """Tell whether a device's kernel of an op is the one that follows from its definition."""
    try:
        form = FoundKernel(op, driver.name, dtype).form
    except (NotImplementedError, TypeError):
        return False
    return form == "python" and driver.fuses(op)


class StepTexts:
    """The pointwise steps of a group as calls of scalar functions.

    Args:
        group: what is computed.
        driver: of the device.
        place: returns the text of the element of one of the group's inputs.

    Attributes:
        values: what is known of the group's values.
        functions: the source of the functions that were asked for.
        first: the number of each step's first result.
    """

    def __init__(
        self, group: Group, driver: CompilingDriver, place: Callable[[int, Value], str]
    ) -> None:
        self.group, self.driver, self._place = group, driver, place
        self.values = values_of(group)
        self.functions = ""
        self.first: list[int] = []
        number = len(group.inputs)
        for step in group.steps:
            self.first.append(number)
            number += len(step.result_types)
        self._given: dict[str, Given] = {}  # by who gives it, as text: 0.0 and -0.0 are equal
        self._names: dict[tuple[Any, ...], str] = {}

    def call(self, k: int) -> list[str]:
        """Return the lines that make a step's results, `v` and the number of each.

        Raises:
            Refused: it is no scalar function of its operands, or the device has another kernel.
            ExpressionTypeError: the device's language has no text for it.
        """
        step, first = self.group.steps[k], self.first[k]
        program = self._program(step, self.values[first])
        operands = dict(zip(step.described.inputs, step.args, strict=True))
        used = {str(s.value): s.type for s in program.instructions if s.op == "param"}
        # Random numbers follow from the place of an element, which results of eager have as well.
        args = ["i"] if program.indexed else []
        args += [self._operand(step, operands[wanted]) for wanted in program.inputs]
        for param in program.params:
            item = step.params.get(param)
            who = item.input if isinstance(item, Number) else Const(item or 0)
            args.append(self._number(who, used.get(param, program.compute)))
        results = [f"v{first + r}" for r in range(len(step.result_types))]
        lines = [
            f"{self.driver.dialect.type(dtype)} {result};"
            for dtype, result in zip(step.result_types, results, strict=True)
        ]
        args += [f"&{result}" for result in results]
        return [*lines, f"{self._function(step, program)}({', '.join(args)});"]

    def value(self, number: int) -> str:
        """Return the text of a value."""
        if number < len(self.group.inputs):
            return self._place(number, self.values[number])
        return f"v{number}"

    def buffers(self) -> tuple[tuple[str, str], ...]:
        """Return the kernel's buffers: y0, y1, ... are results, x and a number inputs."""
        outs = [(self.values[o].dtype, f"y{k}") for k, o in enumerate(self.group.outputs)]
        ins = [
            (given.dtype, f"x{k}")
            for k, given in enumerate(self.group.inputs)
            if given.pattern != "number"
        ]
        return (*outs, *ins)

    def fields(self) -> list[numbers.Field]:
        """Return the kernel's numbers that are the group's."""
        found: list[numbers.Field] = []
        for k, (_, dtype) in enumerate(self._given.values()):
            found += numbers.fields(f"s{k}", dtype)
        return found

    def encoded(self, ins: Sequence[Any]) -> list[Any]:
        """Return their values for some operands."""
        given: list[Any] = []
        for who, dtype in self._given.values():
            given += numbers.encode(who.value if isinstance(who, Const) else ins[who], dtype)
        return given

    def tensors(self, outs: Sequence[Any], ins: Sequence[Any]) -> list[Any]:
        """Return what the buffers are."""
        inputs = self.group.inputs
        return [*outs, *(t for t, i in zip(ins, inputs, strict=True) if i.pattern != "number")]

    @property
    def label(self) -> str:
        """The titles of the ops."""
        return ", ".join(step.described.title for step in self.group.steps)

    def _program(self, step: Step, result: Value) -> Program:
        """Return what a step computes of its operands, in the dtypes that they have in memory."""
        op = step.described
        if isinstance(op, Cast) or not isinstance(op, PointwiseOp):
            raise Refused(f"{op.title} is no scalar function")
        if not has_kernel_of(self.driver, op.op, step.dtype):
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

    def _is_number(self, arg: int | Const) -> bool:
        if isinstance(arg, Const):
            return True
        inputs = self.group.inputs
        return arg < len(inputs) and inputs[arg].pattern == "number"

    def _dtype(self, step: Step, arg: int | Const) -> str:
        if self._is_number(arg):
            return str(compute_type(step.dtype))
        assert isinstance(arg, int)
        return self.values[arg].dtype

    def _function(self, step: Step, program: Program) -> str:
        """Return the name of a step's scalar function, whose source is there once."""
        op = step.described
        types = tuple(self._dtype(step, arg) for arg in step.args)
        key = (op.op.definition, step.dtype, types)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"tk_step{len(self._names)}"
            storage = dict(zip(op.inputs, types, strict=True))
            self.functions += program.render_c(
                name, storage, step.result_types, self.driver.dialect
            )
        return name

    def _operand(self, step: Step, arg: int | Const) -> str:
        if self._is_number(arg):
            half = step.dtype in ("float16", "bfloat16")
            if isinstance(arg, Const) and half and not step.described.exact_numbers:
                arg = Const(rounded_number(arg.value, step))
            return self._number(arg, str(compute_type(step.dtype)))
        assert isinstance(arg, int)
        return self.value(arg)

    def _number(self, who: int | Const, dtype: str) -> str:
        key = f"{who!r} {dtype}"
        self._given.setdefault(key, (who, dtype))
        return numbers.text(f"s{list(self._given).index(key)}", dtype, self.driver.dialect)
