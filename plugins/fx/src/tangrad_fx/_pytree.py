"""Flatten what is nested as another thing was, ignoring what it holds besides."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from tangrad.utils import _pytree

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

FlattenFuncSpec = Callable[[Any, Any], list[Any]]
FlattenFuncExactMatchSpec = Callable[[Any, Any], bool]
SUPPORTED_NODES: dict[type, FlattenFuncSpec] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[type, FlattenFuncExactMatchSpec | None] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: FlattenFuncSpec,
    flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None,
) -> None:
    """Say how to flatten a class as a spec has it.

    Args:
        cls: the class.
        flatten_fn_spec: (object, spec) -> its children, in the spec's order.
        flatten_fn_exact_match_spec: (object, spec) -> whether it has just those children.
    """
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _deregister_pytree_flatten_spec(cls: type) -> None:
    del SUPPORTED_NODES[cls], SUPPORTED_NODES_EXACT_MATCH[cls]


def tree_flatten_spec(pytree: Any, spec: Any, exact_structural_match: bool = False) -> list[Any]:
    """Return the leaves of a tree at the places where a spec has leaves.

    Raises:
        RuntimeError: the tree is of a class that nothing was registered for, or does not match.
    """
    if spec.is_leaf():
        return [pytree]
    flatten = SUPPORTED_NODES.get(spec.type)
    if flatten is None:
        children = _pytree.tree_flatten(pytree, is_leaf=lambda x: x is not pytree)[0]
    else:
        exact = SUPPORTED_NODES_EXACT_MATCH.get(spec.type)
        if exact_structural_match and exact is not None and not exact(pytree, spec):
            raise RuntimeError(f"Cannot flatten pytree {pytree}, given spec: {spec}")
        children = flatten(pytree, spec)
    leaves: list[Any] = []
    for child, child_spec in zip(children, spec.children(), strict=False):
        leaves += tree_flatten_spec(child, child_spec, exact_structural_match)
    return leaves


def _as_list(value: Any, spec: Any) -> list[Any]:
    return [value[k] for k in range(spec.num_children)]  # a proxy can be indexed, not iterated


def _as_dict(value: dict[Any, Any], spec: Any) -> list[Any]:
    return [value[key] for key in spec.context]


def _same_length(value: Any, spec: Any) -> bool:
    return len(value) == spec.num_children


register_pytree_flatten_spec(dict, _as_dict, lambda value, spec: set(value) == set(spec.context))
register_pytree_flatten_spec(list, _as_list, _same_length)
register_pytree_flatten_spec(tuple, _as_list, _same_length)
register_pytree_flatten_spec(namedtuple, _as_list, _same_length)  # type: ignore[arg-type]
