"""A module made of a graph: its `forward` is the Python that the graph stands for."""

from __future__ import annotations

import copy
import itertools
import linecache
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tangrad
from tangrad.nn import Module, Parameter
from tangrad_fx.codegen import PyTreeCodeGen
from tangrad_fx.graph import Graph
from tangrad_fx.naming import ROOT, custom_builtins, qualified_name, type_repr
from tangrad_fx.node import Node
from tangrad_fx.patching import wrapped_functions

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_HOOKS = "_replace_hooks _create_node_hooks _erase_node_hooks _deepcopy_hooks".split()
_numbers = itertools.count()
_default_tracer: Any = None


def _exec_with_source(src: str, globals: dict[str, Any], co_fields: Any = None) -> None:
    """Run source so that tracebacks show its lines."""
    key = f"<eval_with_key>.{next(_numbers)}"
    if co_fields:
        key += " from {co_filename}:{co_firstlineno} in {co_name}".format(**co_fields)
    linecache.cache[key] = (len(src), None, src.splitlines(keepends=True), key)
    exec(compile(src, key, "exec"), globals)


def _forward_from_src(
    src: str, globals: dict[str, Any], co_fields: Any = None
) -> Callable[..., Any]:
    return _method_from_src("forward", src, globals, co_fields)


def _method_from_src(
    method_name: str, src: str, globals: dict[str, Any], co_fields: Any = None
) -> Callable[..., Any]:
    namespace = dict(globals)
    _exec_with_source(src, namespace, co_fields)
    method: Callable[..., Any] = namespace[method_name]
    return method


def _import_statement(name: str, obj: Any) -> str:
    """Return the line that makes a name of generated code known in another process."""
    if name in custom_builtins:
        return custom_builtins[name].import_str
    if getattr(obj, "__module__", None) == "typing":
        return f"import typing; {name} = typing.{getattr(obj, '_name', None) or obj}"
    full = type_repr(obj) if isinstance(obj, type) else qualified_name(obj)
    module, _, last = full.rpartition(".")
    if not module:
        return ""
    if module.partition(".")[0] == ROOT:
        module = f"tangrad{module.removeprefix(ROOT)}"
    return f"from {module} import {last} as {name}"


def _import_block(globals: dict[str, Any]) -> str:
    lines = {_import_statement(name, obj) for name, obj in globals.items() if name[:2] != "__"}
    return "\n".join(sorted(filter(None, lines)))


def trace_again_with(tracer_cls: Any) -> None:
    """Say which tracer an unpickled module is traced with if no tracer made its graph."""
    global _default_tracer
    _default_tracer = tracer_cls


def reduce_graph_module(body: dict[Any, Any], import_block: str) -> Module:
    """Make a GraphModule again of its pickled attributes: its code is traced once more."""
    # Ends with the code of a function called `forward`, which stands as the only source.
    source = body.get("_code") or body["code"]
    namespace: dict[str, Any] = {}
    _exec_with_source(f"{import_block}\n{source}", namespace)
    return _deserialize_graph_module(namespace["forward"], body)


def _deserialize_graph_module(
    forward: Callable[..., Any], body: dict[Any, Any], graph_module_cls: Any = None
) -> Module:
    tracer_cls = body.get("_tracer_cls") or _default_tracer
    name = body.get("_graphmodule_cls_name", "GraphModule")
    shell_class = type(name, (_CodeOnlyModule,), {"forward": forward})
    shell = shell_class(body)

    class KeepModules(tracer_cls):  # type: ignore[misc, valid-type]
        """Keep modules as they were kept, and what is done with buffers."""

        proxy_buffer_attributes = True

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return True

    graph = KeepModules(**(body.get("_tracer_extras") or {})).trace(shell)
    graph._tracer_cls = tracer_cls
    made = (graph_module_cls or GraphModule)(shell, graph, class_name=name)
    for key, value in body.items():
        if not hasattr(made, key):
            setattr(made, key, value)
    return made


class _CodeOnlyModule(Module):
    """Holds the attributes of a module without its code."""

    def __init__(self, body: dict[Any, Any]) -> None:
        super().__init__()
        self.__dict__ = body


