"""Compute once what does not depend on a graph's inputs."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import tangrad
from tangrad.nn import Module, Parameter, ParameterList
from tangrad_fx._symbolic_trace import symbolic_trace
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.memory import Memory
from tangrad_fx.node import Node

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]

_FOLDED = "_FX_CONST_FOLDED_ATTRS"


class FoldedGraphModule(GraphModule):
    """A module whose constant part runs before its first call, and never again.

    Args:
        root: the modules and attributes that the graph uses.
        graph: the graph without its constant part.
        const_subgraph: the constant part.
        fx_const_folded_attrs_name: the attribute that holds what it gives.
        device_for_folded_attrs: where that is kept.
    """

    def __init__(
        self,
        root: Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = (
            None if const_subgraph is None else GraphModule(root, const_subgraph)
        )
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, at the first time behind its constant part."""
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Run the constant part and keep what it gives.

        Raises:
            RuntimeError: it ran already.
        """
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise RuntimeError("the constants of this module are folded already")
        self.has_folding_been_run = True
        found = self.const_subgraph_module()
        kept: Any = (
            ParameterList([self._kept(x) for x in found])
            if isinstance(found, tuple)
            else self._kept(found)
        )
        setattr(self, self.fx_const_folded_attrs_name, kept)

    @staticmethod
    def _kept(value: Any) -> Any:
        floating = isinstance(value, tangrad.Tensor) and value.requires_grad
        return Parameter(value.detach(), requires_grad=floating)


def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """Return a name that a module has not, made of a given one."""
    found = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    found = f"_{found}" if found[:1].isdigit() else found
    stem, number = found, 0
    while hasattr(mod_traced, found):
        number += 1
        found = f"{stem}_{number}"
    return found


def split_const_subgraphs(
    module: Module | GraphModule,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """Return a module that computes once what does not depend on its inputs.

    Args:
        module: the module; traced if it is none of a graph.
        skip_folding_node_fn: which nodes stay where they are.
        device_for_folded_attrs: where the results are kept.
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant: set[Node] = set()
    memory = Memory(traced.graph)
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or memory.is_written(node):
            continue
        if node.op != "get_attr":
            if not set(node.all_input_nodes) <= constant or node.is_impure():
                continue
            if skip_folding_node_fn is not None and skip_folding_node_fn(node):
                continue
        constant.add(node)
    computed = [n for n in traced.graph.nodes if n in constant and n.op != "get_attr"]
    given = [n for n in computed if any(user not in constant for user in n.users)]
    if not given:
        return FoldedGraphModule(traced, traced.graph)
    own, inside = Graph(), dict[Node, Node]()
    for node in (n for n in traced.graph.nodes if n in constant):
        inside[node] = own.node_copy(node, inside.__getitem__)
    own.output(inside[given[0]] if len(given) == 1 else tuple(inside[n] for n in given))
    own.eliminate_dead_code()
    name = get_unique_attr_name_in_module(traced, _FOLDED)
    rest = _without(traced.graph, computed, given, name)
    traced.register_parameter(name, None)  # a module of a graph takes over what its root has
    try:
        return FoldedGraphModule(traced, rest, own, name, device_for_folded_attrs)
    finally:
        del traced._parameters[name]


def _without(graph: Graph, computed: list[Node], given: list[Node], name: str) -> Graph:
    """Return a graph that reads an attribute in place of computing some nodes."""
    rest, copies = Graph(), dict[Node, Node]()
    for node in graph.nodes:
        copies[node] = rest.node_copy(node, copies.__getitem__)
    with rest.inserting_before(copies[computed[0]]):
        held = rest.get_attr(name)
        for place, node in enumerate(given):
            value = held if len(given) == 1 else rest.call_function(getitem, (held, place))
            copies[node].replace_all_uses_with(value)
    for node in reversed(computed):
        rest.erase_node(copies[node])
    rest.eliminate_dead_code()
    return rest
