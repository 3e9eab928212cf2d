"""Compute once what a graph computes several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tangrad.utils._pytree import tree_flatten
from tangrad_fx.effects import written
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.memory import Memory
from tangrad_fx.node import Node
from tangrad_fx.passes.infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

_RANDOM = frozenset(
    {"dropout", "rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "randperm"}
    | {"bernoulli", "multinomial", "normal", "poisson", "native_dropout", "rrelu", "uniform"}
    | {"empty", "empty_like", "new_empty", "exponential", "feature_dropout", "alpha_dropout"}
)


def get_CSE_banned_ops() -> frozenset[str]:
    """Return names of ops that give another result in each call: they stay as they are."""
    return _RANDOM


class CSEPass(PassBase):
    """Replace nodes that compute what an earlier node computed.

    Nodes that write, draw random numbers or have other effects stay, and so does what is written.

    Args:
        banned_ops: functions, or their names, that stay, too; by default those that draw.
    """

    def __init__(self, banned_ops: Any = None) -> None:
        self.banned_ops = frozenset(get_CSE_banned_ops() if banned_ops is None else banned_ops)

    def call(self, graph_module: GraphModule) -> PassResult:
        """Return a module without the repetitions, and whether there were any."""
        graph, copies = Graph(), dict[Node, Node]()
        seen: dict[Any, Node] = {}
        modified = False
        memory, writes = Memory(graph_module.graph), Counter[Node]()
        for node in graph_module.graph.nodes:
            key = self._key(node, copies)
            if key is not None and node.op != "get_attr":
                key = None if memory.is_written(node) else (key, _seen(node, memory, writes))
            writes.update(memory.of(target) for target in written(node))
            if key is not None and key in seen:
                copies[node] = seen[key]
                modified = True
                continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if key is not None:
                seen[key] = copies[node]
        return PassResult(GraphModule(graph_module, graph), modified)

    def _key(self, node: Node, copies: dict[Node, Node]) -> Any:
        if node.op == "get_attr":
            return node.op, node.target
        if node.op != "call_function" or node.is_impure() or self._stays(node.target):
            return None
        flat, form = tree_flatten((node.args, node.kwargs))
        values = tuple(copies[x] if isinstance(x, Node) else x for x in flat)
        key = (node.target, form, values, tuple(type(x) for x in values))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _stays(self, target: Callable[..., Any] | str) -> bool:
        name = getattr(target, "__name__", str(target)).partition(".")[0]
        return target in self.banned_ops or name in self.banned_ops or name.endswith("_")


def _seen(node: Node, memory: Memory, writes: Counter[Node]) -> tuple[int, ...]:
    """Return how often what a node uses was written before."""
    return tuple(writes[memory.of(used)] for used in node.all_input_nodes)
