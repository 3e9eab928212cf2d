"""Exported programs as files: a zip of the graph as JSON and of the tensors.

Nothing of a file is run: functions are written by their names below `torch` and `operator`, and
looked up there among those that can be overridden.
"""

from __future__ import annotations

import io
import itertools
import json
import operator
import os
import re
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import Module, Parameter
from tangrad.plugin import atomically
from tangrad.utils import _pytree
from tangrad_fx.export import graph_signature as signature
from tangrad_fx.export.dynamic_shapes import Place, Size
from tangrad_fx.export.exported_program import ExportedProgram
from tangrad_fx.export.nested import every_node
from tangrad_fx.graph import Graph
from tangrad_fx.higher_order.while_loop import while_loop_op
from tangrad_fx.naming import ROOT, qualified_name
from tangrad_fx.node import Node

__all__ = ["load", "save"]

_FORMAT = 1
_PROGRAM, _TENSORS, _EXTRA = "program.json", "tensors.pt", "extra_files/"
_PLAIN = (str, bool, int, float, type(None))


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Write an exported program to a file. The format is tangrad's own.

    Args:
        ep: the program.
        f: a path, or a file to write bytes to.
        extra_files: {name: text or bytes} to be kept beside it.
        opset_version, pickle_protocol: accepted.

    Raises:
        OSError: the file cannot be written; what stood there stays.
        TypeError: `ep` is something else; the program calls a function, or takes a value, that
            cannot be written.
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"export.save: expected an ExportedProgram, got {type(ep).__name__}")
    program = {
        "format": _FORMAT,
        "name": ep.graph_module._get_name(),
        "nodes": [_written_node(node) for node in ep.graph.nodes],
        "inputs": [_written_spec(spec) for spec in ep.graph_signature.input_specs],
        "outputs": [_written_spec(spec) for spec in ep.graph_signature.output_specs],
        "sizes": [size._asdict() for size in ep.range_constraints.values()],
        "arguments": ep._argument_names,
        "in": _written_tree(ep._in_spec),
        "out": _written_tree(ep._out_spec),
        "parameters": [n for n, t in ep.state_dict.items() if isinstance(t, Parameter)],
    }
    tensors = io.BytesIO()
    kept = {"state": dict(ep.state_dict), "constants": ep.constants, "inputs": _values(ep)}
    detached = _pytree.tree_map(lambda t: t.detach() if isinstance(t, Tensor) else t, kept)
    tangrad.save(detached, tensors)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(_PROGRAM, json.dumps(program))
        archive.writestr(_TENSORS, tensors.getvalue())
        for name, content in (extra_files or {}).items():
            archive.writestr(_EXTRA + name, content)
    if hasattr(f, "write"):
        f.write(whole.getvalue())
        return
    with atomically(f) as file, io.BufferedWriter(file) as buffered:
        buffered.write(whole.getbuffer())


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Read an exported program from a file that `save` wrote.

    Args:
        f: a path, or a file to read bytes from.
        extra_files: {name: anything}: the values are replaced by the texts kept in the file.
        expected_opset_version: accepted.

    Raises:
        ValueError: the file is no such file, is damaged, or names what is not there.
    """
    try:
        with zipfile.ZipFile(f if hasattr(f, "read") else os.fspath(f)) as archive:
            program = json.loads(archive.read(_PROGRAM))
            tensors = tangrad.load(io.BytesIO(archive.read(_TENSORS)), weights_only=True)
            for name in extra_files or ():
                extra_files[name] = archive.read(_EXTRA + name).decode()  # type: ignore[index]
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, RuntimeError) as error:
        raise ValueError(
            f"export.load: {f} is no program that export.save wrote: {error}"
        ) from error
    if program.get("format") != _FORMAT:
        raise ValueError(f"export.load: {f} has format {program.get('format')}, expected {_FORMAT}")
    parameters = set(program["parameters"])
    state = {n: Parameter(t) if n in parameters else t for n, t in tensors["state"].items()}
    graph = _read_graph(program["nodes"], tensors["inputs"])
    root = type(program["name"], (Module,), {})()
    return ExportedProgram(
        root,
        graph,
        signature.ExportGraphSignature(
            [_read_spec(signature.InputSpec, spec) for spec in program["inputs"]],
            [_read_spec(signature.OutputSpec, spec) for spec in program["outputs"]],
        ),
        state,
        {s["name"]: _read_size(s) for s in program["sizes"]},
        example_inputs=None,
        constants=tensors["constants"],
        argument_names=program["arguments"],
        in_spec=_read_tree(program["in"]),
        out_spec=_read_tree(program["out"]),
    )


def _values(ep: ExportedProgram) -> dict[str, Any]:
    """Return shape and dtype of each input that is a tensor, as empty tensors cannot be on meta."""
    nodes = (n for n in every_node(ep.graph) if n.op == "placeholder" and "val" in n.meta)
    return {n.name: [list(n.meta["val"].shape), n.meta["val"].dtype] for n in nodes}


def _written_node(node: Node) -> dict[str, Any]:
    target = node.target if isinstance(node.target, str) else _name_of(node.target)
    written = {
        "name": node.name,
        "op": node.op,
        "target": target,
        "args": _written(node.args),
        "kwargs": _written(dict(node.kwargs)),
        "writes": bool(node.meta.get("writes")),
    }
    if node.op == "get_attr":  # a function of a cond or while_loop
        written["graph"] = [_written_node(inner) for inner in node.meta["graph"].nodes]
    return written


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name by which a function is found again.

    Raises:
        TypeError: there is none by which a file may call it.
    """
    for name, special in _SPECIAL.items():
        if function is special:
            return name
    try:
        name = qualified_name(function)
        # Ops below the public functions are found by names of their own.
        for found in (name, f"{ROOT}.ops.{getattr(function, 'name', '')}"):
            if _leads_to(found, function):
                return found
    except RuntimeError:
        name = repr(function)
    raise TypeError(
        f"export.save: {name} cannot be written, as no name below torch leads to it; make it an "
        "operator with tangrad.library.custom_op"
    )


