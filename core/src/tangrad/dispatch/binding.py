"""Arguments by name: for the functions of a definition, and as a person writes a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tangrad import _C


def call_by_name(function: Callable[..., Any], named: Mapping[str, Any]) -> Any:
    """Call a function with those of the named values that it asks for."""
    code = function.__code__
    if code.co_flags & 0x04:  # *args: everything, in order
        return function(*named.values())
    return function(
        *[named[name] for name in code.co_varnames[: code.co_argcount]],
        **{
            name: named[name]
            for name in code.co_varnames[
                code.co_argcount : code.co_argcount + code.co_kwonlyargcount
            ]
        },
    )


def call_form(op: _C.Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of a bound call, defaults left out, as a person would write it."""
    positional: list[Any] = []
    kwargs: dict[str, Any] = {}
    skipped = False
    for p, value, default in _with_defaults(op, args):
        if default:
            skipped = True
        elif p.keyword_only or skipped:
            kwargs[p.name] = value
        else:
            positional.append(value)
    return tuple(positional), kwargs


def handled_form(op: _C.Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of a bound call as `__torch_dispatch__` takes them.

    Handlers name their parameters, so only keyword-only arguments are keywords; sizes are lists.
    """
    positional: list[Any] = []
    kwargs: dict[str, Any] = {}
    given = 0
    for p, value, default in _with_defaults(op, args):
        if not p.keyword_only:
            listed = type(value) is tuple and p.type in _LISTED
            positional.append(list(value) if listed else value)
            given = given if default else len(positional)
        elif not default:
            kwargs[p.name] = value
    return tuple(positional[:given]), kwargs


_LISTED = frozenset(("int[]", "int[]?", "dim[]", "dim[]?"))


def _with_defaults(op: _C.Op, args: tuple[Any, ...]) -> Iterator[tuple[Any, Any, bool]]:
    for p, value in zip(op.definition.schema.params, args, strict=True):
        default = p.default is value or (
            type(value) in (bool, int, float, str, tuple)
            and p.default == value
            and type(p.default) is type(value)
        )
        yield p, value, default


def public_form(op: _C.Op, given: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _C.Op:
    """Return the op of the public name that a call goes through, if it leads to the same form.

    An earlier form of the name must not take the arguments: `clamp(x, 1)` is no `clamp_high`.
    """
    from tangrad.ops.definition import registry

    group = _C.lookup_op(op.title) if registry.is_known(op.title) else op
    if group is op or op not in group.overloads:
        return op
    for form in group.overloads:
        if form is op:
            return group
        params = (form.functional or form).definition.schema.params
        names = {p.name for p in params}
        taken = [p for p in params if not p.keyword_only]
        passed = {p.name for p in taken[: len(given)]}.union(kwargs)
        if (
            len(given) <= len(taken)
            and names.issuperset(kwargs)
            and all(p.name in passed for p in params if p.required)
            and not any(map(_excludes, taken, given))
        ):
            return op
    return group


def _excludes(p: Any, value: Any) -> bool:
    if isinstance(value, _C.Tensor):
        return p.type not in ("Tensor", "Tensor?", "Operand", "any")
    return p.type == "Tensor"


def call_bound(op: _C.Op, args: tuple[Any, ...]) -> Any:
    """Call an op with all its arguments in schema order."""
    return _C.dispatch(op, op, args, None)
