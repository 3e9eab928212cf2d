"""From the typed tree to a graph: variables become values that branches and loops hand on.

A return, break or continue inside of a branch stays a node of its own (`prim::ReturnStmt`, ...),
as in PyTorch's graphs before its passes.
"""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.code.canonical import order_outputs
from tangrad_jit.scripting.code.constants import pool_constants
from tangrad_jit.scripting.code.graph import Block, ScriptGraph, ScriptNode, ScriptValue
from tangrad_jit.scripting.recording.unit import RecordedUnit
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import Type

__all__ = ["graph_of"]


def graph_of(unit: Any, inline: bool = False, runs: bool = False) -> ScriptGraph:
    """Return the graph of a function or method.

    Args:
        unit: the function.
        inline: whether what it calls stands in the place of calls.
        runs: whether constants stand once also where it is a trace, as in what runs.
    """
    kept: dict[Any, ScriptGraph] = unit.__dict__.setdefault("graphs", {})
    pools = runs or not isinstance(unit, RecordedUnit)
    if (inline, pools) in kept:
        return kept[inline, pools]
    lowering = _Lowering(inline, getattr(unit, "shapes", {}))
    graph = kept[inline, pools] = ScriptGraph()
    lowering.block = graph
    env = {}
    used = {node.name for node in tree.every(unit.body) if isinstance(node, tree.Local)}
    for parameter in unit.parameters:
        value = lowering.value(parameter.name, parameter.type)
        if parameter.name not in used:
            value.rename(parameter.name)  # as in PyTorch's graphs
        value.shown = lowering.shape_of(parameter.name)
        graph.given.append(value)
        env[parameter.name] = value
    lowering.env = env
    lowering.statements(unit.body)
    last = graph.held[-1] if graph.held else None
    if last is not None and last.kind() == "prim::ReturnStmt":
        graph.held.pop()
        graph.returned = list(last.inputs())
    if pools:  # graphs of traces have constants where they are used
        pool_constants(graph)
    graph.take_values()
    order_outputs(graph)
    return graph


#: Ops of two values of which the second may have a factor, which graphs show.
_SCALED = frozenset(("aten::add", "aten::sub", "aten::add_", "aten::sub_", "aten::rsub"))
_FUNCTION = kinds.Primitive("Function")


