"""List every name of PyTorch that installed libraries use, and which of them tangrad has.

    python tools/torch_names.py timm lightning            # what is missing, library by library
    python tools/torch_names.py --markdown timm lightning # the table of docs/libraries.md
    python tools/torch_names.py --most 150 timm lightning # those that most of the libraries use

A name *works* if the stand-in has it, is a *placeholder* if what it gives refuses to be made or
called because its package is not installed, and is *missing* otherwise. Names that PyTorch itself
lacks (of older and newer releases, of other devices) are left out, where PyTorch is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from tangrad.compat.program_names import PYTORCH, states, uses_in


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
        source = file.read_text(encoding="utf-8", errors="replace")
        if "torch" not in source:  # most files of some libraries, and parsing is what takes long
            continue
        with contextlib.suppress(SyntaxError, ValueError):  # templates, and files of other Pythons
            for name in uses_in(source).names:
                found.setdefault(name, []).append(str(file))
    return found


def most_used(used: dict[str, dict[str, list[str]]], count: int) -> list[tuple[str, int]]:
    """Return the names that most libraries use, and how many do, modules left out.

    Args:
        used: by library, its names with their files.
        count: how many names are wanted.
    """
    libraries: dict[str, int] = {}
    files: dict[str, int] = {}
    for names in used.values():
        for name, places in names.items():
            libraries[name] = libraries.get(name, 0) + 1
            files[name] = files.get(name, 0) + len(places)
    order = sorted(libraries, key=lambda name: (-libraries[name], -files[name], name))
    inside: dict[str, int] = {}  # a module has many names in it; a class or a dtype has few
    for name in order:
        parent = name.rpartition(".")[0]
        inside[parent] = inside.get(parent, 0) + 1
    shown = [
        name
        for name in order
        if not name.rpartition(".")[2].startswith("_")
        and (name.rpartition(".")[2][:1].isupper() or inside.get(name, 0) < 4)
    ]
    return [(name, libraries[name]) for name in shown][:count]


def main() -> None:
    """Print what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("libraries", nargs="+", help="names that are imported, such as timm")
    parser.add_argument("--where", action="store_true", help="tell a file for each name")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    parser.add_argument("--most", type=int, metavar="N", help="print the names used most")
    chosen = parser.parse_args()
    used = {library: names_of(library) for library in chosen.libraries}
    if chosen.most:
        for name, count in most_used(used, chosen.most):
            print(f"{name.removeprefix('torch.')} {count}")
        return
    every = {name for names in used.values() for name in names}
    ours = states(every)
    if importlib.util.find_spec("torch") is not None:
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
