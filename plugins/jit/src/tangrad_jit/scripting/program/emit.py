"""From the typed tree to Python code, which CPython compiles and runs.

Local variables stay local variables, loops stay loops, and calls of ops are the calls that eager
programs make: a scripted function costs no more than Python, from its first call on. What Python
does otherwise than PyTorch's scripts, such as integers beyond 64 bits, is spelled out. Every node
of the code has the place of the source that it came from, so that errors are told where they are.
"""

from __future__ import annotations

import ast
import builtins
import math
from functools import cache
from typing import Any

from tangrad_jit.scripting.program import codes, complex_numbers, numbers, texts, threads, values
from tangrad_jit.scripting.program.lifetimes import last_uses
from tangrad_jit.scripting.program.retelling import MARK, set_place
from tangrad_jit.scripting.program.sizes import is_small, small_variables
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ListType, ModuleType, TupleType

__all__ = ["Emitter", "filled", "program_of"]

_RUNTIME = (numbers, complex_numbers, values, texts, codes, threads)
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


def program_of(unit: Any) -> Any:
    """Return the function of Python that runs a unit; it is made once."""
    if unit.program is None:
        unit.program = Emitter(unit).function()
    return unit.program


@cache
def _parsed(template: str) -> ast.expr:
    return ast.parse(template, mode="eval").body


