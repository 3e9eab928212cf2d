"""From the typed tree to Python code whose branches and loops can go into a graph.

`tangrad.export` follows calls, and refuses a program that reads a tensor's value to choose its way.
A script's branches and loops are known, however. Here they become functions that `rt_branch` and
`rt_while` are given, which keep both ways in the graph where the condition is a tensor. A return
inside of a branch takes what follows into the branch, and `break` becomes a flag. A return inside
of a loop stays Python's.
"""

from __future__ import annotations

import ast
from typing import Any

from tangrad_jit.scripting.program import staged_values
from tangrad_jit.scripting.program.emit import Emitter, filled
from tangrad_jit.scripting.program.retelling import set_place
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds

__all__ = ["staged_program_of"]

_MOST_NODES = 20_000  # of a body whose ends have been copied into its branches
_FLAG = "_left"
_LEAVING = (tree.Break, tree.Continue, tree.Return, tree.Raise)
_NUMBERS = (kinds.INT, kinds.FLOAT, kinds.BOOL, kinds.NUMBER)

# Templates of builtins that read numbers, and what is called in their place.
_OF_TEMPLATES: dict[str, tuple[str, ...]] = {
    "_0.item()": ("rt_number", "number"),
    "bool(_0)": ("rt_number", "bool"),
    "float(_0)": ("rt_number", "float"),
    "int(_0)": ("rt_number", "int"),
    "rt_int(_0)": ("rt_number", "int"),
    "rt_int_of_float(_0)": ("rt_number", "int"),
    "not _0": ("rt_not",),
    "min(_0, _1)": ("rt_smaller",),
    "max(_0, _1)": ("rt_greater",),
    "rt_min(_0, _1)": ("rt_smaller",),
    "rt_max(_0, _1)": ("rt_greater",),
    "rt_floordiv(_0, _1)": ("rt_floor_quotient",),
    "rt_remainder(_0, _1)": ("rt_remains",),
}


def staged_program_of(unit: Any) -> Any:
    """Return the function of Python that runs a unit under a tracer; it is made once."""
    found = getattr(unit, "staged", None)
    if found is None:
        found = unit.staged = _StagedEmitter(unit).function()
    return found


