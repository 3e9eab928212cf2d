"""The Python that a graph stands for."""

from __future__ import annotations

import builtins
import enum
import json
import keyword
import re
import typing
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import tangrad
from tangrad.utils import _pytree
from tangrad_fx import naming
from tangrad_fx.node import Node, map_arg

TransformCodeFunc = Callable[[list[str]], list[str]]

# Functions of `operator` that code writes as operators.
MAGIC_METHODS = {
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "gt": "{} > {}",
    "le": "{} <= {}",
    "ge": "{} >= {}",
    "pos": "+{}",
    "neg": "-{}",
    "invert": "~{}",
    "add": "{} + {}",
    "and_": "{} & {}",
    "or_": "{} | {}",
    "xor": "{} ^ {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    "truediv": "{} / {}",
    "mod": "{} % {}",
    "pow": "{} ** {}",
    "lshift": "{} << {}",
    "rshift": "{} >> {}",
    "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}
IN_PLACE_METHODS = {
    "iadd": "{} += {}",
    "iand": "{} &= {}",
    "ifloordiv": "{} //= {}",
    "ilshift": "{} <<= {}",
    "imod": "{} %= {}",
    "imul": "{} *= {}",
    "imatmul": "{} @= {}",
    "ior": "{} |= {}",
    "ipow": "{} **= {}",
    "irshift": "{} >>= {}",
    "isub": "{} -= {}",
    "itruediv": "{} /= {}",
    "ixor": "{} ^= {}",
    "setitem": "{}[{}] = {}",
}
_DTYPE_LETTERS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "b8",
    "complex64": "c64",
    "complex128": "c128",
}


class PythonCode(NamedTuple):
    """Source of a graph, with what its names stand for.

    Attributes:
        src: the source of `forward`.
        globals: {name: object} that it needs.
        lineno_map: {line of the body: number of the node in the graph}, or None.
        prologue_start: line at which the body begins.
    """

    src: str
    globals: dict[str, Any]
    lineno_map: dict[int, int | None] | None = None
    prologue_start: int = 0


class PyTreeInfo(NamedTuple):
    """How inputs and outputs of a graph are nested.

    Attributes:
        orig_args: names of the function's arguments.
        in_spec, out_spec: their tree, and that of what is returned (None: a single value).
    """

    orig_args: list[str]
    in_spec: Any
    out_spec: Any


class CodeGen:
    """Write a graph as a Python function."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """Return the line that begins the function, given its arguments."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any) -> str:
        """Return the line that ends the function."""
        return f"return {_text(output_args, repr)}"

    def process_inputs(self, *args: Any) -> Any:
        """Return the values of the placeholders, given what the function is called with."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Return what the function returns, given the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Return further names that the code needs, with what they stand for."""
        return []

    def generate(
        self, nodes: Sequence[Node], root_module: str, namespace: naming.Namespace, verbose: bool
    ) -> PythonCode:
        """Return the code of nodes.

        Args:
            nodes: the nodes in order.
            root_module: the name by which the code reaches the module, "self".
            namespace: names in use.
            verbose: whether to note shapes, and where the program made the calls.
        """
        return _Writer(self, nodes, root_module, namespace, verbose).write()


class PyTreeCodeGen(CodeGen):
    """Write a graph whose inputs and outputs are nested: they are flattened and nested again."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """Return the leaves of the arguments."""
        return _pytree.tree_leaves(inputs)

    def process_outputs(self, out: Any) -> Any:
        """Return the leaves nested as the traced function returned them."""
        if self.pytree_info.out_spec is None:
            return out
        leaves = list(out) if isinstance(out, (list, tuple)) else [out]
        return _pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """Return the line that begins the function, and the one that flattens its arguments."""
        names = list(self.pytree_info.orig_args)
        has_self = bool(names) and names[0] == "self"
        if has_self:
            names = names[1:]
            free_vars = [v for v in free_vars if v != "self"]
        head = super().gen_fn_def(names, maybe_return_annotation)
        if not free_vars:
            return head
        if has_self:  # the module is among the arguments that the spec is of
            names, free_vars = ["self", *names], ["self", *free_vars]
        plain = [v.split(":")[0].split("=")[0].strip() for v in free_vars]
        return (
            f"{head}\n    {', '.join(plain)}, = "
            f"fx_pytree.tree_flatten_spec([{', '.join(names)}], self._in_spec)"
        )

    def generate_output(self, output_args: Any) -> str:
        """Return the line that nests the results and returns them."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({_text(output_args, repr)}, self._out_spec)"

    def __deepcopy__(self, memo: Any = None) -> PyTreeCodeGen:
        return type(self)(self.pytree_info)


