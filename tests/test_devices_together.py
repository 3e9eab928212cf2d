"""Two devices of third parties and two of ours in one process: copies between every pair.

The packages of `examples/` are put on the path as their installation would leave them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PACKAGES = ("third_party_device", "device_over_a_pipe")
DEVICES = ("cpu", "loopback", "disk", "pipe")

COPIES = """
import itertools, sys, warnings
import tangrad
from tangrad.plugin import FallbackWarning

# Loopback has no kernel at all, the examples have none of complex numbers; all else is an error.
warnings.filterwarnings("ignore", ".*device 'loopback'|.*complex", FallbackWarning)
devices = sys.argv[1:]
dtypes = [tangrad.float32, tangrad.int64, tangrad.bool, tangrad.complex64]
for a, b in itertools.product(devices, devices):
    for dtype in dtypes:
        x = tangrad.arange(24).reshape(2, 3, 4).to(dtype)
        there = x.to(a)
        assert tangrad.equal(there.to(b).cpu(), x), (a, b, dtype)
        assert tangrad.equal(there.transpose(0, 2).to(b).cpu(), x.transpose(0, 2)), (a, b, dtype)
        target = tangrad.zeros(4, 3, 2, dtype=dtype).to(b)
        target.transpose(0, 2).copy_(there)
        assert tangrad.equal(target.cpu(), x.transpose(0, 2)), (a, b, dtype)
        wide = there.to(b, tangrad.complex128).cpu()
        assert tangrad.equal(wide, x.to(tangrad.complex128)), (a, b, dtype)
print("copied")
"""

GRADIENTS = """
import sys, warnings
import tangrad
from tangrad.plugin import FallbackWarning

warnings.simplefilter("ignore", FallbackWarning)
x = tangrad.arange(6.0).requires_grad_()
y = x
for device in sys.argv[1:]:
    y = y.to(device) * 2
y.sum().backward()
assert x.grad.tolist() == [2.0 ** len(sys.argv[1:])] * 6
print("through all")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    places = []
    for package in PACKAGES:
        project = tomllib.loads((EXAMPLES / package / "pyproject.toml").read_text())["project"]
        folder = tmp_path_factory.mktemp(package)
        info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        ((group, points),) = project["entry-points"].items()
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
        places += [str(folder), str(EXAMPLES / package / "src")]
    return os.pathsep.join(places)


def run(path: str, *command: str) -> str:
    inherited = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, inherited]))}
    outcome = subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def test_tensors_go_from_every_device_to_every_other(path: str) -> None:
    pytest.importorskip("tangrad_testing", reason="brings the device loopback")
    assert run(path, "-c", COPIES, *DEVICES) == "copied\n"


def test_gradients_go_back_through_all_of_them(path: str) -> None:
    pytest.importorskip("tangrad_testing", reason="brings the device loopback")
    assert run(path, "-c", GRADIENTS, *DEVICES) == "through all\n"


@pytest.mark.slow
@pytest.mark.parametrize("device", ["disk", "pipe"])
def test_the_devices_of_third_parties_conform(path: str, device: str) -> None:
    pytest.importorskip("tangrad_testing", reason="the kit")
    assert "all passed" in run(path, "-m", "tangrad", "check", device)


def test_the_own_tests_of_the_device_over_a_pipe_pass(path: str) -> None:
    pytest.importorskip("tangrad_testing", reason="the kit")
    folder = EXAMPLES / "device_over_a_pipe" / "tests"
    told = run(path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
               "--rootdir", str(folder), str(folder / "test_pipe.py"))  # fmt: skip
    assert "5 passed" in told
