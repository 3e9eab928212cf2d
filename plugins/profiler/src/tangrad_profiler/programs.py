"""Run a program that is profiled as its own main module, also one written for PyTorch."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

NAMES = ("torch", "functorch")  # PyTorch's top-level packages


class StandIn:
    """Let tangrad stand in for PyTorch from the first `import torch` of a program on.

    It comes first of those that find modules, and goes when it is asked for the first time.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return how to load PyTorch's packages as tangrad, None for all other modules."""
        if fullname.partition(".")[0] not in NAMES:
            return None
        sys.meta_path.remove(self)
        from tangrad.stand_in import Finder, install

        install()
        found: ModuleSpec | None = Finder().find_spec(fullname, path, target)
        return found


def run(program: str, arguments: Sequence[str]) -> None:
    """Run a file, or a folder with `__main__.py`, as Python does.

    What the program imports as `torch` is tangrad, of which alone a profile tells; unless it names
    tangrad, too, and so means another by `torch`.
    """
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    stand_in = StandIn()
    if "tangrad" not in _imported(program) and "torch" not in sys.modules:
        sys.meta_path.insert(0, stand_in)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        if stand_in in sys.meta_path:
            sys.meta_path.remove(stand_in)


def _imported(program: str) -> set[str]:
    """Return the top-level names of modules that a program imports, as far as it can be read."""
    file = os.path.join(program, "__main__.py") if os.path.isdir(program) else program
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return set()  # running it tells what is wrong
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found
