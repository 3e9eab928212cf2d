"""Statements of frozen methods, computed beforehand where they depend on constants alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tangrad
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.freezing.constants import children_of, is_constant, value_of
from tangrad_jit.scripting.freezing.norms import fold_norms
from tangrad_jit.scripting.freezing.writes import Writes
from tangrad_jit.scripting.recording.dead_code import is_pure
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds

__all__ = ["fold"]

_COMPUTED = (tree.OpCall, tree.Subscript, tree.Apply)
# A tensor that is larger than what it is computed from stays a statement, but for small ones.
_SMALL = 1 << 16


def fold(unit: Unit, numerics: bool) -> None:
    """Fold constants in a method, and leave out what nobody uses.

    Args:
        unit: the method.
        numerics: also fold batch norms into the layers before them, which moves the last bits.
    """
    body = unit.body
    _simplify(body, unit.world)
    if numerics and fold_norms(body):
        _simplify(body, unit.world)


def _simplify(body: list[tree.Node], world: Any) -> None:
    _fold_tensors(body, world, Writes(body))
    while _sweep(body, _reads(body)):
        pass


def _reads(body: list[tree.Node]) -> set[str]:
    return {node.name for node in tree.every(body) if isinstance(node, tree.Local)}


def _sweep(body: list[tree.Node], used: set[str]) -> bool:
    """Leave out assignments that nobody reads; return whether there were any."""
    count = len(body)
    body[:] = [node for node in body if not _is_dead(node, used)]
    changed = len(body) != count
    for node in body:
        for inner in ("body", "orelse"):
            if isinstance(getattr(node, inner, None), list):
                changed |= _sweep(getattr(node, inner), used)
    return changed


def _is_dead(node: tree.Node, used: set[str]) -> bool:
    if isinstance(node, tree.Assign) and used.isdisjoint(tree.assigned([node])):
        return _is_idle(node.value)
    if isinstance(node, tree.If) and not node.body and not node.orelse:
        return _is_idle(node.condition)
    return isinstance(node, tree.Do) and _is_idle(node.value) and is_constant(node.value)


def _is_idle(value: tree.Expr) -> bool:
    """Return whether a value is computed without any effect, errors included."""
    if is_constant(value) or isinstance(value, tree.Local):
        return True
    if isinstance(value, (tree.MakeTuple, tree.MakeList)):
        return all(map(_is_idle, value.elements))
    return isinstance(value, _COMPUTED) and value.type == kinds.TENSOR and is_pure(value)


# --- tensors


def _fold_tensors(body: list[tree.Node], world: Any, writes: Writes) -> None:
    """Compute what the statements of a method's block give that depend on constants alone."""
    counts: dict[str, int] = {}
    for node in tree.every(body):
        for name in tree.assigned([node]) if isinstance(node, (tree.Assign, tree.For)) else ():
            counts[name] = counts.get(name, 0) + 1
    known: dict[str, tree.Expr] = {}
    for k, node in enumerate(body):
        if known:
            body[k] = node = substituted(node, known)
        if not isinstance(node, tree.Assign) or not isinstance(node.target, str):
            continue
        name, value = node.target, node.value
        if counts[name] > 1:
            continue
        if isinstance(value, tree.Local) and counts.get(value.name, 0) <= 1:
            known[name] = value
            continue
        if name in writes.written or name in writes.escaping:
            continue
        constant = _constant_of(value, world)
        if constant is not None:
            known[name] = node.value = constant


def _constant_of(node: tree.Expr, world: Any) -> tree.Const | None:
    if node.type != kinds.TENSOR:
        return None
    if isinstance(node, tree.Const):
        return node if node.value is not None else None
    if not isinstance(node, _COMPUTED) or not is_pure(node):
        return None
    if not all(is_constant(part) or _is_slice(part) for part in children_of(node)):
        return None
    given = [c.value for c in tree.every(node) if isinstance(c, tree.Const)]
    sizes = [t.numel() for t in given if isinstance(t, tangrad.Tensor)]
    if not sizes:
        return None
    try:
        made = value_of(node, world)
    except Exception:  # it is raised where the program comes to it
        return None
    if not isinstance(made, tangrad.Tensor) or made.numel() > max(_SMALL, sum(sizes)):
        return None
    return tree.Const(node.place, kinds.TENSOR, made)


def _is_slice(node: tree.Expr) -> bool:
    return isinstance(node, tree.SliceOf) and all(map(is_constant, children_of(node)))


def substituted(item: Any, known: dict[str, tree.Expr]) -> Any:
    """Return a node with constants, or other variables, in the place of variables."""
    if isinstance(item, tree.Local):
        found = known.get(item.name)
        if isinstance(found, tree.Const):
            return tree.Const(item.place, item.type, found.value)
        name = getattr(found, "name", item.name)
        return tree.Local(item.place, item.type, name) if found is not None else item
    if isinstance(item, list):
        return [substituted(member, known) for member in item]
    if isinstance(item, dict):
        return {key: substituted(member, known) for key, member in item.items()}
    if not isinstance(item, (tree.Node, tree.Iteration)) or isinstance(item, tree.Const):
        return item
    names = [n for n in item.__dataclass_fields__ if n not in ("place", "type", "unit", "target")]
    held = {name: getattr(item, name) for name in names}
    made = {name: substituted(value, known) for name, value in held.items()}
    return replace(item, **{n: v for n, v in made.items() if v is not held[n]})
