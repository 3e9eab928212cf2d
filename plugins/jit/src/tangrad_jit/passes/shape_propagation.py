"""Shape propagation: the types of results, from the types of inputs, by the ops' own rules.

Ops run on the device `meta`, which has shapes and no memory. After an input's type was changed, or
where a graph comes from a text, this makes all types follow.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, map_values
from tangrad_jit.graph.types import TensorType, type_of
from tangrad_jit.run.interpreter import run_node

__all__ = ["propagate_shapes"]


def propagate_shapes(graph: Graph) -> int:
    """Give every value the type that follows from the inputs'; return how many types changed.

    Raises:
        RuntimeError: an op refuses its arguments; the message has its place.
    """
    env: dict[Value, Any] = {entry.value: _stand_in(entry.value) for entry in graph.inputs}
    changed = 0
    with tangrad.no_grad():
        for node in graph.nodes:
            _run(node, env)
            for value in node.results:
                if not isinstance(value.type, TensorType):
                    continue
                found = type_of(env[value])
                new = TensorType(found.dtype, found.shape, found.stride, value.type.device)
                changed += new != value.type
                value.type = new
    return changed


def _run(node: Node, env: dict[Value, Any]) -> None:
    if node.form == DRAW or node.op.kind == "number":
        env.update(dict.fromkeys(node.results, 0))
        return
    args = map_values(lambda value: value, node.args)
    on_meta = tuple(_moved(item) for item in args)
    moved = Node(node.op, on_meta, node.form, node.outs, node.module, node.where)
    moved.results = node.results
    try:
        run_node(moved, env)
    except Exception as error:
        error.add_note(f"while types were propagated through {node.name} {node.line}")
        raise


def _moved(item: Any) -> Any:
    return tangrad.device("meta") if isinstance(item, tangrad.device) else item


def _stand_in(value: Value) -> Any:
    if not isinstance(value.type, TensorType):
        return 0
    type = value.type
    dtype = getattr(tangrad, type.dtype)
    return tangrad.empty_strided(type.shape, type.stride, dtype=dtype, device="meta")
