"""Time whole training steps of libraries' networks beside PyTorch's, in turns.

    python libraries/step_times.py --python alias/bin/python --oracle torch/bin/python

`--python` is a Python in which `import torch` is tangrad (`python -m tangrad alias install`) and
that has timm and open_clip; the oracle has PyTorch, and sees that environment's libraries behind
its own packages. Both keep a process for each network, which make a step in turns; told are the
medians and the median of the pairs' ratios, with its quartiles. On a machine that does other work
the ratios alone say something, and little.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

# The networks of docs/libraries.md: 4 images of 96x96, 16 pairs of a small image and a text.
NETWORKS = ("resnet18", "efficientnet_b0", "open_clip")


def step_of(name: str, threads: int) -> Callable[[], float]:
    """Return a function that makes a training step and returns its loss."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model: Any
    criterion: Any
    if name == "open_clip":
        parts = import_module("open_clip.model")
        vision = {"layers": 4, "width": 128, "head_width": 32, "patch_size": 8, "image_size": 64}
        text = {"context_length": 16, "vocab_size": 256, "width": 128, "heads": 4, "layers": 4}
        model = parts.CLIP(64, parts.CLIPVisionCfg(**vision), parts.CLIPTextCfg(**text))
        criterion = import_module("open_clip").ClipLoss()
        inputs = (torch.randn(16, 3, 64, 64), torch.randint(1, 256, (16, 16)))
        loss_of = lambda: criterion(*model(*inputs))  # noqa: E731
    else:
        model = import_module("timm").create_model(name, pretrained=False, num_classes=10)
        images, labels = torch.randn(4, 3, 96, 96), torch.arange(4)
        criterion = torch.nn.CrossEntropyLoss()
        loss_of = lambda: criterion(model(images), labels)  # noqa: E731
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def work(name: str, threads: int) -> None:
    """Make a step for each line that comes, and answer with its seconds and its loss."""
    step = step_of(name, threads)
    for _ in range(3):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = step()
        print(time.perf_counter() - begin, loss, flush=True)


class Worker:
    """A process that makes steps of a network, one for each question."""

    def __init__(self, command: list[str], name: str, threads: int) -> None:
        words = [*command, __file__, "--work", name, "--threads", str(threads)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def seconds(self) -> float:
        """Make a step and return how long it took."""
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return float(self._answer().split()[0])

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
        return line


def compared(name: str, sides: list[list[str]], rounds: int, threads: int) -> str:
    """Return a line of the table: medians of both sides, and the ratio."""
    workers = [Worker(side, name, threads) for side in sides]
    pairs = [(workers[0].seconds(), workers[1].seconds()) for _ in range(rounds)]
    for worker in workers:
        worker.close()
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    low, middle, high = statistics.quantiles(ratios, n=4)
    ours, theirs = (1000 * statistics.median(side) for side in zip(*pairs, strict=True))
    return f"| `{name}` | {ours:.1f} | {theirs:.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |"


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--oracle")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", choices=NETWORKS, help=argparse.SUPPRESS)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    chosen = parser.parse_args(argv)
    if chosen.work:
        return work(chosen.work, chosen.threads)
    if chosen.oracle is None or chosen.rounds < 2:
        parser.error("name a Python with PyTorch by --oracle, and at least two --rounds")
    from without_pytorch import BEHIND, site_of

    sides = [[chosen.python], [chosen.oracle, "-c", BEHIND, site_of(chosen.python)]]
    print("| step | here, ms | PyTorch, ms | ratio (quartiles) |\n|---|---|---|---|")
    for name in chosen.networks:
        print(compared(name, sides, chosen.rounds, chosen.threads), flush=True)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
