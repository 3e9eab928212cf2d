"""Run tangrad's command line: `python -m tangrad info`, `python -m tangrad op NAME`."""

from __future__ import annotations

import sys

from tangrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
