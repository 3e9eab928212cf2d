"""Expressions: from syntax to typed nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tangrad_jit.scripting.check.attributes import Attributes
from tangrad_jit.scripting.check.builtins import choose_builtin, to_type
from tangrad_jit.scripting.check.conditions import constant_condition, is_always_none
from tangrad_jit.scripting.check.values import Bound, Loop, Many, Value, described
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    And,
    Apply,
    Builtin,
    Comprehension,
    Const,
    Convert,
    Expr,
    GetAttr,
    IfElse,
    Iteration,
    Local,
    MakeDict,
    MakeList,
    MakeTuple,
    Not,
    Or,
    SliceOf,
    Subscript,
    TupleItem,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import AnnotationError, type_of_syntax
from tangrad_jit.scripting.types.kinds import (
    DictType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
    optional_of,
    unify,
)

__all__ = ["Expressions", "Refinements"]

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
_LARGEST = 1 << 63


class Expressions(Attributes):
    """Check expressions; `Attributes` has the names and the state of a function's check."""

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

    # --- literals

    def _on_Constant(self, node: ast.Constant, hint: Type | None) -> Expr:
        place, value = self.place(node), node.value
        if value is Ellipsis:
            return Const(place, kinds.ANY, value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
            raise ScriptError("Integer constant out of range: it has at most 64 bits", place)
        if isinstance(value, bytes):
            raise FrontendError("bytes aren't supported", place)
        return self.constant(value, place)

    def _on_JoinedStr(self, node: ast.JoinedStr, hint: Type | None) -> Expr:
        text, args = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value).replace("{", "{{").replace("}", "}}")
                continue
            assert isinstance(part, ast.FormattedValue)
            if part.conversion not in (-1, None):
                raise FrontendError("Don't support conversion in JoinedStr", self.place(node))
            if part.format_spec is not None:
                raise FrontendError("Don't support formatting in JoinedStr", self.place(node))
            text += "{}"
            args.append(self.expr(part.value))
        place = self.place(node)
        if "{{" in text or "}}" in text:
            builtin = Builtin("format", "rt_format_plain(_0, _args)")
        else:
            builtin = Builtin("format", "rt_format(_0, _args)")
        return Apply(place, kinds.STR, builtin, [Const(place, kinds.STR, text), *args])

    def _on_List(self, node: ast.List, hint: Type | None) -> Expr:
        element = hint.element if isinstance(hint, ListType) else None
        elements = [self.expr(e, element) for e in node.elts]
        return self.make_list(elements, self.place(node), element)

    def make_list(self, elements: list[Expr], place: Place, element: Type | None = None) -> Expr:
        """Return a list; where its elements are of several types, of their union.

        Raises:
            ScriptError: they are not of the type that is wanted.
        """
        if element is None and not elements:
            return MakeList(place, ListType(kinds.TENSOR), [])
        common = self._common_type(elements) if element is None else element
        fitted = [to_type(item, common, False) for item in elements]
        if any(item is None for item in fitted):
            raise ScriptError(
                f"List type annotation `List[{common}]` did not match the types of the given list "
                f"elements, which are {', '.join(str(item.type) for item in elements)}",
                place,
            )
        return MakeList(place, ListType(common), [item for item in fitted if item is not None])

    def _common_type(self, elements: list[Expr]) -> Type:
        found = elements[0].type
        for item in elements[1:]:
            both = unify(found, item.type)
            if both is None:
                return kinds.union_of([one.type for one in elements])
            found = both
        return found

    def _on_Tuple(self, node: ast.Tuple, hint: Type | None) -> Any:
        hints: list[Type | None] = [None] * len(node.elts)
        if isinstance(hint, TupleType) and len(hint.elements) == len(node.elts):
            hints = list(hint.elements)
        elements: list[Any] = []
        for element, wanted in zip(node.elts, hints, strict=True):
            if isinstance(element, ast.Starred):
                elements.extend(self.spread(self.value(element.value), self.place(element)))
            else:
                elements.append(self.value(element, wanted))
        place = self.place(node)
        if any(isinstance(item, Value) and not isinstance(item, Many) for item in elements):
            return Many(elements)
        return self.make_tuple([self.expr_of(item, place) for item in elements], place)

    def make_tuple(self, elements: list[Expr], place: Place) -> Expr:
        """Return a tuple."""
        return MakeTuple(place, TupleType([e.type for e in elements]), elements)

    def _on_Dict(self, node: ast.Dict, hint: Type | None) -> Expr:
        place = self.place(node)
        if any(key is None for key in node.keys):
            raise FrontendError("** in a dict isn't supported", place)
        key_hint = hint.key if isinstance(hint, DictType) else None
        value_hint = hint.value if isinstance(hint, DictType) else None
        keys = [self.expr(key, key_hint) for key in node.keys if key is not None]
        values = [self.expr(value, value_hint) for value in node.values]
        if not keys and not isinstance(hint, DictType):
            return MakeDict(place, DictType(kinds.STR, kinds.TENSOR), [], [])
        return self.make_dict(keys, values, hint, place)

    def make_dict(
        self, keys: list[Expr], values: list[Expr], hint: Type | None, place: Place
    ) -> Expr:
        """Return a dict of entries.

        Raises:
            ScriptError: they are not of the types that are wanted.
        """
        if not keys and isinstance(hint, DictType):
            return MakeDict(place, hint, [], [])
        made_key, made_value = self._common_type(keys), self._common_type(values)
        kind = hint if isinstance(hint, DictType) else DictType(made_key, made_value)
        if isinstance(made_key, kinds.UnionType):
            raise ScriptError(
                "Dicts may only contain homogeneous keys, but the type of the first generated key "
                f"was {made_key}",
                place,
            )
        fitted = []
        for what, given, wanted, have in (
            ("key", keys, kind.key, made_key),
            ("value", values, kind.value, made_value),
        ):
            fitted.append([to_type(item, wanted, False) for item in given])
            if None in fitted[-1]:
                raise ScriptError(
                    f"Dict type annotation `{kind}` did not match the type of an actual {what} "
                    f"type `{have}`",
                    place,
                )
        return MakeDict(place, kind, *[[e for e in part if e is not None] for part in fitted])

    def _on_Set(self, node: ast.Set, hint: Type | None) -> Expr:
        raise FrontendError("sets aren't supported; use a dict or a list", self.place(node))

    # --- names

    def _on_Name(self, node: ast.Name, hint: Type | None) -> Any:
        return self.lookup(node.id, self.place(node))

    def _on_Attribute(self, node: ast.Attribute, hint: Type | None) -> Any:
        return self.attribute_of(self.value(node.value), node.attr, self.place(node))

    # --- operators

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

    # --- conditions

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
        if known is not None and isinstance(left, Const):
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
        found = choose_builtin("Bool", [value], {}, place, convert=False)
        if isinstance(value.type, (ListType, DictType)):
            count = choose_builtin("len", [value], {}, place)
            found = choose_builtin("ne", [count, Const(place, kinds.INT, 0)], {}, place)
        if found is None and isinstance(value.type, kinds.ClassType):
            found = self.expr_of(self.call_method(value, "__bool__", [], {}, place), place)
            if found.type != kinds.BOOL:
                raise ScriptError(
                    f"expected a bool expression for condition but found {found.type}", place
                )
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

    # --- calls

    def _on_Call(self, node: ast.Call, hint: Type | None) -> Any:
        place = self.place(node)
        callee = self.value(node.func)
        if not getattr(callee, "is_special", False):
            place = self.place(node.func)
        raw = getattr(callee, "call_raw", None)
        if raw is not None:
            return raw(self, node, hint)
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args.extend(self.spread(self.value(arg.value), self.place(arg)))
            else:
                args.append(self.value(arg))
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise FrontendError("keyword-arg expansion is not supported", place)
            kwargs[keyword.arg] = self.value(keyword.value)
        return self.call(callee, args, kwargs, place, hint)

    def call(
        self,
        callee: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        place: Place,
        hint: Type | None = None,
    ) -> Any:
        """Return a call of a meaning, with meanings as arguments."""
        if isinstance(callee, Bound) and callee.is_special:
            return self.to_list(callee.owner, hint, place)
        if isinstance(callee, Expr):
            if isinstance(callee.type, ModuleType):
                return callee.type.unit.call_module(self, callee, args, kwargs, place)
            if isinstance(callee.type, kinds.InterfaceType):
                return self.call_method(callee, "forward", args, kwargs, place)
            if isinstance(callee.type, kinds.ClassType):
                return self.call_method(callee, "__call__", args, kwargs, place)
            raise ScriptError(f"cannot call a value of type {callee.type}", place)
        return callee.call(self, args, kwargs, place)

    def to_list(self, owner: Expr, hint: Type | None, place: Place) -> Expr:
        """Return the elements of a tensor as lists, of the type that is expected."""
        element, depth = hint, 0
        while isinstance(element, ListType):
            element, depth = element.element, depth + 1
        known = (kinds.INT, kinds.FLOAT, kinds.BOOL, kinds.COMPLEX)
        if hint is not None and element not in known:
            raise ScriptError(
                f"{element} is not one of the supported element types for tolist: int, float, "
                "complex, bool",
                place,
            )
        if hint is None:
            raise ScriptError(
                "Expected type hint for result of tolist(): x: List[float] = t.tolist()", place
            )
        return Convert(place, hint, owner, f"tolist {element} {depth}")

    def _on_Lambda(self, node: ast.Lambda, hint: Type | None) -> Any:
        raise FrontendError("Lambda aren't supported; define a function with def", self.place(node))

    # --- subscripts

    def _on_Subscript(self, node: ast.Subscript, hint: Type | None) -> Any:
        place = self.place(node)
        owner = self.value(node.value)
        if isinstance(owner, Value):
            return self._item_of_meaning(owner, node.slice, place, hint)
        kind = owner.type
        if kind == kinds.TENSOR:
            return Subscript(place, kind, owner, self.index_parts(node.slice))
        if isinstance(kind, ModuleType):
            children = self.children_of(owner, place)
            return self._item_of_meaning(children, node.slice, place, hint)
        if isinstance(kind, TupleType):
            return self._item_of_tuple(owner, node.slice, place)
        index = self._slice_or_index(node.slice)
        if isinstance(index, SliceOf):
            return self._sliced(owner, index, place)
        if isinstance(kind, kinds.ClassType):
            return self.call_method(owner, "__getitem__", [index], {}, place)
        if isinstance(kind, ModuleType):
            raise ScriptError(f"{kind} is not subscriptable", place)
        found = choose_builtin("__getitem__", [owner, index], {}, place)
        if found is None:
            if isinstance(kind, (ListType, DictType)):
                raise self.no_overload("__getitem__", [owner, index], {}, place)
            hint_text = (
                "; check first that it is not None" if isinstance(kind, OptionalType) else ""
            )
            raise ScriptError(
                f"'{kind}' object is not subscriptable with {index.type}{hint_text}", place
            )
        return found

    def _item_of_meaning(
        self, owner: Value, index: ast.expr, place: Place, hint: Type | None = None
    ) -> Any:
        if isinstance(index, ast.Slice):
            bounds = [
                None if part is None else self.constant_of(self.value(part), place, int)
                for part in (index.lower, index.upper, index.step)
            ]
            return owner.item(self, slice(*bounds), place)
        found = self.value(index)
        if isinstance(hint, kinds.InterfaceType) and isinstance(found, (Local, GetAttr)):
            return self._chosen_module(owner, found, hint, place)
        return owner.item(self, found, place)

    def _chosen_module(self, owner: Value, index: Expr, hint: Type, place: Place) -> Expr:
        """Return the module at a place that is known when the program runs."""
        lacking = Builtin("raise_key", "rt_no_module(_0)", namespace="")
        chosen: Expr = Apply(place, hint, lacking, [index])
        names = self.keys_of(owner, place) if index.type == kinds.STR else None
        members = owner.members(self, place) or []
        for k in reversed(range(len(members))):
            key = Const(place, index.type, k if names is None else names[k])
            child = self.convert(self.expr_of(owner.item(self, key, place), place), hint, place, "")
            is_it = choose_builtin("eq", [index, key], {}, place)
            assert is_it is not None
            chosen = IfElse(place, hint, is_it, child, chosen)
        return chosen

    def _item_of_tuple(self, owner: Expr, index: ast.expr, place: Place) -> Expr:
        elements = owner.type.elements  # type: ignore[attr-defined]
        number = self._slice_or_index(index)
        if isinstance(number, SliceOf):
            bounds = [
                None
                if part is None or part.type == kinds.NONE
                else self.constant_of(part, place, int)
                for part in (number.start, number.stop, number.step)
            ]
            numbers = range(len(elements))[slice(*bounds)]
            return self.make_tuple(
                [TupleItem(place, elements[k], owner, k) for k in numbers], place
            )
        if isinstance(number, Const) and isinstance(number.value, int):
            if not -len(elements) <= number.value < len(elements):
                raise ScriptError("Tuple index out of range", place)
            k = number.value % len(elements)
            return TupleItem(place, elements[k], owner, k)
        listed = to_type(owner, ListType(elements[0])) if elements else None
        found = None
        if listed is not None and all(element == elements[0] for element in elements):
            found = choose_builtin("__getitem__", [listed, number], {}, place)
        if found is None:
            raise ScriptError(
                "tuple index must be an integer literal where the members are of several types: "
                "Cannot index into a tuple with a non-integer literal because we cannot resolve "
                "the output type",
                place,
            )
        return found

    def _slice_or_index(self, node: ast.expr) -> Expr:
        """Return the syntax of an index: a slice, or a value."""
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            bounds = [None if p is None else self.bound(self.expr(p)) for p in parts]
            return SliceOf(self.place(node), kinds.NONE, *bounds)
        return self.expr(node)

    def _sliced(self, owner: Expr, index: SliceOf, place: Place) -> Expr:
        none = Const(place, kinds.NONE, None)
        bounds = [part if part is not None else none for part in (index.start, index.stop)]
        if index.step is not None and index.step.type != kinds.NONE:
            bounds.append(index.step)
        found = choose_builtin("slice", [owner, *bounds], {}, place)
        if found is None:
            raise ScriptError(f"'{owner.type}' object cannot be sliced", place)
        return found

    def index_parts(self, index: ast.expr) -> list[Expr]:
        """Return the parts of a tensor's index."""
        nodes = index.elts if isinstance(index, ast.Tuple) else [index]
        parts: list[Expr] = []
        for node in nodes:
            place = self.place(node)
            part = self._slice_or_index(node)
            if isinstance(part, SliceOf):
                parts.append(part)
                continue
            whole = ListType(kinds.INT)
            if isinstance(part.type, TupleType):
                part = to_type(part, whole) or part
            allowed = (kinds.INT, kinds.NONE, kinds.TENSOR, kinds.BOOL, whole, kinds.ANY)
            if part.type not in allowed and part.type != optional_of(kinds.TENSOR):
                raise ScriptError(
                    "Unsupported operation: indexing tensor with unsupported index type "
                    f"'{part.type}'. Only ints, slices, lists and tensors are supported",
                    place,
                )
            parts.append(part)
        return parts

    def bound(self, value: Expr) -> Expr:
        """Return a bound of a slice: an integer, or None.

        Raises:
            ScriptError: it is neither.
        """
        if value.type == optional_of(kinds.INT) or value.type == kinds.NONE:
            return value
        return self.convert(value, kinds.INT, value.place, "a bound of a slice", implicit=True)

    # --- comprehensions

    def _on_ListComp(self, node: ast.ListComp, hint: Type | None) -> Expr:
        element = hint.element if isinstance(hint, ListType) else None
        return self._comprehended(node, node.generators, None, node.elt, element, None)

    def _on_DictComp(self, node: ast.DictComp, hint: Type | None) -> Expr:
        value = hint.value if isinstance(hint, DictType) else None
        key = hint.key if isinstance(hint, DictType) else None
        return self._comprehended(node, node.generators, node.key, node.value, value, key)

    def _on_GeneratorExp(self, node: ast.GeneratorExp, hint: Type | None) -> Expr:
        return self._comprehended(node, node.generators, None, node.elt, None, None)

    def _comprehended(
        self,
        node: ast.expr,
        generators: list[ast.comprehension],
        key: ast.expr | None,
        element: ast.expr,
        hint: Type | None,
        key_hint: Type | None,
    ) -> Expr:
        place = self.place(node)
        if len(generators) != 1:
            raise FrontendError("Only a single generator is currently supported", place)
        generator = generators[0]
        if generator.ifs:
            raise FrontendError("Comprehension ifs are not supported yet", place)
        over = self.iterated(self.value(generator.iter), self.place(generator.iter))
        if isinstance(over, list):
            return self._unrolled(over, generator.target, key, element, (hint, key_hint), place)
        with self.block():
            target = self.target(generator.target, over.element, self.place(generator.target))
            made_key = None if key is None else self.expr(key, key_hint)
            value = self.expr(element, hint)
        if made_key is not None:
            self.make_dict([made_key], [value], self._dict_hint(key_hint, hint), place)
        elif hint is not None:
            self.make_list([value], place, hint)
        if hint is not None:
            value = self.convert(value, hint, place, "an element")
        kind = value.type if hint is None else hint
        if made_key is None:
            return Comprehension(place, ListType(kind), target, over, value)
        return Comprehension(place, DictType(made_key.type, kind), target, over, value, made_key)

    def _dict_hint(self, key: Type | None, value: Type | None) -> Type | None:
        return None if key is None or value is None else DictType(key, value)

    def _unrolled(
        self,
        items: list[Any],
        target: ast.expr,
        key: ast.expr | None,
        element: ast.expr,
        hints: tuple[Type | None, Type | None],
        place: Place,
    ) -> Expr:
        """Return the list or dict of a comprehension over a tuple or modules."""
        keys: list[Expr] = []
        values: list[Expr] = []
        for item in items:
            with self.block():
                self.bind(target, item, place)
                if key is not None:
                    keys.append(self.expr(key, hints[1]))
                values.append(self.expr(element, hints[0]))
        listed = self.make_list(values, place, hints[0])
        if key is None:
            return listed
        assert isinstance(listed, MakeList)
        kind = DictType(keys[0].type, listed.type.element)  # type: ignore[attr-defined]
        return MakeDict(place, kind, keys, listed.elements)

    def bind(self, target: ast.expr, item: Any, place: Place) -> None:
        """Let names stand for a meaning, without a store; only in loops that are unrolled."""
        if isinstance(target, ast.Name):
            self.scope.top.names[target.id] = Alias(item) if isinstance(item, Expr) else item
            return
        assert isinstance(target, (ast.Tuple, ast.List))
        for one, part in zip(target.elts, self.spread(item, place), strict=True):
            self.bind(one, part, place)

    # --- what loops go over

    def iterated(self, value: Any, place: Place) -> Iteration | list[Any]:
        """Return what a loop goes over: when it runs, or all meanings where it is unrolled.

        Raises:
            ScriptError: no loop goes over it.
        """
        if isinstance(value, Loop):
            return value.iteration
        if isinstance(value, Value):
            members = value.members(self, place)
            if members is None:
                raise ScriptError(f"{value} cannot be used as an iterable", place)
            return members
        kind = value.type
        if isinstance(kind, ListType):
            return Iteration("list", [value], kind.element)
        if kind == kinds.STR:
            return Iteration("str", [value], kinds.STR)
        if isinstance(kind, DictType):
            return Iteration("dict", [value], kind.key)
        if kind == kinds.TENSOR:
            return Iteration("tensor", [value], kinds.TENSOR)
        if isinstance(kind, TupleType):
            return self.spread(value, place)
        if isinstance(kind, ModuleType):
            return self.children_of(value, place).members(self, place) or []
        raise ScriptError(f"'{described(value)}' object is not iterable", place)

    def spread(self, value: Any, place: Place) -> list[Any]:
        """Return the members of a tuple or of several meanings.

        Raises:
            ScriptError: their number is not known.
        """
        if isinstance(value, Value):
            members = value.members(self, place)
            if members is not None:
                return members
        elif isinstance(value.type, TupleType):
            if isinstance(value, MakeTuple):
                return list(value.elements)
            return [
                TupleItem(place, element, value, k) for k, element in enumerate(value.type.elements)
            ]
        elif isinstance(value.type, ModuleType):
            return self.children_of(value, place).members(self, place) or []
        raise ScriptError(
            f"{described(value)} cannot be used as a tuple: the number of its members is not known",
            place,
        )

    def annotation(self, node: ast.AST) -> Type:
        """Return the type that an annotation in a body means.

        Raises:
            ScriptError: it means none.
        """
        try:
            return type_of_syntax(node, self.names.annotation, self.world.class_type)
        except AnnotationError as error:
            raise ScriptError(str(error), self.place(node)) from None


class Alias(Value):
    """A name that stands for an expression without side effects."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __str__(self) -> str:
        return str(self.expr.type)

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Return the expression."""
        return self.expr


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
