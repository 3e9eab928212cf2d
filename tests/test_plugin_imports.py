"""What packages may use of the core: `tangrad.plugin`, its modules, and the public namespace.

It holds for ours as for everybody's: what a package of ours lacks there is missing for others too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "src" / "tangrad"
FACADE = "tangrad.plugin"
# Parts of the core that neither PyTorch's users nor ours know: `tangrad.ops.NAME` is public, the
# modules below `tangrad.ops` are not.
INTERNAL = frozenset(
    "_C cli compat compilation control_flow devices dispatch expr native ops discovery settings"
    " stand_in tensor foreach functions".split()
)
# PyTorch's users know these by their names, and named tuples have the last; there are no others.
KNOWN = (
    *("tangrad.utils._pytree", "tangrad.utils._python_dispatch", "tangrad._assert"),
    *("tangrad._foreach_add_", "tangrad._foreach_mul_", "tangrad._foreach_zero_"),
    *("tangrad._fused_", "tangrad._standard_gamma", "tangrad._sample_dirichlet"),
    "tangrad.nn.modules.module._IncompatibleKeys",
    *("tangrad.nn.modules.batchnorm._BatchNorm", "tangrad.TypedStorage._untyped_storage"),
    *("tangrad._unsafe_view", "tuple._make", "tangrad.Tensor._make_wrapper_subclass"),
)
IMPORT = re.compile(r"^\s*(?:from\s+(tangrad[\w.]*)\s+c?import\s+(.+)|c?import\s+(tangrad[\w.]*))")
DECLARED = re.compile(r"^\s*cdef .*$", re.MULTILINE)
PRIVATE = re.compile(r"\.(_[a-z]\w*)|\btangrad\.(_C)\b")


def package_files() -> list[Path]:
    """Return the sources of every package but the core's; tests may look behind the façade."""
    folders = [*ROOT.glob("plugins/*"), *ROOT.glob("backend_*"), *ROOT.glob("examples/*")]
    folders += [ROOT / "quantization", *ROOT.glob("backend_*/emulator")]
    files = [
        path
        for folder in folders
        for pattern in ("*.py", "src/**/*.py", "render/**/*.py", "src/**/*.pyx", "src/**/*.pxi")
        for path in folder.glob(pattern)
    ]
    return sorted({*files, *ROOT.glob("examples/*.py")})


def is_allowed(module: str, name: str = "") -> bool:
    """Tell whether a package may import a module, or a name from it."""
    if f"{module}.{name}".rstrip(".").startswith(KNOWN):
        return True
    parts = [*module.split("."), *([name] if name else [])]
    if parts[0] != "tangrad" or module == FACADE or module.startswith(FACADE + "."):
        return not name.startswith("_") or parts[0] != "tangrad"
    private = [part for part in parts[1:] if part.startswith("_") and not part.startswith("__")]
    return not private and (len(parts) == 1 or parts[1] not in INTERNAL)


def dotted(node: ast.expr) -> list[str]:
    """Return the parts of a dotted name; of any other expression, parts that begin with ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(parts)]


def imported(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield (line, module, name) of every import in a Python file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute):
            root, *rest = dotted(node)
            # A function such as `tangrad.tensor`, and an op wherever it stands, are public.
            by_name = len(rest) == 1 and not rest[0].startswith("_")
            by_name |= rest[:1] == ["ops"] and rest[1:2] != ["_index"]
            if root == "tangrad" and not by_name:
                yield node.lineno, ".".join([root, *rest[:-1]]), rest[-1]


def own_names(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a file itself defines or assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


SOURCES = (".py", ".pyx")


@cache
def own_modules(package: Path) -> frozenset[str]:
    """Return the modules that a package installs below `tangrad` itself."""
    source = package / "src"
    files = [path for path in source.glob("tangrad/**/*") if path.suffix in SOURCES]
    paths = [path.relative_to(source) for path in files]
    found = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return frozenset(found | {f"{name}._index" for name in found})


def is_own(package: Path, module: str, name: str) -> bool:
    """Tell whether a module is the package's own, or a name is of one."""
    own = own_modules(package)
    return module in own or f"{module}.{name}" in own


