"""Trace a module or function: run it once on proxies, and keep the graph of what it did."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import math
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import tangrad
from tangrad.nn import Module, Parameter, Sequential
from tangrad.plugin import intercepted_modules
from tangrad.utils import _pytree
from tangrad_fx._compatibility import compatibility as compatibility
from tangrad_fx.codegen import PyTreeCodeGen, PyTreeInfo
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, trace_again_with
from tangrad_fx.node import Argument, Node
from tangrad_fx.patching import Patcher as _Patcher
from tangrad_fx.patching import autowrap, patch_wrapped, recorded, wrap, wrapped_methods
from tangrad_fx.proxy import ParameterProxy, Proxy, TracerBase, scope_of

__all__ = ["PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

# By these names tracers of other packages, which write `trace` anew, find what theirs is made of.
_create_wrapped_func = recorded
_wrapped_methods_to_patch = wrapped_methods
_autowrap_check, _patch_wrapped_functions = autowrap, patch_wrapped
_orig_module_call, _orig_module_getattr = Module.__call__, Module.__getattr__
_depth = 0


def __getattr__(name: str) -> Any:
    if name == "ScriptObject":  # of a package that a tracer can do without
        return tangrad.ScriptObject
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def is_fx_tracing() -> bool:
    """Return whether a program is being traced."""
    return _depth > 0


def is_fx_symbolic_tracing() -> bool:
    """Return whether a program is being traced by `symbolic_trace` and its kin."""
    return is_fx_tracing()


class PHBase:
    """Stands in `concrete_args` for what remains an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """An input whose node takes over the attributes that this is made with."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


class ProxyableClassMeta(type):
    """Metaclass of classes whose instances, made of proxies, become nodes."""

    def __init__(cls, name: str, bases: Any, attrs: Any) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls.__new__(cls)  # type: ignore[call-overload]
        if not is_fx_tracing():
            cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
            return made
        found: list[Proxy] = []
        from tangrad_fx.node import map_aggregate

        map_aggregate((args, kwargs), lambda x: found.append(x) if isinstance(x, Proxy) else x)
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
        return made


_proxyable_classes: dict[type, None] = {}


class Tracer(TracerBase):
    """Trace modules and functions; override its methods to decide what a node is.

    Args:
        autowrap_modules: modules whose functions, called with proxies, become nodes.
        autowrap_functions: further such functions.
        param_shapes_constant: whether a program may decide by the shapes of parameters.
    """

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids = {
            id(value)
            for module in autowrap_modules
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        } | {id(f) for f in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""

    _qualname_counter: dict[str, int]

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        """Return a copy; the modules that it looks into for functions stay the same."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        deep = functools.partial(copy.deepcopy, memo=memo)
        for key, value in self.__dict__.items():
            kept = copy.copy if key == "_autowrap_search" else deep
            made.__dict__[key] = kept(value)
        return made

    def get_fresh_qualname(self, prefix: str) -> str:
        """Return a name of an attribute that the traced module does not have yet."""
        counts = self.__dict__.setdefault("_qualname_counter", collections.Counter())
        while True:
            name = f"{prefix}{counts[prefix]}"
            counts[prefix] += 1
            if not hasattr(self.root, name):
                return name

    def create_arg(self, a: Any) -> Argument:
        """Return a value as an argument: parameters, buffers, modules and constants by their path.

        Raises:
            NameError: a parameter or module is no part of the traced module.
        """
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, tangrad.Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
        elif isinstance(a, Module):
            for name, module in self.root.named_modules():
                if a is module:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node(
                "call_function", type(a), tuple(self.create_arg(x) for x in a), {}
            )
        if isinstance(a, tangrad.Tensor):
            path = self.tensor_attrs.get(a)
            if path is None:
                path = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[a] = path
                setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        if type(a) in _proxyable_classes:
            path = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Return whether a module becomes one node; by default those that `nn` brings do."""
        top, _, rest = type(m).__module__.partition(".")
        ours = top in ("tangrad", "torch") and rest.startswith(("nn", "ao.nn"))
        return (ours or top.startswith("tangrad_")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Any) -> str:
        """Return the path of a module in the traced one.

        Raises:
            NameError: it is no part of it.
        """
        if self.submodule_paths is not None:
            path = self.submodule_paths.get(mod)
            if path is not None:
                return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(
        self,
        m: Any,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace the call of a module: as one node, or through its `forward`.

        Args:
            m: the module.
            forward: runs it.
            args, kwargs: its arguments.
        """
        path = self.path_of_module(m)
        if type(m).__module__.partition(".")[0] == "tangrad_jit":  # a script is called as a whole
            return self.create_proxy("call_method", "forward", (m, *args), kwargs)
        with scope_of(self, path, type(m)):
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Return what reading an attribute of a module gives: parameters become nodes."""

        def as_node(named: Any) -> Any:
            for name, value in named:
                if attr_val is value:
                    if name not in parameter_proxy_cache:
                        more: dict[str, Any] = {}
                        if self.param_shapes_constant:  # tracers of others may not know of it
                            more["proxy_factory_fn"] = functools.partial(
                                self._parameter_proxy, name, attr_val
                            )
                        parameter_proxy_cache[name] = self.create_proxy(
                            "get_attr", name, (), {}, **more
                        )
                    return parameter_proxy_cache[name]
            return None

        found = None
        if isinstance(attr_val, Parameter):
            found = as_node(self.root.named_parameters())
        elif isinstance(attr_val, tangrad.Tensor) and (
            # The code of a graph writes into buffers, which must not happen now.
            self.proxy_buffer_attributes or isinstance(self.root, GraphModule)
        ):
            found = as_node(self.root.named_buffers())
        return attr_val if found is None else found

    def _parameter_proxy(self, name: str, parameter: Any, node: Node) -> ParameterProxy:
        return ParameterProxy(self, node, name, parameter)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function to trace and its arguments: a placeholder for each input.

        Raises:
            RuntimeError: it takes no `self`, or `concrete_args` do not fit its arguments.
        """
        analysed = inspect.unwrap(root_fn)
        code = analysed.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:total])
        orig_args = list(code.co_varnames)
        args: list[Any] = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            names = names[1:]
            args.append(self.root)
        signature = inspect.signature(analysed)
        has_rest = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if isinstance(concrete_args, tuple) and concrete_args and has_rest and total <= 1:
            # `*args` takes as many inputs as there are placeholders, whatever they hold.
            for k, given in enumerate(concrete_args):
                proxy = self.create_proxy("placeholder", f"input_{k}", (), {})
                args.append(_with_remarks(proxy, given))
            return root_fn, args
        if isinstance(concrete_args, tuple):
            if len(names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(names)} arguments but got {len(concrete_args)} "
                    "concrete arguments"
                )
            concrete_args = dict(zip(names, concrete_args, strict=True))
        args += [self._placeholder(n, concrete_args, signature, analysed) for n in names]
        if code.co_kwonlyargcount > 0 or has_rest:
            at = total
            if code.co_flags & inspect.CO_VARARGS:
                name = f"*{code.co_varnames[at]}"
                args.append(self._placeholder(name, concrete_args, signature, analysed))
                at += 1
            if code.co_flags & inspect.CO_VARKEYWORDS:
                name = f"**{code.co_varnames[at]}"
                args.append(self._placeholder(name, concrete_args, signature, analysed))
            root_fn = _positional(root_fn, len(args))
        leaves, spec = _pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children()):
            return root_fn, args
        codegen = PyTreeCodeGen(PyTreeInfo(orig_args[:total], spec, None))
        self.graph.set_codegen(codegen)

        def flattened(*flat):  # type: ignore[no-untyped-def]
            found = root_fn(*_pytree.tree_unflatten(list(flat), spec))
            results, results_spec = _pytree.tree_flatten(found)
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=results_spec)
            return results

        return flattened, leaves

    def _placeholder(
        self, name: str, concrete_args: Any, signature: Any, function: Callable[..., Any]
    ) -> Any:
        bare = name.lstrip("*")
        if concrete_args is not None and name in concrete_args:
            return self._specialized(name, concrete_args[name], signature)
        default: tuple[Any, ...] = ()
        if name == bare:
            parameter = signature.parameters[name]
            default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
        return self.create_proxy(
            "placeholder", name, default, {}, type_expr=_annotation(function, bare)
        )

    def _specialized(self, name: str, value: Any, signature: Any) -> Any:
        """Return an argument whose value is given, with checks that callers give the same."""
        parameter = signature.parameters[name]
        default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
        count = 0

        def replaced(x: Any) -> Any:
            nonlocal count
            count += 1
            proxy = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(x, PHBase):
                return _with_remarks(proxy, x)
            if type(x) in (bool, int, float, str):
                tangrad._assert(
                    proxy == x,
                    f"{name} has been specialized to have value {x} but got another value",
                )
            elif x is None:
                _assert_is_none(
                    proxy, f"{name} has been specialized to have value None but got another value"
                )
            else:
                import warnings

                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to "
                    "specialized function. It is up to the user to make sure that your inputs "
                    "match the inputs you specialized the function with.",
                    stacklevel=3,
                )
            return x

        return _pytree.tree_map(replaced, value)

    def trace(
        self, root: Any | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """Run a module or function on proxies and return the graph of what it did.

        Args:
            root: the module or function.
            concrete_args: {argument: value} of those that are no inputs; `PH` inside nested values
                stands for what is one.

        Raises:
            TraceError: it decides by a value that is not known.
            TypeError: it cannot be traced.
        """
        global _depth
        _depth += 1
        try:
            return self._trace(root, concrete_args)
        finally:
            _depth -= 1
            self.submodule_paths = None

    def _trace(self, root: Any, concrete_args: dict[str, Any] | None) -> Graph:
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in "
                    f"{type(root).__name__}"
                )
            function = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        elif callable(root):
            self.root, function = Module(), root
        else:
            raise TypeError(f"trace: expected a module or a function, got {type(root).__name__}")
        self.graph = Graph(tracer_cls=type(self) if _is_importable(type(self)) else None)
        self.tensor_attrs: dict[Any, str] = {}
        _collect_tensors(self.root, [], self.tensor_attrs)
        if not isinstance(function, FunctionType):
            function = _as_function(function)
        function_globals = function.__globals__
        code = function.__code__
        fields = ("co_name", "co_filename", "co_firstlineno")
        self.graph._co_fields = {field: getattr(code, field) for field in fields}
        function, args = self.create_args_for_root(
            function, isinstance(root, Module), concrete_args
        )
        cache: dict[str, Any] = {}

        def read(module: Any, name: str, original: Callable[..., Any]) -> Any:
            return self.getattr(name, original(module, name), cache)

        def call(module: Any, args: Any, kwargs: Any, original: Callable[..., Any]) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return original(module, *args, **kwargs)

            frame = getattr(getattr(module, "forward", module), "__globals__", {})
            autowrap(patcher, frame, self._autowrap_function_ids)
            return self.call_module(module, forward, args, kwargs)

        with _Patcher() as patcher, intercepted_modules(call, read):
            patch_wrapped(patcher)
            autowrap(patcher, function_globals, self._autowrap_function_ids)
            for module in self._autowrap_search:
                autowrap(patcher, module.__dict__, self._autowrap_function_ids)
            result = function(*args)
            self.create_node(
                "output",
                "output",
                (self.create_arg(result),),
                {},
                type_expr=_annotation(function, "return"),
            )
        return self.graph