class _StagedEmitter(Emitter):
    """Make the code of one unit.

    Attributes:
        defined: the variables that have a value at the current place.
    """

    def __init__(self, unit: Any) -> None:
        super().__init__(unit)
        self.defined = {p.name for p in unit.parameters}
        self._functions = 0
        self._body = _ended(_Structured().statements(unit.body))

    # --- names and expressions

    def _runtime(self, name: str) -> ast.expr:
        own = vars(staged_values).get(name)
        if own is None or not name.startswith("rt_"):
            return super()._runtime(name)
        self.namespace[f"staged_{name}"] = own
        return ast.Name(f"staged_{name}", ast.Load())

    def _unit(self, unit: Any) -> ast.expr:
        return self._global(staged_program_of(unit), f"_u_{unit.node.name}")

    def _on_Apply(self, node: tree.Apply) -> ast.expr:
        staged = _OF_TEMPLATES.get(node.builtin.template)
        if staged is None or any(arg.type == kinds.STR for arg in node.args):
            varying = self._varying(node.args) if node.type == kinds.TENSOR else []
            if not varying:
                return super()._on_Apply(node)
            return self._call("rt_op", self._plain(node), _places(varying), *self._each(node.args))
        name, *constants = staged
        places = ast.Constant(constants[0] if constants else None)
        return self._call(
            "rt_chosen", self._runtime(name), places, self._plain(node), *self._each(node.args)
        )

    def _plain(self, node: tree.Apply) -> ast.expr:
        """Return a builtin as a function."""
        names = [f"_x{k}" for k in range(len(node.args))]
        template = node.builtin.template.partition(": ")
        bare = template[2] if template[1] and len(template[0]) < 4 else node.builtin.template
        body = filled(self, bare, [ast.Name(name, ast.Load()) for name in names])
        taken = ast.arguments([], [ast.arg(x) for x in names], None, [], [], None, [])
        return ast.Lambda(taken, body)

    def _varying(self, args: list[tree.Expr]) -> list[int]:
        """Return the positions of numbers that may depend on a tensor's value."""
        numbers = (k for k, arg in enumerate(args) if arg.type in _NUMBERS)
        return [k for k in numbers if not isinstance(args[k], tree.Const)]

    def _wrapped(self, made: ast.expr) -> ast.expr:
        return self._call("rt_whole", made)

    def _divided(self, node: tree.Apply) -> ast.expr:
        return self._call("rt_quotient", *self._each(node.args))

    def _later(self, node: tree.Expr) -> ast.expr:
        self._inner += 1
        body = self.expr(node)
        self._inner -= 1
        return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)

    def _on_And(self, node: tree.And) -> ast.expr:
        return self._call("rt_and", self.expr(node.left), self._later(node.right))

    def _on_Or(self, node: tree.Or) -> ast.expr:
        return self._call("rt_or", self.expr(node.left), self._later(node.right))

    def _on_Not(self, node: tree.Not) -> ast.expr:
        return self._call("rt_not", self.expr(node.value))

    def _on_IfElse(self, node: tree.IfElse) -> ast.expr:
        sides = self._later(node.body), self._later(node.orelse)
        return self._call("rt_branch", self.expr(node.condition), *sides)

    def _on_Convert(self, node: tree.Convert) -> ast.expr:
        if node.kind in ("bool", "int", "float", "number"):
            return self._call("rt_number", self.expr(node.value), ast.Constant(node.kind))
        return super()._on_Convert(node)

    def _op(self, node: tree.OpCall) -> ast.expr:
        varying = self._varying(node.args)
        if not varying:
            return super()._op(node)
        if isinstance(node.callee, str):
            callee: ast.expr = ast.Constant(node.callee)
        else:
            callee = self._global(node.callee, "_f")
        keywords = [ast.keyword(name, self.expr(value)) for name, value in node.kwargs.items()]
        places = _places(varying)
        call = [callee, places, *self._each(node.args)]
        return ast.Call(self._runtime("rt_op"), call, keywords)

    # --- statements

    def statements(self, nodes: list[tree.Node]) -> list[ast.stmt]:
        return super().statements(self._body if nodes is self.unit.body else nodes)

    def _do_Assign(self, node: tree.Assign) -> list[ast.stmt]:
        made = super()._do_Assign(node)
        self.defined |= tree.assigned([node])
        return made

    def _do_With(self, node: tree.With) -> list[ast.stmt]:
        self.defined |= {name for name in node.names if isinstance(name, str)}
        return super()._do_With(node)

    def _containers(self, nodes: list[tree.Node]) -> ast.expr:
        """Return the lists and dicts from before that statements name, which they may change."""
        kept = (kinds.ListType, kinds.DictType)
        named = {n.name for n in tree.every(nodes) if _is_local(n) and isinstance(n.type, kept)}
        return _names(sorted(named & self.defined), ast.Load())

    def _side(self, nodes: list[tree.Node]) -> tuple[list[ast.stmt], set[str]]:
        """Return the code of a side, and what is defined behind it."""
        before, self.defined = self.defined, set(self.defined)
        made, after = self.statements(nodes), self.defined
        self.defined = before
        return made, after

    def _function(
        self, place: Any, arguments: list[str], given: list[str], body: list[ast.stmt]
    ) -> tuple[ast.stmt, ast.expr]:
        """Return the definition of a function and its name.

        Args:
            place: in the source.
            arguments: its parameters; the last ones, `given`, have the variables as defaults.
        """
        self._functions += 1
        name = f"_s{self._functions}"
        defaults: list[ast.expr] = [ast.Name(x, ast.Load()) for x in given]
        taken = ast.arguments(
            [], [ast.arg(x) for x in (*arguments, *given)], None, [], [], None, defaults
        )
        made = ast.FunctionDef(name=name, args=taken, body=body, decorator_list=[])
        return set_place(made, place), ast.Name(name, ast.Load())

    def _do_If(self, node: tree.If) -> list[ast.stmt]:
        test = self.expr(node.condition)
        (then, first), (orelse, second) = self._side(node.body), self._side(node.orelse)
        ends = [_ends(side) for side in (node.body, node.orelse)]
        returns = all(_returns(side) for side in (node.body, node.orelse))
        if not returns and (any(ends) or _leaves([*node.body, *node.orelse])):
            self.defined = second if ends[0] else first if ends[1] else first & second
            return [ast.If(test, then, orelse if node.orelse else [])]
        changed = tree.assigned([*node.body, *node.orelse])
        results = sorted(changed & first & second)
        functions = []
        for side, nodes in ((then, node.body), (orelse, node.orelse)):
            given = sorted((tree.assigned(nodes) | set(results)) & self.defined)
            body = side if returns else [*side, ast.Return(_names(results, ast.Load()))]
            functions.append(self._function(node.place, [], given, body))
        self.defined |= set(results)
        held = self._containers([*node.body, *node.orelse])
        call = self._call("rt_branch", test, *(name for _, name in functions), held)
        return [*(made for made, _ in functions), _kept(call, results, returns)]

    def _do_While(self, node: tree.While) -> list[ast.stmt]:
        carried = sorted(tree.assigned(node.body) & self.defined)
        if _leaves(node.body):
            body, _ = self._side(node.body)
            return [ast.While(self.expr(node.condition), body, [])]
        test: list[ast.stmt] = [ast.Return(self.expr(node.condition))]
        body, _ = self._side(node.body)
        body.append(ast.Return(_names(carried, ast.Load())))
        functions = [self._function(node.place, carried, [], part) for part in (test, body)]
        call = self._call("rt_while", *(name for _, name in functions), _names(carried, ast.Load()))
        return [*(made for made, _ in functions), _kept(call, carried)]

    def _do_For(self, node: tree.For) -> list[ast.stmt]:
        target, over = node.target, node.iteration
        carried = sorted(tree.assigned(node.body) & self.defined)
        simple = isinstance(target, str) and target not in self.defined | tree.assigned(node.body)
        before = self.defined
        self.defined = before | tree.assigned([node]) - tree.assigned(node.body)
        if over.kind != "range" or not simple or _leaves(node.body):
            iterated = self._iterated(over, False)
            body, _ = self._side(node.body)
            self.defined = before
            return [ast.For(self._target(target), iterated, body, [])]
        bounds = ast.Tuple(self._each(over.values), ast.Load())
        body, _ = self._side(node.body)
        body.append(ast.Return(_names(carried, ast.Load())))
        made, name = self._function(node.place, [target, *carried], [], body)
        self.defined = before
        held = self._containers(node.body)
        flags = [k for k, x in enumerate(carried) if x.startswith(_FLAG)]
        call = self._call(
            "rt_range", bounds, name, _names(carried, ast.Load()), _places(flags), held
        )
        return [made, _kept(call, carried)]

    def _do_Assert(self, node: tree.Assert) -> list[ast.stmt]:
        message = ast.Constant("") if node.message is None else self.expr(node.message)
        raised = ast.Raise(self._call("rt_assert", message), None)
        test = self._call("rt_fails", self.expr(node.condition))
        return [ast.If(test, [raised], [])]