@cache
def private_names(folder: Path) -> frozenset[str]:
    """Return the private names that the Python files of a folder define."""
    trees = [ast.parse(path.read_text("utf-8")) for path in folder.rglob("*.py")]
    names = {name for tree in trees for name in own_names(tree)}
    known = {name.rpartition(".")[2] for name in KNOWN}
    return frozenset(n for n in names - known if n.startswith("_") and not n.startswith("__"))


@cache
def hidden_names() -> frozenset[str]:
    """Return the private names of the core's internal parts that no public part has, too."""
    parts = {path: path.stem in INTERNAL for path in CORE.iterdir() if path.is_dir()}
    inside, outside = (
        frozenset().union(*(private_names(path) for path, found in parts.items() if found is want))
        for want in (True, False)
    )
    return inside - outside


def package_of(path: Path) -> Path:
    """Return the folder of the package that a file belongs to."""
    inside = [up for up in path.parents if up.is_relative_to(ROOT) and up != ROOT]
    return next((up for up in inside if (up / "pyproject.toml").exists()), path.parent)


def private_uses(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of attributes that are private to the core's internal parts."""
    hidden = hidden_names() - private_names(package_of(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in hidden:
            yield node.lineno, node.attr


def refused(path: Path) -> list[str]:
    """Return what a file uses of the core that it must not."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        found = [
            (line, f"{m} {n}".strip())
            for line, m, n in imported(tree)
            if not (is_allowed(m, n) or is_own(package_of(path), m, n))
        ]
        return [f"line {line}: {what}" for line, what in [*found, *private_uses(path, tree)]]
    own = private_names(package_of(path))
    hidden = hidden_names() - own - set(re.findall(r"\b_\w+", " ".join(DECLARED.findall(text))))
    lines = enumerate(text.split("\n"), 1)
    return [f"line {k}: {line.strip()}" for k, line in lines if bad(line, hidden)]


def bad(line: str, hidden: frozenset[str]) -> bool:
    """Tell whether a line of Cython uses of the core what it must not."""
    code = line.split("#")[0]
    match = IMPORT.match(code)
    if match is None:
        return any(core or name in hidden for name, core in PRIVATE.findall(code.split('"')[0]))
    module, names = match.group(1) or match.group(3), match.group(2) or ""
    wanted = [name.split()[0] for name in names.split(",") if name.strip()] or [""]
    return not all(is_allowed(module, name) for name in wanted)


@pytest.mark.parametrize("path", package_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_uses_the_facade_and_the_public_namespace_alone(path: Path) -> None:
    assert not refused(path)


@pytest.mark.parametrize(
    "line",
    [
        "from tangrad import _C",
        "from tangrad.expr.render import Dialect",
        "import tangrad.ops._index",
        "from tangrad.ops.indexing.unique import _distinct",
        "x = tangrad._C.Op",
        "made = definition._derived",
    ],
)
@pytest.mark.parametrize("suffix", [".py", ".pyx"])
def test_what_stands_behind_the_facade_is_noticed(line: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"module{suffix}").write_text(f"{line}\n")
    assert refused(tmp_path / f"module{suffix}")


@pytest.mark.parametrize(
    "line",
    [
        "import tangrad",
        "from tangrad import nn",
        "from tangrad.nn import functional as F",
        "from tangrad.plugin import DeviceDriver",
        "from tangrad.plugin.render import Dialect",
        "x = tangrad.ops.aten.mm",
    ],
)
@pytest.mark.parametrize("suffix", [".py", ".pyx"])
def test_the_facade_and_public_names_are_allowed(line: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"module{suffix}").write_text(f"{line}\n")
    assert not refused(tmp_path / f"module{suffix}")
