"""Parts of tangrad may stand in a folder each, as `pip install -e` of several packages leaves them.

Such an installation puts the sources' folder of each package on `sys.path`; here, links to the
installed files do.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

PACKAGES = ("tangrad-core", "tangrad-nn", "tangrad-optim", "tangrad-data")
TELL = "import sys; sys.path[:0] = sys.argv[1:]\n"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a folder of links to the files of each package."""
    found = []
    for name in PACKAGES:
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
        folder = tmp_path_factory.mktemp(name)
        for file in installed.files or ():
            if file.suffix == ".pyc" or ".." in file.parts:
                continue
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(Path(str(file.locate())))
        if not (folder / "tangrad").is_dir():
            pytest.skip(f"{name} is installed from its sources")
        found.append(folder)
    return found


def run(folders: list[Path], program: str) -> list[str]:
    command = [sys.executable, "-c", TELL + program, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_module_is_found_in_the_folder_of_its_package(folders: list[Path]) -> None:
    core, nn, optim, data = folders
    found = run(
        folders,
        "import tangrad, tangrad.nn.functional, tangrad.optim.lr_scheduler, tangrad.utils.data\n"
        "import tangrad.utils.hooks\n"
        "for module in (tangrad, tangrad.utils.hooks, tangrad.nn.functional,\n"
        "               tangrad.optim.lr_scheduler, tangrad.utils.data):\n"
        "    print(module.__file__)",
    )
    assert [
        Path(file).relative_to(folder).parts[0]
        for file, folder in zip(found, (core, core, nn, optim, data), strict=True)
    ] == ["tangrad"] * 5


def test_ops_of_a_package_are_found_where_it_stands(folders: list[Path]) -> None:
    found = run(
        folders,
        "import tangrad\n"
        "x = tangrad.ones(1, 1, 3, 3, requires_grad=True)\n"
        "tangrad.conv2d(x, tangrad.ones(1, 1, 2, 2)).sum().backward()\n"
        "print(x.grad.sum().item())\n"
        "import tangrad.ops.nn; print(tangrad.ops.nn.__file__)",
    )
    assert found[0] == "16.0"
    assert Path(found[1]).is_relative_to(folders[1])


def test_a_module_is_pickled_by_its_public_name(folders: list[Path]) -> None:
    found = run(
        folders,
        "import pickle, tangrad\n"
        "layer = pickle.loads(pickle.dumps(tangrad.nn.Linear(2, 3)))\n"
        "print(type(layer).__module__, tuple(layer.weight.shape) == (3, 2))",
    )
    assert found == ["tangrad.nn.modules.linear", "True"]


def test_what_stands_in_no_folder_is_not_found(folders: list[Path]) -> None:
    program = (
        "import tangrad.utils\n"
        "try:\n    import tangrad.utils.nonsense\nexcept ImportError as error: print(error.name)"
    )
    assert run(folders, program) == ["tangrad.utils.nonsense"]
