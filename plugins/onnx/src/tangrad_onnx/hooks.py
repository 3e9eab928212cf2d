"""What this package adds to tangrad: the format of files whose names end in `.onnx`."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import hookimpl


class OnnxFormat:
    """Load, save and describe ONNX files."""

    def load(self, file: Any, map_location: Any = None) -> Any:
        """Return a file as a module."""
        from tangrad_onnx.reading.module import load

        source = file.read() if hasattr(file, "read") else file
        module = load(source)
        return module if map_location is None else module.to(map_location)

    def save(self, obj: Any, file: Any) -> None:
        """Write what `tangrad.onnx.export` has given, or an exported program."""
        from tangrad_onnx.exporting import export
        from tangrad_onnx.program import ONNXProgram

        program: Any = obj if isinstance(obj, ONNXProgram) else export(obj)
        if hasattr(file, "write"):
            file.write(program.model_proto.SerializeToString())
        else:
            program.save(file)

    def describe(self, file: Any) -> dict[str, Any]:
        """Return what a file holds, without building a module."""
        from tangrad_onnx.reading.inspection import describe

        return describe(file)


@hookimpl
def tangrad_register_formats() -> dict[str, Any]:
    """Offer the format."""
    return {".onnx": OnnxFormat()}
