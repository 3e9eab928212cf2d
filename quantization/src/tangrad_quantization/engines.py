"""`tangrad.backends.quantized`: the engines that programs choose among.

PyTorch's engines are libraries of kernels. Here all names mean this package's own kernels, whose
integers are those that every engine gives; what is set is kept, as programs read it back.
"""

from __future__ import annotations

import sys
from types import ModuleType

_ENGINES = ("qnnpack", "onednn", "x86", "fbgemm")


class _Quantized(ModuleType):
    """The module, whose attributes are checked when they are set."""

    _engine = "x86"

    @property
    def supported_engines(self) -> list[str]:
        """Names of the engines that may be set."""
        return list(_ENGINES)

    @supported_engines.setter
    def supported_engines(self, value: object) -> None:
        raise RuntimeError("Assignment not supported: backends.quantized.supported_engines")

    @property
    def engine(self) -> str:
        """Name of the engine in use; it may be set."""
        return self._engine

    @engine.setter
    def engine(self, value: str) -> None:
        if value not in _ENGINES:
            raise RuntimeError(
                f"{value} is not a valid value for quantized engine; there are "
                f"{', '.join(_ENGINES)}, which all mean the kernels of tangrad-quantization"
            )
        self._engine = value


sys.modules[__name__].__class__ = _Quantized
