"""Arguments in one form, however a call was written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tangrad

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]


class ArgsKwargsPair(NamedTuple):
    """Positional arguments and those by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _signatures(target: Any) -> list[inspect.Signature]:
    """Return the signatures of a function; of an op with overloads one for each."""
    overloads = getattr(target, "overloads", None)
    if overloads and isinstance(overloads, (list, tuple)):
        return [s for one in overloads for s in _signatures(one)]
    definition = getattr(target, "definition", None)
    if hasattr(definition, "schema"):
        parameters = [
            inspect.Parameter(
                p.name,
                inspect.Parameter.KEYWORD_ONLY
                if p.keyword_only
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if p.required else p.default,
            )
            for p in definition.schema.params
        ]
        return [inspect.Signature(_with_defaults(parameters))]
    try:
        return [inspect.signature(target)]
    except (TypeError, ValueError):
        return []


def _with_defaults(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return parameters of which those behind an optional one are optional too: None if left out.

    Ops with several forms have such an order: `clamp(x, max=1)`.
    """
    seen, found = False, []
    for p in parameters:
        seen = seen or p.default is not p.empty
        lacks = seen and p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        found.append(p.replace(default=None) if lacks else p)
    return found


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """Return the signatures of an op, or None where they are not known."""
    found = _signatures(op) or None
    return (found, None) if return_schemas else found


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Return the arguments of a call of a function with defaults filled in.

    Args:
        target: the function.
        args, kwargs: the arguments.
        arg_types, kwarg_types: accepted; the first signature that takes the arguments is used.
        normalize_to_only_use_kwargs: whether all arguments are given by name.

    Returns:
        None where no signature is known that takes them.
    """
    for signature in _signatures(target):
        try:
            bound = signature.bind(*args, **(kwargs or {}))
        except TypeError:
            continue
        return _pair(signature, bound, normalize_to_only_use_kwargs)
    return None


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Return the arguments of a call of a submodule with defaults filled in; None if unknown.

    Raises:
        RuntimeError: there is no such submodule.
    """
    try:
        module = root.get_submodule(target)
    except AttributeError:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from None
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **(kwargs or {}))
    except TypeError:
        return None
    return _pair(signature, bound, normalize_to_only_use_kwargs)


def _pair(
    signature: inspect.Signature, bound: inspect.BoundArguments, only_keywords: bool
) -> ArgsKwargsPair | None:
    bound.apply_defaults()
    if not only_keywords:
        return ArgsKwargsPair(bound.args, bound.kwargs)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in named for p in signature.parameters.values()):
        return None
    return ArgsKwargsPair((), dict(bound.arguments))


def check_for_mutable_operation(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a call that writes its arguments.

    Raises:
        RuntimeError: it does.
    """
    writes_out = kwargs.get("out") is not None
    if getattr(target, "functional", None) is not None or writes_out:
        name = f"aten::{getattr(target, 'name', target)}{'.out' if writes_out else ''}"
        raise RuntimeError(
            f"Tried to trace mutable operation {name}. FX only supports functional code, so "
            "operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
        )


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Return whether an argument of one type may be given where another is annotated."""
    if signature_type is argument_type or signature_type is inspect.Signature.empty:
        return True
    if isinstance(argument_type, type) and isinstance(signature_type, type):
        if signature_type is tangrad.Tensor:
            return issubclass(argument_type, (tangrad.Tensor, int, float, bool))
        return issubclass(argument_type, signature_type)
    args = getattr(signature_type, "__args__", None)
    return bool(args) and any(type_matches(a, argument_type) for a in args)


def create_type_hint(x: Any) -> Any:
    """Return the annotation of a list or tuple of types, or what was given."""
    if isinstance(x, (list, tuple)) and x:
        first = x[0]
        base = first if all(issubclass(one, first) for one in x) else Any
        return list[base] if isinstance(x, list) else tuple[base, ...]  # type: ignore[valid-type]
    return x
