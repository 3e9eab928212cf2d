"""List every name of PyTorch that installed libraries use, and which of them tangrad has.

    python tools/torch_names.py timm lightning            # what is missing, library by library
    python tools/torch_names.py --markdown timm lightning # the table of docs/libraries.md

A name *works* if the stand-in has it, is a *placeholder* if what it gives refuses to be made or
called because its package is not installed, and is *missing* otherwise. Names that PyTorch itself
lacks (of older and newer releases, of other devices) are left out, where PyTorch is installed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = "torch"


class _Names(ast.NodeVisitor):
    """Collect the dotted names below `torch` in one file."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}  # the file's name of a module or of what it took from it
        self.found: set[str] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            if one.name == ROOT or one.name.startswith(f"{ROOT}."):
                self.found.add(one.name)
                if one.asname:
                    self.bound[one.asname] = one.name
                else:
                    self.bound[ROOT] = ROOT

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or not (module == ROOT or module.startswith(f"{ROOT}.")):
            return
        self.found.add(module)
        for one in node.names:
            if one.name != "*":
                full = f"{module}.{one.name}"
                self.found.add(full)
                self.bound[one.asname or one.name] = full

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = _dotted(node)
        if path is None:
            self.generic_visit(node)
            return
        first, *rest = path
        if first in self.bound and isinstance(node.ctx, ast.Load):
            self.found.add(".".join((self.bound[first], *rest)))


def _dotted(node: ast.expr) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        path = _dotted(node.value)
        return None if path is None else [*path, node.attr]
    return None


def names_in(source: str) -> set[str]:
    """Return the names below `torch` that a Python source uses; none if it cannot be parsed."""
    if ROOT not in source:  # most files of some libraries, and parsing is what takes long
        return set()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names = _Names()
    # Imports anywhere bind a name everywhere: libraries import inside `if` and inside functions.
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.visit(node)
    names.visit(tree)
    return names.found


def files_of(library: str) -> Iterator[Path]:
    """Yield the Python files of an installed package or module.

    Raises:
        SystemExit: it is not installed.
    """
    spec = importlib.util.find_spec(library)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise SystemExit(f"torch_names: no package named {library!r} is installed")
    for folder in spec.submodule_search_locations or ():
        yield from sorted(Path(folder).rglob("*.py"))
    if not spec.submodule_search_locations and spec.origin:
        yield Path(spec.origin)


def names_of(library: str) -> dict[str, list[str]]:
    """Return the names that a library uses, each with the files that use it."""
    found: dict[str, list[str]] = {}
    for file in files_of(library):
        for name in names_in(file.read_text(encoding="utf-8", errors="replace")):
            found.setdefault(name, []).append(str(file))
    return found


# Answers for names on standard input: how far each resolves. What a name gives is of no interest
# below an object that is neither module nor class, whose attributes may be made at run time.
RESOLVE = """
import importlib, json, sys, types, warnings
warnings.simplefilter("ignore")
{prepare}
def step(value, path, name):
    try:
        return getattr(value, name)
    except Exception:
        pass
    if isinstance(value, types.ModuleType):
        try:
            return importlib.import_module(".".join(path) + "." + name)
        except Exception:
            pass
    raise LookupError(name)
def state(full):
    first, *rest = full.split(".")
    value, path = importlib.import_module(first), [first]
    for name in rest:
        if refusing(value):
            return "placeholder"
        try:
            value = step(value, path, name)
        except LookupError:
            plain = not isinstance(value, (types.ModuleType, type))
            return "works" if plain and not callable(value) else "missing"
        path.append(name)
    return "placeholder" if refusing(value) else "works"
print(json.dumps({{name: state(name) for name in json.load(sys.stdin)}}))
"""
STAND_IN = """
from tangrad import stand_in
stand_in.install()
from tangrad.discovery.neutral import is_placeholder as refusing
"""
PYTORCH = "refusing = lambda value: False"


def states(names: Iterable[str], prepare: str) -> dict[str, str]:
    """Return what each name is in a new process: works, placeholder or missing."""
    program = RESOLVE.format(prepare=prepare)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(sorted(names)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Print what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("libraries", nargs="+", help="names that are imported, such as timm")
    parser.add_argument("--where", action="store_true", help="tell a file for each name")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    chosen = parser.parse_args()
    used = {library: names_of(library) for library in chosen.libraries}
    every = {name for names in used.values() for name in names}
    ours = states(every, STAND_IN)
    if importlib.util.find_spec(ROOT) is not None:
        theirs = states(every, PYTORCH)
        every = {name for name in every if theirs[name] == "works"}
    if chosen.markdown:
        print("| library | names | works | placeholder | missing |\n|---|---|---|---|---|")
    for library, names in used.items():
        known = sorted(set(names) & every)
        count = {k: sum(ours[n] == k for n in known) for k in ("works", "placeholder", "missing")}
        if chosen.markdown:
            cells = [f"`{library}`", len(known), *count.values()]
            print(f"| {' | '.join(map(str, cells))} |")
            continue
        for kind in ("missing", "placeholder"):
            for name in known:
                if ours[name] == kind:
                    place = f"  {names[name][0]}" if chosen.where else ""
                    print(f"{library}: {kind}: {name}{place}")
        print(f"{library}: {len(known)} names: {count}")


if __name__ == "__main__":
    main()
