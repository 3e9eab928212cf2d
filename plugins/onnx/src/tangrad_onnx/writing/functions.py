"""Write the functions of `tangrad.onnx.ops`, each as one node."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tangrad_onnx.ops import attention, rotary_embedding, symbolic_multi_out
from tangrad_onnx.writing.graph import Value, Writer

__all__ = ["is_written", "write_function"]

# {function: the operator, the opset that brings it, how many results it has}
_OPERATORS: dict[Any, tuple[str, int, int]] = {
    attention: ("Attention", 23, 4),
    rotary_embedding: ("RotaryEmbedding", 23, 1),
}


def is_written(target: Any, opset: int) -> bool:
    """Return whether a function is written as a node, and not by what it is made of."""
    if target is symbolic_multi_out:
        return True
    try:
        return target in _OPERATORS and opset >= _OPERATORS[target][1]
    except TypeError:  # it cannot be hashed
        return False


def write_function(w: Writer, node: Any, given: Callable[[Any], Any]) -> Any:
    """Write a call and return the names of its results.

    Args:
        w: the graph.
        node: of the call.
        given: returns what an argument stands for.
    """
    if node.target is symbolic_multi_out:
        return _symbolic(w, node, given)
    name, _, count = _OPERATORS[node.target]
    operands = [_name(given(x)) for x in node.args]
    attributes = {k: v for k, v in node.kwargs.items() if v is not None and v != _UNSAID.get(k)}
    attributes = {k: int(v) if isinstance(v, bool) else v for k, v in attributes.items()}
    names = w.op(name, *operands, outputs=count, **attributes)
    if count > 1:
        used = {u.args[1] for u in node.users if u.target is operator.getitem}
        last = max(used, default=0)
        made = [n if k in used else "" for k, n in enumerate(names) if k <= last]
        del w.nodes[-1].output[:]
        w.nodes[-1].output.extend(made)
    return names


_UNSAID = {"num_heads": 0, "q_num_heads": 0, "kv_num_heads": 0}


def _symbolic(w: Writer, node: Any, given: Callable[[Any], Any]) -> Any:
    title, inputs, attributes = node.args
    domain, _, name = title.rpartition("::")
    operands = [_name(given(x)) for x in inputs]
    count = len(node.kwargs["dtypes"])
    if domain:
        w.domains.setdefault(domain, node.kwargs.get("version") or 1)
    plain = {k: int(v) if isinstance(v, bool) else v for k, v in attributes.items()}
    names = w.op(name, *operands, outputs=count, domain=domain, **plain)
    for key, value in (node.kwargs.get("metadata_props") or {}).items():
        w.nodes[-1].metadata_props.add(key=key, value=value)
    return (names,) if count == 1 else names


def _name(value: Any) -> str | None:
    return value.name if isinstance(value, Value) else None
