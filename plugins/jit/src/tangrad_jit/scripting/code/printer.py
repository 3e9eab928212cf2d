"""The typed tree as the code of PyTorch's archives: the script language, with resolved names."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import tangrad
from tangrad_jit.scripting.check.library_modules import is_packed
from tangrad_jit.scripting.check.script_objects import ScriptObjectUnit
from tangrad_jit.scripting.code.library_functions import text_of_call
from tangrad_jit.scripting.code.library_text import FUNCTIONS
from tangrad_jit.scripting.program.codes import rt_code
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    DictType,
    FutureType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
    UnionType,
)

__all__ = ["Printer", "UnprintableError", "quoted", "text_of_unit"]

# Names that the reader of archives gives a meaning of its own.
_RESERVED = frozenset(
    "torch __torch__ CONSTANTS ops inf nan annotate uninitialized unchecked_cast fork "
    "getattr".split()
)
_CODED = (tangrad.dtype, tangrad.layout, tangrad.memory_format, tangrad.qscheme)
_AS_CALLS = {"Int": "int", "Float": "float", "Bool": "bool", "str": "str", "Print": "print"}
_AS_METHODS = frozenset(
    "float double half bfloat16 int long short char byte bool cfloat cdouble cpu cuda".split()
)
_OF_PRIM = frozenset({"min", "max"})
_FOLDED = frozenset({"sorted"})


class UnprintableError(RuntimeError):
    """A program that no archive can hold."""


def text_with_constants(unit: Any) -> tuple[str, list[Any]]:
    """Return the code of a function or a method, and the tensors that it names."""
    printer = Printer()
    return printer.function(unit), list(printer.constants)


def text_of_unit(unit: Any) -> str:
    """Return the code of a function or a method."""
    return Printer().function(unit)


def quoted(text: str) -> str:
    """Return a text as a literal that PyTorch's reader takes."""
    made = []
    for c in text:
        if c in '"\\':
            made.append("\\" + c)
        elif c == "\n":
            made.append("\\n")
        elif c == "\t":
            made.append("\\t")
        elif ord(c) < 32 or ord(c) == 127:
            made.append(f"\\{ord(c):03o}")
        else:
            made.append(c)
    return f'"{"".join(made)}"'


