"""Operators and conditions: from syntax to typed nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tangrad_jit.scripting.check.attributes import Attributes
from tangrad_jit.scripting.check.builtins import choose_builtin, to_type
from tangrad_jit.scripting.check.conditions import constant_condition, is_always_none
from tangrad_jit.scripting.check.values import Many, Value
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    And,
    Apply,
    Builtin,
    Const,
    Convert,
    Expr,
    IfElse,
    MakeTuple,
    Not,
    Or,
    TupleItem,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    DictType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
    unify,
)

__all__ = ["InstanceCheck", "Operators", "Refinements"]

# name -> type, where a condition holds and where it does not.
Refinements = tuple[dict[str, Type], dict[str, Type]]

_BINARY: dict[type, tuple[str, str, str]] = {
    ast.Add: ("add", "+", "__add__"),
    ast.Sub: ("sub", "-", "__sub__"),
    ast.Mult: ("mul", "*", "__mul__"),
    ast.Div: ("div", "/", "__truediv__"),
    ast.FloorDiv: ("floordiv", "//", "__floordiv__"),
    ast.Mod: ("remainder", "%", "__mod__"),
    ast.Pow: ("pow", "**", "__pow__"),
    ast.LShift: ("__lshift__", "<<", "__lshift__"),
    ast.RShift: ("__rshift__", ">>", "__rshift__"),
    ast.BitAnd: ("__and__", "&", "__and__"),
    ast.BitOr: ("__or__", "|", "__or__"),
    ast.BitXor: ("__xor__", "^", "__xor__"),
    ast.MatMult: ("matmul", "@", "__matmul__"),
}
_COMPARISONS: dict[type, tuple[str, str, str]] = {
    ast.Eq: ("eq", "==", "__eq__"),
    ast.NotEq: ("ne", "!=", "__ne__"),
    ast.Lt: ("lt", "<", "__lt__"),
    ast.LtE: ("le", "<=", "__le__"),
    ast.Gt: ("gt", ">", "__gt__"),
    ast.GtE: ("ge", ">=", "__ge__"),
}
_OF_TENSORS = {"floordiv": "floor_divide", "__contains__": ""}


class Operators(Attributes):
    """Check operators and conditions; `Attributes` has the names and the state of the check."""

    def value(self, node: ast.expr, hint: Type | None = None) -> Any:
        """Return an expression, or another meaning, of syntax.

        Raises:
            ScriptError: it has none.
        """
        method: Callable[..., Any] | None = getattr(self, f"_on_{type(node).__name__}", None)
        if method is None:
            raise FrontendError(f"{type(node).__name__} aren't supported", self.place(node))
        return method(node, hint)

    def expr(self, node: ast.expr, hint: Type | None = None) -> Expr:
        """Return the typed expression of syntax.

        Raises:
            ScriptError: it has none.
        """
        return self.expr_of(self.value(node, hint), self.place(node))

    def make_tuple(self, elements: list[Expr], place: Place) -> Expr:
        """Return a tuple."""
        return MakeTuple(place, TupleType([e.type for e in elements]), elements)

    def _on_UnaryOp(self, node: ast.UnaryOp, hint: Type | None) -> Expr:
        place = self.place(node)
        if isinstance(node.op, ast.Not):
            condition, _ = self.condition(node)
            return condition
        operand = self.expr(node.operand)
        if isinstance(node.op, ast.UAdd):
            if operand.type in (*kinds.NUMBERS, kinds.TENSOR):
                return operand
            raise ScriptError(f"+ takes numbers and tensors, not {operand.type}", place)
        name = "neg" if isinstance(node.op, ast.USub) else "bitwise_not"
        if isinstance(operand, Const) and name == "neg" and operand.type in kinds.NUMBERS:
            return Const(place, operand.type, -operand.value)
        method = "__neg__" if name == "neg" else "__invert__"
        return self.operate(name, "-" if name == "neg" else "~", method, [operand], place)

    def _on_BinOp(self, node: ast.BinOp, hint: Type | None) -> Expr:
        left, right = self.expr(node.left), self.expr(node.right)
        return self.binary(node.op, left, right, self.place(node))

    def binary(self, operator: ast.operator, left: Expr, right: Expr, place: Place) -> Expr:
        """Return an operator applied to two values."""
        name, sign, method = _BINARY[type(operator)]
        if name == "remainder" and left.type == kinds.STR:
            several = isinstance(right, MakeTuple)
            args = right.elements if isinstance(right, MakeTuple) and several else [right]
            found = choose_builtin("percentFormat", [left, *args], {}, place)
            assert found is not None
            return found
        return self.operate(name, sign, method, [left, right], place)

    def operate(self, name: str, sign: str, method: str, args: list[Expr], place: Place) -> Expr:
        """Return a call of an operator: a builtin, one of tensors, or a class's method."""
        owner = args[0]
        if isinstance(owner.type, kinds.ClassType):
            return self.expr_of(self.call_method(owner, method, args[1:], {}, place), place)
        if any(arg.type == kinds.TENSOR for arg in args):
            takes = (kinds.TENSOR, kinds.NUMBER, *kinds.NUMBERS, kinds.BOOL)
            if all(arg.type in takes for arg in args):
                shown = _OF_TENSORS.get(name, name)
                template = f"{sign}_0" if len(args) == 1 else f"_0 {sign} _1"
                if name in ("add", "mul") and owner.type != kinds.TENSOR:
                    # As in PyTorch's graphs, where the tensor comes first.
                    args, template = args[::-1], f"_1 {sign} _0"
                if name == "div" and owner.type != kinds.TENSOR:
                    # The same: the quotient is rounded twice, and sizes are computed from it.
                    inverse = Builtin("reciprocal", "_0.reciprocal()")
                    args = [Apply(place, kinds.TENSOR, inverse, args[1:]), owner]
                    shown, template = "mul", "_0 * _1"
                return Apply(place, kinds.TENSOR, Builtin(shown, template), args)
        joined = self._concatenated(name, args, place)
        if joined is not None:
            return joined
        numbers = self._plain_numbers(args)
        found: Expr | None = choose_builtin(name, numbers, {}, place, convert=False)
        if found is None:
            found = choose_builtin(name, numbers, {}, place)
        if found is None:
            raise self.no_overload(name, args, {}, place)
        return found

    def _plain_numbers(self, args: list[Expr]) -> list[Expr]:
        """Return arguments with bools, beside numbers, as ints."""
        if any(arg.type in kinds.NUMBERS for arg in args):
            return [
                Apply(a.place, kinds.INT, Builtin("Int", "int(_0)"), [a])
                if a.type == kinds.BOOL
                else a
                for a in args
            ]
        return args

    def _concatenated(self, name: str, args: list[Expr], place: Place) -> Expr | None:
        """Return the sum of two tuples, or None."""
        if name != "add" or not all(isinstance(arg.type, TupleType) for arg in args):
            return None
        members = [
            TupleItem(place, element, arg, k)
            for arg in args
            for k, element in enumerate(arg.type.elements)  # type: ignore[attr-defined]
        ]
        return self.make_tuple(list(members), place)

    def _on_BoolOp(self, node: ast.BoolOp, hint: Type | None) -> Expr:
        return self.condition(node)[0]

    def _on_Compare(self, node: ast.Compare, hint: Type | None) -> Expr:
        if len(node.ops) == 1:
            return self._compared(node, node.ops[0], node.left, node.comparators[0])
        return self.condition(node)[0]

    def condition(self, node: ast.expr) -> tuple[Expr, Refinements]:
        """Return a condition as a bool, and what it tells of types either way."""
        place = self.place(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner, (yes, no) = self.condition(node.operand)
            known = constant_condition(inner)
            if known is not None and isinstance(inner, Const):
                return Const(place, kinds.BOOL, not known), (no, yes)
            return Not(place, kinds.BOOL, inner), (no, yes)
        if isinstance(node, ast.BoolOp):
            return self._joined(node.values, isinstance(node.op, ast.And), place)
        if isinstance(node, ast.Compare):
            if len(node.ops) > 1:
                lefts = [node.left, *node.comparators]
                parts: list[ast.expr] = [
                    ast.copy_location(ast.Compare(a, [op], [b]), node)
                    for a, op, b in zip(lefts, node.ops, node.comparators, strict=False)
                ]
                return self._joined(parts, True, place)
            refinements = self._refined_by_none(node)
            return self.to_bool(self.expr(node), place), refinements
        if isinstance(node, ast.Call):
            found = self._refined_by_instance(node)
            if found is not None:
                return found
        return self.to_bool(self.expr(node), place), ({}, {})

    def _joined(self, parts: list[ast.expr], both: bool, place: Place) -> tuple[Expr, Refinements]:
        left, (yes, no) = self.condition(parts[0])
        if len(parts) == 1:
            return left, (yes, no)
        known = constant_condition(left)
        if known is not None and known is not both:
            return left, (yes, no)
        with self.block():
            self.scope.refine(yes if both else no)
            right, (more_yes, more_no) = self._joined(parts[1:], both, place)
        is_known = known is not None and not isinstance(parts[0], ast.Constant)
        if is_known and isinstance(left, Const):
            return right, (more_yes, more_no)
        if both:
            return And(place, kinds.BOOL, left, right), ({**yes, **more_yes}, {})
        return Or(place, kinds.BOOL, left, right), ({}, {**no, **more_no})

    def to_bool(self, value: Expr, place: Place) -> Expr:
        """Return a value as a condition.

        Raises:
            ScriptError: it is none.
        """
        if value.type == kinds.BOOL:
            return value
        if value.type == kinds.TENSOR:
            return Convert(place, kinds.BOOL, value, "bool")
        found: Expr | None = choose_builtin("Bool", [value], {}, place, convert=False)
        if isinstance(value.type, (ListType, DictType)):
            count = choose_builtin("len", [value], {}, place)
            assert count is not None
            found = choose_builtin("ne", [count, Const(place, kinds.INT, 0)], {}, place)
        if found is None and isinstance(value.type, kinds.ClassType):
            told = self.expr_of(self.call_method(value, "__bool__", [], {}, place), place)
            if told.type != kinds.BOOL:
                raise ScriptError(
                    f"expected a bool expression for condition but found {told.type}", place
                )
            found = told
        if found is None:
            hint = "; ask whether it is None" if isinstance(value.type, OptionalType) else ""
            raise ScriptError(f"Could not cast value of type {value.type} to bool{hint}", place)
        return found

    def _refined_by_none(self, node: ast.Compare) -> Refinements:
        operands = [node.left, node.comparators[0]]
        none = [isinstance(n, ast.Constant) and n.value is None for n in operands]
        if not isinstance(node.ops[0], (ast.Is, ast.IsNot)) or sum(none) != 1:
            return {}, {}
        named = operands[none.index(False)]
        if not isinstance(named, ast.Name):
            return {}, {}
        have = self.scope.find(named.id, self.place(named))
        bare = without_none(have) if isinstance(have, Type) else None
        if bare is None:
            return {}, {}
        # As in PyTorch, a name that is None keeps its type, so that it may be given a value.
        is_not = {named.id: bare}
        return ({}, is_not) if isinstance(node.ops[0], ast.Is) else (is_not, {})

    def _refined_by_instance(self, node: ast.Call) -> tuple[Expr, Refinements] | None:
        found = self.value(node)
        if not isinstance(found, InstanceCheck):
            if isinstance(found, Expr):
                return self.to_bool(found, self.place(node)), ({}, {})
            return None
        name = node.args[0].id if isinstance(node.args[0], ast.Name) else ""
        if not name:
            return found.condition, ({}, {})
        yes = {} if found.inside is None else {name: found.inside}
        no = {} if found.outside is None else {name: found.outside}
        return found.condition, (yes, no)

    def _compared(
        self, node: ast.Compare, operator: ast.cmpop, left: ast.expr, right: ast.expr
    ) -> Expr:
        place = self.place(node)
        one, two = self.value(left), self.value(right)
        if isinstance(operator, (ast.Is, ast.IsNot)):
            return self._identical(one, two, isinstance(operator, ast.IsNot), place)
        if isinstance(operator, (ast.In, ast.NotIn)):
            found = self._contained(one, two, place)
            if isinstance(operator, ast.In):
                return found
            known = constant_condition(found)
            if known is not None:
                return Const(place, kinds.BOOL, not known)
            return Not(place, kinds.BOOL, found)
        name, sign, method = _COMPARISONS[type(operator)]
        args = [self.expr_of(one, place), self.expr_of(two, place)]
        return self.operate(name, sign, method, args, place)

    def _identical(self, one: Any, two: Any, negated: bool, place: Place) -> Expr:
        left = self.expr_of(one, place)
        right = self.expr_of(two, place)
        for a, b in ((left, right), (right, left)):
            if b.type == kinds.NONE:
                if a.type == kinds.NONE or is_always_none(a):
                    return Const(place, kinds.BOOL, not negated)
                if not is_subtype(kinds.NONE, a.type) and a.type != kinds.ANY:
                    return Const(place, kinds.BOOL, negated)
        name, sign = ("__isnot__", "is not") if negated else ("__is__", "is")
        return Apply(place, kinds.BOOL, Builtin(name, f"_0 {sign} _1"), [left, right])

    def _contained(self, key: Any, owner: Any, place: Place) -> Expr:
        if isinstance(owner, Many) or (
            isinstance(owner, Expr) and isinstance(owner.type, ModuleType)
        ):
            names = self.keys_of(owner, place)
            return Const(place, kinds.BOOL, self.constant_of(key, place, str) in names)
        container, item = self.expr_of(owner, place), self.expr_of(key, place)
        if isinstance(container.type, kinds.ClassType):
            return self.expr_of(
                self.call_method(container, "__contains__", [item], {}, place), place
            )
        if isinstance(container.type, TupleType) and container.type.elements:
            whole = to_type(container, ListType(container.type.elements[0]))
            container = whole if whole is not None else container
        found = choose_builtin("__contains__", [container, item], {}, place)
        if found is None:
            raise self.no_overload("__contains__", [container, item], {}, place)
        return found

    def _on_IfExp(self, node: ast.IfExp, hint: Type | None) -> Any:
        condition, (yes, no) = self.condition(node.test)
        known = constant_condition(condition)
        if known is not None and isinstance(condition, Const):
            with self.block():
                self.scope.refine(yes if known else no)
                return self.value(node.body if known else node.orelse, hint)
        with self.block():
            self.scope.refine(yes)
            body = self.expr(node.body, hint)
        with self.block():
            self.scope.refine(no)
            orelse = self.expr(node.orelse, hint)
        kind = unify(body.type, orelse.type)
        place = self.place(node)
        if kind is None and hint is not None and is_subtype(body.type, hint):
            kind = hint if is_subtype(orelse.type, hint) else None
        if kind is None:
            raise ScriptError(
                f"if-expression's true branch has type {body.type} but false branch has type "
                f"{orelse.type}",
                place,
            )
        return IfElse(place, kind, condition, body, orelse)


class InstanceCheck(Value):
    """A call of `isinstance`: the condition, and the types of the value either way."""

    def __init__(self, condition: Expr, inside: Type | None, outside: Type | None) -> None:
        self.condition, self.inside, self.outside = condition, inside, outside

    def __str__(self) -> str:
        return "bool"

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Return the condition."""
        return self.condition


def without_none(kind: Type) -> Type | None:
    """Return the type of an optional value that is there, or None where it is never missing."""
    if isinstance(kind, OptionalType):
        return kind.element
    if isinstance(kind, kinds.UnionType) and kinds.NONE in kind.members:
        return kinds.union_of([m for m in kind.members if m != kinds.NONE])
    return None
