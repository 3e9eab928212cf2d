"""Read a file as a message, and tensors of it as arrays, taking no memory on a file's word."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, numpy_helper

from tangrad_onnx.errors import OnnxError
from tangrad_onnx.values import NUMPY_TYPES, Array

_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
# Which field holds numbers of a dtype that are not raw, and how many fill one element.
_FIELDS = {
    **dict.fromkeys((1, 14), "float_data"),
    **dict.fromkeys((11, 15), "double_data"),
    7: "int64_data",
    **dict.fromkeys((12, 13), "uint64_data"),
    8: "string_data",
}
_PARTS = {14: 2, 15: 2}
_MOST_BESIDE_NONE = 2**27  # product of the other sizes of an empty tensor: loops go over them


class Folder:
    """Where a model's external data may lie.

    Args:
        path: of the model, None for a message without one.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.given = None if path is None else Path(path).absolute().parent
        self.real = None if path is None else Path(path).resolve().parent
        self.used: dict[str, int] = {}

    def read(self, location: str, offset: int, length: int | None) -> bytes:
        """Return bytes of a file beside the model, which is checked and opened once.

        Raises:
            OnnxError: the location leaves the model's real folder, is no plain file, or is shorter.
        """
        if self.given is None or self.real is None:
            raise OnnxError("external data needs a model that is given by its path")
        parts = Path(location).parts
        if not location or Path(location).is_absolute() or ".." in parts or "\0" in location:
            raise OnnxError(f"external data at {location!r} is outside of the model's folder")
        real = (self.given / location).resolve()
        if not (real.is_relative_to(self.real) or real.is_relative_to(self.given.resolve())):
            raise OnnxError(f"external data at {location!r} leads out of the model's folder")
        try:
            handle = os.open(real, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | _NONBLOCK)
        except OSError as error:
            raise OnnxError(f"external data at {location!r} cannot be read: {error}") from None
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OnnxError(f"external data at {location!r} is no plain file")
            wanted = status.st_size - offset if length is None else length
            if offset < 0 or wanted < 0 or offset + wanted > status.st_size:
                raise OnnxError(
                    f"external data at {location!r} has {status.st_size} bytes; {wanted} from "
                    f"{offset} on are asked for"
                )
            self.used[location] = max(self.used.get(location, 0), offset + wanted)
            file.seek(offset)
            return file.read(wanted)


_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a pipe in the place of a file must not wait


def read_model(source: Any) -> tuple[ModelProto, Folder]:
    """Return a model and its folder, given a path, bytes or a message.

    Raises:
        OnnxError: it is no ONNX model.
        TypeError: the source is none of these.
    """
    if isinstance(source, ModelProto):
        return _checked(source, None), Folder(None)
    if isinstance(source, (bytes, bytearray)):
        return _parsed(bytes(source), None), Folder(None)
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise TypeError(f"load: expected a path, bytes or a ModelProto, got {kind}")
    path = os.fspath(source)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise OnnxError(f"cannot be read: {error}", file=path) from None
    return _parsed(content, path), Folder(path)


def _parsed(content: bytes, path: str | None) -> ModelProto:
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RecursionError) as error:
        raise OnnxError(f"this is no ONNX model: {error}", file=path) from None
    return _checked(model, path)


def _checked(model: ModelProto, path: str | None) -> ModelProto:
    if not model.HasField("graph"):
        raise OnnxError("this is no ONNX model: it has no graph", file=path)
    if not all(isinstance(name, str) for name in _names(model)):
        # The library of Protocol Buffers gives them as bytes.
        raise OnnxError("this is no ONNX model: a name in it is no UTF-8", file=path)
    return model


def _names(model: ModelProto) -> Iterator[Any]:
    """Yield the names in a model."""
    waiting: list[Any] = [model.graph, *model.functions]
    yield from (opset.domain for opset in model.opset_import)
    while waiting:
        part = waiting.pop()
        yield part.name
        if hasattr(part, "initializer"):
            for named in (*part.input, *part.output, *part.value_info, *part.initializer):
                yield named.name
        else:
            yield from (part.domain, *part.input, *part.output, *part.attribute)
        for node in part.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield from (attribute.name, attribute.ref_attr_name)
                waiting += [attribute.g] * attribute.HasField("g")
                waiting += attribute.graphs


