"""The safetensors format: a JSON header, then the tensors' bytes.

https://github.com/huggingface/safetensors describes it. It has no checksums: a flipped bit in the
data is not found. Prefer `tangrad.save` where that matters.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from tangrad import _C
from tangrad.serialization.errors import SerializationError
from tangrad.serialization.placement import bytes_tensor, host_view, placed
from tangrad.serialization.source import Source
from tangrad.tensor.foreign import find_registered
from tangrad.tensor.on_storage import on_storage

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LARGEST_HEADER = 100_000_000


def _dtype(name: str) -> Any:
    return (find_registered if name[:2] == "F8" else _C.dtype_by_name)(DTYPES[name])


def read_header(source: Source) -> tuple[dict[str, Any], dict[str, str], int]:
    """Return {name: description}, the metadata, and where the data begins.

    Raises:
        SerializationError: the header is damaged, or describes what cannot be.
    """
    (length,) = struct.unpack("<Q", source.read(0, 8, "header"))
    if length > min(_LARGEST_HEADER, source.size - 8):
        raise source.error(f"the header claims {length} bytes", 0)
    try:
        header = json.loads(
            source.read(8, length, "header").decode("utf-8"), object_pairs_hook=_once
        )
    except (ValueError, RecursionError) as error:
        raise source.error(f"the header is no JSON: {error}", 8) from error
    if not isinstance(header, dict):
        raise source.error("the header is no JSON object", 8)
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise source.error("the header's metadata is not text", 8)
    start = 8 + length
    _check_tiling(source, header, source.size - start)
    return header, metadata, start


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _check_tiling(source: Source, header: dict[str, Any], nbytes: int) -> None:
    """Check that the tensors fill the data, without gaps and without overlap."""
    end = 0
    described = []
    for name, entry in header.items():
        try:
            dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
            legal = all(type(n) is int and 0 <= n < 2**62 for n in (*shape, first, last))
            itemsize = _dtype(dtype).itemsize
            legal = legal and last - first == math.prod(shape) * itemsize and len(shape) <= 64
        except (KeyError, TypeError, ValueError):
            raise source.error("the header describes a tensor wrongly", 8, name) from None
        if not legal:
            raise source.error("the header describes a tensor wrongly", 8, name)
        described.append((first, last, name))
    for first, last, name in sorted(described):
        if first != end:
            raise source.error("the tensors' data has a gap or overlaps", 8, name)
        end = last
    if end != nbytes:
        raise source.error(f"the header describes {end} bytes of data, but there are {nbytes}", 8)


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Any]:
    """Read all tensors of a safetensors file.

    Args:
        filename: a path or a file object.
        device: where the tensors go.

    Returns:
        {name: tensor}.

    Raises:
        SerializationError: the file is damaged.
    """
    place = placed(str(device))
    with Source(filename) as source:
        header, _, start = read_header(source)
        return {name: _tensor(source, start, name, entry, place) for name, entry in header.items()}


def _tensor(source: Source, start: int, name: str, entry: dict[str, Any], place: Any) -> Any:
    first, last = entry["data_offsets"]
    content = bytes_tensor(last - first)
    source.read_into(start + first, host_view(content), None, name)
    storage = place(content.untyped_storage(), "cpu")
    shape = tuple(entry["shape"])
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    dtype = _dtype(entry["dtype"])
    return on_storage(storage, dtype, 0, shape, tuple(reversed(stride)))


def load(data: bytes) -> dict[str, Any]:
    """Read all tensors of a safetensors file's content; see `load_file`."""
    import io

    return load_file(io.BytesIO(data))


def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file.

    Args:
        tensors: {name: dense tensor}.
        metadata: texts to keep with them.

    Raises:
        SerializationError: a name or dtype does not fit the format, or two tensors share memory.
    """
    import io

    stream = io.BytesIO()
    _write(tensors, metadata, stream.write)
    return stream.getvalue()


def save_file(
    tensors: dict[str, Any], filename: Any, metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file; one that exists is replaced when the new one is whole.

    Args:
        tensors: {name: dense tensor}.
        filename: the path.
        metadata: texts to keep with them.

    Raises:
        SerializationError: a name or dtype does not fit the format, or two tensors share memory.
        OSError: the file cannot be written.
    """
    from tangrad.serialization.writing import atomically, writing_to

    with atomically(filename) as file:
        write = writing_to(file)
        _write(tensors, metadata, write)


def _write(tensors: dict[str, Any], metadata: dict[str, str] | None, write: Any) -> None:
    header: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(item, str) for pair in metadata.items() for item in pair):
            raise SerializationError("safetensors: metadata must be {text: text}")
        header["__metadata__"] = metadata
    contents, at = [], 0
    seen: dict[int, str] = {}
    # The largest elements first, so that all are aligned.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        dtype = _NAMES.get(tensor.dtype.name)
        if dtype is None or name == "__metadata__":
            raise SerializationError(
                f"safetensors has no {tensor.dtype if dtype is None else 'tensor of this name'}",
                tensor=name,
            )
        key = tensor.untyped_storage().data_ptr()
        if tensor.numel() and seen.setdefault(key, name) != name:
            raise SerializationError(
                f"safetensors cannot say that '{name}' and '{seen[key]}' share memory: save one "
                "of them, or a clone()",
                tensor=name,
            )
        host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + host.nbytes],
        }
        at += host.nbytes
        contents.append(host)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write(struct.pack("<Q", len(text)) + text)
    for host in contents:
        if host.numel():
            write(host_view(host.reshape(-1).view(_C.dtype_by_name("uint8"))))