class Printer:
    """Print functions.

    Attributes:
        needed: what the code names: units of functions and classes, types, functions of the
            library by name.
        constants: tensors, in order.
    """

    #: Whether what no archive can hold is refused, or shown as it can be.
    is_for_archive = False

    def __init__(self) -> None:
        self.needed: list[Any] = []
        self.constants: list[Any] = []
        self._returned: Type = kinds.NONE

    # --- names and types

    def name_of(self, owner: Any) -> str:
        """Return the qualified name of a unit or a type; archives of several give others."""
        if isinstance(owner, str):
            return f"__torch__.torch.nn.functional.{owner}"
        return str(getattr(owner, "qualified", None) or owner.text)

    def _need(self, owner: Any) -> str:
        if not any(owner is other for other in self.needed):
            self.needed.append(owner)
        return self.name_of(owner)

    def type(self, kind: Type) -> str:
        """Return a type as archives write it."""
        if kind in kinds.ENUM_LIKE:
            return "int"
        if isinstance(kind, ListType):
            return f"List[{self.type(kind.element)}]"
        if isinstance(kind, DictType):
            return f"Dict[{self.type(kind.key)}, {self.type(kind.value)}]"
        if isinstance(kind, OptionalType):
            return f"Optional[{self.type(kind.element)}]"
        if isinstance(kind, FutureType):
            return f"Future[{self.type(kind.element)}]"
        if isinstance(kind, UnionType):
            return f"Union[{', '.join(map(self.type, kind.members))}]"
        if isinstance(kind, TupleType):
            if kind.python_class is not None or kind.names:
                return self._need(kind)
            return f"Tuple[{', '.join(map(self.type, kind.elements)) or '()'}]"
        if isinstance(kind, kinds.ClassType) and isinstance(kind.unit, ScriptObjectUnit):
            return kind.text
        if isinstance(kind, (kinds.ClassType, kinds.InterfaceType, ModuleType)):
            return self._need(kind.unit)
        if isinstance(kind, kinds.EnumType):
            return self._need(kind)
        return kind.text

    # --- functions

    def function(self, unit: Any, indent: str = "", name: str = "") -> str:
        """Return the code of a function."""
        self._returned = unit.returned
        parts: list[str] = []
        for p in unit.parameters:
            default = f"={self.constant(p.default, p.type)}" if p.has_default else ""
            kind = f": {self.type(p.type)}"
            if isinstance(p.type, ModuleType) and not parts and not self.is_for_archive:
                kind = ""
            parts.append(f"{_safe(p.name)}{kind}{default}")
        given = f",\n{indent}    ".join(parts)
        head = f"{indent}def {name or unit.node.name}({given}) -> {self.type(unit.returned)}:\n"
        return head + self._block(unit.body, indent + "  ")

    def _block(self, nodes: list[tree.Node], indent: str) -> str:
        text = "".join(self._statement(node, indent) for node in nodes)
        return text or f"{indent}pass\n"

    def _statement(self, node: Any, indent: str) -> str:
        method = getattr(self, f"_do_{type(node).__name__}")
        lines: list[str] = method(node, indent)
        return "".join(line if line.endswith("\n") else f"{indent}{line}\n" for line in lines)

    def _do_Assign(self, node: tree.Assign, indent: str) -> list[str]:
        return [f"{self._target(node.target)} = {self.expr(node.value)}"]

    def _target(self, target: Any, inner: bool = False) -> str:
        if isinstance(target, str):
            return _safe(target)
        parts = [self._target(part, True) for part in target.targets]
        if target.star >= 0:
            parts[target.star] = "*" + parts[target.star]
        text = ", ".join(parts) + ("," if len(parts) == 1 else "")
        return f"({text})" if inner else text

    def _do_SetAttr(self, node: tree.SetAttr, indent: str) -> list[str]:
        return [f"{self.expr(node.owner)}.{node.name} = {self.expr(node.value)}"]

    def _do_SetItem(self, node: tree.SetItem, indent: str) -> list[str]:
        return [f"{self.expr(node.owner)}[{self._index(node.parts)}] = {self.expr(node.value)}"]

    def _do_Do(self, node: tree.Do, indent: str) -> list[str]:
        return [self.expr(node.value)]

    def _do_If(self, node: tree.If, indent: str) -> list[str]:
        lines = [f"if {self.expr(node.condition)}:", self._block(node.body, indent + "  ")]
        if node.orelse:
            lines += ["else:", self._block(node.orelse, indent + "  ")]
        return lines

    def _do_While(self, node: tree.While, indent: str) -> list[str]:
        return [f"while {self.expr(node.condition)}:", self._block(node.body, indent + "  ")]

    def _do_For(self, node: tree.For, indent: str) -> list[str]:
        head = f"for {self._target(node.target)} in {self._iteration(node.iteration)}:"
        return [head, self._block(node.body, indent + "  ")]

    def _iteration(self, over: tree.Iteration) -> str:
        values = [self.expr(value) for value in over.values]
        if over.kind == "range":
            return f"range({', '.join(values)})"
        if over.kind in ("enumerate", "zip"):
            return f"{over.kind}({', '.join([*map(self._iteration, over.parts), *values])})"
        return values[0]

    def _do_With(self, node: tree.With, indent: str) -> list[str]:
        items = []
        for context, name in zip(node.contexts, node.names, strict=True):
            made = self._context(context)
            items.append(made if name is None else f"{made} as {self._target(name)}")
        return [f"with {', '.join(items)}:", self._block(node.body, indent + "  ")]

    def _context(self, node: tree.Expr) -> str:
        if isinstance(node, tree.PythonCall):
            name = f"context_{node.name}"
            if name not in FUNCTIONS and self.is_for_archive:
                raise UnprintableError(f"the context {node.name} has no form in archives")
            args = ", ".join(self.expr(arg) for arg in node.args)
            return f"{self._need(name)}({args})"
        return self.expr(node)

    def _do_Break(self, node: tree.Break, indent: str) -> list[str]:
        return ["break"]

    def _do_Continue(self, node: tree.Continue, indent: str) -> list[str]:
        return ["continue"]

    def _do_Return(self, node: tree.Return, indent: str) -> list[str]:
        return [f"return {self.expr(node.value)}"]

    def _do_Raise(self, node: tree.Raise, indent: str) -> list[str]:
        call = f"ops.prim.RaiseException({self.expr(node.message)}, {quoted(node.name)})"
        return [call, f"return uninitialized({self.type(self._returned)})"]

    def _do_Assert(self, node: tree.Assert, indent: str) -> list[str]:
        message = "" if node.message is None else f", {self.expr(node.message)}"
        return [f"assert {self.expr(node.condition)}{message}"]

    # --- expressions

    def expr(self, node: tree.Expr) -> str:
        """Return the code of an expression."""
        made: str = getattr(self, f"_on_{type(node).__name__}")(node)
        return made

    def _each(self, nodes: list[tree.Expr]) -> str:
        return ", ".join(self.expr(node) for node in nodes)

    def _on_Const(self, node: tree.Const) -> str:
        if node.value is None and node.type != kinds.NONE:
            if kinds.is_subtype(kinds.NONE, node.type):
                return f"annotate({self.type(node.type)}, None)"
            return f"uninitialized({self.type(node.type)})"
        return self.constant(node.value, node.type)

    def constant(self, value: Any, kind: Type) -> str:
        """Return the code of a constant."""
        if isinstance(value, _CODED):
            return str(rt_code(value))
        if isinstance(value, tangrad.device):
            return f"torch.device({quoted(str(value))})"
        if value is ...:
            return "..."
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else str(value)
        if isinstance(value, complex):
            return f"torch.Complex({value.real!r}, {value.imag!r})"
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, kinds.EnumType):
            return self.type(value)
        if isinstance(kind, kinds.EnumType):
            return f"{self.type(kind)}.{value.name}"
        if isinstance(value, tangrad.Tensor):
            self.constants.append(value)
            return f"CONSTANTS.c{len(self.constants) - 1}"
        return self._constant_container(value, kind)

    def _constant_container(self, value: Any, kind: Type) -> str:
        if isinstance(value, list) and isinstance(kind, ListType):
            inside = ", ".join(self.constant(item, kind.element) for item in value)
            return f"[{inside}]"
        if isinstance(value, tuple) and isinstance(kind, TupleType):
            inside = ", ".join(map(self.constant, value, kind.elements))
            return f"({inside}{',' if len(value) == 1 else ''})"
        return repr(value)

    def _on_Local(self, node: tree.Local) -> str:
        return _safe(node.name)

    def _on_Apply(self, node: tree.Apply) -> str:
        name = node.builtin.name
        if name == "raise_key":
            return f"uninitialized({self.type(node.type)})"
        if not node.builtin.namespace and self.is_for_archive:
            raise UnprintableError("dict() of a dict and of names has no form in archives")
        if name == "type_text":
            if self.is_for_archive:
                raise UnprintableError("type(...) has no form in archives")
            return f"type({self.expr(node.args[0])})"
        if name in _AS_CALLS:
            return f"{_AS_CALLS[name]}({self._each(node.args)})"
        if name in _FOLDED:
            return f"torch.{name}({self.expr(node.args[0])})"
        if name in ("__is__", "__isnot__"):
            sign = "is" if name == "__is__" else "is not"
            return f"({self.expr(node.args[0])} {sign} {self.expr(node.args[1])})"
        if name == "__getitem__" and not isinstance(node.args[0].type, kinds.ClassType):
            owner = self.expr(node.args[0])
            plain = isinstance(node.args[0], tree.Local)
            return f"{owner if plain else f'({owner})'}[{self.expr(node.args[1])}]"
        if name == "Generator":
            device, seed = map(self.expr, node.args)
            return f"torch.Generator(device={device}, seed={seed})"
        if name in ("backward", "grad"):
            return f"torch.autograd.{name}({self._each(node.args)})"
        if name == "percentFormat":
            rest = self._each(node.args[1:])
            return f"torch.percentFormat({self.expr(node.args[0])}, ({rest},))"
        if node.builtin.namespace == "prim":
            return f"ops.prim.{name}({self._each(node.args)})"
        if name == "warn":
            return f"torch.warn({self.expr(node.args[0])}, 2)"
        scalar = node.args and node.args[0].type != kinds.TENSOR
        if name in ("type", "index") and node.args[0].type == kinds.DEVICE:
            return f"({self.expr(node.args[0])}).{name}"
        if name == "abs" and scalar:
            return f"ops.prim.abs({self._each(node.args)})"
        if name in _OF_PRIM and scalar:
            return f"ops.prim.{name}({self._each(node.args)})"
        if name in _AS_METHODS and node.args and not scalar:
            return f"({self.expr(node.args[0])}).{name}()"
        given = [self.expr(arg) for arg in node.args]
        for k, keyword in enumerate(reversed(node.builtin.named), 1):
            given[-k] = f"{keyword}={given[-k]}"
        return f"torch.{name}({', '.join(given)})"

    def _on_OpCall(self, node: tree.OpCall) -> str:
        name = node.name.rpartition("::")[2]
        kwargs = [f"{_key(key, value)}={self.expr(value)}" for key, value in node.kwargs.items()]
        given = [self.expr(arg) for arg in node.args]
        text = "" if node.inner else text_of_call(name, node.args, node.kwargs)
        if text and self.is_for_archive:
            return f"{self._need(text)}({', '.join([*given, *kwargs])})"
        if isinstance(node.callee, str):
            return f"({given[0]}).{node.callee}({', '.join([*given[1:], *kwargs])})"
        if _is_functional(node.callee) and not node.inner:
            if name not in FUNCTIONS and self.is_for_archive:
                raise UnprintableError(
                    f"nn.functional.{name} has no form in archives; call ops of the top level"
                )
            if name in FUNCTIONS:
                given, kwargs = self._as_lists(node, lists_of(FUNCTIONS[name]))
            else:
                sized = zip(node.args, given, strict=True)
                given = [self._sizes(arg) or text for arg, text in sized]
            return f"{self._need(name)}({', '.join([*given, *kwargs])})"
        namespace, _, plain = node.name.partition("::")
        if namespace != "aten":
            return f"ops.{namespace}.{plain}({', '.join([*given, *kwargs])})"
        return f"torch.{name}({', '.join([*given, *kwargs])})"

    def _sizes(self, node: tree.Expr) -> str:
        """Return the code of a tuple of integers as that of a list; of another value, ""."""
        whole = isinstance(node.type, TupleType) and {*node.type.elements} == {kinds.INT}
        kind = ListType(kinds.INT)
        return self._listed(tree.Convert(node.place, kind, node, "list")) if whole else ""

    def _as_lists(
        self, node: tree.OpCall, parameters: list[tuple[str, str]]
    ) -> tuple[list[str], list[str]]:
        """Return arguments, with a list of one number where a number is given for a list."""
        elements = dict(parameters)

        def text(value: tree.Expr, element: str) -> str:
            given = self._sizes(value) or self.expr(value)
            return _as_list(given, value, element)

        by_place = [element for _, element in parameters]
        by_place += [""] * (len(node.args) - len(by_place))
        return (
            [text(value, element) for value, element in zip(node.args, by_place, strict=False)],
            [f"{key}={text(value, elements.get(key, ''))}" for key, value in node.kwargs.items()],
        )

    def _on_Call(self, node: tree.Call) -> str:
        owner = getattr(node.unit, "owner", None)
        methods = owner.unit.methods if isinstance(owner, ModuleType) else {}
        # One of several overloads; hooks are functions, as PyTorch reads them after the methods.
        if any(one is node.unit and re.search(r"__\d+$", key) for key, one in methods.items()):
            name = str(node.unit.qualified).rpartition(".")[2]
            return f"({self.expr(node.args[0])}).{name}({self._each(node.args[1:])})"
        return f"{self._need(node.unit)}({self._each(node.args)})"

    def _on_Invoke(self, node: tree.Invoke) -> str:
        name = node.name
        owner = getattr(node.owner.type, "unit", None)
        if getattr(owner, "is_library", False) and any(map(is_packed, node.args)):
            raise UnprintableError("recurrent modules take packed sequences here, not in archives")
        if node.unit is not None and owner is not None:
            name = self.method_name(owner, node.unit, name)
        return f"({self.expr(node.owner)}).{name}({self._each(node.args)})"

    def method_name(self, owner: Any, unit: Any, name: str) -> str:
        """Return the name of a method in archives: of a property's functions, with what they do."""
        if unit is getattr(owner, "getters", {}).get(name):
            return f"{name}_getter"
        if unit is getattr(owner, "setters", {}).get(name):
            return f"{name}_setter"
        methods = getattr(owner, "methods", {})
        for key, method in methods.items():
            if method is unit:
                return str(key).replace(".", "_")
        return name

    def _on_PythonCall(self, node: tree.PythonCall) -> str:
        if not self.is_for_archive:
            return f"^{node.name}({self._each(node.args)})"
        refuses = getattr(node.callee, "refuses", "")
        if refuses:
            call = f"ops.prim.RaiseException({quoted(refuses)})"
            return f"unchecked_cast({self.type(node.type)}, {call})"
        raise UnprintableError(
            f"Could not export Python function call '{node.name}'. Remove calls to Python "
            "functions before export. Did you forget to add @script or @script_method annotation?"
        )

    def _on_New(self, node: tree.New) -> str:
        if node.args is None:
            name = self._need(node.unit)
            return f"{name}.__new__({name})"
        return f"{self._need(node.unit)}({self._each(node.args)})"

    def _on_Fork(self, node: tree.Fork) -> str:
        call = node.call
        if isinstance(call, tree.Call) or not self.is_for_archive:
            if not isinstance(call, tree.Call):
                return f"fork({self.expr(call)})"
            return f"fork({self._need(call.unit)}, {self._each(call.args)})"
        raise UnprintableError("fork of something else than a scripted function has no form")

    def _on_GetAttr(self, node: tree.GetAttr) -> str:
        owner = self.expr(node.owner)
        if not node.name.isidentifier():
            return f"getattr({owner}, {quoted(node.name)})"
        if isinstance(node.owner.type, ModuleType) and isinstance(node.type, ModuleType):
            self._need(node.type.unit)
        return f"{owner if isinstance(node.owner, tree.Local) else f'({owner})'}.{node.name}"

    def _on_MakeList(self, node: tree.MakeList) -> str:
        assert isinstance(node.type, ListType)
        inside = f"[{self._each(node.elements)}]"
        if node.elements and all(e.type == node.type.element for e in node.elements):
            return inside
        return f"annotate({self.type(node.type)}, {inside})"

    def _on_MakeTuple(self, node: tree.MakeTuple) -> str:
        assert isinstance(node.type, TupleType)
        if node.type.names:
            return f"{self.type(node.type)}({self._each(node.elements)})"
        return f"({self._each(node.elements)}{',' if len(node.elements) == 1 else ''})"

    def _on_MakeDict(self, node: tree.MakeDict) -> str:
        pairs = [
            f"{self.expr(k)}: {self.expr(v)}" for k, v in zip(node.keys, node.values, strict=True)
        ]
        return f"annotate({self.type(node.type)}, {{{', '.join(pairs)}}})"

    def _on_TupleItem(self, node: tree.TupleItem) -> str:
        return f"({self.expr(node.value)})[{node.index}]"

    def _on_SliceOf(self, node: tree.SliceOf) -> str:
        parts = ["" if p is None else self.expr(p) for p in (node.start, node.stop, node.step)]
        return ":".join(parts if parts[2] else parts[:2])

    def _on_Subscript(self, node: tree.Subscript) -> str:
        return f"({self.expr(node.owner)})[{self._index(node.parts)}]"

    def _index(self, parts: list[tree.Expr]) -> str:
        return self._each(parts)

    def _on_And(self, node: tree.And) -> str:
        return f"({self.expr(node.left)} and {self.expr(node.right)})"

    def _on_Or(self, node: tree.Or) -> str:
        return f"({self.expr(node.left)} or {self.expr(node.right)})"

    def _on_Not(self, node: tree.Not) -> str:
        return f"(not {self.expr(node.value)})"

    def _on_IfElse(self, node: tree.IfElse) -> str:
        parts = [self.expr(n) for n in (node.body, node.condition, node.orelse)]
        chosen = f"({parts[0]} if {parts[1]} else {parts[2]})"
        if kinds.unify(node.body.type, node.orelse.type) is None:
            return f"annotate({self.type(node.type)}, {chosen})"
        return chosen

    def _on_IsInstance(self, node: tree.IsInstance) -> str:
        listed = ", ".join(self.type(kind) for kind in node.kinds)
        return f"isinstance({self.expr(node.value)}, ({listed},))"

    def _on_Convert(self, node: tree.Convert) -> str:
        value, kind = self.expr(node.value), node.kind
        if kind == "refine":
            if kinds.is_subtype(node.value.type, node.type):
                return f"annotate({self.type(node.type)}, {value})"
            return f"unchecked_cast({self.type(node.type)}, {value})"
        if kind == "cast":
            return f"unchecked_cast({self.type(node.type)}, {value})"
        if kind.startswith("tolist"):
            return f"annotate({self.type(node.type)}, ({value}).tolist())"
        if kind == "code" or kind.endswith(" of code"):
            return value
        if kind in ("list", "list of int"):
            return self._listed(node)
        called = {
            "int": "int",
            "float": "float",
            "bool": "bool",
            "complex": "torch.Complex",
            "number": "torch.item",
            "device": "torch.device",
            "unwrap": "torch._unwrap_optional",
        }
        return f"{called[kind]}({value})"

    def _listed(self, node: tree.Convert) -> str:
        value, whole = node.value, node.kind == "list of int"
        if isinstance(value, tree.MakeTuple):
            parts = [self.expr(element) for element in value.elements]
        else:
            text = self.expr(value)
            count = len(value.type.elements)  # type: ignore[attr-defined]
            parts = [f"({text})[{k}]" for k in range(count)]
        parts = [f"int({part})" for part in parts] if whole else parts
        return f"annotate({self.type(node.type)}, [{', '.join(parts)}])"

    def _on_Comprehension(self, node: tree.Comprehension) -> str:
        loop = f"for {self._target(node.target, True)} in {self._iteration(node.iteration)}"
        if node.key is None:
            made = f"[{self.expr(node.value)} {loop}]"
        else:
            made = f"{{{self.expr(node.key)}: {self.expr(node.value)} {loop}}}"
        # Inside of other lists and dicts PyTorch takes theirs for its type, where it has none.
        return f"annotate({self.type(node.type)}, {made})"


