"""Questions about symbolic sizes: what is known of them without assuming anything.

A `SymInt` of tangrad has a hint and becomes a guard where a program decides by it. These functions
ask without a guard: a condition that is an expression counts as not known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.utils import _pytree

__all__ = [
    "GuardOnDataDependentSymNode",
    "definitely_false",
    "definitely_true",
    "expect_true",
    "free_symbols",
    "free_unbacked_symbols",
    "guard_bool",
    "guard_float",
    "guard_int",
    "guard_or_false",
    "guard_or_true",
    "guard_scalar",
    "guard_size_oblivious",
    "has_free_symbols",
    "has_free_unbacked_symbols",
    "has_static_value",
    "has_symbolic_sizes_strides",
    "hint_int",
    "is_concrete_bool",
    "is_concrete_float",
    "is_concrete_int",
    "is_symbolic",
    "statically_known_false",
    "statically_known_true",
    "sym_and",
    "sym_eq",
    "sym_or",
]

_KINDS = (tangrad.SymInt, tangrad.SymFloat, tangrad.SymBool)


class GuardOnDataDependentSymNode(RuntimeError):
    """A program decides by a number that only the data tell."""


def is_symbolic(val: Any) -> bool:
    """Return whether a number is an expression over symbols."""
    return isinstance(val, _KINDS) and isinstance(val.expr, (str, tuple))


def has_static_value(a: Any) -> bool:
    """Return whether a number is known without symbols."""
    return not is_symbolic(a)


def is_concrete_int(a: Any) -> bool:
    """Return whether an integer is known without symbols."""
    return isinstance(a, (int, tangrad.SymInt)) and not is_symbolic(a)


def is_concrete_float(a: Any) -> bool:
    """Return whether a float is known without symbols."""
    return isinstance(a, (float, tangrad.SymFloat)) and not is_symbolic(a)


def is_concrete_bool(a: Any) -> bool:
    """Return whether a truth value is known without symbols."""
    return isinstance(a, (bool, tangrad.SymBool)) and not is_symbolic(a)


def guard_or_false(a: Any) -> bool:
    """Return a condition's value, False where it depends on symbols."""
    return False if is_symbolic(a) else bool(a)


def guard_or_true(a: Any) -> bool:
    """Return a condition's value, True where it depends on symbols."""
    return True if is_symbolic(a) else bool(a)


statically_known_true = definitely_true = guard_or_false


def statically_known_false(a: Any) -> bool:
    """Return whether a condition is false whatever the symbols stand for."""
    return not guard_or_true(a)


definitely_false = statically_known_false


def guard_size_oblivious(expr: Any) -> bool:
    """Return a condition's value, assuming what it needs."""
    return bool(expr)


def expect_true(a: Any, skip: int = 0) -> bool:
    """Assume that a condition holds, and return whether it does in this run."""
    return bool(a)


def guard_bool(a: Any) -> bool:
    """Return a truth value, assuming what it needs."""
    return bool(a)


def guard_int(a: Any) -> int:
    """Return an integer, assuming that it stays what it is."""
    return int(a)


def guard_float(a: Any) -> float:
    """Return a float, assuming that it stays what it is."""
    return float(a)


def guard_scalar(a: Any) -> Any:
    """Return a number of any kind, assuming that it stays what it is.

    Raises:
        AssertionError: it is no number.
    """
    for kinds, convert in (
        ((tangrad.SymBool, bool), bool),
        ((tangrad.SymInt, int), int),
        ((tangrad.SymFloat, float), float),
    ):
        if isinstance(a, kinds):
            return convert(a)
    raise AssertionError(f"unrecognized scalar {a}")


def hint_int(a: Any, fallback: int | None = None) -> int:
    """Return what an integer is in the present run."""
    return int(a.hint) if is_symbolic(a) else int(a)


def free_symbols(val: Any) -> set[str]:
    """Return the names of the symbols in numbers, tensors' shapes and nested values."""
    found: set[str] = set()
    for leaf in _pytree.tree_leaves(val):
        if isinstance(leaf, tangrad.Tensor):
            found |= free_symbols((*leaf.shape, *leaf.stride()))
        elif is_symbolic(leaf):
            _collect(leaf.expr, found)
    return found


def _collect(expr: Any, found: set[str]) -> None:
    if isinstance(expr, str):
        found.add(expr)
    elif isinstance(expr, tuple):
        for operand in expr[1:]:
            _collect(operand, found)


def has_free_symbols(val: Any) -> bool:
    """Return whether there are symbols in a value."""
    return bool(free_symbols(val))


def free_unbacked_symbols(x: Any) -> set[str]:
    """Return the symbols that only the data tell: none, as every symbol here has a hint."""
    return set()


def has_free_unbacked_symbols(x: Any) -> bool:
    """Return whether there are symbols that only the data tell."""
    return False


def has_symbolic_sizes_strides(elem: Any) -> bool:
    """Return whether a tensor's shape has symbols."""
    return has_free_symbols(elem)


def sym_eq(x: Any, y: Any) -> Any:
    """Return whether two sizes, or lists of sizes, are equal.

    Raises:
        AssertionError: one is a list and the other is none.
    """
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        if len(x) != len(y):
            return False
        return sym_and(*(sym_eq(a, b) for a, b in zip(x, y, strict=True)))
    if isinstance(x, (int, tangrad.SymInt)) and isinstance(y, (int, tangrad.SymInt)):
        return x == y
    raise AssertionError(f"unexpected sym_eq between {type(x)} {type(y)}")


def _joined(conditions: tuple[Any, ...], neutral: bool, join: Callable[[Any, Any], Any]) -> Any:
    """Join conditions, of which Python's own bools are known now."""
    found: Any = neutral
    for condition in conditions:
        if found is neutral:
            found = condition
        elif condition is not neutral:
            found = join(found, condition)
    return found


def sym_and(*conditions: Any) -> Any:
    """Return whether all conditions hold."""
    return _joined(conditions, True, operator.and_)


def sym_or(*conditions: Any) -> Any:
    """Return whether one of the conditions holds."""
    return _joined(conditions, False, operator.or_)
