"""The core by itself adds, differentiates, and runs ops and devices of others.

A step of continuous integration runs this where nothing else of ours is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
OTHERS = [d.name for d in distributions() if d.name.startswith("tangrad-")]
alone = pytest.mark.skipif(OTHERS != ["tangrad-core"], reason="other packages are installed")


def install(example: str, site: Path) -> None:
    """Put an example's modules and its entry points where Python finds them."""
    folder = EXAMPLES / example
    shutil.copytree(folder / "src", site, dirs_exist_ok=True)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(code: str, site: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site or "")}
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_it_adds_and_differentiates() -> None:
    code = (
        "import tangrad\n"
        "x = tangrad.tensor([1.0, 2.0], requires_grad=True)\n"
        "((x + 1).relu() * x).softmax(0).max().backward()\n"
        "print(x.grad.shape, tangrad.func.vmap(tangrad.sin)(x.detach()).shape)"
    )
    assert run(code) == "tangrad.Size([2]) tangrad.Size([2])\n"


def test_it_runs_an_op_of_others_with_its_gradient(tmp_path: Path) -> None:
    install("third_party_op", tmp_path)
    code = (
        "import tangrad\n"
        "x = tangrad.tensor([0.5, 1.0], requires_grad=True)\n"
        "tangrad.snake(x).sum().backward()\n"
        "print(tangrad.allclose(x.grad, 1 + (2 * x).sin()))"
    )
    assert run(code, tmp_path) == "True\n"


def test_it_runs_a_device_of_others(tmp_path: Path) -> None:
    install("third_party_device", tmp_path)
    code = (
        "import warnings, tangrad\n"
        "warnings.simplefilter('ignore')\n"
        "x = tangrad.arange(4.0, device='disk').requires_grad_()\n"
        "(x * x).sum().backward()\n"
        "print(x.grad.device, x.grad.tolist())"
    )
    assert run(code, tmp_path) == "disk:0 [0.0, 2.0, 4.0, 6.0]\n"


MISSING = {
    "nn": "tangrad-nn",
    "optim": "tangrad-optim",
    "distributions": "tangrad-distributions",
    "utils.data": "tangrad-data",
    "utils.checkpoint": "tangrad-nn",
    "utils.flop_counter": "tangrad-nn",
    "library": "tangrad-torch-surface",
    "masked": "tangrad-torch-surface",
    "hub": "tangrad-torch-surface",
    "plugin.compiled": "tangrad-source-kernels",
    "Tag": "tangrad-torch-surface",
    "dropout": "tangrad-torch-surface",
    "_weight_norm": "tangrad-torch-surface",
    "Parameter": "tangrad-nn",
    "conv2d": "tangrad-nn",
    "_fused_adam_": "tangrad-optim",
}


@alone
@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("form", ["import tangrad.{}", "import tangrad; tangrad.{}"])
def test_a_part_that_is_missing_names_its_package(name: str, form: str) -> None:
    code = form.format(name)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 1
    assert f"pip install {MISSING[name]} " in told.stderr


@alone
def test_a_name_that_is_missing_is_not_there() -> None:
    code = "import tangrad; print(hasattr(tangrad, 'dropout'), 'dropout' in dir(tangrad))"
    assert run(code) == "False False\n"


@alone
def test_the_command_tells_of_the_core_alone() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tangrad", "info"], capture_output=True, text=True, check=True
    ).stdout
    assert "tangrad-core" in told
    assert "FAILED" not in told
