"""Names that nothing uses: private ones of Python modules, and functions of the compiled parts.

    python tools/dead_code.py

A module-level function, class or constant whose name begins with an underscore, an imported or
local name apart, and a `cdef` function must be mentioned somewhere else in the repository. What a
package offers under a public name is not asked for here: users mention it.
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
WORD = re.compile(r"[A-Za-z_]\w*")
CDEF = re.compile(r"^cdef (?!extern|class|struct|enum|union)[^=(]*?(\w+)\s*\(", re.MULTILINE)
COMPILED = {".pyx", ".pxi", ".pxd", ".h", ".c"}
SPECIAL = re.compile(r"^__\w+__$")  # Python calls them
DEFINING = {"op", "composite", "view", "pointwise", "reduction", "overload", "scan"}
# PyTorch's private names, which programs import although they should not.
OF_PYTORCH = """
_take_tensors _reorder_tensors_as _get_device_index _get_available_device_type _get_device_module
_IntegerLessThan
_size_3_t _size_4_t _size_5_t _size_6_t _size_any_opt_t _size_2_opt_t _size_3_opt_t _ratio_3_t
_ratio_any_t _LRScheduler _symint _dispatchkey _TensorOrTensors _NoParamDecoratorContextManager
_register_pytree_node _collate_fn_t _worker_init_fn_t _deregister_pytree_flatten_spec
_create_wrapped_func _wrapped_methods_to_patch _register_custom_builtin _has_attr _del_attr
_get_qualified_name _accumulate
""".split()


def sources() -> list[Path]:
    """Return the files of the repository that hold code or say what it does."""
    told = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    endings = {".py", ".toml", ".json", ".tp", ".in", *COMPILED}
    return [ROOT / line for line in told.splitlines() if Path(line).suffix in endings]


def private_names(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what a file defines and nobody outside of the project may use."""
    if path.suffix == ".py":
        for node in ast.parse(text).body:
            for name in _defined(node):
                if name.startswith("_") and not SPECIAL.match(name) and name not in OF_PYTORCH:
                    yield node.lineno, name
    elif path.suffix in (".pyx", ".pxi"):
        for found in CDEF.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, found[1]


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        # What a decorator takes is used by it.
        return [] if node.decorator_list else [node.name]
    if isinstance(node, ast.Assign):
        made = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(made, ast.Name) and made.id in DEFINING:
            return []  # to define an op is to use it
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def dead() -> list[str]:
    """Return "file:line: name" of every name that is mentioned once, where it is defined."""
    texts = {path: path.read_text("utf-8", errors="replace") for path in sources() if path.exists()}
    mentioned: Counter[str] = Counter()
    for text in texts.values():
        mentioned.update(WORD.findall(text))
    return [
        f"{path.relative_to(ROOT)}:{line}: {name} is defined, and used nowhere"
        for path, text in texts.items()
        if "tests" not in path.parts and path.suffix in (".py", ".pyx", ".pxi")
        for line, name in private_names(path, text)
        if mentioned[name] == 1
    ]


def main() -> int:
    """Print what is dead; the status is 1 if anything is."""
    found = dead()
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
