"""The order of what branches and loops give: that in which the program uses it, as in PyTorch."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.code.graph import Block, ScriptGraph, ScriptNode

__all__ = ["order_outputs"]


def order_outputs(graph: ScriptGraph) -> None:
    """Order the outputs of branches and loops by their first use; what is unused, by its name."""
    _order_block(graph, graph)


def _order_block(graph: ScriptGraph, block: Block) -> None:
    # Those that come later first: the order of theirs decides over that of those before.
    for node in reversed(block.held):
        if len(node._made) > 1 and node.kind() in ("prim::If", "prim::Loop"):
            _order_node(graph, node)
        for inner in node.inner:
            _order_block(graph, inner)


def _order_node(graph: ScriptGraph, node: ScriptNode) -> None:
    def key(number: int) -> tuple[bool, Any, Any]:
        value = node._made[number]
        uses = value.uses()
        return (False, *uses[0].position) if uses else (True, 0, value.debugName())

    order = sorted(range(len(node._made)), key=key)
    node._made = [node._made[k] for k in order]
    for block in node.inner:
        if node.kind() == "prim::If":
            block.returned = [block.returned[k] for k in order]
            continue
        block.given[1:] = [block.given[k + 1] for k in order]
        block.returned[1:] = [block.returned[k + 1] for k in order]
    if node.kind() == "prim::Loop":
        node._given[2:] = [node._given[k + 2] for k in order]
