"""Run a program written for PyTorch, unchanged: its `import torch` gets tangrad.

The names `torch` and `torch.x` are aliases in `sys.modules` for the modules of tangrad, not
copies, and only in this process; a PyTorch that is installed is neither loaded nor changed.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Final, Optional, Union

STOOD_IN_FOR = "torch"
TRANSFORMS = "functorch"  # PyTorch's other top-level package
OURS = __name__.partition(".")[0]


def _unchanged(function: Any) -> Any:
    return function


def _named_only(name: str) -> type:
    """Return a class for `isinstance` and annotations; to call it is a `NotImplementedError`."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: tangrad stands in for {STOOD_IN_FOR}, and has none")

    return type(name, (), {"__new__": refuse})


def _printing(name: str) -> Any:
    """Return the function of that name of the module that prints tensors, loaded when called."""

    def call(*args: Any) -> Any:
        return getattr(importlib.import_module(f"{OURS}.tensor.printing"), name)(*args)

    return call


class _PrintOptions:
    """Show the options of printing as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return _printing("get_printoptions")()[name]
        except KeyError:
            raise AttributeError(name) from None


def _ignore(function: Any = None, **options: Any) -> Any:
    """Return a function as it is, named in `@ignore` or in `@ignore(drop=True)`."""
    return _unchanged if function is None or isinstance(function, bool) else function


class BroadcastingList:
    """Annotate what may be one value or a list of them: `BroadcastingList2[int]`."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return kind | list[kind]


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Any,
    if_false: Any,
    module_name: str | None = None,
    func_name: str | None = None,
) -> Any:
    """Return a function that calls one of two by a bool among its arguments."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        given = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if given else if_false)(*args, **kwargs)

    choose.__doc__ = if_true.__doc__ or if_false.__doc__
    choose.__name__, choose.__module__ = func_name or choose.__name__, module_name or __name__
    return choose


def _of_jit(name: str, otherwise: Any) -> Any:
    """Return a function of `tangrad.jit`, or where that is not installed, what stands for it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            function = getattr(importlib.import_module(f"{OURS}_jit"), name)
        except ImportError:
            function = otherwise
        return function(*args, **kwargs)

    return call


