"""Run torchtext's own tests on tangrad standing in for PyTorch, and count.

    python tools/torchtext_tests.py --source FOLDER            # all files
    python tools/torchtext_tests.py --source FOLDER --file torchtext_unittest/test_vocab.py
    python tools/torchtext_tests.py --source FOLDER --page     # writes the table of docs/text.md

FOLDER is a checkout of torchtext's repository; it is fetched and never committed. Its tests run
unmodified, with PyTorch's test helpers answered as for PyTorch's own tests (`pytorch_suite`); as
torchtext's extension does not load with today's PyTorch, there is no other side to compare with,
and all tests count. Needs torchtext 0.18, torchdata 0.9, portalocker, parameterized, expecttest,
nltk, regex, tokenizers, sentencepiece, tangrad[standard], and PyTorch, whose helpers are read.

The status is 1 if fewer than 95 % of the tests of functional, modules, vocab, vectors and
transforms pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pytorch_suite.causes import cause
from pytorch_suite.page import share
from pytorch_suite.runner import Runner

PAGE = Path(__file__).resolve().parents[1] / "docs" / "text.md"
BEGIN, END = (f"<!-- torchtext's tests: {mark} (tools/torchtext_tests.py) -->" for mark in "<>")
FOLDER = "torchtext_unittest"
# What a row of the table counts -> files below the folder; those of the goal come first.
GROUPS: dict[str, tuple[str, ...]] = {
    "functional": ("test_functional", "data/test_functional", "prototype/test_functional"),
    "modules": ("data/test_modules",),
    "vocab": ("test_vocab",),
    "vectors": ("prototype/test_vectors",),
    "transforms": ("test_transforms", "prototype/test_transforms"),
    "with files": ("prototype/test_with_asset", "test_utils", "test_build"),
    "data sets": ("datasets/test_*", "data/test_dataset_utils"),
    "the rest": (
        "data/test_jit",
        "data/test_metrics",
        "data/test_utils",
        "models/test_*",
        "csrc/*",
    ),
}
GOAL, LEAST = ("functional", "modules", "vocab", "vectors", "transforms"), 95.0
# What these tests need that is not about tangrad, by what their errors say.
ELSEWHERE = {
    "network": ("Failed to resolve", "Max retries exceeded", "urlopen error", "name resolution"),
    "library": (
        "No module named 'spacy'",
        "No module named 'sacremoses'",
        "Vocabulary size too high",  # of sentencepiece after 0.2.0
        "module 'torchtext' has no attribute 'vocab'",  # the test imports no submodule
    ),
}
# The tests save modules by pickle and load them by PyTorch's default of before 2.6.
ENVIRONMENT = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


def why(entry: dict[str, Any]) -> str:
    """Return why a test did not pass, "" if it did."""
    text = entry.get("text", "")
    for name, said in ELSEWHERE.items():
        if any(words in text for words in said):
            return name
    return cause(entry)


def files_of(tests: Path, patterns: tuple[str, ...]) -> list[str]:
    """Return the files of a group, below the folder of tests."""
    found = [path for name in patterns for path in sorted((tests / FOLDER).glob(f"{name}.py"))]
    return [str(path.relative_to(tests)) for path in found if path.name != "__init__.py"]


def counted(runner: Runner, files: list[str]) -> Counter[str]:
    """Return how many tests of some files passed (""), and why the others did not."""
    counts: Counter[str] = Counter()
    for file in files:
        for name, entry in runner.verdicts(file, "tangrad").items():
            if not name.startswith("<") or name == "<load>":
                counts[why(entry)] += 1
    return counts


def table(groups: dict[str, Counter[str]]) -> str:
    """Return the table in Markdown: tests by group and cause."""
    causes = sorted({name for counts in groups.values() for name in counts if name})
    heads = ["tests of", "ran", "pass", "%", *causes]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    total = sum(groups.values(), Counter[str]())
    for name, counts in {**groups, "all": total}.items():
        cells = [name, counts.total(), counts[""], share(counts[""], counts.total())]
        rows.append("| " + " | ".join(map(str, [*cells, *(counts[c] for c in causes)])) + " |")
    return "\n".join(rows)


def write(text: str) -> None:
    """Put the table between its marks on the page.

    Raises:
        ValueError: the page has no marks.
    """
    page = PAGE.read_text("utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no marks for the table: {BEGIN} {END}")
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


def main(argv: list[str]) -> int:
    """Run and count as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="torchtext's repository")
    parser.add_argument("--file", nargs="*", help="files below its test/, instead of all")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "torchtext-tests"))
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test")
    parser.add_argument("--report", action="store_true", help="run nothing, count what ran before")
    parser.add_argument("--page", action="store_true", help="write the table of docs/text.md")
    options = parser.parse_args(argv)
    options.work.mkdir(parents=True, exist_ok=True)
    tests = options.source.resolve() / "test"
    runner = Runner(
        tests, options.work.resolve(), options.limit, environment=ENVIRONMENT, fixtures=True
    )
    groups: dict[str, Counter[str]] = {}
    for group, patterns in GROUPS.items():
        files = [
            f for f in files_of(tests, patterns) if options.file in (None, []) or f in options.file
        ]
        for file in files if not options.report else ():
            runner.forget(file, "tangrad")
            runner.run(file, "tangrad", None, float("inf"))
        if files:
            groups[group] = counted(runner, files)
        for file in files:
            for name, entry in runner.verdicts(file, "tangrad").items():
                if entry["verdict"] not in ("pass", "count", "end"):
                    said = entry.get("text", "").strip().partition("\n")[0][:150]
                    print(f"{file}::{name}: {why(entry)}: {said}")
    print(table(groups))
    if options.page:
        write(table(groups))
    goal = sum((groups[name] for name in GOAL if name in groups), Counter[str]())
    reached = 100 * goal[""] / goal.total() if goal else 0.0
    print(f"{', '.join(GOAL)}: {goal['']} of {goal.total()}, {reached:.1f} %")
    return int(reached < LEAST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
