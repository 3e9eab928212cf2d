"""PyTorch's dispatch keys, as far as packages name them: those of autocast act."""

from __future__ import annotations

import enum
import sys
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import tangrad
from tangrad.plugin import BatchLevel, current, level_of, refused

_DEVICES = "CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy Meta MTIA PrivateUse1".split()
_FUNCTIONALITIES = (
    "Dense Quantized Sparse SparseCsr NestedTensor AutogradFunctionality BackendSelect Python "
    "Fake FuncTorchDynamicLayerBackMode Functionalize Named Conjugate Negative ZeroTensor "
    "ADInplaceOrView AutogradOther AutogradNestedTensor Tracer AutocastFunctionality "
    "FuncTorchBatched FuncTorchVmapMode Batched VmapMode FuncTorchGradWrapper "
    "PythonTLSSnapshot PreDispatch PythonDispatcher FuncTorchDynamicLayerFrontMode "
    "CompositeExplicitAutograd CompositeImplicitAutograd Autograd FallThrough Undefined"
).split()
DispatchKey = enum.Enum(  # type: ignore[misc]
    "DispatchKey",
    [*_FUNCTIONALITIES, *(p + d for p in ("", "Autograd", "Autocast") for d in _DEVICES)],
)


class DispatchKeySet:
    """A set of keys."""

    def __init__(self, *keys: Any) -> None:
        self.keys: frozenset[Any] = frozenset(
            key for k in keys for key in (k.keys if isinstance(k, DispatchKeySet) else (k,))
        )

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self, other)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self.keys & other.keys))

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self.keys - other.keys))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    def has(self, key: Any) -> bool:
        """Return whether a key is in it."""
        return key in self.keys

    def add(self, key: Any) -> DispatchKeySet:
        """Return the set with a key."""
        return DispatchKeySet(self, key)

    def remove(self, key: Any) -> DispatchKeySet:
        """Return the set without a key."""
        return DispatchKeySet(*(self.keys - {key}))

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(key.name for key in self.keys))})"


class ExcludeDispatchKeyGuard:
    """Context manager: autocast is off for the devices whose autocast keys a set has."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self.devices = sorted(
            key.name.removeprefix("Autocast").lower()
            for key in keys.keys
            if key.name.startswith("Autocast") and key.name != "AutocastFunctionality"
        )
        self._left = ExitStack()

    def __enter__(self) -> None:
        for device in self.devices:
            if tangrad.is_autocast_enabled(device):
                self._left.enter_context(tangrad.autocast(device, enabled=False))

    def __exit__(self, *exc: object) -> None:
        self._left.close()


def _is_alias_of(a: Any, b: Any) -> bool:
    """Return whether two tensors see the same memory."""
    mine, other = a.untyped_storage(), b.untyped_storage()
    return mine is other or bool(mine._handle == other._handle != (0, 0))


def _transforms_active() -> bool:
    """Return whether a call stands inside `grad`, `vmap` or another transform."""
    return bool(current().levels)


def _function_modes() -> int:
    """Return how many modes of `__torch_function__` are active in this thread."""
    return len(current().function_modes)


def _is_batched(t: Any) -> bool:
    """Return whether a tensor stands for a batch of them inside `vmap`."""
    record = level_of(t)
    return record is not None and isinstance(getattr(record, "level", None), BatchLevel)


def _functorch() -> ModuleType:
    """Return `torch._C._functorch`: what asks about transforms answers."""
    module = ModuleType("torch._C._functorch", "Answer what other libraries ask about transforms.")
    vars(module).update(is_batchedtensor=_is_batched)
    for name in ("_add_batch_dim", "_remove_batch_dim", "get_unwrapped", "maybe_get_bdim"):
        setattr(module, name, refused("_C._functorch", name))
    return module


def show(compiled: ModuleType) -> None:
    """Show these under the names that they have in `torch._C`."""
    compiled._functorch = sys.modules["torch._C._functorch"] = _functorch()  # type: ignore[attr-defined]
    vars(compiled).update(
        DispatchKey=DispatchKey,
        DispatchKeySet=DispatchKeySet,
        _ExcludeDispatchKeyGuard=ExcludeDispatchKeyGuard,
        _LinAlgError=tangrad.linalg.LinAlgError,
        _are_functorch_transforms_active=_transforms_active,
        _get_accelerator=lambda: tangrad.accelerator.current_accelerator() or tangrad.device("cpu"),
        _is_alias_of=_is_alias_of,
        _is_torch_function_mode_enabled=lambda: bool(_function_modes()),
        _len_torch_function_stack=_function_modes,
    )
