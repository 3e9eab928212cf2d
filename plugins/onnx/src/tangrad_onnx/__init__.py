"""ONNX models as modules, and modules as ONNX models: `tangrad.onnx`.

What each name needs is imported with it: the onnx package takes a while.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad_onnx import errors as errors
    from tangrad_onnx import ops as ops
    from tangrad_onnx.errors import OnnxError as OnnxError
    from tangrad_onnx.errors import OnnxExporterError as OnnxExporterError
    from tangrad_onnx.errors import OnnxRunError as OnnxRunError
    from tangrad_onnx.errors import UnsupportedOperatorError as UnsupportedOperatorError
    from tangrad_onnx.exporting import export as export
    from tangrad_onnx.program import ONNXProgram as ONNXProgram
    from tangrad_onnx.reading.module import OnnxModule as OnnxModule
    from tangrad_onnx.reading.module import load as load
    from tangrad_onnx.state import is_in_onnx_export as is_in_onnx_export
    from tangrad_onnx.state import register_custom_op_symbolic as register_custom_op_symbolic
    from tangrad_onnx.state import unregister_custom_op_symbolic as unregister_custom_op_symbolic

API = 1

_PLACES = {
    "OnnxError": "errors",
    "OnnxRunError": "errors",
    "UnsupportedOperatorError": "errors",
    "OnnxModule": "reading.module",
    "load": "reading.module",
    "ONNXProgram": "program",
    "OnnxExporterError": "errors",
    "export": "exporting",
    "is_in_onnx_export": "state",
    "register_custom_op_symbolic": "state",
    "unregister_custom_op_symbolic": "state",
}
__all__ = [
    "ONNXProgram",
    "OnnxError",
    "OnnxExporterError",
    "OnnxModule",
    "OnnxRunError",
    "UnsupportedOperatorError",
    "errors",
    "export",
    "is_in_onnx_export",
    "load",
    "ops",
    "register_custom_op_symbolic",
    "unregister_custom_op_symbolic",
]


def __getattr__(name: str) -> Any:
    if name in ("errors", "ops"):
        return import_module(f"{__name__}.{name}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{place}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
