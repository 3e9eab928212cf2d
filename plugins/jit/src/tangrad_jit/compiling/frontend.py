"""`tangrad.compile`, as the core hands it over."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from tangrad import nn
from tangrad_jit.compiling.backends import backend_named
from tangrad_jit.compiling.compiled import Compiled, Settings

__all__ = ["OptimizedModule", "compile", "compiled_functions", "reset"]

API = 1

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
        function: the function or module.
        fullgraph: raise what keeps a call from being one graph; otherwise the function then runs
            as it is.
        dynamic: True: calls that differ in sizes alone are no recordings. None: so from the
            second size of a dimension on, and for dimensions that are marked
            (`_dynamo.mark_dynamic`). False: each size is a recording.
        backend: None or "tangrad": ours; "eager", "aot_eager"; a name of the entry-point group
            `tangrad.compilers`; or a function of (graph module, example inputs).
        mode: accepted.
        options: `check`: share of the calls that run both ways; `fast`: also rewrite in ways that
            change the last bits; `measure`: False keeps a graph without comparing its time. What
            steers PyTorch's Inductor (`triton.cudagraphs`, `epilogue_fusion`) is accepted.
        recompile_limit: how many graphs there may be; 8 if None.

    Raises:
        RuntimeError: an unknown mode or option.
        LookupError: nobody offers the back end.
    """
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {_MODES[1:]}")
    for key in options or {}:
        if key not in _OPTIONS and not _is_of_inductor(key):
            raise RuntimeError(f"Unexpected optimization option {key}, known are {_OPTIONS}")
    chosen = options or {}
    settings = Settings(
        fullgraph=fullgraph,
        backend=backend_named(backend),
        limit=8 if recompile_limit is None else recompile_limit,
        check=float(chosen.get("check", 0.0)),
        fast=bool(chosen.get("fast", False)),
        measure=bool(chosen.get("measure", True)),
        dynamic=dynamic,
    )
    if isinstance(function, nn.Module):
        return OptimizedModule(function, settings)
    compiled = Compiled(function, settings)
    _made.add(compiled)
    return _function(function, compiled)


def _function(function: Callable[..., Any], compiled: Compiled) -> Callable[..., Any]:
    call = compiled.serve

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    run.compiled = compiled  # type: ignore[attr-defined]
    run._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    return run


class OptimizedModule(nn.Module):
    """A compiled module: calls run by graphs, all else is the module's.

    Attributes:
        compiled: what stands for the module's calls.
    """

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        super().__init__()
        self._orig_mod = module
        compiled = Compiled(module, settings)
        _made.add(compiled)
        object.__setattr__(self, "compiled", compiled)
        self.training = module.training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, by a graph where one fits."""
        return self.compiled.serve(args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, by a graph where one fits."""
        return self.compiled.serve(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def train(self, mode: bool = True) -> OptimizedModule:
        """Set the module's mode."""
        super().train(mode)
        return self


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
