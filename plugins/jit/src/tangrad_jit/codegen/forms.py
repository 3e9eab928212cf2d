"""What is known of an op or a conversion at a dtype, found once in a process."""

from __future__ import annotations

from typing import Any

from tangrad.plugin.render import Fold, PointwiseOp, compute_type
from tangrad_jit.codegen.vector import LANES

_forms: dict[tuple[Any, str], Form] = {}


class Cast:
    """The conversion of a value to a dtype, as `Tensor.to` converts."""

    __slots__ = ()
    title = "to"


class Form:
    """A pointwise op, a fold or a conversion at a dtype.

    Attributes:
        kind: "pointwise", "fold" or "cast".
        key: what names the op.
        names: of its operands, of a pointwise op.
        count: how many operands there are.
        typed: the typed programs, None of a conversion.
        input_types: the dtypes that operands are converted to; None for any.
        operands: of a pointwise op the dtypes in which it computes with them.
        params: {name: dtype} of those parameters that its program uses.
        result_types: the dtypes of the results.
        wide: whether values of 8 bytes are among those of a pointwise op.
        called: whether it divides integers or draws random bits, which is never emitted.
        in_lanes: whether all operands have dtypes that lanes hold.
        rounds: whether Python numbers are rounded to a half type before it computes with them.
        templates: how it is lowered, by what `lower.py` says.
    """

    __slots__ = (
        "called", "count", "in_lanes", "input_types", "key", "kind", "names", "operands", "params",
        "result_types", "rounds", "templates", "typed", "wide",
    )  # fmt: skip

    def __init__(self, described: Any, dtype: str) -> None:
        self.names: tuple[str, ...] = ()
        self.operands: list[str] = []
        self.params: dict[str, str] = {}
        self.input_types: tuple[str, ...] | None = None
        self.templates: dict[Any, Any] = {}
        self.wide = self.called = self.rounds = False
        self.in_lanes, self.count, self.kind = True, 1, "cast"
        self.typed: Any = None
        self.result_types: tuple[str, ...] = (dtype,)
        self.key = "to"
        if not isinstance(described, Cast):
            self.key, self.typed = described.key, described.typed(dtype)
            self.result_types = tuple(self.typed.result_types)
        if isinstance(described, Fold):
            self.kind, self.input_types = "fold", (dtype,)
        elif isinstance(described, PointwiseOp):
            self._of_pointwise(described, dtype)

    def _of_pointwise(self, described: PointwiseOp, dtype: str) -> None:
        self.kind, self.names = "pointwise", described.inputs
        self.count = len(self.names)
        self.input_types = tuple(self.typed.input_types)
        self.operands = [compute_type(t) for t in self.input_types]
        self.in_lanes = all(t in LANES for t in self.input_types)
        self.rounds = dtype in ("float16", "bfloat16") and not described.exact_numbers
        program = self.typed.program
        steps = program.instructions
        kinds = {s.type for s in steps if s.op not in ("param", "literal")}
        kinds |= {*self.input_types, *self.result_types}
        self.wide = bool({"float64", "int64"} & kinds)
        self.params = {str(s.value): s.type for s in steps if s.op == "param"}
        self.called = bool(program.divides or program.indexed)


def form_of(described: Any, dtype: str) -> Form:
    """Return what is known of an op at a dtype.

    Raises:
        ExpressionTypeError: the op has no meaning for it.
    """
    key = (Cast if isinstance(described, Cast) else described.op.definition, dtype)
    found = _forms.get(key)
    if found is None:
        found = _forms[key] = Form(described, dtype)
    return found
