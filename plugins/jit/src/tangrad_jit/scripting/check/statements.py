"""Statements: from syntax to typed nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from tangrad_jit.scripting.check.builtins import choose_builtin, to_type
from tangrad_jit.scripting.check.conditions import constant_condition
from tangrad_jit.scripting.check.expressions import Alias, Expressions
from tangrad_jit.scripting.check.values import Loop, Many, PythonObject, Value
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    Assert,
    Assign,
    Break,
    Const,
    Continue,
    Convert,
    Do,
    Expr,
    For,
    GetAttr,
    If,
    Local,
    MakeList,
    MakeTuple,
    Node,
    OpCall,
    Raise,
    Return,
    SetItem,
    SliceOf,
    Subscript,
    TupleItem,
    Unpack,
    While,
    With,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    ClassType,
    ListType,
    ModuleType,
    TupleType,
    Type,
    is_subtype,
    unify,
)

__all__ = ["Statements"]

_REFUSED = {
    "Try": "try blocks aren't supported",
    "TryStar": "try blocks aren't supported",
    "AsyncFunctionDef": "async functions aren't supported",
    "FunctionDef": "function definitions aren't supported inside of functions; move it out",
    "ClassDef": "class definitions aren't supported inside of functions; move it out",
    "Import": "import statements aren't supported; import at the top of the file",
    "ImportFrom": "import statements aren't supported; import at the top of the file",
    "Global": "global variables aren't supported; pass the value as an argument",
    "Nonlocal": "nonlocal variables aren't supported; pass the value as an argument",
    "Match": "match statements aren't supported; write if and elif",
}
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


class Statements(Expressions):
    """Check statements; makes the body of a function."""

    declared: Type | None = None
    returned: Type | None = None
    loops = 0
    unrolled = 0
    temporaries = 0
    returns_value = False
    statement: Place

    def body(self, nodes: Sequence[ast.stmt]) -> list[Node]:
        """Return the nodes of statements, up to where they leave.

        Raises:
            ScriptError: one of them is none of the language.
        """
        made: list[Node] = []
        for node in nodes:
            method: Callable[..., list[Node]] | None = getattr(
                self, f"_do_{type(node).__name__}", None
            )
            if method is None:
                name = type(node).__name__
                reason = _REFUSED.get(name, f"{name} statements aren't supported")
                raise FrontendError(reason, self.place(node))
            self.statement = self.place(node)
            made.extend(method(node))
            if self.scope.top.exits:
                break
        return made

    # --- assignments

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
        return value

    def _assign_several(self, targets: list[ast.expr], value: Any, place: Place) -> list[Node]:
        stars = [k for k, one in enumerate(targets) if isinstance(one, ast.Starred)]
        if len(stars) > 1:
            raise ScriptError("Only one starred expression is allowed on the lhs", place)
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

    # --- augmented assignments

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

    # --- branches and loops

    def _do_If(self, node: ast.If) -> list[Node]:
        condition, (yes, no) = self.condition(node.test)
        known = constant_condition(condition)
        if known is not None:
            made: list[Node] = []
            if not isinstance(condition, Const):
                made.append(Do(self.place(node), condition))
            self.scope.refine(yes if known else no)
            return [*made, *self.body(node.body if known else node.orelse)]
        with self.block() as then:
            self.scope.refine(yes)
            body = self.body(node.body)
        with self.block() as other:
            self.scope.refine(no)
            orelse = self.body(node.orelse)
        self.scope.merge(then, other, self.place(node))
        return [If(self.place(node), condition, body, orelse)]

    def _do_While(self, node: ast.While) -> list[Node]:
        if node.orelse:
            raise FrontendError("else branches of while loops aren't supported", self.place(node))
        with self.block():
            condition, (yes, _) = self.condition(node.test)
            self.scope.refine(yes)
            body = self._loop_body(node.body)
        return [While(self.place(node), condition, body)]

    def _loop_body(self, nodes: Sequence[ast.stmt]) -> list[Node]:
        outside, self.unrolled = self.unrolled, 0
        self.loops += 1
        try:
            return self.body(nodes)
        finally:
            self.loops -= 1
            self.unrolled = outside

    def _do_For(self, node: ast.For) -> list[Node]:
        place = self.place(node)
        if node.orelse:
            raise FrontendError("else branches of for loops aren't supported", place)
        value = self.value(node.iter)
        made: list[Node] = []
        is_tuple = isinstance(value, Expr) and isinstance(value.type, TupleType)
        if is_tuple and not isinstance(value, (Local, MakeTuple)):
            value, store = self._kept(value)
            made.append(store)
        over = self.iterated(value, self.place(node.iter))
        if isinstance(over, list):
            return [*made, *self._unrolled_loop(node, over)]
        with self.block():
            target = self.target(node.target, over.element, self.place(node.target))
            body = self._loop_body(node.body)
        return [For(place, target, over, body)]

    def _unrolled_loop(self, node: ast.For, items: list[Any]) -> list[Node]:
        made: list[Node] = []
        self.unrolled += 1
        try:
            for item in items:
                made.extend(self.assign(node.target, item))
                made.extend(self.body(node.body))
                if self.scope.top.exits:
                    break
        finally:
            self.unrolled -= 1
        return made

    def target(self, node: ast.expr, kind: Type, place: Place) -> Any:
        """Return the target of a loop, whose names get the types of an element.

        Raises:
            ScriptError: it does not fit the element.
        """
        if isinstance(node, ast.Name):
            self.scope.set(node.id, kind, place)
            return node.id
        if isinstance(node, (ast.Tuple, ast.List)):
            members: Sequence[Type]
            if isinstance(kind, TupleType):
                members = kind.elements
            elif isinstance(kind, ListType):
                members = [kind.element] * len(node.elts)
            else:
                raise ScriptError(f"{kind} cannot be unpacked into several names", place)
            if len(members) != len(node.elts):
                raise ScriptError(
                    f"need {len(node.elts)} values to unpack but found {len(members)}", place
                )
            return Unpack(
                place,
                [self.target(n, k, place) for n, k in zip(node.elts, members, strict=True)],
            )
        raise FrontendError("a loop's target is a name, or a tuple of names", place)

    def _leave_loop(self, node: ast.stmt, made: type[Node], name: str) -> list[Node]:
        place = self.place(node)
        if self.unrolled:
            raise ScriptError(
                f"Because we emit iteration over Modulelists or Tuples as unrolled loops, we do "
                f"not support break or continue inside the body of these loops ({name})",
                place,
            )
        if not self.loops:
            raise ScriptError(f"{name} outside of a loop", place)
        self.scope.top.exits = True
        return [made(place)]

    def _do_Break(self, node: ast.Break) -> list[Node]:
        return self._leave_loop(node, Break, "break")

    def _do_Continue(self, node: ast.Continue) -> list[Node]:
        return self._leave_loop(node, Continue, "continue")

    # --- the rest

    def _do_Return(self, node: ast.Return) -> list[Node]:
        place = self.place(node)
        value: Expr = Const(place, kinds.NONE, None)
        if node.value is not None:
            value = self.expr_of(self.value(node.value, self.declared), place)
        self.scope.top.exits = True
        return [Return(place, self.as_returned(value, place))]

    def as_returned(self, value: Expr, place: Place) -> Expr:
        """Return a value as the function returns it.

        Raises:
            ScriptError: the function returns another type.
        """
        if self.declared is not None:
            found = self._converted_result(value)
            if found is None:
                raise ScriptError(
                    f"Return value was annotated as having type {self.declared} but is actually of "
                    f"type {value.type}",
                    place,
                )
            return found
        both = value.type if self.returned is None else unify(self.returned, value.type)
        if both is None:
            raise ScriptError(
                f"Previous return statement returned a value of type {self.returned} but this "
                f"return statement returns a value of type {value.type}",
                place,
            )
        self.returned = both
        return value

    def _converted_result(self, value: Expr) -> Expr | None:
        assert self.declared is not None
        if is_subtype(value.type, self.declared):
            return value
        from_code = self.declared in kinds.ENUM_LIKE or value.type in kinds.ENUM_LIKE
        from_number = value.type == kinds.NUMBER
        if from_code or from_number:
            return self.convert(value, self.declared, value.place, "a result")
        return None

    def _do_Raise(self, node: ast.Raise) -> list[Node]:
        place = self.place(node)
        if node.exc is None:
            raise FrontendError("raise without an exception isn't supported", place)
        called = node.exc if isinstance(node.exc, ast.Call) else None
        cls = self.value(node.exc.func if called is not None else node.exc)  # type: ignore[attr-defined]
        if not (
            isinstance(cls, PythonObject)
            and isinstance(cls.obj, type)
            and issubclass(cls.obj, Exception)
        ):
            raise ScriptError("exceptions must derive from BaseException", place)
        message: Expr = Const(place, kinds.STR, "")
        if called is not None and called.args:
            parts = [self.expr(arg) for arg in called.args]
            message = parts[0] if len(parts) == 1 else self.make_tuple(parts, place)
            if message.type != kinds.STR:
                found = choose_builtin("str", [message], {}, place)
                assert found is not None
                message = found
        self.scope.top.exits = True
        name = f"{cls.obj.__module__}.{cls.obj.__name__}"
        return [Raise(place, cls.obj, name, message)]

    def _do_Assert(self, node: ast.Assert) -> list[Node]:
        condition, (yes, no) = self.condition(node.test)
        message = None
        if node.msg is not None:
            with self.block():
                self.scope.refine(no)
                message = self.expr(node.msg)
        self.scope.refine(yes)
        if constant_condition(condition) is False:
            self.scope.top.exits = True  # what follows is not looked at
        return [Assert(self.place(node), condition, message)]

    def _do_Expr(self, node: ast.Expr) -> list[Node]:
        if isinstance(node.value, ast.Constant):
            return []
        if isinstance(node.value, (ast.Yield, ast.YieldFrom, ast.Await)):
            name = type(node.value).__name__
            raise FrontendError(f"{name} aren't supported", self.place(node))
        value = self.value(node.value)
        return [Do(self.place(node), value)] if isinstance(value, Expr) else []

    def _do_FunctionDef(self, node: ast.FunctionDef) -> list[Node]:
        if not getattr(self.names, "has_closures", False) or node.args.args:
            raise FrontendError(_REFUSED["FunctionDef"], self.place(node))
        self.scope.top.names[node.name] = Closure(node)
        return []

    def _do_Pass(self, node: ast.Pass) -> list[Node]:
        return []

    def _do_Delete(self, node: ast.Delete) -> list[Node]:
        made: list[Node] = []
        for target in node.targets:
            place = self.place(target)
            place.last_column = (target.end_col_offset or 0) + self.source.indent
            if isinstance(target, ast.Name):
                self.lookup(target.id, place)
                self.scope.top.names.pop(target.id, None)
                continue
            if not isinstance(target, ast.Subscript):
                raise FrontendError("del takes names, and elements of lists and dicts", place)
            if isinstance(target.slice, (ast.Slice, ast.Tuple)):
                raise ScriptError(
                    "Del statements only support deletion at a single index, slicing is not "
                    "supported",
                    place,
                )
            args = [self.expr(target.value), self.expr(target.slice)]
            if isinstance(args[0].type, ClassType):
                removed = self.call_method(args[0], "__delitem__", args[1:], {}, place)
                made.append(Do(place, removed))
                continue
            found = choose_builtin("Delete", args, {}, place)
            if found is None:
                raise ScriptError(f"'{args[0].type}' object does not support deletion", place)
            made.append(Do(place, found))
        return made

    def _do_With(self, node: ast.With) -> list[Node]:
        contexts: list[Expr] = []
        names: list[Any] = []
        for item in node.items:
            place = self.place(item.context_expr)
            context = self.expr(item.context_expr)
            entered = self.world.entered(self, context, place)
            contexts.append(context)
            names.append(None)
            if item.optional_vars is not None:
                names[-1] = self.target(item.optional_vars, entered, place)
        body = self.body(node.body)
        return [With(self.place(node), contexts, names, body)]


class Closure(Value):
    """A function inside of a function of an archive, made for `fork`: one call."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node

    def __str__(self) -> str:
        return f"closure {self.node.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Return the call that it makes."""
        last = self.node.body[-1]
        with check.block():
            if check.body(self.node.body[:-1]) or not isinstance(last, ast.Return):
                raise ScriptError("a closure of an archive makes one call", place)
            found: Expr | Value = check.value(last.value)
            return found


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
