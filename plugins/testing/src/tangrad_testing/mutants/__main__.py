"""Grade the kit: `python -m tangrad_testing.mutants [--automatic MODULE=DEVICE] [--few N]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
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
    parser.add_argument(
        "--record",
        metavar="FILE",
        type=Path,
        help="write each verdict there, a line of JSON; those that are there are not tried again",
    )
    options = parser.parse_args()
    mutants = chosen(options)
    verdicts = [*recorded(options.record, mutants)]
    known = {verdict.mutant for verdict in verdicts}
    verdicts += run([m for m in mutants if m.name not in known], partial(tell, options.record))
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
        if unknown := sorted(set(options.only) - {m.name for m in mutants}):
            raise SystemExit(f"mutants: no fault is called {', '.join(unknown)}")
        return [m for m in mutants if m.name in options.only]
    return list(by_hash(mutants, options.few)) if options.few else mutants


def recorded(file: Path | None, mutants: list[Mutant]) -> Iterator[Verdict]:
    """Yield the verdicts on some mutants that a file holds."""
    if file is None or not file.exists():
        return
    names = {mutant.name for mutant in mutants}
    for line in file.read_text("utf-8").splitlines():
        verdict = Verdict(**json.loads(line))
        if verdict.mutant in names:
            yield verdict


def tell(file: Path | None, verdict: Verdict) -> None:
    """Print what became of a mutant, and add it to a file."""
    if file is not None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(vars(verdict)) + "\n")
    killer = verdict.killer or (
        f"no fault: {verdict.equivalent}" if verdict.equivalent else "SURVIVED"
    )
    print(f"{verdict.seconds:5.1f} s  {killer:45} {verdict.mutant}: {verdict.says}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