class _Lowering:
    block: Block
    env: dict[str, ScriptValue]

    def __init__(self, inline: bool, shapes: dict[str, str]) -> None:
        self._shapes = shapes
        self._inline, self._count, self._depth = inline, 0, 0
        self._numbers: dict[str, int] = {}

    def shape_of(self, name: str) -> str:
        """Return the type that a trace has seen in a variable, or ""."""
        return "" if self._depth else self._shapes.get(name, "")

    def value(self, name: str, kind: Type, producer: Any = None) -> ScriptValue:
        """Return a new value."""
        if name:
            number = self._numbers[name] = self._numbers.get(name, 0) + 1
            return ScriptValue(f"{name}.{number}", kind, producer)
        self._count += 1
        return ScriptValue(str(self._count), kind, producer)

    def node(
        self, kind: str, given: list[ScriptValue], result: Type | None, place: Place, **named: Any
    ) -> ScriptValue:
        """Add a node with one result, or none."""
        made = ScriptNode(kind, given, place)
        made.attributes = named
        self.block.held.append(made)
        value = self.value("", result or kinds.NONE, made)
        return made.add_output(value) if result is not None else value

    # --- expressions

    def expr(self, node: Any) -> ScriptValue:
        """Add the nodes of an expression, and return its value."""
        special = getattr(self, f"_on_{type(node).__name__}", None)
        if special is not None:
            found: ScriptValue = special(node)
            return found
        name, parts, named = _normal(*_form(node))
        given = [self.expr(part) for part in parts]
        if name in _SCALED and len(given) == 2 and node.type == kinds.TENSOR:
            given.append(self.node("prim::Constant", [], kinds.INT, node.place, value=1))
        return self.node(name, given, node.type, node.place, **named)

    def _on_Local(self, node: tree.Local) -> ScriptValue:
        found = self.env.get(node.name)
        return found if found is not None else self.value(node.name, node.type)

    def _on_Const(self, node: tree.Const) -> ScriptValue:
        named = {} if node.value is None else {"value": node.value}
        return self.node("prim::Constant", [], node.type, node.place, **named)

    def _on_Convert(self, node: tree.Convert) -> ScriptValue:
        value = self.expr(node.value)
        names = {
            "int": "aten::IntImplicit",
            "float": "aten::FloatImplicit",
            "bool": "aten::Bool",
            "complex": "aten::ComplexImplicit",
            "number": "aten::item",
            "list": "prim::ListConstruct",
            "unwrap": "aten::_unwrap_optional",
            "device": "aten::device",
        }
        if node.kind == "code" or node.kind.endswith(" of code"):
            return value
        kind = names.get(node.kind, "prim::unchecked_cast")
        return self.node(kind, [value], node.type, node.place)

    def _on_Call(self, node: tree.Call) -> ScriptValue:
        given = [self.expr(arg) for arg in node.args]
        return self._called(node.unit, given, node, "prim::CallFunction")

    def _on_Invoke(self, node: tree.Invoke) -> ScriptValue:
        given = [self.expr(node.owner), *(self.expr(arg) for arg in node.args)]
        return self._called(node.unit, given, node, "prim::CallMethod")

    def _called(self, unit: Any, given: list[ScriptValue], node: Any, kind: str) -> ScriptValue:
        inline = self._inline or getattr(unit, "stands_for_op", False)
        if not inline or unit is None or self._depth > 64 or not _is_straight(unit.body):
            if kind == "prim::CallMethod":
                return self.node(kind, given, node.type, node.place, name=node.name)
            called = self.node("prim::Constant", [], _FUNCTION, node.place, name=unit.node.name)
            return self.node(kind, [called, *given], node.type, node.place)
        outside, self.env = (
            self.env,
            dict(zip([p.name for p in unit.parameters], given, strict=True)),
        )
        self._depth += 1
        self.statements(unit.body[:-1])
        result = self.expr(unit.body[-1].value)
        self._depth -= 1
        self.env = outside
        return result

    def _on_And(self, node: tree.And) -> ScriptValue:
        no = tree.Const(node.place, kinds.BOOL, False)
        return self._chosen(node.left, node.right, no, node)

    def _on_Or(self, node: tree.Or) -> ScriptValue:
        yes = tree.Const(node.place, kinds.BOOL, True)
        return self._chosen(node.left, yes, node.right, node)

    def _on_IfElse(self, node: tree.IfElse) -> ScriptValue:
        return self._chosen(node.condition, node.body, node.orelse, node)

    def _chosen(self, condition: Any, body: Any, orelse: Any, node: Any) -> ScriptValue:
        made = ScriptNode("prim::If", [self.expr(condition)], node.place)
        self.block.held.append(made)
        for branch in (body, orelse):
            inner = self._within(made)
            outside, self.block = self.block, inner
            inner.returned = [self.expr(branch)]
            self.block = outside
        return made.add_output(self.value("", node.type, made))

    def _within(self, node: ScriptNode) -> Block:
        inner = Block()
        node.inner.append(inner)
        return inner

    def _on_Comprehension(self, node: tree.Comprehension) -> ScriptValue:
        empty: tree.Expr = tree.MakeList(node.place, node.type, [])
        if node.key is not None:
            empty = tree.MakeDict(node.place, node.type, [], [])
        made = self.expr(empty)
        name = f"_made{self._count}"
        self.env[name] = made
        holder = tree.Local(node.place, node.type, name)
        if node.key is None:
            builtin, args = tree.Builtin("append", ""), [holder, node.value]
        else:
            builtin, args = tree.Builtin("_set_item", ""), [holder, node.key, node.value]
        step = tree.Do(node.place, tree.Apply(node.place, kinds.NONE, builtin, args))
        self._do_For(tree.For(node.place, node.target, node.iteration, [step]))
        return made

    # --- statements

    def statements(self, nodes: list[tree.Node]) -> None:
        """Add the nodes of statements."""
        for node in nodes:
            getattr(self, f"_do_{type(node).__name__}")(node)

    def _store(self, target: Any, value: ScriptValue, place: Place) -> None:
        if isinstance(target, str):
            if not target.startswith("_") and value.debugName().isdigit():
                number = self._numbers[target] = self._numbers.get(target, 0) + 1
                value.rename(f"{target}.{number}")
            value.shown = value.shown or self.shape_of(target)
            self.env[target] = value
            return
        kind = value.held
        unpack = "prim::ListUnpack" if isinstance(kind, kinds.ListType) else "prim::TupleUnpack"
        made = ScriptNode(unpack, [value], place)
        self.block.held.append(made)
        for k, part in enumerate(target.targets):
            members = getattr(kind, "elements", None)
            member = members[k] if members and k < len(members) else getattr(kind, "element", kind)
            self._store(part, made.add_output(self.value("", member, made)), place)

    def _do_Assign(self, node: tree.Assign) -> None:
        self._store(node.target, self.expr(node.value), node.place)

    def _do_SetAttr(self, node: tree.SetAttr) -> None:
        given = [self.expr(node.owner), self.expr(node.value)]
        self.node("prim::SetAttr", given, None, node.place, name=node.name)

    def _do_SetItem(self, node: tree.SetItem) -> None:
        given = [self.expr(n) for n in (node.owner, *node.parts, node.value)]
        self.node("aten::index_put_", given, None, node.place)

    def _do_Do(self, node: tree.Do) -> None:
        self.expr(node.value)

    def _do_If(self, node: tree.If) -> None:
        made = ScriptNode("prim::If", [self.expr(node.condition)], node.place)
        self.block.held.append(made)
        before = dict(self.env)
        after = []
        for body in (node.body, node.orelse):
            outside, self.block = self.block, self._within(made)
            self.env = dict(before)
            self.statements(body)
            after.append((self.block, self.env))
            self.block = outside
        (one, then), (two, other) = after
        self.env = before
        names = [n for n in {**then, **other} if n in then and n in other]
        for name in names:
            if then[name] is other[name]:
                self.env[name] = then[name]
                continue
            one.returned.append(then[name])
            two.returned.append(other[name])
            kind = kinds.unify(then[name].held, other[name].held) or then[name].held
            self.env[name] = made.add_output(self.value(name, kind, made))

    def _loop(
        self,
        place: Place,
        head: list[ScriptValue],
        body: list[tree.Node],
        condition: Any,
        begin: Any = None,
    ) -> None:
        """Add a loop whose variables are what its body assigns and was there before."""
        made = ScriptNode("prim::Loop", head, place)
        self.block.held.append(made)
        inner = self._within(made)
        count = self.value("i", kinds.INT)
        inner.given.append(count)
        before = dict(self.env)
        carried = [name for name in before if name in tree.assigned(body)]
        for name in carried:
            value = self.value(name, before[name].held)
            inner.given.append(value)
            self.env[name] = value
            made._given.append(before[name])
        outside, self.block = self.block, inner
        if begin is not None:
            begin(count)
        self.statements(body)
        inner.returned = [
            condition() if condition is not None else self._true(place),
            *(self.env[name] for name in carried),
        ]
        self.block = outside
        self.env = before
        for name in carried:
            self.env[name] = made.add_output(self.value(name, before[name].held, made))

    def _true(self, place: Place) -> ScriptValue:
        return self.node("prim::Constant", [], kinds.BOOL, place, value=True)

    def _do_While(self, node: tree.While) -> None:
        most = self.node("prim::Constant", [], kinds.INT, node.place, value=(1 << 63) - 1)
        first = self.expr(node.condition)
        self._loop(node.place, [most, first], node.body, lambda: self.expr(node.condition))

    def _do_For(self, node: tree.For) -> None:
        over = self._iterated(node.iteration, node.place)
        count = self.node("aten::len", [over], kinds.INT, node.place)
        head = [count, self._true(node.place)]

        def begin(number: ScriptValue) -> None:
            item = self.node(
                "aten::__getitem__", [over, number], node.iteration.element, node.place
            )
            self._store(node.target, item, node.place)

        self._loop(node.place, head, node.body, None, begin)

    def _iterated(self, over: tree.Iteration, place: Place) -> ScriptValue:
        given = [self._iterated(part, place) for part in over.parts]
        given += [self.expr(value) for value in over.values]
        if over.kind in ("list", "str", "dict", "tensor"):
            return given[0]
        name = "aten::range" if over.kind == "range" else f"prim::{over.kind}"
        return self.node(name, given, kinds.ListType(over.element), place)

    def _do_With(self, node: tree.With) -> None:
        entered = [self.expr(context) for context in node.contexts]
        for value, name in zip(entered, node.names, strict=True):
            held = self.node("prim::Enter", [value], kinds.ANY, node.place)
            if name is not None:
                self._store(name, held, node.place)
        self.statements(node.body)
        for value in reversed(entered):
            self.node("prim::Exit", [value], kinds.NONE, node.place)

    def _do_Break(self, node: tree.Break) -> None:
        self.node("prim::BreakStmt", [], None, node.place)

    def _do_Continue(self, node: tree.Continue) -> None:
        self.node("prim::ContinueStmt", [], None, node.place)

    def _do_Return(self, node: tree.Return) -> None:
        self.node("prim::ReturnStmt", [self.expr(node.value)], None, node.place)

    def _do_Raise(self, node: tree.Raise) -> None:
        message = self.expr(node.message)
        self.node("prim::RaiseException", [message], None, node.place, name=node.name)

    def _do_Assert(self, node: tree.Assert) -> None:
        made = ScriptNode("prim::If", [self.expr(node.condition)], node.place)
        self.block.held.append(made)
        self._within(made)
        outside, self.block = self.block, self._within(made)
        text = node.message or tree.Const(node.place, kinds.STR, "")
        self.node("prim::RaiseException", [self.expr(text)], None, node.place)
        self.block = outside