class Emitter:
    """Make the code of one unit.

    Attributes:
        entered: returns what runs another unit that is called. The machine, which runs parts of
            its programs as Python code, puts its own there.
    """

    entered: Any = staticmethod(program_of)

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self.namespace: dict[str, Any] = {MARK: unit, "__builtins__": builtins}
        self._held: dict[int, str] = {}
        self._inner = 0
        self._small = small_variables(unit)
        self._last_uses: dict[int, list[str]] = {}

    def function(self) -> Any:
        """Return the compiled function."""
        unit = self.unit
        self._last_uses = last_uses(unit)
        body = self.statements(unit.body)
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(p.name) for p in unit.parameters],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        )
        name = unit.node.name
        made = ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])
        set_place(made, unit.place())
        for argument in arguments.args:
            set_place(argument, unit.place())
        module = ast.Module([made], [])
        code = compile(module, unit.source.file, "exec", dont_inherit=True)
        exec(code, self.namespace)
        return self.namespace[name]

    # --- names of the code's globals

    def _global(self, value: Any, prefix: str = "_c") -> ast.expr:
        name = self._held.get(id(value))
        if name is None:
            name = self._held[id(value)] = f"{prefix}_{len(self._held)}"
            self.namespace[name] = value
        return ast.Name(name, ast.Load())

    def _runtime(self, name: str) -> ast.expr:
        """Return a function of the runtime, or one of Python's under a name of its own."""
        if name.startswith("rt_"):
            self.namespace[name] = next(
                found for found in (getattr(m, name, None) for m in _RUNTIME) if found is not None
            )
            return ast.Name(name, ast.Load())
        hidden = f"_b_{name}"
        self.namespace[hidden] = getattr(builtins, name)
        return ast.Name(hidden, ast.Load())

    def _call(self, name: str, *args: ast.expr) -> ast.expr:
        return ast.Call(self._runtime(name), list(args), [])

    # --- expressions

    def expr(self, node: tree.Expr) -> ast.expr:
        """Return the code of an expression."""
        made: ast.expr = getattr(self, f"_on_{type(node).__name__}")(node)
        return set_place(made, node.place)

    def _each(self, nodes: list[tree.Expr]) -> list[ast.expr]:
        return [self.expr(node) for node in nodes]

    def _on_Const(self, node: tree.Const) -> ast.expr:
        value = node.value
        if type(value) in (bool, int, str, type(None), type(...)):
            return ast.Constant(value)
        if type(value) is float and math.isfinite(value):
            return ast.Constant(value)
        held = self._global(value)
        if type(value) in (list, dict):
            return self._call("rt_fresh", held)
        return held

    def _on_Local(self, node: tree.Local) -> ast.expr:
        return ast.Name(node.name, ast.Load())

    def _on_Apply(self, node: tree.Apply) -> ast.expr:
        template = node.builtin.template
        kind, _, bare = template.partition(": ") if ": " in template[:5] else ("", "", template)
        if kind == "div":
            return self._divided(node)
        args = self._each(node.args)
        made = filled(self, bare, args)
        if kind == "int" and not is_small(node, self._small):
            return self._wrapped(made)
        return made

    def _wrapped(self, made: ast.expr) -> ast.expr:
        """Return an integer within 64 bits: as it is where it is within them."""
        if self._inner:
            return self._call("rt_wrap", made)
        stored = ast.NamedExpr(ast.Name("_w", ast.Store()), made)
        test = ast.Compare(
            ast.Constant(_LOW), [ast.LtE(), ast.LtE()], [stored, ast.Constant(_HIGH)]
        )
        again = ast.Name("_w", ast.Load())
        return ast.IfExp(test, again, self._call("rt_wrap", ast.Name("_w", ast.Load())))

    def _divided(self, node: tree.Apply) -> ast.expr:
        left, right = node.args
        known = isinstance(right, tree.Const) and right.value != 0
        if known and all(
            arg.type == kinds.FLOAT or is_small(arg, self._small) for arg in node.args
        ):
            return ast.BinOp(self.expr(left), ast.Div(), self.expr(right))
        return self._call("rt_div", self.expr(left), self.expr(right))

    def _on_OpCall(self, node: tree.OpCall) -> ast.expr:
        made = self._op(node)
        if node.type == ListType(kinds.TENSOR):
            return self._call("list", made)
        return made

    def _op(self, node: tree.OpCall) -> ast.expr:
        args = self._each(node.args)
        keywords = [ast.keyword(name, self.expr(value)) for name, value in node.kwargs.items()]
        if isinstance(node.callee, str):
            return ast.Call(ast.Attribute(args[0], node.callee, ast.Load()), args[1:], keywords)
        return ast.Call(self._global(node.callee, "_f"), args, keywords)

    def _on_Call(self, node: tree.Call) -> ast.expr:
        return ast.Call(self._unit(node.unit), self._each(node.args), [])

    def _unit(self, unit: Any) -> ast.expr:
        return self._global(self.entered(unit), f"_u_{unit.node.name}")

    def _on_Invoke(self, node: tree.Invoke) -> ast.expr:
        owner = self.expr(node.owner)
        args = self._each(node.args)
        if node.unit is None:
            return ast.Call(ast.Attribute(owner, node.name, ast.Load()), args, [])
        return ast.Call(self._unit(node.unit), [owner, *args], [])

    def _on_PythonCall(self, node: tree.PythonCall) -> ast.expr:
        keywords = [ast.keyword(name, self.expr(value)) for name, value in node.kwargs.items()]
        made = ast.Call(self._global(node.callee, "_p"), self._each(node.args), keywords)
        if node.type == kinds.ANY:
            return made
        return self._call("rt_returned", made, self._global(node.type), ast.Constant(node.name))

    def _on_New(self, node: tree.New) -> ast.expr:
        unit = node.unit
        init = None if node.args is None else unit.methods.get("__init__")
        program = None if init is None else program_of(init)
        return ast.Call(
            self._runtime("rt_new"),
            [self._global(unit.cls), self._global(program), *self._each(node.args or [])],
            [],
        )

    def _on_Fork(self, node: tree.Fork) -> ast.expr:
        call = self.expr(node.call)
        start = "rt_await" if isinstance(node.type, kinds.AwaitType) else "rt_fork"
        if isinstance(call, ast.Call):
            return ast.Call(self._runtime(start), [call.func, *call.args], call.keywords)
        names = sorted({n.name for n in tree.every(node.call) if isinstance(n, tree.Local)})
        arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
        given: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        return ast.Call(self._runtime(start), [ast.Lambda(arguments, call), *given], [])

    def _on_GetAttr(self, node: tree.GetAttr) -> ast.expr:
        if isinstance(node.owner.type, ModuleType) and isinstance(node.type, ModuleType):
            inner = ast.Attribute(self.expr(node.owner), "_modules", ast.Load())
            return ast.Subscript(inner, ast.Constant(node.name), ast.Load())
        found = ast.Attribute(self.expr(node.owner), node.name, ast.Load())
        if node.name == "shape" and node.owner.type == kinds.TENSOR:
            return self._call("list", found)
        if not node.name.isidentifier():
            return self._call("getattr", self.expr(node.owner), ast.Constant(node.name))
        return found

    def _on_MakeList(self, node: tree.MakeList) -> ast.expr:
        return ast.List(self._each(node.elements), ast.Load())

    def _on_MakeTuple(self, node: tree.MakeTuple) -> ast.expr:
        elements = self._each(node.elements)
        assert isinstance(node.type, TupleType)
        if node.type.python_class is not None:
            return ast.Call(self._global(node.type.python_class), elements, [])
        return ast.Tuple(elements, ast.Load())

    def _on_MakeDict(self, node: tree.MakeDict) -> ast.expr:
        return ast.Dict(list(self._each(node.keys)), self._each(node.values))

    def _on_TupleItem(self, node: tree.TupleItem) -> ast.expr:
        return ast.Subscript(self.expr(node.value), ast.Constant(node.index), ast.Load())

    def _on_SliceOf(self, node: tree.SliceOf) -> ast.expr:
        parts = [None if p is None else self.expr(p) for p in (node.start, node.stop, node.step)]
        return ast.Slice(*parts)

    def _on_Subscript(self, node: tree.Subscript) -> ast.expr:
        return ast.Subscript(self.expr(node.owner), self._index(node.parts), ast.Load())

    def _index(self, parts: list[tree.Expr]) -> ast.expr:
        made = self._each(parts)
        if len(made) == 1:
            return made[0]
        return ast.Tuple(made, ast.Load())

    def _on_And(self, node: tree.And) -> ast.expr:
        return ast.BoolOp(ast.And(), [self.expr(node.left), self.expr(node.right)])

    def _on_Or(self, node: tree.Or) -> ast.expr:
        return ast.BoolOp(ast.Or(), [self.expr(node.left), self.expr(node.right)])

    def _on_Not(self, node: tree.Not) -> ast.expr:
        return ast.UnaryOp(ast.Not(), self.expr(node.value))

    def _on_IfElse(self, node: tree.IfElse) -> ast.expr:
        return ast.IfExp(self.expr(node.condition), self.expr(node.body), self.expr(node.orelse))

    def _on_IsInstance(self, node: tree.IsInstance) -> ast.expr:
        return self._call("rt_is", self.expr(node.value), self._global(node.kinds))

    def _on_Convert(self, node: tree.Convert) -> ast.expr:
        value, kind = self.expr(node.value), node.kind
        if kind in ("refine", "cast"):
            return value
        if kind.startswith("tolist"):
            _, element, depth = kind.split()
            return self._call("rt_tolist", value, ast.Constant(element), ast.Constant(int(depth)))
        if kind == "number":
            return ast.Call(ast.Attribute(value, "item", ast.Load()), [], [])
        if kind.endswith(" of code"):
            return self._call("rt_of_code", value, ast.Constant(kind.removesuffix(" of code")))
        if node.value.type == kinds.TENSOR and kind in ("int", "float", "complex"):
            return self._call("rt_implicit", value, ast.Constant(kind))
        called = {
            "int": "rt_int",
            "float": "float",
            "bool": "bool",
            "complex": "complex",
            "code": "rt_code",
            "device": "rt_device",
            "list": "list",
            "list of int": "rt_ints",
            "unwrap": "rt_unwrap",
        }
        return self._call(called[kind], value)

    def _on_Comprehension(self, node: tree.Comprehension) -> ast.expr:
        over = self._iterated(node.iteration, True)
        self._inner += 1
        target = self._target(node.target)
        value = self.expr(node.value)
        generator = ast.comprehension(target, over, [], 0)
        made: ast.expr
        if node.key is None:
            made = ast.ListComp(value, [generator])
        else:
            made = ast.DictComp(self.expr(node.key), value, [generator])
        self._inner -= 1
        return made

    # --- loops

    def _iterated(self, over: tree.Iteration, inner: bool, changes: bool = True) -> ast.expr:
        """Return what a loop goes over.

        Args:
            over: what it is.
            inner: whether it stands in a comprehension, which takes no assignments.
            changes: whether the body may change lists, whose length counts at the beginning.
        """
        self._inner += inner
        try:
            if over.kind == "range":
                return ast.Call(self._runtime("range"), self._each(over.values), [])
            if over.kind in ("enumerate", "zip"):
                parts = [self._iterated(part, False, changes) for part in over.parts]
                return ast.Call(self._runtime(over.kind), [*parts, *self._each(over.values)], [])
            value = over.values[0]
            if isinstance(value, tree.OpCall) and over.kind == "list":
                return set_place(self._op(value), value.place)
            made = self.expr(value)
            if over.kind == "dict":
                return self._call("list", made)
            if over.kind == "list" and changes and not inner:
                return self._call("rt_over", made)
            return made
        finally:
            self._inner -= inner

    def _target(self, target: Any) -> ast.expr:
        if isinstance(target, str):
            return ast.Name(target, ast.Store())
        parts = [self._target(part) for part in target.targets]
        if target.star >= 0:
            parts[target.star] = ast.Starred(parts[target.star], ast.Store())
        return ast.Tuple(parts, ast.Store())

    # --- statements

    def statements(self, nodes: list[tree.Node]) -> list[ast.stmt]:
        """Return the code of statements."""
        made: list[ast.stmt] = []
        for node in nodes:
            statements = getattr(self, f"_do_{type(node).__name__}")(node)
            made.extend(set_place(statement, node.place) for statement in statements)
            for name in self._last_uses.get(id(node), ()):
                gone = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))
                made.append(set_place(gone, node.place))
        return made or [ast.Pass()]

    def _do_Assign(self, node: tree.Assign) -> list[ast.stmt]:
        if isinstance(node.target, tree.Unpack) and isinstance(node.value, tree.OpCall):
            value = set_place(self._op(node.value), node.value.place)
        else:
            value = self.expr(node.value)
        return [ast.Assign([set_place(self._target(node.target), node.place)], value)]

    def _do_SetAttr(self, node: tree.SetAttr) -> list[ast.stmt]:
        target = ast.Attribute(self.expr(node.owner), node.name, ast.Store())
        return [ast.Assign([target], self.expr(node.value))]

    def _do_SetItem(self, node: tree.SetItem) -> list[ast.stmt]:
        value = self.expr(node.value)
        target = ast.Subscript(self.expr(node.owner), self._index(node.parts), ast.Store())
        return [ast.Assign([target], value)]

    def _do_Do(self, node: tree.Do) -> list[ast.stmt]:
        return [ast.Expr(self.expr(node.value))]

    def _do_If(self, node: tree.If) -> list[ast.stmt]:
        test, body = self.expr(node.condition), self.statements(node.body)
        return [ast.If(test, body, self.statements(node.orelse) if node.orelse else [])]

    def _do_While(self, node: tree.While) -> list[ast.stmt]:
        return [ast.While(self.expr(node.condition), self.statements(node.body), [])]

    def _do_For(self, node: tree.For) -> list[ast.stmt]:
        over = self._iterated(node.iteration, False, _changes(node.body))
        body = self.statements(node.body)
        return [ast.For(self._target(node.target), over, body, [])]

    def _do_With(self, node: tree.With) -> list[ast.stmt]:
        items = []
        for context, name in zip(node.contexts, node.names, strict=True):
            made = self.expr(context)
            if isinstance(context.type, kinds.ClassType):
                methods = context.type.unit.methods
                made = self._call(
                    "rt_context",
                    made,
                    self._unit(methods["__enter__"]),
                    self._unit(methods["__exit__"]),
                )
            items.append(ast.withitem(made, None if name is None else self._target(name)))
        return [ast.With(items, self.statements(node.body))]

    def _do_Break(self, node: tree.Break) -> list[ast.stmt]:
        return [ast.Break()]

    def _do_Continue(self, node: tree.Continue) -> list[ast.stmt]:
        return [ast.Continue()]

    def _do_Return(self, node: tree.Return) -> list[ast.stmt]:
        return [ast.Return(self.expr(node.value))]

    def _do_Raise(self, node: tree.Raise) -> list[ast.stmt]:
        made = self._call(
            "rt_raise",
            self._global(node.exception),
            ast.Constant(node.name),
            self.expr(node.message),
        )
        return [ast.Raise(made, None)]

    def _do_Assert(self, node: tree.Assert) -> list[ast.stmt]:
        message = ast.Constant("") if node.message is None else self.expr(node.message)
        test = ast.UnaryOp(ast.Not(), self.expr(node.condition))
        return [ast.If(test, [ast.Raise(self._call("rt_assert", message), None)], [])]


