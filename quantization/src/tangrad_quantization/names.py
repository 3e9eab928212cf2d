"""Every public name of the package; the package loads them when the first of them is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Union

from tangrad_quantization.evaluation import *  # noqa: F403
from tangrad_quantization.fake_quantize import *  # noqa: F403
from tangrad_quantization.fake_quantize import FakeQuantizeBase
from tangrad_quantization.fuse_modules import *  # noqa: F403
from tangrad_quantization.fuser_method_mappings import *  # noqa: F403
from tangrad_quantization.observer import *  # noqa: F403
from tangrad_quantization.observer import ObserverBase
from tangrad_quantization.observers.granularity import *  # noqa: F403
from tangrad_quantization.observers.histogram import *  # noqa: F403
from tangrad_quantization.qconfig import *  # noqa: F403
from tangrad_quantization.qconfig_mapping import *  # noqa: F403
from tangrad_quantization.quant_type import *  # noqa: F403
from tangrad_quantization.quantization_mappings import *  # noqa: F403
from tangrad_quantization.quantize import *  # noqa: F403
from tangrad_quantization.quantize_jit import *  # noqa: F403
from tangrad_quantization.stubs import *  # noqa: F403

if TYPE_CHECKING:
    from tangrad_quantization.automatic import auto as auto
    from tangrad_quantization.automatic.equalization import equalize as equalize
    from tangrad_quantization.weights.groups import quantize_per_group as quantize_per_group
    from tangrad_quantization.weights_only import quantize_ as quantize_

ObserverOrFakeQuantize = Union[ObserverBase, FakeQuantizeBase]  # noqa: UP007 (for isinstance)

# Loaded on first use of their own: what few programs need.
_LAZY = {
    "auto": "automatic",
    "equalize": "automatic.equalization",
    "quantize_": "weights_only",
    "quantize_per_group": "weights.groups",
}
_MODULES = (
    *("evaluation", "fake_quantize", "fuse_modules", "fuser_method_mappings"),
    *("observers.granularity", "observers.histogram"),
    *("observer", "qconfig", "qconfig_mapping", "quant_type"),
    *("quantization_mappings", "quantize", "quantize_jit", "stubs"),
)
# By `sys.modules`: the package shows functions where two of the modules are.
__all__ = sorted(
    {
        "ObserverOrFakeQuantize",
        *_LAZY,
        *(name for m in _MODULES for name in sys.modules[f"tangrad_quantization.{m}"].__all__),
    }
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        found = getattr(import_module(f"tangrad_quantization.{_LAZY[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'tangrad_quantization' has no attribute '{name}'")
