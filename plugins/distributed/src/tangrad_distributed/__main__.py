"""`python -m tangrad.distributed inspect FOLDER`: what each rank did last."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tangrad_distributed.watching.recorder import PATIENCE, ask, table


def main() -> int:
    """Show the flight recorders that ranks wrote; return 1 if there is none."""
    parser = argparse.ArgumentParser(prog="python -m tangrad.distributed")
    commands = parser.add_subparsers(dest="command", required=True)
    inspect = commands.add_parser("inspect", help="show what each rank did last")
    inspect.add_argument("folder", help="what TANGRAD_DISTRIBUTED_DUMP names")
    inspect.add_argument("--ask", action="store_true", help="have running ranks write theirs now")
    options = parser.parse_args()
    folder = Path(options.folder)
    if options.ask:
        ask(options.folder)
        time.sleep(PATIENCE)
    dumps = []
    for path in sorted(folder.glob("collectives-*.json")):
        try:
            dumps.append(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError) as error:
            print(f"{path.name} cannot be read: {error}", file=sys.stderr)
    if not dumps:
        print(f"no rank wrote a recorder into {folder}", file=sys.stderr)
        return 1
    for group in sorted({dump["group"] for dump in dumps}):
        print(f"group {group or 'world'}")
        print(table([dump for dump in dumps if dump["group"] == group]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
