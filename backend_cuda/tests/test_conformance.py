"""The conformance kit on device `cuda`: some ops by hash here, all with `TANGRAD_TESTS=full`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

FULL = os.environ.get("TANGRAD_TESTS") == "full"
# One program for each family of kernels, and what the sample by hash adds.
OPS = "add mul exp where_choice sum amax cumsum mm softmax gather sort rand embedding".split()
# The kit compares gradients in float64, where rounding hides no error, and takes more of the cases.
BODIES = {"test_forward": ("float32", "0.01"), "test_vjp": ("float64", "1")}


def passed(text: str) -> int:
    return int(re.findall(r"(\d+) passed", text)[-1])


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("body", BODIES)
def test_ops_are_those_of_pytorch(variables, tmp_path, body):
    pytest.importorskip("torch")
    from tangrad_cuda_emulator import environment

    told = environment(engine="host", sources=tmp_path)
    dtype, fraction = BODIES[body]
    few = ["-k", body if FULL else " or ".join(f"{body} and [{op}-{dtype}" for op in OPS)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs"]
    command += ["tangrad_testing.conformance", "--tangrad-device=cuda", *few]
    done = subprocess.run(
        command,
        env={**os.environ, **variables, **told, "TANGRAD_TEST_FRACTION": fraction},
        capture_output=True,
        text=True,
        timeout=None if FULL else 280,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert passed(done.stdout) >= len(OPS) // 2
