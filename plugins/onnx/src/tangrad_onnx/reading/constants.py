"""The tensors of a model: which are parameters, which buffers, and which stay on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto

from tangrad_onnx.values import Array, has_tensor

__all__ = ["free_names", "kind_of", "uses", "visited"]

_FEW = 64

# Operands that an operator reads as numbers, so that they stay on the host if they are constant.
_ON_HOST: dict[str, tuple[int, ...]] = {
    "Clip": (1, 2),
    "Dropout": (1, 2),
    "Loop": (0, 1),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "SequenceAt": (1,),
    "SplitToSequence": (1,),
    "Upsample": (1,),
}
# Operands that are statistics or scales, and not weights to be trained.
_STATE: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4),
    "DequantizeLinear": (0, 1, 2),
    "MatMulInteger": (2, 3),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    "STFT": (2,),
}


def visited(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and those inside of its nodes."""
    ahead = [graph]
    while ahead:
        current = ahead.pop()
        yield current
        for node in current.node:
            ahead += subgraphs(node)


def subgraphs(node: Any) -> list[GraphProto]:
    """Return the graphs among a node's attributes."""
    found = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            found += attribute.graphs
    return found


def uses(graphs: Iterator[Any]) -> dict[str, set[tuple[str, int]]]:
    """Return {value: {(operator, position) of who takes it}}."""
    found: dict[str, set[tuple[str, int]]] = {}
    for graph in graphs:
        for node in graph.node:
            for at, name in enumerate(node.input):
                if name:
                    found.setdefault(name, set()).add((node.op_type, at))
    return found


def free_names(node: Any) -> list[str]:
    """Return the values that a node takes, those inside of its graphs included."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in subgraphs(node):
        names.update(dict.fromkeys(_free_in(graph)))
    return list(names)


def _free_in(graph: GraphProto) -> list[str]:
    inside = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    inside |= {name for node in graph.node for name in node.output}
    taken = dict.fromkeys(name for node in graph.node for name in free_names(node))
    taken.update(dict.fromkeys(v.name for v in graph.output))
    return [name for name in taken if name not in inside]


def kind_of(array: Array, takers: set[tuple[str, int]], initializer: bool) -> str:
    """Return what a constant becomes: "parameter", "buffer" or "array" on the host."""
    if not has_tensor(array.dtype):
        return "array"
    small = array.dtype.kind in "iub" and array.size <= _FEW and array.ndim <= 1
    if small or any(at in _ON_HOST.get(operator, ()) for operator, at in takers):
        return "array"
    floating = array.dtype.kind == "f" or array.dtype.kind == "V"
    state = any(at in _STATE.get(operator, ()) for operator, at in takers)
    if initializer and floating and array.ndim and not state:
        return "parameter"
    return "buffer"


def is_vector_of_integers(array: Any) -> bool:
    """Return whether an array can be written as a tuple of integers."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.ndim <= 1
