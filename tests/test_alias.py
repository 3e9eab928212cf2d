"""The package `torch` that `python -m tangrad alias install` writes into an environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

NEEDED = ("tangrad", "numpy", "stevedore", "pluggy")
PROGRAM = """
import importlib.metadata as m, torch, functorch, torch.nn.functional as F
positive = F.relu(torch.tensor([-1.0, 2.0]))
print(torch.__name__, torch.__version__ == m.version("torch"), positive.tolist())
print(functorch.grad(lambda x: x ** 2)(torch.tensor(3.0)).item())
print(sorted(m.requires("torch")))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with tangrad and without PyTorch."""
    root = tmp_path_factory.mktemp("alias")
    venv.create(root / "env", with_pip=False)
    python = root / "env" / "bin" / "python"
    seen = root / "seen"
    seen.mkdir()
    for place in sorted({sysconfig.get_path("purelib"), *filter(None, sys.path)}):
        for found in Path(place).iterdir() if Path(place).is_dir() else ():
            if found.name.startswith(NEEDED) and not (seen / found.name).exists():
                (seen / found.name).symlink_to(found)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", code).stdout.strip())
    (site / "seen.pth").write_text(f"{seen}\n")
    return python


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python without what this process tells its children to import from."""
    command = [str(python), "-W", "ignore", *words]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})


def test_import_torch_is_tangrad_until_the_alias_is_removed(environment: Path) -> None:
    installed = run(environment, "-m", "tangrad", "alias", "install")
    assert installed.returncode == 0, installed.stderr
    told = run(environment, "-c", PROGRAM)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[:2] == ["torch True [0.0, 2.0]", "6.0"]
    assert "jinja2" in lines[2]
    assert "tangrad" in lines[2]
    prefix = environment.parents[1]
    assert "tangrad-constraints.txt" in (prefix / "pip.conf").read_text()
    assert run(environment, "-m", "tangrad", "alias", "remove").returncode == 0
    assert "No module named 'torch'" in run(environment, "-c", "import torch").stderr
    assert not (prefix / "tangrad-constraints.txt").exists()


def test_it_refuses_where_pytorch_itself_is_installed(environment: Path, tmp_path: Path) -> None:
    site = next((environment.parents[1] / "lib").glob("python*/site-packages"))
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("__version__ = '2.13.0'\n")
    refused = run(environment, "-m", "tangrad", "alias", "install")
    assert refused.returncode != 0
    assert "pip uninstall torch" in refused.stderr + refused.stdout
    assert (site / "torch" / "__init__.py").read_text() == "__version__ = '2.13.0'\n"
