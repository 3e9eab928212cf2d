"""A batch divided among devices: among the one that there is."""

from __future__ import annotations

from typing import Any

from tangrad.nn.modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Call a module with what it is called with, on the device where it is.

    It is what PyTorch's does on a machine without accelerators: programs and states that are
    written for it work, but no batch is divided.

    Args:
        module: the module.
        device_ids, output_device, dim: accepted and not used.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        """Hold the module."""
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call a module with what `DataParallel` would.

    Args:
        module: the module.
        inputs: its argument, or a tuple of them.
        device_ids, output_device, dim: accepted and not used.
        module_kwargs: its keyword arguments.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))
