"""The file that tells what a checkpoint holds: JSON with a checksum, so that no code is run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import tangrad
from tangrad_distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

FORMAT = "tangrad-checkpoint"
VERSION = 1


@dataclass(frozen=True)
class StoredAt:
    """Tell where a piece lies: its file, where it begins there, its bytes and their CRC-32."""

    relative_path: str
    offset: int
    length: int
    checksum: int


def encoded(metadata: Metadata) -> bytes:
    """Return the file's content."""
    keys = {}
    for key, stored in metadata.state_dict_metadata.items():
        path = (metadata.planner_data or {}).get(key, (key,))
        keys[key] = {"path": list(path), **_described(key, stored, metadata.storage_data)}
    body = json.dumps({"format": FORMAT, "version": VERSION, "keys": keys}, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"{body}\nsha256 {digest}\n".encode()


def _described(key: str, stored: Any, places: dict[MetadataIndex, StoredAt]) -> dict[str, Any]:
    if isinstance(stored, BytesStorageMetadata):
        return {"at": _place(places[MetadataIndex(key)])}
    return {
        "dtype": stored.properties.dtype.name,
        "requires_grad": stored.properties.requires_grad,
        "size": list(stored.size),
        "pieces": [
            [list(one.offsets), list(one.sizes), _place(places[MetadataIndex(key, one.offsets)])]
            for one in stored.chunks
        ],
    }


def _place(at: StoredAt) -> list[Any]:
    return [at.relative_path, at.offset, at.length, at.checksum]


def decoded(content: bytes, where: str) -> Metadata:
    """Return what a file's content tells.

    Args:
        content: of the file.
        where: its name, for messages.

    Raises:
        ValueError: it is damaged, of another format, or of a newer version.
    """
    if content[:1] == b"\x80":
        raise ValueError(
            f"{where} is a pickle, as PyTorch's checkpoints have: convert it there by "
            "torch.distributed.checkpoint.format_utils.dcp_to_torch_save, and load that file"
        )
    body, _, digest = content.rstrip(b"\n").rpartition(b"\nsha256 ")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError(f"{where} is damaged: its checksum does not fit its content")
    told = json.loads(body)
    if told.get("format") != FORMAT:
        raise ValueError(f"{where} is no checkpoint of tangrad")
    if told["version"] > VERSION:
        raise ValueError(
            f"{where} is of version {told['version']}, and this one reads up to {VERSION}"
        )
    known: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    places: dict[MetadataIndex, StoredAt] = {}
    for key, entry in told["keys"].items():
        known[key] = _stored(key, entry, places)
    paths = {key: tuple(entry["path"]) for key, entry in told["keys"].items()}
    return Metadata(known, paths, places, version=str(told["version"]))


def _stored(
    key: str, entry: dict[str, Any], places: dict[MetadataIndex, StoredAt]
) -> TensorStorageMetadata | BytesStorageMetadata:
    if "at" in entry:
        places[MetadataIndex(key)] = StoredAt(*entry["at"])
        return BytesStorageMetadata()
    chunks = []
    for offsets, sizes, place in entry["pieces"]:
        chunks.append(ChunkStorageMetadata(tuple(offsets), tuple(sizes)))
        places[MetadataIndex(key, chunks[-1].offsets)] = StoredAt(*place)
    dtype = getattr(tangrad, entry["dtype"])
    properties = TensorProperties(dtype, requires_grad=entry["requires_grad"])
    return TensorStorageMetadata(properties, tuple(entry["size"]), chunks)
