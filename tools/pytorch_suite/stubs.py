"""Answers for PyTorch's private names in a process where tangrad stands in for it.

PyTorch's tests share helpers (`GRAFTED`), which are loaded from the files of an installed PyTorch;
nothing else of it is loaded. What the helpers and the tests import from its private modules is
answered by `answers`, or by a stub: it can be imported, kept and asked for attributes, and raises
`PrivateName` when it is called. While files are imported (`importing`), calls give stubs too:
tables of ops name many things that few tests use.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

import answers

GRAFTED = (
    "torch.testing._internal",
    "torch.testing._comparison",
    "torch.testing._utils",
    "torch.testing._creation",
    "torch._vendor",
    "torch.utils._import_utils",
)
# Packages of which a missing module counts as private; below torch, a leading underscore does.
PRIVATE = ("torch.onnx", "torch.utils.cpp_extension", "torch.distributed", "torch.ao", "functorch",
           "caffe2")  # fmt: skip
# Stubs also where tangrad has a placeholder that says which package is missing.
REPLACED = (
    *(
        "torch.onnx",
        "torch.utils.mkldnn",
        "torch._inductor",
        "torch._dynamo",
        "torch._export",
        "torch._lazy",
    ),
    *(f"torch.jit.{name}" for name in ("_recursive", "_state", "_logging", "_script", "frontend")),
)
# What `import torch` itself loads there, and tests reach as attributes.
LOADED = """
_refs _prims _prims_common _inductor _dynamo _decomp _higher_order_ops _logging _export _lazy
_functorch _subclasses _guards _library _vmap_internals _ops _utils_internal
""".split()

# PyTorch's definitions of ops by others, for which the stand-in has the ops themselves.
DEFINITIONS = [
    f"torch._refs{place}"
    for place in ("", "._conversions", ".fft", ".linalg", ".nn.functional", ".special")
]

_imports = 0  # files that are being imported


class PrivateName(NotImplementedError):
    """A test called a private name of PyTorch's that nothing stands for."""

    def __init__(self, name: str) -> None:
        super().__init__(f"private name {name}")
        self.name = name


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Have calls of stubs answered while test files and helpers are imported."""
    global _imports
    _imports += 1
    try:
        yield
    finally:
        _imports -= 1


class Stub:
    """Stands for a private function or object."""

    def __init__(self, name: str) -> None:
        self.__dict__.update(_name=name, __name__=name.rpartition(".")[2])

    def __getattr__(self, name: str) -> Any:
        # Test classes are built from what has `parametrize_fn`.
        if name == "parametrize_fn" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return Stub(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise; while files are imported, decorate nothing or return another stub."""
        if not _imports:
            raise PrivateName(self._name)
        decorates = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if decorates else Stub(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,) if len(bases) == 1 else ()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Any:
        raise PrivateName(self._name)

    def __delitem__(self, key: Any) -> None:
        raise PrivateName(self._name)

    def __exit__(self, *told: object) -> None:
        pass

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__


class StubType(type):
    """The type of stubs for private classes: they serve `isinstance`, annotations and as a base."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(f"{cls.__qualname__}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raise for a stub; while files are imported, return another."""
        if "_is_stub" not in vars(cls):  # a test's class with a stub among its bases
            if args and cls.__init__ is object.__init__ and cls.__new__ is object.__new__:
                raise PrivateName(next(b.__qualname__ for b in cls.mro() if "_is_stub" in vars(b)))
            return super().__call__(*args, **kwargs)
        if _imports:
            return Stub(f"{cls.__qualname__}()")
        raise PrivateName(cls.__qualname__)


def stub(name: str) -> Any:
    """Return a stub for a dotted name: a class where it is spelled like one."""
    last = name.rpartition(".")[2].lstrip("_")
    if not last[:1].isupper() or last.isupper():
        return Stub(name)
    return StubType(last, (), {"_is_stub": True, "__qualname__": name, "__module__": "private"})


class StubModule(ModuleType):
    """Stands for a private module: it has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return stub(f"{self.__name__}.{name}")


class _StubLoader:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


class _HelperLoader(SourceFileLoader):
    """Loads a helper's file after the names that it imports have been provided."""

    def exec_module(self, module: ModuleType) -> None:
        with importing():
            provide(self.path)
            super().exec_module(module)
        names = getattr(module, "MODULE_CLASS_NAMES", {})
        names.update({cls: name.removeprefix("tangrad.") for cls, name in names.items()})


