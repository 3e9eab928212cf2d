"""Follow which modules are running, in forward and in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn.modules.hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Context manager that tells which modules are running at any moment.

    A module is named by its path from the outermost one's class, such as "Net.layer1.conv".
    Backward is in it from the gradient of an output to the gradient of an input; where no input
    has one, until the next forward begins.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._forward: list[str] = []
        self._backward: set[str] = set()
        self._handles: list[Any] = []

    @property
    def parents(self) -> set[str]:
        """Return the names of the modules that are running, and "Global"."""
        return {"Global", *self._forward, *self._backward}

    @property
    def is_bw(self) -> bool:
        """Return whether one of them runs backward."""
        return bool(self._backward)

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enter(self, module: Any, inputs: Any) -> None:
        if not self._forward:
            self._backward.clear()
        name = self.names.setdefault(id(module), type(module).__name__)
        for child, inner in module.named_children():
            self.names[id(inner)] = f"{name}.{child}"
        self._forward.append(name)
        self._hook(inputs, lambda grad: self._left_in_backward(name))

    def _leave(self, module: Any, inputs: Any, outputs: Any) -> None:
        name = self._forward.pop()
        self._hook(outputs, lambda grad: self._backward.add(name))

    def _left_in_backward(self, name: str) -> None:
        self._backward = {n for n in self._backward if not f"{n}.".startswith(f"{name}.")}

    def _hook(self, values: Any, hook: Callable[[Any], Any]) -> None:
        for x in values if isinstance(values, (list, tuple)) else [values]:
            if isinstance(x, tangrad.Tensor) and x.requires_grad:
                self._handles.append(x.register_hook(hook))
