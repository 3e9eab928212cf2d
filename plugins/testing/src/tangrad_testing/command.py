"""`python -m tangrad check DEVICE`: prove a device, and say which kernel to write next."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

FAILED = 1


def add_check(commands: Any) -> None:
    """Add the command to those of `python -m tangrad`."""
    parser = commands.add_parser(
        "check", help="prove that a device does what the core asks of it (needs no PyTorch)"
    )
    parser.add_argument("device", metavar="DEVICE", help="device type, such as cpu")
    parser.add_argument(
        "--op", action="append", metavar="NAME", help="check this op only, in all dtypes"
    )
    parser.add_argument(
        "--level", action="append", type=int, metavar="N", help="run this level only (0 to 8)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the score card as JSON; - prints it")
    parser.add_argument("--html", metavar="FILE", help="write the score card as a page")
    parser.add_argument(
        "--large", action="store_true", help="also ask what takes some 6 GiB of memory"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and run none")
    parser.set_defaults(run=check)


def check(options: argparse.Namespace) -> int:
    """Run the command; return 0 if all passed, else 1."""
    from tangrad.plugin import all_ops
    from tangrad_testing import scorecard
    from tangrad_testing.levels import LEVELS, Device

    wrong = [str(n) for n in options.level or () if n not in LEVELS]
    if wrong:
        return _refuse(f"no level {', '.join(wrong)}: there are 0 to {max(LEVELS)}")
    unknown = [name for name in options.op or () if name not in all_ops()]
    if unknown:
        return _refuse(f"no op is named {', '.join(unknown)}")
    device = Device(options.device, frozenset(options.op or ()), options.large)
    levels = options.level or ([1, 2, 3, 7] if options.op else list(LEVELS))
    try:
        if options.list:
            return _list(device, levels)
        card = scorecard.make(device, levels, _tell if sys.stderr.isatty() else _quiet)
    except RuntimeError as error:
        return _refuse(one_line(error))
    if options.json == "-":
        print(scorecard.as_json(card))
    else:
        print(scorecard.as_text(card))
    if options.json not in (None, "-"):
        Path(options.json).write_text(scorecard.as_json(card) + "\n", "utf-8")
    if options.html:
        Path(options.html).write_text(scorecard.as_html(card), "utf-8")
    return 0 if card["passed"] else FAILED


def one_line(error: Exception) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split())


def _list(device: Any, levels: list[int]) -> int:
    from tangrad_testing.levels import checks_of

    for one in checks_of(device, levels):
        print(f"{one.level}  {one.name}: {one.says}")
    return 0


def _refuse(message: str) -> int:
    print(f"python -m tangrad check: {message}", file=sys.stderr)
    return FAILED


def _quiet(outcome: Any) -> None:
    """Tell nothing of what goes on: nobody watches."""


def _tell(outcome: Any) -> None:
    text = f"level {outcome.check.level} {outcome.check.name}: {outcome.status}"
    print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)