def _names(names: list[str], context: Any) -> ast.expr:
    return ast.Tuple([ast.Name(name, context) for name in names], context)


def _is_local(node: Any) -> bool:
    return isinstance(node, tree.Local)


def _places(numbers: list[int]) -> ast.expr:
    return ast.Tuple([ast.Constant(number) for number in numbers], ast.Load())


def _kept(call: ast.expr, names: list[str], returns: bool = False) -> ast.stmt:
    """Return a statement that stores the results of a call, or returns them."""
    if returns:
        return ast.Return(call)
    return ast.Assign([_names(names, ast.Store())], call) if names else ast.Expr(call)


def _leaves(nodes: list[tree.Node]) -> bool:
    """Return whether statements may leave what is around them, or write into an attribute."""
    for node in nodes:
        if isinstance(node, (*_LEAVING, tree.SetAttr)) or _sets_attributes(node):
            return True
        if isinstance(node, tree.If) and _leaves([*node.body, *node.orelse]):
            return True
        if isinstance(node, (tree.While, tree.For, tree.With)) and _leaves(node.body):
            return True
    return False


def _sets_attributes(node: tree.Node) -> bool:
    """Return whether what a statement calls writes into attributes."""
    waiting: list[Any] = [node]
    seen: set[int] = set()
    while waiting:
        for part in tree.every(waiting.pop()):
            unit = (
                getattr(part, "unit", None) if isinstance(part, (tree.Call, tree.Invoke)) else None
            )
            if unit is not None and id(unit) not in seen:
                seen.add(id(unit))
                if any(isinstance(inner, tree.SetAttr) for inner in tree.every(unit.body)):
                    return True
                waiting.append(unit.body)
    return False