def _leads_to(name: str, function: Callable[..., Any]) -> bool:
    try:
        return _function(name) is function
    except (ValueError, AttributeError):
        return False


def _function(name: str) -> Any:
    """Return what a name leads to.

    Raises:
        ValueError: it leads to nothing, or to what a file may not call: only ops, functions that
            can be overridden, and those of `operator` on two values are.
    """
    if name in _SPECIAL:
        return _SPECIAL[name]
    top, *rest = name.split(".")
    found: Any = {ROOT: tangrad, "operator": operator}.get(top)
    for part in rest:
        found = getattr(found, part, None)
    allowed = isinstance(found, _OPS) or any(found is f for f in _callable_by_files())
    if not allowed:
        raise ValueError(f"export.load: there is no function {name} that a program may call")
    return found


_SPECIAL: dict[str, Callable[..., Any]] = {
    "builtins.getattr": getattr,
    "higher_order.cond": tangrad.cond,
    "higher_order.while_loop": while_loop_op,
}
_OPS = type(tangrad.relu), type(tangrad.ops.aten.relu.default)
_OPERATORS = "add floordiv getitem mul".split()
_METHODS = re.compile(
    r"[A-Za-z]\w*|__(i|r)?(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor|lshift|rshift)__"
    r"|__(neg|pos|invert|abs|getitem|setitem|eq|ne|lt|le|gt|ge)__"
)


@cache
def _callable_by_files() -> tuple[Any, ...]:
    overridable = tangrad.overrides.get_overridable_functions().values()
    own = tangrad.tensor, tangrad.as_tensor, tangrad.set_grad_enabled
    operators = (getattr(operator, name) for name in _OPERATORS)
    return (*itertools.chain.from_iterable(overridable), *own, *operators)


def _require_allowed(one: dict[str, Any]) -> None:
    """Raise if a node does what no node that was written does.

    Raises:
        ValueError: it does.
    """
    names = []
    if one["op"] == "call_method":
        names = [one["target"]]
    elif one["target"] == "builtins.getattr":
        names = [one["args"][1][1]]
    elif one["op"] == "get_attr" and isinstance(one.get("graph"), list):
        names = []
    elif one["op"] not in ("placeholder", "call_function", "output"):
        raise ValueError(f"export.load: a node that is a {one['op']}")
    for name in names:
        known = isinstance(name, str) and hasattr(tangrad.Tensor, name)
        if not known or not _METHODS.fullmatch(name):
            raise ValueError(f"export.load: there is no method {name!r} that a program may call")


