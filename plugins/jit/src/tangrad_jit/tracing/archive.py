"""`jit.save` and `jit.load`, and the form of archives in which traces are that no script can be.

Scripts, and traces whose runs are programs of the script language, are in PyTorch's form
(`tangrad_jit.scripting.archive`). This one is a zip of graphs, tensors and structure; no code is
run on loading.

format            "tangrad.jit 1"
structure.json    modules, names, training flags, structures of arguments and results
graphs/NAME.txt   a graph per method, as the printer writes it
graphs/NAME.batch.txt  its graph for any number of rows, where there is one
tensors.pt        parameters, buffers and constants, as `tangrad.save` writes them
code/NAME.txt     the same graphs with their places, for people
extra/NAME        what the program added
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import tangrad
from tangrad import nn
from tangrad.serialization import SerializationError
from tangrad_jit.capture.recorder import memory_of
from tangrad_jit.graph.growing import GrowingInt
from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.parser import parse
from tangrad_jit.graph.retyping import check_types
from tangrad_jit.graph.verifier import verify
from tangrad_jit.tracing.archive_writing import FORMAT
from tangrad_jit.tracing.batches import BatchGraph
from tangrad_jit.tracing.structure import Arguments, Structure
from tangrad_jit.tracing.traced_module import (
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
    TracedGraph,
    TracedModule,
)

__all__ = ["load", "save"]

_LARGEST_TEXT = 1 << 28


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced module or function.

    What is scripted, and a trace that is a program, too, are written in PyTorch's form, which its
    own `jit.load` reads.

    Args:
        m: what `script`, `trace` or `trace_module` returned.
        f: path or file.
        _extra_files: name -> text or bytes to keep beside it.

    Raises:
        ValueError: `m` was not traced, or its graph has a constant that no text stands for.
    """
    if not isinstance(m, (ScriptModule, ScriptFunction)):
        raise ValueError(
            f"jit.save writes what jit.trace and jit.script make, not {type(m).__name__}: trace or "
            "script it first"
        )
    m.save(f, _extra_files)


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
) -> Any:
    """Return what `jit.save` wrote, here or in PyTorch.

    Args:
        f: path or file.
        map_location: device for the tensors, as in `tangrad.load`.
        _extra_files: its values are replaced by what is kept under its keys.
        _restore_shapes: accepted.

    Raises:
        SerializationError: the file is damaged, or no such archive.
        FileNotFoundError: there is no file.
    """
    try:
        with zipfile.ZipFile(f) as archive:
            if any(name.rpartition("/")[2] == "constants.pkl" for name in archive.namelist()):
                from tangrad_jit.scripting.archive.reading import read_archive

                return read_archive(archive, map_location, _extra_files)
            return _read(archive, map_location, _extra_files)
    except (SerializationError, FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged file makes of our own readers
        raise SerializationError(
            f"jit.load: {f} is damaged, or no archive of jit.save: {error}"
        ) from error


def _read(archive: zipfile.ZipFile, map_location: Any, extra: dict[str, Any] | None) -> Any:
    if archive.read("format").decode() != FORMAT:
        raise SerializationError("jit.load: the archive is of another format")
    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
        raise SerializationError("jit.load: jit.save compresses no member")
    damaged = archive.testzip()
    if damaged is not None:
        raise SerializationError(f"jit.load: the checksum of {damaged} is wrong")
    described = json.loads(_text(archive, "structure.json"))
    tensors = tangrad.load(
        io.BytesIO(archive.read("tensors.pt")), map_location=map_location, weights_only=True
    )
    for name in extra or {}:
        extra[name] = archive.read(f"extra/{name}").decode()  # type: ignore[index]
    methods = {
        name: _read_graph(archive, name, entry, tensors)
        for name, entry in described["methods"].items()
    }
    if "function" in described:
        return ScriptFunction(str(described["function"]), methods["forward"])
    made = TopLevelTracedModule(None, methods)
    _fill(made, described["module"], "", tensors, {})
    held = made._held()
    for name, traced in methods.items():
        batch = [] if traced.batch is None else traced.batch.graph.inputs
        for entry in [*traced.graph.inputs, *batch]:
            if entry.kind == "capture" and entry.name not in held:
                raise SerializationError(
                    f"jit.load: {name} uses {entry.name!r}, which is not there"
                )
    return made


def _text(archive: zipfile.ZipFile, name: str) -> str:
    if archive.getinfo(name).file_size > _LARGEST_TEXT:
        raise SerializationError(f"jit.load: {name} is larger than any graph")
    return archive.read(name).decode()


def _read_graph(
    archive: zipfile.ZipFile, name: str, entry: dict[str, Any], tensors: dict[str, Any]
) -> TracedGraph:
    graph = _read_text(archive, name, entry["constants"], tensors)
    batch = None
    if "batch" in entry:
        batch = _read_batch(archive, f"{name}.batch", entry["batch"], tensors)
    arguments = Arguments(entry["arguments"], entry["names"])
    result = Structure(entry["result"])
    if [kind for kind, _ in arguments.data[1]] != ["tuple", "dict"]:
        raise SerializationError(f"jit.load: {name} is called with neither a tuple nor a dict")
    given = sum(one.kind == "argument" for one in graph.inputs)
    if sorted(arguments.places()) != list(range(given)):
        raise SerializationError(f"jit.load: {name} takes {given} tensors, not these")
    if not set(result.places()) <= set(range(len(graph.outputs))):
        raise SerializationError(f"jit.load: {name} makes {len(graph.outputs)} results, not these")
    return TracedGraph(graph, arguments, result, batch)


def _read_text(
    archive: zipfile.ZipFile, name: str, constants: dict[str, str], tensors: dict[str, Any]
) -> Graph:
    graph: Graph = verify(parse(_text(archive, f"graphs/{name}.txt")), "load")
    check_types(graph)
    for place, key in constants.items():
        graph.inputs[int(place)].tensor = tensors[key]
    for given in graph.inputs:
        if given.kind == "constant" and given.tensor is None:
            raise SerializationError(f"jit.load: a constant of {name} has no value")
        if given.kind not in ("argument", "capture", "constant"):
            raise SerializationError(f"jit.load: {name} has an input of kind {given.kind!r}")
    return graph


def _read_batch(
    archive: zipfile.ZipFile, name: str, entry: dict[str, Any], tensors: dict[str, Any]
) -> BatchGraph:
    graph = _read_text(archive, name, entry["constants"], tensors)
    for k, path, by in entry["grows"]:
        node = graph.nodes[int(k)]
        node.args = _marked(node.args, [int(place) for place in path], int(by))
    arguments = tuple(int(k) for k in entry["arguments"])
    count = sum(given.kind == "argument" for given in graph.inputs)
    if not arguments or not all(0 <= k < count for k in arguments):
        raise SerializationError(f"jit.load: {name} grows with an argument that is not there")
    return BatchGraph(graph, int(entry["rows"]), arguments)


def _marked(item: Any, path: list[int], by: int) -> Any:
    """Return nested arguments with the integer at a place marked to grow."""
    if not path:
        if type(item) is not int:
            raise SerializationError("jit.load: what grows with the rows is no integer")
        return GrowingInt.of(item, by)
    members = list(item)
    members[path[0]] = _marked(members[path[0]], path[1:], by)
    return type(item)(members)


def _fill(
    made: TracedModule,
    described: dict[str, Any],
    prefix: str,
    tensors: Any,
    known: dict[Any, nn.Parameter],
) -> None:
    made.original_name, made.training = str(described["name"]), bool(described["training"])
    for key, requires_grad in described["parameters"].items():
        parameter = None
        if requires_grad is not None:
            # Parameters that were one are one again.
            parameter = known.setdefault(
                memory_of(tensors[prefix + key]),
                nn.Parameter(tensors[prefix + key], requires_grad=bool(requires_grad)),
            )
        made.register_parameter(key, parameter)
    for key, persistent in described["buffers"].items():
        buffer = None if persistent is None else tensors[prefix + key]
        made.register_buffer(key, buffer, persistent=bool(persistent))
    for key, inner in described["modules"].items():
        child = None if inner is None else TracedModule()
        if child is not None:
            _fill(child, inner, f"{prefix}{key}.", tensors, known)
        made.add_module(key, child)
