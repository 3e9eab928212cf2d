"""The shape of the core: which part may know which, what an import costs, how large it is."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "src" / "tangrad"
NEUTRAL = CORE / "discovery" / "neutral.json"

# The core's floors, from the top down. A part imports from its own floor and those below it.
LAYERS = [
    {"__main__", "cli"},
    {"plugin", "holders"},
    {"utils", "serialization", "multiprocessing"},
    {
        *("amp", "backends", "accelerator", "testing", "settings", "compilation", "cpu"),
        *("compat.foreach", "types", "version", "__config__", "__future__"),
    },
    {"tangrad"},  # the public namespace, which those above use as every user does
    # What shows ops by shorter names; tensors of other layouts.
    {"linalg", "fft", "special", "signal", "return_types", "layouts"},
    {"autograd", "func", "overrides"},
    {"ops"},
    {"ops.definition"},
    {"dispatch", "devices", "random", "storage", "control_flow"},
    {"tensor", "discovery", "expr", "compat"},
    {"utils._pytree", "utils.hooks", "_C"},  # PyTorch's places for what everybody stands on
]
MOST_LAYERS = 12
LEVEL = {part: -depth for depth, parts in enumerate(LAYERS) for part in parts}

# Devices and feature packages that exist or might, by the names that code would use for them.
FOREIGN = (
    "cuda|opencl|mps|xpu|hip|rocm|vulkan|loopback|quantization|profiler|jit|onnx|distributed"
    "|vision|pycuda|pyopencl"
)
# A whole literal ("cuda", "cuda:0"), or a distribution or module anywhere in a literal.
NAMED = re.compile(
    rf"^(?:{FOREIGN})(?::\d*)?$"
    rf"|\btangrad[-_](?:{FOREIGN}|text|testing)\b"
    rf"|\btangrad\.(?:{FOREIGN}|text)\b"
)

LONGEST_FILE = 600
# Files that are one thing though they are longer, with what that thing is.
LONGER = {
    "core/src/tangrad/expr/coefficients_special.py": (
        "a table of coefficients, which core/fit_special_functions.py writes"
    ),
    "core/src/tangrad/utils/_pytree.py": (
        "PyTorch's file of that name: programs take public and private names from it"
    ),
    "plugins/jit/src/tangrad_jit/_guards.pyx": (
        "the kinds of guards and the list that asks them; compiled as one, without calls between"
    ),
    "plugins/jit/src/tangrad_jit/_run.pyx": "the class of a program: its steps and their loop",
    "plugins/jit/src/tangrad_jit/compiling/recording.py": "a recorded call, from first to last",
    "plugins/jit/tests/scripting/script_cases.py": "a table of programs with their cases",
    "plugins/nn/src/tangrad/nn/modules/module.py": (
        "the class Module; its state and its hooks are bases in files of their own"
    ),
    "plugins/nn/src/tangrad/nn/utils/prune.py": (
        "PyTorch's file of that name: methods of pruning, the functions that apply them, checks"
    ),
    "plugins/testing/src/tangrad_testing/mutants/planted_memory.py": (
        "a list of faults, each a few lines that stand by themselves"
    ),
    "plugins/torch_surface/tests/test_library.py": "what a library's ops do, case by case",
    "tests/random_programs.py": "one generator of programs, and the check of what it makes",
}
LONGEST_OF_THEM = 800
LARGEST_CORE = 78_000  # lines of source
MODULES_OF_AN_IMPORT = 80
LARGEST_INSTALL = 4_250_000
HEAVY = {"numpy", "stevedore", "pluggy", "inspect", "dataclasses", "importlib.metadata"}


def python_files() -> list[Path]:
    return sorted(path for path in CORE.rglob("*.py") if path.name != "_index.py")


def source_files() -> list[Path]:
    packages = (
        *("backend_cpu", "backend_cuda", "benchmarks", "ci", "core", "examples", "libraries"),
        *("plugins", "quantization", "tests", "tools"),
    )
    suffixes = {".py", ".pyx", ".pxi", ".pxd", ".h", ".hpp", ".c", ".cpp"}
    return sorted(
        path
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.suffix in suffixes
        and "build" not in path.relative_to(ROOT).parts
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        and path.name != "_index.py"
        and not (path.suffix == ".c" and path.with_suffix(".pyx").exists())
    )


def part_of(path: Path) -> str:
    inside = path.relative_to(CORE).with_suffix("").parts
    return part_named(inside) if inside != ("__init__",) else "tangrad"


def part_named(inside: Sequence[str]) -> str:
    """Return the part that a module belongs to, given its path below the package."""
    two = ".".join(inside[:2])
    return two if two in LEVEL else inside[0]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(tree: ast.AST, late: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield every import that can run, and whether it does so late: when a function is called."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, late
        elif not is_type_checking(child):
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(child, late or inside)


def imported_parts(statement: ast.stmt, tree: ast.Module, path: Path, late: bool) -> Iterator[str]:
    for name in imported_names(statement, path.relative_to(CORE.parent)):
        top, *rest = name.split(".")
        if top != "tangrad":
            continue
        if not rest:
            # The package itself is there anyway: what counts is what is taken from it.
            yield from {part_behind(public) for public in taken_from_package(tree)}
        elif rest[0] in LEVEL:
            # A call of an op, late, is a look-up by name in the op table.
            yield "_C" if late and rest[0] == "ops" else part_named(rest)
        else:
            yield part_behind(rest[0])


def imported_names(statement: ast.stmt, path: Path) -> list[str]:
    """Return what a statement imports, given the place of its file below the source root."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    package = path.parent.parts
    above = package[: len(package) - statement.level + 1] if statement.level else ()
    base = ".".join([*above, *filter(None, [statement.module])])
    return [f"{base}.{alias.name}" for alias in statement.names]


