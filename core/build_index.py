"""Write ``tangrad/ops/_index.py``: which family module defines which op, under which names.

The index lets ``import tangrad`` know every op's name without importing a single definition.  It
is made by reading the families' syntax, so building it needs neither NumPy nor a compiled core.

By hand: ``python core/build_index.py``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

FORMS = frozenset({"pointwise", "reduction", "scan", "view", "op", "composite", "overload"})
NOT_FAMILIES = frozenset({"__init__.py", "define.py", "_index.py"})
OPS_FOLDER = Path(__file__).resolve().parent / "src" / "tangrad" / "ops"


class Naming(NamedTuple):
    """The keyword arguments of a definition that decide under which names the op is public."""

    alias: tuple[str, ...] = ()
    function: bool = True
    method: bool = True
    inplace: bool = False
    namespace: str | None = None


class Definition(NamedTuple):
    """One op definition as far as its names go."""

    name: str
    family: str
    place: str
    takes_tensor_first: bool
    naming: Naming

    def public_names(self) -> list[str]:
        """Return the op's name and its aliases."""
        return [self.name, *self.naming.alias]

    def function_names(self) -> list[str]:
        """Return the names of the functions made from this definition."""
        return self.public_names() if self.naming.function else []

    def method_names(self) -> list[str]:
        """Return the names of the tensor methods made from this definition, in-place ones too."""
        if not self.takes_tensor_first or self.naming.namespace:
            return []
        names = self.public_names()
        in_place = [f"{name}_" for name in names] if self.naming.inplace else []
        return (names if self.naming.method else []) + in_place


def scan(folder: Path) -> list[Definition]:
    """Return the definitions in all family modules of `folder`, sorted by name.

    Raises:
        SystemExit: if two definitions claim one name, or a definition cannot be read.
    """
    found: list[Definition] = []
    owner: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name in NOT_FAMILIES:
            continue
        for definition in _definitions(path):
            for name in definition.public_names():
                if name in owner:
                    raise SystemExit(
                        f"{definition.place}: op {name!r} is already defined at {owner[name]}"
                    )
                owner[name] = definition.place
            found.append(definition)
    return sorted(found, key=lambda definition: definition.name)


def _definitions(path: Path) -> Iterator[Definition]:
    for statement in ast.parse(path.read_text("utf-8"), str(path)).body:
        for call in _defining_calls(statement):
            yield _read(call, path)


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


def _read(call: ast.Call, path: Path) -> Definition:
    place = f"{path}:{call.lineno}"
    match call.args:
        case [ast.Constant(value=str(schema)), *_]:
            pass
        case _:
            raise SystemExit(f"{place}: the first argument of a definition is a literal schema")
    name, parenthesis, parameters = schema.partition("(")
    is_overload = not parenthesis
    naming = _naming(call, place)
    return Definition(
        name.strip(), path.stem, place, is_overload or _first_is_tensor(parameters), naming
    )


def _first_is_tensor(parameters: str) -> bool:
    kind = parameters.split(None, 1)[0].rstrip(")") if parameters.strip() else ""
    return kind in {"Tensor", "Tensor!", "Operand"}


def _naming(call: ast.Call, place: str) -> Naming:
    given = {}
    for keyword in call.keywords:
        if keyword.arg not in Naming._fields:
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
    return Naming(**given)


def render(definitions: list[Definition]) -> str:
    """Return the source of the index module."""
    namespaces: dict[str, dict[str, str]] = {}
    functions: dict[str, str] = {}
    methods: dict[str, str] = {}
    for definition in definitions:
        space = definition.naming.namespace
        target = namespaces.setdefault(space, {}) if space else functions
        target.update(dict.fromkeys(definition.function_names(), definition.name))
        methods.update(dict.fromkeys(definition.method_names(), definition.name))
    families = {definition.name: definition.family for definition in definitions}
    tables: list[tuple[str, str, Mapping[str, object]]] = [
        ("OPS", "op -> the family module that defines it", families),
        ("FUNCTIONS", "public function of the top-level namespace -> op", functions),
        ("METHODS", "tensor method, in-place ones too -> op", methods),
        ("NAMESPACES", "namespace -> function -> op", namespaces),
    ]
    lines = ['"""Index of the op definitions, made by build_index.py: not edited by hand."""']
    for name, meaning, table in tables:
        lines += ["", f"# {meaning}", f"{name} = {{"]
        lines += [f"    {key!r}: {value!r}," for key, value in sorted(table.items())]
        lines += ["}"]
    return "\n".join(lines) + "\n"


def write(folder: Path = OPS_FOLDER) -> Path:
    """Write the index of the families in `folder` and return its path.

    An index that is already right is left alone, so that nothing is rebuilt for its date.
    """
    target = folder / "_index.py"
    source = render(scan(folder))
    if not target.exists() or target.read_text("utf-8") != source:
        target.write_text(source, "utf-8")
    return target


if __name__ == "__main__":
    sys.stdout.write(f"{write()}\n")
