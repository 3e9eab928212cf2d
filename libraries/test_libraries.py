"""Run programs of other people's libraries on tangrad and on PyTorch, and compare what they tell.

`TANGRAD_RNG=mt19937` gives tangrad PyTorch's random numbers, so that weights and data are equal.
Nothing is downloaded: networks are small and their weights random.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Two runs of up to ten minutes each, where other programs want the cores, too.
pytestmark = pytest.mark.timeout(1300)
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*_.py"))
# Relative and absolute. Training amplifies the rounding of sums, whose order differs.
CLOSE = (2e-3, 2e-4)
LOOSER = {
    # Adam divides gradients that are rounding alone (a bias before a norm) by their own size.
    "timm_": (5e-2, 2e-2),
    "torchvision_": (5e-2, 2e-2),
    "segmentation_models_pytorch_": (5e-2, 2e-2),
    "diffusers_": (2e-2, 2e-2),
    # Stochastic optimization of a likelihood that is near its singularity.
    "pyro_": (2e-2, 5e-3),
}


# Another version of a library, installed apart from those beside it: program -> its folder.
APART = {"torchtext_before_0_9": Path(sys.prefix, "apart", "torchtext==0.6.0")}

# A Python that has PyTorch and the libraries, where the one of the tests has no PyTorch that fits.
ORACLE = os.environ.get("TANGRAD_LIBRARIES_ORACLE", sys.executable)


def outcome(program: Path, folder: Path, command: list[str]) -> dict[str, Any]:
    """Run a program in a process of its own and return what it told.

    Args:
        program: its file.
        folder: where it may write.
        command: what the program is handed to.
    """
    folder.mkdir()
    settings = {"OUTCOME_FOLDER": str(folder), "TANGRAD_RNG": "mt19937", "HF_HUB_OFFLINE": "1"}
    if (apart := APART.get(program.stem.rstrip("_"))) is not None:
        behind = filter(None, [os.environ.get("PYTHONPATH")])
        settings["PYTHONPATH"] = os.pathsep.join([str(apart), *behind])
    done = subprocess.run(
        [*command, str(program)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **settings, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [
        line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("OUTCOME")
    ]
    return {told["name"]: told["value"] for told in map(json.loads, lines)}


def close(ours: Any, theirs: Any, relative: float, absolute: float) -> bool:
    """Say whether two values agree: texts to the letter, numbers within a tolerance."""
    if isinstance(theirs, list) and any(isinstance(part, (str, list)) for part in theirs):
        return len(ours) == len(theirs) and all(
            close(a, b, relative, absolute) for a, b in zip(ours, theirs, strict=True)
        )
    if isinstance(theirs, (str, bool)):
        return bool(ours == theirs)
    return bool(ours == pytest.approx(theirs, rel=relative, abs=absolute, nan_ok=True))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem.rstrip("_"))
def test_the_program_tells_the_same_as_on_pytorch(program: Path, tmp_path: Path) -> None:
    library = program.stem.rstrip("_")
    if not (APART[library].exists() if library in APART else importlib.util.find_spec(library)):
        pytest.skip(f"{library} is not installed")
    theirs = outcome(program, tmp_path / "torch", [ORACLE])
    ours = outcome(program, tmp_path / "tangrad", [sys.executable, "-m", "tangrad", "run"])
    assert list(ours) == list(theirs)
    relative, absolute = LOOSER.get(program.stem, CLOSE)
    differing = {
        name: (ours[name], value)
        for name, value in theirs.items()
        if not close(ours[name], value, relative, absolute)
    }
    assert not differing, {name: str(pair)[:600] for name, pair in differing.items()}
