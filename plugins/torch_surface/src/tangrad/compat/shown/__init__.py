"""How `__torch_dispatch__` sees calls: as PyTorch's handlers do.

==================  ============================================================================
`packets.py`        `ops.aten.NAME` and its overloads, which are the functions that handlers get
`recorded.py`       the derivative of a call that is offered as one, though here it is several
`forms.py`          PyTorch's inner ops by ours, with PyTorch's arguments
`overloads.py`      which overload a call is
`composites.py`     ops that are several here and one, or others, in PyTorch
`leaves.py`         the reverse: ops that are one here
`gradients.py`      steps of backward
==================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from tangrad.compat.shown.composites import COMPOSITES
from tangrad.compat.shown.gradients import GRADIENTS
from tangrad.compat.shown.leaves import LEAVES
from tangrad.compat.shown.overloads import handed as _handed
from tangrad.compat.shown.packets import call
from tangrad.compat.shown.recorded import EXPANDING
from tangrad.plugin import CallsShown


def _unless_expanding(shown: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda op, args: NotImplemented if EXPANDING.active else shown(op, args)


class PyTorchCalls(CallsShown):
    """Show calls as PyTorch's dispatcher does."""

    item = staticmethod(lambda t: call("_local_scalar_dense", t))
    handed = staticmethod(_handed)
    leaves = MappingProxyType({**GRADIENTS, **LEAVES})
    composites = MappingProxyType({name: _unless_expanding(f) for name, f in COMPOSITES.items()})
