"""Write type stubs of what is made at run time: ops as functions and as methods.

Ops are found by `__getattr__`, so neither a type checker nor an editor sees them in the source.
This program imports tangrad and writes, from each op's schema, `_C.pyi` (`Tensor` with all of its
methods), `__init__.pyi`, `return_types.pyi`, and the stubs of the namespaces that show ops.
Hand-written functions in those modules are carried over with their own annotations; every other
module has its annotations in its source.

A wheel's build runs it on the package that it has just built::

    python -m tangrad.plugin.stubs FOLDER --core BY_HAND.pyi    # the core's own
    python -m tangrad.plugin.stubs FOLDER MODULE ... --package nn

The first is given the part of `_C.pyi` that is written by hand. The second writes the stubs of
modules of another package, and `tangrad/brought/PACKAGE.pyi`: the names that the package brings to
`tangrad` itself, which `__init__.pyi` of the core shows where the package is installed.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import keyword
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TYPES = {
    "Tensor": "Tensor",
    "Tensor[]": "Sequence[Tensor]",
    "Operand": "Tensor | _number",
    "Scalar": "_number",
    "any": "Any",
    "bool": "_bool",
    "int": "_int",
    "dim": "_int",
    "float": "_float",
    "str": "str",
    "int[]": "_sizes",
    "dim[]": "_sizes",
    "dtype": "_dtype",
    "device": "_device",
    "layout": "_layout",
    "memory_format": "_memory_format",
    "generator": "_generator",
}
RESULTS = {"Tensor": "Tensor", "Tensor[]": "tuple[Tensor, ...]", "bool": "_bool", "any": "Any"}
# What sources call the types; in a stub these names may mean a method or a dtype.
BUILTINS = re.compile(r"(?<![\w.])(bool|int|float|complex|dtype)(?![\w(])")
OURS = re.compile(r"\b(?:tangrad|_C)\.(?=(Tensor|Op|dtype)\b)")
MODULE_HEADER = """\
from collections.abc import Callable, Sequence
from typing import Any, overload

from tangrad import return_types as _return_types
from tangrad._C import Op, _bool, _complex, _device, _dtype, _float, _generator
from tangrad._C import Tensor as Tensor
from tangrad._C import _int, _layout, _memory_format, _number, _sizes

"""
# What the modules import for themselves.
IMPORTED = frozenset({"annotations", "Any", "Tensor", "ops", "tangrad"})
OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
# Public modules of the top level whose file is below `compat/`.
OTHER_PLACES = ("torch_version",)


def write_core(folder: Path, by_hand: Path) -> None:
    """Write the stubs of the core below `folder`/tangrad."""
    texts = {
        "_C.pyi": compiled_core(by_hand.read_text("utf-8")),
        "__init__.pyi": top_level(),
        "return_types.pyi": return_types(),
        "linalg.pyi": namespace("tangrad.linalg"),
        "fft.pyi": namespace("tangrad.fft"),
        "special.pyi": namespace("tangrad.special"),
        "signal/windows.pyi": namespace("tangrad.signal.windows"),
        **{f"{name}.pyi": other_place(name) for name in OTHER_PLACES},
    }
    _write(folder, texts)


def write_package(folder: Path, package: str, modules: Sequence[str]) -> None:
    """Write the stubs of modules below `folder`, and of the names that their package brings.

    Args:
        folder: the packages' common root.
        package: short name: of what `tangrad-x` brings, x.
        modules: those that show ops or stand elsewhere than below `tangrad.compat`.
    """
    texts = {}
    for module in modules:
        name = module.removeprefix("tangrad.")
        other = name in ("_utils", "functional")
        texts[f"{name.replace('.', '/')}.pyi"] = other_place(name) if other else namespace(module)
    texts[f"brought/{package}.pyi"] = brought(package)
    _write(folder, texts)


def describe_wheel(
    built: Path, name: str, entry_points: Mapping[str, Sequence[str]], modules: Sequence[str]
) -> None:
    """Write the stubs of a package into the folder that its wheel is made of; for its setup.py.

    Args:
        built: the folder, with all modules of the package.
        name: of the distribution, `tangrad-x`.
        entry_points: of the distribution, by group: they say what it brings.
        modules: those that show ops or stand elsewhere than below `tangrad.compat`.

    Raises:
        subprocess.CalledProcessError: the package cannot be imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        metadata = Path(folder) / f"{name.replace('-', '_')}-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {name}\nVersion: 0\n", "utf-8")
        lines = (line for group, rows in entry_points.items() for line in (f"[{group}]", *rows))
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
        path = os.pathsep.join([str(built), folder])
        # -B: what stands there is packed.
        command = [sys.executable, "-B", "-m", "tangrad.plugin.stubs", str(built), *modules]
        command += ["--package", name.removeprefix("tangrad-").replace("-", "_")]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = folder / "tangrad" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


