"""Differentiate graphs of nodes: forward mode over the graph, with Wirtinger pairs.

A function that is not holomorphic has two derivatives, by z and by conj(z) (Brandwood, 1983, "A
complex gradient operator and its application in adaptive array theory"). The second is None, a
structural zero, as long as only holomorphic primitives are met; then one formula serves real and
complex operands. Forward mode keeps ``where`` outermost, so that an overflow in the branch not
taken never meets a zero (the derivative of ``where(x > 0, x, expm1(x))`` at 1000 is 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tangrad.expr.errors import DerivativeError
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.ssa import Node, call, is_literal, literal, name, rebuild, walk
from tangrad.expr.syntax import parse_nodes

Derivative = Node | None  # None: zero everywhere

_ZERO, _ONE = literal(0), literal(1)


# --- constructors that know structural zeros -------------------------------------------------


def _times(a: Derivative, b: Derivative) -> Derivative:
    """Multiply; a reciprocal or quotient of 1 becomes one division, which rounds once."""
    if a is None or b is None:
        return None
    for left, right in ((a, b), (b, a)):
        if is_literal(left, -1):
            return call("neg", right)
        if left.op == "neg":
            product = _times(left.args[0], right)
            return None if product is None else call("neg", product)
        if left.op == "truediv" and is_literal(left.args[0], 1):
            return call("truediv", right, left.args[1])
    return call("mul", a, b)


def _scaled(g: Node, derivative: Derivative) -> Derivative:
    """Multiply a gradient or tangent by a derivative, of which a zero hides even NaN and inf.

    So the gradient of ``sqrt(relu(x))`` below zero is 0, and not 0 * inf.
    """
    if derivative is None or is_literal(derivative, 0):
        return None
    if derivative.op == "where" and any(is_literal(branch, 0) for branch in derivative.args[1:]):
        condition, a, b = derivative.args
        return _where(condition, _scaled(g, a), _scaled(g, b))
    return _times(g, derivative)


def _plus(a: Derivative, b: Derivative) -> Derivative:
    if a is None or b is None:
        return b if a is None else a
    same_condition = a.op == b.op == "where" and a.args[0] is b.args[0]
    if same_condition and is_literal(a.args[2], 0) and is_literal(b.args[1], 0):
        return call("where", a.args[0], a.args[1], b.args[2])
    if b.op == "neg":
        return call("sub", a, b.args[0])
    return call("add", a, b)


def _conj(a: Derivative) -> Derivative:
    """Conjugate, pushed inwards past what commutes with it and needs no call."""
    if a is None:
        return None
    if a.op in ("neg", "add", "sub", "mul", "truediv"):
        return call(a.op, *(_conj(arg) for arg in a.args))  # type: ignore[arg-type]
    if a.op == "where":
        return _where(a.args[0], _conj(a.args[1]), _conj(a.args[2]))
    if a.op == "literal" and isinstance(a.value, complex):
        return literal(a.value.conjugate())
    return call("conj", a)


def _where(condition: Node, a: Derivative, b: Derivative) -> Derivative:
    if a is None and b is None:
        return None
    return call("where", condition, a or _ZERO, b or _ZERO)


def _select(z: Node, a: Derivative, b: Derivative) -> Derivative:
    if a is None and b is None:
        return None
    return call("select_complex", z, a or _ZERO, b or _ZERO)


# --- derivatives of one primitive -------------------------------------------------------------


@cache
def _formula(text: str) -> Node:
    if text.startswith("@"):
        from tangrad.expr.composed import SLOPES  # its tables take longer to load than all else

        text = SLOPES[text[1:]]
    return parse_nodes(text, ("a", "b", "c", "y"))[0]


def _local(text: str, node: Node) -> Derivative:
    """Return the derivative written as ``text``, with the node's operands put in."""
    if text == "0":
        return None
    if text.startswith("!"):
        raise DerivativeError(f"{node.op} has no derivative: {text[1:]}")
    operands = dict(zip("abc", node.args, strict=False)) | {"y": node}
    return rebuild([_formula(text)], operands)[0]