# Further names of ops -> the one that graphs have.
_ALIASES = {
    f"aten::{alias}{end}": f"aten::{name}{end}"
    for name, aliases in {
        "div": "divide true_divide",
        "mul": "multiply",
        "sub": "subtract",
        "abs": "absolute",
        "neg": "negative",
        "clamp": "clip",
        "trunc": "fix",
        "gt": "greater",
        "ge": "greater_equal",
        "lt": "less",
        "le": "less_equal",
        "ne": "not_equal",
        "acos": "arccos",
        "asin": "arcsin",
        "atan": "arctan",
        "acosh": "arccosh",
        "asinh": "arcsinh",
        "atanh": "arctanh",
        "cat": "concat concatenate",
        "outer": "ger",
    }.items()
    for alias in aliases.split()
    for end in ("", "_")
}


def _normal(name: str, parts: list[Any], named: dict[str, Any]) -> tuple[str, list[Any], Any]:
    """Return the form in which graphs have what may be written in several."""
    name = _ALIASES.get(name, name)
    if name == "aten::rsub" and len(parts) == 2 and parts[1].type == kinds.TENSOR:
        return "aten::sub", parts[::-1], named
    whether = {"aten::__is__": "aten::eq", "aten::__isnot__": "aten::ne"}.get(name)
    if whether is not None and all(part.type == kinds.BOOL for part in parts):
        return whether, parts, named
    return name, parts, named