def taken_from_package(tree: ast.Module) -> Iterator[str]:
    """Yield X for every tangrad.X in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="tangrad"), attr=public):
                yield public


@cache
def part_behind(public: str) -> str:
    """Return the part that a name of the public namespace takes one to."""
    from tangrad import _C, _LAZY
    from tangrad.ops.definition import registry

    if hasattr(_C, public) or registry.is_known(public):
        return "_C"  # compiled, or looked up by name in the op table
    try:
        _C.dtype_by_name(public)
    except TypeError:
        return public if public in LEVEL else _LAZY.get(public, "tangrad").partition(".")[0]
    return "_C"


def test_every_part_of_the_core_has_a_layer() -> None:
    assert {part_of(path) for path in python_files()} == set(LEVEL) - {"_C"}
    assert len(LAYERS) <= MOST_LAYERS


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(CORE)))
def test_imports_never_point_upward(path: Path) -> None:
    here = part_of(path)
    tree = ast.parse(path.read_text("utf-8"))
    upward = [
        f"line {statement.lineno}: {here} imports {part}"
        for statement, late in imports(tree)
        for part in imported_parts(statement, tree, path, late)
        if LEVEL[part] > LEVEL[here] and here != "tangrad"
    ]
    assert not upward


def source_roots() -> list[Path]:
    """Return the folders that hold the modules of a package: of the core and of all others."""
    places = ("core/src", "backend_*/src", "backend_*/*/src", "quantization/src", "plugins/*/src")
    return sorted(root for place in places for root in ROOT.glob(place))


def module_files(root: Path) -> dict[str, Path]:
    """Return {module: file}, without the faces of packages, which only hand names on."""
    places = [path.relative_to(root) for path in root.rglob("*.py")]
    return {
        ".".join(place.with_suffix("").parts): place
        for place in places
        if place.name not in {"__init__.py", "_index.py"}
    }


def imported_files(root: Path, path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules that a file imports: when it is loaded, late, or for its types alone."""
    nodes = ast.walk(ast.parse((root / path).read_text("utf-8")))
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [name for statement in statements for name in imported_names(statement, path)]
    return {
        module
        for name in names
        for module in (name, name.rpartition(".")[0])  # a module, or a name in one
        if module in modules
    }


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        module = ahead.pop()
        if module not in found:
            found.add(module)
            ahead.extend(graph[module])
    return found


@pytest.mark.parametrize("root", source_roots(), ids=lambda root: str(root.relative_to(ROOT)))
def test_files_do_not_import_each_other_in_circles(root: Path) -> None:
    modules = module_files(root)
    graph = {module: imported_files(root, path, modules) for module, path in modules.items()}
    circles = {module: reachable(graph, module) for module in graph}
    assert not {
        module: sorted(other for other in ahead if module in circles[other])
        for module, ahead in circles.items()
        if module in ahead
    }


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string literals of `tree` that are not docstrings."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documentation:
            yield node


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(CORE)))
def test_no_device_or_plugin_is_named_in_the_python_of_the_core(path: Path) -> None:
    literals = strings(ast.parse(path.read_text("utf-8")))
    assert not [
        f"line {node.lineno}: {node.value}" for node in literals if NAMED.search(node.value)
    ]


