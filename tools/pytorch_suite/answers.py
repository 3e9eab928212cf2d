"""Values for private names of PyTorch's that its tests ask for, as its wheel for CPUs has them.

A test that passes because of a value here shows nothing about the name: it was about another.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from file_check import FileCheck


class Later:
    """A value that is imported when the answers are given: `module:name`."""

    def __init__(self, place: str) -> None:
        self._place = place

    def value(self) -> Any:
        """Return it."""
        module, _, name = self._place.partition(":")
        return getattr(importlib.import_module(module), name)


def _constant(value: Any) -> Callable[..., Any]:
    """Return a function that takes anything and gives `value`."""

    def constant(*args: Any, **kwargs: Any) -> Any:
        return value

    return constant


@contextlib.contextmanager
def _nothing(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _switch() -> Callable[..., bool]:
    """Return the getter and setter of a setting that does nothing."""
    held = [True]

    def switch(*value: bool) -> bool:
        before = held[0]
        held[:] = value or held
        return before

    return switch


class _Settings(ModuleType):
    """A module of settings that are all off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False

    def patch(self, *args: Any, **kwargs: Any) -> Any:
        """Change settings for a while: there are none."""
        return _nothing()


class _HigherOrderOperator:
    """May be subclassed and made, and registers nothing; a call says that it is private."""

    def __init__(self, name: str = "", *args: Any, **kwargs: Any) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _constant(lambda function: function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import stubs

        raise stubs.PrivateName("torch._ops.HigherOrderOperator")


class _WeakTensorRef:
    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)

    def expired(self) -> bool:
        """Tell whether the tensor is gone."""
        return self._tensor() is None


class _FunctionState(enum.Enum):
    ENABLED = 0
    SUBCLASSES_DISABLED = 1
    ALL_DISABLED = 2


def _nested_map(wanted: Any, function: Any, message: str = "") -> Any:
    """Return what applies a function to what it is wanted for in nested containers."""

    def over(item: Any) -> Any:
        if wanted(item):
            return function(item)
        if isinstance(item, (list, tuple)):
            made = [over(member) for member in item]
            return type(item)(*made) if hasattr(item, "_fields") else type(item)(made)
        if isinstance(item, dict):
            return {key: over(member) for key, member in item.items()}
        return item

    return over


class _GraphType(type):
    def __instancecheck__(cls, item: Any) -> bool:
        return type(item).__name__ in ("Graph", "ScriptGraph")


def _vmap(function: Any, in_dims: Any = 0, out_dims: Any = 0, **options: Any) -> Any:
    return importlib.import_module("torch").vmap(function, in_dims, out_dims)


def _disable(function: Any = None, *args: Any, **options: Any) -> Any:
    return function if function is not None else lambda decorated: decorated


def _no_kernel(*args: Any, **kwargs: Any) -> Any:
    import stubs

    raise stubs.PrivateName("torch.cuda.jiterator")


