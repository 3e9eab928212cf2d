"""The graph: typed static single assignment over the core's op definitions.

A `Value` is a tensor, a number that a random stream gave, or a Python number that is given at run
time. A value that shows memory of another (a view, the result of a write in place) is a value of
its own, and says so. Writes are explicit: a node that writes names what it writes, and the order of
nodes that read and write the same memory is the program's.
"""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Input, Node, Value
from tangrad_jit.graph.parser import parse
from tangrad_jit.graph.printer import text_of
from tangrad_jit.graph.types import NumberType, TensorType, type_of
from tangrad_jit.graph.verifier import GraphError, verify

__all__ = [
    "Graph",
    "GraphError",
    "Input",
    "Node",
    "NumberType",
    "TensorType",
    "Value",
    "parse",
    "text_of",
    "type_of",
    "verify",
]
