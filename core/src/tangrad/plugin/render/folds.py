"""Reductions and scans: what is made of an element, of two states, and of the last state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tangrad.expr.dtypes import REAL, accepted, compute_type, result_dtype
from tangrad.expr.program import Program
from tangrad.ops.definition.folds import FOLDS
from tangrad.plugin.render.table import ops_of

_WIDE = {"float32": "float64", "complex64": "complex128"}
_NUMBERS = ("Scalar", "int", "float", "bool", "dim")


@dataclass(frozen=True)
class Fold:
    """A reduction (to one state) or a scan (running states) of the elements along dimensions.

    Attributes:
        op: the op, which `register_kernel_of` takes.
    """

    op: Any

    @property
    def key(self) -> str:
        """What names the op among all."""
        return str(self.op.definition.key)

    @property
    def title(self) -> str:
        """What messages call the op."""
        return str(self.op.title)

    @property
    def is_scan(self) -> bool:
        """Whether the states on the way are results, too."""
        return bool(self.op.definition.is_scan)

    @property
    def kind(self) -> str | None:
        """The declared name of the combination: "sum", "product", "maximum", ...; or None."""
        name: str | None = self.op.definition.fold
        return name

    @property
    def group(self) -> tuple[str, ...]:
        """What folds have in common whose states are equal: their map and combination."""
        d = self.op.definition
        return d.map_text, d.combine_text, str(d.identity)

    @property
    def input(self) -> str:
        """The name of the operand; the map also knows the place of an element, `index`."""
        return str(self.op.definition.inputs[0])

    @property
    def params(self) -> tuple[str, ...]:
        """The parameters whose numbers a loop gets, in order."""
        params = self.op.definition.schema.params
        return tuple(p.name for p in params if p.type in _NUMBERS)

    @property
    def identity(self) -> tuple[Any, ...] | None:
        """The state of no element, value by value; None where an empty fold is an error."""
        found = self.op.definition.identity
        return found if found is None or isinstance(found, tuple) else (found,)

    @property
    def decided_by(self) -> bool | None:
        """The state that no further element changes, None if there is none."""
        return None if self.kind is None else FOLDS[self.kind].decided_by

    @property
    def takes_elements(self) -> bool:
        """Whether the map gives elements as they are, or 0 or 1 in the place of some.

        Then it is exact in every precision: a sum may add some elements before it widens them.
        """
        expression = self.op.definition.map
        choices, given = list(expression.nodes), set()
        while choices:
            node = choices.pop()
            if node.op == "where":
                choices += node.args[1:]
            else:
                given.add(node.value if node.op in ("name", "literal") else node.op)
        return expression.outputs == 1 and self.input in given <= {self.input, 0, 1}

    @property
    def maps_nothing(self) -> bool:
        """Whether the map gives every element as it is."""
        expression = self.op.definition.map
        return expression.outputs == 1 and expression.is_identity_of(0) == self.input

    @property
    def independent(self) -> tuple[tuple[int, ...], ...]:
        """The values of the state that are combined together: each by itself, or all."""
        combine = self.op.definition.combine
        places = tuple(range(combine.outputs))
        if combine.outputs > 1 and all(
            combine.select([k]).free <= {f"a{k}", f"b{k}"} for k in places
        ):
            return tuple((k,) for k in places)
        return (places,)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The promoted dtypes that the op is called with."""
        return accepted(self.op.definition.dtypes)

    def map_in(self, dtype: str, states: list[str] | None = None) -> Program:
        """Return the map for elements of a dtype, whose states are those that it computes.

        Args:
            dtype: of the elements in memory.
            states: dtypes that the state's values are converted to.
        """
        compute = compute_type(dtype)
        params = dict.fromkeys(self.op.definition.params, REAL.get(compute, compute))
        types = {self.input: dtype, "index": "int64"} | params
        program: Program = self.op.definition.map.typed(types, compute, states, ("index",))
        return program

    def typed(self, dtype: str) -> TypedFold:
        """Return the programs for a promoted dtype; half types are computed in float32.

        Raises:
            ExpressionTypeError: the op has no meaning for it.
        """
        return TypedFold(self, dtype)


class TypedFold:
    """The programs of a fold for one promoted dtype.

    Attributes:
        fold: the fold.
        dtype: the dtype of the elements in memory.
        compute: the dtype that the map computes in.
        wide: the dtype that combination and last step compute in: twice as wide where the fold is
            a sum or product of float32 or complex64.
        states: the dtypes of the state's values, the accumulators.
        map: over the element and `index` (int64): the state of one element.
        combine: over a (a0, a1, ... with several values) and b: the state of both.
        finalize: over a, `n` (how many elements; of dtype `count_type`) and the parameters: the
            results. None where the state is the result.
        result_types: the dtypes in which results are stored.
        param_type: the dtype that parameters are given in.
        indexed: whether the map uses the place of the element.
    """

    def __init__(self, fold: Fold, dtype: str) -> None:
        d = fold.op.definition
        self.fold, self.dtype = fold, dtype
        self.compute = compute_type(dtype)
        self.param_type = REAL.get(self.compute, self.compute)
        self.wide = _WIDE.get(self.compute, self.compute) if d.wide else self.compute
        params = dict.fromkeys(d.params, self.param_type)
        natural = fold.map_in(dtype)
        self.states = [_WIDE.get(s, s) if d.wide else s for s in natural.result_types]
        self.map = fold.map_in(dtype, self.states) if d.wide else natural
        self.indexed = "index" in d.map.free
        first, second = d.state_names("a"), d.state_names("b")
        pair = dict(zip((*first, *second), self.states * 2, strict=True))
        self.combine: Program = d.combine.typed(
            pair | params, self.wide, self.states, (*first, *second)
        )
        self.result_types = [result_dtype(result, dtype) for result in d.results]
        self.finalize = self._finalize(dict(zip(first, self.states, strict=True)) | params)

    def _finalize(self, types: dict[str, str]) -> Program | None:
        d = self.fold.op.definition
        if d.finalize is None:
            return None
        results = [compute_type(result) for result in self.result_types]
        names = d.state_names("a")
        program: Program = d.finalize.typed(
            types | {"n": self.count_type}, self.wide, results, names
        )
        return program

    @property
    def count_type(self) -> str:
        """The dtype in which the last step gets the number of elements."""
        real = REAL.get(self.wide, self.wide)
        return real if real in ("float32", "float64") else "int64"

    @property
    def steps(self) -> int:
        """How many steps map and combination have."""
        return len(self.map.instructions) + len(self.combine.instructions)


def folds() -> Iterator[Fold]:
    """Yield the core's reductions and scans, sorted by name."""
    for op in sorted(ops_of("reduction", "scan"), key=lambda op: op.definition.key):
        yield Fold(op)
