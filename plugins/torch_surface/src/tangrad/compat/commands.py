"""The commands `run`, `alias` and `check-program` of `python -m tangrad`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tangrad.plugin import hookimpl

if TYPE_CHECKING:
    import argparse

API = 1


@hookimpl
def tangrad_add_cli(commands: Any) -> None:
    """Add the commands."""
    run = commands.add_parser(
        "run",
        help="run a program in which `import torch` is tangrad",
        usage="python -m tangrad run [PROGRAM | -m MODULE | -c TEXT | -] [ARGUMENT ...]",
        description="What follows the program is its own, also what looks like an option.",
    )
    run.add_argument(
        "program",
        metavar="PROGRAM",
        help="as for `python`: a file, -m MODULE, -c TEXT, or - for standard input",
    )
    run.set_defaults(run_words=lambda words: run_words(run, words))
    alias = commands.add_parser("alias", help="have `import torch` give tangrad everywhere here")
    alias.add_argument("action", choices=("install", "remove"))
    alias.set_defaults(run=run_alias)
    check = commands.add_parser(
        "check-program",
        help="tell which names of PyTorch a program uses, and which are here; runs nothing",
        description="Ends with status 1 if a name is missing, 2 if there is no such file.",
    )
    check.add_argument("paths", metavar="FILE_OR_FOLDER", nargs="+", help="also notebooks")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=run_check)


def run_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Run the program that the words name.

    Args:
        parser: of the command, for its help and its errors.
        words: all that follows `run`.
    """
    from tangrad.compat.stand_in import run_module, run_program, run_text

    if words and not words[0].startswith("-"):
        return run_program(words[0], words[1:])
    if len(words) > 1 and words[0] == "-m":
        return run_module(words[1], words[2:])
    if len(words) > 1 and words[0] == "-c":
        return run_text(words[1], "-c", words[2:])
    if words and words[0] == "-":
        return run_text(sys.stdin.buffer.read(), "-", words[1:])
    if words and words[0] in ("-m", "-c"):
        return parser.error(f"{words[0]} wants {'a module' if words[0] == '-m' else 'a text'}")
    parser.parse_args(words)
    return parser.error("give a program, -m and a module, -c and a text, or -")


def run_alias(options: argparse.Namespace) -> int:
    """Install the alias, or remove it."""
    from tangrad.compat import alias

    try:
        changed = alias.install() if options.action == "install" else alias.remove()
    except alias.AliasError as error:
        print(f"python -m tangrad alias: {error}", file=sys.stderr)
        return 1
    for place in changed:
        print(place)
    if not changed:
        print("there is no alias in this environment")
    if options.action == "install":
        print(alias.next_steps())
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Print what programs use, and how much of it is here."""
    from tangrad.compat.checking_programs import as_json, check, rendered

    try:
        report = check(options.paths)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    print(as_json(report) if options.json else rendered(report))
    return 1 if report.of("missing") else 0