class _Filled(ast.NodeTransformer):
    """A template with its arguments; a new tree, as arguments have places of their own."""

    def __init__(self, emitter: Emitter, args: list[ast.expr]) -> None:
        self.emitter, self.args = emitter, args

    def generic_visit(self, node: ast.AST) -> ast.AST:
        fields = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                fields[name] = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]
            elif isinstance(value, ast.AST):
                fields[name] = self.visit(value)
            else:
                fields[name] = value
        return type(node)(**fields)

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id == "_args":
            return ast.Tuple(list(self.args[1:]), ast.Load())
        if node.id[0] == "_" and node.id[1:].isdigit():
            return self.args[int(node.id[1:])]
        return self.emitter._runtime(node.id)

    def visit_Call(self, node: ast.Call) -> Any:
        if (
            len(node.args) == 1
            and isinstance(node.args[0], ast.Name)
            and node.args[0].id == "_args"
        ):
            return ast.Call(self.visit(node.func), [ast.Tuple(list(self.args), ast.Load())], [])
        return self.generic_visit(node)


def filled(emitter: Emitter, template: str, args: list[ast.expr]) -> ast.expr:
    """Return the code of a template with its arguments."""
    made: ast.expr = _Filled(emitter, args).visit(_parsed(template))
    return made


def _changes(body: list[tree.Node]) -> bool:
    """Whether statements may change a list: directly, or by what they call."""
    for node in tree.every(body):
        if isinstance(node, tree.Apply) and node.builtin.writes:
            return True
        if isinstance(node, (tree.Call, tree.PythonCall, tree.New, tree.Fork)):
            return True
        if isinstance(node, tree.Invoke):
            return True
    return False
