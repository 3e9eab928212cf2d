"""The file for other processors, under emulators: what is missing here is skipped by name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compiling import STRICT, exported

import tangrad
from tangrad import nn

pytestmark = pytest.mark.slow

# {processor: compiler, its flags, emulator}
LINUX = {
    "aarch64": ("aarch64-linux-gnu-gcc", ("-static",), "qemu-aarch64"),
    "riscv64": ("riscv64-linux-gnu-gcc", ("-static",), "qemu-riscv64"),
}
CORTEX = ("arm-none-eabi-gcc", "qemu-system-arm")
MACHINES = {"cortex-m3": "lm3s6965evb", "cortex-m4": "mps2-an386"}

BOARD = Path(__file__).resolve().parents[3] / "examples" / "cortex_m3"


def needs(*tools: str) -> None:
    """Skip where a tool is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


def digits_network() -> Any:
    tangrad.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
        nn.Softmax(1),
    ).eval()


def told(command: list[str]) -> str:
    """Return the last line that a command prints."""
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    last = said.stdout.strip().split("\n")[-1]
    assert last.startswith("max error "), said.stdout[-500:] + said.stderr[-500:]
    return last


@pytest.mark.parametrize("name", LINUX)
def test_a_network_runs_on_another_processor(name: str, tmp_path: Path) -> None:
    compiler, flags, emulator = LINUX[name]
    needs(compiler, emulator)
    source = exported(digits_network(), (tangrad.randn(1, 1, 8, 8),), tmp_path)
    target = str(tmp_path / "digits")
    command = [compiler, *STRICT, "-O2", "-DTANGRAD_SELF_TEST", *flags, str(source)]
    subprocess.run([*command, "-o", target, "-lm"], check=True)
    assert float(told([emulator, target]).split()[-1]) <= 1e-5


@pytest.mark.parametrize("processor", MACHINES)
def test_a_network_of_digits_runs_on_a_board(processor: str, tmp_path: Path) -> None:
    needs(*CORTEX)
    source = exported(digits_network(), (tangrad.randn(1, 1, 8, 8),), tmp_path)
    (found,) = re.findall(r"MODEL_ARENA_BYTES (\d+)", (tmp_path / "model.h").read_text())
    assert int(found) <= 32 << 10
    target = tmp_path / "digits.elf"
    command = ["arm-none-eabi-gcc", *STRICT, f"-mcpu={processor}", "-mthumb", "-Os"]
    command += ["-DTANGRAD_SELF_TEST", "-ffunction-sections", "-Wl,--gc-sections"]
    command += ["--specs=rdimon.specs", f"-T{BOARD / 'layout.ld'}"]
    command += [str(BOARD / "startup.c"), str(source)]
    said = subprocess.run(
        [*command, "-o", str(target), "-lm"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr[-2000:]
    emulator = ["qemu-system-arm", "-M", MACHINES[processor], "-nographic", "-semihosting"]
    assert float(told([*emulator, "-kernel", str(target)]).split()[-1]) <= 1e-5