trace_again_with(Tracer)


def _require_none(value: Any, message: str) -> None:
    if value is not None:
        raise AssertionError(message)


_assert_is_none = recorded(_require_none)


def _annotation(function: Callable[..., Any], name: str) -> Any:
    """Return an annotation, None for one that is kept as text."""
    found = getattr(function, "__annotations__", {}).get(name)
    return None if isinstance(found, str) else found


def _is_importable(cls: type) -> bool:
    return "<locals>" not in cls.__qualname__


def _as_function(root: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls an object: a bound method, a partial, an object with a call."""
    parameters = [
        p
        for p in inspect.signature(root).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    names = ", ".join(p.name for p in parameters)
    namespace: dict[str, Any] = {"root": root}
    exec(f"def traced({names}):\n    return root({names})", namespace)
    made: FunctionType = namespace["traced"]
    made.__defaults__ = tuple(p.default for p in parameters if p.default is not p.empty)
    return made


def _with_remarks(proxy: Any, given: Any) -> Any:
    """Return a placeholder's proxy; its node has what was set on the `PHBase` that is given."""
    if isinstance(given, PHBase):
        for key, kept in vars(given).items():
            if not hasattr(proxy.node, key):  # such as a tag that the tracer gave it
                setattr(proxy.node, key, kept)
    return proxy


def _positional(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a function that takes the names of `*args` and `**kwargs` as arguments too."""
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return FunctionType(
        code.replace(co_flags=flags, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def _collect_tensors(module: Any, prefix: list[str], found: dict[Any, str]) -> None:
    """Note the paths of tensors that are plain attributes of modules."""
    for name, value in vars(module).items():
        if isinstance(value, tangrad.Tensor):
            found[value] = ".".join([*prefix, name])
    for name, child in module.named_children():
        _collect_tensors(child, [*prefix, name], found)


def symbolic_trace(
    root: Any | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """Trace a module or function and return it as a module made of its graph.

    Args:
        root: the module or function.
        concrete_args: {argument: value} of those that are no inputs.

    Raises:
        TraceError: it decides by a value that is not known.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
