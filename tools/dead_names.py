"""List names that are defined and never used: ``python tools/dead_names.py``; status 1 if any.

Looked at are private functions, classes and constants of Python modules, and C functions of the
Cython sources. A name counts as used where it stands a second time in any source of the repository,
so nothing that is found is in use, and what is used by its own definition alone is not found.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Modules that hold private names of PyTorch's, for libraries that import them.
PYTORCHS = (
    "compat/_utils.py",
    "nn/common_types.py",
    "optim/lr_scheduler/__init__.py",
    "plugins/fx/",
    "tangrad/types.py",
    "utils/_contextlib.py",
    "utils/_pytree.py",
    "utils/data/dataloader.py",
)
SOURCES = (
    "*.py",
    "*.pyx",
    "*.pxi",
    "*.pxd",
    "*.pyi",
    "*.c",
    "*.h",
    "*.toml",
    "*.ini",
    "*.md",
    "*.json",
)
# Return types may have spaces and stars; `cdef extern` blocks are indented, so not found.
C_FUNCTION = re.compile(r"^c(?:p)?def (?:inline )?(?:[\w.]+[ *]+)+(\w+)\(", re.M)


def files() -> list[Path]:
    """Return the sources that belong to the repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *SOURCES]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def private_names(text: str) -> Iterator[str]:
    """Yield the private names that a Python module defines at its top level."""
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            # A decorator may register it.
            found = [] if node.decorator_list else [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in found if name[0] == "_" and not name.endswith("__"))


def dead(sources: dict[Path, str]) -> list[tuple[Path, str]]:
    """Return the file and name of every definition whose name stands nowhere else.

    Args:
        sources: text by file.
    """
    uses: Counter[str] = Counter()
    for text in sources.values():
        uses.update(re.findall(r"\w+", text))
    found = []
    for path, text in sources.items():
        names: Iterator[str] = iter(())
        place = path.as_posix()
        if any(part in place for part in PYTORCHS):
            continue
        if path.suffix == ".py" and "templates" not in path.parts:
            names = private_names(text)
        elif path.suffix in (".pyx", ".pxi"):
            names = iter(C_FUNCTION.findall(text))
        found += [(path, name) for name in names if uses[name] == 1]
    return found


def main() -> int:
    """Print what is dead."""
    found = dead({path: path.read_text("utf-8") for path in files()})
    for path, name in found:
        print(f"{path.relative_to(ROOT)}: {name} is used nowhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
