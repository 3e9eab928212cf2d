"""Run programs in ranks that the launcher starts."""

import os
import socket
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


@pytest.fixture
def ranks_alone():
    """Return a function that runs two ranks that no launcher ends, and gives what each printed."""

    def run(source):
        with socket.create_server(("localhost", 0)) as free:
            port = free.getsockname()[1]
        shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
        shared["MASTER_PORT"] = str(port)
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(source)],
                env={**shared, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        return [rank.communicate(timeout=120)[0] for rank in ranks]

    return run
