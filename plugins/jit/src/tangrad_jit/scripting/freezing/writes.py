"""Which variables and attributes a program may write in place.

Values that may share memory are one group; a write marks the group of what it writes. An op is
taken to return a part of what it is given, unless it is known to return something new.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable
from functools import cache
from typing import Any

from tangrad_jit.scripting.freezing.constants import children_of
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds

__all__ = ["Writes"]

_VALUES = frozenset((*kinds.NUMBERS, *kinds.ENUM_LIKE, kinds.NUMBER, kinds.BOOL)) | {
    kinds.STR,
    kinds.NONE,
    kinds.DEVICE,
}
_NEW = frozenset(
    """
    add sub mul div matmul mm bmm addmm baddbmm linear conv1d conv2d conv3d _convolution
    convolution conv_transpose1d conv_transpose2d conv_transpose3d batch_norm layer_norm
    group_norm instance_norm max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d softmax log_softmax embedding
    pow neg rsub floordiv remainder cat stack sum mean clone where einsum zeros ones full arange
    cumsum
    """.split()
)
_STATISTICS = ("running_mean", "running_var")
_NORMS = frozenset(("aten::batch_norm", "aten::instance_norm"))


class Writes:
    """The groups of a method's variables, and of the attributes that it reads.

    Args:
        body: its statements.

    Attributes:
        written: what is written, by any name of its group.
    """

    def __init__(self, body: list[tree.Node]) -> None:
        self._above: dict[Hashable, Hashable] = {}
        self._marked: list[Hashable] = []
        self._returned: list[Hashable] = []
        for node in tree.every(body):
            self._visit(node)
        marked = {self._root(key) for key in self._marked}
        self.written = {key for key in self._above if self._root(key) in marked}
        returned = {self._root(key) for key in self._returned}
        self.escaping = {key for key in self._above if self._root(key) in returned}

    def attributes(self) -> set[tuple[str, ...]]:
        """Return the paths of the attributes that are written."""
        return {key for key in self.written if isinstance(key, tuple)}

    def _root(self, key: Hashable) -> Hashable:
        while self._above.setdefault(key, key) != key:
            key = self._above[key]
        return key

    def _join(self, keys: Iterable[Hashable]) -> None:
        roots = [self._root(key) for key in keys]
        for other in roots[1:]:
            self._above[self._root(other)] = self._root(roots[0])

    # --- what a value may be a part of

    def _sources(self, node: Any) -> set[Hashable]:
        if not isinstance(node, tree.Expr) or node.type in _VALUES:
            return set()
        if isinstance(node, tree.Local):
            return {node.name}
        if isinstance(node, tree.GetAttr) and isinstance(node.owner.type, kinds.ModuleType):
            return {path_of(node)}
        if isinstance(node, tree.OpCall) and _is_new(node):
            return set()
        if isinstance(node, tree.Apply) and node.type == kinds.TENSOR and _gives_new(node.builtin):
            return set()
        if isinstance(node, tree.Comprehension):
            over = set().union(*map(self._sources, _values_of(node.iteration)))
            return over | self._sources(node.value)
        return set().union(*map(self._sources, children_of(node)))

    def _mark(self, node: Any) -> None:
        self._marked.extend(self._sources(node))

    def _visit(self, node: Any) -> None:
        if isinstance(node, tree.Assign):
            self._join({*_names(node.target), *self._sources(node.value)})
        elif isinstance(node, (tree.For, tree.Comprehension)):
            over = set().union(*map(self._sources, _values_of(node.iteration)))
            self._join({*_names(node.target), *over})
        elif isinstance(node, tree.With):
            for context, name in zip(node.contexts, node.names, strict=True):
                self._join({*_names(name), *self._sources(context)})
        elif isinstance(node, tree.SetItem):
            self._mark(node.owner)
        elif isinstance(node, tree.SetAttr):
            self._join({path_of(node), *self._sources(node.value)})
        elif isinstance(node, tree.Return):
            self._returned.extend(self._sources(node.value))
        elif isinstance(node, tree.Apply) and node.builtin.writes:
            self._mark(node.args[0])
            self._join(set().union(*map(self._sources, node.args)))
        elif isinstance(node, tree.OpCall):
            for target in _targets(node):
                self._mark(target)
        elif _calls_a_writer(node):
            for child in children_of(node):
                self._mark(child)


def path_of(node: Any) -> tuple[str, ...]:
    """Return the names that lead from the root to an attribute that is read or set."""
    names: list[str] = [node.name]
    node = node.owner
    while isinstance(node, tree.GetAttr):
        names.append(node.name)
        node = node.owner
    return tuple(reversed(names))


def _values_of(over: tree.Iteration) -> list[tree.Expr]:
    return [*over.values, *(value for part in over.parts for value in _values_of(part))]


def _names(target: Any) -> set[str]:
    if isinstance(target, str):
        return {target}
    if target is None:
        return set()
    return set().union(*map(_names, target.targets))


def _gives_new(builtin: tree.Builtin) -> bool:
    return builtin.name in _NEW and not builtin.writes


def _is_new(node: tree.OpCall) -> bool:
    if node.name in _NORMS:
        return True
    if list(_targets(node)):
        return False
    definition = getattr(node.callee, "definition", None)
    return node.name.partition("::")[2] in _NEW or getattr(definition, "kind", "") == "pointwise"


def _targets(node: tree.OpCall) -> list[tree.Expr]:
    """Return the arguments that an op may write."""
    if "out" in node.kwargs:
        return [node.kwargs["out"]]
    if node.name.endswith("_") and not node.name.endswith("__"):
        return node.args[:1]
    named = dict(zip(_names_of(node.callee), node.args, strict=False)) | node.kwargs
    if node.name in _NORMS:
        flag = named.get("training", named.get("use_input_stats"))
        statistics = [named[name] for name in _STATISTICS if name in named]
        return [] if flag is None or _is_off(flag) else statistics
    flag = named.get("inplace")
    return [] if flag is None or _is_off(flag) else node.args[:1]


def _is_off(node: tree.Expr) -> bool:
    return isinstance(node, tree.Const) and not node.value


@cache
def _names_of(callee: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters, as far as they can be known."""
    try:
        return tuple(inspect.signature(callee).parameters)
    except (TypeError, ValueError):
        return ()


def _calls_a_writer(node: Any, seen: set[int] | None = None) -> bool:
    """Return whether a node calls what may write what it is given, or keep it."""
    if isinstance(node, (tree.PythonCall, tree.Fork, tree.New)):
        return True
    if isinstance(node, tree.Invoke) and node.unit is None:
        return not getattr(node.owner.type.unit, "is_library", False)  # type: ignore[attr-defined]
    if isinstance(node, (tree.Call, tree.Invoke)):
        return _may_write(node.unit, set() if seen is None else seen)
    return False


def _may_write(unit: Any, seen: set[int]) -> bool:
    if id(unit) in seen:
        return False
    seen.add(id(unit))
    return any(
        isinstance(node, (tree.SetItem, tree.SetAttr))
        or (isinstance(node, tree.Apply) and node.builtin.writes)
        or (isinstance(node, tree.OpCall) and bool(_targets(node)))
        or _calls_a_writer(node, seen)
        for node in tree.every(unit.body)
    )