def _ends(nodes: list[tree.Node]) -> bool:
    """Return whether nothing that follows the statements runs."""
    if not nodes:
        return False
    last = nodes[-1]
    if isinstance(last, tree.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, _LEAVING)


def _returns(nodes: list[tree.Node]) -> bool:
    """Return whether every way through statements is a return at their end."""
    if not nodes or _leaves(nodes[:-1]):
        return False
    last = nodes[-1]
    if isinstance(last, tree.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, tree.Return)


def _ended(nodes: list[tree.Node]) -> list[tree.Node]:
    """Return statements in which what follows a branch with a return stands in its sides."""
    for k, node in enumerate(nodes):
        if not isinstance(node, tree.If) or not _leaves([*node.body, *node.orelse]):
            continue
        rest = nodes[k + 1 :]
        sides = []
        for side in (node.body, node.orelse):
            sides.append(_ended(side if _ends(side) else [*side, *rest]))
        made = [*nodes[:k], tree.If(node.place, node.condition, *sides)]
        return made if sum(1 for _ in tree.every(made)) <= _MOST_NODES else nodes
    return nodes


class _Structured:
    """Writes loops without break and continue."""

    def __init__(self) -> None:
        self._count = 0

    def statements(self, nodes: list[tree.Node]) -> list[tree.Node]:
        """Return statements that do the same."""
        return [made for node in nodes for made in self._statement(node)]

    def _statement(self, node: tree.Node) -> list[tree.Node]:
        if isinstance(node, tree.If):
            sides = self.statements(node.body), self.statements(node.orelse)
            return [tree.If(node.place, node.condition, *sides)]
        if isinstance(node, tree.With):
            return [tree.With(node.place, node.contexts, node.names, self.statements(node.body))]
        if not isinstance(node, (tree.While, tree.For)):
            return [node]
        place, body = node.place, self.statements(node.body)
        head: list[tree.Node] = []
        over: list[tree.Expr] = [node.condition] if isinstance(node, tree.While) else []
        if _jumps(body):
            self._count += 1
            flag = f"{_FLAG}{self._count}"
            head = [tree.Assign(place, flag, tree.Const(place, kinds.BOOL, False))]
            left = tree.Local(place, kinds.BOOL, flag)
            body = _unbroken(body, flag)
            if over:
                goes_on = tree.Not(place, kinds.BOOL, left)
                over = [tree.And(place, kinds.BOOL, goes_on, over[0])]
            else:
                body = [tree.If(place, left, [], body)]
        if isinstance(node, tree.While):
            return [*head, tree.While(place, over[0], body)]
        return [*head, tree.For(place, node.target, node.iteration, body)]


def _jumps(nodes: list[tree.Node]) -> bool:
    """Return whether branches among statements leave the loop around them, or its round.

    Those within a context stay as they are, as all others of their loop do then.
    """
    found = False
    for node in nodes:
        if isinstance(node, tree.With) and _leaves(node.body):
            return False
        if isinstance(node, (tree.Break, tree.Continue)):
            found = True
        if isinstance(node, tree.If):
            found = found or _jumps([*node.body, *node.orelse])
    return found


def _unbroken(nodes: list[tree.Node], flag: str) -> list[tree.Node]:
    """Return a loop's statements, of which those that leave it set a flag."""
    for k, node in enumerate(nodes):
        if isinstance(node, tree.Continue):
            return nodes[:k]
        if isinstance(node, tree.Break):
            held = tree.Const(node.place, kinds.BOOL, True)
            return [*nodes[:k], tree.Assign(node.place, flag, held)]
        if isinstance(node, tree.If) and _jumps([*node.body, *node.orelse]):
            rest = nodes[k + 1 :]
            sides = [
                _unbroken(side if _ends(side) else [*side, *rest], flag)
                for side in (node.body, node.orelse)
            ]
            return [*nodes[:k], tree.If(node.place, node.condition, *sides)]
    return nodes
