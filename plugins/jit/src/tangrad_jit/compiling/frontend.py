"""`tangrad.compile`, as the core hands it over."""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

from tangrad import nn
from tangrad_jit.compiling.backends import backend_named, with_options
from tangrad_jit.compiling.compiled import Compiled, Settings

__all__ = ["OptimizedModule", "compile", "compiled_functions", "reset"]


_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_OPTIONS = ("check", "fast", "measure")

# Options of PyTorch's Inductor: those of its parts are named behind a dot.
_OF_INDUCTOR = frozenset(
    {"max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "max_autotune_gemm_backends"}
    | {"coordinate_descent_tuning", "epilogue_fusion", "prologue_fusion", "shape_padding"}
    | {"fallback_random", "force_fuse_int_mm_with_mul", "use_mixed_mm", "cpp_wrapper", "freezing"}
    | {"group_fusion", "fx_graph_cache", "guard_filter_fn", "permute_fusion", "split_reductions"}
)


def _is_of_inductor(option: str) -> bool:
    return "." in option or option in _OF_INDUCTOR


_made: weakref.WeakSet[Compiled] = weakref.WeakSet()


def compile(
    function: Callable[..., Any],
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    recompile_limit: int | None = None,
) -> Any:
    """Return what stands for a function or module: recorded, guarded, and run as a graph.

    Args:
        function: the function or module; of a class, the calls of its objects are compiled.
        fullgraph: raise what keeps a call from being one graph; otherwise the function then runs
            as it is.
        dynamic: True: calls that differ in sizes alone are no recordings. None: so from the
            second size of a dimension on, and for dimensions that are marked
            (`_dynamo.mark_dynamic`). False: each size is a recording.
        backend: None or "tangrad": ours; "eager", "aot_eager"; a name of the entry-point group
            `tangrad.compilers`; or a function of (graph module, example inputs).
        mode: accepted; handed to a back end of others.
        options: handed to a back end of others. Of ours, `check`: share of the calls that run both
            ways; `fast`: also rewrite in ways that change the last bits; `measure`: False keeps a
            graph without comparing its time. What steers PyTorch's Inductor (`triton.cudagraphs`,
            `epilogue_fusion`) is accepted.
        recompile_limit: how many graphs there may be; 8 if None.

    Raises:
        RuntimeError: an unknown mode, or an unknown option of ours.
        LookupError: nobody offers the back end.
    """
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {_MODES[1:]}")
    runs, limit = backend_named(backend), 8 if recompile_limit is None else recompile_limit
    if runs is not None:
        runs = with_options(runs, mode, options)
        # What a back end returns is what its users want, whether it is faster or not.
        settings = Settings(fullgraph, runs, limit, measure=False, dynamic=dynamic)
        return _compiled(function, settings)
    for key in options or {}:
        if key not in _OPTIONS and not _is_of_inductor(key):
            raise RuntimeError(f"Unexpected optimization option {key}, known are {_OPTIONS}")
    chosen = options or {}
    settings = Settings(
        fullgraph=fullgraph,
        limit=limit,
        check=float(chosen.get("check", 0.0)),
        fast=bool(chosen.get("fast", False)),
        measure=bool(chosen.get("measure", True)),
        dynamic=dynamic,
    )
    return _compiled(function, settings)


def _compiled(function: Any, settings: Settings) -> Any:
    if isinstance(function, nn.Module):
        return OptimizedModule(function, settings)
    if isinstance(function, type):
        function.__call__ = _new_function(function.__call__, settings)  # type: ignore[method-assign]
        return function
    return _new_function(function, settings)


def _new_function(function: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    compiled = Compiled(function, settings)
    _made.add(compiled)
    return _function(function, compiled)


def _function(function: Callable[..., Any], compiled: Compiled) -> Callable[..., Any]:
    if isinstance(function, types.MethodType):
        return _CompiledMethod(function, compiled)
    call = compiled.serve

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    run.compiled = compiled  # type: ignore[attr-defined]
    run._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    return run


class _CompiledMethod:
    """A compiled method of an object; copied or pickled with it, the method as it is."""

    stands_for = "_torchdynamo_orig_callable"

    def __init__(self, method: types.MethodType, compiled: Compiled) -> None:
        functools.update_wrapper(self, method)
        self.compiled, self._torchdynamo_orig_callable = compiled, method
        self._call = compiled.serve

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        method = self._torchdynamo_orig_callable
        return types.MethodType(method.__func__, copy.deepcopy(method.__self__, memo))

    def __reduce__(self) -> Any:
        method = self._torchdynamo_orig_callable
        return getattr, (method.__self__, method.__name__)


class OptimizedModule(nn.Module):
    """A compiled module: calls run by graphs, all else is the module's.

    Attributes:
        compiled: what stands for the module's calls.
    """

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        super().__init__()
        compiled = Compiled(module, settings)
        _made.add(compiled)
        self.__dict__["compiled"] = compiled
        self.add_module("_orig_mod", module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, by a graph where one fits."""
        return self.compiled.serve(args, kwargs)

    @property
    def training(self) -> bool:
        """The module's mode."""
        module = self._modules.get("_orig_mod")
        return True if module is None else module.training

    @training.setter
    def training(self, mode: bool) -> None:
        module = self._modules.get("_orig_mod")
        if module is not None:
            module.training = mode

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("_modules", {}).get("_orig_mod")
        if module is None:
            raise AttributeError(f"OptimizedModule has no attribute {name!r} before its module")
        return module if name == "_orig_mod" else getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in self.__dict__ or hasattr(type(self), name)
        module = self.__dict__.get("_modules", {}).get("_orig_mod")
        if own or module is None or name == "_orig_mod":
            super().__setattr__(name, value)
        else:
            setattr(module, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__ or name == "_orig_mod":
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return bool(self._orig_mod) if hasattr(type(self._orig_mod), "__len__") else True

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._orig_mod, self.compiled.settings)


def compiled_functions() -> list[Compiled]:
    """Return what has been compiled and is still there."""
    return list(_made)


def reset() -> None:
    """Forget all recordings of all compiled functions."""
    for compiled in compiled_functions():
        compiled.reset()


def _explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from tangrad_jit.compiling.explanation import explain

    return explain(model, *args, **kwargs)


compile.explain = _explain  # type: ignore[attr-defined]
