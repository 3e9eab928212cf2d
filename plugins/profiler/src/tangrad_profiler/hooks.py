"""What this package adds to `python -m tangrad`: `profile` and `profile-diff`."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tangrad.plugin import hookimpl

if TYPE_CHECKING:
    import argparse

MOST_ADVICE = 3  # in the terminal


@hookimpl
def tangrad_add_cli(commands: Any) -> None:
    """Add the two commands."""
    from argparse import REMAINDER

    profile = commands.add_parser(
        "profile", help="run a program and show where its time and memory go"
    )
    profile.add_argument(
        "-o",
        "--out",
        default="profile.html",
        help="the page (.html), a record (.tgprof) or a trace (.json, .json.gz)",
    )
    profile.add_argument(
        "--live",
        action="store_true",
        help="show in the terminal what the program does while it runs (nicer with rich)",
    )
    profile.add_argument("program", help="a file of Python")
    profile.add_argument("arguments", nargs=REMAINDER, help="its arguments")
    profile.set_defaults(run=run_profile)
    diff = commands.add_parser("profile-diff", help="compare two records")
    diff.add_argument("before")
    diff.add_argument("after")
    diff.add_argument("--by", choices=("op", "module", "line"), default="op")
    diff.add_argument(
        "--total",
        action="store_true",
        help="compare the time of all calls, for runs that do the same by other calls",
    )
    diff.add_argument("--limit", type=int, default=30, help="how many rows")
    diff.add_argument(
        "--threshold",
        type=float,
        default=None,
        metavar="RATIO",
        help="fail with status 1 if anything is slower than that for sure",
    )
    diff.set_defaults(run=run_diff)


def run_profile(options: argparse.Namespace) -> int:
    """Run a program as its own main module, and write what was recorded."""
    from tangrad_profiler import programs
    from tangrad_profiler.profiling import profile

    reason = _unreadable(options.program) or _unwritable(options.out)
    if reason:  # told before the program has run, perhaps for hours
        print(f"python -m tangrad profile: {reason}", file=sys.stderr)
        return 2
    written, process = True, os.getpid()
    prof = profile(
        record_shapes=True, profile_memory=True, with_stack=True, with_modules=True, with_flops=True
    )
    try:
        with prof, _live(prof) if options.live else nullcontext():
            programs.run(options.program, options.arguments)
    finally:
        if prof._traces and os.getpid() == process:  # not in a child that it forked
            print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
            print(f"Outside of all of these: {prof.trace.outside / 1e6:.3f}ms "
                  f"of {prof.trace.length / 1e6:.3f}ms")  # fmt: skip
            _print_advice(prof.trace)
            written = _wrote(prof, options.out)
    return 0 if written else 1


def _print_advice(trace: Any) -> None:
    """Print the best advice that the page has."""
    from textwrap import fill

    from tangrad_profiler.page import advice_of

    told = advice_of(trace)
    if told:
        print(f"\nWhat stands out, the best {min(len(told), MOST_ADVICE)} of {len(told)}:")
    for advice in told[:MOST_ADVICE]:
        print(fill(advice.text, 96, initial_indent="- ", subsequent_indent="  "))


def _unreadable(program: str) -> str:
    """Return why a program cannot be run, or "": it is a file, or a folder with __main__.py."""
    readable = os.access(program, os.R_OK)
    return "" if readable else f"there is no file '{program}' that can be read"


def _unwritable(path: str) -> str:
    """Return why a file cannot be written, or ""; what is there stays."""
    new = not os.path.lexists(path)
    try:
        with open(path, "ab"):
            pass
        if new:
            os.unlink(path)
    except OSError as error:
        return str(error)
    return ""


def _wrote(prof: Any, path: str) -> bool:
    """Write what was recorded and say so; an error is told, and hides none of the program's."""
    try:
        _write(prof, path)
    except OSError as error:
        print(f"the profile could not be written: {error}", file=sys.stderr)
        return False
    print(f"written: {path}")
    return True


def _live(prof: Any) -> Any:
    from tangrad_profiler.live import Live

    return Live(prof._recording)


def _write(prof: Any, path: str) -> None:
    if path.endswith(".tgprof"):
        prof.save(path)
    elif path.endswith((".json", ".json.gz")):
        prof.export_chrome_trace(path)
    else:
        prof.export_html(path, title=" ".join(sys.argv))


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs.

    Returns:
        1 if something is slower than the threshold for sure, 2 if nothing can be compared.
    """
    from tangrad_profiler.comparison import compare, told
    from tangrad_profiler.file import RecordError, read

    try:
        before, after = read(options.before), read(options.after)
    except (RecordError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for name, trace in ((options.before, before), (options.after, after)):
        if trace.partial:
            print(f"{name} is partial: {trace.partial}", file=sys.stderr)
    rows = compare(before, after, options.by, options.total)
    if not rows:
        print(f"no {options.by} is in both records: there is nothing to compare", file=sys.stderr)
        return 2
    print(told(rows, options.limit))
    if options.threshold is None:
        return 0
    slower = [r for r in rows if r.low > options.threshold]
    for r in slower:
        print(f"slower: {r.name}: {r.ratio:.2f} times, at least {r.low:.2f}", file=sys.stderr)
    return 1 if slower else 0
