"""What this package adds to `python -m tangrad`: `summary`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tangrad.plugin import hookimpl

if TYPE_CHECKING:
    import argparse


@hookimpl
def tangrad_add_cli(commands: Any) -> None:
    """Add the command."""
    summary = commands.add_parser(
        "summary", help="print the layers of a model with shapes, parameters and FLOPs"
    )
    summary.add_argument(
        "model",
        metavar="FILE:MODEL",
        help="a file of Python, and in it a module, or a function that makes one",
    )
    summary.add_argument(
        "--input",
        metavar="SHAPE[:DTYPE]",
        action="append",
        default=[],
        help="an example input such as 1x3x224x224 or 1x16:int64, once for each; by default what "
        "example_inputs of the file holds",
    )
    summary.add_argument("--html", metavar="PATH", help="write a tree that opens in a browser")
    summary.set_defaults(run=run_summary)


def run_summary(options: argparse.Namespace) -> int:
    """Load a model from a file of Python, call it once and print its layers."""
    import tangrad
    from tangrad.plugin import load_model
    from tangrad_display.modules import module_html

    try:
        model, inputs = load_model(options.model, options.input)
        tangrad.summary(model, *inputs)
    except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"python -m tangrad summary: {error}", file=sys.stderr)
        return 1
    if options.html:
        page = module_html(model, *inputs)
        with open(options.html, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><meta charset="utf-8"><title>Summary</title>{page}')
    return 0
