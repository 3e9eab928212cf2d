"""Assignments: from syntax to typed nodes."""

from __future__ import annotations

import ast
import re
from typing import Any

from tangrad_jit.scripting.check.builtins import choose_builtin, to_type
from tangrad_jit.scripting.check.expressions import Alias, Expressions
from tangrad_jit.scripting.check.values import Loop, Many, Value
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    Assign,
    Const,
    Convert,
    Do,
    Expr,
    GetAttr,
    Local,
    MakeList,
    Node,
    OpCall,
    SetItem,
    SliceOf,
    Subscript,
    TupleItem,
    Unpack,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    ClassType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
)

__all__ = ["Assignments"]

_IN_PLACE: dict[type, str] = {
    ast.Add: "add_",
    ast.Sub: "sub_",
    ast.Mult: "mul_",
    ast.Div: "div_",
    ast.FloorDiv: "floor_divide_",
    ast.Mod: "remainder_",
    ast.Pow: "pow_",
    ast.BitAnd: "bitwise_and_",
    ast.BitOr: "bitwise_or_",
    ast.BitXor: "bitwise_xor_",
    ast.LShift: "bitwise_left_shift_",
    ast.RShift: "bitwise_right_shift_",
}

# What a variable that has one of these types makes of a tensor, or of a number of any type.
_CONVERTED = kinds.NUMBERS


