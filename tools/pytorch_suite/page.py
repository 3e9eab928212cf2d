"""Write docs/pytorch-tests.md from a report: counts by file and cause, no text of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pytorch_suite.causes import CAUSES, OMITTED

TITLES = {
    "library": "# PyTorch's own tests on tangrad",
    "script": "# PyTorch's own tests of the script language on tangrad",
}
HEADS = ("file", "tests", "pass", "%", "% public", *CAUSES, "commit", "date")
INTRODUCTION = """
Written by `python tools/pytorch_tests.py --source FOLDER{group} --page`. PyTorch's tests are no
part of this project: the folder `test` of some version is fetched for a run. A test counts if
it passes on the installed PyTorch, on CPU. It passes here if it passes with tangrad standing in
for `torch`, and drawing PyTorch's random numbers. What PyTorch's test helpers take from private
modules is answered by values of `tools/pytorch_suite/answers.py`; the names that count as
private are those of `tools/pytorch_suite/private_names.txt`. A run has a time, in which it takes
tests in the order of the hashes of their names: the counts are those of a sample, unless all of
a file were run. A row stays until its file runs again; it tells the commit and the date of its
run.
"""


def share(right: int, total: int) -> str:
    """Return a percentage with one digit after the point, "–" of nothing."""
    return f"{100 * right / total:.1f}" if total else "–"


def page(
    report: dict[str, Any], group: str = "library", before: str = "", main: Sequence[str] = ()
) -> str:
    """Return the page for a report of a group of files.

    Args:
        report: what ran: its files, and commit and date of each.
        group: of which group of files.
        before: the page as it is; rows of files that are not in the report stay.
        main: files that have a row for all of them together.
    """
    found = rows_of(before)
    for file, tests in report["files"].items():
        if not tests:  # the report was asked for a file that has not run
            continue
        run = report["runs"][file]
        counts = Counter(test["cause"] or "pass" for test in tests.values())
        found[f"`{file}`"] = (counts, run["commit"], run["date"])
    total = sum((counts for counts, *_ in found.values()), Counter[str]())
    rows = [_row(file, *found[file]) for file in sorted(found)]
    together = [found[name] for name in (f"`{file}`" for file in main) if name in found]
    if together:
        counts = sum((counts for counts, *_ in together), Counter[str]())
        rows.append(_row(f"{len(together)} main files", counts, "", ""))
    causes = [f"- *{name}*: {what}" for name, what in CAUSES.items()]
    ran, right = total.total(), total["pass"]
    public = ran - sum(total[cause] for cause in OMITTED)
    summary = (
        f"Of {ran:,} tests that ran, {right:,} pass: {share(right, ran)} %. Without *private* and\n"
        f"*apart*, {right:,} of {public:,} pass: {share(right, public)} %.\n"
        f"PyTorch {report['torch']}."
    )
    table = [
        f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *rows, _row("all", total, "", ""),
    ]  # fmt: skip
    option = "" if group == "library" else f" --group {group}"
    introduction = INTRODUCTION.strip().replace("{group}", option)
    blocks = [TITLES[group], introduction, summary, "\n".join(table)]
    blocks += ["## Causes\n" + "\n".join(causes)]
    return "\n\n".join(blocks) + "\n"


def rows_of(page: str) -> dict[str, tuple[Counter[str], str, str]]:
    """Return the counts, the commit and the date of each file of a page."""
    found = {}
    for line in page.splitlines():
        cells = dict(zip(HEADS, (c.strip() for c in line.strip("| ").split("|")), strict=False))
        if cells["file"].startswith("`") and len(cells) == len(HEADS):
            counts = Counter({name: int(cells[name]) for name in ("pass", *CAUSES)})
            found[cells["file"]] = (counts, cells["commit"], cells["date"])
    return found


def _row(name: str, counts: Counter[str], commit: str, date: str) -> str:
    ran, right = counts.total(), counts["pass"]
    public = ran - sum(counts[cause] for cause in OMITTED)
    cells = [name, ran, right, share(right, ran), share(right, public)]
    cells += [*(counts[cause] for cause in CAUSES), commit, date]
    return "| " + " | ".join(map(str, cells)) + " |"
