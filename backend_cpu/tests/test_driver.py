"""The backend as a plugin: what it replaces, which level it takes, what it costs to open."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tangrad_cpu import _kernels


def run(program, **variables):
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def printed(program, **variables):
    done = run(program, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LEVEL = (
    "import tangrad; tangrad.ones(1)\n"
    "from tangrad_cpu import _kernels\n"
    "print(_kernels.level(), *(n for n, runs in _kernels.levels().items() if runs))"
)


portable = pytest.mark.skipif(
    "baseline" not in _kernels.levels(), reason="the wheel was built for this machine's level only"
)


@portable
def test_the_best_level_that_the_machine_runs_is_taken():
    taken, *runs = printed(LEVEL, TANGRAD_CPU_ISA="baseline").split()
    assert taken == "baseline"
    environment = {k: v for k, v in os.environ.items() if k != "TANGRAD_CPU_ISA"}
    done = subprocess.run(
        [sys.executable, "-c", LEVEL], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == runs[-1]


def test_an_unknown_level_is_an_error_that_lists_the_known():
    done = run("import tangrad; tangrad.ones(1)", TANGRAD_CPU_ISA="sse9")
    assert done.returncode == 1
    known = ", ".join(_kernels.levels())
    assert f"TANGRAD_CPU_ISA='sse9' is no instruction-set level; known are {known}" in done.stderr


def test_a_wheel_for_another_processor_leaves_the_device_to_the_reference_and_says_so():
    program = """
import warnings
import tangrad
from tangrad_cpu import _kernels

_kernels.levels = lambda: {"avx9000": False}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    print((tangrad.ones(2) + 1).tolist())
print(told[0].message)
"""
    values, told = printed(program).splitlines()
    assert values == "[2.0, 2.0]"
    assert "compiled for avx9000 only, which this processor does not run" in told
    assert "build_wheelhouse.py --portable" in told


def test_switched_off_it_leaves_the_device_to_the_reference():
    program = (
        "import sys, tangrad\n"
        "print((tangrad.ones(3) + 1).tolist(), 'tangrad_cpu._kernels' in sys.modules)"
    )
    assert printed(program, TANGRAD_DISABLE_PLUGINS="tangrad-cpu") == "[2.0, 2.0, 2.0] False"
    assert printed(program) == "[2.0, 2.0, 2.0] True"


def test_kernels_for_another_definition_are_left_to_the_reference_with_a_warning():
    program = """
import warnings
import tangrad
from tangrad.ops.definition import registry

exp = registry.find("exp").definition
exp.text = "exp(self) + 0.5"
tangrad.ones(3) + 1
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    print(tangrad.zeros(2).exp().tolist(), tangrad.zeros(2).exp().tolist())
print(len(told), told[0].category.__name__, str(told[0].message)[:55])
"""
    values, told = printed(program).splitlines()
    assert values == "[1.5, 1.5] [1.5, 1.5]"
    assert told == "1 RuntimeWarning tangrad-cpu was built for another definition of 'exp' t"


def test_training_step_needs_no_numpy():
    program = """
import sys
import tangrad
from tangrad import nn

model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
optimizer = tangrad.optim.AdamW(model.parameters())
loss = nn.functional.cross_entropy(model(tangrad.randn(5, 4)), tangrad.tensor([0, 1, 2, 0, 1]))
loss.backward()
optimizer.step()
print("numpy" in sys.modules)
"""
    assert printed(program) == "False"


def test_info_names_level_and_threads():
    from tangrad.devices.registry import get_driver

    told = get_driver("cpu").properties(0)
    assert told["instruction_set"] in ("baseline", "avx2", "avx512")
    assert told["threads"] >= 1


def test_a_kernel_that_is_compiled_is_the_one_in_the_table():
    import tangrad

    x = tangrad.ones(2, 3)
    x @ x.t()
    assert ("cpu", "strided") in tangrad.ops.lookup("mm").kernels()
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        x @ x