# -- attributes by path


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Put what a path leads to in one module under the same path into another."""
    *above, last = target.split(".")
    for name in above:
        found = getattr(from_module, name)
        below = getattr(to_module, name, None)
        if found is below:
            return
        if below is None:
            below = Module()
            setattr(to_module, name, below)
        from_module, to_module = found, below
    original = getattr(from_module, last)
    if isinstance(original, tangrad.Tensor) and not isinstance(original, Parameter):
        to_module.register_buffer(last, original)
    else:
        setattr(to_module, last, original)


def _assign_attr(from_obj: Any, to_module: Any, target: str) -> None:
    """Put an object under a path into a module, making the modules on the way."""
    *above, last = target.split(".")
    for name in above:
        below = getattr(to_module, name, None)
        if below is None:
            below = Module()
            setattr(to_module, name, below)
        to_module = below
    if isinstance(from_obj, tangrad.Tensor) and not isinstance(from_obj, Parameter):
        to_module.register_buffer(last, from_obj)
    else:
        setattr(to_module, last, from_obj)


def _get_attr(model: Any, attr_name: str) -> Any:
    """Return what a path leads to."""
    for name in attr_name.split("."):
        model = getattr(model, name)
    return model


def _has_attr(model: Any, attr_name: str) -> bool:
    """Return whether a path leads to something."""
    try:
        _get_attr(model, attr_name)
    except AttributeError:
        return False
    return True


def _del_attr(model: Any, attr_name: str) -> None:
    """Delete what a path leads to."""
    above, _, last = attr_name.rpartition(".")
    delattr(_get_attr(model, above) if above else model, last)


class GraphModule(Module):
    """A module whose `forward` is generated from `graph`; assigning a graph generates it anew.

    Every instance has a class of its own.

    Args:
        root: the module from which the attributes that the graph uses are taken, or a dict of them
            by path.
        graph: the graph.
        class_name: what the class is called.

    Raises:
        RuntimeError: the dict lacks an attribute that the graph uses.
        AttributeError: the module lacks it.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """Make an instance of a class of its own."""
        base = next(c for c in cls.__mro__ if "_forward_is_generated" not in vars(c))
        # Libraries look for "GraphModuleImpl" in the text of the class.
        path = f"{base.__qualname__}.__new__.<locals>.GraphModuleImpl"
        names = {"_forward_is_generated": True, "__qualname__": path}
        made = type(base.__name__, (base,), names)
        made.__module__ = base.__module__
        return super().__new__(made)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, str(node.target))
        elif isinstance(root, dict):
            self._take(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        for name in _HOOKS:
            setattr(self, name, [])
        self.meta: dict[str, Any] = {}
        if isinstance(root, Module):
            kept = getattr(root, "meta", {})
            if isinstance(kept, dict):
                self.meta.update(kept)
            for key, value in self.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
                setattr(self, key, value)
        self._tracer_cls = graph._tracer_cls
        self._tracer_extras = graph._tracer_extras or {}
        self.graph = graph

    def _take(self, root: dict[str, Any], graph: Graph) -> None:
        wanted = []
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not "
                        "provided in ``root``!"
                    )
                wanted.append(str(node.target))
        # Those above others first: a module replaces what is below it.
        for target in sorted(wanted, key=lambda t: t.count(".")):
            _assign_attr(root[target], self, target)

    __jit_unused_properties__ = ("graph", "_boxed_call")

    @property
    def graph(self) -> Graph:
        """The graph; a graph that is assigned is copied if another module has it."""
        found: Graph = self._graph
        return found

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        if g.owning_module is not None and g.owning_module is not self:
            g = copy.deepcopy(g)
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python that was generated from the graph."""
        if "_code" not in self.__dict__:
            raise RuntimeError(
                "Code has not been generated! Please report a bug: recompile() was not called"
            )
        return str(self._code)

    @property
    def _boxed_call(self) -> bool:
        return False

    def recompile(self) -> Any:
        """Generate `forward` from the graph; to be called after the graph was edited.

        Returns:
            The code, as `Graph.python_code` returns it.
        """
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        python_code = self._graph.python_code(root_module="self")
        self._code = python_code.src
        self._lineno_map = python_code.lineno_map
        fields = self._graph._co_fields
        forward = _forward_from_src(python_code.src, python_code.globals, fields)
        type(self).forward = forward  # type: ignore[method-assign]
        # A trace of the code keeps calls of wrapped functions, as that of the program did.
        calls = [n.target for n in self._graph.nodes if n.meta.get("is_wrapped")]
        for name in [n for n, o in python_code.globals.items() if any(o is t for t in calls)]:
            wrapped_functions[id(forward.__globals__), name] = forward.__globals__  # type: ignore[attr-defined]
        return python_code

    def _recompile_submodules(self) -> list[Any]:
        return [m.recompile() for m in self.children() if isinstance(m, GraphModule)]

    # -- submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module under a path, making modules on the way; return whether it could be."""
        *above, last = target.split(".")
        module: Module = self
        for name in above:
            below = getattr(module, name, None)
            if below is None:
                below = Module()
                setattr(module, name, below)
            if not isinstance(below, Module):
                return False
            module = below
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the module under a path; return whether there was one."""
        above, _, last = target.rpartition(".")
        try:
            parent = self.get_submodule(above)
        except AttributeError:
            return False
        if not isinstance(getattr(parent, last, None), Module):
            return False
        delattr(parent, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete the modules that the graph neither calls nor reads anything of."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used |= {".".join(parts[: k + 1]) for k in range(len(parts))}
                if node.op == "call_module":
                    called = self.get_submodule(str(node.target))
                    used |= {f"{node.target}.{name}" for name, _ in called.named_modules() if name}
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    # -- copies

    def _state_for_copy(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_graph"]
        state["_graphmodule_cls_name"] = type(self).__name__
        return state

    def __reduce__(self) -> Any:
        state = self._state_for_copy()
        for name in _HOOKS:
            state[name] = []
        code = self._graph.python_code(root_module="self")
        return reduce_graph_module, (state, _import_block(code.globals))

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made: GraphModule = GraphModule.__new__(type(self))
        memo[id(self)] = made
        body = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        shell = _CodeOnlyModule(copy.deepcopy(body, memo))
        hooks = list(getattr(self, "_deepcopy_hooks", ()))
        GraphModule.__init__(made, shell, copy.deepcopy(self._graph), type(self).__name__)
        for key, value in shell.__dict__.items():
            if key in made.__dict__ and key not in (
                "_state_dict_hooks",
                "_state_dict_pre_hooks",
                "_load_state_dict_pre_hooks",
                "_load_state_dict_post_hooks",
                "_forward_hooks",
                "_forward_pre_hooks",
                "_forward_hooks_with_kwargs",
                "_forward_pre_hooks_with_kwargs",
                "_non_persistent_buffers_set",
                "meta",
                *_HOOKS,
            ):
                continue
            made.__dict__[key] = value
        for hook in hooks:
            hook(made)
        return made

    def __copy__(self) -> GraphModule:
        return GraphModule(self, self.graph, type(self).__name__)

    # -- text

    def __str__(self) -> str:
        return "\n".join(
            [
                super().__repr__(),
                self.code,
                "# To see more debug info, please use `graph_module.print_readable()`",
            ]
        )

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """Return the code with shapes and places of the program, submodules' too, and print it.

        Args:
            print_output: whether to print it.
            include_stride, include_device, colored, fast_sympy_print, expanded_def,
                additional_meta: accepted; the text is the same.
        """
        text = _readable(self, type(self).__name__)
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the module as a Python package with its weights.

        Args:
            folder: where; it is made.
            module_name: name of the class in the package.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tangrad.save(self.state_dict(), folder / "state_dict.pt")
        code = self._graph.python_code(root_module="self")
        body = "\n".join(f"    {line}" if line else line for line in code.src.split("\n"))
        lines = [
            _import_block(code.globals),
            "import tangrad",
            "from tangrad import nn",
            "",
            f"class {module_name}(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
        ]
        for name, module in self.named_children():
            file = f"{name}.pt"
            tangrad.save(module, folder / file)
            lines.append(
                f"        self.add_module({name!r}, tangrad.load(r'{folder / file}', "
                "weights_only=False))"
            )
        for name, buffer in self._buffers.items():
            if buffer is not None:
                lines.append(
                    f"        self.register_buffer({name!r}, tangrad.empty({list(buffer.shape)}, "
                    f"dtype={buffer.dtype}))"
                )
        for name, parameter in self._parameters.items():
            if parameter is not None:
                lines.append(
                    f"        self.register_parameter({name!r}, nn.Parameter(tangrad.empty("
                    f"{list(parameter.shape)}, dtype={parameter.dtype})))"
                )
        lines.append(f"        self.load_state_dict(tangrad.load(r'{folder / 'state_dict.pt'}'))")
        (folder / "module.py").write_text("\n".join([*lines, body, ""]))
        (folder / "__init__.py").write_text("from .module import *\n")

    # -- hooks that tell of edits

    @contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        self._replace_hooks.append(f)
        try:
            yield
        finally:
            self._replace_hooks.remove(f)

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[[Any], Any]) -> None:
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f: Callable[[Any], Any]) -> None:
        self._deepcopy_hooks.remove(f)


def _readable(module: GraphModule, name: str) -> str:
    code = module.graph.python_code(root_module="self", verbose=True).src.lstrip("\n")
    body = "\n".join(f"    {line}".rstrip() for line in code.split("\n")).rstrip()
    parts = [f"class {name}(torch.nn.Module):\n{body}\n"]
    for child_name, child in module.named_children():
        if isinstance(child, GraphModule):
            inner = _readable(child, child_name)
            parts.append("\n".join(f"    {line}" if line else line for line in inner.split("\n")))
    return "\n".join(parts)
