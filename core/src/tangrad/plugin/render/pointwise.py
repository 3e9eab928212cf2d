"""Pointwise ops: those defined, and the gradients and tangents that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tangrad.expr import DerivativeError, ExpressionError
from tangrad.expr.dtypes import KINDS, accepted, compute_type, result_dtype
from tangrad.expr.program import Program
from tangrad.plugin.render.table import ops_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tangrad.expr.render import Dialect

# Of more inputs than these only some sets are usual: there are 2^n of them.
_FEW_INPUTS = 4
_NUMBERS = ("Scalar", "int", "float", "bool")


@dataclass(frozen=True)
class PointwiseOp:
    """An op whose elements follow from scalar expressions.

    Attributes:
        op: the op, which `register_kernel_of` takes.
        kind: "op", "gradient" or "tangent".
        parent: the op that a gradient or tangent follows from, else the op itself.
        wrt: the parent's inputs that a gradient or tangent is of.
    """

    op: Any
    kind: str
    parent: Any
    wrt: tuple[str, ...]

    @classmethod
    def of(cls, op: Any) -> PointwiseOp:
        """Describe an op of kind "pointwise"."""
        derivation = op.definition.derivation
        if derivation is None:
            return cls(op, "op", op, ())
        return cls(op, derivation.kind, derivation.parent.op, derivation.inputs)

    @property
    def key(self) -> str:
        """What names the op among all, derived ones included."""
        return str(self.op.definition.key)

    @property
    def title(self) -> str:
        """What messages call the op."""
        return str(self.op.title)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the operands, in the order in which a loop gets them."""
        return tuple(self.op.definition.inputs)

    @property
    def fixed(self) -> dict[str, str]:
        """{input: dtype} of inputs that take no part in promotion."""
        return dict(self.op.definition.fixed)

    @property
    def expression(self) -> Any:
        """The results as an `Expression` over inputs and parameters."""
        return self.op.definition.expression

    @property
    def params(self) -> tuple[str, ...]:
        """The parameters whose numbers a loop gets, in order; one that is None is left out."""
        definition = self.op.definition
        declared = {p.name: p.type for p in definition.schema.params}
        free = definition.expression.free
        return tuple(n for n in definition.params if declared[n] in _NUMBERS or n in free)

    @property
    def integers(self) -> tuple[str, ...]:
        """Those parameters that a loop gets as integers of 64 bits, whatever it computes in."""
        return tuple(p.name for p in self.op.definition.schema.params if p.type == "int")

    @property
    def numbers(self) -> tuple[str, ...]:
        """The inputs that are often Python numbers: a loop may take one number for all elements.

        Those declared `Operand` of the op itself, and of its gradient for others than themselves.
        """
        if self.kind == "tangent":
            return ()
        declared = {p.name for p in self.parent.definition.schema.params if p.type == "Operand"}
        return tuple(n for n in self.inputs if n in declared and n not in self.wrt)

    @property
    def exact_numbers(self) -> bool:
        """Whether a number in the place of an operand keeps its precision beside half types.

        Else it is rounded to them before anything is computed.
        """
        return bool(getattr(self.op.definition, "exact_numbers", True))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The promoted dtypes that the op is called with."""
        return tuple(dtype for dtype in accepted(self.parent.definition.dtypes) if self._has(dtype))

    def _has(self, dtype: str) -> bool:
        exact = KINDS[dtype] in "bui"
        promote = self.parent.definition.promote
        if promote == "integral":
            return exact and self.kind == "op"
        return not exact or (self.kind == "op" and promote != "float")

    def typed(self, dtype: str) -> TypedPointwise:
        """Return the program for a promoted dtype; half types are computed in float32.

        Raises:
            ExpressionTypeError: the op has no meaning for it (and refuses it before any kernel).
        """
        types = tuple(self.fixed.get(name, dtype) for name in self.inputs)
        results = tuple(result_dtype(result, dtype) for result in self.op.definition.results)
        named = dict(zip(self.inputs, types, strict=True))
        program = self.expression.typed(named, compute_type(dtype), list(results))
        return TypedPointwise(self, dtype, program, types, results)

    def gradient(self, wrt: Sequence[str]) -> PointwiseOp | None:
        """Return the op of the gradients of some inputs.

        None if each is a result's gradient, or the definition has tensor code in its place.

        Raises:
            DerivativeError: an input has none.
        """
        found = self.op.definition.gradient(tuple(wrt))
        return None if found is None else PointwiseOp.of(found[0])

    def tangent(self, wrt: Sequence[str]) -> PointwiseOp:
        """Return the op of the results' tangents for those of some inputs.

        Raises:
            DerivativeError: an input has none.
        """
        return PointwiseOp.of(self.op.definition.tangent(tuple(wrt))[0])

    def derivatives(self) -> Iterator[PointwiseOp]:
        """Yield the gradients and tangents for the sets of inputs that are usual.

        These are all sets of up to four inputs; of more, the single ones, all, and all but one.
        """
        made: dict[str, PointwiseOp] = {}
        for wrt in self._usual_sets() if self.op.definition.differentiable else ():
            for derive in (self.gradient, self.tangent):
                derived = _if_any(derive, wrt)
                if derived is not None:
                    made.setdefault(derived.key, derived)
        yield from made.values()

    def _usual_sets(self) -> Iterator[tuple[str, ...]]:
        inputs = [name for name in self.inputs if name not in self.fixed]
        count = len(inputs)
        for size in range(1, count + 1):
            if count <= _FEW_INPUTS or size in (1, count - 1, count):
                yield from combinations(inputs, size)


@dataclass(frozen=True)
class TypedPointwise:
    """The program of a pointwise op for one promoted dtype.

    Attributes:
        op: the op.
        dtype: the promoted dtype.
        program: the results over `op.inputs` and `op.params`; it may use fewer of both.
        input_types: the dtypes in which operands are stored.
        result_types: the dtypes in which results are stored.
    """

    op: PointwiseOp
    dtype: str
    program: Program
    input_types: tuple[str, ...]
    result_types: tuple[str, ...]

    def render(self, name: str, dialect: str | Dialect = "c") -> str:
        """Return the source of the scalar function from and to what is stored.

        Raises:
            ExpressionTypeError: the dialect has no text for a step.
        """
        storage = dict(zip(self.op.inputs, self.input_types, strict=True))
        return self.program.render_c(name, storage, self.result_types, dialect)


def _if_any(derive: Callable[[Sequence[str]], Any], wrt: Sequence[str]) -> Any:
    """Return a derivative, None where an input has none: the op says so when it is asked for."""
    try:
        return derive(wrt)
    except (DerivativeError, ExpressionError, NotImplementedError):
        return None


def pointwise_ops(*, derived: bool = True) -> Iterator[PointwiseOp]:
    """Yield the core's pointwise ops, each followed by its usual gradients and tangents."""
    for op in ops_of("pointwise"):
        described = PointwiseOp.of(op)
        yield described
        if derived:
            yield from described.derivatives()
