"""Tensors of other layouts as the arrays that C is given: of quantized ones, their integers."""

from __future__ import annotations

import copy
from typing import Any

import tangrad
from tangrad import fx
from tangrad.plugin import components, layout_tensor, metadata
from tangrad_export.errors import ExportError

__all__ = ["array_of", "note_of", "with_array", "with_numbers"]

_KNOWN = "quantized"


def array_of(t: Any) -> Any:
    """Return a tensor's elements: itself, or the integers of a quantized one.

    Raises:
        ExportError: it is of another layout.
    """
    if t.layout is tangrad.strided:
        return t
    if t.layout.name != _KNOWN or components(t)["values"].shape != t.shape:
        raise ExportError(
            f"a tensor of layout {t.layout.name} and dtype {t.dtype.name} is no input or result "
            "that C has: dequantize it, or quantize it with one scale to 8 or more bits"
        )
    return components(t)["values"]


def with_array(t: Any, values: Any) -> Any:
    """Return a tensor of a tensor's layout with other elements."""
    if t.layout is tangrad.strided:
        return values
    shape = tuple(values.shape)
    held = {"values": values}
    return layout_tensor(t.layout.name, held, shape, metadata=metadata(t), dtype=t.dtype)


def note_of(t: Any) -> str:
    """Return what a comment says of what a tensor's elements stand for."""
    if t.layout is tangrad.strided:
        return ""
    said = metadata(t)
    return f"quantized: scale {said['scale']!r}, zero point {said['zero_point']}"


def with_numbers(model: Any) -> Any:
    """Return a model quantized by its graph with scales as numbers, which a trace may read.

    Others are returned as they are.
    """
    if not isinstance(model, fx.GraphModule):
        return model
    graph = copy.deepcopy(model.graph)
    replaced = False
    for node in list(graph.nodes):
        held = _attribute(model, node)
        if held is None or not node.users or not all(map(_quantizes, node.users)):
            continue
        number = held.item()
        for user in list(node.users):
            user.args = tuple(number if arg is node else arg for arg in user.args)
            user.kwargs = {k: number if v is node else v for k, v in user.kwargs.items()}
        graph.erase_node(node)
        replaced = True
    return fx.GraphModule(model, graph) if replaced else model


def _attribute(model: Any, node: Any) -> Any:
    """Return the tensor of one element that a node reads from the model, None if it does not."""
    if node.op != "get_attr":
        return None
    held: Any = model
    for name in str(node.target).split("."):
        held = getattr(held, name, None)
    one = isinstance(held, tangrad.Tensor) and held.layout is tangrad.strided
    return held if one and held.numel() == 1 else None


def _quantizes(node: Any) -> bool:
    """Return whether a node calls what makes quantized tensors."""
    target = node.target
    by_library = str(getattr(target, "__module__", "")).startswith("tangrad_quantization")
    return node.op == "call_function" and (by_library or target is tangrad.quantize_per_tensor)
