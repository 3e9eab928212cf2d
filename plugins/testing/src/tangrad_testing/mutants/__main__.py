"""Grade the kit: `python -m tangrad_testing.mutants [--automatic MODULE=DEVICE] [--few N]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tangrad_testing.mutants.campaign import Mutant, Verdict, by_hash, run
from tangrad_testing.mutants.planted import planted

LEAST = 0.95  # of the automatic mutants that are faults


def main() -> int:
    """Run a campaign; return 1 if a planted fault survives or too many automatic ones do."""
    parser = argparse.ArgumentParser(prog="python -m tangrad_testing.mutants")
    parser.add_argument(
        "--automatic",
        metavar="MODULE=DEVICE",
        action="append",
        default=[],
        help="mutate the source of this module instead, which drives the device",
    )
    parser.add_argument("--few", type=int, metavar="N", help="take N of them, chosen by hash")
    parser.add_argument("--only", action="append", metavar="NAME", help="take this one")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts")
    options = parser.parse_args()
    mutants = chosen(options)
    verdicts = run(mutants, tell)
    if options.json:
        rows = [vars(verdict) for verdict in verdicts]
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    faulty = [v for v in verdicts if v.killer or not v.equivalent]
    survivors = [v for v in faulty if not v.killer]
    killed, seconds = len(faulty) - len(survivors), sum(v.seconds for v in verdicts)
    print(
        f"{killed} of {len(faulty)} killed in {seconds:.0f} s; "
        f"{len(verdicts) - len(faulty)} more are no faults"
    )
    enough = killed >= LEAST * len(faulty) if options.automatic else not survivors
    return 0 if enough else 1


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that the command line asks for."""
    if options.automatic:
        from tangrad_testing.mutants.automatic import mutants_of

        pairs = [text.partition("=") for text in options.automatic]
        mutants = [m for module, _, device in pairs for m in mutants_of(module, device)]
    else:
        mutants = planted()
    if options.only:
        return [m for m in mutants if m.name in options.only]
    return list(by_hash(mutants, options.few)) if options.few else mutants


def tell(verdict: Verdict) -> None:
    """Print what became of a mutant."""
    killer = verdict.killer or (
        f"no fault: {verdict.equivalent}" if verdict.equivalent else "SURVIVED"
    )
    print(f"{verdict.seconds:5.1f} s  {killer:45} {verdict.mutant}: {verdict.says}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
