"""What a file may name: PyTorch's names of types and functions, and what stands for them here."""

from __future__ import annotations

import importlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tangrad import _C
from tangrad.serialization.errors import SerializationError, UnsafeContentError, shown
from tangrad.tensor.foreign import find_registered
from tangrad.tensor.on_storage import on_storage
from tangrad.tensor.pickling import rebuild_of_layout, rebuild_wrapper, set_attributes
from tangrad.tensor.qscheme import SCHEMES, qscheme
from tangrad.tensor.storages import DTYPES, TypedStorage

# The class of a typed storage, by the dtype of its elements; PyTorch's files name them.
STORAGE_TYPES = {
    **DTYPES,
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
}
STORAGE_OF_DTYPE = {dtype: name for name, dtype in STORAGE_TYPES.items()}
_MOST_DIMS = 64


class StorageType(NamedTuple):
    """Stands for a class of storages.

    Attributes:
        dtype: name of its elements' dtype.
    """

    dtype: str


def as_text(name: Any) -> Any:
    """Return a name of the file's own, which is bytes if texts of Python 2 are left bytes."""
    return name.decode("ascii", "replace") if isinstance(name, bytes) else name


def storage_fields(key: Any) -> tuple[StorageType, str, str, int, Any]:
    """Return the type, key, location, number of elements and view of a persistent id.

    Raises:
        SerializationError: it is not one of a storage.
    """
    if not (isinstance(key, tuple) and len(key) in (5, 6) and key[0] in ("storage", b"storage")):
        raise SerializationError(f"the pickle refers to something unknown: {shown(key)}")
    kind, count = key[1], key[4]
    name, location = as_text(key[2]), as_text(key[3])
    if not (
        isinstance(kind, StorageType)
        and isinstance(name, str)
        and isinstance(location, str)
        and type(count) is int
        and 0 <= count < 2**62
    ):
        raise SerializationError("the pickle describes a storage wrongly")
    return kind, name, location, count, key[5] if len(key) == 6 else None


def check_geometry(size: Any, stride: Any, offset: Any, itemsize: int, nbytes: int | None) -> None:
    """Check that a tensor lies within its storage.

    Raises:
        SerializationError: it does not, or something is no number.
    """
    whole = isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride)
    numbers = (*size, *stride, offset) if whole else (None,)
    if not all(type(n) is int and 0 <= n < 2**62 for n in numbers) or len(size) > _MOST_DIMS:
        raise SerializationError(
            "a tensor has an impossible geometry: "
            f"size {shown(size)}, stride {shown(stride)}, offset {shown(offset)}"
        )
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and nbytes is not None and (last + 1) * itemsize > nbytes:
        raise SerializationError(
            f"a tensor of size {size}, stride {stride} and offset {offset} does not fit into its "
            f"storage of {nbytes} bytes"
        )


