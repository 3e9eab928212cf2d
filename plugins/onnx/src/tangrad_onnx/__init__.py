"""ONNX models as modules, and modules as ONNX models: `tangrad.onnx`.

What each name needs is imported with it: the onnx package takes a while.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad_onnx.errors import OnnxError as OnnxError
    from tangrad_onnx.errors import OnnxRunError as OnnxRunError
    from tangrad_onnx.errors import UnsupportedOperatorError as UnsupportedOperatorError
    from tangrad_onnx.reading.module import OnnxModule as OnnxModule
    from tangrad_onnx.reading.module import load as load

API = 1

_PLACES = {
    "OnnxError": "errors",
    "OnnxRunError": "errors",
    "UnsupportedOperatorError": "errors",
    "OnnxModule": "reading.module",
    "load": "reading.module",
}
__all__ = ["OnnxError", "OnnxModule", "OnnxRunError", "UnsupportedOperatorError", "load"]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{place}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
