"""A graph as text: for people, for tests, and for the parser, which reads it back.

graph step(%0: float32[4, 3] argument "x", %1: float32[3] capture "bias") {
  # layers.0 train.py:12
  %2: float32[4, 3] = add_plain(%0, %1)
  %3: float32[4, 3] view of %2 = relu(%2) into %2
  %4: float32[3] view of %3 at 12 = select(%3, 0, 1)
  return %3
}

A view tells how many bytes after what it shows it begins.
"""

from __future__ import annotations

import json
from typing import Any

from tangrad_jit.graph.nodes import Node, Value
from tangrad_jit.graph.types import TensorType

__all__ = ["constant_text", "text_of"]


def text_of(graph: Any, places: bool = True) -> str:
    """Return a graph as text.

    Args:
        graph: a `Graph`, whose class imports this file.
        places: also tell modules and source lines.
    """
    names: dict[Value, str] = {}

    def name(value: Value) -> str:
        return names.setdefault(value, f"%{len(names)}")

    def argument(item: Any) -> str:
        if isinstance(item, Value):
            return name(item)
        if isinstance(item, tuple):
            return f"({', '.join(map(argument, item))}{',' if len(item) == 1 else ''})"
        if isinstance(item, list):
            return f"[{', '.join(map(argument, item))}]"
        return constant_text(item)

    inputs = ", ".join(
        f"{name(i.value)}: {i.value.type} {i.kind} {_quoted(i.name)}" for i in graph.inputs
    )
    lines = [f"graph {graph.name}({inputs}) {{"]
    place = ""
    for node in graph.nodes:
        here = " ".join(part for part in (node.module, node.line) if part)
        if places and here != place:
            lines.append(f"  # {here}" if here else "  #")
            place = here
        lines.append("  " + _node_text(node, name, argument))
    returned = ", ".join(map(argument, graph.outputs))
    lines.append(f"  return {returned}".rstrip())
    lines.append("}")
    return "\n".join(lines)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _node_text(node: Node, name: Any, argument: Any) -> str:
    call = f"{node.name}({', '.join(map(argument, node.args))})"
    if node.form == "draw":
        call = f"draw {call}"
    elif node.form == "inplace":
        call = f"{call} into {argument(node.args[0])}"
    elif node.form == "out":
        call = f"{call} into {', '.join(map(argument, node.outs))}"
    results = ", ".join(
        f"{name(value)}: {value.type}{_view_text(value, name)}" for value in node.results
    )
    return f"{results} = {call}" if results else call


def _view_text(value: Value, name: Any) -> str:
    base = value.view_of
    if base is None:
        return ""
    begins = value.offset - base.offset if _has_elements(value) else 0
    return f" view of {name(base)}" + (f" at {begins}" if begins else "")


def _has_elements(value: Value) -> bool:
    return isinstance(value.type, TensorType) and 0 not in value.type.shape


def constant_text(item: Any) -> str:
    """Return a constant as Python would write it, dtypes and the like by name."""
    if isinstance(item, bool) or item is None or isinstance(item, str):
        return repr(item)
    if isinstance(item, int):
        return repr(int(item))
    if isinstance(item, float):
        return repr(item)
    if isinstance(item, complex):
        return f"complex'{item}'"
    kind = type(item).__name__
    if kind in ("dtype", "device", "layout", "memory_format"):
        return f"{kind}'{str(item).rpartition('.')[2]}'"
    return f"<{kind}>"
