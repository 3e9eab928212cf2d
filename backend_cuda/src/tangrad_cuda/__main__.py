"""Run a command of the package: ``python -m tangrad_cuda install``."""

from __future__ import annotations

import sys

from tangrad_cuda.install import main

COMMANDS = {"install": main}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python -m tangrad_cuda {{{','.join(COMMANDS)}}} ...")
    COMMANDS[sys.argv[1]](sys.argv[2:])
