"""`python -m tangrad.distributed.launch`: the launcher by its older name."""

from __future__ import annotations

import sys

from tangrad_distributed.run import command
from tangrad_distributed.run import main as main

if __name__ == "__main__":
    sys.exit(command())