def _text(argument: Any, name: Callable[[Any], str]) -> str:
    """Return an argument as code, with `name` for what it has to make known."""
    if isinstance(argument, list):
        return f"[{', '.join(_text(a, name) for a in argument)}]"
    if isinstance(argument, dict):
        inner = ", ".join(f"{k!r}: {_text(v, name)}" for k, v in argument.items())
        return "{" + inner + "}"
    if isinstance(argument, tuple):
        items = [_text(a, name) for a in argument]
        if hasattr(argument, "_fields"):
            return f"{name(type(argument))}({', '.join(items)})"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(argument, slice):
        parts = ", ".join(_text(a, name) for a in (argument.start, argument.stop, argument.step))
        return f"slice({parts})"
    if isinstance(argument, Node):
        return repr(argument)
    if isinstance(argument, enum.Enum):
        return f"{name(type(argument))}.{argument.name}"
    if isinstance(argument, type) or (callable(argument) and hasattr(argument, "__name__")):
        return name(argument)
    if isinstance(argument, (tangrad.dtype, tangrad.layout, tangrad.memory_format)):
        return repr(argument).replace("tangrad.", f"{naming.ROOT}.")
    return repr(argument)


class _Writer:
    """Write one graph."""

    def __init__(
        self,
        codegen: CodeGen,
        nodes: Sequence[Node],
        root_module: str,
        namespace: naming.Namespace,
        verbose: bool,
    ) -> None:
        self.codegen, self.nodes, self.verbose = codegen, nodes, verbose
        self.root, self.namespace = root_module, namespace
        self.globals: dict[str, Any] = {}
        self.free_vars: list[str] = []
        self.body: list[str] = []
        self.returns = ""
        self.trace: str | None = None
        self.dying = _last_uses(nodes)

    def write(self) -> PythonCode:
        for name, builtin in chain(
            ((n, b.obj) for n, b in naming.custom_builtins.items()),
            self.codegen.additional_globals(),
        ):
            self.know(name, builtin)
        for number, node in enumerate(self.nodes):
            if self.verbose and node.op not in ("placeholder", "output"):
                self.tell_where(node)
            self.body.append(f"# COUNTER: {number}\n")
            _EMITTERS[node.op](self, node)
            self.forget_unused(node)
        if not self.body:
            self.body.append("pass\n")
        if self.codegen._body_transformer is not None:
            self.body = self.codegen._body_transformer(self.body)
        head = self.codegen.gen_fn_def(self.free_vars, self.returns)
        lines, numbers = _without_counters("".join(self.body), head.count("\n") + 1)
        code = "\n".join(f"    {line}" for line in lines)
        return PythonCode(f"\n\n\n{head}\n{code}", self.globals, numbers, head.count("\n") + 1)

    def know(self, name_hint: str, obj: Any) -> str:
        """Return a name for an object, and note that the code needs it."""
        if obj is ...:
            name_hint = "_"
        if (
            isinstance(getattr(obj, "__name__", None), str)
            and getattr(obj, "__module__", "").partition(".")[0] == "tangrad"
            and obj is not tangrad
            and name_hint.startswith(f"{naming.ROOT}.")
        ):
            return name_hint  # reached by the name of the package
        if name_hint.startswith(f"{naming.ROOT}."):
            return name_hint
        normalized = name_hint.replace(".", "_")
        if self.globals.get(normalized, self) is obj:
            return normalized
        found = self.namespace.create_name(normalized, obj) if _hashable(obj) else normalized
        self.globals[found] = obj
        return found

    def name(self, obj: Any) -> str:
        """Return how code writes a class or function that is an argument."""
        if getattr(builtins, getattr(obj, "__name__", ""), None) is obj:
            return self.know(obj.__name__, obj)
        if isinstance(obj, type):
            return self.know(naming.type_repr(obj), obj)
        return self.know(naming.qualified_name(obj), obj)

    def text(self, argument: Any) -> str:
        return _text(argument, self.name)

    def annotation(self, kind: Any) -> str:
        """Return an annotation as code."""
        if kind is None:
            return "NoneType"
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is None or (not hasattr(kind, "__args__") and not args):
            return self.know(naming.type_repr(kind), kind)
        base = getattr(typing, getattr(kind, "_name", None) or "", None)
        if origin is typing.Union or type(kind).__name__ == "UnionType":
            base = typing.Union
        name = "typing.Union" if base is typing.Union else naming.type_repr(base or origin)
        shown = self.know(name.replace("...", "_"), base or origin)
        inner = ",".join(self.annotation(None if a is type(None) else a) for a in args)
        return f"{shown}[{inner}]"

    def annotated(self, node: Node) -> str:
        """Return what follows a node's name where it is assigned."""
        if self.verbose:
            shape = _shape_text(node)
            if shape:
                return f': "{shape}"'
        return "" if node.type is None else f" : {self.annotation(node.type)}"

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return ", ".join(
            [*map(self.text, args), *(f"{k} = {self.text(v)}" for k, v in kwargs.items())]
        )

    def forget_unused(self, user: Node) -> None:
        """End a line by dropping values that no later line uses, to free their memory."""
        if user.op == "placeholder":
            return
        if user.op == "output":
            self.body.append("\n")
            return
        dying = self.dying.get(user, [])
        if dying:
            names = " = ".join([*(repr(n) for n in dying), "None"])
            self.body.append(f";  {names}\n")
        else:
            self.body.append("\n")

    def tell_where(self, node: Node) -> None:
        trace = node.stack_trace
        if trace == self.trace and trace is not None:
            return
        if trace:
            self.trace = trace
            self.body.append(f"\n# {_summary(trace)}\n")
        elif self.trace != "":
            self.trace = ""
            self.body.append("\n# No stacktrace found for following nodes\n")

    # -- one line for each kind of node

    def placeholder(self, node: Node) -> None:
        target = str(node.target)
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.free_vars.append(f"{target}{self.annotated(node)}{default}")
        raw = target.replace("*", "")
        if raw != repr(node):
            self.body.append(f"{node!r} = {raw}\n")

    def call_method(self, node: Node) -> None:
        receiver = self.text(node.args[0])
        if not isinstance(node.args[0], (Node, str)):
            receiver = f"({receiver})"
        arguments = self.arguments(node.args[1:], dict(node.kwargs))
        self.body.append(f"{node!r}{self.annotated(node)} = {receiver}.{node.target}({arguments})")

    def call_function(self, node: Node) -> None:
        target: Any = node.target
        name = getattr(target, "__name__", "")
        module = getattr(target, "__module__", None)
        if module == "_operator" and name in MAGIC_METHODS and not node.kwargs:
            line = MAGIC_METHODS[name].format(*map(self.text, node.args))
            self.body.append(f"{node!r}{self.annotated(node)} = {line}")
            return
        if module == "_operator" and name in IN_PLACE_METHODS:
            line = IN_PLACE_METHODS[name].format(*map(self.text, node.args))
            self.body.append(f"{line};  {node!r}{self.annotated(node)} = {self.text(node.args[0])}")
            return
        qualified = naming.qualified_name(target)
        if module == "_operator":
            qualified = f"_{qualified}"
        known = self.know(qualified.removeprefix("builtins."), target)
        if target is getattr and _is_plain_attribute(node):
            line = f"{self.text(node.args[0])}.{node.args[1]}"
            self.body.append(f"{node!r}{self.annotated(node)} = {line}")
            return
        self.body.append(
            f"{node!r}{self.annotated(node)} = "
            f"{known}({self.arguments(node.args, dict(node.kwargs))})"
        )

    def call_module(self, node: Node) -> None:
        path = _path(self.root, str(node.target))
        self.body.append(
            f"{node!r}{self.annotated(node)} = "
            f"{path}({self.arguments(node.args, dict(node.kwargs))})"
        )

    def get_attr(self, node: Node) -> None:
        path = _path(self.root, str(node.target))
        self.body.append(f"{node!r}{self.annotated(node)} = {path}")

    def output(self, node: Node) -> None:
        if node.type is not None:
            self.returns = f" -> {self.annotation(node.type)}"
        if isinstance(self.codegen, PyTreeCodeGen):
            self.body.append(self.codegen.generate_output(node.args[0]))
        elif type(self.codegen).generate_output is CodeGen.generate_output:
            self.body.append(f"return {self.text(node.args[0])}")
        else:
            self.body.append(self.codegen.generate_output(node.args[0]))


