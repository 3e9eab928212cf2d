"""Define ops: the language of definitions, samples, and what rules of ops stand on.

The module can be called, too: it is what `tangrad.plugin.op` is, and that defines an op.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tangrad.plugin.names import OFFERED, offered

__getattr__, __dir__ = offered(__name__, OFFERED["op"])


class _DefinesOps(ModuleType):
    """Call the function of the same name, which the module hides once it is imported."""

    def __call__(self, *arguments: Any, **fields: Any) -> Any:
        from tangrad.ops.definition.define import op

        return op(*arguments, **fields)


sys.modules[__name__].__class__ = _DefinesOps
