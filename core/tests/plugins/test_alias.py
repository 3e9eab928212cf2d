"""The alias package: `import torch` and PyTorch's commands are tangrad in an environment."""

import os
import stat
import subprocess
import sys

import pytest

from tangrad.compat import alias


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
