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
from tangrad.ops.definition import folds, registry
from tangrad.ops.definition.checking import check_definition
from tangrad.ops.definition.definition import (
    Definition,
    ReductionDefinition,
    result_type_of,
)
from tangrad.ops.definition.pointwise import PointwiseDefinition
from tangrad.ops.definition.return_types import structseq
from tangrad.ops.definition.schema import Schema

__all__ = ["at_all_sizes", "composite", "op", "overload", "pointwise", "reduction", "scan", "view"]

_KINDS = {"bool": 0, "uint": 1, "int": 2, "float": 3, "complex": 4}
_WORDS = {
    "bool": (0,),
    "integral": (1, 2),
    "floating": (3,),
    "complex": (4,),
    "all": (0, 1, 2, 3, 4),
}


def _accepted(words: str) -> int:
    mask = 0
    for word in words.split():
        for kind in _WORDS.get(word, ()):  # check_definition refuses others
            mask |= 1 << kind
    return mask


def _node_name(name: str, given: str | None) -> str:
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
            _C.MISSING if repr(p.default) == "<required>" else p.default,
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


def pointwise(schema: str, expression: str | Mapping[str, str], **options: Any) -> _C.Op:
    """Define an op that computes each element by a scalar expression.

    Args:
        schema: name, parameters and results.
        expression: text in the language of `tangrad.expr`; or {value: text} for the values of
            the op's only str parameter.
        promote: "promote", "float" (integers become the default dtype), "integral" or
            "number" (bool becomes int64).
        results: dtype of each output: "promoted", "bool", "real" or a dtype's name.
        fixed: inputs that take no part in promotion, with their dtype.
        dtypes: accepted promoted dtypes, words of "bool integral floating complex all".
        partials: authored partial derivatives; derived from the expression otherwise.
        vjp, jvp: instead of partials, expressions over g and NAME_t; or "none: reason", also for
            a single input (asked for it, backward raises NotImplementedError).
        check: function over parameters by name that raises the op's own errors.
        exact_numbers: beside a tensor of half precision, a Python number given as an `Operand`
            keeps its value; else it is rounded as an element would be.
        options: these, and all that every op may say: see `Definition`.
    """
    if isinstance(expression, str):
        return _pointwise(Schema(schema), expression, **options)
    return _selected(Schema(schema), expression, **options)


def _pointwise(
    parsed: Schema,
    expression: str,
    *,
    promote: str = "promote",
    results: Sequence[str] = ("promoted",),
    fixed: Mapping[str, str] | None = None,
    dtypes: str = "all",
    partials: Mapping[str, Any] | None = None,
    vjp: Any = None,
    jvp: Any = None,
    check: Any = None,
    exact_numbers: bool = False,
    **common: Any,
) -> _C.Op:
    definition = PointwiseDefinition(
        parsed,
        expression,
        promote=promote,
        results=results,
        fixed=fixed or {},
        partials=partials,
        vjp=vjp,
        jvp=jvp,
        check=check,
        **common,
    )
    fields = {
        "promote": promote,
        "results": results,
        "fixed": fixed or {},
        "accepted": _accepted(dtypes),
        "ordered": definition.ordered,
        "exact_numbers": exact_numbers,
    }
    definition.dtypes = dtypes
    definition.exact_numbers = exact_numbers
    return _make("pointwise", definition, **fields)


def _selected(parsed: Schema, expressions: Mapping[str, str], **kwargs: Any) -> _C.Op:
    """One pointwise op per value of the str parameter, chosen by a composite."""
    selector = next(p for p in parsed.params if p.type == "str")
    variants = {}
    public = {
        k: kwargs.pop(k)
        for k in (
            "namespace",
            "alias",
            "method",
            "function",
            "inplace",
            "samples",
            "errors",
            "doc",
            "oracle",
            "strict_out_dtype",
        )
        if k in kwargs
    }
    partials = kwargs.pop("partials", None) or {}
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
            partials=authored or None,
            node=parsed.name,
            function=False,
            method=False,
            doc=f"Compute {parsed.name} with {selector.name}='{value}'.",
            **kwargs,
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

    definition = Definition(parsed, function_body=choose, out=True, **public)
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
    promote: str = "promote",
    results: Sequence[str] = ("promoted",),
    dtypes: str = "all",
    **common: Any,
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
        promote, results, dtypes: as for `pointwise`; promote="sum" makes integers int64, the
            result "truth" is bool, and uint8 of uint8.
        keeps_without_dims: an empty list of dimensions (in `common`) reduces none of them, where
            else it reduces all.
        common: see `Definition`.
    """
    combination = folds.resolve(schema.partition("(")[0], fold, combine, identity)
    definition = ReductionDefinition(
        Schema(schema), map, combination, finalize, results=results, promote=promote, **common
    )
    definition.dtypes = dtypes
    return _make(
        "reduction", definition, promote=promote, results=results, accepted=_accepted(dtypes)
    )


def scan(
    schema: str,
    *,
    map: str,
    fold: str | None = None,
    combine: str | None = None,
    finalize: str | None = None,
    promote: str = "promote",
    results: Sequence[str] = ("promoted",),
    dtypes: str = "all",
    **common: Any,
) -> _C.Op:
    """Define a running fold along one dimension (see `reduction`)."""
    combination = folds.resolve(schema.partition("(")[0], fold, combine, None)
    definition = ReductionDefinition(
        Schema(schema), map, combination, finalize, results=results, promote=promote, **common
    )
    definition.dtypes = dtypes
    definition.is_scan = True
    return _make("scan", definition, promote=promote, results=results, accepted=_accepted(dtypes))


def view(schema: str, *, geometry: Callable[..., Any], **common: Any) -> _C.Op:
    """Define an op whose result shares its input's storage.

    Args:
        geometry: over parameters by name -> (shape, stride, offset), or a list of such.
        common: see `Definition`.
    """
    definition = Definition(Schema(schema), geometry=geometry, linear=("self",), **common)
    return _make("view", definition, geometry=geometry)


def op(schema: str, **fields: Any) -> _C.Op:
    """Define an op with a kernel per device: shape rule, reference, decomposition."""
    parsed = Schema(schema)
    if fields.get("random"):
        parsed = Schema(_with_random_state(schema))
    return _make(
        "kernel",
        Definition(parsed, **fields),
        native=fields.get("native"),
        random=bool(fields.get("random")),
    )


def _with_random_state(schema: str) -> str:
    head, arrow, tail = schema.partition("->")
    head = head.rstrip().removesuffix(")")
    star = "" if "*," in head else ", *"
    return f"{head}{star}, any seed=None, any offset=None) {arrow} {tail}"


def composite(schema: str, **common: Any) -> Callable[[Callable[..., Any]], _C.Op]:
    """Define an op as tensor code on other ops; a decorator."""

    def wrap(function: Callable[..., Any]) -> _C.Op:
        common.setdefault("doc", function.__doc__)
        return _make(
            "composite",
            Definition(Schema(schema), function_body=function, **common),
            function=function,
        )

    return wrap


def overload(name: str, *members: str, **common: Any) -> _C.Op:
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
            member.node_name = _node_name(name, common.get("node"))
    definition = Definition(Schema(f"{name}(any self)"), **common)
    definition.members = ops
    spec = {"name": name, "node_name": _node_name(name, None), "overloads": ops}
    made = _C.make_op(definition, "overload", spec)
    definition.op = made
    registry.add(made, definition)
    if definition.inplace or any(o.inplace is not None for o in ops):
        registry.add(_C.make_inplace(made, name + "_"), definition)
    return made
