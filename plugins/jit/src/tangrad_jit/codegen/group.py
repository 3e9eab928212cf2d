"""What is fused: typed pointwise ops and folds over rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tangrad_jit.codegen.forms import Cast, form_of

Pattern = Literal["full", "row", "column", "scalar", "number"]
PATTERNS = ("full", "row", "column", "scalar", "number")
_NO_PARAMS: dict[str, Any] = {}


# Plain classes: dataclasses take half a millisecond each to make, in every process.
class Const:
    """A Python number that never changes: part of the code."""

    __slots__ = ("value",)

    def __init__(self, value: float | int | bool) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Const(value={self.value!r})"


class Number:
    """A parameter whose value comes with each call: the group's input of that place."""

    __slots__ = ("input",)

    def __init__(self, input: int) -> None:
        self.input = input

    def __repr__(self) -> str:
        return f"Number(input={self.input})"


class GroupInput:
    """An operand of a group.

    Attributes:
        dtype: its elements' dtype; of a number the dtype is that of the Python type: "float64",
            "int64" or "bool".
        pattern: "full" (an element for each row and column), "row" (one for each row), "column"
            (one for each column, the same in all rows), "scalar" (a tensor of one element), or
            "number" (a Python number given with each call).
    """

    __slots__ = ("dtype", "pattern")

    def __init__(self, dtype: str, pattern: Pattern) -> None:
        self.dtype, self.pattern = dtype, pattern


class Step:
    """One op of a group.

    Attributes:
        described: what it computes: a PointwiseOp, a Fold or a Cast.
        dtype: the promoted dtype, for which it is typed; of a conversion, the dtype of the result.
            Operands of another dtype are converted to what it takes, as by the op itself.
        args: its operands: numbers of values (the group's inputs first, then the steps' results in
            order, several for a step with several results), or constants.
        params: its parameters by name: Python numbers, which are part of the code, or `Number`s.
            One that is absent is None, or left out of the loop.
        form: what is known of the op at the dtype, a `Form`, found when it is first asked for;
            that raises ExpressionTypeError where the op has no meaning for the dtype.
    """

    __slots__ = ("args", "described", "dtype", "form", "params")

    def __init__(
        self,
        described: Any,
        dtype: str,
        args: tuple[int | Const, ...],
        params: Mapping[str, float | int | bool | Number | None] = _NO_PARAMS,
    ) -> None:
        self.described, self.dtype, self.args, self.params = described, dtype, args, params

    def __getattr__(self, name: str) -> Any:
        # Only what has no value yet comes here: `form`, which devices that compile source need not.
        if name != "form":
            raise AttributeError(name)
        self.form = form_of(self.described, self.dtype)
        return self.form

    def typed(self) -> Any:
        """Return the typed programs.

        Raises:
            ExpressionTypeError: the op has no meaning for the dtype.
        """
        return self.form.typed

    @property
    def result_types(self) -> tuple[str, ...]:
        """The dtypes of the results."""
        types: tuple[str, ...] = self.form.result_types
        return types

    @property
    def key(self) -> tuple[object, ...]:
        """What tells the step from others: two steps of one key have the same code."""
        args = tuple(
            [a if a.__class__ is int else (type(a.value), repr(a.value)) for a in self.args]  # type: ignore[union-attr]
        )
        if isinstance(self.described, Cast):
            return "cast", self.dtype, args
        params: tuple[object, ...] = ()
        if self.params:
            params = tuple([(name, type(v), repr(v)) for name, v in sorted(self.params.items())])
        return self.described.op.definition, self.dtype, args, params


class Group:
    """Steps over one space of rows and columns; folds run along the columns and give "row" values.

    Attributes:
        inputs: the operands.
        steps: what is computed, in an order in which operands come first.
        outputs: numbers of the values that are written: "full" values as rows by columns
            elements, all others as one for each row ("row"), column or in all.
    """

    __slots__ = ("_key", "inputs", "outputs", "steps")

    def __init__(
        self, inputs: tuple[GroupInput, ...], steps: tuple[Step, ...], outputs: tuple[int, ...]
    ) -> None:
        self.inputs, self.steps, self.outputs = inputs, steps, outputs
        self._key: tuple[object, ...] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What the code depends on."""
        if self._key is None:
            inputs = tuple([(i.dtype, i.pattern) for i in self.inputs])
            self._key = inputs, tuple([step.key for step in self.steps]), self.outputs
        return self._key
