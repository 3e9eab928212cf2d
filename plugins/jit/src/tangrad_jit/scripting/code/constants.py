"""Constants of graphs: each stands once, at the beginning, as in PyTorch's graphs."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.code.graph import Block, ScriptGraph, ScriptNode, ScriptValue

__all__ = ["pool_constants"]

_PLAIN = (int, float, complex, bool, str, type(None))


def pool_constants(graph: ScriptGraph) -> None:
    """Move constants to the beginning of a graph; of those that are the same, keep one."""
    pool: dict[Any, ScriptNode] = {}
    instead: dict[int, ScriptValue] = {}
    _collect(graph, pool, instead)
    _replace(graph, instead)
    graph.held[:0] = reversed(pool.values())


def _collect(block: Block, pool: dict[Any, ScriptNode], instead: dict[int, ScriptValue]) -> None:
    kept = []
    for node in block.held:
        if node.kind() != "prim::Constant":
            kept.append(node)
        else:
            known = pool.setdefault(_key(node), node)
            instead[id(node.output())] = known.output()
        for inner in node.inner:
            _collect(inner, pool, instead)
    block.held = kept


def _key(node: ScriptNode) -> Any:
    value = node.attributes.get("value", node.attributes.get("name"))
    if isinstance(value, _PLAIN):
        return node.output().held, type(value), repr(value)
    return node.output().held, id(value)


def _replace(block: Block, instead: dict[int, ScriptValue]) -> None:
    for node in block.held:
        node._given = [instead.get(id(value), value) for value in node.inputs()]
        for inner in node.inner:
            _replace(inner, instead)
    block.returned = [instead.get(id(value), value) for value in block.returned]
