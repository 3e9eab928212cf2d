"""The device that compiles C, as a package of its own: the kit, a sample of all ops, training."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "examples" / "compiled_c_device"
# Ops that are tested whole, one each of what is generated and of templates.
OPS = ("gelu", "cumsum", "mm", "index_select", "_softmax")
BESIDE_CPU = """
import warnings
import tangrad
from tangrad.plugin import FallbackWarning

warnings.simplefilter("error", FallbackWarning)


def losses(device):
    tangrad.manual_seed(0)
    nn = tangrad.nn
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 4))
    model.to(device)
    step = tangrad.optim.Adam(model.parameters(), lr=0.01)
    x, labels = tangrad.randn(30, 10).to(device), (tangrad.arange(30) % 4).to(device)
    tangrad.manual_seed(1)
    found = []
    for _ in range(5):
        step.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        step.step()
        found.append(loss.item())
    return found


here, there = losses("cpu"), losses("plain_c")
assert all(abs(a - b) < 1e-5 for a, b in zip(here, there)), (here, there)
print("the same")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Return the environment in which the package is as its installation would leave it."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("installed")
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    ((group, points),) = project["entry-points"].items()
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    path = [str(folder), str(PACKAGE / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "TANGRAD_KERNEL_CACHE": os.environ.get("TANGRAD_KERNEL_CACHE", str(folder / "kernels")),
        "TANGRAD_TEST_FRACTION": "0.01",
    }


def run(environment: dict[str, str], *command: str) -> str:
    outcome = subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def test_a_network_trains_as_on_the_cpu_and_never_on_the_host(environment) -> None:
    assert run(environment, "-c", BESIDE_CPU) == "the same\n"


@pytest.mark.parametrize("level", ["0", "2", "4", "5", "6", "7"])
def test_the_device_passes_the_kit(environment, level: str) -> None:
    pytest.importorskip("tangrad_testing", reason="the kit")
    told = run(environment, "-m", "tangrad", "check", "plain_c", "--level", level, "--op", "mul")
    assert "all passed" in told


@pytest.mark.slow
def test_its_own_tests_pass(environment) -> None:
    pytest.importorskip("tangrad_testing", reason="the kit")
    chosen = [f"--tangrad-op={name}" for name in OPS]
    told = run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c",
               str(PACKAGE / "pyproject.toml"), "-W", "ignore::ImportWarning", *chosen,
               str(PACKAGE / "tests"))  # fmt: skip
    assert " passed" in told
