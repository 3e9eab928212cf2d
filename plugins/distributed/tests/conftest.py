"""Run programs in ranks that the launcher starts."""

import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def launch(tmp_path):
    """Return a function that runs a program's text in several ranks and gives what came of it."""

    def run(source, *arguments, ranks=2, flags=(), timeout=120, environment=None):
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(source))
        command = [sys.executable, "-m", "tangrad.distributed.run", f"--nproc-per-node={ranks}"]
        command += [*flags, str(program), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )

    return run
