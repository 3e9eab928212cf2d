"""Write docs/pytorch-tests.md from a report: counts by file and cause, no text of others."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pytorch_suite.causes import CAUSES, OMITTED

TITLES = {
    "library": "# PyTorch's own tests on tangrad",
    "script": "# PyTorch's own tests of the script language on tangrad",
}
INTRODUCTION = """
Written by `python tools/pytorch_tests.py --source FOLDER{group} --page`. PyTorch's tests are no
part of this project: the folder `test` of some version is fetched for a run. A test counts if
it passes on the installed PyTorch, on CPU. It passes here if it passes with tangrad standing in
for `torch`, and drawing PyTorch's random numbers. What PyTorch's test helpers take from private
modules is answered by values of `tools/pytorch_suite/answers.py`; the names that count as
private are those of `tools/pytorch_suite/private_names.txt`. A run has a time, in which it takes
tests in the order of the hashes of their names: the counts are those of a sample, unless all of
a file were run.
"""


def share(right: int, total: int) -> str:
    """Return a percentage with one digit after the point, "–" of nothing."""
    return f"{100 * right / total:.1f}" if total else "–"


def page(report: dict[str, Any], group: str = "library") -> str:
    """Return the page for a report of a group of files."""
    rows, total = [], Counter[str]()
    for file, tests in sorted(report["files"].items()):
        counts = Counter(test["cause"] or "pass" for test in tests.values())
        rows.append(_row(f"`{file}`", counts))
        total += counts
    causes = [f"- *{name}*: {what}" for name, what in CAUSES.items()]
    ran, right = total.total(), total["pass"]
    public = ran - sum(total[cause] for cause in OMITTED)
    summary = (
        f"Of {ran:,} tests that ran, {right:,} pass: {share(right, ran)} %. Without *private* and\n"
        f"*apart*, {right:,} of {public:,} pass: {share(right, public)} %.\n"
        f"Commit {report['commit']}, {report['date']}, PyTorch {report['torch']}."
    )
    heads = ["file", "tests", "pass", "%", "% public", *CAUSES]
    table = [
        f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows, _row("all", total),
    ]  # fmt: skip
    option = "" if group == "library" else f" --group {group}"
    introduction = INTRODUCTION.strip().replace("{group}", option)
    blocks = [TITLES[group], introduction, summary, "\n".join(table)]
    blocks += ["## Causes\n" + "\n".join(causes)]
    return "\n\n".join(blocks) + "\n"


def _row(name: str, counts: Counter[str]) -> str:
    ran, right = counts.total(), counts["pass"]
    public = ran - sum(counts[cause] for cause in OMITTED)
    cells = [name, ran, right, share(right, ran), share(right, public)]
    return "| " + " | ".join(str(c) for c in [*cells, *(counts[cause] for cause in CAUSES)]) + " |"