# --- files ----------------------------------------------------------------------------------------


def compiled_core(source: str) -> str:
    """Return the stub of `tangrad._C`: the hand-written part and every method of Tensor."""
    import tangrad

    by_hand = source.partition("class Tensor:")[2]
    present = set(re.findall(r"^    (?:def )?(\w+)[:(]", by_hand, re.M))
    lines = []
    for name in OPERATORS:
        for form, other in (("", "Tensor | _number"), ("r", "_number"), ("i", "Tensor | _number")):
            lines.append(f"    def __{form}{name}__(self, other: {other}) -> Tensor: ...")
    for name in sorted(dir(tangrad.Tensor)):
        if name.startswith("_") or name in present:
            continue
        found = inspect.getattr_static(tangrad.Tensor, name)
        written = _method(name, found)
        lines += ["    " + line for line in written]
    lines += ["", "class Parameter(Tensor):", "    def __init__("]
    lines += ["        self, data: Tensor | None = None, requires_grad: _bool = True"]
    lines += ["    ) -> None: ..."]
    return source + "\n".join(lines) + "\n"


def top_level() -> str:
    """Return the stub of `tangrad`."""
    import tangrad
    from tangrad.discovery import discovery
    from tangrad.ops.definition import registry
    from tangrad.tensor.foreign import SPARSE_LAYOUTS

    lines = [f"from tangrad import {name} as {name}" for name in _submodules(tangrad)]
    functions = []
    elsewhere = {*_submodules(tangrad), *discovery.names(discovery.NAMES)}
    elsewhere |= registry.index_of_packages().keys()  # should packages be installed already
    for name in sorted(dir(tangrad)):
        if name.startswith("_") or name in elsewhere:
            continue
        found = getattr(tangrad, name)
        where = tangrad._LAZY.get(name)
        if where is not None:
            lines.append(f"from tangrad.{where} import {name} as {name}")
        elif _is_op(found):
            functions += function_forms(name, found)
        elif found is tangrad.Size:
            lines.append("from tangrad.tensor.size import Size as Size")
        elif hasattr(tangrad._C, name):
            lines.append(f"from tangrad._C import {name} as {name}")
        elif isinstance(found, tangrad.memory_format):
            functions.append(f"{name}: _memory_format")
        elif isinstance(found, float) or found is None:
            functions.append(f"{name}: {'_float' if found is not None else 'None'}")
    functions += [f"{name}: _dtype" for name in dtype_names(tangrad)]
    # A package of its own brings the stub of the name that it is seen under; without it, Any.
    absent = "# type: ignore[attr-defined, unused-ignore]"
    brought = ", ".join(f"{name} as {name}" for name in _plugin_names(tangrad))
    lines = [*_grouped(lines), f"from tangrad import {brought}  {absent}"]
    absent = "# type: ignore[import-not-found, import-untyped, unused-ignore]"
    lines += [f"from tangrad.brought.{name} import *  {absent}" for name in _packages()]
    functions += [f"{name}: Any" for name in legacy_names()]
    functions += [f"{name}: _layout" for name in SPARSE_LAYOUTS]
    functions.append("__version__: str")
    return MODULE_HEADER + "\n".join(lines) + "\n\n" + "\n".join(functions) + "\n"