def test_no_device_or_plugin_is_named_in_the_compiled_core() -> None:
    literal = re.compile(r"""(["'])(.*?)\1""")
    compiled = [path for path in CORE.rglob("*") if path.suffix in {".pyx", ".pxi", ".h"}]
    assert not [
        f"{path.name}: {found.group()}"
        for path in compiled
        for found in literal.finditer(path.read_text("utf-8"))
        if NAMED.search(found.group(2))
    ]


def modules_after(statement: str) -> set[str]:
    command = f"{statement}\nimport sys; print(*sys.modules)"
    outcome = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    return set(outcome.stdout.split())


def test_importing_the_core_loads_few_modules_and_none_that_is_heavy() -> None:
    loaded = modules_after("import tangrad") - modules_after("pass")
    assert not {name for name in loaded if name in HEAVY or name.split(".")[0] in HEAVY}
    assert len(loaded) <= MODULES_OF_AN_IMPORT


def test_importing_the_core_imports_no_plugin() -> None:
    loaded = modules_after("import tangrad")
    assert not [name for name in loaded if name.startswith("tangrad_")]


# What the first op on the CPU may load of packages that give it dtypes, ops or kernels; of all
# others, the module that their entry point in `tangrad.plugins` names.
KERNELS = {
    *("tangrad_cpu", "tangrad_cpu.driver", "tangrad_cpu._kernels"),
    *("tangrad_quantization._kernels", "tangrad_quantization.ops"),
}
NOT_FOR_AN_OP = {
    *("numpy", "stevedore", "importlib.metadata", "email", "logging", "json", "argparse", "ctypes"),
    *("tangrad.nn", "tangrad.autograd", "tangrad.utils", "tangrad.func", "tangrad.serialization"),
}


def test_the_first_op_loads_of_plugins_no_more_than_their_hooks() -> None:
    loaded = modules_after("import tangrad; x = tangrad.ones(4, device='cpu'); x + x")
    loaded -= modules_after("pass")
    hooks = {entry.module for entry in entry_points(group="tangrad.plugins")}
    hooks |= {name.rpartition(".")[0] for name in hooks}
    of_plugins = {name for name in loaded if name.startswith("tangrad_")}
    assert of_plugins <= hooks | KERNELS


@pytest.mark.skipif(not importlib.util.find_spec("tangrad_cpu"), reason="the reference is on NumPy")
def test_the_first_op_loads_nothing_that_it_does_not_need() -> None:
    loaded = modules_after("import tangrad; x = tangrad.ones(4, device='cpu'); x + x")
    loaded -= modules_after("pass")
    assert not NOT_FOR_AN_OP & loaded


def test_the_core_is_few_lines_of_source() -> None:
    suffixes = {".py", ".pyx", ".pxi", ".pxd", ".h", ".c"}
    sources = (path for path in CORE.rglob("*") if path.suffix in suffixes)
    written = [
        path
        for path in sources
        if path.name != "_index.py"
        and not (path.suffix == ".c" and path.with_suffix(".pyx").exists())
    ]
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in written)
    assert 0 < lines <= LARGEST_CORE


def test_the_installed_core_is_small() -> None:
    files = [file.locate() for file in distribution("tangrad-core").files or ()]
    modules = [file for file in files if Path(str(file)).suffix != ".pyc"]
    if not any(Path(str(file)).name == "_C.pyi" for file in modules):
        pytest.skip("the core runs from its sources here; its size is that of an installed wheel")
    assert sum(Path(str(file)).stat().st_size for file in modules) <= LARGEST_INSTALL


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in CORE.rglob("*.py")}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_can_be_read_in_one_sitting_and_is_finished(path: Path) -> None:
    text = path.read_text("utf-8")
    longer = str(path.relative_to(ROOT)) in LONGER
    assert len(text.splitlines()) <= (LONGEST_OF_THEM if longer else LONGEST_FILE)
    unfinished = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    assert not unfinished.search(text)


def test_only_files_that_are_long_are_named_as_such() -> None:
    short = {
        name
        for name in LONGER
        if len((ROOT / name).read_text("utf-8").splitlines()) <= LONGEST_FILE
    }
    assert not short