# Names that files import, by the module that they import them from.
IMPORTED: dict[str, Any] = {
    "torch.autograd.function._nested_map": _nested_map,
    "torch._utils._is_privateuse1_backend_available": _constant(False),
    "torch._utils_internal.get_writable_path": lambda path: path,
    "torch._utils_internal.get_file_path_2": lambda *parts: "/".join(map(str, parts)),
}
# Set although tangrad has a placeholder of the name.
PLACEHOLDERS = {"torch._ops.HigherOrderOperator"}
_FALLBACK = _switch()  # every op of tangrad's has a batching rule, so it decides nothing
_C = {
    "Graph": _GraphType("Graph", (), {}),
    "ScriptFunction": Later("tangrad_jit.scripting.objects.function:ScriptedFunction"),
    "ScriptMethod": Later("tangrad_jit.scripting.objects.module:ScriptMethod"),
    "_DisableFuncTorch": _nothing,
    "_TorchFunctionState": _FunctionState,
    "_WeakTensorRef": _WeakTensorRef,
    "_debug_only_are_vmap_fallback_warnings_enabled": _constant(True),
    "_debug_only_display_vmap_fallback_warnings": _constant(None),
    "_functions.AccumulateGrad": Later("tangrad._C:AccumulateGrad"),
    "_functions.DelayedError": Later("tangrad.autograd.function:DelayedError"),
    "_functorch._is_vmap_fallback_enabled": _FALLBACK,
    "_functorch._set_vmap_fallback_enabled": _FALLBACK,
    "_functorch.TransformType": enum.Enum("TransformType", "Vmap Grad Jvp Functionalize Torch"),
    "_get_cpu_capability": _constant("AVX2"),
    "_get_graph_executor_optimize": _switch(),
    "_get_privateuse1_backend_name": _constant("privateuseone"),
    "_get_torch_function_state": _constant(_FunctionState.ENABLED),
    "_has_mkldnn": True,
    "_jit_clear_class_registry": _constant(None),
    "_jit_override_can_fuse_on_cpu": _constant(None),
    "_jit_override_can_fuse_on_cpu_legacy": _constant(None),
    "_jit_override_can_fuse_on_gpu": _constant(None),
    "_jit_set_emit_hooks": _constant(None),
    "_jit_set_inline_everything_mode": _constant(None),
    "_jit_get_inline_everything_mode": _constant(False),
    "_jit_set_num_profiled_runs": _constant(1),
    "_jit_set_profiling_executor": _switch(),
    "_jit_set_te_must_use_llvm_cpu": _constant(None),
    "_len_torch_function_stack": _constant(0),
    "_pop_torch_function_stack": _constant(None),
    "_set_torch_function_state": _constant(None),
    "has_lapack": True,
    "has_mkl": True,
    "has_openmp": True,
    "has_spectral": True,
}
_CPU = {
    "_is_avx2_supported": True,
    "_is_avx512_supported": False,
    "_is_avx512_vnni_supported": False,
    "_is_vnni_supported": False,
    "_is_amx_tile_supported": False,
    "_is_amx_fp16_supported": False,
    "_is_arm_sve_supported": False,
}
_FOREACH = "torch.utils._foreach_utils"
_PLACES = "tangrad_jit.scripting.source.places"
_JITERATOR = dict.fromkeys(("_create_jit_fn", "_create_multi_output_jit_fn"), _constant(_no_kernel))
# Set before anything is imported, where tangrad has nothing of the name.
ATTRIBUTES: dict[str, Any] = {
    **{f"torch._C.{name}": value for name, value in _C.items()},
    **{f"torch.cpu.{name}": _constant(value) for name, value in _CPU.items()},
    f"{_FOREACH}._get_foreach_kernels_supported_devices": _constant(["cuda", "xpu", "mtia"]),
    f"{_FOREACH}._get_fused_kernels_supported_devices": _constant(
        ["mps", "cuda", "xpu", "hpu", "cpu", "mtia"]
    ),
    "torch._dynamo.compiled_autograd._disable": _nothing,
    "torch._dynamo.compiled_autograd.reset": _constant(None),
    "torch._dynamo.config": _Settings("torch._dynamo.config"),
    "torch._dynamo.disable": _disable,
    "torch._dynamo.reset": _constant(None),
    "torch._inductor.config": _Settings("torch._inductor.config"),
    "torch._inductor.utils.GPU_TYPES": ["cuda", "mps", "xpu", "mtia"],
    "torch._logging.scribe.open_source_signpost": _constant(None),
    "torch._native.dsl_registry.dsl_registry.is_dsl_available": _constant(False),
    "torch._ops.HigherOrderOperator": _HigherOrderOperator,
    "torch._subclasses.CrossRefFakeMode": type("CrossRefFakeMode", (), {}),
    "torch._utils.is_compiling": _constant(False),
    "torch._vmap_internals._vmap": _vmap,
    "torch._jit_internal._disable_emit_hooks": _nothing,
    "torch.autograd.forward_ad._current_level": -1,
    "torch.autograd.function._nested_map": _nested_map,
    "torch.backends.disable_global_flags": _constant(None),
    "torch.backends.python_native": SimpleNamespace(all_dsls=[], available_dsls=[]),
    "torch.jit.frontend.FrontendError": Later(f"{_PLACES}:FrontendError"),
    "torch.jit.frontend.NotSupportedError": Later(f"{_PLACES}:FrontendError"),
    "torch.jit._recursive.ConcreteTypeStore": _constant(None),
    # What the pickles of archives name, where a test reads one by Python's own reader.
    "torch.jit._pickle.build_intlist": list,
    "torch.jit._state._clear_class_state": _constant(None),
    "torch.testing.FileCheck": FileCheck,
    "torch.utils._mode_utils.no_dispatch": _nothing,
    # Public, and read when the helpers are imported: without them no test could run.
    "torch.autograd.kineto_available": _constant(True),
    "torch.cuda.is_tf32_supported": _constant(False),
    "torch.cuda.jiterator": SimpleNamespace(**_JITERATOR),
    "torch.profiler.itt": SimpleNamespace(is_available=_constant(False)),
}
