"""Calls of modules inside of a traced module as methods of these.

Marks among the statements of a recording say where calls begin and end. What a call reads that was
there before is an argument of its method, and what is read later of what it has made is its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tangrad_jit.scripting.check.functions import Parameter
from tangrad_jit.scripting.recording.unit import RecordedUnit
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ModuleType, TupleType, Type

__all__ = ["Mark", "split"]


@dataclass(slots=True)
class Mark(tree.Node):
    """The beginning or the end of a call of a module.

    Attributes:
        owner: the module in the program.
        begins: whether it is the beginning.
        results: at the end, the variables that the call returns, in their order.
    """

    owner: tree.Expr
    begins: bool
    results: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Call:
    """A call of a module, with what it consists of."""

    place: Place
    owner: tree.Expr
    items: list[Any]
    results: list[str] = field(default_factory=list)


def split(
    body: list[tree.Node], result: tree.Expr, world: Any, shapes: dict[str, str]
) -> list[tree.Node]:
    """Return statements that call methods, which are given to the units of the modules.

    Args:
        body: statements, and marks. result: of the whole.
        world: what is scripted.
        shapes: the types that the run has seen in variables.
    """
    items = _nested(body)
    plain = [node for node in body if not isinstance(node, Mark)]
    reads = _reads([*plain, result])
    return _Splitting(world, shapes, reads).statements(items)


def _nested(body: list[tree.Node]) -> list[Any]:
    """Return statements with calls in the place of marks."""
    top: list[Any] = []
    open_calls: list[list[Any]] = [top]
    for node in body:
        if not isinstance(node, Mark):
            open_calls[-1].append(node)
        elif node.begins:
            call = _Call(node.place, node.owner, [])
            open_calls[-1].append(call)
            open_calls.append(call.items)
        elif len(open_calls) > 1:
            open_calls.pop()
            open_calls[-1][-1].results = node.results
    return top


def _flat(items: list[Any]) -> list[tree.Node]:
    found: list[tree.Node] = []
    for item in items:
        found += _flat(item.items) if isinstance(item, _Call) else [item]
    return found


def _reads(nodes: list[Any]) -> Counter[str]:
    return Counter(
        n.name for n in tree.every(nodes) if isinstance(n, tree.Local) and n.name != "self"
    )


class _Splitting:
    def __init__(self, world: Any, shapes: dict[str, str], reads: Counter[str]) -> None:
        self._world, self._shapes, self._reads = world, shapes, reads

    def statements(self, items: list[Any]) -> list[tree.Node]:
        """Return statements with calls of methods."""
        made: list[tree.Node] = []
        for item in items:
            if isinstance(item, _Call):
                made += self._call(item)
            else:
                made.append(item)
        return made

    def _call(self, call: _Call) -> list[tree.Node]:
        """Return the statement that calls a method, or those of it where it cannot be one."""
        inner = self.statements(call.items)
        path = _path(call.owner)
        if not inner or path is None:
            return inner
        kind: Any = call.owner.type
        inside = _reads(_flat(call.items))
        assigned = {name: _type_of(inner, name) for name in _assigned(inner)}
        read = [name for name in assigned if self._reads[name] > inside[name]]
        results = [name for name in call.results if name in read]
        results += [name for name in read if name not in results]
        parameters = [Parameter("self", kind)]
        given: list[tree.Expr] = []
        for name, local in _first_reads(inner).items():
            if name not in assigned:
                parameters.append(Parameter(name, local.type))
                given.append(local)
        foreign: dict[tuple[str, ...], tree.Local] = {}
        for node in tree.every(inner):
            other = _path(node) if isinstance(node, tree.GetAttr) else None
            if other is None or other[: len(path)] == path or _is_inside(other, foreign):
                continue
            if isinstance(node.type, ModuleType):
                if not any(len(p) > len(other) for p in _paths(inner) if p[: len(other)] == other):
                    return inner  # a module of another's is called
                continue
            name = "_".join(["held", *other])
            foreign[other] = tree.Local(node.place, node.type, name)
            parameters.append(Parameter(name, node.type))
            given.append(node)
        if any(_type is None for _type in assigned.values()):
            return inner
        body = [_within(node, path, kind, foreign) for node in inner]
        values: list[tree.Expr] = [tree.Local(call.place, assigned[n], n) for n in results]  # type: ignore[arg-type]
        returned, value = _returned(values, call.place)
        body.append(tree.Return(call.place, value))
        name = _free_name(kind.unit.methods)
        unit = RecordedUnit(
            self._world,
            name,
            f"{kind.unit.qualified}.{name}",
            call.place.source,
            parameters,
            body,
            returned,
            kind,
            self._shapes,
        )
        kind.unit.methods[name] = unit
        made = tree.Invoke(call.place, returned, call.owner, name, unit, given)
        if not results:
            return [tree.Do(call.place, made)]
        target: Any = results[0] if len(results) == 1 else tree.Unpack(call.place, list(results))
        return [tree.Assign(call.place, target, made)]


def _free_name(taken: Any) -> str:
    name, k = "forward", 0
    while name in taken:
        k += 1
        name = f"forward{k}"
    return name


def _returned(values: list[tree.Expr], place: Place) -> tuple[Type, tree.Expr]:
    if not values:
        return kinds.NONE, tree.Const(place, kinds.NONE, None)
    if len(values) == 1:
        return values[0].type, values[0]
    kind = TupleType([value.type for value in values])
    return kind, tree.MakeTuple(place, kind, values)


def _assigned(body: list[tree.Node]) -> list[str]:
    found: dict[str, None] = {}
    for node in body:
        if isinstance(node, tree.Assign):
            found.update(dict.fromkeys(sorted(tree.assigned([node]))))
    return list(found)


def _type_of(body: list[tree.Node], name: str) -> Type | None:
    """Return the type of a variable that statements assign, or None."""
    for node in body:
        if isinstance(node, tree.Assign) and name in tree.assigned([node]):
            if node.target == name:
                return node.value.type
            kind, targets = node.value.type, node.target.targets
            if name in targets:
                members = getattr(kind, "elements", None)
                if members is not None:
                    found: Type = members[targets.index(name)]
                    return found
                return getattr(kind, "element", None)
    return None


def _first_reads(body: list[tree.Node]) -> dict[str, tree.Local]:
    found: dict[str, tree.Local] = {}
    for node in tree.every(body):
        if isinstance(node, tree.Local) and node.name != "self":
            found.setdefault(node.name, node)
    return found


# --- paths of attributes


def _path(node: Any) -> tuple[str, ...] | None:
    """Return the names that lead from the traced module to an attribute, or None."""
    names: list[str] = []
    while isinstance(node, tree.GetAttr) and isinstance(node.owner.type, ModuleType):
        names.append(node.name)
        node = node.owner
    is_root = isinstance(node, tree.Local) and node.name == "self"
    return tuple(reversed(names)) if is_root and names else None


def _paths(body: list[tree.Node]) -> list[tuple[str, ...]]:
    found = (_path(node) for node in tree.every(body) if isinstance(node, tree.GetAttr))
    return [path for path in found if path is not None]


def _is_inside(path: tuple[str, ...], held: dict[tuple[str, ...], Any]) -> bool:
    return any(other[: len(path)] == path for other in held)


def _within(
    item: Any, path: tuple[str, ...], kind: ModuleType, foreign: dict[tuple[str, ...], tree.Local]
) -> Any:
    """Return a node with attributes of a module as those of `self`, and others as variables."""
    again: Callable[[Any], Any] = lambda part: _within(part, path, kind, foreign)  # noqa: E731
    if isinstance(item, tree.GetAttr):
        found = _path(item)
        if found is not None and found in foreign:
            return foreign[found]
        if found == path:
            return tree.Local(item.place, kind, "self")
    if isinstance(item, list):
        return [again(part) for part in item]
    if isinstance(item, dict):
        return {key: again(part) for key, part in item.items()}
    if not isinstance(item, (tree.Node, tree.Iteration)) or isinstance(item, tree.Const):
        return item
    names = [n for n in item.__dataclass_fields__ if n not in ("place", "type", "unit", "target")]
    return replace(item, **{name: again(getattr(item, name)) for name in names})
