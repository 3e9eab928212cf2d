"""Fusing modules of a graph: what a backend computes as one becomes one module."""

from __future__ import annotations

from typing import Any

from tangrad import fx, nn
from tangrad_quantization.backend_config import BackendConfig
from tangrad_quantization.fuser_method_mappings import MatchAllNode
from tangrad_quantization.fx.matching import Match, find_matches, fusions

# Functions that stand for modules where a pattern is fused.
_AS_MODULE: dict[Any, Any] = {
    nn.functional.relu: nn.ReLU,
    nn.functional.leaky_relu: nn.LeakyReLU,
}


def fuse(model: fx.GraphModule, is_qat: bool, backend: BackendConfig) -> fx.GraphModule:
    """Return the graph module with its fusible modules fused."""
    modules = dict(model.named_modules(remove_duplicate=False))
    matches = find_matches(model.graph, modules, fusions(backend))
    for node in list(model.graph.nodes):
        match = matches.get(node)
        if match is not None and match.last is node:
            _fuse_match(model, modules, match, is_qat)
    model.graph.lint()
    return fx.GraphModule(model, model.graph)


def _module_for(node: Any, modules: dict[str, Any], training: bool) -> Any:
    if node.op == "call_module":
        return modules[node.target]
    if node.target in _AS_MODULE:
        return _AS_MODULE[node.target](*node.args[1:], **node.kwargs).train(training)
    return node.target  # a function, as of a sum


def _nested(nodes: Any, pattern: Any, modules: dict[str, Any], training: bool) -> Any:
    if isinstance(pattern, tuple):
        pairs = zip(nodes, pattern, strict=True)
        return tuple(_nested(node, part, modules, training) for node, part in pairs)
    if pattern is MatchAllNode:
        return nodes
    return _module_for(nodes, modules, training)


def _in_order(nested: Any) -> list[Any]:
    """Return the parts of a chain from the first call to the last."""
    if not isinstance(nested, tuple):
        return [nested]
    last, inner = nested
    return [*_in_order(inner), last]


def _fuse_match(model: fx.GraphModule, modules: dict[str, Any], match: Match, is_qat: bool) -> None:
    config, root = match.config, match.root
    training = modules[str(root.target)].training
    nested = _nested(match.nodes, config.nested_pattern(), modules, training)
    assert config.fuser_method is not None
    if config._pattern_complex_format is not None:
        made = config.fuser_method(is_qat, *nested)
    else:
        made = config.fuser_method(is_qat, *_in_order(nested))
    model.set_submodule(str(root.target), made)
    modules[str(root.target)] = made
    extra = config._extra_inputs_getter
    added = tuple(extra(match.nodes)) if extra is not None else ()
    match.last.replace_all_uses_with(root, delete_user_cb=lambda user: user is not root)
    last = match.last
    if added:
        last.append(root)  # so that the other inputs stand before it
        root.args = (*root.args, *added)
    for node in match.own_nodes():
        if node is not root:
            model.graph.erase_node(node)
