"""Read archives that PyTorch's `jit.save` wrote, and ours: nothing in them is executed on reading.

The code of an archive is checked by the front end that checks sources, its names are looked up in
a closed table (`names.py`), and its pickles are read by the core's machine, which calls nothing but
what stands below.
"""

from __future__ import annotations

import struct
import zipfile
from collections import OrderedDict
from typing import Any

import tangrad
from tangrad import nn
from tangrad.plugin import find_op
from tangrad.serialization import SerializationError, crc32
from tangrad.serialization.machine import SafeUnpickler
from tangrad_jit.scripting.archive.setters import run_setter
from tangrad_jit.scripting.archive.units import ArchiveCode
from tangrad_jit.scripting.check.script_objects import ScriptObjectUnit, class_of_name
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.objects.module import ScriptedModule, made_of
from tangrad_jit.scripting.program.values import Unfitting, fitted
from tangrad_jit.scripting.source.finding import LARGEST_SOURCE
from tangrad_jit.scripting.source.places import ScriptError
from tangrad_jit.scripting.types import kinds

__all__ = ["read_archive"]

_DTYPES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}
_QUANTIZED = {"int8": "qint8", "uint8": "quint8", "int32": "qint32"}
_NEWEST = 11
# The local header of a member: its signature, and the sizes of its name and of what follows.
_LOCAL = struct.Struct("<4s22x2H")
_PIECE = 1 << 18


def read_archive(archive: zipfile.ZipFile, map_location: Any, extra: dict[str, Any] | None) -> Any:
    """Return the module of an archive.

    Args:
        archive: the zip.
        map_location: device for the tensors, or None.
        extra: its values are replaced by what is kept under its keys.

    Raises:
        SerializationError: it is damaged, or names what is not allowed.
    """
    try:
        return _Reader(archive, map_location).read(extra)
    except SerializationError:
        raise
    except ScriptError as error:
        raise SerializationError(f"jit.load: the archive's code is refused: {error}") from error
    except RecursionError:
        raise SerializationError("jit.load: the archive is nested too deeply") from None


class _Held:
    """An object of a class of the archive, as its pickle has it."""

    qualified = ""
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state
        if isinstance(state, dict):
            vars(self).update(state)