class _Forward:
    """Propagate derivatives by one input through a graph.

    ``real`` holds the derivatives for real inputs, ``pair`` those by z and by conj(z).
    """

    def __init__(self, wrt: str, outputs: Sequence[Node]) -> None:
        self.real: dict[Node, Derivative] = {}
        self.pair: dict[Node, tuple[Derivative, Derivative]] = {}
        # Complex numbers are made of real ones somewhere: real derivatives need their real part.
        self.makes_complex = any(_is_complex(node) for node in walk(outputs))
        needed = _needed(outputs)
        for node in walk(outputs):
            if node not in needed:
                self.real[node], self.pair[node] = None, (None, None)
            elif node.op == "name":
                one = _ONE if node.value == wrt else None
                self.real[node], self.pair[node] = one, (one, None)
            else:
                self._visit(node)

    def _visit(self, node: Node) -> None:
        changing = any(self.real[a] is not None or self.pair[a][1] is not None for a in node.args)
        changing |= any(self.pair[a][0] is not None for a in node.args)
        if not changing:
            self.real[node], self.pair[node] = None, (None, None)
            return
        if node.op == "iterate":
            raise DerivativeError(
                "the derivative of a loop does not follow from it: state the op's (partials=, vjp=)"
            )
        self.real[node] = self._real(node)
        self.pair[node] = self._pair(node)

    def _real(self, node: Node) -> Derivative:
        args = [self.real[arg] for arg in node.args]
        if node.op == "where":
            return _where(node.args[0], args[1], args[2])
        if node.op == "select_complex":
            return _select(node.args[0], args[1], args[2])
        if node.op in ("real", "imag", "conj", "angle", "abs", "sgn"):
            return self._real_of_parts(node, args[0])
        if node.op == "cast":
            return _cast(node, args[0])
        total: Derivative = None
        for text, derivative in zip(PRIMITIVES[node.op].d, args, strict=True):
            if derivative is not None:
                total = _plus(total, _times(_local(text, node), derivative))
        return total

    def _real_of_parts(self, node: Node, derivative: Derivative) -> Derivative:
        """Differentiate a primitive on complex parts by a real number.

        Its operand may be complex all the same: d f(z) / dx = f_z z' + f_conj(z) conj(z').
        """
        if derivative is None:
            return None
        plain = _times(_local(PRIMITIVES[node.op].d[0], node), derivative)
        if not self.makes_complex:
            return plain
        by_z, by_conj = self._wirtinger(node)
        through = _plus(_times(by_z, derivative), _times(by_conj, _conj(derivative)))
        return _select(node.args[0], through, plain)

    def _wirtinger(self, node: Node) -> tuple[Derivative, Derivative]:
        ((by_z, by_conj),) = PRIMITIVES[node.op].wirtinger or ()
        return _local(by_z, node), _local(by_conj, node)

    def _pair(self, node: Node) -> tuple[Derivative, Derivative]:
        args = [self.pair[arg] for arg in node.args]
        if node.op in ("where", "select_complex"):
            choose = _where if node.op == "where" else _select
            condition, a, b = node.args[0], args[1], args[2]
            return choose(condition, a[0], b[0]), choose(condition, a[1], b[1])
        if node.op == "cast":
            return _cast(node, args[0][0]), _cast(node, args[0][1])
        if PRIMITIVES[node.op].wirtinger is not None:
            f, f_conj = self._wirtinger(node)
            p, q = args[0]
            return (
                _plus(_times(f, p), _times(f_conj, _conj(q))),
                _plus(_times(f, q), _times(f_conj, _conj(p))),
            )
        totals: list[Derivative] = [None, None]
        for text, pair in zip(PRIMITIVES[node.op].d, args, strict=True):
            if pair != (None, None):
                local = _local(text, node)
                totals = [
                    _plus(total, _times(local, part))
                    for total, part in zip(totals, pair, strict=True)
                ]
        return totals[0], totals[1]


def _needed(outputs: Sequence[Node]) -> set[Node]:
    """Return the nodes whose derivatives matter: not those seen through a step function only."""
    needed = set(outputs)
    for node in reversed(list(walk(outputs))):
        if node in needed and node.op == "iterate":
            needed.update(node.args)
        elif node in needed and node.op in PRIMITIVES:
            primitive = PRIMITIVES[node.op]
            through = primitive.wirtinger is not None or node.op == "select_complex"
            for text, arg in zip(primitive.d, node.args, strict=True):
                if through or text != "0":
                    needed.add(arg)
    return needed


