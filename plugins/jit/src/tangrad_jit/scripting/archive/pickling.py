"""Write the pickles of archives: objects of the script language, tensors by their storages."""

from __future__ import annotations

import enum
import struct
from typing import Any

import tangrad
from tangrad_jit.scripting.program.codes import rt_code
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    DictType,
    EnumType,
    ListType,
    OptionalType,
    TupleType,
    Type,
)

__all__ = ["ObjectPickler"]

_CODED = (tangrad.dtype, tangrad.layout, tangrad.memory_format, tangrad.qscheme)
_STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
    "qint8": "QInt8Storage",
    "quint8": "QUInt8Storage",
    "qint32": "QInt32Storage",
}
_LISTS: dict[Type, str] = {
    kinds.INT: "build_intlist",
    kinds.FLOAT: "build_doublelist",
    kinds.BOOL: "build_boollist",
    kinds.TENSOR: "build_tensorlist",
}


class ObjectPickler:
    """Write one pickle of protocol 2, as PyTorch's own reader of archives takes it.

    Args:
        type_text: type -> as archives write it.
        write_object: called for modules and instances, with the pickler.
        storages: keys of storages, which several pickles share.
    """

    def __init__(self, type_text: Any, write_object: Any, storages: dict[int, Any]) -> None:
        self.out = bytearray(b"\x80\x02")
        self._type_text, self._write_object, self.storages = type_text, write_object, storages
        self._known: dict[int, tuple[int, Any]] = {}
        self._texts: dict[str, str] = {}

    def finished(self) -> bytes:
        """Return the pickle."""
        return bytes(self.out) + b"."

    # --- opcodes

    def name(self, module: str, name: str) -> None:
        """Write the name of a global."""
        self.out += f"c{module}\n{name}\n".encode()

    def text(self, value: str) -> None:
        """Write a text."""
        content = value.encode("utf-8", "surrogatepass")
        self.out += b"X" + struct.pack("<I", len(content)) + content

    def _repeated_text(self, value: str) -> None:
        """Write a text, or the number of one that has been written."""
        known = self._texts.setdefault(value, value)
        if not self.repeated(known):
            self.text(known)
            self.remember(known)

    def integer(self, value: int) -> None:
        """Write an integer."""
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            self.out += b"\x8a\x08" + struct.pack("<q", value)

    def open(self) -> None:
        """Put a mark."""
        self.out += b"("

    def new_object(self, module: str, name: str) -> None:
        """Write an instance of a class, whose state follows."""
        self.name(module, name)
        self.out += b")\x81}("

    def end_object(self) -> None:
        """End the state of an instance."""
        self.out += b"ub"

    def new_object_of_state(self, qualified: str) -> None:
        """Write an instance of a class of `tangrad.classes`, whose state, a value, follows."""
        prefix, _, last = qualified.rpartition(".")
        self.name(prefix, last)
        self.out += b")\x81"

    def end_object_of_state(self) -> None:
        """End the state of such an instance."""
        self.out += b"b"

    def remember(self, value: Any) -> None:
        """Number the object that has been written last."""
        self._known[id(value)] = (len(self._known), value)
        self.out += b"r" + struct.pack("<I", len(self._known) - 1)

    def repeated(self, value: Any) -> bool:
        """Write the number of an object that has been written, if it has one."""
        known = self._known.get(id(value))
        if known is None:
            return False
        self.out += b"j" + struct.pack("<I", known[0])
        return True

    # --- values

    def value(self, value: Any, kind: Type) -> None:
        """Write a value of a type.

        Raises:
            RuntimeError: archives hold no values of it.
        """
        if isinstance(kind, OptionalType) and value is not None:
            kind = kind.element
        if value is None:
            self.out += b"N"
        elif isinstance(value, enum.Enum) and isinstance(kind, EnumType):
            prefix, _, last = self._type_text(kind).rpartition(".")
            self.name(prefix, last)
            self.value(value.value, kind.value)
            self.out += b"R"
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, tangrad.device):
            self.name("torch", "device")
            self.text(str(value))
            self.out += b"\x85R"
        elif isinstance(value, _CODED):
            self.integer(rt_code(value))
        elif isinstance(value, complex):
            self.name("builtins", "complex")
            self.value(value.real, kinds.FLOAT)
            self.value(value.imag, kinds.FLOAT)
            self.out += b"\x86R"
        elif isinstance(value, str):
            self._repeated_text(value)
        elif isinstance(value, tangrad.Tensor):
            self.tensor(value)
        elif isinstance(value, (list, dict)):
            self._container(value, kind)
        elif isinstance(value, tuple):
            members = kind.elements if isinstance(kind, TupleType) else ()
            self.open()
            for item, member in zip(value, members, strict=True):
                self.value(item, member)
            self.out += b"t"
        elif isinstance(value, (tangrad.nn.Module,)) or isinstance(
            kind, (kinds.ClassType, kinds.InterfaceType)
        ):
            self._write_object(self, value, kind)
        else:
            raise RuntimeError(f"jit.save: no archive holds a {type(value).__name__}")

    def _container(self, value: Any, kind: Type) -> None:
        if isinstance(kind, ListType):
            special = _LISTS.get(kind.element)
            self.name("torch.jit._pickle", special or "restore_type_tag")
            self.open()
            self.out += b"]("
            for item in value:
                self.value(item, kind.element)
            self.out += b"e"
        else:
            assert isinstance(kind, DictType)
            special = None
            self.name("torch.jit._pickle", "restore_type_tag")
            self.open()
            self.out += b"}("
            for key, item in value.items():
                self.value(key, kind.key)
                self.value(item, kind.value)
            self.out += b"u"
        if special is None:
            self.text(self._type_text(kind))
        self.out += b"tR"

    def tensor(self, value: Any) -> None:
        """Write a tensor by its storage.

        Raises:
            RuntimeError: its dtype has no name in archives.
        """
        if self.repeated(value):
            return
        name = _STORAGES.get(value.dtype.name)
        if name is None:
            raise RuntimeError(f"jit.save: no archive holds tensors of {value.dtype}")
        held = value.int_repr().contiguous() if value.is_quantized else value
        storage = held.untyped_storage()
        key = self.storages.setdefault(
            storage.data_ptr() or id(storage), (str(len(self.storages)), storage)
        )[0]
        rebuild = "_rebuild_qtensor" if value.is_quantized else "_rebuild_tensor_v2"
        self.name("torch._utils", rebuild)
        self.open()
        self.open()
        self.text("storage")
        self.name("torch", name)
        self.text(key)
        self.text("cpu" if value.device.type == "cpu" else str(value.device))
        self.integer(storage.nbytes() // held.dtype.itemsize)
        self.out += b"tQ"
        self.integer(held.storage_offset())
        for numbers in (held.shape, held.stride()):
            self.open()
            for number in numbers:
                self.integer(int(number))
            self.out += b"t"
        if value.is_quantized:
            self._scales(value)
        self.out += b"\x88" if value.requires_grad else b"\x89"
        self.name("collections", "OrderedDict")
        self.out += b")RtR"
        self.remember(value)

    def _scales(self, value: Any) -> None:
        """Write what the integers of a quantized tensor stand for."""
        of_tensor = value.qscheme() == tangrad.per_tensor_affine
        self.open()
        self.name("torch", "per_tensor_affine" if of_tensor else "per_channel_affine")
        if of_tensor:
            self.value(float(value.q_scale()), kinds.FLOAT)
            self.integer(int(value.q_zero_point()))
        else:
            self.tensor(value.q_per_channel_scales())
            self.tensor(value.q_per_channel_zero_points())
            self.integer(int(value.q_per_channel_axis()))
        self.out += b"t"
