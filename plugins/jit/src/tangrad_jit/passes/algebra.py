"""Algebraic rewriting by tables: what a call is equal to, and how exactly.

`EXACT` rules change no bit, also for infinities, NaN (its payload aside) and signed zeros; they are
always used. `FAST` rules may change the last bit or the sign of a zero, and are used on request.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.sized import is_sized
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.facts import Facts, same_type

__all__ = ["EXACT", "FAST", "rewrite"]

Arguments = tuple[Any, ...]


def _number(item: Any, wanted: float) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool) and item == wanted


def _made_by(item: Any, *names: str) -> Node | None:
    """Return the node that makes a value, if it is a call of one of these ops."""
    node = item.producer if isinstance(item, Value) else None
    return node if node is not None and node.form == "call" and node.name in names else None


def _unit(args: Arguments) -> Any:
    return args[0] if _number(args[1], 1) else None


def _no_difference(args: Arguments) -> Any:
    return args[0] if _number(args[1], 0) and math.copysign(1, args[1]) > 0 else None


def _inner(*names: str) -> Callable[[Arguments], Any]:
    """Return a rule: f(g(x)) is x."""

    def rule(args: Arguments) -> Any:
        node = _made_by(args[0], *names)
        return None if node is None else node.args[0]

    return rule


def _same_again(*names: str) -> Callable[[Arguments], Any]:
    """Return a rule: f(g(x)) is g(x)."""
    return lambda args: args[0] if _made_by(args[0], *names) is not None else None


def _power_of_two(args: Arguments) -> Any:
    number = args[1]
    if not isinstance(number, (int, float)) or isinstance(number, bool) or number == 0:
        return None
    exact = math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5
    return ("mul", (args[0], 1.0 / number)) if exact and abs(number) < 2.0**60 else None


def _reciprocal(args: Arguments) -> Any:
    number = args[1]
    real = isinstance(number, (int, float)) and not isinstance(number, bool)
    fits = real and math.isfinite(number) and abs(number) > 1e-30
    return ("mul", (args[0], 1.0 / number)) if fits else None


def _square(args: Arguments) -> Any:
    return ("mul", (args[0], args[0])) if _number(args[1], 2) else None


#: op -> rules: (arguments) -> a value, (op, arguments) in its place, or None.
EXACT: dict[str, list[Callable[[Arguments], Any]]] = {
    "mul": [_unit],
    "true_divide": [_unit, _power_of_two],
    "sub_plain": [_no_difference],
    "neg": [_inner("neg")],
    "relu": [_same_again("relu")],
    "abs": [_same_again("abs", "relu")],
    "floor": [_same_again("floor", "ceil", "trunc", "round")],
    "t": [_inner("t")],
}

FAST: dict[str, list[Callable[[Arguments], Any]]] = {
    "true_divide": [_reciprocal],
    "add_plain": [lambda args: args[0] if _number(args[1], 0) else None],
    "pow_number": [_square],
}


def rewrite(graph: Graph, fast: bool = False) -> int:
    """Apply the tables until nothing changes; return how many calls were rewritten."""
    count = 0
    while True:
        changed = _once(graph, EXACT) + (_once(graph, FAST) if fast else 0)
        if not changed:
            return count
        count += changed


def _once(graph: Graph, table: dict[str, list[Callable[[Arguments], Any]]]) -> int:
    facts = Facts(graph)
    replaced: dict[Value, Any] = {}
    kept: list[Node] = []
    count = 0
    for place, node in enumerate(graph.nodes):
        found = _match(node, table, replaced)
        if isinstance(found, Value) and _may_be(node, found, place, facts):
            replaced[node.results[0]] = found
            count += 1
            continue
        if isinstance(found, tuple) and _unwritten(found[1], place, facts):
            node.op, node.args = find_op(found[0]), found[1]
            count += 1
        kept.append(node)
    graph.nodes = kept
    graph.replace(replaced)
    return count


def _match(
    node: Node, table: dict[str, list[Callable[[Arguments], Any]]], replaced: dict[Value, Any]
) -> Any:
    if node.form != "call" or len(node.results) != 1 or not _floating(node):
        return None
    if any(value in replaced for value in node.inputs):
        return None  # in the next round
    if is_sized(node.args):
        return None  # what holds of this number need not hold at other sizes
    for rule in table.get(node.name, ()):
        found = rule(node.args)
        if found is not None:
            return found
    return None


def _floating(node: Node) -> bool:
    types = [value.type for value in (*node.inputs, *node.results)]
    return (
        all(
            isinstance(t, TensorType) and t.dtype in ("float16", "bfloat16", "float32", "float64")
            for t in types
        )
        and len({t.dtype for t in types if isinstance(t, TensorType)}) == 1
    )


def _may_be(node: Node, found: Value, place: int, facts: Facts) -> bool:
    result = node.results[0]
    if not same_type(result, found):
        return False
    if result.root in facts.returned:
        if node.op.kind == "view" or found.root in facts.returned or found.root in facts.given:
            return False
        facts.returned.add(found.root)
    made = facts.position.get(found.producer, -1) if found.producer is not None else -1
    if node.op.kind == "view":
        return found.offset == result.offset and result.root is found.root
    return not facts.is_written(found, made) and not facts.is_written(result)


def _unwritten(args: Arguments, place: int, facts: Facts) -> bool:
    return not any(isinstance(item, Value) and facts.is_written(item) for item in args)