def brought(package: str) -> str:
    """Return the stub of the names that a package brings to `tangrad` itself."""
    from tangrad.discovery import discovery
    from tangrad.ops.definition import registry

    lines, functions = [], []
    listed = [p for p in discovery.plugins(discovery.NAMES) if _is_of_package(p, package)]
    for plugin in listed:
        place, _, attribute = plugin.value.partition(":")
        if "." in plugin.name:
            continue  # a name of one of tangrad's modules
        if attribute:
            lines.append(f"from {place} import {attribute} as {plugin.name}")
        else:
            lines.append(f"from tangrad import {plugin.name} as {plugin.name}")
    known = {plugin.name for plugin in listed}
    for plugin in discovery.plugins(discovery.OPS):
        names = discovery.load(plugin) if _is_of_package(plugin, package) else {}
        for name in sorted(set(names) - known):
            op = registry.find(name)
            if op.definition.function and op.definition.namespace is None and name[0] != "_":
                functions += function_forms(name, op)
    return MODULE_HEADER + "\n".join(lines) + "\n\n" + "\n".join(functions) + "\n"


def _is_of_package(plugin: Any, package: str) -> bool:
    return plugin.distribution.replace("_", "-") == f"tangrad-{package.replace('_', '-')}"


def _packages() -> list[str]:
    """Return the packages whose names stand in the public namespace itself."""
    from tangrad.discovery import neutral

    rows = neutral.rows().values()
    return sorted({row["package"].replace("-", "_") for row in rows if "package" in row})


def namespace(module: str) -> str:
    """Return the stub of a module that shows ops beside functions of its own."""
    shown = importlib.import_module(module)
    lines = []
    for name in dir(shown):
        if name.startswith("_") or name in IMPORTED:
            continue
        found = _written(getattr(shown, name))
        if _is_op(found):
            lines += function_forms(name, found)
        elif getattr(found, "__module__", module) != module:
            lines.insert(0, f"from {found.__module__} import {name} as {name}")
        elif inspect.isfunction(found):
            lines += _python(name, found)
        elif isinstance(found, type):
            lines.append(f"class {name}({found.__bases__[0].__name__}): ...")
    return MODULE_HEADER + "\n".join(lines) + "\n"


def _written(found: Any) -> Any:
    """Return the function as it was written, where `__torch_function__` is asked before it."""
    from tangrad import _C

    return found.__wrapped__ if isinstance(found, _C.Overridable) else found


def other_place(name: str) -> str:
    """Return the stub of `tangrad.<name>`, whose source is in `tangrad.compat`."""
    place = f"tangrad.compat.{name}"
    module = importlib.import_module(place)
    own = [key for key, found in vars(module).items() if _is_of(f"tangrad.{name}", found)]
    shown = [key for key in getattr(module, "__all__", ()) if key not in own]
    lines = [f"from {place} import {key} as {key}" for key in own]
    return "\n".join([*lines, *(f"from tangrad import {key} as {key}" for key in shown)]) + "\n"


def _is_of(module: str, found: Any) -> bool:
    return callable(found) and getattr(found, "__module__", None) == module


def return_types() -> str:
    """Return the stub of `tangrad.return_types`: a class for each op with named results."""
    from tangrad import return_types as shown

    lines = ["from typing import NamedTuple", "", "from tangrad._C import Tensor"]
    for name in dir(shown):
        lines += ["", f"class {name}(NamedTuple):"]
        lines += [f"    {field}: Tensor" for field in getattr(shown, name)._fields]
    return "\n".join(lines) + "\n"


