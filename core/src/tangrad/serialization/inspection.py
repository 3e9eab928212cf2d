"""Tell what a file holds, without loading it and without running what it names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from tangrad import _C
from tangrad.serialization.archive import ArchiveReader
from tangrad.serialization.errors import SerializationError, UnsafeContentError, shown
from tangrad.serialization.globals import (
    Globals,
    TensorBuilder,
    as_torch,
    check_geometry,
    reader_of_layout,
    storage_fields,
)
from tangrad.serialization.machine import SafeUnpickler
from tangrad.serialization.source import Source
from tangrad.tensor.exchange import dtype_named


class TensorDescription(NamedTuple):
    """A tensor of a file.

    Attributes:
        dtype: name of its dtype.
        shape: its sizes.
        storage: key of its storage.
        kind: "tensor", or "parameter".
    """

    dtype: str
    shape: tuple[int, ...]
    storage: str
    kind: str = "tensor"


class StorageDescription(NamedTuple):
    """A storage of a file.

    Attributes:
        key: its name in the file.
        dtype: of its elements.
        nbytes: its size.
    """

    key: str
    dtype: Any
    nbytes: int


class _Describer(TensorBuilder):
    """Describe tensors in place of building them."""

    def tensor(self, stored: Any, offset: Any, size: Any, stride: Any) -> Any:
        if not isinstance(stored, StorageDescription):
            raise SerializationError("a tensor of the file has no storage")
        check_geometry(size, stride, offset, stored.dtype.itemsize, stored.nbytes)
        return TensorDescription(stored.dtype.name, tuple(size), stored.key)

    def seen_as(self, stored: Any, dtype: Any) -> Any:
        if not isinstance(stored, StorageDescription) or not isinstance(dtype, _C.dtype):
            raise SerializationError("a tensor of the file has no storage, or no dtype")
        return stored._replace(dtype=dtype)

    def marked(self, tensor: Any, requires_grad: Any, metadata: Any = None) -> Any:
        return tensor

    def rebuild_parameter(self, data: Any, requires_grad: Any, backward_hooks: Any) -> Any:
        return data._replace(kind="parameter")

    def rebuild_parameter_with_state(
        self, data: Any, requires_grad: Any, backward_hooks: Any, state: Any
    ) -> Any:
        return data._replace(kind="parameter")

    def rebuild_meta_tensor(self, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
        return TensorDescription(dtype.name, tuple(size), "")

    def rebuild_from_type(self, function: Any, cls: Any, args: Any, state: Any) -> Any:
        return function(*args)


class _Unknown:
    """Stands for something that the file names and that is not looked up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> Any:
        return _Unknown(self.name)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Take what a list would."""


class _NamesOnly(Globals):
    """Collect names that are not plain, and put something harmless in their place."""

    def __init__(self) -> None:
        super().__init__(_Describer(), plain=True)
        self.unsafe: list[str] = []

    def find(self, module: str, name: str) -> Any:
        if reader_of_layout(as_torch(module), name) is not None:
            return _Unknown(f"{module}.{name}")
        try:
            return super().find(module, name)
        except UnsafeContentError:
            whole = f"{module}.{name}"
            if whole not in self.unsafe:
                self.unsafe.append(whole)
            return _Unknown(whole)

    def may_call(self, function: Any, args: tuple[Any, ...]) -> bool:
        return isinstance(function, _Unknown) or super().may_call(function, args)

    def may_build(self, target: Any) -> bool:
        return isinstance(target, _Unknown) or super().may_build(target)


def describe(f: Any) -> dict[str, Any]:
    """Return what a file holds.

    Args:
        f: a path or a file object.

    Returns:
        ``"format"``: "PyTorch zip", "PyTorch before 1.6" or "safetensors"; ``"bytes"``: the file's
        size; ``"tensors"``: {name: `TensorDescription`}; ``"values"``: {name: what else there is};
        ``"unsafe"``: names that a load of plain values refuses; ``"metadata"``: texts.

    Raises:
        SerializationError: the file is damaged.
        OSError: it cannot be opened.
    """
    from tangrad.serialization import safetensors

    with Source(f) as source:
        start = source.read(0, min(16, source.size))
        found: dict[str, Any] = {"bytes": source.size, "values": {}, "unsafe": [], "metadata": {}}
        if start[8:9] == b"{":
            header, metadata, _ = safetensors.read_header(source)
            found |= {"format": "safetensors", "metadata": metadata}
            found["tensors"] = {
                name: TensorDescription(
                    safetensors.DTYPES[entry["dtype"]], tuple(entry["shape"]), name
                )
                for name, entry in header.items()
            }
            return found
        names = _NamesOnly()
        if start[:2] == b"PK":
            found["format"] = "PyTorch zip"
            archive = ArchiveReader(source)
            content = archive.read("data.pkl")
            result, _ = _machine(content, names, source, archive).load()
        else:
            found["format"] = "PyTorch before 1.6"
            machine = _machine(source.read(0, source.size), names, source, None)
            at = 0
            for _ in range(4):
                result, at = machine.load(at)
    found["unsafe"] = names.unsafe
    found["tensors"] = {}
    for name, item in _leaves(result):
        kind = "tensors" if isinstance(item, TensorDescription) else "values"
        found[kind][name] = item
    return found


def _machine(
    content: Any, names: _NamesOnly, source: Source, archive: Any, tell: Any = None
) -> SafeUnpickler:
    def load(key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 4 and key[0] == "module":
            return key[1]
        kind, name, location, count, _ = storage_fields(key)
        if tell is not None:
            tell(kind, name, location, count)
        dtype = dtype_named(kind.dtype)
        nbytes = count * dtype.itemsize
        if archive is not None:
            nbytes = archive.member(f"data/{name}").size
        return StorageDescription(name, dtype, nbytes)

    return SafeUnpickler(content, names.find, load, names.may_call, names.may_build, source.name)


def end_of_pickle(source: Source, content: Any, start: int, tell: Any) -> int | None:
    """Return where a pickle ends, building nothing of it, or None if that cannot be seen.

    Args:
        content: what holds the pickle.
        start: where it begins.
        tell: is called with the type, key, location and length of each storage that it names.
    """
    try:
        return _machine(content, _NamesOnly(), source, None, tell).load(start)[1]
    except SerializationError:
        return None


def _leaves(item: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the dotted names of what is not a container, and these."""
    if isinstance(item, _Unknown):
        state = getattr(item, "state", None)
        item = state if isinstance(state, dict) else f"<{item.name}>"
    if isinstance(item, TensorDescription) or depth > 50:
        yield name, item
    elif isinstance(item, dict):
        for key, value in item.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(item, (list, tuple)) and any(_holds(part) for part in item):
        for place, value in enumerate(item):
            yield from _leaves(value, f"{name}[{place}]", depth + 1)
    else:
        yield name, item


