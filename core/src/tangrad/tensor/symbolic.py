"""Symbolic sizes: numbers that remember how they were computed.

A `SymInt` has an expression over named symbols and a hint, its value in the present run. Shape
rules are written for integers; called with SymInts they return expressions. Where a rule must
know a value, to decide a branch or to count a loop, it goes by the hint, and the `ShapeEnv`
records as a **guard** what was thereby assumed: results hold for all sizes that meet the guards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tangrad.tensor.offered import offered

__all__ = [
    "ShapeEnv",
    "SymBool",
    "SymFloat",
    "SymInt",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
]

# An expression is an int, a symbol's name, or (operation, *operands): a plain value, so that
# equality and hash are by structure.
Expr = Any

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "max": max,
    "min": min,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": operator.not_,
    "neg": operator.neg,
    "float": float,
    "trunc": math.trunc,
    "choose": lambda condition, a, b: a if condition else b,
}
_CALLS = ("max", "min", "float", "trunc", "choose")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_NEGATIONS = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_PRECEDENCE = {"or": 1, "and": 2, "not": 3, **dict.fromkeys(_COMPARISONS, 4), "+": 5, "-": 5}
_PRECEDENCE |= {"*": 6, "/": 6, "//": 6, "%": 6, "neg": 7, "**": 8}
# (operation, right operand) that give back the left operand.
_RIGHT_UNITS = {("+", 0), ("-", 0), ("*", 1), ("//", 1), ("**", 1)}
_LEFT_UNITS = {(0, "+"), (1, "*")}


def _text(expr: Expr, context: int = 0) -> str:
    if not isinstance(expr, tuple):
        return str(expr)
    op, *operands = expr
    if op in _CALLS:
        return f"{op}({', '.join(map(_text, operands))})"
    own = _PRECEDENCE[op]
    if len(operands) == 1:
        text = ("-" if op == "neg" else "not ") + _text(operands[0], own)
    else:
        # Operations group to the left, ** and comparisons not at all.
        alone = op == "**" or op in _COMPARISONS
        left, right = _text(operands[0], own + alone), _text(operands[1], own + 1)
        text = f"{left}{op}{right}" if own > 5 and op != "%" else f"{left} {op} {right}"
    return f"({text})" if own < context else text


def _evaluate(expr: Expr, sizes: Mapping[str, int]) -> Any:
    if isinstance(expr, str):
        return sizes[expr]
    if not isinstance(expr, tuple):
        return expr
    op, *operands = expr
    return _FUNCTIONS[op](*(_evaluate(operand, sizes) for operand in operands))


def _negated(expr: Expr) -> Expr:
    if isinstance(expr, tuple) and expr[0] in _NEGATIONS:
        return (_NEGATIONS[expr[0]], *expr[1:])
    if isinstance(expr, tuple) and expr[0] == "not":
        return expr[1]
    return ("not", expr)


class ShapeEnv:
    """Hold symbols with their hints, and the guards recorded for them."""

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self._guards: dict[Expr, None] = {}

    def symbol(self, hint: int, name: str | None = None) -> SymInt:
        """Return a new symbol.

        Args:
            hint: its value in the present run.
            name: s0, s1, ... if None.

        Raises:
            ValueError: the name is taken.
        """
        name = name or f"s{len(self.hints)}"
        if name in self.hints:
            raise ValueError(f"ShapeEnv.symbol: the name {name!r} is taken")
        self.hints[name] = int(hint)
        return SymInt(name, int(hint), self)

    @property
    def guards(self) -> list[str]:
        """What was assumed so far, as text, in order and each once."""
        return [_text(guard) for guard in self._guards]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Tell whether all guards are true of other sizes, given by symbol name."""
        return all(_evaluate(guard, sizes) for guard in self._guards)

    def assume(self, expr: Expr) -> None:
        """Record an expression as a guard."""
        self._guards.setdefault(expr)


class _Symbolic:
    """An expression, its value in the present run, and where its guards go."""

    __slots__ = ("env", "expr", "hint")

    def __init__(self, expr: Expr, hint: Any, env: ShapeEnv) -> None:
        self.expr, self.hint, self.env = expr, hint, env

    def evaluate(self, sizes: Mapping[str, int]) -> Any:
        """Return the value at other sizes, given by symbol name."""
        return _evaluate(self.expr, sizes)

    def __repr__(self) -> str:
        return _text(self.expr)

    def __hash__(self) -> int:
        return hash(self.expr)


def _parts(value: Any) -> tuple[Expr, Any]:
    return (value.expr, value.hint) if isinstance(value, _Symbolic) else (value, value)


def _apply(op: str, *operands: Any) -> Any:
    """Return the symbolic result of an operation, or a plain value if it is a constant."""
    env = next(operand.env for operand in operands if isinstance(operand, _Symbolic))
    exprs, hints = zip(*map(_parts, operands), strict=True)
    hint = _FUNCTIONS[op](*hints)
    kind: Any = SymBool if isinstance(hint, bool) else SymInt
    if isinstance(hint, float):
        kind = SymFloat
    if len(exprs) == 2:
        left, right = exprs
        if (op, right) in _RIGHT_UNITS:
            return kind(left, hint, env)
        if (left, op) in _LEFT_UNITS:
            return kind(right, hint, env)
        if left == right and op in _COMPARISONS:
            return hint
    return kind((op, *exprs), hint, env)