def _written(value: Any) -> Any:
    """Return an argument as JSON: plain values as they are, others as [kind, content].

    Raises:
        TypeError: it cannot be written.
    """
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return ["float", str(value)]
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Node):
        return ["node", value.name]
    if isinstance(value, slice):
        return ["slice", [_written(x) for x in (value.start, value.stop, value.step)]]
    if isinstance(value, tuple):
        return ["tuple", [_written(x) for x in value]]
    if isinstance(value, list):
        return ["list", [_written(x) for x in value]]
    if isinstance(value, dict):
        return ["dict", [[_written(k), _written(v)] for k, v in value.items()]]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if value is ...:
        return ["ellipsis", None]
    if isinstance(value, tangrad.device):
        return ["device", str(value)]
    for kind, cls in _NAMED.items():
        if isinstance(value, cls):
            return [kind, str(value).rpartition(".")[2]]
    raise TypeError(f"export.save: a value of type {type(value).__name__} cannot be written")


_NAMED = {
    "dtype": tangrad.dtype,
    "layout": tangrad.layout,
    "memory_format": tangrad.memory_format,
}


def _read(value: Any, nodes: dict[str, Node]) -> Any:
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "dict":
        return {_read(k, nodes): _read(v, nodes) for k, v in content}
    if kind in ("tuple", "list", "slice"):
        parts = [_read(x, nodes) for x in content]
        return parts if kind == "list" else tuple(parts) if kind == "tuple" else slice(*parts)
    if kind in _NAMED:
        found = getattr(tangrad, content, None)
        if isinstance(found, _NAMED[kind]):
            return found
    readers: dict[str, Callable[[Any], Any]] = {
        "node": nodes.__getitem__,
        "float": float,
        "complex": lambda parts: complex(*parts),
        "ellipsis": lambda _: ...,
        "device": tangrad.device,
    }
    if kind not in readers:
        raise ValueError(f"export.load: there is no {kind} {content!r}")
    return readers[kind](content)


def _read_graph(
    written: list[dict[str, Any]], inputs: dict[str, Any], outer: Graph | None = None
) -> Graph:
    graph = Graph()
    if outer is not None:
        graph._graph_namespace = outer._graph_namespace
    nodes: dict[str, Node] = {}
    for one in written:
        _require_allowed(one)
        call = one["op"] == "call_function"
        node = graph.create_node(
            one["op"],
            _function(one["target"]) if call else one["target"],
            _read(one["args"], nodes),
            _read(one["kwargs"], nodes),
            one["name"],
        )
        nodes[one["name"]] = node
        if one["name"] in inputs:
            shape, dtype = inputs[one["name"]]
            node.meta["val"] = tangrad.empty(shape, dtype=dtype, device="meta")
        if one["writes"]:
            node.meta["writes"] = True
        if one["op"] == "get_attr":
            node.meta["graph"] = _read_graph(one["graph"], inputs, graph)
    return graph


def _written_spec(spec: Any) -> dict[str, Any]:
    constant = isinstance(spec.arg, signature.ConstantArgument)
    return {
        "kind": spec.kind.name,
        "constant": constant,
        "name": spec.arg.name,
        "value": _written(spec.arg.value) if constant else None,
        "target": spec.target,
        "persistent": getattr(spec, "persistent", None),
    }


def _read_spec(cls: Any, written: dict[str, Any]) -> Any:
    arg: Any = signature.TensorArgument(written["name"])
    if written["constant"]:
        arg = signature.ConstantArgument(written["name"], _read(written["value"], {}))
    if cls is signature.InputSpec:
        kind = signature.InputKind[written["kind"]]
        return signature.InputSpec(kind, arg, written["target"], written["persistent"])
    return signature.OutputSpec(signature.OutputKind[written["kind"]], arg, written["target"])


def _written_tree(spec: Any) -> Any:
    """Return how values are nested, as an example of it: in lists, tuples and dicts.

    Raises:
        TypeError: they are nested in something else.
    """

    def plain(nested: Any) -> Any:
        if isinstance(nested, int):
            return nested
        if type(nested) in (list, tuple):
            return [type(nested).__name__, [plain(x) for x in nested]]
        if type(nested) is dict:
            return ["dict", [[_written(k), plain(v)] for k, v in nested.items()]]
        raise TypeError(
            f"export.save: values nested in {type(nested).__name__} cannot be written; use tuples, "
            "lists and dicts"
        )

    return plain(_pytree.tree_unflatten([0] * spec.num_leaves, spec))


def _read_tree(written: Any) -> Any:
    return _pytree.tree_structure(_read(written, {}))


def _read_size(written: dict[str, Any]) -> Size:
    return Size(**{**written, "places": [Place(*p) for p in written["places"]]})
