"""What this package adds to `python -m tangrad`: `jit FILE:FUNCTION`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tangrad.plugin import hookimpl

if TYPE_CHECKING:
    import argparse

API = 1


@hookimpl
def tangrad_add_cli(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "jit", help="print what the compiler makes of a function, stage by stage"
    )
    parser.add_argument(
        "target",
        metavar="FILE:FUNCTION",
        help="a file of Python, which defines the function (or module) and `example_inputs`, a "
        "tuple of its arguments or a function that returns one",
    )
    parser.add_argument("--svg", metavar="FILE", help="also draw the graph")
    parser.add_argument(
        "--fast", action="store_true", help="allow rewriting that changes last bits"
    )
    parser.set_defaults(run=run_jit)


def run_jit(options: argparse.Namespace) -> int:
    """Print the stages; return the exit status."""
    import runpy
    import sys

    from tangrad_jit.capture.errors import CaptureError
    from tangrad_jit.stages import stages_of

    path, _, name = options.target.rpartition(":")
    if not path:
        print("python -m tangrad jit FILE:FUNCTION", file=sys.stderr)
        return 2
    try:
        found = runpy.run_path(path)
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return 2
    missing = [wanted for wanted in (name, "example_inputs") if wanted not in found]
    if missing:
        print(f"{path} defines no {' and no '.join(missing)}", file=sys.stderr)
        return 2
    given = found["example_inputs"]
    args = given() if callable(given) else given
    args = args if isinstance(args, tuple) else (args,)
    try:
        for title, text in stages_of(found[name], args, fast=options.fast, svg=options.svg):
            print(f"== {title}\n{text}\n")
    except CaptureError as error:
        print(f"{name} is no graph: {error}", file=sys.stderr)
        return 1
    return 0
