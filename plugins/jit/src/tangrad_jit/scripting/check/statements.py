"""Statements: from syntax to typed nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tangrad_jit.scripting.check.assignments import Assignments
from tangrad_jit.scripting.check.builtins import choose_builtin, to_type
from tangrad_jit.scripting.check.conditions import constant_condition
from tangrad_jit.scripting.check.values import PythonObject, Value
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    Apply,
    Assert,
    Break,
    Const,
    Continue,
    Do,
    Expr,
    For,
    If,
    Local,
    MakeTuple,
    Node,
    Raise,
    Return,
    While,
    With,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    ClassType,
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


class Statements(Assignments):
    """Check statements; makes the body of a function."""

    declared: Type | None = None
    returned: Type | None = None
    loops = 0
    unrolled = 0
    returns_value = False

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

    # --- branches and loops

    def _do_If(self, node: ast.If) -> list[Node]:
        condition, (yes, no) = self.condition(node.test)
        known = constant_condition(condition)
        compared = isinstance(condition, Apply)  # both branches are looked at then
        if known is not None and not compared:
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
        if known is not None:
            return body if known else orelse
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

    def _leave_loop(self, node: ast.stmt, made: type[Node], name: str) -> list[Node]:
        place = self.place(node)
        if self.unrolled:
            raise ScriptError(
                f"Because we emit iteration over Modulelists or Tuples as unrolled loops, we do "
                f"not support break or continue inside the body of these loops ({name})",
                place,
            )
        if not self.loops:
            raise ScriptError(f"SyntaxError: '{name}' outside loop", place)
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
        if isinstance(value.type, TupleType) and isinstance(self.declared, TupleType):
            return to_type(value, self.declared, False)
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
                self.scope.delete(target.id, place)
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
                if "__delitem__" not in args[0].type.unit.methods:
                    raise ScriptError("Class does not define __delitem__", self.place(target))
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
