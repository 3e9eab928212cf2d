"""Run tangrad's command line: `python -m tangrad info`, `python -m tangrad op NAME`."""

from __future__ import annotations

import os
import sys

from tangrad.cli import main


def run() -> int:
    """Run the command line; a reader that stops early, as `| head` does, ends it quietly."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(run())
