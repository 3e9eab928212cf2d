"""Run a program that is profiled as its own main module, also one written for PyTorch."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext


def run(program: str, arguments: Sequence[str]) -> None:
    """Run a file, or a folder with `__main__.py`, as Python does.

    What the program imports as `torch` is tangrad, of which alone a profile tells; unless it names
    tangrad, too, and so means another by `torch`.
    """
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    with nullcontext() if "tangrad" in _imported(program) else _torch():
        runpy.run_path(program, run_name="__main__")


def _torch() -> AbstractContextManager[None]:
    """Return the context in which `import torch` is tangrad, if there is the package for it."""
    try:
        from tangrad.utils.stand_in import at_first_import
    except ModuleNotFoundError:
        return nullcontext()
    return at_first_import()


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
