"""Held writes: writes into tensors that a graph is given become calls, and a copy at the end.

Rule: the tensor is written as a whole, by pointwise ops that keep its type or by copies, and after
the first write nothing looks at its memory but as what was written last. Then each write makes a
value of its own, so that whole steps of optimizers are chains of pointwise ops, which fuse; and the
last value is copied to where it belongs. A plan has it computed there, and drops the copy.
"""

from __future__ import annotations

from typing import Any

from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Input, Node, Value
from tangrad_jit.graph.types import ITEMSIZE, TensorType
from tangrad_jit.passes.facts import is_whole
from tangrad_jit.passes.functional_form import keeps_type

__all__ = ["make_held_writes_functional", "sink_copies"]


def make_held_writes_functional(graph: Graph) -> int:
    """Turn writes in place into calls and copies at the end; return how many."""
    written = {value.root for node in graph.nodes for value in node.written}
    if not any(entry.value in written for entry in graph.inputs):
        return 0
    touched: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for root in dict.fromkeys(value.root for value in (*node.inputs, *node.results)):
            touched.setdefault(root, []).append(node)
    changed = 0
    extents = {entry: _extent(entry) for entry in graph.inputs}
    for entry in graph.inputs:
        root = entry.value
        if root not in written or not _may_be_a_value(entry) or _shares_memory(entry, extents):
            continue
        chain = _chain(root, touched[root], graph, written)
        if chain:
            _rewrite(graph, root, chain)
            changed += len(chain)
    return changed


def sink_copies(graph: Graph) -> None:
    """Move copies into given tensors, of which nothing later knows, to the end."""
    given = {entry.value for entry in graph.inputs}
    known: set[Value] = set()
    kept: list[Node] = []
    sunk: list[Node] = []
    for node in reversed(graph.nodes):
        roots = {value.root for value in (*node.inputs, *node.results)}
        target = node.args[0].root if _is_copy(node) else None
        source = node.args[1].root if target is not None else None
        if target in given and target not in known and source not in given:
            sunk.append(node)
        else:
            kept.append(node)
            known |= roots
            known |= {value.root for value in node.written}
    graph.nodes = [*kept[::-1], *sunk[::-1]]


def _is_copy(node: Node) -> bool:
    return node.name == "copy_" and node.form == "call" and isinstance(node.args[1], Value)


def _may_be_a_value(entry: Input) -> bool:
    type = entry.value.type
    return (
        entry.kind in ("capture", "argument")
        and isinstance(type, TensorType)
        and type.device == "cpu"
        and type.dtype in ("float32", "float64")
        and bool(type.shape)
        and type.numel > 0
        and type.contiguous
    )


def _shares_memory(entry: Input, extents: dict[Input, tuple[int, int]]) -> bool:
    """Return whether the program holds another tensor of the same memory.

    Arguments that share memory with what is written are not run by the graph at all.
    """
    if entry.kind == "argument":
        return False
    if entry.tensor is None:
        return True
    start, end = extents[entry]
    return any(
        start < last and first < end and other is not entry
        for other, (first, last) in extents.items()
    )


def _extent(entry: Input) -> tuple[int, int]:
    """Return the addresses between which an input's elements are, where that is known."""
    if entry.tensor is None or not isinstance(entry.value.type, TensorType):
        return 0, 0
    tensor = entry.tensor.grad if entry.kind == "gradient" else entry.tensor
    if tensor is None or tensor.numel() == 0 or tensor.device.type != "cpu":
        return 0, 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    start = tensor.data_ptr()
    return start, start + reach * ITEMSIZE.get(tensor.dtype.name, 16)


def _chain(root: Value, nodes: list[Node], graph: Graph, written: set[Value]) -> list[Node]:
    """Return the writes of a tensor that may be calls: all of them, or none."""
    current = root
    chain: list[Node] = []
    for node in nodes:
        seen = [v for v in (*node.inputs, *node.results) if v.root is root and v is not current]
        writes = any(value.root is root for value in node.written)
        if not writes:
            if chain and (seen or node.op.kind == "view"):
                return []
            continue
        if len(node.results) != 1 or not is_whole(node.results[0]) or node.args[0] is not current:
            return []
        if any(v is not node.results[0] for v in seen):
            return []
        if not (_is_functional(node, current) or _is_replaced(node, current, written)):
            return []
        chain.append(node)
        current = node.results[0]
    shown = {root, *(node.results[0] for node in chain)}
    if any(value.root is root and value not in shown for value in graph.returned()):
        return []
    # One call and a copy are no better than one write.
    return chain if len(chain) > 1 or _fuses(chain, nodes) else []


def _fuses(chain: list[Node], nodes: list[Node]) -> bool:
    """Return whether the one write of a tensor has pointwise neighbours."""
    if not chain or _is_copy(chain[0]):
        return bool(chain)
    others = [node for node in nodes if node is not chain[0]]
    made = [value.producer for value in chain[0].inputs if value.producer is not None]
    return any(node.op.kind == "pointwise" for node in (*others, *made))


def _is_functional(node: Node, target: Value) -> bool:
    return (
        node.form == "inplace"
        and node.op.kind == "pointwise"
        and keeps_type(node.args, target)
        and "promoted" in node.op.definition.results
    )


def _is_replaced(node: Node, target: Value, written: set[Value]) -> bool:
    """Return whether a copy gives all of a tensor the elements of a value that stays as it is."""
    if not _is_copy(node):
        return False
    source: Any = node.args[1]
    return source.type == target.type and source.root is source and source not in written


def _rewrite(graph: Graph, root: Value, chain: list[Node]) -> None:
    last: Value = root
    replaced: dict[Value, Any] = {}
    dropped = []
    for node in chain:
        result = node.results[0]
        if node.form == "inplace":
            node.form = "call"
            result.view_of, result.offset = None, 0
            last = result
        else:
            last = node.args[1]
            replaced[result] = last
            dropped.append(node)
    shown = {root, *(node.results[0] for node in chain)}
    places = [k for k, item in enumerate(graph.outputs) if item in shown and item is not root]
    graph.nodes = [node for node in graph.nodes if node not in dropped]
    graph.replace(replaced)
    while last in replaced:
        last = replaced[last]
    node = Node(
        find_op("copy_"), (root, last, False), "call", (), chain[-1].module, chain[-1].where
    )
    (made,) = graph.append(node, [root.type])
    made.view_of = root
    for k in places:
        graph.outputs[k] = made