def _submodules(tangrad: Any) -> list[str]:
    return [name for name in tangrad._SUBMODULES if not name.startswith("_")]


def dtype_names(tangrad: Any) -> list[str]:
    """Return the names of all dtypes, also of those that are registered on first use."""
    from tangrad.tensor import complex_half, float8, small_dtypes

    aliases = ("half", "float", "double", "cfloat", "cdouble", "short", "int", "long")
    later = (*float8.FORMATS, *small_dtypes.NAMES, *complex_half.NAMES)
    return list(
        dict.fromkeys([*(d.name for d in tangrad._C.registered_dtypes()), *aliases, *later])
    )


def legacy_names() -> list[str]:
    """Return the names of old programs' classes, such as FloatTensor and FloatStorage."""
    from tangrad.tensor import legacy, storages

    return [*legacy.NAMES, *storages.DTYPES, *storages.ALIASES]


def _grouped(imports: list[str]) -> list[str]:
    """Return one statement for each module that names are imported from."""
    names: dict[str, list[str]] = {}
    for line in imports:
        module, imported, name = line.partition(" import ")
        names.setdefault(module + imported, []).append(name)
    return [module + ", ".join(found) for module, found in names.items()]


def _plugin_names(tangrad: Any) -> list[str]:
    """Return the names at the top level that packages of their own are seen under."""
    from tangrad.discovery import namespaces, neutral

    rows = neutral.rows().items()
    known = {
        name
        for name, row in rows
        if name != "Tensor" and not {"placeholder", "single"} & row.keys()
    }
    known |= set(namespaces.names())
    return sorted({name.partition(".")[0] for name in known} - set(tangrad._SUBMODULES))


# --- one name -------------------------------------------------------------------------------------


def _is_op(found: Any) -> bool:
    from tangrad import _C

    return isinstance(found, _C.Op)


def _members(op: Any) -> list[Any]:
    """Return the signatures behind an op: of an overload its members, else the op itself."""
    if op.functional is not None:
        return [m for m in _members(op.functional) if m.inplace is not None] or [op.functional]
    return list(op.overloads) or [op]


def function_forms(name: str, op: Any) -> list[str]:
    """Return the lines of a stub that show an op as a function of a name, a form after another."""
    forms = [form for member in _members(op) for form in _signatures(op, member, method=False)]
    return _overloaded(name, forms, op)


def _method(name: str, found: Any) -> list[str]:
    if _is_op(found):
        forms = [f for member in _members(found) for f in _signatures(found, member, method=True)]
        return _overloaded(name, forms, found)
    if isinstance(found, property):
        return ["@property", *_python(name, _written(found.fget))]
    if inspect.isfunction(_written(found)):
        return _python(name, _written(found))
    return [f"{name}: Any"]


def _overloaded(name: str, forms: list[str], found: Any) -> list[str]:
    forms = list(dict.fromkeys(forms))
    summary = (found.definition.doc or "").strip().partition("\n")[0]
    if not summary and found.overloads:
        summary = (found.overloads[0].definition.doc or "").strip().partition("\n")[0]
    if found.functional is not None:
        summary = ""
    lines = []
    for number, form in enumerate(forms):
        if len(forms) > 1:
            lines.append("@overload")
        # Once is enough: said again with each form, and with what writes in place, it is a fifth
        # of the file.
        lines += _with_doc(f"def {name}{form}:", "" if number else summary)
    return lines


def _with_doc(head: str, summary: str) -> list[str]:
    if not summary:
        return [head + " ..."]
    text = summary.replace("\\", "\\\\").replace('"', "'")
    return [head, f'    """{text}"""']


