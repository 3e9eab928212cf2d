"""What this package adds to `python -m tangrad`: `jit FILE:FUNCTION`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tangrad.plugin import hookimpl

if TYPE_CHECKING:
    import argparse


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
    """Print the stages; return the exit status: 1 if the function is no graph, 2 for bad input."""
    import sys

    from tangrad_jit.capture.errors import CaptureError
    from tangrad_jit.stages import stages_of

    path, _, name = options.target.rpartition(":")
    try:
        function, args = _example(path, name)
        for title, text in stages_of(function, args, fast=options.fast, svg=options.svg):
            print(f"== {title}\n{text}\n")
    except CaptureError as error:
        print(f"{name} is no graph: {error}", file=sys.stderr)
        return 1
    except _Unusable as error:
        print(f"python -m tangrad jit: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        print(f"python -m tangrad jit: {_told(name, error)}", file=sys.stderr)
        return 2
    return 0


class _Unusable(Exception):
    """A file that has not what is asked for; the message is one sentence."""


def _example(path: str, name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the function of a file and its example arguments.

    Raises:
        _Unusable: the file cannot be run, or does not define both.
    """
    import os
    import runpy
    import sys

    if not path or not name:
        raise _Unusable("the target is FILE:FUNCTION, such as model.py:forward")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # where `python FILE` looks first
    try:
        found = runpy.run_path(path)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise _Unusable(f"{error.filename or path}{line}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.filename == os.path.abspath(path):
            raise _Unusable(f"{path}: {error.strerror}") from error
        raise _Unusable(_told(path, error)) from error
    missing = [wanted for wanted in (name, "example_inputs") if wanted not in found]
    if missing:
        raise _Unusable(f"{path} defines no {' and no '.join(missing)}")
    if not callable(found[name]):
        raise _Unusable(f"{name} of {path} is no function or module but {found[name]!r}")
    if isinstance(found[name], type):
        raise _Unusable(f"{name} of {path} is a class; name a function, or a module made of it")
    given = found["example_inputs"]
    try:
        args = given() if callable(given) else given
    except Exception as error:
        raise _Unusable(_told("example_inputs", error)) from error
    return found[name], args if isinstance(args, tuple) else (args,)


def _told(what: str, error: BaseException) -> str:
    """Return what has raised an error, the error, and the innermost line of the user's code."""
    import traceback

    from tangrad_jit.capture.calls import is_library

    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not is_library(frame.f_code):
            line = f" ({frame.f_code.co_filename}:{number})"
    said = " ".join(str(error).split())
    return f"{what} raised {type(error).__name__}{': ' * bool(said)}{said}{line}"
