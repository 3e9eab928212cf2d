"""Parse source text into SSA nodes.

The language is a restricted Python: arithmetic, comparison and bit operators, calls of the
primitives by name, ``and or not``, ``a if c else b``, number and string literals, the constants
``inf nan pi e``, and local names. Statements are separated by ``;``; assignments come first, the
remaining expressions are the outputs. Two forms look like calls: ``polynomial(x, c0, c1, ...)``,
lowest coefficient first, is Horner's rule, and ``iterate`` a bounded loop (``loop.py``).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from tangrad.expr.errors import ExpressionError, hint
from tangrad.expr.primitives import OPERATORS, PRIMITIVES
from tangrad.expr.ssa import Node, call, literal, name, walk

CONSTANTS: dict[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64"
    " complex64 complex128"
).split()
_MAX_LENGTH = 100_000
_MAX_ROUNDS = 1_000_000


def parse_nodes(source: str, names: Sequence[str]) -> list[Node]:
    """Return the output nodes of ``source``, whose free names are ``names``.

    Raises:
        ExpressionError: if the text is not in the language; it says what and where.
    """
    if len(source) > _MAX_LENGTH:
        raise ExpressionError(f"expression of {len(source)} characters is too long")
    for text in names:
        if not text.isidentifier() or text in PRIMITIVES:
            raise ExpressionError(f"{text!r} cannot be the name of an input or parameter")
    if len(set(names)) != len(names):
        raise ExpressionError(f"inputs and parameters have a name twice: {', '.join(names)}")
    reader = _Reader(source, names)
    try:
        module = ast.parse(source.strip())
        return reader.outputs(module)
    except SyntaxError as error:
        raise ExpressionError(f"cannot parse {source!r}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ExpressionError("expression is nested too deeply") from None


class _Reader:
    """Turn a syntax tree into nodes."""

    def __init__(self, source: str, names: Sequence[str]) -> None:
        self.source = source
        self.inputs = frozenset(names)
        self.scope: dict[str, Node] = {text: name(text) for text in names}

    def fail(self, tree: ast.AST, message: str) -> ExpressionError:
        column = getattr(tree, "col_offset", 0) + 1
        return ExpressionError(f"{message} (column {column} of {self.source!r})")

    def outputs(self, module: ast.Module) -> list[Node]:
        found: list[Node] = []
        for statement in module.body:
            if isinstance(statement, ast.Expr):
                found.append(self.read(statement.value))
            elif isinstance(statement, ast.Assign):
                if found:
                    raise self.fail(statement, "assignments come before the outputs")
                self.assign(statement)
            else:
                raise self.fail(statement, "only assignments and expressions are allowed")
        if not found:
            raise ExpressionError(f"no output in {self.source!r}")
        return found

    def assign(self, statement: ast.Assign) -> None:
        target = statement.targets[0]
        if len(statement.targets) != 1 or not isinstance(target, ast.Name):
            raise self.fail(statement, "an assignment has one name on its left")
        if target.id in self.inputs:
            raise self.fail(statement, f"{target.id!r} is an input and cannot be assigned")
        self.scope[target.id] = self.read(statement.value)

    def read(self, tree: ast.expr) -> Node:
        reader = _READERS.get(type(tree))
        if reader is None:
            raise self.fail(tree, f"{type(tree).__name__} is not in the expression language")
        return reader(self, tree)

    def constant(self, tree: ast.Constant) -> Node:
        if not isinstance(tree.value, (bool, int, float, complex, str)):
            raise self.fail(tree, f"{tree.value!r} is not a literal of the expression language")
        return literal(tree.value)

    def variable(self, tree: ast.Name) -> Node:
        found = self.scope.get(tree.id)
        if found is not None:
            return found
        if tree.id in CONSTANTS:
            return literal(CONSTANTS[tree.id])
        raise self.fail(tree, f"unknown name {tree.id!r}{hint(tree.id, self.scope)}")

    def operator(self, tree: ast.AST) -> str:
        found = OPERATORS.get(type(tree).__name__)
        if found is None:
            raise ExpressionError(
                f"operator {type(tree).__name__} is not in the expression language"
            )
        return found

    def unary(self, tree: ast.UnaryOp) -> Node:
        operand = self.read(tree.operand)
        return operand if isinstance(tree.op, ast.UAdd) else call(self.operator(tree.op), operand)

    def binary(self, tree: ast.BinOp) -> Node:
        return call(self.operator(tree.op), self.read(tree.left), self.read(tree.right))

    def logical(self, tree: ast.BoolOp) -> Node:
        result, *rest = map(self.read, tree.values)
        for operand in rest:
            result = call(self.operator(tree.op), result, operand)
        return result

    def comparison(self, tree: ast.Compare) -> Node:
        operands = [self.read(tree.left), *map(self.read, tree.comparators)]
        pairs = zip(tree.ops, operands, operands[1:], strict=False)
        result, *rest = (call(self.operator(op), left, right) for op, left, right in pairs)
        for link in rest:
            result = call("logical_and", result, link)
        return result

    def conditional(self, tree: ast.IfExp) -> Node:
        return call("where", *map(self.read, (tree.test, tree.body, tree.orelse)))

    def function(self, tree: ast.Call) -> Node:
        if isinstance(tree.func, ast.Name) and tree.func.id == "iterate":
            return self.iterate(tree)
        if not isinstance(tree.func, ast.Name) or tree.keywords:
            raise self.fail(tree, "a call is name(arguments), without keywords")
        function = tree.func.id
        if function == "cast":
            return self.cast(tree)
        if function == "polynomial":
            return self.polynomial(tree)
        try:
            return call(function, *map(self.read, tree.args))
        except ExpressionError as error:
            if "column" in str(error):
                raise
            raise self.fail(tree, str(error)) from None

    def cast(self, tree: ast.Call) -> Node:
        dtype = tree.args[1] if len(tree.args) == 2 else None
        if not isinstance(dtype, ast.Constant) or dtype.value not in DTYPES:
            raise self.fail(tree, f"cast takes a value and one of {', '.join(map(repr, DTYPES))}")
        return call("cast", self.read(tree.args[0]), value=str(dtype.value))

    def polynomial(self, tree: ast.Call) -> Node:
        if len(tree.args) < 2:
            raise self.fail(tree, "polynomial takes a value and at least one coefficient")
        x, *coefficients = map(self.read, tree.args)
        total = coefficients.pop()
        for coefficient in reversed(coefficients):
            total = call("add", call("mul", total, x), coefficient)
        return total

    def iterate(self, tree: ast.Call) -> Node:
        bound, body = ([a.value for a in tree.args if isinstance(a, ast.Constant)] + [None] * 2)[:2]
        if type(bound) is not int or not 0 < bound <= _MAX_ROUNDS or type(body) is not str:
            raise self.fail(tree, f"iterate takes a bound up to {_MAX_ROUNDS}, text, and states")
        given = {k.arg: self.read(k.value) for k in tree.keywords if k.arg is not None}
        # What the body assigns is its own, and so are k and the states.
        own = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name) and _assigned(n)}
        own |= {"k", *given, *PRIMITIVES}
        outside = [text for text in self.scope if text not in own]
        if "k" in given or len(tree.args) != 2 or None in {k.arg for k in tree.keywords}:
            raise self.fail(tree, "iterate takes states by names other than k, which counts rounds")
        nodes = parse_nodes(body, ["k", *given, *outside])
        states = len(nodes) - 1
        if not 0 < states <= len(given):
            raise self.fail(tree, "the body of iterate is a condition and the next value of states")
        used = {str(node.value) for node in walk(nodes) if node.op == "name"}
        captured = {text: self.scope[text] for text in outside if text in used}
        operands = given | captured
        value = f"{bound};{states};{' '.join(operands)};{body}"
        return call("iterate", *operands.values(), value=value)


def _assigned(tree: ast.Name) -> bool:
    return isinstance(tree.ctx, ast.Store)


_READERS: dict[type, Callable[[_Reader, Any], Node]] = {
    ast.Constant: _Reader.constant,
    ast.Name: _Reader.variable,
    ast.UnaryOp: _Reader.unary,
    ast.BinOp: _Reader.binary,
    ast.BoolOp: _Reader.logical,
    ast.Compare: _Reader.comparison,
    ast.IfExp: _Reader.conditional,
    ast.Call: _Reader.function,
}
