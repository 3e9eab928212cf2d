"""Run torchvision's own tests on PyTorch and on tangrad standing in for it, and compare.

    python tools/torchvision_tests.py --source FOLDER --oracle PYTHON
    python tools/torchvision_tests.py --source FOLDER --file test_ops.py --count 0 --only nms
    python tools/torchvision_tests.py --source FOLDER --report

FOLDER holds torchvision's folder `test` of some version, fetched and never committed. Both sides
run the installed torchvision: this Python has one beside tangrad, `--oracle` names a Python that
has one that fits its PyTorch. A test counts if it passes there. What the tests import from
`torch.testing._comparison` and below `torch.testing._internal` is loaded from the files of the
PyTorch that this Python finds, as `tools/pytorch_tests.py` does it.

Each file runs in processes of its own, and verdicts lie in `--work`: PyTorch's are used again,
ours with `--keep`. `--count` tests of each file are taken in the order of the hashes of their
names; 0 takes all. The status is 1 if a test that passed before fails, 2 if none ran.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pytorch_suite.causes import CAUSES as ALL_CAUSES
from pytorch_suite.causes import broken, compare
from pytorch_suite.page import share
from pytorch_suite.runner import Runner

CAUSES = {"script": "the script language does not take the program", **ALL_CAUSES}
SCRIPT = ("ScriptError", "UnprintableError")
# Left out: what downloads, what needs FFmpeg or a GPU, and prototypes that are in no wheel.
FILES = """
architecture_ops backbone_utils datasets datasets_samplers datasets_utils extended_models
functional_tensor image internal_utils models models_detection_anchor_utils
models_detection_negative_samples models_detection_utils ops transforms transforms_tensor
transforms_v2 transforms_v2_utils transforms_video tv_tensors utils
"""


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="torchvision's folder of tests")
    parser.add_argument("--oracle", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--file", nargs="*", help="files below it, instead of the usual ones")
    parser.add_argument("--only", default="", help="a pattern that the names of tests match")
    parser.add_argument("--lib", choices=("torch", "tangrad", "both"), default="both")
    parser.add_argument("--count", type=int, default=300, help="tests of a file; 0: all")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test")
    parser.add_argument("--seconds", type=float, default=1800, help="for a file and a library")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir(), "torchvision-tests")
    )
    parser.add_argument("--keep", action="store_true", help="go on with our last run's verdicts")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--show", type=int, default=200, help="failures to print")
    return parser.parse_args()


def run(runner: Runner, options: argparse.Namespace, file: str) -> None:
    """Run one file: on PyTorch what has no verdict, here what passes there."""
    if options.lib != "tangrad":
        runner.run(file, "torch", None, options.seconds)
    if options.lib == "torch":
        return
    if not options.keep:
        runner.forget(file, "tangrad")
    verdicts = runner.verdicts(file, "torch")
    passed = [name for name, entry in verdicts.items() if entry["verdict"] == "pass"]
    if passed:
        runner.run(file, "tangrad", passed, options.seconds)


def table(files: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the counts by file and cause as a table."""
    heads = ["file", "tests", "pass", "%", "% but script", *CAUSES]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    total: Counter[str] = Counter()
    rows = [(f"`{name}`", Counter(t["cause"] or "pass" for t in tests.values()))
            for name, tests in files.items() if tests]  # fmt: skip
    for _, counts in rows:
        total += counts
    for name, counts in [*rows, ("all", total)]:
        ran, right = counts.total(), counts["pass"]
        shares = share(right, ran), share(right, ran - counts["script"])
        cells = [name, ran, right, *shares, *(counts[cause] or "" for cause in CAUSES)]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run, report and compare as the command line says."""
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    runner = Runner(
        options.source.resolve(), options.work.resolve(), options.limit, options.only,
        worker="pytest_worker.py", oracle=options.oracle, limit_count=options.count,
    )  # fmt: skip
    files = options.file or [f"test_{name}.py" for name in FILES.split()]
    made: dict[str, Any] = {"files": {}}
    for file in files:
        if not options.report:
            run(runner, options, file)
        found = compare(runner.verdicts(file, "torch"), runner.verdicts(file, "tangrad"))
        for test in found.values():
            if test["cause"] and test["kind"] in SCRIPT:
                test["cause"] = "script"
        made["files"][file] = found
        right = sum(not test["cause"] for test in found.values())
        print(f"{file:44} {len(found):6} {share(right, len(found)):>6} %", flush=True)
    failures = [
        f"{test['cause']:8} {file}::{name}\n         {test['kind']}: "
        f"{test['text'].strip().partition(chr(10))[0][:150]} ({test['at']}; {test['raised']})"
        for file, tests in made["files"].items()
        for name, test in tests.items()
        if test["cause"]
    ]
    print(*failures[: options.show], sep="\n")
    print(table(made["files"]))
    place = options.work / "report.json"
    before = json.loads(place.read_text("utf-8")) if place.exists() else {"files": {}}
    worse = broken(before, made)
    print(f"passed before and fail: {len(worse)}", *worse[: options.show], sep="\n  ")
    place.write_text(json.dumps({"files": {**before["files"], **made["files"]}}), "utf-8")
    return 2 if not any(made["files"].values()) else 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
