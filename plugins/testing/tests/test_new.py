"""Packages written by `python -m tangrad new`: built as wheels, installed, tested by themselves.

They are installed into a new environment that sees the packages of this one; tangrad itself comes
from the wheels in dist/ where the wheelhouse has been built, as in continuous integration.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import tangrad
import tangrad_testing
from tangrad_testing.new import KINDS, write, write_package

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "first-device.md"
NAMES = {
    "device": "crate",
    "op": "swoosh",
    "dtype": "quarters",
    "layout": "equal_rows",
    "plugin": "counted",
}
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\S+\.py)\n")


class Environment:
    """A new virtual environment."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        self.python = str(self.bin / "python")
        packages = next(folder.glob("lib/python*/site-packages"))
        seen = "".join(f"site.addsitedir({path!r}); " for path in site.getsitepackages())
        (packages / "outer.pth").write_text(f"import site; {seen}\n")
        wheels = self.wheels_of_tangrad()
        if wheels:
            self.pip("install", "--no-deps", "--no-index", *map(str, wheels))

    @staticmethod
    def wheels_of_tangrad() -> list[Path]:
        """Return the newest wheels of the core and of the kit with what it needs, if there are."""
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        patterns = (
            *(f"tangrad_core-*-{tag}-*.whl", f"tangrad_nn-*-{tag}-*.whl"),
            *("tangrad_optim-*.whl", "tangrad_testing-*.whl"),
        )
        found = [sorted(ROOT.glob(f"dist/{pattern}")) for pattern in patterns]
        return [wheels[-1] for wheels in found] if all(found) else []

    def pip(self, *arguments: str) -> None:
        self.run(sys.executable, "-m", "pip", "--python", self.python, "-q", *arguments)

    def install(self, package: Path) -> None:
        """Build a wheel and install it."""
        build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index"]
        self.run(sys.executable, "-m", "pip", "-q", *build, "-w", str(package), str(package))
        (wheel,) = package.glob("*.whl")
        self.pip("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
        wheel.unlink()

    def run(self, *command: str, cwd: Path | None = None) -> str:
        sources = [str(Path(m.__file__).parents[1]) for m in (tangrad, tangrad_testing)]
        inherited = os.environ.get("PYTHONPATH")
        path = [] if self.wheels_of_tangrad() else sources
        environment = {
            **os.environ,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([*path, *filter(None, [inherited])]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=250, env=environment, cwd=cwd
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.mark.parametrize(
    "kind",
    # A device's own tests are the whole kit.
    [pytest.param(k, marks=pytest.mark.slow) if k == "device" else k for k in KINDS],
)
def test_a_new_package_builds_and_passes_its_tests(
    environment: Environment, tmp_path: Path, kind: str
) -> None:
    told = environment.run(
        environment.python, "-m", "tangrad", "new", kind, NAMES[kind], "--into", str(tmp_path)
    )
    (folder,) = tmp_path.iterdir()
    assert told.startswith(f"wrote {folder}; now: pip install")
    environment.install(folder)
    try:
        told = environment.run(
            environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder
        )
        assert " passed" in told
    finally:
        environment.pip("uninstall", "--yes", folder.name)


@pytest.mark.parametrize("kind", list(KINDS))
def test_it_is_tested_over_several_versions_of_the_core(tmp_path: Path, kind: str) -> None:
    folder = write(kind, NAMES[kind], tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert "tangrad-core>=0.2.0,<0.4" in project["dependencies"]
    tox = (folder / "tox.ini").read_text("utf-8")
    assert "oldest: tangrad-core~=0.2.0" in tox
    assert "newest: tangrad-core<0.4" in tox
    workflow = (folder / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    assert "tangrad: [oldest, newest]" in workflow
    assert not [path for path in folder.rglob("*") if "@" in path.name]
    texts = [path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if re.search(r"@(name|module|Class|NAME|entry)@", text)]


def test_a_driver_that_is_written_is_shorter_than_sixty_lines(tmp_path: Path) -> None:
    folder = write("device", "crate", tmp_path)
    text = (folder / "src" / "tangrad_crate" / "__init__.py").read_text("utf-8")
    assert 0 < len(text.splitlines()) <= 60


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("device", "cpu", "device 'cpu' exists already"),
        ("op", "exp", "op 'exp' exists already"),
        ("dtype", "float32", "dtype 'float32' exists already"),
        ("layout", "strided", "layout 'strided' exists already"),
        ("op", "Two words", "is no identifier in lower case"),
        ("op", "lambda", "is no identifier in lower case"),
        ("device", "_box", "such names are private"),
    ],
)
def test_names_that_cannot_be_used_are_refused(
    tmp_path: Path, kind: str, name: str, says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        write(kind, name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    write("op", "swoosh", tmp_path)
    with pytest.raises(FileExistsError, match="nothing was written"):
        write("op", "swoosh", tmp_path)


def test_the_tutorial_leads_to_a_device_that_passes(
    environment: Environment, tmp_path: Path
) -> None:
    text = PAGE.read_text("utf-8")
    package = tmp_path / "tangrad-crate"
    locally = "pip install --no-index --no-deps --no-build-isolation -q -e tangrad-crate"
    told = []
    try:
        for language, block in BLOCK.findall(text):
            if language == "python":
                named = FILE_NAME.match(block)
                assert named
                (package / named.group(1)).write_text(block, "utf-8")
                edit(package / "src" / "tangrad_crate" / "__init__.py", text)
                continue
            for line in block.splitlines():
                if line.startswith("pip install"):
                    environment.pip(*locally.split()[1:-1], str(package))
                else:
                    command = [environment.python, *line.split()[1:]]
                    told.append(environment.run(*command, cwd=tmp_path))
    finally:
        environment.pip("uninstall", "--yes", "tangrad-crate")
    assert [text.count("all passed") for text in told] == [0, 1, 1, 1]
    assert next_kernels(told[1]) - next_kernels(told[3]) == {"sum"}


# What a copy of the repository needs not: the history, what builds leave, and pictures.
LEFT_OUT = (".*", "build", "dist", "__pycache__", "*.so", "*.egg-info", "libraries", "pictures")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository with a new package."""
    copy = tmp_path_factory.mktemp("checkout") / "tangrad"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    write_package("gadget", copy / "plugins")
    return copy


def test_a_new_package_of_the_repository_is_told_of_everywhere(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert extras["gadget"] == ["tangrad-gadget~=0.2.0"]
    assert extras["gadget"][0] in extras["all"]
    assert ".typed/tangrad_gadget" in project["tool"]["mypy"]["files"]
    assert "gadget: run the tests" in (checkout / "tox.ini").read_text("utf-8")
    for page in ("docs/packages.md", "docs/architecture.md"):
        assert "plugins/gadget/README.md" in (checkout / page).read_text("utf-8")


def test_a_new_package_of_the_repository_passes_its_tests(
    environment: Environment, checkout: Path
) -> None:
    folder = checkout / "plugins" / "gadget"
    environment.install(folder)
    test = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    try:
        assert " passed" in environment.run(*test, "plugins/gadget/tests", cwd=checkout)
    finally:
        environment.pip("uninstall", "--yes", "tangrad-gadget")


def test_a_new_package_of_the_repository_passes_the_tests_of_the_structure(
    environment: Environment, checkout: Path
) -> None:
    test = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    of_structure = (
        "tests/test_structure.py::test_files_do_not_import_each_other_in_circles",
        *("tests/test_requirements.py", "tests/test_package_tables.py"),
        *("tests/test_packaging.py", "tests/test_ci.py"),
    )
    names = "gadget or circles or package_tables or every_package or all_means or fit_into"
    assert " passed" in environment.run(*test, *of_structure, "-k", names, cwd=checkout)
    assert "1 passed" in environment.run(
        *test, "tests/test_plugin_imports.py", "-k", "gadget", cwd=checkout
    )


def test_a_new_package_of_the_repository_passes_lint(checkout: Path) -> None:
    pytest.importorskip("ruff", reason="of the environment `lint`")
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "plugins/gadget"]
        done = subprocess.run(ruff, cwd=checkout, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_package_begins_in_a_checkout_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder of packages in a checkout"):
        write_package("gadget", tmp_path / "plugins")
    assert not list(tmp_path.iterdir())


def edit(driver: Path, page: str) -> None:
    """Add the page's lines to the driver, below the line that makes `table`."""
    (added,) = re.findall(r"^        from .*\n\n        table \|= .*$", page, re.MULTILINE)
    made = "        table = kernels.table(self.blocks)\n"
    source = driver.read_text("utf-8")
    assert made in source
    driver.write_text(source.replace(made, f"{made}{added}\n"), "utf-8")


def next_kernels(card: str) -> set[str]:
    """Return the ops that a card says to write kernels of, as far as they are `sum`."""
    section = card.partition("Kernels to write next")[2].partition("\n\n")[0]
    return {line.split()[0] for line in section.splitlines()[2:]} & {"sum"}
