"""A batch divided among the devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import tangrad
from tangrad.nn.modules.module import Module
from tangrad.nn.parallel.parallel_apply import parallel_apply
from tangrad.nn.parallel.replicate import replicate
from tangrad.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Divide each batch among devices, and gather the results on one.

    Each forward makes replicas of the module on the other devices; gradients flow back to the
    parameters of the module itself. Buffers that are written on other devices are lost.

    Where there is one device of the module's type, as on a machine without accelerators, the
    module is called with the whole batch: programs and states that are written for it work.

    Args:
        module: the module, on the first device.
        device_ids: devices, or numbers of devices of the module's type, which count where there
            are several; None for all of that type.
        output_device: where results are gathered; the first device by default.
        dim: dimension of the samples.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        """Hold the module, and move it to the device if that is one."""
        super().__init__()
        self.module, self.dim = module, dim
        self.devices = _devices(module, device_ids)
        self.device_ids = [device.index for device in self.devices]
        if not self.devices:
            return
        first = self.devices[0]
        self.output_device = first if output_device is None else _device(output_device, first.type)
        if len(self.devices) == 1:
            module.to(first)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module on each device with its part of the batch.

        Raises:
            RuntimeError: a parameter or buffer is not on the first device.
        """
        if not self.devices:
            return self.module(*inputs, **kwargs)
        for tensor in chain(self.module.parameters(), self.module.buffers()):
            if tensor.device != self.devices[0]:
                raise RuntimeError(
                    "module must have its parameters and buffers on device "
                    f"{self.devices[0]} (device_ids[0]) but found one of them on device: "
                    f"{tensor.device}"
                )
        divided, named = scatter_kwargs(inputs, kwargs, self.devices, self.dim)
        if not divided:
            divided, named = ((),), ({},)
        if len(self.devices) == 1:
            return self.module(*divided[0], **named[0])
        used = self.devices[: len(divided)]
        replicas = replicate(self.module, used, not tangrad.is_grad_enabled())
        results = parallel_apply(replicas, divided, named, used)
        return gather(results, self.output_device, self.dim)


def _device(named: Any, kind: str) -> Any:
    found = tangrad.device(kind, named) if isinstance(named, int) else tangrad.device(named)
    return tangrad.device(found.type, 0) if found.index is None else found


def _devices(module: Module, device_ids: Sequence[Any] | None) -> list[Any]:
    """Return the devices to divide among; none where there is only the module's own."""
    tensor = next(chain(module.parameters(), module.buffers()), None)
    kind = tangrad.get_default_device().type if tensor is None else tensor.device.type
    several = _count(kind) > 1
    if device_ids is None:
        return [tangrad.device(kind, index) for index in range(_count(kind))] if several else []
    return [_device(one, kind) for one in device_ids if several or not isinstance(one, int)]


def _count(kind: str) -> int:
    """Return how many devices of a type there are, as far as its module tells."""
    try:
        return int(tangrad.get_device_module(kind).device_count())
    except (RuntimeError, AttributeError):
        return 1


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call a module with what `DataParallel` would.

    Args:
        module: the module, on the first device.
        inputs: its argument, or a tuple of them.
        device_ids, output_device, dim: as for `DataParallel`.
        module_kwargs: its keyword arguments.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    divided = DataParallel(module, device_ids, output_device, dim)
    return divided(*inputs, **(module_kwargs or {}))
