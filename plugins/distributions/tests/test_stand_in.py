"""Programs that say `import torch` find the distributions under PyTorch's names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_private_functions_that_libraries_import_are_there(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from torch.distributions.utils import _standard_normal, _sum_rightmost\n"
        "import torch.distributions, tangrad.distributions\n"
        "print(torch.distributions is tangrad.distributions)\n"
    )
    told = subprocess.run(
        [sys.executable, "-m", "tangrad", "run", str(program)], capture_output=True, text=True
    )
    assert (told.stdout, told.stderr) == ("True\n", "")
