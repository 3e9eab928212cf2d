"""Common subexpressions: equal pure calls, read at one state of memory, are one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.graph.sized import is_sized
from tangrad_jit.passes.facts import Facts, is_pure

__all__ = ["merge_common_subexpressions"]

_ALLOCATIONS = ("empty_strided",)


def merge_common_subexpressions(graph: Graph) -> int:
    """Merge equal calls; return how many were dropped."""
    facts = Facts(graph)
    version: dict[Value, int] = {}
    known: dict[Hashable, list[Value]] = {}
    replaced: dict[Value, Any] = {}
    kept = []

    def key_of(item: Any) -> Hashable:
        if isinstance(item, Value):
            value = replaced.get(item, item)
            return ("value", id(value), version.get(value.root, 0))
        if isinstance(item, (tuple, list)):
            return (type(item), *map(key_of, item))
        if is_sized(item):
            return ("sized", item.key)
        if isinstance(item, float):
            return ("float", item.hex())
        return (type(item), item) if isinstance(item, (int, str, bool)) else (type(item), str(item))

    for node in graph.nodes:
        key: Hashable = None
        shared = (
            is_pure(node)
            and node.name not in _ALLOCATIONS
            and not any(v.root in facts.returned or facts.is_written(v) for v in node.results)
        )
        if shared:
            key = (id(node.op), *map(key_of, node.args))
            if key in known:
                replaced.update(zip(node.results, known[key], strict=True))
                continue
            known[key] = node.results
        for value in node.written:
            version[value.root] = version.get(value.root, 0) + 1
        kept.append(node)
    dropped = len(graph.nodes) - len(kept)
    graph.nodes = kept
    graph.replace(replaced)
    return dropped
