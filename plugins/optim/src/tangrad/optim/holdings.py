"""What memory optimizers hold, for the error of a device that is out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad.optim.optimizer import Optimizer
from tangrad.plugin import sources_of_holdings


def of_optimizers(objects: list[Any], names: dict[int, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the tensors in the states of optimizers."""
    for optimizer in objects:
        if not issubclass(type(optimizer), Optimizer):
            continue
        for parameter, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, tangrad.Tensor):
                    owner = names.get(id(parameter), "a parameter")
                    yield "optimizer states", f"{owner}.{key}", value


sources_of_holdings.append(of_optimizers)
