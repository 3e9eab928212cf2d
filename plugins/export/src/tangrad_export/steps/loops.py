"""Loops over elements: pointwise ops, one after the other in one body."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin.compiled import loop_over
from tangrad.plugin.render import ExpressionTypeError, compute_type
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.base import Number, Step, ctype, product_text, sum_text
from tangrad_export.steps.functions import Function, argument, encode, fields_of

__all__ = ["Access", "Body", "Evaluation", "Loop", "function_of", "headers", "pointwise_kernel"]

_LETTERS = "ijklmnpq"


class Access(NamedTuple):
    """Elements in memory, by the steps that the dimensions of a loop make, in elements."""

    ref: Ref
    strides: tuple[int, ...]


class Evaluation:
    """One call of a scalar function in the body of a loop.

    Attributes:
        function: the function.
        inputs: for each input of its program ("load", `Access`), ("value", evaluation, result), or
            ("number", numbers, dtype).
        params: the numbers of its parameters, encoded.
    """

    def __init__(self, function: Function, inputs: list[Any], params: list[Any]) -> None:
        self.function, self.inputs, self.params = function, inputs, params


class Body:
    """Evaluations in their order; what they load is known once it is settled.

    Attributes:
        evaluations: the calls.
        loads: the places that they load from.
    """

    def __init__(self, evaluations: list[Evaluation]) -> None:
        self.evaluations = evaluations

    @property
    def loads(self) -> list[Access]:
        """The places that are loaded from, each once."""
        found: dict[Access, None] = {}
        for evaluation in self.evaluations:
            for given in evaluation.inputs:
                if given[0] == "load":
                    found[given[1]] = None
        return list(found)

    def numbers(self) -> list[int | float]:
        """Return the numbers that are given to functions."""
        found: list[int | float] = []
        for evaluation in self.evaluations:
            for given in evaluation.inputs:
                if given[0] == "number":
                    found += given[1]
            for values, _ in evaluation.params:
                found += values
        return found

    def structure(self) -> Hashable:
        """Return all but places and numbers."""
        loads = self.loads
        order = {id(e): k for k, e in enumerate(self.evaluations)}
        found = []
        for evaluation in self.evaluations:
            inputs: list[tuple[Any, ...]] = []
            for given in evaluation.inputs:
                if given[0] == "load":
                    inputs.append(("load", loads.index(given[1]), given[1].ref.dtype))
                elif given[0] == "value":
                    inputs.append(("value", order[id(given[1])], given[2]))
                else:
                    inputs.append(("number", given[2]))
            kinds = tuple(dtype for _, dtype in evaluation.params)
            found.append((evaluation.function.key(), tuple(inputs), kinds))
        return tuple(found)

    def lines(
        self, names: Sequence[str], loads: Sequence[str], n: list[Number], index: str
    ) -> list[str]:
        """Return statements that declare and compute `v0`, `v1`, ..., the results of all.

        Args:
            names: of the functions, one for each evaluation.
            loads: the elements.
            n: the numbers; those used are taken off its front.
            index: the element's place.
        """
        values: dict[tuple[int, int], str] = {}
        known, lines, count = self.loads, list[str](), 0
        for evaluation, name in zip(self.evaluations, names, strict=True):
            function = evaluation.function
            args = [index] if function.indexed else []
            for given in evaluation.inputs:
                if given[0] == "load":
                    args.append(loads[known.index(given[1])])
                elif given[0] == "value":
                    args.append(values[id(given[1]), given[2]])
                else:
                    args.append(argument([n.pop(0) for _ in given[1]], given[2]))
            for given, dtype in evaluation.params:
                args.append(argument([n.pop(0) for _ in given], dtype))
            for k, dtype in enumerate(function.results):
                values[id(evaluation), k] = f"v{count}"
                lines.append(f"{ctype(dtype)} v{count};")
                args.append(f"&v{count}")
                count += 1
            lines.append(function.call(name, args + ["&bad"] * function.divides))
        return lines

    def value_name(self, evaluation: Evaluation, result: int) -> str:
        """Return what the statements call a result."""
        count = 0
        for other in self.evaluations:
            if other is evaluation:
                return f"v{count + result}"
            count += len(other.function.results)
        raise ValueError("the value is of another body")

    @property
    def indexed(self) -> bool:
        """Whether a function is given the element's place."""
        return any(e.function.indexed for e in self.evaluations)

    @property
    def divides(self) -> bool:
        """Whether an integer may be divided by zero."""
        return any(e.function.divides for e in self.evaluations)


