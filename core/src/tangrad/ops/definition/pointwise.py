"""What is true of a pointwise op, and the ops that follow: fused gradients and tangents.

The gradient of an expression is an expression, so backward is one pointwise op over the result's
gradients and whatever the formula mentions; that op is defined as every pointwise op is, so its
own gradient follows in the same way, and so on for every order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tangrad import _C
from tangrad.ops.definition.definition import Definition, refusal
from tangrad.ops.definition.fields import Elements, names_in
from tangrad.ops.definition.schema import REQUIRED, TENSOR_TYPES, Param, Schema


class Derivation(NamedTuple):
    """What a derived op is: of which definition, and by which inputs.

    Attributes:
        parent: the definition that it follows from.
        kind: "gradient" (of the inputs, for the results' gradients) or "tangent" (of the results,
            for the inputs' tangents).
        inputs: the names of those inputs.
        missing: the gradients of results that count as zero.
    """

    parent: PointwiseDefinition
    kind: str
    inputs: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """What the key of the derived op ends in, in parentheses."""
        kind = ("jvp",) if self.kind == "tangent" else ()
        return ",".join((*kind, *self.inputs, *(f"no_{g}" for g in self.missing)))


class PointwiseDefinition(Elements, Definition):
    """An op whose elements follow from a scalar expression."""

    kind = "pointwise"
    fields = Definition.fields | names_in(Elements)
    batch: Any = "pointwise"
    derivation: Derivation | None = None

    def __init__(self, schema: Schema, expression: Any, **said: Any) -> None:
        super().__init__(schema, **said)
        self.text = expression
        self.results, self.fixed = tuple(self.results), dict(self.fixed or {})
        self.partials = dict(self.partials or {})
        self.inputs = tuple(schema.params[i].name for i in schema.tensors)
        self.params = tuple(
            p.name
            for p in schema.params
            if p.type not in TENSOR_TYPES and p.type not in ("generator?", "dtype?")
        )
        self._expression = expression if not isinstance(expression, str) else None
        self.ordered = "philox_uniform" in self._source_text
        self._derived: dict[Derivation, Any] = {}
        self._rules_without: dict[tuple[int, tuple[bool, ...]], Any] = {}

    @property
    def differentiable(self) -> bool:
        """Whether calls are recorded: unless a reason against it is stated."""
        return not isinstance(self.vjp, str)

    @property
    def _source_text(self) -> str:
        return self.text if isinstance(self.text, str) else self.text.source

    def _formulas(self) -> tuple[Any, ...]:
        return (self._source_text, self.results, tuple(sorted(self.fixed.items())))

    @property
    def expression(self) -> Any:
        """The parsed expression."""
        if self._expression is None:
            from tangrad.expr import parse

            self._expression = parse(self.text, self.inputs, self.params)
        return self._expression

    def backward_rule(self, needs: int) -> Any:
        """Return the rule whose gradients one fused pointwise op computes."""
        if self._differentiates_by_functions:
            return super().backward_rule(needs)
        return _fused_rule(self, needs)

    def gradient(self, names: Sequence[str]) -> Any:
        """Return the pointwise op of the gradients of inputs, and the names of its arguments.

        Inputs whose gradient is a result's own, or unknown, have no part in it; None where no
        other is left, and where gradients are tensor code.

        Raises:
            DerivativeError: there is none for one of the inputs.
        """
        if self._differentiates_by_functions:
            return None
        fused = _split(self, tuple(n for n in names if not _stated(self, n)))[1]
        return _fused_gradient(self, fused) if fused else None

    @property
    def _differentiates_by_functions(self) -> bool:
        """Whether the gradient is tensor code, not an expression."""
        return isinstance(self.vjp, dict) and any(callable(f) for f in self.vjp.values())

    def rule_without(self, needs: int, present: tuple[bool, ...]) -> Any:
        """Return the rule without the terms of results that have no gradient."""
        if self._differentiates_by_functions:
            return None
        key = (needs, present)
        if key not in self._rules_without:
            self._rules_without[key] = _fused_rule(self, needs, present)
        return self._rules_without[key]

    def tangent(self, given: tuple[str, ...]) -> Any:
        """Return the pointwise op of the tangent, and the names of its arguments."""
        key = Derivation(self, "tangent", given)
        if key not in self._derived:
            from tangrad.expr import DerivativeError

            try:
                _tangent_op(self, given)
            except DerivativeError as error:
                by = "', '".join(given)
                raise NotImplementedError(
                    f"the derivative of {self.title} for '{by}' is not implemented: {error}"
                ) from error
        return self._derived[key]

    @property
    def tangent_suffix(self) -> str:
        """What makes the name of a tangent; a tangent's own inputs are called NAME_t, too."""
        taken = {*self.inputs, *self.params}
        suffix = "_t"
        while not taken.isdisjoint(n + suffix for n in self.inputs):
            suffix += "t"
        return suffix


def _fused_rule(definition: PointwiseDefinition, needs: int, present: tuple[bool, ...] = ()) -> Any:
    """Return the rule of a pointwise op for the inputs in the bit mask `needs`.

    Args:
        present: per result, whether it has a gradient. Default: all have.
    """
    required = tuple(name for k, name in enumerate(definition.inputs) if needs >> k & 1)
    grads = _grad_names(definition)
    missing = tuple(g for g, given in zip(grads, present, strict=False) if not given)
    unknown, (passed, fused) = _known(definition, required, missing)
    formulas: list[tuple[Any, ...]] = [
        ((definition.inputs.index(name),), None, refusal(definition, name, why), -1, [], (True,))
        for name, why in unknown.items()
    ]
    formulas += [
        ((definition.inputs.index(name),), None, None, k, [], (True,)) for name, k in passed
    ]
    saves: list[tuple[str, int]] = []
    if fused:
        names = tuple(name for name, _ in fused)
        op, arguments = _fused_gradient(definition, fused, missing)
        read = frozenset().union(*(e.read for _, e in fused))
        formulas.append(
            (
                tuple(definition.inputs.index(n) for n in names),
                op,
                None,
                -1,
                [_source(definition, a, grads, saves, a in read) for a in arguments],
                (True,) * len(names),
            )
        )
    return _C.make_rule(saves, formulas)


def _known(
    definition: PointwiseDefinition, names: tuple[str, ...], missing: tuple[str, ...]
) -> tuple[dict[str, str], Any]:
    """Return ({input without a derivative: why}, the others' by `_split`)."""
    from tangrad.expr import DerivativeError

    unknown: dict[str, str] = {}
    if not isinstance(definition.vjp, dict):
        try:
            return unknown, _split(definition, names, missing)
        except DerivativeError:
            pass  # of some of them: asked one by one, who has one keeps it
    unknown = {n: why for n in names if (why := _unknown(definition, n)) is not None}
    return unknown, _split(definition, tuple(n for n in names if n not in unknown), missing)


def _split(
    definition: PointwiseDefinition, wanted: tuple[str, ...], missing: tuple[str, ...] = ()
) -> tuple[list[tuple[str, int]], list[tuple[str, Any]]]:
    """Return (inputs whose gradient is that of a result, and of which; the others' expressions).

    Gradients of results that are missing count as zero; inputs whose gradient is then zero are
    left out.
    """
    grads = _grad_names(definition)
    passed, fused = [], []
    for name in wanted:
        expression = _gradient(definition, name, grads)
        if missing:
            expression = expression.without(missing)
            if expression.constant() == 0:
                continue
        same = expression.is_identity_of(0)
        if same in grads:
            passed.append((name, grads.index(same)))
        else:
            fused.append((name, expression))
    return passed, fused


def _fused_gradient(
    definition: PointwiseDefinition, fused: Sequence[tuple[str, Any]], missing: tuple[str, ...] = ()
) -> tuple[Any, list[str]]:
    names = tuple(name for name, _ in fused)
    derivation = Derivation(definition, "gradient", names, missing)
    expressions = [expression for _, expression in fused]
    leading = _grad_names(definition)
    return _fused_op(derivation, f"{definition.name}_backward", expressions, leading)


def _stated(definition: PointwiseDefinition, name: str) -> str | None:
    """Return why there is no derivative by an input, as far as the definition says it."""
    if not isinstance(definition.vjp, dict):
        return None
    text: str = definition.vjp.get(name, "none: its definition gives no vjp for it")
    return text if text.startswith("none:") else None


def _unknown(definition: PointwiseDefinition, name: str) -> str | None:
    """Return why there is no derivative by an input, as "none: reason"; None: there is one."""
    from tangrad.expr import DerivativeError

    if isinstance(definition.vjp, dict) or name in definition.partials:
        return _stated(definition, name)
    try:
        definition.expression.partial(name)
    except DerivativeError as error:
        return f"none: {error}"
    return None


def _grad_names(definition: PointwiseDefinition) -> tuple[str, ...]:
    """Return how formulas call the results' gradients; a gradient's inputs are called g, too."""
    n = len(definition.schema.returns)
    taken = {*definition.inputs, *definition.params}
    prefix = "g"
    while not taken.isdisjoint(
        names := (prefix,) if n == 1 else tuple(f"{prefix}{k}" for k in range(n))
    ):
        prefix += "g"
    return names


def _result_names(definition: PointwiseDefinition) -> tuple[str, ...]:
    """Return how formulas call the results."""
    n = len(definition.schema.returns)
    return ("result",) if n == 1 else ("result", *[f"result{k}" for k in range(n)])


def _gradient(definition: PointwiseDefinition, name: str, grads: tuple[str, ...]) -> Any:
    """Return the expression of one input's gradient over grads, inputs and results."""
    from tangrad.expr import parse

    inputs = (*grads, *definition.inputs, *_result_names(definition))
    if isinstance(definition.vjp, dict):
        text = _authored(definition, definition.vjp, name)
        return parse(text, inputs, definition.params)
    if name in definition.partials:
        return parse(definition.partials[name], inputs, definition.params).weighted(("g",), True)
    return definition.expression.vjp((name,), grads[0] if len(grads) == 1 else grads[0][:-1])


def _authored(definition: PointwiseDefinition, texts: Mapping[str, Any], name: str) -> Any:
    if name not in texts:
        from tangrad.expr import DerivativeError

        raise DerivativeError(
            f"the derivative of '{definition.name}' for '{name}' is not implemented"
        )
    return texts[name]


def _fused_op(
    derivation: Derivation, name: str, expressions: list[Any], leading: tuple[str, ...]
) -> tuple[Any, list[str]]:
    """Return one op with all expressions as outputs, and the names of its arguments."""
    from tangrad.expr.expression import Expression

    definition = derivation.parent
    if derivation in definition._derived:
        return definition._derived[derivation]
    free: set[str] = set()
    for e in expressions:
        free |= e.free
    order = (*leading, *definition.inputs, *_result_names(definition))
    tensors = [n for n in dict.fromkeys(order) if n in free]
    params = [p for p in definition.params if p in free]
    merged = Expression([e.nodes[0] for e in expressions], tuple(tensors), tuple(params))
    if not tensors:
        tensors = [leading[0]]
        merged = Expression(merged.nodes, tuple(tensors), tuple(params))
    results = (
        tuple(r if r in ("real", "complex") else "promoted" for r in definition.results)
        if derivation.kind == "tangent"
        else ("promoted",) * len(expressions)
    )
    made = _make_derived(definition, name, merged, tensors, params, results)
    made.definition.derivation = derivation
    made.definition.key = f"{definition.key}{name[len(definition.name) :]}({derivation.mark})"
    definition._derived[derivation] = (made, [*tensors, *params])
    return definition._derived[derivation]


def _make_derived(
    parent: PointwiseDefinition,
    name: str,
    expression: Any,
    tensors: list[str],
    params: list[str],
    results: tuple[str, ...],
) -> Any:
    """Build the op of a derived expression; it belongs to no namespace."""
    schema = Schema.__new__(Schema)
    schema.text, schema.name, schema.written = expression.source, name, -1
    schema.written_lists, schema.result = (), "Tensor"
    schema.params = [Param(n, "Operand", REQUIRED, False, 0, False) for n in tensors]
    declared = {p.name: p.type for p in parent.schema.params}
    # Kernels get integers as such: a seed has more bits than a floating-point number.
    schema.params += [
        Param(n, "int" if declared[n] == "int" else "any", REQUIRED, False, 0, False)
        for n in params
    ]
    schema.returns = tuple(f"grad{k}" for k in range(len(results))) if len(results) > 1 else ("",)
    fixed = {n: t for n, t in parent.fixed.items() if n in tensors}
    child = PointwiseDefinition(
        schema,
        expression,
        results=results,
        fixed=fixed,
        exact_numbers=True,
        doc=f"Follow from the definition of '{parent.name}'.",
    )
    child._expression = expression
    child.parent = parent.parent or parent.name
    spec = {
        "name": name,
        "node_name": _camel(name),
        "params": [(p.name, p.type, _C.MISSING, False, 0) for p in schema.params],
        "nout": len(results),
        "promote": "promote",
        "results": results,
        "fixed": fixed,
        "ordered": child.ordered,
        "has_rule": True,
        "return_type": None,
        "takes_out": False,
    }
    child.op = _C.make_op(child, "pointwise", spec)
    return child.op


def _camel(name: str) -> str:
    return (
        "".join(part[:1].upper() + part[1:] for part in name.rpartition("::")[2].split("_"))
        + "Backward0"
    )


def _source(
    definition: PointwiseDefinition,
    name: str,
    grads: tuple[str, ...],
    saves: list[tuple[str, int]],
    read: bool,
) -> tuple[str, int]:
    if name in grads:
        return ("grad", grads.index(name))
    if name in definition.parameter_names:
        item = ("input" if read else "unread", definition.parameter_names.index(name))
    else:
        item = ("result", int(name[6:] or 0))
    if item not in saves:
        saves.append(item)
    return ("saved", saves.index(item))


def _tangent_op(definition: PointwiseDefinition, given: tuple[str, ...]) -> tuple[Any, list[str]]:
    """Return the op of the results' tangents for those of `given`, and its arguments' names."""
    outputs = len(definition.schema.returns)
    expressions = [_tangent(definition, given, k) for k in range(outputs)]
    suffix = definition.tangent_suffix
    leading = tuple(n + suffix for n in given)
    derivation = Derivation(definition, "tangent", given)
    return _fused_op(derivation, f"{definition.name}_jvp", expressions, leading)


def _tangent(definition: PointwiseDefinition, given: tuple[str, ...], k: int) -> Any:
    from tangrad.expr import parse
    from tangrad.expr.expression import Expression

    inputs = (*[f"{n}_t" for n in given], *definition.inputs, *_result_names(definition))
    if isinstance(definition.jvp, dict):
        texts = [_authored(definition, definition.jvp, n) for n in given]
        return parse(" + ".join(f"({text})" for text in texts), inputs, definition.params)
    if all(n in definition.partials for n in given) and len(definition.schema.returns) == 1:
        # One by one: locals of a text are its own.
        partials = [parse(definition.partials[n], inputs, definition.params) for n in given]
        together = Expression([p.nodes[0] for p in partials], inputs, definition.params)
        return together.weighted([f"{n}_t" for n in given])
    return definition.expression.select([k]).jvp(given, definition.tangent_suffix)