def _holds(item: Any) -> bool:
    return isinstance(item, (dict, list, tuple, TensorDescription, _Unknown))


def as_text(found: dict[str, Any], name: str) -> str:
    """Return what `describe` found, as a table."""
    tensors: dict[str, TensorDescription] = found["tensors"]
    lines = [f"{name}: {found['format']}, {_size(found['bytes'])}"]
    if found["unsafe"]:
        lines.append("NOT SAFE: a load with weights_only=False would look up and call")
        lines += [f"  {unsafe}" for unsafe in found["unsafe"]]
    else:
        lines.append("safe: holds tensors and plain values only")
    for key, value in found["metadata"].items():
        lines.append(f"metadata {key}: {value}")
    if tensors:
        width = max(len(key) for key in tensors)
        numbers = sum(math.prod(item.shape) for item in tensors.values())
        lines += ["", f"{len(tensors)} tensors, {numbers:,} elements"]
        first: dict[str, str] = {}
        for key, item in tensors.items():
            shared = first.setdefault(item.storage, key) if item.storage else key
            remark = f"  shares memory with {shared}" if shared != key else ""
            shape = ", ".join(map(str, item.shape))
            lines.append(f"  {key:<{width}}  {item.dtype:<9} [{shape}]{remark}")
    if found["values"]:
        lines += ["", "other values"]
        lines += [
            f"  {key or '(the whole)'} = {shown(value, 80)}"
            for key, value in found["values"].items()
        ]
    return "\n".join(lines)


def _size(nbytes: int) -> str:
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= step:
            return f"{nbytes / step:.1f} {unit}"
    return f"{nbytes} bytes"


def as_json(found: dict[str, Any]) -> str:
    """Return what `describe` found, as JSON."""
    tensors = {key: item._asdict() for key, item in found["tensors"].items()}
    values = {key: repr(value) for key, value in found["values"].items()}
    return json.dumps({**found, "tensors": tensors, "values": values}, indent=2)
