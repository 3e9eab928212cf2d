"""What is fused: typed pointwise ops and folds over rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Pattern = Literal["full", "row", "column", "scalar", "number"]
PATTERNS = ("full", "row", "column", "scalar", "number")


@dataclass(frozen=True)
class Const:
    """A Python number that never changes: part of the code."""

    value: float | int | bool


@dataclass(frozen=True)
class Number:
    """A parameter whose value comes with each call: the group's input of that place."""

    input: int


@dataclass(frozen=True)
class GroupInput:
    """An operand of a group.

    Attributes:
        dtype: its elements' dtype; of a number the dtype is that of the Python type: "float64",
            "int64" or "bool".
        pattern: "full" (an element for each row and column), "row" (one for each row), "column"
            (one for each column, the same in all rows), "scalar" (a tensor of one element), or
            "number" (a Python number given with each call).
    """

    dtype: str
    pattern: Pattern


@dataclass(frozen=True)
class Cast:
    """The conversion of a value to a dtype, as `Tensor.to` converts."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return "to"


@dataclass(frozen=True)
class Step:
    """One op of a group.

    Attributes:
        described: what it computes.
        dtype: the promoted dtype, for which it is typed; of a conversion, the dtype of the result.
            Operands of another dtype are converted to what it takes, as by the op itself.
        args: its operands: numbers of values (the group's inputs first, then the steps' results in
            order, several for a step with several results), or constants.
        params: its parameters by name: Python numbers, which are part of the code, or `Number`s.
            One that is absent is None, or left out of the loop.
    """

    described: Any  # a PointwiseOp, a Fold or a Cast: `kind` says which
    dtype: str
    args: tuple[Any, ...]  # of int and Const
    params: Mapping[str, float | int | bool | Number | None] = field(default_factory=dict)

    def typed(self) -> Any:
        """Return the typed programs.

        Raises:
            ExpressionTypeError: the op has no meaning for the dtype.
        """
        return self._programs

    @cached_property
    def _programs(self) -> Any:
        assert not isinstance(self.described, Cast)
        key = (self.described.op.definition, self.dtype)
        found = _typed.get(key)
        if found is None:
            found = _typed[key] = self.described.typed(self.dtype)
        return found

    @cached_property
    def result_types(self) -> tuple[str, ...]:
        """The dtypes of the results."""
        if isinstance(self.described, Cast):
            return (self.dtype,)
        return tuple(self.typed().result_types)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells the step from others: two steps of one key have the same code."""
        params = tuple((name, type(v), repr(v)) for name, v in sorted(self.params.items()))
        args = tuple(a if isinstance(a, int) else (type(a.value), repr(a.value)) for a in self.args)
        if isinstance(self.described, Cast):
            return "cast", self.dtype, args
        return self.described.op.definition, self.dtype, args, params


_typed: dict[tuple[object, ...], Any] = {}


@dataclass(frozen=True)
class Group:
    """Steps over one space of rows and columns; folds run along the columns and give "row" values.

    Attributes:
        inputs: the operands.
        steps: what is computed, in an order in which operands come first.
        outputs: numbers of the values that are written: "full" values as rows by columns
            elements, all others as one for each row ("row"), column or in all.
    """

    inputs: tuple[GroupInput, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """What the code depends on."""
        inputs = tuple((i.dtype, i.pattern) for i in self.inputs)
        return inputs, tuple(step.key for step in self.steps), self.outputs
