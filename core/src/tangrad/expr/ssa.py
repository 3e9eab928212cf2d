"""Untyped SSA nodes: hash-consed, simplified and folded as they are made.

Equal nodes are the same object, so structural equality is identity, a shared subexpression is
computed once, and whatever no output reaches is dead. Simplification is local and never changes
a value: ``x + 0`` stays (it turns -0 into 0), and so does ``x * 0`` (it keeps nan and inf).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from weakref import WeakValueDictionary

from tangrad.expr.errors import ExpressionError, hint
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.scalar_eval import fold

Scalar = bool | int | float | complex | str


class Node:
    """Hold one value of the graph.

    ``op`` is ``"name"`` (an input or parameter, called ``value``), ``"literal"`` (``value`` is the
    Python scalar), ``"iterate"`` (``value`` says the loop, see ``loop.py``) or a primitive;
    ``value`` of a cast is the dtype's name.
    """

    __slots__ = ("__weakref__", "args", "op", "value")

    op: str
    args: tuple[Node, ...]
    value: Scalar | None

    def __repr__(self) -> str:
        if self.op in ("name", "literal"):
            return f"{self.value!r}" if self.op == "literal" else str(self.value)
        return f"{self.op}({', '.join(map(repr, self.args))})"


_interned: WeakValueDictionary[tuple, Node] = WeakValueDictionary()


def _intern(op: str, args: tuple[Node, ...], value: Scalar | None) -> Node:
    # repr tells 0.0 from -0.0 and makes nan equal to itself.
    key = (op, args, type(value), repr(value))
    found = _interned.get(key)
    if found is not None:
        return found
    node = Node()
    node.op, node.args, node.value = op, args, value
    return _interned.setdefault(key, node)


def name(text: str) -> Node:
    """Make the node of an input or parameter."""
    return _intern("name", (), text)


def literal(value: Scalar) -> Node:
    """Make the node of an untyped Python scalar."""
    if not isinstance(value, (bool, int, float, complex, str)):
        raise ExpressionError(f"a literal must be a Python scalar, got {type(value).__name__}")
    return _intern("literal", (), value)


def is_literal(node: Node, value: Scalar | None = None) -> bool:
    """Tell whether ``node`` is a literal, of the same type and value as ``value`` if given."""
    if node.op != "literal":
        return False
    return value is None or (type(node.value) is type(value) and node.value == value)


def call(op: str, *args: Node, value: Scalar | None = None) -> Node:
    """Make the node of a primitive applied to ``args``, folded and simplified.

    Raises:
        ExpressionError: if there is no such primitive or the number of arguments is wrong.
    """
    if op == "iterate":
        return _intern(op, args, value)
    primitive = PRIMITIVES.get(op)
    if primitive is None:
        raise ExpressionError(f"unknown function {op!r}{hint(op, PRIMITIVES)}")
    if len(args) != primitive.arity:
        raise ExpressionError(f"{op} takes {primitive.arity} arguments, got {len(args)}")
    if args and all(arg.op == "literal" for arg in args):
        folded = fold(primitive, [arg.value for arg in args if arg.value is not None])
        if folded is not None:
            return literal(folded)
    rule = _RULES.get(op)
    simpler = rule(*args) if rule is not None else None
    return simpler if simpler is not None else _intern(op, args, value)


def may_be_bool(node: Node) -> bool:
    """Tell whether ``node`` can have type bool in a program that computes in another type."""
    if node.op == "literal":
        return isinstance(node.value, bool)
    if node.op in ("name", "iterate"):
        return False
    primitive = PRIMITIVES[node.op]
    if primitive.result == "bool" or node.op == "cast":
        return True
    return primitive.keeps_bool and any(may_be_bool(arg) for arg in node.args)


def _mul(a: Node, b: Node) -> Node | None:
    if is_literal(a, 1) and not may_be_bool(b):
        return b
    return a if is_literal(b, 1) and not may_be_bool(a) else None


def _sub(a: Node, b: Node) -> Node | None:
    return a if is_literal(b, 0) and not may_be_bool(a) else None


def _neg(a: Node) -> Node | None:
    return a.args[0] if a.op == "neg" and not may_be_bool(a.args[0]) else None


def _pow(a: Node, b: Node) -> Node | None:
    if may_be_bool(a):
        return None
    if is_literal(b, 1):
        return a
    # One rounding either way, and no call of the library's pow.
    return call("mul", a, a) if is_literal(b, 2) or is_literal(b, 2.0) else None


def _where(condition: Node, a: Node, b: Node) -> Node | None:
    if condition.op == "literal" and not isinstance(condition.value, str):
        chosen, other = (a, b) if condition.value else (b, a)
        # The other branch takes part in the result's type.
        return chosen if not may_be_bool(chosen) or may_be_bool(other) else None
    return a if a is b else None


def _select_complex(_: Node, a: Node, b: Node) -> Node | None:
    return a if a is b else None


def _conj(a: Node) -> Node | None:
    if a.op == "conj":
        return a.args[0]
    real = a.op == "literal" and not isinstance(a.value, (complex, str))
    return a if real or a.op in ("real", "imag", "abs", "angle") else None


def _real(a: Node) -> Node | None:
    real = a.op == "literal" and not isinstance(a.value, (complex, str))
    return a if real or a.op in ("real", "imag", "abs", "angle") else None


_RULES: dict[str, Callable[..., Node | None]] = {
    "mul": _mul,
    "sub": _sub,
    "neg": _neg,
    "pow": _pow,
    "where": _where,
    "select_complex": _select_complex,
    "conj": _conj,
    "real": _real,
}


def walk(outputs: Iterable[Node]) -> Iterator[Node]:
    """Yield every node that ``outputs`` reach, once, arguments before their users."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(tuple(outputs))]
    while stack:
        node, expanded = stack.pop()
        if node in seen:
            continue
        if expanded:
            seen.add(node)
            yield node
            continue
        stack.append((node, True))
        stack.extend((arg, False) for arg in reversed(node.args) if arg not in seen)


def rebuild(outputs: Iterable[Node], replace: dict[str, Node]) -> list[Node]:
    """Return ``outputs`` with the named inputs replaced, simplified again."""
    outputs = list(outputs)
    done: dict[Node, Node] = {}
    for node in walk(outputs):
        if node.op == "name":
            done[node] = replace.get(str(node.value), node)
        elif node.op == "literal":
            done[node] = node
        else:
            done[node] = call(node.op, *(done[arg] for arg in node.args), value=node.value)
    return [done[node] for node in outputs]
