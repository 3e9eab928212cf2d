"""Algebraic rewriting by tables: what a call is equal to, and how exactly.

`EXACT` rules change no bit, also for infinities, NaN (its sign and payload aside), signed zeros and
subnormal numbers; they are always used. `FAST` rules may change the last bits or the sign of a
zero, and what overflows on the way; they are used on request.

What views amount to (`x.t().t()`, `x.view(6).view(2, 3)`) needs no rule: a view of its source's
geometry is its source (`copy_elimination.py`). Nor do chains that one op would compute: they are
fused. So the rules are those that leave less to compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.sized import is_sized
from tangrad_jit.passes.facts import Facts, same_type
from tangrad_jit.passes.patterns import (
    BOTH,
    INTEGRAL,
    A,
    B,
    Found,
    Letter,
    M,
    Of,
    Rule,
    X,
    Y,
    Z,
    find,
)  # fmt: skip
from tangrad_jit.passes.structure import STRUCTURAL, summed_expansion

__all__ = ["EXACT", "FAST", "rewrite"]

# Exponents between which powers of two are normal numbers, their inverses too.
_EXPONENTS = {"float16": 14, "bfloat16": 126, "float32": 126, "float64": 1022}
_ROUNDINGS = ("floor", "ceil", "trunc", "round_whole")
_COMPARISONS = {"eq": "ne", "lt": "ge", "le": "gt"}
# Ops whose results have no sign; that of `sqrt` and `relu` may be -0, which `abs` makes 0.
_NOT_NEGATIVE = ("abs", "exp", "sigmoid", "square")


def _power_of_two(dtype: str, a: float) -> bool:
    mantissa, exponent = math.frexp(a)
    return abs(mantissa) == 0.5 and abs(exponent - 1) <= _EXPONENTS[dtype]


def _normal(dtype: str, *numbers: float) -> bool:
    """Return whether numbers, and their inverses, are far from what overflows."""
    reach = 2.0 ** (_EXPONENTS[dtype] - 1)
    return all(1 / reach < abs(number) < reach for number in numbers)


def _sum(dtype: str, a: float, b: float) -> bool:
    return abs(a + b) < 2.0 ** _EXPONENTS[dtype]


def _product(dtype: str, a: float, b: float) -> bool:
    return _normal(dtype, a, b) and _normal(dtype, a * b)


def _whole(dtype: str, *numbers: float) -> bool:
    return all(type(number) is int for number in numbers)


def _negative(*letters: Letter) -> Of:
    return Of(lambda a: -a, *letters)


EXACT: tuple[Rule, ...] = (
    # What does nothing.
    Rule(("mul", X, 1), X, BOTH),
    Rule(("true_divide", X, 1), X),
    Rule(("add_plain", X, -0.0), X),
    Rule(("add_plain", X, 0), X, INTEGRAL),
    Rule(("sub_plain", X, 0), X, BOTH),
    Rule(("floor_divide", X, 1), X, INTEGRAL),
    Rule(("maximum", X, X), X, BOTH),
    Rule(("minimum", X, X), X, BOTH),
    Rule(("where_choice", M, X, X), X, BOTH),
    # Signs: of floating-point numbers they are one bit, which nothing else depends on.
    Rule(("neg", ("neg", X)), X, BOTH),
    Rule(("mul", X, -1), ("neg", X)),
    Rule(("true_divide", X, -1), ("neg", X)),
    Rule(("add_plain", X, ("neg", Y)), ("sub_plain", X, Y)),
    Rule(("sub_plain", X, ("neg", Y)), ("add_plain", X, Y)),
    Rule(("mul", ("neg", X), ("neg", Y)), ("mul", X, Y)),
    Rule(("true_divide", ("neg", X), ("neg", Y)), ("true_divide", X, Y)),
    Rule(("mul", ("neg", X), A), ("mul", X, _negative(A))),
    Rule(("true_divide", ("neg", X), A), ("true_divide", X, _negative(A))),
    Rule(("neg", ("mul", X, A)), ("mul", X, _negative(A)), once=True),
    Rule(("neg", ("true_divide", X, A)), ("true_divide", X, _negative(A)), once=True),
    Rule(("abs", ("neg", X)), ("abs", X)),
    Rule(("square", ("neg", X)), ("square", X)),
    Rule(("square", ("abs", X)), ("square", X)),
    # A quotient and the product with an inverse that is exact are rounded alike.
    Rule(("true_divide", X, A), ("mul", X, Of(lambda a: 1 / a, A)), when=_power_of_two),
    # What was done before.
    Rule(("relu", ("relu", X)), ("relu", X), BOTH),
    Rule(("sign", ("sign", X)), ("sign", X), BOTH),
    *(Rule(("relu", (name, X)), (name, X)) for name in (*_NOT_NEGATIVE, "sqrt")),
    *(Rule(("abs", (name, X)), (name, X)) for name in _NOT_NEGATIVE),
    *(Rule((outer, (inner, X)), (inner, X)) for outer in _ROUNDINGS for inner in _ROUNDINGS),
    *(Rule((name, (name, X, A), A), (name, X, A), BOTH) for name in ("clamp_min", "clamp_max")),
    # Masks. "Not less" is "greater or equal" where there is no NaN.
    *(Rule((outer, (inner, M)), M) for outer, inner in (
        ("logical_not", "logical_not"), ("bitwise_not", "bitwise_not"),
        ("logical_not", "bitwise_not"), ("bitwise_not", "logical_not"),
    )),
    *(Rule((outer, (one, X, y)), (other, X, y), BOTH if name == "eq" else INTEGRAL,
           None if name == "eq" else _whole)
      for outer in ("logical_not", "bitwise_not")
      for name, opposite in _COMPARISONS.items()
      for one, other in ((name, opposite), (opposite, name))
      for y in (Y, A)),
    *(Rule(("where_choice", (name, M), x, y), ("where_choice", M, y, x), BOTH)
      for name in ("logical_not", "bitwise_not")
      for x, y in ((X, Y), (X, A), (A, X))),
)  # fmt: skip

FAST: tuple[Rule, ...] = (
    Rule(("add_plain", X, 0), X),
    Rule(("sub_plain", X, -0.0), X),
    Rule(("true_divide", X, A), ("mul", X, Of(lambda a: 1 / a, A)), when=_normal),
    # Chains of numbers.
    Rule(("mul", ("mul", X, A), B), ("mul", X, Of(lambda a, b: a * b, A, B)), when=_product),
    Rule(("add_plain", ("add_plain", X, A), B), ("add_plain", X, Of(lambda a, b: a + b, A, B)),
         when=_sum),
    Rule(("add_plain", ("sub_plain", X, A), B), ("add_plain", X, Of(lambda a, b: b - a, A, B)),
         when=_sum),
    Rule(("sub_plain", ("add_plain", X, A), B), ("add_plain", X, Of(lambda a, b: a - b, A, B)),
         when=_sum),
    Rule(("sub_plain", ("sub_plain", X, A), B), ("sub_plain", X, Of(lambda a, b: a + b, A, B)),
         when=_sum),
    Rule(("add_plain", ("mul", X, A), X), ("mul", X, Of(lambda a: a + 1, A))),
    Rule(("add_plain", ("mul", X, A), ("mul", X, B)), ("mul", X, Of(lambda a, b: a + b, A, B)),
         when=_sum),
    # Common factors.
    Rule(("add_plain", ("mul", X, Y), ("mul", X, Z)), ("mul", X, ("add_plain", Y, Z)), once=True),
    Rule(("sub_plain", ("mul", X, Y), ("mul", X, Z)), ("mul", X, ("sub_plain", Y, Z)), once=True),
    Rule(("true_divide", ("true_divide", X, Y), Z), ("true_divide", X, ("mul", Y, Z)), once=True),
    Rule(("neg", ("sub_plain", X, Y)), ("sub_plain", Y, X)),
    # Roots, powers, quotients.
    Rule(("mul", X, ("reciprocal", Y)), ("true_divide", X, Y)),
    Rule(("reciprocal", ("sqrt", X)), ("rsqrt", X)),
    Rule(("sqrt", ("reciprocal", X)), ("rsqrt", X)),
    Rule(("true_divide", X, ("sqrt", Y)), ("mul", X, ("rsqrt", Y)), once=True),
    Rule(("true_divide", X, ("exp", Y)), ("mul", X, ("exp", ("neg", Y))), once=True),
    Rule(("mul", ("exp", X), ("exp", Y)), ("exp", ("add_plain", X, Y)), once=True),
    Rule(("pow", X, -2), ("reciprocal", ("square", X))),
    Rule(("pow", X, 1.5), ("mul", X, ("sqrt", X))),
    Rule(("pow", X, 4), ("square", ("square", X))),
)  # fmt: skip

Way = tuple[Rule, tuple[Any, ...]]
# op -> (which argument, what makes it: see `_marks`) -> the patterns that begin so.
Table = dict[str, dict[tuple[int, str], list[Way]]]
Structural = Callable[[Node, Facts], Any]


def _by_name(rules: tuple[Rule, ...]) -> Table:
    found: Table = {}
    for rule in rules:
        for way in rule.ways():
            marks = [(k, _mark(part)) for k, part in enumerate(way[1:])]
            told = [m for m in marks if m[1] not in ("", "number")] or [m for m in marks if m[1]]
            begin = told[0] if told else (-1, "")
            found.setdefault(rule.name, {}).setdefault(begin, []).append((rule, way))
    return found


def _mark(part: Any) -> str:
    if isinstance(part, Letter):
        return "number" if part.kind == "number" else ""
    return part[0] if isinstance(part, tuple) else "number"


def _marks(node: Node) -> list[str]:
    """Return of each argument the op that makes it, "number" if it is no value, or ""."""
    return [
        "number" if not isinstance(arg, Value) else arg.producer.name if arg.producer else ""
        for arg in node.args
    ]


_EXACT, _FAST = _by_name(EXACT), _by_name(FAST)
_SUMS: dict[str, Structural] = {"sum": summed_expansion}


def rewrite(graph: Graph, fast: bool = False) -> int:
    """Apply the tables until nothing changes; return how many calls were rewritten."""
    count = 0
    while True:
        changed = _once(graph, _EXACT, STRUCTURAL)
        changed += _once(graph, _FAST, _SUMS) if fast else 0
        if not changed:
            return count
        count += changed


def _once(graph: Graph, table: Table, structural: dict[str, Structural]) -> int:
    facts: Facts | None = None
    replaced: dict[Value, Any] = {}
    kept: list[Node] = []
    count = 0
    named = table.keys() | structural.keys()
    for place, node in enumerate(graph.nodes):
        found = None
        if node.name in named and _is_ready(node, replaced):
            facts = facts or Facts(graph)
            found = _found(node, table, facts) or _structural(node, structural, facts)
        if isinstance(found, Value):
            if facts is not None and _may_be(node, found, place, facts):
                replaced[node.results[0]] = found
                count += 1
                continue
        elif found is not None:
            _put(node, found, kept)
            count += 1
        kept.append(node)
    graph.nodes = kept
    graph.replace(replaced)
    return count


def _is_ready(node: Node, replaced: dict[Value, Any]) -> bool:
    """Return whether a call may be looked at; one that takes a replaced value, in the next round.

    What holds of a number that depends on sizes need not hold at others.
    """
    if node.form != "call" or is_sized(node.args):
        return False
    return not replaced or not any(value in replaced for value in node.inputs)


def _found(node: Node, table: Table, facts: Facts) -> Any:
    """Return what stands for a call by the first rule that holds: a value, or a call."""
    by_mark = table.get(node.name)
    if by_mark is None:
        return None
    for begin in (*enumerate(_marks(node)), (-1, "")):
        for rule, way in by_mark.get(begin, ()):
            found = find(rule, way, node)
            if found is not None and _holds(rule, found, node, facts):
                return _made(rule.instead, found)
    return None


def _structural(node: Node, table: dict[str, Structural], facts: Facts) -> Any:
    rule = table.get(node.name)
    return None if rule is None else rule(node, facts)


def _holds(rule: Rule, found: Found, node: Node, facts: Facts) -> bool:
    """Return whether the memory that is read stays as it is, and new calls have known types."""
    inner = [below.results[0] for below in found.inner]
    if rule.once and any(facts.uses(value) > 1 for value in inner):
        return False
    one_value = isinstance(rule.instead, Letter)  # which `_may_be` looks at
    if any(facts.is_written(value) for value in (*inner, *([] if one_value else found.tensors))):
        return False
    if one_value or not any(type(part) is tuple for part in rule.instead[1:]):
        return True
    return all(value.type == node.results[0].type for value in (*inner, *found.tensors))


def _made(instead: Any, found: Found) -> Any:
    """Return what stands for a call with the values that were found."""
    if isinstance(instead, Letter):
        return found.values[instead]
    if isinstance(instead, Of):
        return instead.function(*(found.values[letter] for letter in instead.letters))
    if isinstance(instead, tuple):
        return (instead[0], *(_made(part, found) for part in instead[1:]))
    return instead


def _put(node: Node, call: tuple[Any, ...], nodes: list[Node]) -> None:
    """Let a node be another call; those below it become nodes before it."""
    node.op = find_op(call[0])
    node.args = tuple(_argument(part, node, nodes) for part in call[1:])


def _argument(part: Any, node: Node, nodes: list[Node]) -> Any:
    if not (isinstance(part, tuple) and part and isinstance(part[0], str)):
        return part
    args = tuple(_argument(one, node, nodes) for one in part[1:])
    made = Node(find_op(part[0]), args, "call", (), node.module, node.line)
    made.results = [Value(node.results[0].type, made)]
    nodes.append(made)
    return made.results[0]


def _may_be(node: Node, found: Value, place: int, facts: Facts) -> bool:
    """Return whether a result may be a value that is there already."""
    result = node.results[0]
    if not same_type(result, found):
        return False
    if result.root in facts.returned:
        if found.root in facts.returned or found.root in facts.given:
            return False
        if result.type != found.type:
            return False  # strides are seen, also those of no elements and of single ones
        facts.returned.add(found.root)
    made = facts.position.get(found.producer, -1) if found.producer is not None else -1
    return not facts.is_written(found, made) and not facts.is_written(result)
