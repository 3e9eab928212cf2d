"""Programs as data: `torch.export`. A module is run on an example, and the graph of it is kept.

Graphs hold the calls that the program made, as it wrote them, whose sizes are those of the example
but for the dimensions that `dynamic_shapes` names (`sizes.py` finds out how they depend on them).
"""

from __future__ import annotations

from typing import Any

from tangrad.plugin import load_by_name, plugin_names
from tangrad.utils._pytree import register_dataclass
from tangrad_fx.export.dynamic_shapes import Dim, dims
from tangrad_fx.export.exported_program import ExportedProgram
from tangrad_fx.export.files import load, save
from tangrad_fx.export.frontend import draft_export, export
from tangrad_fx.export.graph_signature import ExportGraphSignature
from tangrad_fx.export.lowering import default_decompositions
from tangrad_fx.export.shape_collections import AdditionalInputs, ShapesCollection
from tangrad_fx.export.tracing import ValueReadError
from tangrad_fx.export.unflatten import InterpreterModule, UnflattenedModule, unflatten

__all__ = [
    "AdditionalInputs",
    "Dim",
    "ExportGraphSignature",
    "ExportedProgram",
    "InterpreterModule",
    "ShapesCollection",
    "UnflattenedModule",
    "ValueReadError",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
]


_EXPORTERS = "tangrad.exporters"


def __getattr__(name: str) -> Any:
    """Return an exporter of another package: what the entry-point group `tangrad.exporters` names.

    An exporter is called with a module, example arguments and a file.
    """
    if name.startswith("_") or name not in plugin_names(_EXPORTERS):
        known = ", ".join(plugin_names(_EXPORTERS)) or "none"
        raise AttributeError(
            f"module 'tangrad.export' has no attribute {name!r}; installed exporters: {known}"
        )
    return load_by_name(_EXPORTERS, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *plugin_names(_EXPORTERS)})
