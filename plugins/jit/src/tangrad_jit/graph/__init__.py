"""The graph: typed static single assignment over the core's op definitions.

A `Value` is a tensor, a number that a random stream gave, or a Python number that is given at run
time. A value that shows memory of another (a view, the result of a write in place) is a value of
its own, and says so. Writes are explicit: a node that writes names what it writes, and the order of
nodes that read and write the same memory is the program's.
"""

from __future__ import annotations

from typing import Any

_WHERE = {
    "Graph": "ir",
    "GraphError": "verifier",
    "Input": "nodes",
    "Node": "nodes",
    "NumberType": "types",
    "TensorType": "types",
    "Value": "nodes",
    "parse": "parser",
    "text_of": "printer",
    "type_of": "types",
    "verify": "verifier",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    """Import what is asked for: a compilation has no use for the parser."""
    if name not in _WHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
