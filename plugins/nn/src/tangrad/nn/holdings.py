"""What memory modules hold, for the error of a device that is out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tangrad.nn.modules.module import Module
from tangrad.plugin import sources_of_holdings


def of_modules(objects: list[Any], names: dict[int, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the tensors of modules that are part of no other; `names` learns the parameters'."""
    modules = [x for x in objects if issubclass(type(x), Module)]
    inner = {id(child) for module in modules for child in module.children()}
    for module in modules:
        if id(module) in inner:
            continue
        top = type(module).__name__
        for name, parameter in module.named_parameters():
            names[id(parameter)] = f"{top}.{name}"
            yield "parameters", names[id(parameter)], parameter
            if parameter.grad is not None:
                yield "gradients", names[id(parameter)], parameter.grad
        for name, buffer in module.named_buffers():
            yield "buffers", f"{top}.{name}", buffer


sources_of_holdings.insert(0, of_modules)  # first, for it names the parameters
