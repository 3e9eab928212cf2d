"""Script a model with a loop, save it, and run the file in a program that has no PyTorch.

The model reads digits one by one and keeps a state; how many it reads depends on what it has read.
The file is a TorchScript archive: PyTorch's `torch.jit.load` reads it, too.

    python examples/scripted_model.py --out reader.pt
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import tangrad
from tangrad import Tensor, nn

PROGRAM = """
import sys
import tangrad

model = tangrad.jit.load(sys.argv[1])
steps, state = model(tangrad.ones(1, 12, 3), 2.0)
assert "torch" not in sys.modules
print(steps, round(float(state.norm()), 4))
"""


class Reader(nn.Module):
    """Read rows until the state is as long as wanted.

    Args:
        width: elements of a row.
        state: elements of the state.
    """

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, state)
        self.size = state

    def forward(self, rows: Tensor, length: float) -> tuple[int, Tensor]:
        """Return how many rows were read, and the state of shape (batch, state).

        Args:
            rows: of shape (batch, rows, width).
            length: the norm of the state at which reading ends.
        """
        state = tangrad.zeros(rows.size(0), self.size)
        steps = 0
        while steps < rows.size(1) and bool(state.norm() < length):
            state = self.cell(rows[:, steps], state)
            steps += 1
        return steps, state


def main(arguments: list[str] | None = None) -> tuple[str, str]:
    """Return what the model gives here, and what the file gives in another process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="reader.pt", help="the file")
    options = parser.parse_args(arguments)
    tangrad.manual_seed(0)
    model = tangrad.jit.script(Reader(3, 16).eval())
    model.save(options.out)
    steps, state = model(tangrad.ones(1, 12, 3), 2.0)
    here = f"{steps} {round(float(state.norm()), 4)}"
    outcome = subprocess.run(
        [sys.executable, "-c", PROGRAM, options.out], capture_output=True, text=True, check=True
    )
    print(f"read {here}; from the file, without PyTorch: {outcome.stdout.strip()}")
    return here, outcome.stdout.strip()


if __name__ == "__main__":
    main()