def _below(name: str, trees: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{tree}.") for tree in trees)


class Finder:
    """Finds PyTorch's test helpers in its own files, and stubs for its private modules.

    Args:
        source: the folder `torch` of an installed PyTorch.
        stand_in: the finder that makes tangrad stand in for `torch`; it is asked otherwise.
    """

    def __init__(self, source: str, stand_in: Any) -> None:
        self.source, self.stand_in = source, stand_in

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return where a module below `torch` comes from."""
        if fullname.partition(".")[0] not in ("torch", "functorch"):
            return None
        if _below(fullname, GRAFTED):
            return self._helper(fullname)
        if _below(fullname, REPLACED):
            return ModuleSpec(fullname, _StubLoader(), is_package=True)  # type: ignore[arg-type]
        try:
            return self.stand_in.find_spec(fullname, path, target)  # type: ignore[no-any-return]
        except ModuleNotFoundError:
            private = _below(fullname, PRIVATE) or "._" in fullname
            if not private and not _imports:
                raise
            return ModuleSpec(fullname, _StubLoader(), is_package=True)  # type: ignore[arg-type]

    def _helper(self, fullname: str) -> ModuleSpec | None:
        place = os.path.join(self.source, *fullname.split(".")[1:])
        package = [place] if os.path.isdir(place) else None
        file = os.path.join(place, "__init__.py") if package else f"{place}.py"
        return importlib.util.spec_from_file_location(
            fullname, file, loader=_HelperLoader(fullname, file), submodule_search_locations=package
        )


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _outside_functions(child)


def provide(file: str) -> None:
    """Give stubs for what a file imports by name from modules that lack the name."""
    with open(file, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    for node in _outside_functions(tree):
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            continue
        if node.module.partition(".")[0] not in ("torch", "functorch"):
            continue
        if _below(node.module, GRAFTED):
            continue
        with contextlib.suppress(ImportError), importing():
            there = importlib.import_module(node.module)
            if not isinstance(there, StubModule):
                _complete(there, node)


def _complete(there: ModuleType, node: ast.ImportFrom) -> None:
    for alias in node.names:
        if alias.name == "*" or hasattr(there, alias.name):
            continue
        name = f"{node.module}.{alias.name}"
        try:
            importlib.import_module(name)
        except ImportError:
            value = answers.IMPORTED[name] if name in answers.IMPORTED else stub(name)
            setattr(there, alias.name, value)


def _has(there: object, name: str) -> bool:
    try:
        getattr(there, name)
    except (AttributeError, ImportError, NotImplementedError):
        return False
    return True


def _answer(module: ModuleType, name: str, known: Callable[[str], bool]) -> None:
    """Have a module give stubs for the absent names that are `known`, while files are imported."""
    before = getattr(module, "__getattr__", None)

    def answer(last: str) -> Any:
        try:
            if before is not None:
                return before(last)
            raise AttributeError(f"module '{name}' has no attribute '{last}'", name=last)
        except AttributeError:
            if not _imports or last.startswith("__") or not known(last):
                raise
            return Stub(f"{name}.{last}")

    module.__getattr__ = answer  # type: ignore[method-assign]


def _public_names(source: str, place: str) -> list[str]:
    """Return what `__all__` lists in the file of a module of an installed PyTorch."""
    file = os.path.join(source, *place.split(".")[1:])
    file = f"{file}.py" if os.path.exists(f"{file}.py") else os.path.join(file, "__init__.py")
    with open(file, encoding="utf-8") as stream:
        body = ast.parse(stream.read()).body
    assigned = (node for node in body if isinstance(node, ast.Assign))
    listed = (n.value for n in assigned if getattr(n.targets[0], "id", "") == "__all__")
    return list(ast.literal_eval(next(listed)))


def _load_library(load: Callable[[Any], None], source: str) -> Callable[[Any], None]:
    """Return what loads a library of ops, but leaves PyTorch's own alone."""

    def load_library(path: Any) -> None:
        if not os.fspath(path).startswith(source):
            load(path)

    return load_library


def install(source: str, names: dict[str, list[str]]) -> None:
    """Put the helpers and the stubs before the finder of the stand-in.

    Args:
        source: the folder `torch` of an installed PyTorch.
        names: what `dir` gives there of the modules whose absent names are answered.
    """
    from tangrad.compat import stand_in

    place = next(i for i, f in enumerate(sys.meta_path) if isinstance(f, stand_in.Finder))
    sys.meta_path.insert(place, Finder(source, sys.meta_path[place]))  # type: ignore[arg-type]
    import torch
    import torch.testing

    if not hasattr(torch.testing, "__path__"):
        torch.testing.__path__ = []  # modules are looked for below it
    compiled = importlib.import_module("torch._C")
    if not hasattr(compiled, "__path__"):
        compiled.__path__ = []  # modules are looked for below it
    for name, value in answers.ATTRIBUTES.items():
        module, _, last = name.rpartition(".")
        try:
            there = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        if isinstance(there, StubModule) or not _has(there, last) or name in answers.PLACEHOLDERS:
            if isinstance(value, answers.Later):
                value = value.value()
            setattr(there, last, value)
            if isinstance(value, ModuleType):
                sys.modules[name] = value

    def private(name: str) -> Any:
        if name not in names["torch._C"]:
            raise AttributeError(f"module 'torch._C' has no attribute '{name}'", name=name)
        return stub(f"torch._C.{name}")

    compiled.__getattr__ = private  # type: ignore[method-assign]
    for name, known in names.items():
        if name != "torch._C":
            _answer(importlib.import_module(name), name, set(known).__contains__)
    _answer(importlib.import_module("tangrad.ops.aten"), "torch.ops.aten", lambda name: True)
    for place in DEFINITIONS:
        definitions = importlib.import_module(place)
        definitions.__all__ = _public_names(source, place)  # type: ignore[attr-defined]
        _answer(definitions, place, lambda name: True)
    torch.ops.load_library = _load_library(torch.ops.load_library, source)  # type: ignore[assignment]
    for name in GRAFTED[1:4]:
        importlib.import_module(name)  # helpers reach them as attributes of torch.testing
    for name in LOADED:
        if not hasattr(torch, name):
            setattr(torch, name, importlib.import_module(f"torch.{name}"))