def _as_list(text: str, value: tree.Expr, element: str) -> str:
    """Return the text of an argument, as a list of what it is where a list is asked for.

    Args:
        text: of the argument.
        value: the argument.
        element: what the list holds, "int" or "float", or "" where none is asked for.
    """
    if not element or value.type == kinds.NONE:
        return text
    have = value.type.element if isinstance(value.type, (ListType, OptionalType)) else value.type
    converts = element == "float" and have == kinds.INT
    if isinstance(value.type, ListType):
        return f"[float(x) for x in {text}]" if converts else text
    if have not in kinds.NUMBERS:
        return text
    listed = f"[float({text})]" if converts else f"[{text}]"
    if not isinstance(value.type, OptionalType):
        return listed
    if not isinstance(value, tree.Local):
        raise UnprintableError(f"jit.save: assign {text} to a variable before it is an argument")
    return f"{listed} if ({text} is not None) else None"


def _key(name: str, value: tree.Expr) -> str:
    """Return what PyTorch calls a parameter that takes several types."""
    if name != "indices_or_sections":
        return name
    if value.type == kinds.TENSOR:
        return "tensor_indices_or_sections"
    return "sections" if value.type == kinds.INT else "indices"


_PARAMETER = re.compile(r"(\w+): (?:Optional\[)?(?:List\[(int|float)\])?")


@cache
def lists_of(text: str) -> list[tuple[str, str]]:
    """Return the parameters of a function's text, with what those that are lists hold, or ""."""
    return _PARAMETER.findall(text.partition(" -> ")[0])


def _safe(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def _is_functional(callee: Any) -> bool:
    """Whether something is a function of `nn.functional`, whose arguments are not aten's."""
    definition = getattr(callee, "definition", None)
    if definition is not None:
        return bool(definition.namespace == "nn")
    return str(getattr(callee, "__module__", "")).startswith("tangrad.nn")