def _method(op: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        return _apply(op, other, self) if reflected else _apply(op, self, other)

    return method


class SymInt(_Symbolic):
    """An integer with an expression; made by `ShapeEnv.symbol` and by arithmetic."""

    __slots__ = ()
    # Marks what may stand for an integer in a shape.
    __sym_int__ = True

    __add__, __radd__ = _method("+"), _method("+", reflected=True)
    __sub__, __rsub__ = _method("-"), _method("-", reflected=True)
    __mul__, __rmul__ = _method("*"), _method("*", reflected=True)
    __truediv__, __rtruediv__ = _method("/"), _method("/", reflected=True)
    __floordiv__, __rfloordiv__ = _method("//"), _method("//", reflected=True)
    __mod__, __rmod__ = _method("%"), _method("%", reflected=True)
    __lt__, __le__, __gt__, __ge__ = map(_method, ("<", "<=", ">", ">="))
    __hash__ = _Symbolic.__hash__

    __eq__, __ne__ = _method("=="), _method("!=")

    def __pow__(self, exponent: int) -> Any:
        if not isinstance(exponent, int) or exponent < 0:
            return NotImplemented
        return _apply("**", self, exponent) if exponent else 1

    def __neg__(self) -> Any:
        return _apply("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _apply("max", self, -self)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        """Specialise: return the hint, on the guard that the value is just that."""
        self.env.assume(("==", self.expr, self.hint))
        return self.hint

    __index__ = __int__

    def __float__(self) -> float:
        """Specialise, as `int`."""
        return float(int(self))


class SymFloat(_Symbolic):
    """A floating-point number with an expression; made of SymInts by division and `sym_float`."""

    __slots__ = ()

    __add__, __radd__ = _method("+"), _method("+", reflected=True)
    __sub__, __rsub__ = _method("-"), _method("-", reflected=True)
    __mul__, __rmul__ = _method("*"), _method("*", reflected=True)
    __truediv__, __rtruediv__ = _method("/"), _method("/", reflected=True)
    __floordiv__, __rfloordiv__ = _method("//"), _method("//", reflected=True)
    __mod__, __rmod__ = _method("%"), _method("%", reflected=True)
    __pow__, __rpow__ = _method("**"), _method("**", reflected=True)
    __lt__, __le__, __gt__, __ge__ = map(_method, ("<", "<=", ">", ">="))
    __hash__ = _Symbolic.__hash__

    __eq__, __ne__ = _method("=="), _method("!=")

    def __neg__(self) -> Any:
        return _apply("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _apply("max", self, -self)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __trunc__(self) -> Any:
        return _apply("trunc", self)

    def __float__(self) -> float:
        """Specialise: return the hint, on the guard that the value is just that."""
        self.env.assume(("==", self.expr, self.hint))
        found: float = self.hint
        return found

    def __int__(self) -> int:
        """Specialise, as `float`."""
        return int(float(self))

    def is_integer(self) -> bool:
        """Return whether the value is a whole number, on the guard that it is the hint."""
        return float(self).is_integer()


class SymBool(_Symbolic):
    """A truth value with an expression; asking for its truth records a guard."""

    __slots__ = ()

    def __and__(self, other: Any) -> Any:
        return _apply("and", self, other)

    def __or__(self, other: Any) -> Any:
        return _apply("or", self, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> SymBool:
        return SymBool(_negated(self.expr), not self.hint, self.env)

    def __bool__(self) -> bool:
        self.env.assume(self.expr if self.hint else _negated(self.expr))
        return self.hint


@offered
def sym_max(a: Any, b: Any) -> Any:
    """Return the larger of two integers, without a guard if one is symbolic."""
    return _apply("max", a, b) if isinstance(a, SymInt) or isinstance(b, SymInt) else max(a, b)


@offered
def sym_min(a: Any, b: Any) -> Any:
    """Return the smaller of two integers, without a guard if one is symbolic."""
    return _apply("min", a, b) if isinstance(a, SymInt) or isinstance(b, SymInt) else min(a, b)


@offered
def sym_not(a: Any) -> Any:
    """Return the opposite of a truth value, without a guard if it is symbolic."""
    return ~a if isinstance(a, SymBool) else not a


@offered
def sym_float(a: Any) -> Any:
    """Return a number as a float, without a guard if it is symbolic."""
    if isinstance(a, SymFloat):
        return a
    if isinstance(a, SymInt):
        return _apply("float", a)
    return a.__sym_float__() if hasattr(a, "__sym_float__") else float(a)


@offered
def sym_int(a: Any) -> Any:
    """Return a number as an integer, cut towards zero, without a guard if it is symbolic."""
    if isinstance(a, SymInt):
        return a
    return math.trunc(a) if isinstance(a, SymFloat) else int(a)


@offered
def sym_sqrt(a: Any) -> Any:
    """Return the square root of a number, without a guard if it is symbolic."""
    return sym_float(a) ** 0.5 if isinstance(a, _Symbolic) else math.sqrt(a)


@offered
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """Return t if b else f, without a guard if b is symbolic and both are numbers.

    Raises:
        TypeError: b is no truth value, or t and f are of different types.
    """
    if not isinstance(b, (SymBool, bool)):
        raise TypeError(f"sym_ite: expected SymBool or bool, got {type(b).__name__}")
    if type(t) is not type(f):
        raise TypeError(f"sym_ite: type mismatch: {type(t).__name__} vs {type(f).__name__}")
    return _apply("choose", b, t, f) if isinstance(b, SymBool) else (t if b else f)


@offered
def sym_sum(*args: Any) -> Any:
    """Return the sum of numbers, given one by one or as a list."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    return sum(args[1:], args[0]) if args else 0
