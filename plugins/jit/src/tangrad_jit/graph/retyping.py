"""The types of a graph's values at other sizes, from the ops themselves.

Each call that sees another size runs on the `meta` device, where tensors have geometry and no data;
so whatever an op decides by a size, its strides and its errors included, it decides as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tangrad
from tangrad.plugin import call_recorded
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, map_values
from tangrad_jit.graph.sized import is_sized
from tangrad_jit.graph.types import ITEMSIZE, NumberType, TensorType, type_of
from tangrad_jit.graph.verifier import GraphError

__all__ = ["check_types", "retype"]

_STAND_INS = {"int": 0, "float": 1.0, "bool": False, "complex": 1j}
_META = tangrad.device("meta")


def retype(
    graph: Graph,
    types: Sequence[Any],
    arguments: Callable[[Node], tuple[Any, ...]],
    late: tuple[int, Callable[[], Iterable[tuple[Value, Any]]]] | None = None,
) -> None:
    """Give a graph's values the types that they have where its inputs are of other types.

    Args:
        graph: which is changed.
        types: of its inputs, in order.
        arguments: returns a node's arguments at these sizes; asked in the graph's order, when the
            values before the node have their types.
        late: (place of a node, function): before the node it is asked for the types of inputs that
            follow from what came before.

    Raises:
        Exception: what an op raises that takes no such sizes.
        ValueError: an op gives another number of results.
    """
    _Walk(graph).run(types, arguments, late)


def check_types(graph: Graph) -> None:
    """See that a graph that was read says of each result what its op gives.

    A plan places memory by the types, and believes them. Where the size of a result depends on
    values, the types are not known; such graphs have no plan.

    Raises:
        GraphError: an op gives another type, another number of results, or takes no such arguments.
    """
    walk = _Walk(graph)
    with tangrad.no_grad():
        for node in graph.nodes:
            number = node.form == DRAW or node.op.kind == "number"
            if any(isinstance(v.type, NumberType) is not number for v in node.results):
                raise GraphError(f"{node.name}: a result is no tensor, or no number")
            if node.op.definition.shape_depends_on_data:
                continue
            said = [(value.type, value.offset) for value in node.results]
            try:
                walk._run(node)
            except Exception as error:  # whatever an op says of arguments that were made up
                raise GraphError(f"{node.name}: {error}") from error
            for value, (type, offset) in zip(node.results, said, strict=True):
                same = value.type == type or (
                    value.type.contiguous and str(value.type) == str(type)
                )
                if not same:
                    raise GraphError(f"{node.name} gives {value.type}, not {type}")
                if value.offset != offset and isinstance(type, TensorType) and type.numel:
                    raise GraphError(f"{node.name}: the view begins at another byte")


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changed: set[Value] = set()
        self.made: dict[Value, Any] = {}

    def run(self, types: Sequence[Any], arguments: Any, late: Any) -> None:
        for entry, type in zip(self.graph.inputs, types, strict=True):
            self._set(entry.value, type)
        with tangrad.no_grad():
            for place, node in enumerate(self.graph.nodes):
                if late is not None and place == late[0]:
                    for value, type in late[1]():
                        self._set(value, type)
                resized = is_sized(node.args)
                if resized:
                    node.args = arguments(node)
                if resized or any(value in self.changed for value in node.inputs):
                    self._run(node)

    def _set(self, value: Value, type: Any) -> None:
        if type != value.type:
            value.type = type
            self.changed.add(value)

    def _run(self, node: Node) -> None:
        if node.form == DRAW or node.op.kind == "number":
            return
        args = _on_meta(map_values(self._stand_in, node.args))
        if node.form == "inplace":
            made = call_recorded(node.op, args, args[0], True)
        elif node.form == "out":
            outs = tuple(self._stand_in(value) for value in node.outs)
            made = call_recorded(node.op, args, outs[0] if len(outs) == 1 else outs, False)
        else:
            made = call_recorded(node.op, args, None, False)
        several = list(made) if isinstance(made, (tuple, list)) else [made]
        if node.results and len(several) != len(node.results):
            raise ValueError(f"{node.name} gives {len(several)} results at these sizes")
        for value, tensor in zip(node.results, several, strict=False):
            self._follow(value, tensor)

    def _follow(self, value: Value, tensor: Any) -> None:
        found = type_of(tensor)
        self._set(value, TensorType(found.dtype, found.shape, found.stride, value.type.device))
        self.made[value] = tensor
        base = value.view_of
        if base is not None:
            shown = self._stand_in(base)
            value.offset = base.offset + _start(tensor) - _start(shown)

    def _stand_in(self, value: Value) -> Any:
        found = self.made.get(value)
        if found is None:
            type = value.type
            if isinstance(type, NumberType):
                return _STAND_INS[type.kind]
            dtype = getattr(tangrad, type.dtype)
            found = tangrad.empty_strided(type.shape, type.stride, dtype=dtype, device=_META)
            self.made[value] = found
        return found


def _start(tensor: Any) -> int:
    return int(tensor.storage_offset()) * ITEMSIZE[tensor.dtype.name]


def _on_meta(item: Any) -> Any:
    if isinstance(item, (tuple, list)):
        return type(item)(map(_on_meta, item))
    return _META if isinstance(item, tangrad.device) else item