def checked_shape(dims: Any, name: str) -> tuple[int, ...]:
    """Return dimensions that are no less than 0."""
    shape = tuple(dims)
    if any(size < 0 for size in shape):
        raise OnnxError(f"tensor {name!r} has a negative size: {list(shape)}")
    if 0 in shape and math.prod(size or 1 for size in shape) > _MOST_BESIDE_NONE:
        raise OnnxError(f"tensor {name!r} is empty and yet of the absurd shape {list(shape)}")
    return shape


def array_of(tensor: TensorProto, folder: Folder) -> Array:
    """Return a tensor of a message as an array.

    Raises:
        OnnxError: its dtype is unknown, or its data do not fill its shape.
    """
    kind, name = tensor.data_type, tensor.name
    if kind not in NUMPY_TYPES:
        raise OnnxError(f"tensor {name!r} has the unknown dtype {kind}")
    shape = checked_shape(tensor.dims, name)
    count = math.prod(shape)
    dtype = NUMPY_TYPES[kind]
    needed = -(-count * _BITS[kind] // 8) if kind in _BITS else count * dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        tensor = _inlined(tensor, folder, needed)
    if tensor.HasField("raw_data"):
        if kind == TensorProto.STRING:
            raise OnnxError(f"tensor {name!r} holds strings as raw data")
        if len(tensor.raw_data) != needed:
            raise OnnxError(
                f"tensor {name!r} of shape {list(shape)} needs {needed} bytes and has "
                f"{len(tensor.raw_data)}"
            )
        if kind not in _BITS:
            return (
                np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
            )
    else:
        field = getattr(tensor, _FIELDS.get(kind, "int32_data"))
        packed = 8 // _BITS[kind] if kind in _BITS else 1
        wanted = -(-count // packed) * _PARTS.get(kind, 1)
        if len(field) != wanted:
            raise OnnxError(
                f"tensor {name!r} of shape {list(shape)} needs {wanted} numbers and has "
                f"{len(field)}"
            )
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise OnnxError(f"tensor {name!r} cannot be read: {error}") from None
    if kind == TensorProto.STRING:
        array = np.array([_text(part) for part in array.ravel()], object).reshape(shape)
    return array


def _text(part: Any) -> str:
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)


def _inlined(tensor: TensorProto, folder: Folder, needed: int) -> TensorProto:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(fields.get("offset", 0))
        length = int(fields["length"]) if "length" in fields else needed
    except ValueError:
        raise OnnxError(f"external data of {tensor.name!r} has a bad offset or length") from None
    if length != needed:
        raise OnnxError(
            f"tensor {tensor.name!r} needs {needed} bytes; its external data are {length}"
        )
    full = TensorProto()
    full.data_type, full.name = tensor.data_type, tensor.name
    full.dims.extend(tensor.dims)
    full.raw_data = folder.read(fields.get("location", ""), offset, length)
    return full


def array_of_sparse(sparse: Any, folder: Folder) -> Array:
    """Return a sparse tensor of a message as a dense array.

    Raises:
        OnnxError: its indices do not fit, or it is out of proportion to what it stores.
    """
    shape = checked_shape(sparse.dims, sparse.values.name)
    values, indices = array_of(sparse.values, folder), array_of(sparse.indices, folder)
    if math.prod(shape) > max(2**24, 1024 * values.size):
        raise OnnxError(f"a sparse tensor of shape {list(shape)} holds {values.size} values")
    dense = np.zeros(math.prod(shape), values.dtype)
    if indices.ndim == 2:
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        indices = indices @ np.array(strides, np.int64)
    if indices.size != values.size or (indices.size and not _fits(indices, dense.size)):
        raise OnnxError("the indices of a sparse tensor do not fit its shape")
    dense[indices.astype(np.int64)] = values
    return dense.reshape(shape)


def _fits(indices: Array, count: int) -> bool:
    return bool(indices.min() >= 0 and indices.max() < count)