def _signatures(shown: Any, member: Any, method: bool) -> Iterator[str]:
    """Yield the signatures of one definition: as declared, and with sizes given one by one."""
    d = member.definition
    declared = [p for p in d.schema.params if not (d.random and p.name in ("seed", "offset"))]
    if method and declared and declared[0].type not in TENSORS:
        return  # no tensor comes first: the definition is of a function alone
    spread = _spread(member, declared)
    out = [_out(d)] if member.takes_out and shown.functional is None else []
    result = "Tensor" if shown.functional is not None else _result(member)
    for varied in {False, spread is not None}:
        parts = _parameters(declared, method, spread if varied else None)
        if out and not any(part.startswith("*") for part in parts):
            parts.append("*")
        yield f"({', '.join(parts + out)}) -> {result}"


TENSORS = ("Tensor", "Tensor?", "Operand", "any")


def _spread(member: Any, declared: list[Any]) -> int | None:
    """Return the place of the list that may be given item by item, as in `x.view(2, 3)`."""
    place = member.varargs
    return place if 0 <= place < len(declared) else None


def _parameters(declared: list[Any], method: bool, spread: int | None) -> list[str]:
    from tangrad.ops.definition.schema import REQUIRED

    parts, starred = [], False
    for i, p in enumerate(declared):
        if method and i == 0:
            parts.append("self")
            continue
        name = {"self": "input"}.get(p.name, p.name)
        name = f"{name}_" if keyword.iskeyword(name) else name
        if i == spread:
            parts.append(f"*{name}: {'_int' if 'Tensor' not in p.type else 'Tensor'}")
            starred = True
            continue
        if p.keyword_only and not starred:
            parts.append("*")
            starred = True
        written = f"{name}: {_type(p)}"
        if p.default is not REQUIRED:
            written += f" = {_default(p.default)}"
        elif not starred and parts and " = " in parts[-1]:
            written += " = ..."  # clamp(x, max=t): an argument before it may be left out
        parts.append(written)
    return parts


def _type(p: Any) -> str:
    base = TYPES[p.type.removesuffix("?")]
    optional = p.type.endswith("?") or p.default is None
    return f"{base} | None" if optional and base != "Any" else base


def _default(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "..."
    return repr(value) if isinstance(value, (bool, int, float, str, tuple, type(None))) else "..."


def _out(d: Any) -> str:
    count = len(d.schema.returns)
    return f"out: {'Tensor' if count == 1 else 'Sequence[Tensor]'} | None = None"


def _result(member: Any) -> str:
    text = member.definition.schema.result
    if not text.startswith("("):
        return RESULTS[text]
    if member.return_type is not None and not member.name.startswith("_"):
        return f"_return_types.{member.return_type.__name__}"
    return f"tuple[{', '.join(['Tensor'] * len(member.definition.schema.returns))}]"


PREFIXES: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _python(name: str, function: Any) -> list[str]:
    """Write a function in Python by its own annotations."""
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=_raw(p.annotation)) for p in signature.parameters.values()]
    text = []
    starred = False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            text.append("*")
            starred = True
        prefix = PREFIXES.get(p.kind, "")
        starred = starred or prefix == "*"
        written = prefix + p.name + ("" if p.name == "self" else f": {p.annotation}")
        text.append(written if p.default is p.empty else f"{written} = {_default(p.default)}")
    head = f"def {name}({', '.join(text)}) -> {_raw(signature.return_annotation)}:"
    return _with_doc(head, (inspect.getdoc(function) or "").partition("\n")[0])


def _raw(annotation: Any) -> str:
    """Return an annotation as a stub writes it; Any where the source says nothing."""
    if not isinstance(annotation, str):
        return "Any"
    return BUILTINS.sub(r"_\1", OURS.sub("", annotation))


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what is written is below FOLDER/tangrad")
    parser.add_argument("--core", type=Path, metavar="BY_HAND", help="write the core's stubs")
    parser.add_argument("--package", help="write those of a package")
    parser.add_argument("modules", nargs="*", help="of the package")
    options = parser.parse_args()
    if options.core is not None:
        write_core(options.folder, options.core)
    else:
        write_package(options.folder, options.package, options.modules)


if __name__ == "__main__":
    main()