_EMITTERS: dict[str, Callable[[_Writer, Node], None]] = {
    "placeholder": _Writer.placeholder,
    "call_method": _Writer.call_method,
    "call_function": _Writer.call_function,
    "call_module": _Writer.call_module,
    "get_attr": _Writer.get_attr,
    "output": _Writer.output,
}


def _last_uses(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """Return for each node those values that nothing behind it uses, itself if it is not used."""
    seen: set[Node] = set()
    dying: dict[Node, list[Node]] = {}

    def note(value: Node, user: Node) -> Node:
        if value not in seen:
            seen.add(value)
            dying.setdefault(user, []).append(value)
        return value

    for node in reversed(nodes):
        map_arg(node.args, lambda n, user=node: note(n, user))
        map_arg(dict(node.kwargs), lambda n, user=node: note(n, user))
        if not node.users and node.op not in ("placeholder", "output"):
            dying.setdefault(node, []).append(node)
            seen.add(node)
    return dying


def _without_counters(body: str, first_line: int) -> tuple[list[str], dict[int, int | None]]:
    """Take the marks out that say which node begins where, as a table of lines."""
    lines: list[str] = []
    numbers: dict[int, int | None] = {}
    current: int | None = None
    for line in body.split("\n"):
        mark = re.fullmatch(r"# COUNTER: (\d+)", line)
        if mark:
            current = int(mark.group(1))
        else:
            lines.append(line)
            numbers[first_line + len(lines) - 1] = current
    return lines, numbers


def _path(root: str, target: str) -> str:
    """Return how code reaches an attribute by a path, some of whose parts may be numbers."""
    found = root
    for part in target.split("."):
        found = f"{found}.{part}" if _is_name(part) else f"getattr({found}, {json.dumps(part)})"
    return found


def _is_name(part: str) -> bool:
    return part.isidentifier() and not keyword.iskeyword(part)


def _is_plain_attribute(node: Node) -> bool:
    return (
        len(node.args) == 2
        and isinstance(node.args[0], Node)
        and isinstance(node.args[1], str)
        and _is_name(node.args[1])
    )


def _hashable(obj: Any) -> bool:
    try:
        hash(obj)
    except TypeError:
        return False
    return True


def _shape_text(node: Node) -> str:
    meta = node.meta.get("val", node.meta.get("tensor_meta"))
    if isinstance(meta, tangrad.Tensor) or (hasattr(meta, "shape") and hasattr(meta, "dtype")):
        name = meta.dtype.name
        return f"{_DTYPE_LETTERS.get(name, name)}[{', '.join(map(str, meta.shape))}]"
    return ""


def _summary(trace: str) -> str:
    """Return the innermost place of a trace in one line."""
    lines = trace.strip().split("\n")
    for place, code in zip(reversed(lines[:-1]), reversed(lines[1:]), strict=True):
        found = re.match(r'\s*File "(.+)", line (\d+), in (.+)', place)
        if found:
            file, line, function = found.groups()
            return f"File: {file}:{line} in {function}, code: {code.strip()}"
    return ""
