"""The definition language: one call says everything that is true of an op on every device.

`pointwise`, `reduction`, `scan`, `view`, `op`, `composite` and `overload` each return the
callable op. docs/add-an-op.md is the manual; `definition.py`, beside this file, holds what they
make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tangrad import _C
from tangrad.dispatch.tracing import at_all_sizes
from tangrad.expr.dtypes import ORDER, kinds_of
from tangrad.ops.definition import folds, registry
from tangrad.ops.definition.checking import check_definition
from tangrad.ops.definition.definition import Definition, ReductionDefinition, result_type_of
from tangrad.ops.definition.fields import Examples, Forms, names_in
from tangrad.ops.definition.pointwise import PointwiseDefinition
from tangrad.ops.definition.return_types import structseq
from tangrad.ops.definition.schema import Schema
from tangrad.ops.definition.signature import by_position, schema_of

__all__ = ["at_all_sizes", "composite", "op", "overload", "pointwise", "reduction", "scan", "view"]


def _accepted(words: str) -> int:
    return sum(1 << ORDER.index(kind) for kind in kinds_of(words))


def _node_name(name: str, given: str | None) -> str:
    if given and given.endswith("Backwards"):
        return given
    words = (given or name.rpartition("::")[2]).strip("_").split("_")
    camel = "".join(part[:1].upper() + part[1:] for part in words)
    return f"{camel}Backward0"


def _make(kind: str, definition: Definition, **fields: Any) -> _C.Op:
    schema = definition.schema
    schema.name = definition.name = definition.key = registry.name_allowed(definition)
    if not registry.is_core(definition):
        check_definition(definition)
    params = [
        (
            p.name,
            p.type,
            _C.MISSING if p.required else p.default,
            p.keyword_only,
            p.length,
        )
        for p in schema.params
    ]
    positional = [i for i, p in enumerate(schema.params) if not p.keyword_only]
    first_ints = next(
        (i for i in positional if schema.params[i].type in ("int[]", "dim[]", "dim[]?", "int[]?")),
        -1,
    )
    varargs = (
        positional[-1]
        if definition.varargs
        else first_ints
        if first_ints == len(positional) - 1
        and first_ints <= 1
        and (first_ints == 0 or schema.params[0].type == "Tensor")
        else -1
    )
    spec = dict(
        name=schema.name,
        node_name=_node_name(schema.name, definition.node),
        params=params,
        written=schema.written,
        written_lists=schema.written_lists,
        varargs=varargs,
        nout=len(schema.returns),
        return_type=result_type_of(schema),
        has_rule=definition.differentiable,
        has_check=definition.check is not None,
        takes_out=definition.out
        if definition.out is not None
        else kind in ("pointwise", "reduction", "scan", "kernel") and schema.written < 0,
        **fields,
    )
    made = _C.make_op(definition, kind, spec)
    definition.op = made
    registry.add(made, definition)
    if definition.inplace:
        registry.add(_C.make_inplace(made, schema.name + "_"), definition)
    return made


def pointwise(schema: str, expression: str | Mapping[str, str], **said: Any) -> _C.Op:
    """Define an op that computes each element by a scalar expression.

    Args:
        schema: name, parameters and results.
        expression: text in the language of `tangrad.expr`; or {value: text} for the values of
            the op's only str parameter.
        said: fields of every op, and those of `Elements` (see `fields.py`). Instead of partials,
            `vjp` and `jvp` may be expressions over g and NAME_t, or "none: reason", also for a
            single input (asked for it, backward raises NotImplementedError).
    """
    parsed = Schema(schema)
    if not isinstance(expression, str):
        return _selected(parsed, expression, **said)
    definition = PointwiseDefinition(parsed, expression, **said)
    return _make(
        "pointwise",
        definition,
        promote=definition.promote,
        results=definition.results,
        fixed=definition.fixed,
        accepted=_accepted(definition.dtypes),
        ordered=definition.ordered,
        exact_numbers=definition.exact_numbers,
        beyond=definition.beyond,
    )


def _selected(parsed: Schema, expressions: Mapping[str, str], **said: Any) -> _C.Op:
    """One pointwise op per value of the str parameter, chosen by a composite.

    How programs reach the op, and what tests call it with, is said of the composite.
    """
    selector = next(p for p in parsed.params if p.type == "str")
    variants = {}
    public = {name: said.pop(name) for name in said.keys() & names_in(Forms, Examples)}
    partials = said.pop("partials", None) or {}
    rest = [p for p in parsed.params if p is not selector and not p.keyword_only]
    tail = [p for p in parsed.params if p is not selector and p.keyword_only]
    for value, text in expressions.items():
        declared = ", ".join(
            [f"{p.type} {p.name}" for p in rest]
            + (["*"] if tail else [])
            + [f"{p.type} {p.name}" for p in tail]
        )
        authored = {name: texts[value] for name, texts in partials.items()}
        variants[value] = pointwise(
            f"{parsed.name}_{value}({declared}) -> Tensor",
            text,
            partials=authored,
            function=False,
            method=False,
            doc=f"Compute {parsed.name} with {selector.name}='{value}'.",
            **{"node": parsed.name, **said},
        )
    names = [p.name for p in parsed.params]

    def choose(*args: Any) -> Any:
        given = dict(zip(names, args, strict=True))
        value = given.pop(selector.name)
        if value not in variants:
            raise RuntimeError(
                f"{parsed.name}: {selector.name} must be one of {', '.join(variants)}, got "
                f"'{value}'"
            )
        return variants[value](
            *[given[p.name] for p in rest], **{p.name: given[p.name] for p in tail}
        )

    definition = Definition(parsed, function_body=choose, **{"out": True, **public})
    definition.variants = variants
    return _make("composite", definition, function=choose)


def reduction(
    schema: str,
    *,
    map: str,
    fold: str | None = None,
    combine: str | None = None,
    identity: Any = None,
    finalize: str = "a",
    **said: Any,
) -> _C.Op:
    """Define a fold over dimensions.

    Args:
        map: expressions of the state of one element, separated by ";" (`index` is its position).
        fold: how states are combined, by name: "sum", "product", "maximum", "minimum", "any",
            "all" or "xor". Devices know these: sums and products of float32 pass through float64,
            any and all stop where they are decided.
        combine: instead of a name, the state of two states a and b (a0, a1.. with several).
        identity: with `combine`, the state of no element; None where an empty fold is an error.
        finalize: outputs over the state, n (elements folded) and the parameters.
        said: fields of every op, and those of `States` (see `fields.py`); promote="sum" makes
            integers int64.
    """
    combination = folds.resolve(schema.partition("(")[0], fold, combine, identity)
    definition = ReductionDefinition(Schema(schema), map, combination, finalize, **said)
    return _make_fold("reduction", definition)


def scan(
    schema: str,
    *,
    map: str,
    fold: str | None = None,
    combine: str | None = None,
    finalize: str | None = None,
    **said: Any,
) -> _C.Op:
    """Define a running fold along one dimension (see `reduction`)."""
    combination = folds.resolve(schema.partition("(")[0], fold, combine, None)
    definition = ReductionDefinition(Schema(schema), map, combination, finalize, **said)
    definition.is_scan = True
    return _make_fold("scan", definition)


def _make_fold(kind: str, definition: ReductionDefinition) -> _C.Op:
    return _make(
        kind,
        definition,
        promote=definition.promote,
        results=definition.results,
        accepted=_accepted(definition.dtypes),
    )


def view(schema: str, *, geometry: Callable[..., Any], **said: Any) -> _C.Op:
    """Define an op whose result shares its input's storage.

    Args:
        geometry: over parameters by name -> (shape, stride, offset), or a list of such.
        said: fields of every op (see `fields.py`).
    """
    definition = Definition(Schema(schema), geometry=geometry, linear=("self",), **said)
    return _make("view", definition, geometry=geometry)


def op(schema: str, **said: Any) -> _C.Op:
    """Define an op with a kernel per device: shape rule, reference, decomposition.

    Args:
        said: fields of every op (see `fields.py`).
    """
    definition = Definition(
        Schema(_with_random_state(schema) if said.get("random") else schema), **said
    )
    return _make("kernel", definition, native=definition.native, random=bool(definition.random))


def _with_random_state(schema: str) -> str:
    head, arrow, tail = schema.partition("->")
    head = head.rstrip().removesuffix(")")
    star = "" if "*," in head else ", *"
    return f"{head}{star}, any seed=None, any offset=None) {arrow} {tail}"


def composite(
    schema: str = "", *, result_names: Sequence[str] = (), **said: Any
) -> Callable[[Callable[..., Any]], _C.Op]:
    """Define an op as tensor code on other ops; a decorator.

    Args:
        schema: by default the function's signature (see `signature.py`), under the function's
            name; a name alone is another name for it.
        result_names: of the results, where they are several and the signature is the schema.
        said: fields of every op (see `fields.py`).
    """

    def wrap(function: Callable[..., Any]) -> _C.Op:
        said.setdefault("doc", function.__doc__)
        text = schema
        if "(" not in schema:
            text = schema_of(function, schema or function.__name__, result_names)
            by_position(function)
        return _make(
            "composite", Definition(Schema(text), function_body=function, **said), function=function
        )

    return wrap


def overload(name: str, *members: str, **said: Any) -> _C.Op:
    """Define a name that tries the signatures of several definitions in order."""
    ops = [registry.get(member) for member in members]
    for member in ops:
        if member.definition.function:  # public in its own right, as maximum is beside max
            continue
        member.definition.public_name = member.title = name
        if member.inplace is not None:
            member.inplace.title = name + "_"
        if member.return_type is not None:
            member.return_type = structseq(name, member.definition.schema.returns)
        if member.definition.node is None:
            member.node_name = _node_name(name, said.get("node"))
    definition = Definition(Schema(f"{name}(any self)"), **said)
    definition.members = ops
    spec = {"name": name, "node_name": _node_name(name, None), "overloads": ops}
    made = _C.make_op(definition, "overload", spec)
    definition.op = made
    registry.add(made, definition)
    if definition.inplace or any(o.inplace is not None for o in ops):
        registry.add(_C.make_inplace(made, name + "_"), definition)
    return made
