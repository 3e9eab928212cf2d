"""What a type checker and an editor see of the package: the stubs that the build writes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tangrad

ROOT = Path(__file__).resolve().parents[1]
CALLS = ROOT / "tests" / "typing"


# What `tangrad` requires beside the core, with the modules whose stubs are written.
USUAL = {
    "data": (),
    "distributions": (),
    "nn": ("tangrad.nn.functional",),
    "optim": (),
    "torch_surface": ("tangrad._utils", "tangrad.functional"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what `tangrad` requires as wheels have it: sources, py.typed, stubs."""
    folder = tmp_path_factory.mktemp("site")
    left_out = shutil.ignore_patterns("*.so", "*.c", "*.pyx", "*.pxi", "__pycache__")
    for package in ("core", *(f"plugins/{name}" for name in USUAL)):
        source = ROOT / package / "src" / "tangrad"
        shutil.copytree(source, folder / "tangrad", ignore=left_out, dirs_exist_ok=True)
    by_hand = str(ROOT / "core" / "stubs" / "_C.pyi")
    in_a_new_process("-m", "tangrad.plugin.stubs", str(folder), "--core", by_hand)
    for package, modules in USUAL.items():
        if modules:
            told = ["--package", package]
            in_a_new_process("-m", "tangrad.plugin.stubs", str(folder), *modules, *told)
    return folder


def in_a_new_process(*arguments: str) -> str:
    """Run Python without plugins, as the wheel's build does: earlier tests leave names behind."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TANGRAD_DISABLE_PLUGINS": "1",
    }
    return subprocess.check_output([sys.executable, "-B", *arguments], env=environment, text=True)


def complaints(site: Path, *files: Path) -> dict[str, list[str]]:
    """Return what mypy says of files, by "file:line"."""
    pytest.importorskip("mypy")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary"),
            *("--hide-error-context", "--allow-untyped-calls", "--follow-imports=silent"),
            f"--cache-dir={site / 'cache'}",
            *map(str, files),
        ],
        env={"MYPYPATH": str(site), "PATH": "", "HOME": str(site)},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not run.stderr, run.stderr
    found: dict[str, list[str]] = {}
    for line in run.stdout.splitlines():
        match = re.match(r"(.*?):(\d+): error: (.*)", line)
        if match:
            found.setdefault(f"{Path(match[1]).name}:{match[2]}", []).append(match[3])
    return found


def test_checker_accepts_typical_calls_and_refuses_wrong_ones(site: Path) -> None:
    found = complaints(site, CALLS / "accepted.py", CALLS / "rejected.py")
    lines = (CALLS / "rejected.py").read_text("utf-8").splitlines()
    wrong = {f"rejected.py:{i}" for i, text in enumerate(lines, 1) if text.endswith("# refused")}
    assert {k: v for k, v in found.items() if k not in wrong} == {}
    assert wrong - set(found) == set()


def test_stubs_hold_together(site: Path) -> None:
    stubs = sorted((site / "tangrad").rglob("*.pyi"))
    found = complaints(site, *stubs)
    # Forms of one name are tried in order, and an early one may take what a later one would.
    ordered = ("overlap", "will never be matched")
    rest = {k: v for k, v in found.items() if not any(word in v[0] for word in ordered)}
    assert rest == {}


PLUGIN_STUBS = sorted(ROOT.glob("plugins/*/src/tangrad/**/*.pyi"))


def test_what_packages_show_below_tangrad_is_seen_with_its_names(
    site: Path, tmp_path: Path
) -> None:
    assert PLUGIN_STUBS
    shutil.copytree(site / "tangrad", tmp_path / "tangrad")
    programs, wrong = [], set()
    for stub in PLUGIN_STUBS:
        source = next(folder for folder in stub.parents if folder.name == "src")
        own = next(path.name for path in source.iterdir() if path.name.startswith("tangrad_"))
        if importlib.util.find_spec(own) is None:
            continue
        shutil.copytree(source, tmp_path, dirs_exist_ok=True)
        shown = ".".join(stub.relative_to(source).with_suffix("").parts)
        public = importlib.import_module(own)
        names = [
            name
            for name in getattr(public, "__all__", vars(public))
            if name[0] != "_"
            and name != "annotations"
            and not inspect.ismodule(getattr(public, name))
        ]
        assert names, own
        lines = [f"import {shown}", *(f"{shown}.{name}" for name in names), f"{shown}.nonsense"]
        programs.append(tmp_path / f"names_of_{stub.stem}.py")
        programs[-1].write_text("\n".join(lines), "utf-8")
        wrong.add(f"{programs[-1].name}:{len(lines)}")
    # One run of the checker: most of its time goes into what all of them import.
    found = complaints(tmp_path, *programs)
    told = {place: text for place, text in found.items() if place.startswith("names_of_")}
    assert set(told) == wrong, found
    assert all("nonsense" in text[0] for text in told.values())


def names_in(stub: Path, within: str | None = None) -> set[str]:
    body = ast.parse(stub.read_text("utf-8")).body
    if within is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == within).body
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


@pytest.mark.parametrize(
    "module", ["", "linalg", "fft", "special", "signal.windows", "nn.functional", "return_types"]
)
def test_every_public_name_is_in_the_stub(site: Path, module: str) -> None:
    place = f"tangrad.{module}" if module else "tangrad"
    file = module.replace(".", "/") if module else "__init__"
    program = f"""
import importlib, inspect

place = importlib.import_module({place!r})
print(*(name for name in dir(place) if not inspect.ismodule(getattr(place, name))))
"""
    names = in_a_new_process("-c", program).split()
    public = {name for name in names if name[0] != "_"} - {"annotations", "Any", "TYPE_CHECKING"}
    assert public
    stubs = [site / "tangrad" / f"{file}.pyi"]
    stubs += [] if module else (site / "tangrad" / "brought").glob("*.pyi")
    assert public - set().union(*map(names_in, stubs)) == set()


def test_every_method_is_in_the_stub(site: Path) -> None:
    program = """
import tangrad
from tangrad.tensor import protocol

protocol.load_methods()
print(*(name for name in dir(tangrad.Tensor) if not name.startswith("_")))
"""
    public = set(in_a_new_process("-c", program).split())
    assert len(public) > 500
    assert public - names_in(site / "tangrad" / "_C.pyi", "Tensor") == set()


def test_compiled_methods_have_the_parameters_that_the_stub_says(site: Path) -> None:
    tree = ast.parse((site / "tangrad" / "_C.pyi").read_text("utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor").body
    for node in body:
        found = tangrad.Tensor.__dict__.get(getattr(node, "name", ""))
        if isinstance(node, ast.FunctionDef) and inspect.ismethoddescriptor(found):
            other = isinstance(found, (tangrad._C.Op, tangrad._C.Overridable))
            if node.name.startswith("__") or other:
                continue
            declared = [p.arg for p in (*node.args.args, *node.args.kwonlyargs)]
            assert list(inspect.signature(found).parameters) == declared, node.name