def _form(node: Any) -> tuple[str, list[Any], dict[str, Any]]:
    """Return a node's name in graphs, what it takes, and its attributes."""
    if isinstance(node, tree.Apply):
        return f"{node.builtin.namespace}::{node.builtin.name}", node.args, {}
    if isinstance(node, tree.OpCall):
        return node.name, [*node.args, *node.kwargs.values()], {}
    if isinstance(node, tree.PythonCall):
        return "prim::PythonOp", [*node.args, *node.kwargs.values()], {"name": node.name}
    if isinstance(node, tree.New):
        return "prim::CreateObject", node.args or [], {}
    if isinstance(node, tree.Fork):
        return "prim::fork", [node.call], {}
    if isinstance(node, tree.GetAttr):
        if isinstance(node.owner.type, kinds.EnumType):
            return f"prim::Enum{node.name.title()}", [node.owner], {}
        known = node.owner.type == kinds.TENSOR
        return (
            (f"prim::{node.name}", [node.owner], {})
            if known
            else ("prim::GetAttr", [node.owner], {"name": node.name})
        )
    if isinstance(node, tree.MakeDict):
        pairs = zip(node.keys, node.values, strict=True)
        return "prim::DictConstruct", [part for pair in pairs for part in pair], {}
    if isinstance(node, tree.TupleItem):
        return "prim::TupleIndex", [node.value], {"index": node.index}
    if isinstance(node, tree.Subscript):
        return "aten::index", [node.owner, *node.parts], {}
    if isinstance(node, tree.SliceOf):
        return "prim::slice", [p for p in (node.start, node.stop, node.step) if p is not None], {}
    if isinstance(node, tree.Not):
        return "aten::__not__", [node.value], {}
    if isinstance(node, tree.IsInstance):
        return "prim::isinstance", [node.value], {"types": node.kinds}
    name = "prim::ListConstruct" if isinstance(node, tree.MakeList) else "prim::TupleConstruct"
    return name, node.elements, {}


def _is_straight(body: list[tree.Node]) -> bool:
    """Whether a body returns at its end only."""
    return (
        bool(body)
        and isinstance(body[-1], tree.Return)
        and not any(isinstance(node, tree.Return) for node in tree.every(body[:-1]))
    )
