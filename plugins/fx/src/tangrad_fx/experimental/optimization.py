"""Rewrites that make inference faster."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tangrad import nn
from tangrad.nn.utils import fuse_conv_bn_eval
from tangrad_fx._symbolic_trace import symbolic_trace
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.node import Node

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_PATTERNS = [
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
]


def _parent_name(target: str) -> tuple[str, str]:
    """Return the path of what holds a module, and its name there."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Return whether a node calls a module of one class on what one of another returns."""
    if not node.args or not isinstance(node.args[0], Node):
        return False
    for kind, current in zip(pattern, (node.args[0], node), strict=True):
        if current.op != "call_module" or type(modules.get(str(current.target))) is not kind:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Any) -> None:
    """Have a node call another module, which takes the place of the first."""
    parent, name = _parent_name(str(node.target))
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Any, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """Fold batch norms into the convolutions before them, for inference.

    Args:
        model: module in evaluation mode.
        inplace: whether the module itself may be changed.
        no_trace: whether the module is a GraphModule already.
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for pattern in _PATTERNS:
        for node in graph.nodes:
            if not matches_module_pattern(pattern, node, modules):
                continue
            convolution = node.args[0]
            if len(convolution.users) > 1:
                continue
            norm = modules[str(node.target)]
            if not norm.track_running_stats:
                continue
            fused = fuse_conv_bn_eval(modules[str(convolution.target)], norm)
            replace_node_module(convolution, modules, fused)
            node.replace_all_uses_with(convolution)
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: Any) -> Any:
    """Return a module without its dropouts."""
    from tangrad_fx.interpreter import Transformer

    traced = symbolic_trace(model)

    class WithoutDropout(Transformer):
        """Pass what a dropout gets on."""

        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    return WithoutDropout(traced).transform()
