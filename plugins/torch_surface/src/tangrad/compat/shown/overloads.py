"""Which overload of its name a call is, and the arguments with which PyTorch hands it over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.compat.shown.forms import FORMS
from tangrad.compat.shown.packets import TOLD_APART, derived, packet


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tangrad.Tensor)


def _by_other(args: Any, kwargs: Any) -> str:
    return "Tensor" if _is_tensor(args[-1]) else "Scalar"


def _by_power(args: Any, kwargs: Any) -> str:
    if not _is_tensor(args[0]):
        return "Scalar"
    return "Tensor_Tensor" if _is_tensor(args[1]) else "Tensor_Scalar"


def _by_dim(several: str) -> Callable[[Any, Any], str]:
    return lambda args, kwargs: "default" if len(args) < 2 or args[1] is None else several


def _by_one_dim(args: Any, kwargs: Any) -> str:
    if len(args) < 2 or args[1] is None:
        return "default"
    return "dims" if isinstance(args[1], (list, tuple)) else "dim"


def _by_scattered(args: Any, kwargs: Any) -> str:
    kind = "src" if _is_tensor(args[3]) else "value"
    reduces = "reduce" in kwargs or len(args) > 4
    return {"src": "reduce", "value": "value_reduce"}[kind] if reduces else kind


def _by_bounds(args: Any, kwargs: Any) -> str:
    return "Tensor" if any(map(_is_tensor, args[1:])) else "default"


def _always(name: str) -> Callable[[Any, Any], str]:
    return lambda args, kwargs: name


_KINDS: dict[str, Callable[[Any, Any], str]] = {
    name: kind
    for names, kind in {
        "add sub mul": _always("Tensor"),
        "div": lambda args, kwargs: "Tensor_mode" if kwargs else "Tensor",
        "rsub bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge remainder fmod masked_fill fill "
        "xlogy lerp": _by_other,
        "floor_divide": _always("default"),
        "where": _always("self"),
        "pow": _by_power,
        "sum": _by_dim("dim_IntList"),
        "mean": _by_dim("dim"),
        "prod": _by_dim("dim_int"),
        "any all": _by_one_dim,
        "max min median nanmedian": _by_dim("dim"),
        "var std var_mean std_mean": _always("correction"),
        "clamp clamp_min clamp_max": _by_bounds,
        "scatter": _by_scattered,
        "norm": _always("ScalarOpt_dim"),
        "slice split index unsafe_split": _always("Tensor"),
        "transpose select unbind": _always("int"),
        "view": lambda args, kwargs: "dtype" if isinstance(args[1], tangrad.dtype) else "default",
        "round": lambda args, kwargs: "decimals" if kwargs else "default",
        "index_fill": lambda args, kwargs: "int_" + _by_other(args, kwargs),
    }.items()
    for name in names.split()
}
_COMMUTING = frozenset("add mul eq ne bitwise_and bitwise_or bitwise_xor".split())
_CORRECTED = frozenset("var std var_mean std_mean".split())
# Ops of ours with the arguments of PyTorch's, whose overload is an object of its own.
_SAME = frozenset("index index_put _to_copy".split())
_RENAMED = {
    "true_divide": "div",
    "nan_to_number": "nan_to_num",
    "_masked_fill": "masked_fill",
    "_index_put": "index_put",
}


def handed(func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> tuple[Any, ...]:
    """Return what handlers get for a call: (overload, args, kwargs)."""
    if getattr(func.definition, "derivation", None) is not None and out is None:
        return derived(func), args, kwargs
    bare = func.name.removesuffix("_")
    suffix = func.name[len(bare) :]
    titled = func.title.removesuffix("_")
    if bare not in TOLD_APART and bare not in _RENAMED and titled not in FORMS:
        bare = titled  # a form of that name
    bare = _RENAMED.get(bare, bare)
    if out is None and bare not in TOLD_APART and bare not in _SAME and bare + suffix == func.name:
        return func, args, kwargs
    if bare in _COMMUTING and not _is_tensor(args[0]):
        args = (args[1], args[0], *args[2:])
    overload, args, kwargs = _overload(bare, suffix, args, kwargs)
    if out is not None:
        overload, kwargs = "out", {**kwargs, "out": out}
    found = packet(bare + suffix)
    return (func if found is None else getattr(found, overload)), args, kwargs


def _overload(
    name: str, suffix: str, args: Any, kwargs: dict[str, Any]
) -> tuple[str, Any, dict[str, Any]]:
    if name == "bernoulli":
        of_tensor = any(map(_is_tensor, args[1:]))
        inplace = "Tensor" if of_tensor else "float"
        return (inplace if suffix else "p" if len(args) > 1 else "default"), args, kwargs
    if name in _CORRECTED and len(args) > 1:
        kwargs = {"correction": 1, **kwargs}
    if name in _KINDS:
        return _KINDS[name](args, kwargs), args, kwargs
    if name == "squeeze" and len(args) > 1:
        one = len(args[1]) == 1
        return "dim" if one else "dims", (args[0], args[1][0] if one else args[1]), kwargs
    if name == "sort" and len(args) > 3:
        named = dict(zip(("dim", "descending", "stable"), args[1:], strict=True))
        return "stable", args[:1], {**named, **kwargs}
    return "default", args, kwargs
