"""The family of errors that reading, running and writing ONNX files raises."""

from __future__ import annotations

from typing import Any

from tangrad.serialization import SerializationError

__all__ = ["OnnxError", "OnnxExporterError", "OnnxRunError", "UnsupportedOperatorError"]


class OnnxError(SerializationError):
    """A model cannot be read, run or written.

    Args:
        reason: what is wrong, and what can be done.
        file: name of the file.
        node: name of the node at fault.
        operator: its operator, with its domain unless that is ai.onnx.
        module: path of the module that the node comes from.

    Attributes:
        reason: as given; so are `file`, `node`, `operator` and `module`, each None when unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | None = None,
        node: str | None = None,
        operator: str | None = None,
        module: str | None = None,
    ) -> None:
        super().__init__(reason, file=file)
        self.node, self.operator, self.module = node, operator, module

    def __str__(self) -> str:
        places = {
            "node": self.node,
            "operator": self.operator,
            "module": self.module,
            "file": self.file,
        }
        told = ", ".join(f"{kind} {name!r}" for kind, name in places.items() if name)
        return f"{self.reason} ({told})" if told else self.reason

    def __reduce__(self) -> Any:
        state = {"node": self.node, "operator": self.operator, "module": self.module}
        return (type(self), (self.reason,), state | {"file": self.file})


class UnsupportedOperatorError(OnnxError):
    """An operator has no form on the other side."""


class OnnxRunError(OnnxError):
    """A node of a loaded model cannot compute what it was given."""


class OnnxExporterError(OnnxError):
    """A program cannot be written as an ONNX model."""