class TensorBuilder:
    """Build the tensors of a file on their storages; a reader that only looks replaces it."""

    def tensor(self, stored: Any, offset: Any, size: Any, stride: Any) -> Any:
        """Return a tensor on a storage, of the storage's dtype."""
        if not isinstance(stored, TypedStorage):
            raise SerializationError("a tensor of the file has no storage")
        storage, dtype = stored.untyped(), stored.dtype
        check_geometry(size, stride, offset, dtype.itemsize, storage.nbytes())
        return on_storage(storage, dtype, offset, tuple(size), tuple(stride))

    def seen_as(self, stored: Any, dtype: Any) -> Any:
        """Return a storage with elements of another dtype."""
        if not isinstance(stored, TypedStorage) or not isinstance(dtype, _C.dtype):
            raise SerializationError("a tensor of the file has no storage, or no dtype")
        return TypedStorage(wrap_storage=stored.untyped(), dtype=dtype)

    def rebuild_tensor(self, stored: Any, offset: Any, size: Any, stride: Any) -> Any:
        """Stand for `torch._utils._rebuild_tensor`."""
        return self.tensor(stored, offset, size, stride)

    def rebuild_tensor_v2(
        self,
        stored: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any,
        backward_hooks: Any,
        metadata: Any = None,
    ) -> Any:
        """Stand for `torch._utils._rebuild_tensor_v2`."""
        made = self.tensor(stored, offset, size, stride)
        return self.marked(made, requires_grad, metadata)

    def rebuild_tensor_v3(
        self,
        stored: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any,
        backward_hooks: Any,
        dtype: Any,
        metadata: Any = None,
    ) -> Any:
        """Stand for `torch._utils._rebuild_tensor_v3`: the storage is of bytes."""
        made = self.tensor(self.seen_as(stored, dtype), offset, size, stride)
        return self.marked(made, requires_grad, metadata)

    def marked(self, tensor: Any, requires_grad: Any, metadata: Any = None) -> Any:
        """Return a tensor with its flags set: a name among the metadata sets a lazy one."""
        lazy = metadata if isinstance(metadata, dict) else {}
        conj, neg = "conj" in lazy, "neg" in lazy
        if (conj and not tensor.is_complex()) or (neg and tensor.dtype == _C.dtype_by_name("bool")):
            raise SerializationError(
                f"a tensor of {tensor.dtype} in the file is marked as {shown(metadata)}, which its "
                "numbers cannot be"
            )
        if conj or neg:
            _C.set_flags(tensor, conj, neg)
        return tensor.requires_grad_() if requires_grad is True else tensor

    def rebuild_parameter(self, data: Any, requires_grad: Any, backward_hooks: Any) -> Any:
        """Stand for `torch._utils._rebuild_parameter`."""
        return _C.Parameter(data, bool(requires_grad))

    def rebuild_parameter_with_state(
        self, data: Any, requires_grad: Any, backward_hooks: Any, state: Any
    ) -> Any:
        """Stand for `torch._utils._rebuild_parameter_with_state`."""
        made = self.rebuild_parameter(data, requires_grad, backward_hooks)
        return _with_attributes(made, state)

    def rebuild_meta_tensor(self, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
        """Stand for `torch._utils._rebuild_meta_tensor_no_storage`."""
        import tangrad

        check_geometry(tuple(size), tuple(stride), 0, 1, None)
        made = tangrad.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
        return self.marked(made, requires_grad)

    def rebuild_from_type(self, function: Any, cls: Any, args: Any, state: Any) -> Any:
        """Stand for `torch._tensor._rebuild_from_type_v2`."""
        made = function(*args)
        if not (isinstance(cls, type) and issubclass(cls, _C.Tensor)):
            raise SerializationError(
                f"a tensor of the file is of {shown(cls)}, which is no tensor class"
            )
        if type(made) is not cls:
            made = made.as_subclass(cls)
        return _with_attributes(made, state)


def _with_attributes(made: Any, state: Any) -> Any:
    if isinstance(state, tuple) and len(state) == 2:
        state = {**(state[0] or {}), **(state[1] or {})}
    if isinstance(state, dict):
        set_attributes(made, state)
    return made


# How files name what rebuilds tensors of layouts that PyTorch does not have.
REBUILD_OF_LAYOUT = ("torch.layouts", "_rebuild_of_layout")


def _layout(name: Any) -> Any:
    try:
        return _C.layout_named(name.removeprefix("torch."))
    except (AttributeError, ValueError) as error:
        raise SerializationError(
            f"the file holds a tensor of layout {shown(name)}; install the package that brings it"
        ) from error


def _rebuild_of_layout(
    layout: Any, components: Any, metadata: Any, size: Any, dtype: Any, requires_grad: Any
) -> Any:
    """Return a tensor of another layout, whose definition checks what the file says."""
    which = _layout(layout)
    parts, said = dict(components), dict(metadata)
    tensors = all(isinstance(c, _C.Tensor) for c in parts.values())
    numbers = isinstance(size, tuple) and all(type(n) is int and 0 <= n < 2**62 for n in size)
    if not tensors or not parts or not numbers or not isinstance(dtype, _C.dtype):
        raise SerializationError(f"a tensor of layout {layout} has impossible components")
    try:
        made = rebuild_of_layout(which, parts, said, size, dtype)
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise SerializationError(
            f"a tensor of layout {layout} cannot be rebuilt: {error}"
        ) from error
    return made.requires_grad_() if requires_grad is True else made


def reader_of_layout(module: str, name: str) -> Any:
    """Return what a registered layout rebuilds its tensors with, by PyTorch's name; or None."""
    from tangrad.discovery.hooks import call_hook_once

    call_hook_once("tangrad_register_layouts")
    for layout in _C.registered_layouts():
        if layout.definition is not None:
            found = layout.definition.readers.get(f"{module}.{name}")
            if found is not None:
                return found
    return None


def _size(*args: Any) -> Any:
    from tangrad.tensor.size import Size

    return Size(*args)


def _device(*args: Any) -> Any:
    return _C.device(*args)


_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
_ENCODINGS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    if not isinstance(text, str) or encoding not in _ENCODINGS:
        raise SerializationError("the pickle encodes something else than text")
    return text.encode(encoding)


def plain_globals(builder: TensorBuilder) -> dict[tuple[str, str], Any]:
    """Return {(module, name): object} of all that a file of tensors and plain values names."""
    utils = "torch._utils"
    found: dict[tuple[str, str], Any] = {
        (utils, "_rebuild_tensor"): builder.rebuild_tensor,
        (utils, "_rebuild_tensor_v2"): builder.rebuild_tensor_v2,
        (utils, "_rebuild_tensor_v3"): builder.rebuild_tensor_v3,
        (utils, "_rebuild_parameter"): builder.rebuild_parameter,
        (utils, "_rebuild_parameter_with_state"): builder.rebuild_parameter_with_state,
        (utils, "_rebuild_meta_tensor_no_storage"): builder.rebuild_meta_tensor,
        (utils, "_rebuild_wrapper_subclass"): rebuild_wrapper,
        ("torch._tensor", "_rebuild_from_type_v2"): builder.rebuild_from_type,
        ("torch", "Tensor"): _C.Tensor,
        ("torch.nn.parameter", "Parameter"): _C.Parameter,
        ("torch.nn", "Parameter"): _C.Parameter,
        ("torch", "Size"): _size,
        ("torch", "device"): _device,
        ("torch.serialization", "_get_layout"): _layout,
        REBUILD_OF_LAYOUT: _rebuild_of_layout,
        ("torch", "strided"): _C.strided,
        ("torch.storage", "UntypedStorage"): StorageType("uint8"),
        ("torch", "UntypedStorage"): StorageType("uint8"),
        ("collections", "OrderedDict"): OrderedDict,
        ("collections", "defaultdict"): _defaultdict,
        ("collections", "Counter"): Counter,
        ("_codecs", "encode"): _encode,
    }
    for module in ("builtins", "__builtin__"):
        for kind in _PLAIN_TYPES:
            found[module, kind.__name__] = _maker(kind)
    for name, dtype in STORAGE_TYPES.items():
        found["torch", name] = StorageType(dtype)
        # The type of a tensor, which only the oldest files name.
        found["torch", name.replace("Storage", "Tensor")] = StorageType(dtype)
    for dtype in _C.registered_dtypes():
        found["torch", dtype.name] = dtype
    for name in _FORMATS:
        found["torch", name] = getattr(_C, name)
    for name in SCHEMES:
        found["torch", name] = qscheme(name)
    return found


def _defaultdict(*args: Any) -> Any:
    # Any callable as a factory would run when a key is missing: only plain types.
    if args and args[0] not in (None, *_made.values()):
        raise UnsafeContentError("the pickle makes a defaultdict of an unknown type")
    factory = next((kind for kind, maker in _made.items() if args and maker is args[0]), None)
    return defaultdict(factory, *args[1:])


_PLAIN_TYPES = (
    *(set, frozenset, dict, list, tuple),
    *(complex, int, float, bool, str, bytes, bytearray),
)
# What the text of is short.
_TEXTS = (str, bytes, bytearray, bool, int, float, complex, type(None))
_made: dict[type, Any] = {}


def _maker(kind: type) -> Any:
    """Return what makes an object of a built-in type from a file's arguments.

    The numbers among the arguments would be sizes (`bytearray(10**12)`) or long texts to parse.
    """

    def make(*args: Any) -> Any:
        if kind in (bytes, bytearray):
            if args and isinstance(args[0], int):
                raise SerializationError("the pickle asks for memory by a number")
            return kind(_encode(*args)) if len(args) == 2 else kind(*args)
        if kind is str and args and not isinstance(args[0], _TEXTS):
            raise SerializationError(f"the pickle makes text of a {type(args[0]).__name__}")
        if kind is int and args and isinstance(args[0], str) and len(args[0]) > 4000:
            raise SerializationError("the pickle has a number of too many digits")
        return kind(*args)

    make.__name__ = kind.__name__
    return _made.setdefault(kind, make)


_allowed: dict[tuple[str, str], Any] = {}


def _named(item: Any) -> tuple[tuple[str, str], Any]:
    if isinstance(item, tuple):
        thing, name = item
        module, _, last = name.rpartition(".")
        return (module, last), thing
    return (item.__module__, item.__qualname__), item


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let files that are loaded with `weights_only=True` name further classes or functions.

    Args:
        safe_globals: the objects, or pairs of an object and the name that files have for it.
    """
    _allowed.update(_named(item) for item in safe_globals)


def get_safe_globals() -> list[Any]:
    """Return what `add_safe_globals` added."""
    return list(_allowed.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` added."""
    _allowed.clear()


@contextmanager
def safe_globals(safe_globals: Iterable[Any]) -> Iterator[None]:
    """Let files name further classes or functions inside a `with` block, as `add_safe_globals`."""
    before = dict(_allowed)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _allowed.clear()
        _allowed.update(before)


def as_torch(module: str) -> str:
    """Return PyTorch's name of a module of ours, which files hold."""
    if module == "tangrad" or module.startswith("tangrad."):
        return "torch" + module[len("tangrad") :]
    return module


def as_tangrad(module: str) -> str:
    """Return our name of a module of PyTorch."""
    if module == "torch" or module.startswith("torch."):
        return "tangrad" + module[len("torch") :]
    return module


class Globals:
    """Find what a pickle names.

    Args:
        builder: builds the tensors.
        plain: nothing but tensors, plain values, and what the user allowed.
    """

    def __init__(self, builder: TensorBuilder, plain: bool) -> None:
        self._builder = builder
        self._known = plain_globals(builder)
        self._readers: list[Any] = [_rebuild_of_layout]
        self._plain = plain

    def find(self, module: str, name: str) -> Any:
        """Return the object of that name.

        Raises:
            UnsafeContentError: it is neither plain nor allowed.
            SerializationError: there is no such object.
        """
        found = self._known.get((as_torch(module), name))
        if found is not None:
            return found
        # Pickles of protocols below 3 have the names of Python 2.
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        if as_torch(module) == "torch":  # a dtype may be registered when it is first asked for
            dtype = find_registered(name)
            if isinstance(dtype, _C.dtype):
                return self._known.setdefault(("torch", name), dtype)
        reader = reader_of_layout(as_torch(module), name)
        if reader is not None:
            self._known[as_torch(module), name] = reader
            self._readers.append(reader)
            return reader
        for key in ((module, name), (as_tangrad(module), name), (as_torch(module), name)):
            if key in _allowed:
                return _allowed[key]
        if self._plain:
            raise UnsafeContentError(
                f"Unsupported global: {module}.{name} is neither a tensor nor a plain value, and "
                "a load with weights_only=True runs no code of the file. If you trust the file, "
                "allow the name by tangrad.serialization.add_safe_globals, or load everything by "
                "weights_only=False"
            )
        try:
            thing: Any = importlib.import_module(as_tangrad(module))
            for part in name.split("."):
                thing = getattr(thing, part)
        except (ImportError, AttributeError) as error:
            raise SerializationError(
                f"the file names {module}.{name}, which does not exist here: {error}"
            ) from error
        return thing

    def may_call(self, function: Any, args: tuple[Any, ...]) -> bool:
        """Return whether the pickle may call something, or make an object of it.

        Not a tensor's class, which would reserve memory by a number, nor a dtype. Plain types get
        no tensor and no storage: `list` of one takes many times its memory.
        """
        if isinstance(function, type) and issubclass(function, _C.Tensor):
            return False
        if any(function is item for item in _allowed.values()):
            return True
        if not any(function is item for item in self._known.values()):
            return False
        builds = getattr(function, "__self__", None) is self._builder or any(
            function is reader for reader in self._readers
        )
        return builds or not any(isinstance(arg, (_C.Tensor, TypedStorage)) for arg in args)

    def may_build(self, target: Any) -> bool:
        """Return whether the pickle may set an object's state."""
        allowed = (OrderedDict, *(item for item in _allowed.values() if isinstance(item, type)))
        return isinstance(target, allowed)
