"""Split a graph by tags that its nodes carry."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tangrad.nn import Module
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.memory import order_of_writes
from tangrad_fx.node import Node, map_arg
from tangrad_fx.passes.utils.common import HolderModule, lift_subgraph_as_module

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """Return an attribute by its dotted path; what holds others by key is asked by key."""
    for part in name.split("."):
        obj = obj[part] if isinstance(obj, dict) else getattr(obj, part)
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set an attribute by its dotted path."""
    path, _, last = attr.rpartition(".")
    setattr(getattr_recursive(obj, path) if path else obj, last, value)


@dataclass
class Component:
    """The part of a graph with one tag.

    Attributes:
        graph: its graph.
        order: its place among the parts.
        name: its tag.
        input_placeholders: inputs of its graph.
        orig_inputs: the nodes that they stand for.
        orig_outputs: its nodes that others use.
        getattr_maps: {a node that reads an attribute: the same in its graph}.
        constructor_args: accepted.
        gm: its module.
    """

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """Return a module that calls a submodule for the nodes of each tag.

    Args:
        gm: the module; each of its nodes has a tag, `node.tag`, but inputs, attributes, the output.
        tags: all tags, in the order in which their parts run.
        return_fqn_mapping: whether {path in `gm`: path in the result} is returned, too.
        return_tuple: whether parts return tuples where they return one value.
        GraphModuleCls: class of the result.

    Raises:
        RuntimeError: a node has no tag, or one that is not in the list, or uses a later part.
    """
    parts = {tag: Component(Graph(), place, tag) for place, tag in enumerate(tags)}
    part_of: dict[Node, Component] = {}
    inside: dict[Node, Node] = {}
    before = order_of_writes(gm.graph)
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        tag = getattr(node, "tag", None)
        if tag not in parts:
            raise RuntimeError(f"split_by_tags: node {node.name} has tag {tag!r}; tags are {tags}")
        part = part_of[node] = parts[tag]
        _require_order(node, part, before.get(node, ()), part_of)
        inside[node] = part.graph.node_copy(
            node, lambda used, part=part, node=node: _taken(used, part, node, part_of, inside)
        )
    for node in gm.graph.output_node().all_input_nodes:
        if node in part_of:
            _given(node, part_of[node])
    main, paths = Graph(), {}
    env: dict[Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            env[node] = main.node_copy(node)
    submodules: dict[str, Module] = {}
    for part in parts.values():
        results = tuple(inside[node] for node in part.orig_outputs)
        single = len(results) == 1 and not return_tuple
        part.graph.output(results[0] if single else results)
        part.gm, own = lift_subgraph_as_module(gm, part.graph, part.name)
        paths |= own
        submodules[part.name] = part.gm
        called = main.call_module(
            part.name, tuple(_outer(node, env, main) for node in part.orig_inputs)
        )
        for place, node in enumerate(part.orig_outputs):
            found = called if single else main.call_function(operator.getitem, (called, place))
            found.meta = copy.copy(node.meta)
            env[node] = found
    last = gm.graph.output_node()
    main.output(map_arg(last.args[0], lambda node: _outer(node, env, main)), last.type)
    root = HolderModule(submodules)
    for node in main.nodes:
        if node.op == "get_attr":
            setattr(root, str(node.target), getattr_recursive(gm, str(node.target)))
    made = GraphModuleCls(root, main)
    return (made, paths) if return_fqn_mapping else made


def _require_order(
    node: Node, part: Component, before: Iterable[Node], part_of: dict[Node, Component]
) -> None:
    """Raise where a part would write before another has seen what it writes, or after."""
    for earlier in before:
        source = part_of[earlier]
        if source.order > part.order:
            raise RuntimeError(
                f"split_by_tags: node {node.name} ({part.name}) comes behind {earlier.name} of the "
                f"later part {source.name}, as one writes what the other uses; list the tags in "
                "the order in which their parts run"
            )


def _taken(
    used: Node,
    part: Component,
    user: Node,
    part_of: dict[Node, Component],
    inside: dict[Node, Node],
) -> Node:
    """Return what stands in a part for a node that one of its nodes uses."""
    source = part_of.get(used)
    if source is part:
        return inside[used]
    if used.op == "get_attr":
        if used not in part.getattr_maps:
            part.getattr_maps[used] = part.graph.get_attr(str(used.target), used.type)
        return part.getattr_maps[used]
    if source is not None and source.order > part.order:
        raise RuntimeError(
            f"split_by_tags: node {user.name} ({part.name}) uses {used.name} of the later part "
            f"{source.name}; list the tags in the order in which their parts run"
        )
    if used not in part.orig_inputs:
        made = part.graph.placeholder(used.name, used.type)
        made.meta = copy.copy(used.meta)
        part.orig_inputs.append(used)
        part.input_placeholders.append(made)
        if source is not None:
            _given(used, source)
    return part.input_placeholders[part.orig_inputs.index(used)]


def _given(node: Node, part: Component) -> None:
    if node not in part.orig_outputs:
        part.orig_outputs.append(node)


def _outer(node: Node, env: dict[Node, Any], main: Graph) -> Any:
    if node not in env and node.op == "get_attr":
        env[node] = main.get_attr(str(node.target), node.type)
    return env[node]