class Loop(Step):
    """Evaluate a body for all elements of a shape.

    Args:
        shape: of the loop.
        body: what is computed.
        stores: (access, evaluation, result) of what is written.
    """

    def __init__(
        self,
        shape: Sequence[int],
        body: Body,
        stores: list[tuple[Access, Evaluation, int]],
        errors: Ref | None = None,
    ) -> None:
        self.shape, self.body, self.stores = tuple(shape), body, stores
        self.errors = errors
        super().__init__([], (), [])
        self.settle()

    def settle(self) -> None:
        """Merge dimensions, and fix places and numbers."""
        loads = self.body.loads
        accesses = [*(s[0] for s in self.stores), *loads]
        geometries = [(self.shape, a.strides) for a in accesses]
        loop = loop_over(self.shape, geometries, reorder=not self.body.indexed)
        self.refs = [a.ref for a in accesses]
        if self.errors is not None:
            self.refs.append(self.errors)
        self.writes = tuple(range(len(self.stores)))
        self.rank = len(loop.shape)
        self.numbers = [*loop.shape]
        for strides in loop.strides:
            self.numbers += strides
        self.numbers += self.body.numbers()
        self.work = loop.elements * len(self.body.evaluations)

    def structure(self) -> Hashable:
        """Return what is computed, and over how many dimensions."""
        return (
            "loop",
            self.rank,
            self.body.structure(),
            tuple((s[0].ref.dtype, self.body.value_name(s[1], s[2])) for s in self.stores),
        )

    def functions(self) -> list[Function]:
        """Return the functions of the body."""
        return [e.function for e in self.body.evaluations]

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return nested loops."""
        rank, count = self.rank, len(self.stores) + len(self.body.loads)
        shape = n[:rank]
        strides = [n[rank * (k + 1) : rank * (k + 2)] for k in range(count)]
        rest = n[rank * (count + 1) :]
        letters = _LETTERS[:rank] if rank <= len(_LETTERS) else [f"i{k}" for k in range(rank)]
        places = [
            f"{pointer}[{place(letters, steps)}]"
            for pointer, steps in zip(at, strides, strict=False)
        ]
        index = flat_index(letters, shape)
        lines = self.body.lines(names, places[len(self.stores) :], rest, index)
        for target, (_, evaluation, result) in zip(places, self.stores, strict=False):
            lines.append(f"{target} = {self.body.value_name(evaluation, result)};")
        nested = headers(letters, shape, lines)
        if not self.body.divides:
            return nested
        report = f"if (bad) {at[-1]}[0] = 1;" if self.errors is not None else "(void)bad;"
        return ["{", "    int32_t bad = 0;", *(f"    {t}" for t in nested), f"    {report}", "}"]


def place(letters: Sequence[str], strides: Sequence[Number]) -> str:
    """Return the C of an element's place."""
    return sum_text(*(product_text(letter, s) for letter, s in zip(letters, strides, strict=True)))


def flat_index(letters: Sequence[str], shape: Sequence[Number]) -> str:
    """Return the C of an element's number in a contiguous order."""
    text = ""
    for letter, size in zip(letters, shape, strict=True):
        text = letter if not text else f"({text}) * {product_text(size)} + {letter}"
    return f"(int64_t)({text or '0'})"


def headers(letters: Sequence[str], shape: Sequence[Number], body: list[str]) -> list[str]:
    """Return a body within loops."""
    lines = list(body)
    for letter, size in zip(reversed(letters), reversed(shape), strict=True):
        lines = [
            f"for (int {letter} = 0; {letter} < {size}; ++{letter}) {{",
            *(f"    {line}" for line in lines),
            "}",
        ]
    return lines


def function_of(
    title: str,
    definition: Any,
    compute: str,
    types: dict[str, str],
    results: Sequence[str],
) -> Function:
    """Return the scalar function of a pointwise definition for operands of some dtypes."""
    program = definition.expression.typed(types, compute, list(results))
    return Function(title, program, types, results)


_functions: dict[Any, Function] = {}


def pointwise_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of a pointwise op that keeps loops, None where it has no meaning."""
    definition, compute = op.definition, compute_type(dtype)
    inputs = tuple(definition.inputs)
    known = {name: definition.fixed.get(name, dtype) for name in inputs}
    try:
        definition.expression.typed(known, compute, None)
    except ExpressionTypeError:
        return None

    def kernel(outs: Any, given: Any, params: dict[str, Any]) -> None:
        if outs[0].numel():
            keep_loop(op, compute, outs, dict(zip(inputs, given, strict=True)), params)

    return kernel


def keep_loop(
    op: Any, compute: str, outs: Sequence[Any], given: dict[str, Any], params: dict[str, Any]
) -> None:
    """Add the loop of one pointwise op to the program."""
    recording, shape = current(), tuple(outs[0].shape)
    types = {
        name: value.dtype.name if isinstance(value, tangrad.Tensor) else compute
        for name, value in given.items()
    }
    results = tuple(out.dtype.name for out in outs)
    key = (id(op), compute, tuple(types.items()), results)
    function = _functions.get(key)
    if function is None:
        function = function_of(op.title, op.definition, compute, types, results)
        _functions[key] = function
    loaded: list[tuple[Any, ...]] = []
    for name in function.program.inputs:
        value = given[name]
        if isinstance(value, tangrad.Tensor):
            loaded.append(("load", access(recording, value, shape)))
        else:
            loaded.append(("number", list(encode(value, types[name])), types[name]))
    encoded = [(list(encode(params.get(name), t)), t) for name, t in function.params]
    evaluation = Evaluation(function, loaded, encoded)
    stores = [(access(recording, out, shape), evaluation, k) for k, out in enumerate(outs)]
    errors = None
    if function.divides:
        errors = Ref(recording.error_cell(), 0, "int64")
    recording.add(Loop(shape, Body([evaluation]), stores, errors))


def access(recording: Any, tensor: Any, shape: Sequence[int]) -> Access:
    """Return a tensor's elements for a loop over a shape that it broadcasts to."""
    own, strides = tuple(tensor.shape), tuple(tensor.stride())
    lead = len(shape) - len(own)
    steps = [0] * lead + [
        0 if size == 1 else stride for size, stride in zip(own, strides, strict=True)
    ]
    return Access(recording.ref(tensor), tuple(steps))


def conversion(title: str) -> Any:
    """Return what stands for an op that gives elements as they are."""
    from tangrad.plugin.render import parse

    return SimpleNamespace(
        title=title,
        definition=SimpleNamespace(inputs=("x",), fixed={}, expression=parse("x", ("x",))),
    )


__all__ += ["access", "conversion", "fields_of", "flat_index", "keep_loop", "place"]
