"""`tangrad.ops.aten.NAME` and `tangrad.ops.aten.NAME.OVERLOAD`: our ops by PyTorch's inner names.

An overload is the op itself where handlers of `__torch_dispatch__` do not tell the overloads of
its name apart; else an object that is equal to the op.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.compat.shown.packets import packet


def __getattr__(name: str) -> Any:
    found = None if name.startswith("__") else packet(name)
    if found is None:
        if tangrad.ops.stand_for_absent is not None and not name.startswith("__"):
            return tangrad.ops.stand_for_absent(name)
        raise AttributeError(f"module 'tangrad.ops.aten' has no attribute {name!r}")
    globals()[name] = found
    return found