class Assignments(Expressions):
    """Check assignments to names, to several of them, to attributes, and to items."""

    temporaries = 0
    statement: Place

    def _do_Assign(self, node: ast.Assign) -> list[Node]:
        hint = self._commented(node.type_comment, node)
        target = node.targets[0]
        if hint is None:
            hint = self._expected(target)
        value = self.value(node.value, hint)
        place = self.place(node)
        if node.type_comment and hint is not None:
            value = self.convert(self.expr_of(value, place), hint, place, "a value")
        if len(node.targets) == 1:
            return self.assign(target, value, hint if node.type_comment else None)
        made: list[Node] = []
        if isinstance(value, Expr) and not isinstance(value, (Local, Const)):
            value, store = self._kept(value)
            made.append(store)
        for one in node.targets:
            made.extend(self.assign(one, value))
        return made

    def _commented(self, comment: str | None, node: ast.stmt) -> Type | None:
        if not comment or comment.strip().startswith("ignore"):
            return None
        return self.annotation(ast.copy_location(ast.Constant(comment), node))

    def _expected(self, target: ast.expr) -> Type | None:
        """Return the type that a target has in a block around, for literals without members."""
        if isinstance(target, ast.Name):
            known = self.scope.find_outside(target.id)
            return known if isinstance(known, Type) else None
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = self.scope.find(target.value.id, self.place(target))
            if isinstance(owner, (ClassType, ModuleType)):
                found: Type | None = owner.unit.type_of_attribute(target.attr)
                return found
        return None

    def _do_AnnAssign(self, node: ast.AnnAssign) -> list[Node]:
        kind = self.annotation(node.annotation)
        place = self.place(node)
        if node.value is None:
            raise ScriptError(
                "a variable that is annotated needs a value, from which its life begins", place
            )
        given = self.expr_of(self.value(node.value, kind), place)
        value = to_type(given, kind, False)
        if value is None:
            if isinstance(given, MakeList) and not _may_be_list(kind):
                raise ScriptError(f"Expected an annotation of type List but got {kind}", place)
            name = ast.unparse(node.target)
            raise ScriptError(
                f"Variable '{name}' is annotated with type {kind} but is being assigned to a value "
                f"of type {given.type}{self.remedy(given.type, kind)}",
                place,
            )
        return self.assign(node.target, value, kind)

    def assign(self, target: ast.expr, value: Any, annotated: Type | None = None) -> list[Node]:
        """Return what stores a meaning in a target.

        Raises:
            ScriptError: the target takes none of its type.
        """
        place = self.place(target)
        if isinstance(target, ast.Name):
            return self._assign_name(target.id, value, annotated, place)
        if isinstance(target, (ast.Tuple, ast.List)):
            return self._assign_several(target.elts, value, place)
        if isinstance(target, ast.Attribute):
            owner = self.expr(target.value)
            return self._assign_attribute(owner, target.attr, value, place)
        if isinstance(target, ast.Subscript):
            owner = self.expr(target.value)
            return self._assign_item(owner, target.slice, self.expr_of(value, place), place)
        raise FrontendError(f"{type(target).__name__} is no target of an assignment", place)

    def _assign_name(
        self, name: str, value: Any, annotated: Type | None, place: Place
    ) -> list[Node]:
        if isinstance(value, (Many, Loop)) or (isinstance(value, Value) and not _is_value(value)):
            self.scope.set(name, value, place)
            return []
        value = self.expr_of(value, place)
        if isinstance(value, SliceOf):
            self.scope.top.names[name] = Alias(value)
            return []
        kind = annotated or value.type
        before = self.scope.find_outside(name)
        if isinstance(before, Type) and annotated is None and not is_subtype(kind, before):
            # What PyTorch converts by itself where a variable has a type already.
            value = self._as_before(value, before, place)
            kind = value.type
        self.scope.set(name, kind, place, annotated is not None)
        if value.type != kind:
            value = Convert(place, kind, value, "refine")
        return [Assign(place, name, value)]

    def _as_before(self, value: Expr, before: Type, place: Place) -> Expr:
        from_code = before in kinds.ENUM_LIKE or value.type in kinds.ENUM_LIKE
        if from_code:
            return self.convert(value, before, place, "a value")
        bare = before.element if isinstance(before, OptionalType) else before
        converts = bare in _CONVERTED or isinstance(bare, ListType)
        found = to_type(value, bare) if converts else None
        return value if found is None else found

    def _assign_several(self, targets: list[ast.expr], value: Any, place: Place) -> list[Node]:
        stars = [k for k, one in enumerate(targets) if isinstance(one, ast.Starred)]
        if len(stars) > 1:
            raise ScriptError("Only one starred expression is allowed on the lhs", place)
        if stars and len(targets) == 1:
            raise ScriptError(
                "A Starred expression may only appear on the lhs within the presence of another "
                "non-starred expression",
                place,
            )
        star = stars[0] if stars else -1
        if isinstance(value, Expr) and not isinstance(value.type, TupleType):
            return self._unpack_list(targets, star, value, place)
        items = self.spread(value, place)
        count = len(items)
        if count < len(targets) - (star >= 0) or (star < 0 and count != len(targets)):
            few = count < len(targets)
            raise ScriptError(
                f"need {len(targets)} values to unpack but found only {count}"
                if few
                else f"too many values to unpack: need {len(targets)} but found {count}",
                place,
            )
        names = [one.id for one in targets if isinstance(one, ast.Name)]
        if star < 0 and len(names) == len(targets) and isinstance(value, Expr):
            return self._unpack_names(names, value, items, place)
        made: list[Node] = []
        if isinstance(value, Expr) and not isinstance(value, Local):
            kept, store = self._kept(value)
            made.append(store)
            items = [TupleItem(place, item.type, kept, k) for k, item in enumerate(items)]
        if star >= 0:
            end = count - (len(targets) - star - 1)
            middle = self.make_tuple([self.expr_of(i, place) for i in items[star:end]], place)
            items = [*items[:star], middle, *items[end:]]
        for one, item in zip(targets, items, strict=True):
            made.extend(self.assign(one.value if isinstance(one, ast.Starred) else one, item))
        return made

    def _unpack_names(
        self, names: list[str], value: Expr, items: list[Expr], place: Place
    ) -> list[Node]:
        for name, item in zip(names, items, strict=True):
            self.scope.set(name, item.type, place)
        return [Assign(place, Unpack(place, list(names)), value)]

    def _unpack_list(
        self, targets: list[ast.expr], star: int, value: Expr, place: Place
    ) -> list[Node]:
        if not isinstance(value.type, ListType):
            if isinstance(value.type, kinds.UnionType) and not value.type.members:
                raise ScriptError(
                    "Provided tuple is not fully defined/refined including its element types, "
                    "please provide a value of type like Tuple[int, int]",
                    value.place,
                )
            raise ScriptError(f"{value.type} cannot be used as a tuple", place)
        element = value.type.element
        names = [self.temporary() for _ in targets]
        made: list[Node] = [Assign(place, Unpack(place, list(names), star), value)]
        for k, (one, name) in enumerate(zip(targets, names, strict=True)):
            kind = value.type if k == star else element
            inner = one.value if isinstance(one, ast.Starred) else one
            made.extend(self.assign(inner, Local(place, kind, name)))
        return made

    def temporary(self) -> str:
        """Return a name that the program does not have."""
        self.temporaries += 1
        return f"_t{self.temporaries}"

    def _kept(self, value: Expr) -> tuple[Local, Node]:
        """Return a local variable that holds a value, and its store."""
        name = self.temporary()
        self.scope.top.names[name] = value.type
        return Local(value.place, value.type, name), Assign(value.place, name, value)

    def _assign_attribute(self, owner: Expr, name: str, value: Any, place: Place) -> list[Node]:
        kind = owner.type
        if not isinstance(kind, (ClassType, ModuleType)):
            raise ScriptError(f"Tried to set an attribute {name} of a {kind}", place)
        made: list[Node] = kind.unit.set_attribute(self, owner, name, value, self.statement)
        return made

    def _assign_item(self, owner: Expr, index: ast.expr, value: Expr, place: Place) -> list[Node]:
        kind = owner.type
        if kind == kinds.TENSOR:
            return [SetItem(place, owner, self.index_parts(index), value)]
        if isinstance(index, ast.Slice):
            raise ScriptError(
                f"Sliced assignment to a {kind} is not supported; assign the elements", place
            )
        at = self.expr(index)
        if isinstance(kind, ClassType):
            return [Do(place, self.call_method(owner, "__setitem__", [at, value], {}, place))]
        if isinstance(kind, TupleType):
            raise ScriptError(
                f"'{kind}' object does not support subscripted assignment", self.statement
            )
        found = choose_builtin("_set_item", [owner, at, value], {}, place)
        if found is None:
            raise self.no_overload("_set_item", [owner, at, value], {}, self.statement)
        return [Do(place, found)]

    def _do_AugAssign(self, node: ast.AugAssign) -> list[Node]:
        place = self.place(node)
        right = self.expr(node.value)
        target = node.target
        if isinstance(target, ast.Subscript):
            return self._augment_item(target, node.op, right, place)
        current = self.expr(target)
        if isinstance(current.type, ListType) and isinstance(node.op, ast.Add):
            found = choose_builtin("extend", [current, right], {}, place)
            if found is None:
                raise self.no_overload("extend", [current, right], {}, place)
            return [Do(place, found)]
        if isinstance(current.type, ListType) and isinstance(node.op, ast.Mult):
            repeated = choose_builtin("mul_", [current, right], {}, place)
            if repeated is None:
                raise self.no_overload("mul_", [current, right], {}, place)
            return [Do(place, repeated)]
        value = self._augmented(node.op, current, right, place)
        if isinstance(target, ast.Attribute):
            assert isinstance(current, GetAttr)
            return self._assign_attribute(current.owner, target.attr, value, place)
        return self.assign(target, value)

    def _augmented(self, operator: ast.operator, left: Expr, right: Expr, place: Place) -> Expr:
        """Return the value of an augmented assignment: of a tensor, changed in place."""
        takes = (kinds.TENSOR, kinds.NUMBER, *kinds.NUMBERS, kinds.BOOL)
        if left.type == kinds.TENSOR and right.type in takes and type(operator) in _IN_PLACE:
            name = _IN_PLACE[type(operator)]
            return OpCall(place, kinds.TENSOR, f"aten::{name}", name, [left, right])
        if isinstance(left.type, ClassType):
            name = f"__i{re.sub('[^a-z]', '', _method_of(operator))}__"
            if name in left.type.unit.methods:
                return self.expr_of(self.call_method(left, name, [right], {}, place), place)
            plain = f"__{_method_of(operator)}__"
            if plain not in left.type.unit.methods:
                raise ScriptError(
                    f"Cannot emit inplace op on {left.type} since it does not define an {name} or "
                    f"{plain} method",
                    place,
                )
        return self.binary(operator, left, right, place)

    def _augment_item(
        self, target: ast.Subscript, operator: ast.operator, right: Expr, place: Place
    ) -> list[Node]:
        made: list[Node] = []
        owner = self.expr(target.value)
        if not isinstance(owner, (Local, GetAttr)):
            owner, store = self._kept(owner)
            made.append(store)
        if owner.type == kinds.TENSOR:
            parts = self.index_parts(target.slice)
            for k, part in enumerate(parts):
                if not isinstance(part, (Local, Const)) and part.type == kinds.TENSOR:
                    parts[k], store = self._kept(part)
                    made.append(store)
            old = Subscript(place, kinds.TENSOR, owner, parts)
            return [*made, SetItem(place, owner, parts, self.binary(operator, old, right, place))]
        if isinstance(owner.type, TupleType):
            raise ScriptError(f"'{owner.type}' does not support augmented assign", place)
        at = self.expr(target.slice)
        if not isinstance(at, (Local, Const)):
            at, store = self._kept(at)
            made.append(store)
        if isinstance(owner.type, ClassType):
            old = self.call_method(owner, "__getitem__", [at], {}, place)
            value = self._augmented(operator, old, right, place)
            return [Do(place, self.call_method(owner, "__setitem__", [at, value], {}, place))]
        item = choose_builtin("__getitem__", [owner, at], {}, place)
        if item is None:
            raise ScriptError(f"'{owner.type}' object is not subscriptable with {at.type}", place)
        value = self._augmented(operator, item, right, place)
        found = choose_builtin("_set_item", [owner, at, value], {}, place)
        if found is None:
            raise ScriptError(
                f"'{owner.type}' object does not support assignment of a {value.type}", place
            )
        return [*made, Do(place, found)]


def _may_be_list(kind: Type) -> bool:
    """Return whether some values of a type are lists."""
    members = [kind, *getattr(kind, "members", ()), getattr(kind, "element", None)]
    return kind == kinds.ANY or any(isinstance(member, ListType) for member in members)


def _is_value(value: Any) -> bool:
    """Whether a meaning is, beside what else it is, a value of a type."""
    return hasattr(value, "condition") or hasattr(value, "expr")


def _method_of(operator: ast.operator) -> str:
    return {
        ast.Add: "add",
        ast.Sub: "sub",
        ast.Mult: "mul",
        ast.Div: "truediv",
        ast.FloorDiv: "floordiv",
        ast.Mod: "mod",
        ast.Pow: "pow",
        ast.MatMult: "matmul",
        ast.BitAnd: "and",
        ast.BitOr: "or",
        ast.BitXor: "xor",
        ast.LShift: "lshift",
        ast.RShift: "rshift",
    }[type(operator)]
