"""Write the index of a package's ops, ``_index.py``: which module defines which op.

The index lets ``import tangrad`` know every op's name without importing a single definition.  It
is made by reading the modules' syntax, so building it needs neither NumPy nor a compiled core: the
core's own is written by its setup.py, which loads this file by its path. Other packages call
`tangrad.plugin.build_index` in theirs, and name the index in the entry-point group `tangrad.ops`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FORMS = frozenset({"pointwise", "reduction", "scan", "view", "op", "composite", "overload"})
NOT_FAMILIES = frozenset({"__init__.py", "_index.py"})
LANGUAGE = "definition"  # the folder of the language itself, which defines no op


class Definition(NamedTuple):
    """One op definition as far as its names go."""

    name: str
    family: str
    place: str
    members: tuple[str, ...] = ()
    alias: tuple[str, ...] = ()
    inplace: bool = False

    def names(self) -> list[str]:
        """Return every name of the op: its own, its aliases, and their in-place forms."""
        names = [self.name, *self.alias]
        return names + [f"{name}_" for name in names if self.inplace]


# The keyword arguments of a definition that the index has to know.
NAMING = frozenset({"alias", "inplace"})


def scan(folder: Path) -> list[Definition]:
    """Return the definitions in all family modules of `folder`, sorted by name.

    Raises:
        SystemExit: if two definitions claim one name, or a definition cannot be read.
    """
    found: list[Definition] = []
    owner: dict[str, str] = {}
    for path in _families(folder):
        family = ".".join(path.relative_to(folder).with_suffix("").parts)
        for definition in _with_in_place_overloads(list(_definitions(path, family))):
            for name in definition.names():
                if name in owner:
                    raise SystemExit(
                        f"{definition.place}: op {name!r} is already defined at {owner[name]}"
                    )
                owner[name] = definition.place
            found.append(definition)
    return sorted(found, key=lambda definition: definition.name)


def _families(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    return [
        path for path in files if path.name not in NOT_FAMILIES and not _is_language(path, folder)
    ]


def _is_language(path: Path, folder: Path) -> bool:
    return path.relative_to(folder).parts[0] == LANGUAGE


def _definitions(path: Path, family: str) -> Iterator[Definition]:
    for statement in ast.parse(path.read_text("utf-8"), str(path)).body:
        for call in _defining_calls(statement):
            yield _read(call, path, family, getattr(statement, "name", ""))


def _with_in_place_overloads(found: list[Definition]) -> Iterator[Definition]:
    """Yield the definitions, overloads in place where one of their members is."""
    in_place = {definition.name for definition in found if definition.inplace}
    for definition in found:
        inherits = not in_place.isdisjoint(definition.members)
        yield definition._replace(inplace=definition.inplace or inherits)


def _defining_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    match statement:
        case ast.Assign(value=value):
            candidates = [value]
        case ast.AnnAssign(value=ast.expr() as value):
            candidates = [value]
        case ast.FunctionDef(decorator_list=candidates):
            pass
        case _:
            return
    for candidate in candidates:
        match candidate:
            case ast.Call(func=ast.Name(id=form)) if form in FORMS:
                yield candidate
            case ast.Call(func=ast.Call(func=ast.Name(id="composite")) as made):
                yield made  # of a function that a template gives


def _read(call: ast.Call, path: Path, family: str, function: str) -> Definition:
    place = f"{path}:{call.lineno}"
    match call.args:
        case [ast.Constant(value=str(schema)), *_]:
            pass
        case [] if function:  # a composite: its signature is its schema
            schema = function
        case _:
            raise SystemExit(f"{place}: the first argument of a definition is a literal schema")
    members = [argument.value for argument in call.args[1:] if isinstance(argument, ast.Constant)]
    is_overload = isinstance(call.func, ast.Name) and call.func.id == "overload"
    return Definition(
        schema.partition("(")[0].strip(),
        family,
        place,
        tuple(map(str, members)) if is_overload else (),
        **_naming(call, place),
    )


def _naming(call: ast.Call, place: str) -> dict[str, Any]:
    given = {}
    for keyword in call.keywords:
        if keyword.arg not in NAMING:
            continue
        try:
            given[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            raise SystemExit(
                f"{place}: {keyword.arg}= must be a literal: the index is made without running "
                "the module"
            ) from None
    if isinstance(given.get("alias"), str):
        given["alias"] = (given["alias"],)
    return given


def render(definitions: list[Definition], package: str = "") -> str:
    """Return the source of the index module; modules are named from `package` on."""
    before = f"{package}." if package else ""
    family = {name: before + d.family for d in definitions for name in d.names()}
    families: dict[str, list[str]] = {}
    for name, module in sorted(family.items()):
        families.setdefault(module, []).append(name)
    # Grouped: the installed core is to stay small.
    lines = [
        '"""Index of the op definitions, made when the package is built."""',
        "",
        "_NAMES = {",
        *(f" {module!r}: {' '.join(names)!r}," for module, names in sorted(families.items())),
        "}",
        "# name of an op, aliases and in-place forms too -> the family that defines it",
        "INDEX = {name: family for family, names in _NAMES.items() for name in names.split()}",
    ]
    return "\n".join(lines) + "\n"


def build_index(folder: Path, package: str = "") -> Path:
    """Write the index of the modules in `folder` that define ops, and return its path.

    An index that is already right is left alone, so that nothing is rebuilt for its date.

    Args:
        folder: holds the modules; the index is written there.
        package: the dotted name by which `folder` is imported; the core's index has none.

    Raises:
        SystemExit: two definitions claim one name, or a definition cannot be read.
    """
    target = folder / "_index.py"
    source = render(scan(folder), package)
    if not target.exists() or target.read_text("utf-8") != source:
        target.write_text(source, "utf-8")
    return target