def _is_complex(node: Node) -> bool:
    """Tell whether a node is complex whatever its operands are."""
    to_complex = node.op == "cast" and str(node.value).startswith("complex")
    return node.op == "complex" or to_complex or isinstance(node.value, complex)


def _cast(node: Node, derivative: Derivative) -> Derivative:
    """Differentiate a cast: a step function to integers; else 1, which is not rounded again."""
    floating = str(node.value).startswith(("float", "bfloat", "complex"))
    return derivative if floating else None


# --- derivatives of whole formulas ---------------------------------------------------------------


def partial(node: Node, wrt: str) -> Node:
    """Differentiate a node by the name ``wrt``."""
    return _Forward(wrt, [node]).real[node] or _ZERO


def vjp(nodes: Sequence[Node], wrt: Sequence[str], grads: Sequence[str]) -> list[Node]:
    """Build the vector-Jacobian product by the names ``wrt``; ``grads`` are those of the nodes."""
    outputs = []
    for text in wrt:
        forward = _Forward(text, nodes)
        total: Derivative = None
        for g, node in zip(map(name, grads), nodes, strict=True):
            total = _plus(total, _pull(forward, node, g, name(text)))
        outputs.append(total or _ZERO)
    return outputs


def _pull(forward: _Forward, node: Node, g: Node, z: Node) -> Derivative:
    """Return one output's contribution to the gradient by ``z``."""
    by_z, by_conj = forward.pair[node]
    real = _scaled(g, _conj(forward.real[node]))
    if by_conj is None and not forward.makes_complex:
        return real
    if real is not None:
        real = call("real", real)
    return _select(z, _plus(_scaled(g, _conj(by_z)), _scaled(call("conj", g), by_conj)), real)


def jvp(nodes: Sequence[Node], wrt: Sequence[str], tangents: Sequence[str]) -> list[Node]:
    """Build the Jacobian-vector product along ``tangents`` of the names ``wrt``."""
    totals: list[Derivative] = [None] * len(nodes)
    for text, tangent in zip(wrt, map(name, tangents), strict=True):
        forward = _Forward(text, nodes)
        for k, node in enumerate(nodes):
            totals[k] = _plus(totals[k], _push(forward, node, tangent, name(text)))
    return [total or _ZERO for total in totals]


def _push(forward: _Forward, node: Node, tangent: Node, z: Node) -> Derivative:
    """Return the contribution of ``z`` to one output's tangent."""
    by_z, by_conj = forward.pair[node]
    real = _scaled(tangent, forward.real[node])
    if by_conj is None:
        return real
    moved = _plus(_scaled(tangent, by_z), _scaled(call("conj", tangent), by_conj))
    return _select(z, moved, real)


def weighted(partials: Sequence[Node], factors: Sequence[str], conjugate: bool) -> Node:
    """Add up partial derivatives, or their conjugates, times what ``factors`` name."""
    total: Derivative = None
    for derivative, factor in zip(partials, map(name, factors), strict=True):
        part = _conj(derivative) if conjugate else derivative
        total = _plus(total, _scaled(factor, part))
    return total or _ZERO


def without(nodes: Sequence[Node], absent: Sequence[str]) -> list[Node]:
    """Return ``nodes``, which are linear in the names ``absent``, where those are zero.

    A zero hides what it would be multiplied by, even NaN and inf.
    """
    done: dict[Node, Derivative] = {}
    for node in walk(nodes):
        args = [done[arg] for arg in node.args]
        if node.op == "name" and node.value in absent:
            done[node] = None
        elif all(new is old for new, old in zip(args, node.args, strict=True)):
            done[node] = node
        else:
            done[node] = _linear(node, args)
    return [done[node] or _ZERO for node in nodes]


def _linear(node: Node, args: list[Derivative]) -> Derivative:
    """Make a node anew over operands of which some are zero."""
    if node.op in ("mul", "truediv") and None in args:
        return None
    if node.op in ("neg", "conj", "real", "imag", "cast") and None in args:
        return None
    if node.op == "add":
        return _plus(*args)
    if node.op == "sub" and args[0] is None:
        return None if args[1] is None else call("neg", args[1])
    if node.op == "sub" and args[1] is None:
        return args[0]
    if node.op == "where":
        return _where(args[0] or _ZERO, args[1], args[2])
    if node.op == "select_complex":
        return _select(node.args[0], args[1], args[2])
    return call(node.op, *(arg or _ZERO for arg in args), value=node.value)