def _names_of(module: str) -> dict[str, Any]:
    """Return what makes a module answer with the names of a module of ours."""

    def answer(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'", name=name)
        return getattr(importlib.import_module(module), name)

    return {"__getattr__": answer}


def _prod_over(a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Multiply the elements over several dimensions, as `torch._refs.prod` does; `prod` takes one.

    Args:
        a: a tensor of any shape.
        dim: a dimension, or a sequence of them; all dimensions where it is None or empty.
        keepdim: whether reduced dimensions stay, with size 1.
        dtype: of the result. Default: that of `a`, int64 for integers.

    Raises:
        RuntimeError: a dimension appears twice.
        IndexError: there is no such dimension.
    """
    from tangrad import prod

    dims = [dim] if isinstance(dim, int) else list(dim or range(a.ndim))
    named = sorted((d + a.ndim if -a.ndim <= d < 0 else d for d in dims), reverse=True)
    if len(set(named)) < len(named):
        raise RuntimeError(f"prod: dim {dims} names a dimension of {list(a.shape)} twice")
    result = a if named else prod(a, dtype=dtype)
    for each in named:
        result = prod(result, each, keepdim, dtype=dtype)
    return result


def _vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    allow_none_pass_through: bool = False,
) -> Callable[..., Any]:
    """Return `func` over batches: what `torch.func.vmap` was before it was public."""
    from tangrad.func import vmap

    return vmap(func, in_dims, out_dims)


def _shape_of_all(*shapes: Any) -> list[int] | None:
    """Return the shape to which shapes broadcast, those of numbers being None."""
    from tangrad import broadcast_shapes

    given = [shape for shape in shapes if shape is not None]
    return list(broadcast_shapes(*given)) if given else None


# Private modules that other libraries import, and what they take from them.
PRIVATE: dict[str, dict[str, Any]] = {
    "_jit_internal": {
        "Any": Any,
        "Callable": Callable,
        "Dict": dict,
        "Final": Final,
        "List": list,
        "Optional": Optional,
        "Tuple": tuple,
        "Union": Union,
        "BroadcastingList1": BroadcastingList,
        "BroadcastingList2": BroadcastingList,
        "BroadcastingList3": BroadcastingList,
        "_copy_to_script_wrapper": _unchanged,
        "_overload": _of_jit("_overload", _unchanged),
        "_overload_method": _of_jit("_overload_method", _unchanged),
        "boolean_dispatch": boolean_dispatch,
        "export": _of_jit("export", _unchanged),
        "ignore": _of_jit("ignore", _ignore),
        "is_scripting": lambda: False,
        "unused": _of_jit("unused", _unchanged),
    },
    "jit.annotations": {
        "Any": Any,
        "Dict": dict,
        "List": list,
        "Optional": Optional,
        "Tuple": tuple,
        "BroadcastingList1": BroadcastingList,
        "BroadcastingList2": BroadcastingList,
        "BroadcastingList3": BroadcastingList,
    },
    "_vmap_internals": {"_vmap": _vmap, "vmap": _vmap},
    "_awaits": {"__getattr__": lambda name: getattr(importlib.import_module(f"{OURS}_jit"), name)},
    "_tensor_str": {
        "PRINT_OPTS": _PrintOptions(),
        "_add_suffixes": lambda text, suffixes, indent, force_newline=False: _printing(
            "_append_suffixes"
        )(text, suffixes, indent),
        "_str": lambda tensor, tensor_contents=None: _printing("tensor_repr")(
            tensor, tensor_contents
        ),
        "_str_intern": lambda inp, *, tensor_contents=None: _printing("tensor_repr")(
            inp, tensor_contents
        ),
        "_tensor_str": _printing("_contents"),
    },
    # PyTorch's definitions of its ops in terms of others: here the ops themselves.
    **{
        f"_refs{place}": _names_of(f"{OURS}{place}")
        for place in ("", ".fft", ".linalg", ".nn", ".nn.functional", ".special")
    },
}
PRIVATE["_refs"].update(prod=_prod_over, _broadcast_shapes=_shape_of_all)


class Finder:
    """Find `torch.x` as `tangrad.x`; it must come first, or an installed PyTorch is found."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return how to load a module, or None if it is none of these.

        Raises:
            ModuleNotFoundError: tangrad has no such module. Returning None would have the other
                finders look for it below the parent's path and load a file of tangrad again.
        """
        top, _, rest = fullname.partition(".")
        if top == TRANSFORMS:
            own = "compat.functorch" + (rest and f".{rest}")
            rest = own if _find(f"{OURS}.{own}") else f"func.{rest}"
        elif top != STOOD_IN_FOR:
            return None
        private = PRIVATE.get(rest)
        module: ModuleType | None
        if private is not None:
            module = ModuleType(fullname, "Answer what other libraries ask: nothing is traced.")
            module.__dict__.update(private, __path__=[])
        else:
            module = _find(f"{OURS}.{rest}" if rest else OURS)
        if module is None:
            raise ModuleNotFoundError(
                f"No module named '{fullname}': tangrad stands in for {STOOD_IN_FOR} in this "
                f"process and has no '{rest}'",
                name=fullname,
            )
        return ModuleSpec(fullname, _Loader(module), is_package=hasattr(module, "__path__"))  # type: ignore[arg-type]

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Answer `importlib.metadata` for the distribution that is stood in for."""
        from tangrad.compat.standing_metadata import StandingDistribution

        if context.name is None or context.name.lower() == STOOD_IN_FOR:
            yield StandingDistribution()


class _Loader:
    """Put an existing module under a second name."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system hands on what stands in sys.modules afterwards; from create_module it
        # would overwrite the module's own __spec__.
        sys.modules[module.__name__] = self.module
        _alias_hidden(module.__name__, self.module)

    def get_code(self, name: str) -> Any:
        """Return the module's code, for `python -m`."""
        spec = self.module.__spec__
        loader: Any = None if spec is None else spec.loader
        return loader.get_code(self.module.__name__) if hasattr(loader, "get_code") else None


def _alias_hidden(alias: str, package: ModuleType) -> None:
    """Alias the submodules that functions of the same name hide, as `autograd.gradcheck`.

    To import one later would put the module in the place of the function.
    """
    if hasattr(package, "__path__"):
        for name, value in list(vars(package).items()):
            hidden = sys.modules.get(f"{package.__name__}.{name}")
            if hidden is not None and hidden is not value:
                sys.modules[f"{alias}.{name}"] = hidden


def _find(name: str) -> ModuleType | None:
    """Return a module of tangrad by name, also one that is an attribute and no file."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # it is there, and lacks something itself
        parent, _, last = name.rpartition(".")
        found = getattr(sys.modules.get(parent), last, None)
        if isinstance(found, ModuleType):
            return found
        if type(error) is not ModuleNotFoundError:
            raise  # it names the package to install
        return None


def install() -> None:
    """Have `import torch` give tangrad in this process.

    Raises:
        RuntimeError: another PyTorch was imported before.
    """
    loaded = sys.modules.get(STOOD_IN_FOR)
    if loaded is not None and loaded is not sys.modules[OURS]:
        raise RuntimeError(
            f"tangrad cannot stand in for {STOOD_IN_FOR}: it is imported already, from "
            f"{getattr(loaded, '__file__', 'an unknown place')}. Start a new process."
        )
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        _show_private_names()
        _install_in_children()


def _get_tracing_state() -> bool:
    """Return that nothing is traced by PyTorch's tracer: what asks would work around it."""
    return False


def _show_private_names() -> None:
    """Give what other libraries take from PyTorch's private modules, and hardly use."""
    ours = sys.modules[OURS]
    ours.__name__ = STOOD_IN_FOR  # as programs compare it; modules below keep their own
    setattr(ours, STOOD_IN_FOR, ours)  # `from torch import torch`, which editors put in
    compiled = ours._C
    compiled.show_as(STOOD_IN_FOR)  # libraries read `str(dtype)`, `repr(shape)` and the like
    compiled._TensorMeta = type(ours.Tensor)
    compiled._log_api_usage_once = lambda event: None
    compiled._get_tracing_state = compiled._is_tracing = _get_tracing_state
    compiled._get_default_device = lambda: ours.get_default_device().type
    compiled._nn = SimpleNamespace(
        _parse_to=lambda *args, **kwargs: importlib.import_module(
            f"{OURS}.nn.modules.conversion"
        ).parse_to(args, kwargs)
    )
    importlib.import_module(f"{OURS}.compat.keys").show(compiled)
    compiled.ScriptObject = ours.ScriptObject
    ours.ops.stand_for_absent = _Absent
    ours.ScriptModule = ours.jit.ScriptModule  # type: ignore[attr-defined]
    compiled._disabled_torch_function_impl = _WithoutOverrides()
    compiled.set_overrides_off(compiled._disabled_torch_function_impl)
    for name in ("DisableTorchFunction", "DisableTorchFunctionSubclass"):
        setattr(compiled, name, _overrides_off(name))
    ours.Future = ours.futures.Future  # type: ignore[attr-defined]
    compiled.TensorBase = compiled._TensorBase = ours.Tensor
    compiled.Future, compiled.Generator = ours.futures.Future, ours.Generator
    for name in ("PyTorchFileReader", "PyTorchFileWriter", "TensorType"):
        setattr(ours, name, _named_only(name))
    # Annotations of ONNX symbolics, and what tracers tell functions apart by.
    for name in ("Graph", "ScriptMethod", "TensorType", "Type", "Value"):
        setattr(compiled, name, _named_only(name))


def _overrides_off(name: str) -> Any:
    """Return what makes the context in which calls are not taken over, loaded when called."""
    return lambda: getattr(importlib.import_module(f"{OURS}.dispatch.overrides"), name)()


class _WithoutOverrides:
    """Call an op as if a subclass of tensors had no `__torch_function__`; results are plain.

    No function, because it must not become a method of the class that it is assigned in.
    """

    def __call__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        overrides = importlib.import_module(f"{OURS}.dispatch.overrides")
        with overrides.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class _Absent:
    """Stand for an op of `torch.ops.aten` that is not there.

    Packages name such ops where they handle calls by overload. Each overload is None, which no
    call arrives as.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, overload: str) -> None:
        if overload.startswith("__"):
            raise AttributeError(overload)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(
            f"torch.ops.aten has no attribute '{self.__name__}': tangrad defines no op of this "
            "name; call a function of torch or torch.nn.functional instead"
        )


class _Installed:
    """Unpickled in another process, it installs the stand-in there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return install, ()


def _install_in_children() -> None:
    """Have processes that `multiprocessing` spawns stand in too, before they import the program.

    They read what `get_preparation_data` returns, then import the main module by it, then the
    process object; there is no other place in front of the import.
    """
    from multiprocessing import spawn

    prepare = spawn.get_preparation_data

    def with_stand_in(name: str) -> dict[str, Any]:
        return {**prepare(name), "stand_in": _Installed()}

    spawn.get_preparation_data = with_stand_in


def run_program(program: str, arguments: Sequence[str]) -> int:
    """Run a file as `python program arguments...` does, with tangrad for `torch`.

    Args:
        program: path of the file.
        arguments: what `sys.argv` holds after it.

    Returns:
        The exit status: 0, 1 after an exception, 2 if the file cannot be read. `SystemExit` of
        the program passes.
    """
    try:
        with open(program, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"python -m tangrad run: can't open file {program!r}: {error}", file=sys.stderr)
        return 2
    path = os.path.dirname(os.path.realpath(program))
    return _run_source(source, program, [program, *arguments], path, os.path.abspath(program))


def run_text(source: str | bytes, name: str, arguments: Sequence[str]) -> int:
    """Run a program that is in no file, as `python -c` and `python -` do, with tangrad for `torch`.

    Args:
        source: the program.
        name: what `sys.argv` begins with: "-c", or "-" for standard input.
        arguments: what it holds after that.

    Returns:
        The exit status: 0, or 1 after an exception. `SystemExit` of the program passes.
    """
    argv = [name, *arguments]
    if name == "-c":
        return _run_source(source, "<string>", argv, "", None)
    return _run_source(source, "<stdin>", argv, "", "<stdin>")


def _run_source(
    source: str | bytes, shown: str, argv: list[str], path: str, file: str | None
) -> int:
    install()
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = argv
    sys.path[0] = path
    # Without what this file imports from __future__: the program has its own.
    return _status(
        lambda: exec(compile(source, shown, "exec", dont_inherit=True), main.__dict__), frames=2
    )


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Run a module as `python -m name arguments...` does, with tangrad for `torch`.

    Args:
        name: of the module; one of PyTorch's may be among them, as `torch.distributed.run`.
        arguments: what `sys.argv` holds after it.

    Returns:
        The exit status: 0, or 1 after an exception. `SystemExit` of the module passes.
    """
    import runpy

    install()
    sys.argv = [name, *arguments]
    # As `python -m` has it; `python -m tangrad` has put this package's place there.
    sys.path[0] = os.getcwd()
    return _status(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True), frames=5)


def _status(run: Callable[[], Any], frames: int) -> int:
    """Run something; show what it raises, without the first frames, which are ours."""
    try:
        run()
    except Exception as error:
        shown = error.__traceback__
        for _ in range(frames):
            shown = shown.tb_next if shown is not None else None
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, shown)
        else:
            sys.excepthook(type(error), error, shown)
        return 1
    return 0
