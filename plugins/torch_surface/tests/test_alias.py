"""The alias package: `import torch` and PyTorch's commands are tangrad in an environment."""

import os
import stat
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tangrad.compat import alias

NEEDED = ("tangrad", "numpy", "stevedore", "pluggy")
PROGRAM = """
import importlib.metadata as m, torch, functorch, torch.nn.functional as F
positive = F.relu(torch.tensor([-1.0, 2.0]))
print(torch.__name__, torch.__version__ == m.version("torch"), positive.tolist())
print(functorch.grad(lambda x: x ** 2)(torch.tensor(3.0)).item())
print(sorted(m.requires("torch")))
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Return a folder that is the site of an environment without PyTorch."""
    monkeypatch.setattr(alias, "_site", lambda: tmp_path / "lib")
    monkeypatch.setattr(alias, "_commands", lambda: tmp_path / "bin")
    monkeypatch.setattr(alias, "_real_pytorch", lambda: None)
    monkeypatch.setattr(alias, "_constrain", list)
    monkeypatch.setattr(alias, "_release", list)
    (tmp_path / "lib").mkdir()
    return tmp_path


def run(environment, *command):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(environment / "lib")},
    )


def test_to_import_torch_gives_tangrad(environment):
    alias.install()
    done = run(environment, sys.executable, "-c", "import torch; print(torch.ones(1).__module__)")
    assert done.returncode == 0, done.stderr
    done = run(environment, sys.executable, "-c", "import torch; print(torch.__file__)")
    assert "tangrad" in done.stdout


def test_commands_of_pytorch_are_there(environment):
    alias.install()
    command = environment / "bin" / "torchrun"
    assert command.stat().st_mode & stat.S_IXUSR
    done = run(environment, str(command), "--help")
    assert "--nproc-per-node" in done.stdout or "tangrad[distributed]" in done.stderr


def test_all_of_it_is_taken_away(environment):
    made = alias.install()
    alias.remove()
    assert not [path for path in made if os.path.exists(path)]


def test_constraints_that_pip_has_from_elsewhere_stay_in_force(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    elsewhere = tmp_path / "xdg" / "pip" / "pip.conf"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("[global]\nconstraint = /theirs.txt\n")
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    alias._constrain()
    _, parser = alias._configuration()
    kept = parser.get("install", "constraint").split()
    assert "/theirs.txt" in kept
    assert str(tmp_path / alias.CONSTRAINTS) in kept
    alias._release()
    assert not (tmp_path / "pip.conf").exists()


# ---- in an environment of its own ----


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    site = Path(run_by(python, "-c", code).stdout.strip())
    (site / "seen.pth").write_text(f"{seen}\n")
    return python


def run_by(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python without what this process tells its children to import from."""
    command = [str(python), "-W", "ignore", *words]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})


def test_import_torch_is_tangrad_until_the_alias_is_removed(interpreter: Path) -> None:
    installed = run_by(interpreter, "-m", "tangrad", "alias", "install")
    assert installed.returncode == 0, installed.stderr
    told = run_by(interpreter, "-c", PROGRAM)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[:2] == ["torch True [0.0, 2.0]", "6.0"]
    assert "jinja2" in lines[2]
    assert "tangrad" in lines[2]
    prefix = interpreter.parents[1]
    assert "tangrad-constraints.txt" in (prefix / "pip.conf").read_text()
    assert run_by(interpreter, "-m", "tangrad", "alias", "remove").returncode == 0
    assert "No module named 'torch'" in run_by(interpreter, "-c", "import torch").stderr
    assert not (prefix / "tangrad-constraints.txt").exists()


def test_it_refuses_where_pytorch_itself_is_installed(interpreter: Path, tmp_path: Path) -> None:
    site = next((interpreter.parents[1] / "lib").glob("python*/site-packages"))
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("__version__ = '2.13.0'\n")
    refused = run_by(interpreter, "-m", "tangrad", "alias", "install")
    assert refused.returncode != 0
    assert "pip uninstall torch" in refused.stderr + refused.stdout
    assert (site / "torch" / "__init__.py").read_text() == "__version__ = '2.13.0'\n"
