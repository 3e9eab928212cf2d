"""Dropout with dynamic scalars is a pointwise op, which may be in a group; draws ask for sizes.

Rules: `native_dropout` of a seed and an offset is `dropout_mask_scale` of them where both scale by
the same number to the bit. A draw takes as many numbers as its tensor has elements: it is given the
operand of that shape that pointwise ops have made the tensor of, so that they need not be done.
"""

from __future__ import annotations

import struct

from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.patterns import FLOATING

__all__ = ["expose_random_numbers"]


def expose_random_numbers(graph: Graph) -> int:
    """Rewrite draws and dropouts; return how many dropouts are pointwise ops."""
    count = 0
    for node in graph.nodes:
        if node.name != "native_dropout":
            continue
        if node.form == "draw":
            node.args = (_made_of(node.args[0]), *node.args[1:])
        elif node.form == "call" and _is_pointwise(node):
            x, p, _, seed, offset = node.args
            node.op, node.args = find_op("dropout_mask_scale"), (x, p, seed, offset)
            count += 1
    return count


def _made_of(value: Value) -> Value:
    """Return the first tensor of a value's shape on its way through pointwise ops."""
    while True:
        producer, type = value.producer, value.type
        if producer is None or producer.form != "call" or producer.op.kind != "pointwise":
            return value
        same = [
            one
            for one in producer.inputs
            if isinstance(one.type, TensorType)
            and isinstance(type, TensorType)
            and (one.type.shape, one.type.device) == (type.shape, type.device)
        ]
        if not same:
            return value
        value = same[0]


def _is_pointwise(node: Node) -> bool:
    x, p, _, seed, offset = node.args
    if not isinstance(seed, Value) or not isinstance(offset, Value) or not isinstance(p, float):
        return False
    types = [x.type, node.results[0].type]
    if not all(isinstance(type, TensorType) and type.contiguous for type in types):
        return False
    if x.type.dtype not in FLOATING:
        return False  # dropout of complex numbers is none of pointwise ops
    if x.type.device != "cpu":
        return True  # dropout is that op there
    wide = x.type.dtype == "float64"
    return 0 <= p < 1 and (wide or _single(1 / (1 - p)) == _single(1 / _single(1 - _single(p))))


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
