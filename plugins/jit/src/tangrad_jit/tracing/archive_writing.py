"""Archives as traced modules and functions write themselves; `archive.py` tells the format."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import tangrad
from tangrad_jit.graph.growing import growing_in
from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.parser import ParseError, parse
from tangrad_jit.graph.printer import text_of

__all__ = ["FORMAT", "write"]

FORMAT = "tangrad.jit 1"


def write(
    f: Any,
    extra_files: dict[str, Any] | None,
    methods: dict[str, Any],
    *,
    function: str = "",
    module: Any = None,
) -> None:
    """Write an archive.

    Args:
        f: path or file.
        extra_files: name -> text or bytes to keep beside it.
        methods: name -> `TracedGraph`.
        function: the name of the function, where it is no module.
        module: the module that has the methods.

    Raises:
        ValueError: a graph has a constant that no text stands for.
    """
    tensors: dict[str, Any] = {}
    described: dict[str, Any] = {"methods": {}}
    if module is not None:
        described["module"] = _describe(module, "", tensors)
    else:
        described["function"] = function
    with zipfile.ZipFile(f, "w") as archive:
        archive.writestr("format", FORMAT)
        for name, traced in methods.items():
            described["methods"][name] = _write_graph(archive, name, traced, tensors)
        archive.writestr("structure.json", json.dumps(described))
        held = io.BytesIO()
        tangrad.save(tensors, held)
        archive.writestr("tensors.pt", held.getvalue())
        for name, content in (extra_files or {}).items():
            archive.writestr(f"extra/{name}", content)


def _write_graph(
    archive: zipfile.ZipFile, name: str, traced: Any, tensors: dict[str, Any]
) -> dict[str, Any]:
    archive.writestr(f"code/{name}.txt", text_of(traced.graph))
    found = {
        "arguments": traced.arguments.data,
        "names": list(traced.arguments.names),
        "result": traced.result.data,
        "constants": _write_text(archive, name, traced.graph, tensors),
    }
    batch = traced.batch
    if batch is not None:
        found["batch"] = {
            "rows": batch.rows,
            "arguments": list(batch.arguments),
            "grows": [
                [k, list(path), number.by]
                for k, node in enumerate(batch.graph.nodes)
                for path, number in growing_in(node.args)
            ],
            "constants": _write_text(archive, f"{name}.batch", batch.graph, tensors),
        }
    return found


def _write_text(
    archive: zipfile.ZipFile, name: str, graph: Graph, tensors: dict[str, Any]
) -> dict[str, str]:
    """Write a graph, and return the keys of its constants by the numbers of its inputs."""
    text = text_of(graph, places=False)
    try:
        same = text_of(parse(text), places=False) == text
    except ParseError:
        same = False
    if not same:
        raise ValueError(f"jit.save: the graph of {name} has a constant that cannot be written")
    archive.writestr(f"graphs/{name}.txt", text)
    constants = {}
    for k, entry in enumerate(graph.inputs):
        if entry.kind == "constant":
            key = f"constant {name} {k}"
            tensors[key] = entry.tensor.detach()
            constants[str(k)] = key
    return constants


def _describe(module: Any, prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": getattr(module, "original_name", type(module).__name__),
        "training": module.training,
        "parameters": {},
        "buffers": {},
        "modules": {},
    }
    for key, parameter in module._parameters.items():
        found["parameters"][key] = None if parameter is None else parameter.requires_grad
        if parameter is not None:
            tensors[prefix + key] = parameter.detach()
    for key, buffer in module._buffers.items():
        persistent = key not in module._non_persistent_buffers_set
        found["buffers"][key] = None if buffer is None else persistent
        if buffer is not None:
            tensors[prefix + key] = buffer.detach()
    for key, child in module._modules.items():
        inner = None if child is None else _describe(child, f"{prefix}{key}.", tensors)
        found["modules"][key] = inner
    return found
