"""Batch norm with constant statistics goes into the convolution or linear layer before it.

Rule: with s = weight / sqrt(variance + eps), the norm of layer(x; W, b) is
layer(x; sW, s(b - mean) + shift). The last bits change, as the sum is rounded elsewhere.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Input, Node, Value
from tangrad_jit.graph.types import TensorType, type_of

__all__ = ["fold_batch_norm"]

# Layers whose third argument is a bias; the others have one added to what they give.
_WITH_BIAS = ("linear", "convolution_biased")


def fold_batch_norm(graph: Graph) -> int:
    """Fold where weights and statistics are constants; return how many norms there were."""
    constants = {e.value: e.tensor for e in graph.inputs if e.kind == "constant"}
    users = graph.users()
    returned = graph.returned()
    count = 0
    for node in list(graph.nodes):
        layer = _layer_before(node, constants, users, returned)
        if layer is not None:
            _fold(graph, node, *layer, constants)
            count += 1
    return count


def _layer_before(
    node: Node, constants: dict[Value, Any], users: dict[Value, list[Node]], returned: set[Value]
) -> tuple[Node, Any, list[Node]] | None:
    """Return the layer whose only use a batch norm is, its bias, and the nodes that then go."""
    if node.name != "_batch_norm" or node.form != "call" or node.args[5] is not False:
        return None
    statistics = [item for item in node.args[1:5] if item is not None]
    if node.args[3] is None or any(item not in constants for item in statistics):
        return None
    if any(value in users or value in returned for value in node.results[1:]):
        return None
    source, bias, between = node.args[0], None, []
    if _used_once(source, users, returned) and source.producer is not None:
        made = source.producer
        if made.name == "add_plain" and made.form == "call":
            bias = _bias_of(made, node, constants)
            if bias is None:
                return None
            between, source = [made], made.args[0]
    layer = source.producer if isinstance(source, Value) else None
    if layer is None or layer.form != "call" or not _used_once(source, users, returned):
        return None
    if layer.name in _WITH_BIAS and not between and layer.args[1] in constants:
        bias = constants.get(layer.args[2])
        fits = layer.args[2] is None or bias is not None
        fits = fits and (layer.name != "linear" or len(source.type.shape) == 2)
        return (layer, bias, between) if fits else None
    if layer.name == "convolution" and layer.args[1] in constants:
        return layer, bias, between
    return None


def _used_once(value: Any, users: dict[Value, list[Node]], returned: set[Value]) -> bool:
    return isinstance(value, Value) and len(users.get(value, ())) == 1 and value not in returned


def _bias_of(node: Node, norm: Node, constants: dict[Value, Any]) -> Any:
    """Return the constant that is added along the channels, or None."""
    shown = node.args[1]
    made = shown.producer if isinstance(shown, Value) else None
    if made is None or made.name != "view_size" or made.args[0] not in constants:
        return None
    rank = len(norm.args[0].type.shape)
    shape = (*[1] * (rank - len(shown.type.shape)), *shown.type.shape)
    others = [size for dim, size in enumerate(shape) if dim != 1]
    return constants[made.args[0]].reshape(-1) if set(others) == {1} else None


def _fold(
    graph: Graph,
    node: Node,
    layer: Node,
    bias: Any,
    between: list[Node],
    constants: dict[Value, Any],
) -> None:
    weight: Any
    shift: Any
    mean: Any
    variance: Any
    weight, shift, mean, variance = (
        None if item is None else constants[item] for item in node.args[1:5]
    )
    with tangrad.no_grad():
        scale = (variance + node.args[6]).rsqrt()
        scale = scale if weight is None else scale * weight
        old = constants[layer.args[1]]
        new_weight = old * scale.reshape(-1, *[1] * (old.dim() - 1))
        new_bias = -mean * scale if bias is None else (bias - mean) * scale
        new_bias = new_bias if shift is None else new_bias + shift
    made = _constant(graph, constants, new_weight, "folded weight")
    if layer.name in _WITH_BIAS:
        added = _constant(graph, constants, new_bias, "folded bias")
        layer.args = (layer.args[0], made, added, *layer.args[3:])
        graph.replace({node.results[0]: layer.results[0]})
        graph.nodes.remove(node)
        return
    layer.args = (layer.args[0], made, *layer.args[2:])
    channels = new_bias.reshape(-1, *[1] * (old.dim() - 2)).contiguous()
    added = _constant(graph, constants, channels, "folded bias")
    node.op = find_op("add_plain")
    node.args = (layer.results[0], added)
    node.results = node.results[:1]
    for dead in between:
        graph.nodes.remove(dead)


def _constant(graph: Graph, constants: dict[Value, Any], tensor: Any, name: str) -> Value:
    type = type_of(tensor)
    assert isinstance(type, TensorType)
    value = Value(type)
    graph.inputs.append(Input(value, "constant", name, tensor))
    constants[value] = tensor
    return value
