"""Check the definitions of packages when they are made, and not when they are first used.

The core's own definitions are checked by its tests, and not by every import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tangrad.expr.dtypes import WORDS
from tangrad.expr.errors import hint

_TYPES = frozenset(
    "Operand Scalar Scalar? Tensor Tensor? Tensor[] any bool bool? device? dim dim? dim[] dim[]? "
    "dtype? float float? generator? int int? int[] int[]? layout? memory_format? str str?".split()
)
_PROMOTIONS = frozenset("promote float integral number sum".split())
_RESULTS = frozenset("promoted bool real complex truth".split())


def check_definition(definition: Any) -> None:
    """Refuse a definition that could not work.

    Raises:
        ValueError: a type, word, expression or name is wrong; it names the op and the field.
    """
    _check_parameters(definition)
    _check_words(definition)
    _check_expressions(definition)
    for field, function, extra in _rules(definition):
        _check_rule(definition, field, function, extra)


def _error(definition: Any, reason: str) -> ValueError:
    return ValueError(f"the definition of '{definition.schema.name}': {reason}")


def _known(definition: Any, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    choices = sorted(known)
    for name in given:
        if name in choices:
            continue
        raise _error(definition, f"{what} '{name}' is unknown{hint(name, choices)}")


def _check_parameters(definition: Any) -> None:
    names = definition.schema.names
    for p in definition.schema.params:
        _known(definition, f"type of parameter '{p.name}',", [p.type], _TYPES)
        if not p.name.isidentifier():
            raise _error(definition, f"'{p.name}' is no name of a parameter")
    for name in names:
        if names.count(name) > 1:
            raise _error(definition, f"two parameters are called '{name}'")
    tensors = [names[i] for i in definition.schema.tensors]
    _known(definition, "linear: input", definition.linear, tensors)
    if isinstance(definition.vjp, dict):
        keys = [n for key in definition.vjp for n in (key if isinstance(key, tuple) else (key,))]
        _known(definition, "vjp: input", keys, tensors)
    elif isinstance(definition.vjp, str) and not definition.vjp.startswith("none:"):
        raise _error(
            definition, f"vjp is {{input: rule}}, or 'none: reason', not '{definition.vjp}'"
        )


def _check_words(definition: Any) -> None:
    from tangrad import _C

    dtypes = {d.name for d in _C.registered_dtypes()}
    _known(definition, "dtypes: word", definition.dtypes.split(), WORDS.keys() | dtypes)
    _known(definition, "promote", [definition.promote], _PROMOTIONS)
    _known(definition, "results: dtype", getattr(definition, "results", ()), _RESULTS | dtypes)
    fixed = getattr(definition, "fixed", {})
    _known(definition, "fixed: input", fixed, definition.schema.names)
    _known(definition, "fixed: dtype", fixed.values(), dtypes)
    results, returns = getattr(definition, "results", None), definition.schema.returns
    if results is not None and len(results) != len(returns):
        raise _error(
            definition, f"results has {len(results)} dtypes, the schema {len(returns)} results"
        )


def _check_expressions(definition: Any) -> None:
    for field, parse in _expressions(definition):
        try:
            parse()
        except (ValueError, TypeError) as error:
            raise _error(definition, f"{field}: {error}") from error


def _expressions(definition: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the fields that hold expressions, with what parses them."""
    if definition.kind == "reduction":
        for field in ("map", "combine", "finalize"):
            yield field, partial(getattr, definition, field)
    if definition.kind != "pointwise":
        return
    from tangrad.expr import parse

    yield "expression", lambda: _outputs(definition)
    given = (*definition.inputs, "result", *(f"result{k}" for k in range(9)))
    grads = ("g", *(f"g{k}" for k in range(9)))
    tangents = tuple(f"{name}_t" for name in definition.inputs)
    vjp = definition.vjp if isinstance(definition.vjp, dict) else {}
    jvp = definition.jvp if isinstance(definition.jvp, dict) else {}
    for field, texts, names in (
        ("partials", definition.partials, given),
        ("vjp", vjp, (*grads, *given)),
        ("jvp", jvp, (*tangents, *given)),
    ):
        _known(definition, f"{field}: input", texts, definition.inputs)
        for name, text in texts.items():
            if isinstance(text, str) and not text.startswith("none:"):
                yield f"{field} of '{name}'", partial(parse, text, names, definition.params)


def _outputs(definition: Any) -> None:
    found, wanted = definition.expression.outputs, len(definition.schema.returns)
    if found != wanted:
        raise ValueError(f"it has {found} values, the schema {wanted} results")


def _rules(definition: Any) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Yield the fields that hold functions over parameters, and further names they may ask for."""
    names = definition.schema.names
    results = ("result", *(f"result{k}" for k in range(len(definition.schema.returns))))
    for field in ("shape", "dtype", "check", "decompose", "geometry", "memory_format", "words"):
        yield field, getattr(definition, field), ()
    metas = tuple(f"{name}_meta" for name in names)
    yield "reference", definition.reference, ("np", *metas)
    if callable(definition.jvp):
        tangents = tuple(f"{name}_t" for name in names)
        yield "jvp", definition.jvp, (*tangents, *results, "needs", "args", "tangents")
    if isinstance(definition.vjp, dict):
        grads = ("g", *(f"g{k}" for k in range(len(definition.schema.returns))))
        for key, function in definition.vjp.items():
            yield f"vjp of {key}", function, (*grads, *metas, *results, "needs", "grads")


def _check_rule(definition: Any, field: str, function: Any, extra: tuple[str, ...]) -> None:
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & 0x0C:  # no Python function, or one of any parameters
        return
    asked = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    required = asked[: code.co_argcount - len(function.__defaults__ or ())]
    known = {*definition.schema.names, *extra}
    _known(definition, f"{field} asks for", required, known)
