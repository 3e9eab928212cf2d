"""Prove every combination of packages, one after the other, in the environment of this Python.

``python -m ci`` runs all steps, and is meant for `tox run -e ci`: whatever of ours is installed is
replaced. ``python -m ci onnx cpu`` runs all tests of one combination, without a limit of time.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Sequence

from build_wheelhouse import ROOT
from ci import durations, running, steps
from ci.environment import (
    StepError,
    build_wheels,
    install,
    install_apart,
    install_requirements,
    uninstall,
    weight,
)
from ci.running import Outcome
from ci.steps import Package, Step


def main(words: Sequence[str]) -> int:
    """Do what the command line says and return the exit status."""
    at = words.index("--") if "--" in words else len(words)
    arguments, extra = parser().parse_args(words[:at]), words[at + 1 :]
    packages = steps.read_packages()
    planned = steps.plan(packages, commit())
    if arguments.list:
        return show(planned)
    if arguments.uninstall:
        uninstall()
        return 0
    if arguments.install:
        wanted = steps.closure(packages, names_of(packages, arguments.combination))
        prepare(packages, wanted)
        install(wanted)
        return 0
    if arguments.combination:
        return run_combination(packages, arguments.combination, extra)
    return run_all(packages, planned, extra, arguments.record, arguments.record_new)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="python -m ci",
        description=(__doc__ or "").partition("\n")[0],
        epilog="What follows -- is for pytest.",
    )
    made.add_argument("combination", nargs="*", help="packages whose tests run whole: onnx cpu")
    made.add_argument("--list", action="store_true", help="show the steps and their minutes")
    made.add_argument("--install", action="store_true", help="install the combination, or all")
    made.add_argument("--uninstall", action="store_true", help="remove every package of ours")
    made.add_argument("--record", action="store_true", help="keep how long the tests took")
    made.add_argument("--record-new", action="store_true", help="the same of new files alone")
    return made


def commit() -> str:
    """Return the commit that is tested, or nothing outside of a repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def show(planned: list[Step]) -> int:
    """Print the steps."""
    print(f"{steps.SETUP:>6.2f}  wheels and requirements")
    for step in planned:
        print(f"{step.minutes:>6.2f}  {step.name:<24} {', '.join(map(steps.relative, step.tests))}")
    print(f"{steps.total_minutes(planned):>6.2f}  of {steps.LIMIT}")
    return 0


def names_of(packages: dict[str, Package], factors: Sequence[str]) -> list[str]:
    """Return the packages that factors name; `full`, or none, means all.

    Args:
        packages: by name.
        factors: `onnx`, `cpu`; or one name of a tox environment, `py313-onnx-cpu`.

    Raises:
        SystemExit: there is no such package.
    """
    known = {package.factor: package.name for package in packages.values()}
    if len(factors) == 1 and factors[0] not in known:
        factors = [part for part in factors[0].split("-") if not re.fullmatch(r"py\d+", part)]
    if not factors or "full" in factors:
        return list(packages)
    if unknown := set(factors) - set(known):
        raise SystemExit(f"no package {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [known[factor] for factor in factors]


def prepare(packages: dict[str, Package], wanted: Sequence[str] = ()) -> float:
    """Build the wheels while the requirements are fetched; return the seconds it took.

    Args:
        packages: all of this repository, by name.
        wanted: those that are needed; all, for every machine, if there are none.

    Raises:
        SystemExit: one of the two failed.
    """
    started = time.monotonic()
    chosen = [packages[name] for name in wanted or packages]
    work = {"requirements": install_requirements(chosen), "wheels": build_wheels(wanted)}
    failed = [name for name, process in work.items() if process.wait()]
    if failed:
        raise SystemExit(f"could not make ready: {', '.join(failed)}")
    try:
        install_apart(chosen)
    except StepError as error:
        raise SystemExit(str(error)) from None
    return time.monotonic() - started


def run_combination(
    packages: dict[str, Package], factors: Sequence[str], extra: Sequence[str]
) -> int:
    """Run all tests of one combination."""
    step = steps.combine(packages, names_of(packages, factors), minutes=steps.UNLIMITED)
    # All of them are proved at every instruction-set level.
    prepare(packages, () if len(step.packages) == len(packages) else step.packages)
    outcome = running.run(step, extra=extra)
    return 0 if running.tell([outcome]) else 1


def run_all(
    packages: dict[str, Package],
    planned: list[Step],
    extra: Sequence[str],
    record: bool,
    record_new: bool,
) -> int:
    """Run every step, whatever becomes of those before it."""
    if record:
        planned = [dataclasses.replace(step, minutes=steps.UNLIMITED) for step in planned]
    setup = Step("wheels and requirements", (), (), (), steps.SETUP, steps.SETUP)
    outcomes = [Outcome(setup, prepare(packages))]
    for number, step in enumerate(planned, 1):
        print(f"\n===== {number} of {len(planned)}: {step.name} =====", flush=True)
        # Looked at before every step: others' programs on this machine come and go.
        slowness = 1.0 if record else durations.slowness()
        print(f"this machine takes {slowness:.2f} times as long as the one of the durations")
        outcomes.append(running.run(step, slowness, extra))
    outcomes.append(weigh(packages))
    reports = [outcome.report for outcome in outcomes if outcome.report]
    if record:
        durations.record(reports)
    elif record_new:
        # Reports count processor seconds, which other programs do not make longer.
        slowness = durations.slowness(time.process_time)
        print("\nnew in durations.json:", *durations.record_new(reports, slowness), sep="\n  ")
    return 0 if running.tell(outcomes) else 1


def weigh(packages: dict[str, Package]) -> Outcome:
    """Refuse a run that leaves too much on disk."""
    outcome = Outcome(Step("disk", (), (), (), 0.0, 0.0))
    if (nbytes := weight(packages.values())) > steps.DISK:
        outcome.problem = f"{nbytes / 1e9:.1f} GB on disk, more than {steps.DISK / 1e9:g}"
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