class _Member:
    """A member of an enum of the archive, as its pickle has it: by its value."""

    takes_value = True
    qualified = ""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Storage:
    """The name of a kind of storages."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, map_location: Any) -> None:
        self._archive, self._map = archive, map_location
        name = next(n for n in archive.namelist() if n.rpartition("/")[2] == "constants.pkl")
        self._root = name.removesuffix("constants.pkl")
        self._sizes = {info.filename: info for info in archive.infolist()}
        self._storages: dict[str, Any] = {}
        self._made: dict[int, Any] = {}
        self._parameters: dict[int, tuple[Any, nn.Parameter]] = {}
        self._classes: dict[str, type] = {}
        self._swaps = self._text("byteorder", "little").strip() == "big"

    # --- members

    def _bytes(self, name: str) -> bytes:
        return self._archive.read(self._info(name))

    def _info(self, name: str) -> zipfile.ZipInfo:
        info = self._sizes.get(self._root + name)
        if info is None:
            raise SerializationError(f"jit.load: the archive has no {name}")
        # Members are stored as they are; what is packed far smaller than it is would be a bomb.
        if info.file_size > max(1 << 20, 64 * info.compress_size):
            raise SerializationError(f"jit.load: {name} is packed beyond measure")
        return info

    def _text(self, name: str, default: str) -> str:
        return (
            self._bytes(name).decode(errors="replace")
            if self._root + name in self._sizes
            else default
        )

    def _code(self, path: str) -> str | None:
        info = self._sizes.get(f"{self._root}code/{path}")
        if info is None:
            return None
        if info.file_size > LARGEST_SOURCE:
            raise SerializationError(f"jit.load: code/{path} is larger than any program")
        try:
            return self._bytes(f"code/{path}").decode()
        except UnicodeDecodeError:
            raise SerializationError(f"jit.load: code/{path} is no text") from None

    def _records(self, path: str) -> bytes:
        """Return a pickle of where the code of a file came from; b"" where there is none."""
        name = f"code/{path}.debug_pkl"
        return self._bytes(name) if self._root + name in self._sizes else b""

    def read(self, extra: dict[str, Any] | None) -> Any:
        """Return the module."""
        version = self._text("version", "3").strip()
        if not version.isdigit() or int(version) > _NEWEST:
            raise SerializationError(f"jit.load: archives of version {version[:20]!r} are unknown")
        for name in extra or {}:
            extra[name] = self._bytes(f"extra/{name}")  # type: ignore[index]
        constants = self._unpickled("constants.pkl")
        if not isinstance(constants, tuple):
            raise SerializationError("jit.load: the archive's constants are no tuple")
        self.code = ArchiveCode(WORLD, self._code, constants, int(version), self._records)
        data = self._unpickled("data.pkl")
        if not isinstance(data, _Held):
            raise SerializationError("jit.load: the archive holds no module")
        made = self._object(data)
        if not isinstance(made, ScriptedModule):
            raise SerializationError("jit.load: the archive holds no module")
        for module in made.modules():
            for unit in module.script_unit.every_method():
                unit.check()
        return made

    # --- pickles

    def _unpickled(self, name: str) -> Any:
        folder = name.removesuffix(".pkl")
        machine = SafeUnpickler(
            self._bytes(name),
            self._global,
            lambda key: self._storage(folder, key),
            lambda function, args: isinstance(function, type) or callable(function),
            lambda target: isinstance(target, _Held),
            name,
        )
        return machine.load()[0]

    def _global(self, module: str, name: str) -> Any:
        """Return what a pickle names: all that it may name stands here."""
        if module.split(".")[0] == "__torch__":
            qualified = f"{module}.{name}"
            if qualified not in self._classes:
                is_enum = isinstance(self.code.find(qualified), kinds.EnumType)
                base = _Member if is_enum else _Held
                self._classes[qualified] = type("Held", (base,), {"qualified": qualified})
            return self._classes[qualified]
        if module == "torch" and name in _DTYPES:
            return _Storage(_DTYPES[name])
        known: dict[tuple[str, str], Any] = {
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_qtensor"): self._quantized,
            ("torch", "per_tensor_affine"): "tensor",
            ("torch", "per_channel_affine"): "channel",
            ("collections", "OrderedDict"): OrderedDict,
            ("torch.jit._pickle", "restore_type_tag"): lambda value, text: value,
            ("builtins", "complex"): complex,
            ("torch", "device"): _device,
            ("__builtin__", "complex"): complex,
            **{
                ("torch.jit._pickle", f"build_{kind}list"): list
                for kind in ("int", "double", "bool", "tensor")
            },
        }
        found = known.get((module, name))
        if found is None:
            raise SerializationError(
                f"jit.load: the archive names {module}.{name}, which no archive of scripts may"
            )
        return found

    def _storage(self, folder: str, key: Any) -> Any:
        tag, kind, name, location, count = key
        if tag != "storage" or not isinstance(kind, _Storage) or not isinstance(name, str):
            raise SerializationError("jit.load: the archive refers to something that is no storage")
        if location == "meta":
            return tangrad.empty(int(count), dtype=getattr(tangrad, kind.dtype), device="meta")
        path = f"{folder}/{name}"
        if self._root + path not in self._sizes:
            path = f"data/{name}"  # where we have written constants, too
        found = self._storages.get(path)
        if found is None:
            found = self._read_storage(path, getattr(tangrad, kind.dtype), int(count))
            if self._map is not None:
                found = found.to(self._map)
            self._storages[path] = found
        return found

    def _read_storage(self, path: str, dtype: Any, count: int) -> Any:
        """Return the elements of a storage, read into the memory that they stay in."""
        info = self._info(path)
        if info.file_size < count * dtype.itemsize:
            raise SerializationError(f"jit.load: the storage {path} is shorter than it says")
        held = tangrad.empty(info.file_size, dtype=tangrad.uint8)
        target = memoryview(held.numpy())
        if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
            self._fill(info, target)
        else:
            target[:] = self._archive.read(info)
        if self._swaps:
            _swap(target, dtype)
        whole = info.file_size // dtype.itemsize * dtype.itemsize
        return held[:whole].view(dtype)

    def _fill(self, info: zipfile.ZipInfo, target: memoryview) -> None:
        """Read a member that is not packed without making a copy of it.

        Raises:
            SerializationError: it is cut off, or its checksum is another.
        """
        file: Any = self._archive.fp
        file.seek(info.header_offset)
        head = file.read(_LOCAL.size)
        sign, named, extra = _LOCAL.unpack(head)
        if sign != b"PK\x03\x04":
            raise SerializationError(f"jit.load: the header of {info.filename} is damaged")
        file.seek(named + extra, 1)
        found = 0
        for begin in range(0, len(target), _PIECE):
            part = target[begin : begin + _PIECE]
            if _read_into(file, part) != len(part):
                raise SerializationError(f"jit.load: {info.filename} is cut off")
            found = crc32(part, found)
        if found != info.CRC:
            raise SerializationError(f"jit.load: the checksum of {info.filename} is wrong")

    def _tensor(
        self,
        base: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any = False,
        hooks: Any = None,
    ) -> Any:
        """Return a tensor on a storage, whose geometry lies within it."""
        if not isinstance(base, tangrad.Tensor) or len(size) != len(stride):
            raise SerializationError("jit.load: the archive describes a tensor that cannot be")
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if min([offset, *size, *stride], default=0) < 0:
            raise SerializationError("jit.load: a tensor's geometry is negative")
        if 0 not in size and last >= base.numel():
            raise SerializationError("jit.load: a tensor is larger than its storage")
        made = tangrad.empty(0, dtype=base.dtype, device=base.device)
        made.set_(base.untyped_storage(), offset, tuple(size), tuple(stride))
        wants = bool(requires_grad) and (base.dtype.is_floating_point or base.dtype.is_complex)
        return made.requires_grad_(wants)

    def _quantized(
        self, base: Any, offset: Any, size: Any, stride: Any, said: Any, *rest: Any
    ) -> Any:
        """Return a quantized tensor on integers, which are on a storage."""
        integers = self._tensor(base, offset, size, stride)
        try:
            make = find_op(f"_make_per_{said[0]}_quantized_tensor")
            return make(integers, *said[1:])
        except (IndexError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise SerializationError(
                f"jit.load: the archive describes a quantized tensor that cannot be: {error}"
            ) from None

    # --- objects

    def _object(self, held: _Held | _Member) -> Any:
        if isinstance(held, _Member):
            return self._member(held)
        known = self._made.get(id(held))
        if known is not None:
            return known
        kind = self.code.find(held.qualified)
        if isinstance(kind, kinds.ModuleType):
            return self._module(held, kind)
        cls = class_of_name(held.qualified)
        if cls is not None:
            return self._script_object(held, cls)
        if isinstance(kind, kinds.ClassType):
            made = self._made[id(held)] = kind.unit.cls.__new__(kind.unit.cls)
            for name, attribute in kind.unit.attributes.items():
                if name in vars(held):
                    setattr(made, name, self._value(vars(held)[name], attribute))
            return made
        raise SerializationError(f"jit.load: the archive has no code of {held.qualified}")

    def _member(self, held: _Member) -> Any:
        members = list(self.code.find(held.qualified).python_class)
        for member in members:
            if type(member.value) is type(held.value) and member.value == held.value:
                return member
        raise SerializationError(
            f"jit.load: {held.qualified} has no member of the value {held.value!r:.40}"
        )

    def _script_object(self, held: _Held, cls: Any) -> Any:
        """Return an object of `tangrad.classes` from the state that the archive holds."""
        kind = ScriptObjectUnit(WORLD, cls).state_type()
        made = self._made[id(held)] = cls.__new__(cls)
        try:
            made.__setstate__(self._value(held.state, kind))
        except (RuntimeError, AttributeError) as error:
            raise SerializationError(
                f"jit.load: a {cls.__name__} of the archive: {error}"
            ) from None
        return made

    def _module(self, held: _Held, kind: kinds.ModuleType) -> Any:
        unit = kind.unit
        made = made_of(unit)
        self._made[id(held)] = made
        setter = unit.method("__setstate__")
        if setter is not None:
            self._restore(made, setter, held)
            return made
        state = vars(held)
        for name in unit.children:
            value = state.get(name)
            made.add_module(name, self._object(value) if isinstance(value, _Held) else None)
        for name, attribute in unit.attributes.items():
            if name not in state:
                raise SerializationError(f"jit.load: {held.qualified} has no {name}")
            value = self._value(state[name], attribute)
            if name in unit.parameter_names and isinstance(value, tangrad.Tensor):
                made.register_parameter(name, self._parameter(value))
            elif name in unit.buffer_names and isinstance(value, tangrad.Tensor):
                made.register_buffer(name, value)
            elif value is None and attribute == kinds.NONE and name in ("weight", "bias"):
                made.register_parameter(name, None)
            elif isinstance(value, nn.Module):
                made.add_module(name, value)
            else:
                vars(made)[name] = value
        for name, value in unit.constants.items():
            vars(made)[name] = value
        return made

    def _parameter(self, value: Any) -> nn.Parameter:
        """Return a tensor as a parameter; one that several modules hold is one."""
        found = self._parameters.get(id(value))
        if found is None:
            made = nn.Parameter(value.detach(), requires_grad=value.requires_grad)
            found = self._parameters[id(value)] = value, made
        return found[1]

    def _restore(self, made: Any, setter: Any, held: _Held) -> None:
        """Give a module its state by its own `__setstate__`, a program of the archive.

        Raises:
            SerializationError: it fails, or leaves something out.
        """
        unit = made.script_unit
        vars(made).update(unit.constants)
        for registry, names in (
            ("_parameters", unit.parameter_names),
            ("_buffers", unit.buffer_names),
            ("_modules", unit.children),
        ):
            vars(made)[registry].update(dict.fromkeys(names))
        try:
            run_setter(setter, made, self._value(held.state, setter.parameters[1].type))
        except (SerializationError, MemoryError):
            raise
        except Exception as error:  # whatever the archive's own program raises
            raise SerializationError(f"jit.load: {held.qualified}.__setstate__: {error}") from None
        for name, value in made._parameters.items():
            if value is not None and not isinstance(value, nn.Parameter):
                wants = value.requires_grad
                made._parameters[name] = nn.Parameter(value.detach(), requires_grad=wants)
        registries = (vars(made), made._parameters, made._buffers, made._modules)
        for name in [*unit.attributes, *unit.children]:
            if all(registry.get(name) is None for registry in registries):
                kind = unit.attributes.get(name) or unit.children[name]
                if not kinds.is_subtype(kinds.NONE, kind):
                    raise SerializationError(
                        f"jit.load: {held.qualified}.__setstate__ leaves out {name}"
                    )

    def _value(self, value: Any, kind: kinds.Type) -> Any:
        if isinstance(value, (_Held, _Member)):
            return self._object(value)
        if isinstance(value, (list, tuple, dict)):
            value = _replaced(value, self._object)
        try:
            return fitted(value, kind)
        except Unfitting:
            raise SerializationError(
                f"jit.load: a value of type {kind} is a {type(value).__name__}"
            ) from None


def _device(text: Any) -> Any:
    """Return a device by its text.

    Raises:
        SerializationError: it is none.
    """
    try:
        return tangrad.device(str(text))
    except RuntimeError as error:
        raise SerializationError(f"jit.load: {error}") from None


def _replaced(value: Any, make: Any) -> Any:
    if isinstance(value, (_Held, _Member)):
        return make(value)
    if isinstance(value, list):
        return [_replaced(item, make) for item in value]
    if isinstance(value, tuple):
        return tuple(_replaced(item, make) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, make) for key, item in value.items()}
    return value


def _read_into(file: Any, target: memoryview) -> int:
    """Fill memory from a file, and return how many bytes there were."""
    done = 0
    while done < len(target):
        if hasattr(file, "readinto"):
            count = file.readinto(target[done:])
        else:
            content = file.read(len(target) - done)
            count = len(content)
            target[done : done + count] = content
        if not count:
            break
        done += count
    return done


def _swap(content: memoryview, dtype: Any) -> None:
    """Turn numbers whose first byte is the highest into ours."""
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    original = bytes(content)
    for byte in range(size):
        content[byte::size] = original[size - 1 - byte :: size]
