"""Export a network of digits as C, run it, and go on training it in C as eager does.

pip install "tangrad[cpu,export]"
python examples/digits_in_c.py --out digits_c

With `--board` it also runs on a Cortex-M3, emulated by qemu (Debian's gcc-arm-none-eabi,
libnewlib-arm-none-eabi and qemu-system-arm).
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tangrad
from tangrad import nn

CLASSES, SIDE = 10, 8
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")
BOARD = Path(__file__).parent / "cortex_m3"


def digits(count: int, seed: int) -> tuple[tangrad.Tensor, tangrad.Tensor]:
    """Return pictures of 8 by 8, each class a pattern of its own with noise, and their classes."""
    patterns = tangrad.randn(
        CLASSES, 1, SIDE, SIDE, generator=tangrad.Generator().manual_seed(0)
    ).sign()
    labels = tangrad.arange(count) % CLASSES
    noise = tangrad.randn(count, 1, SIDE, SIDE, generator=tangrad.Generator().manual_seed(seed))
    return patterns[labels] + noise, labels


def network() -> nn.Module:
    """Return a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def module_of(path: Path) -> Any:
    """Return the module that `tangrad.export.library` has written."""
    spec = importlib.util.spec_from_file_location(path.name, path.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_on_board(source: Path) -> str:
    """Compile a file for a Cortex-M3 and return what its self-test prints in the emulator."""
    target = source.with_suffix(".elf")
    subprocess.run(
        [
            *("arm-none-eabi-gcc", *STRICT, "-mcpu=cortex-m3", "-mthumb", "-Os"),
            *("-ffunction-sections", "-Wl,--gc-sections", "--specs=rdimon.specs"),
            *("-DTANGRAD_SELF_TEST", f"-T{BOARD / 'layout.ld'}", str(BOARD / "startup.c")),
            *(str(source), "-o", str(target), "-lm"),
        ],
        check=True,
    )
    emulator = ["qemu-system-arm", "-M", "lm3s6965evb", "-nographic", "-semihosting"]
    command = [*emulator, "-kernel", str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def main(arguments: Sequence[str] | None = None) -> tuple[list[float], list[float]]:
    """Run the example and return the losses of the steps in C and of eager's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("digits_c"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--board", action="store_true", help="run on an emulated Cortex-M3, too")
    options = parser.parse_args(arguments)
    tangrad.manual_seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    model, (x, y) = network(), digits(64, seed=1)
    optimizer = tangrad.optim.Adam(model.parameters(), lr=0.01)
    training: dict[str, Any] = {
        "training": True,
        "loss": nn.functional.cross_entropy,
        "targets": y,
        "optimizer": optimizer,
    }

    source = options.out / "digits.c"
    print(tangrad.export.c(model, (x[:1],), source))
    command = ["cc", *STRICT, "-O2"]
    program = options.out / "digits"
    subprocess.run(
        [*command, "-DTANGRAD_SELF_TEST", str(source), "-o", str(program), "-lm"], check=True
    )
    print(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout)

    if options.board:
        print(f"on a Cortex-M3: {run_on_board(source)}")
    learner = options.out / "learner"
    tangrad.export.library(model, (x,), learner, **training)
    made = module_of(learner)
    in_c = [made.train_step(x.numpy(), y.numpy()) for _ in range(options.steps)]
    eager = []
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        eager.append(loss.item())
    for step, pair in enumerate(zip(in_c, eager, strict=True)):
        print(f"step {step}: loss in C {pair[0]:.6f}, eager {pair[1]:.6f}")
    scores = tangrad.from_numpy(made.run(x.numpy()))
    print(f"{(scores.argmax(1) == y).float().mean().item():.0%} of the pictures right, in C")
    return in_c, eager


if __name__ == "__main__":
    main()
