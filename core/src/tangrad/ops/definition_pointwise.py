"""What is true of a pointwise op, and the ops that follow: fused gradients and tangents.

The gradient of an expression is an expression, so backward is one pointwise op over the result's
gradients and whatever the formula mentions; that op is defined as every pointwise op is, so its
own gradient follows in the same way, and so on for every order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tangrad import _C
from tangrad.ops.definition import Definition
from tangrad.ops.schema import REQUIRED, TENSOR_TYPES, Param, Schema


class PointwiseDefinition(Definition):
    """An op whose elements follow from a scalar expression."""

    kind = "pointwise"

    def __init__(
        self,
        schema: Schema,
        expression: Any,
        *,
        results: Sequence[str],
        fixed: Mapping[str, str],
        partials: Mapping[str, str] | None,
        **common: Any,
    ) -> None:
        common.setdefault("batch", "pointwise")
        super().__init__(schema, **common)
        self.text = expression
        self.results, self.fixed, self.partials = tuple(results), dict(fixed), dict(partials or {})
        self.inputs = tuple(schema.params[i].name for i in schema.tensors)
        self.params = tuple(
            p.name
            for p in schema.params
            if p.type not in TENSOR_TYPES and p.type not in ("generator?", "dtype?")
        )
        self._expression = expression if not isinstance(expression, str) else None
        self.ordered = "philox_uniform" in self._source_text
        self._derived: dict[Any, Any] = {}

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
        if isinstance(self.vjp, dict) and any(callable(f) for f in self.vjp.values()):
            return super().backward_rule(needs)
        return _fused_rule(self, needs)

    def tangent(self, given: tuple[str, ...]) -> Any:
        """Return the pointwise op of the tangent, and the names of its arguments."""
        key = ("jvp", given)
        if key not in self._derived:
            self._derived[key] = _tangent_op(self, given)
        return self._derived[key]

    @property
    def tangent_suffix(self) -> str:
        """What makes the name of a tangent; a tangent's own inputs are called NAME_t, too."""
        taken = {*self.inputs, *self.params}
        suffix = "_t"
        while not taken.isdisjoint(n + suffix for n in self.inputs):
            suffix += "t"
        return suffix


def _fused_rule(definition: PointwiseDefinition, needs: int) -> Any:
    """Return the rule of a pointwise op for the inputs in the bit mask `needs`."""
    required = tuple(name for k, name in enumerate(definition.inputs) if needs >> k & 1)
    wanted = tuple(name for name in required if not _unknown(definition, name))
    grads = _grad_names(definition)
    joined = [_gradient(definition, name, grads) for name in wanted]
    formulas: list[tuple[Any, ...]] = [
        ((definition.inputs.index(name),), None, _refusal(definition, name), -1, [], (True,))
        for name in required
        if name not in wanted
    ]
    fused: list[tuple[str, Any]] = []
    for name, expression in zip(wanted, joined, strict=True):
        passed = expression.is_identity_of(0)
        if passed in grads:
            formulas.append(
                ((definition.inputs.index(name),), None, None, grads.index(passed), [], (True,))
            )
        else:
            fused.append((name, expression))
    saves: list[tuple[str, int]] = []
    if fused:
        names = tuple(name for name, _ in fused)
        op, arguments = _fused_op(
            definition, f"{definition.name}_backward", [e for _, e in fused], grads, names
        )
        formulas.append(
            (
                tuple(definition.inputs.index(n) for n in names),
                op,
                None,
                -1,
                [_source(definition, a, grads, saves) for a in arguments],
                (True,) * len(names),
            )
        )
    return _C.make_rule(saves, formulas)


def _unknown(definition: PointwiseDefinition, name: str) -> bool:
    """Tell whether the derivative by an input is said to be unknown: `vjp={NAME: "none: why"}`."""
    stated = definition.vjp.get(name) if isinstance(definition.vjp, dict) else None
    return isinstance(stated, str) and stated.startswith("none:")


def _refusal(definition: PointwiseDefinition, name: str) -> Any:
    """Return the backward formula that raises, as late as in PyTorch: when it is asked for."""
    reason = definition.vjp[name].removeprefix("none:").strip()

    def refuse() -> Any:
        raise NotImplementedError(
            f"the derivative of '{definition.op.title}' for '{name}' is not implemented: {reason}; "
            "detach() it if it is a constant"
        )

    return refuse


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
        raise _C.DerivativeError(
            f"the derivative of '{definition.name}' for '{name}' is not implemented"
        )
    return texts[name]


def _fused_op(
    definition: PointwiseDefinition,
    name: str,
    expressions: list[Any],
    leading: tuple[str, ...],
    tag: tuple[str, ...],
) -> tuple[Any, list[str]]:
    """Return one op with all expressions as outputs, and the names of its arguments."""
    from tangrad.expr.expression import Expression

    key = (name, tag)
    if key in definition._derived:
        return definition._derived[key]
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
        if tag[0] == "jvp"
        else ("promoted",) * len(expressions)
    )
    made = _make_derived(definition, name, merged, tensors, params, results)
    made.definition.key = f"{definition.key}{name[len(definition.name) :]}({','.join(tag)})"
    definition._derived[key] = (made, [*tensors, *params])
    return definition._derived[key]


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
    schema.written_lists = ()
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
        partials=None,
        doc=f"Follow from the definition of '{parent.name}'.",
    )
    child._expression = expression
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
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Backward0"


def _source(
    definition: PointwiseDefinition, name: str, grads: tuple[str, ...], saves: list[tuple[str, int]]
) -> tuple[str, int]:
    if name in grads:
        return ("grad", grads.index(name))
    if name in definition.parameter_names:
        item = ("input", definition.parameter_names.index(name))
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
    return _fused_op(definition, f"{definition.name}_jvp", expressions, leading, ("jvp", *given))


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
