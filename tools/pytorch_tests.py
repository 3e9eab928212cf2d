"""Run PyTorch's own tests on PyTorch and on tangrad standing in for it, and compare.

    python tools/pytorch_tests.py --source FOLDER                     # 45 files, a sample of each
    python tools/pytorch_tests.py --source FOLDER --group script      # those of the script language
    python tools/pytorch_tests.py --source FOLDER --file test_nn.py --sample 0 --only lstm
    python tools/pytorch_tests.py --source FOLDER --report --page     # from what ran before

FOLDER holds the `test` folder of some version of PyTorch, fetched and never committed. A test
counts if it passes on the installed PyTorch; tests of another version do no harm. Each file runs
in a process of its own on the device cpu, so that a test which ends or stops its process costs
itself only. Needs PyTorch, tangrad, numpy, scipy, expecttest and hypothesis.

Verdicts lie in `--work` and are used again: PyTorch's as long as it is the same PyTorch, ours
with `--keep`. The report there is compared with the one before it (or with `--last FILE`).

The status is 1 if a test that passed before fails, 2 if no test passed on PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytorch_suite.causes import CAUSES, OMITTED, broken, compare
from pytorch_suite.page import page, share
from pytorch_suite.runner import Runner

ROOT = Path(__file__).resolve().parents[1]
_MAIN = """
test_autograd test_indexing test_nn test_optim test_reductions test_scatter_gather_ops
test_serialization test_shape_ops test_sort_and_select test_subclass test_tensor_creation_ops
test_torch test_type_promotion test_view_ops
functorch/test_eager_transforms functorch/test_vmap
nn/test_convolution nn/test_dropout nn/test_embedding nn/test_init nn/test_lazy_modules
nn/test_load_state_dict nn/test_module_hooks nn/test_multihead_attention nn/test_packed_sequence
nn/test_parametrization nn/test_pooling
"""
_FURTHER = """
autograd/test_complex autograd/test_functional
distributions/test_distributions
optim/test_lrscheduler optim/test_swa_utils
test_binary_ufuncs test_complex test_dataloader test_dlpack test_foreach test_fx test_linalg
test_modules test_ops test_sparse test_spectral_ops test_stateless test_unary_ufuncs
"""
_SCRIPT = """
alias_analysis async aten_pow attr autodiff autodiff_subgraph_slicing await backend_nnapi
backends batch_mm builtins class_type complex complexity convert_activation custom_operators
dataclasses dce decorator dtype_analysis enum exception freezing functional_blocks fuser_common
generator graph_rewrite_passes hash hooks ignorable_args isinstance jit_utils list_dict logging
misc models module_apis module_containers module_interface modules op_decompositions
parametrization peephole profiler python_bindings python_builtins python_ir recursive_script
remove_mutation save_load save_load_for_op_version script_profile scriptmod_ann slice sparse
string_formatting symbolic_shape_analysis tensor_creation_ops tensor_methods torchbind tracer
type_sharing types typing union union_pep604 unsupported_ops upgraders with
"""
# Group -> its page, and its files.
GROUPS: dict[str, tuple[Path, list[str]]] = {
    "library": (ROOT / "docs" / "pytorch-tests.md", [*_MAIN.split(), *_FURTHER.split()]),
    "script": (
        ROOT / "docs" / "pytorch-script-tests.md",
        ["test_jit", *(f"jit/test_{name}" for name in _SCRIPT.split())],
    ),
}


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="the folder of PyTorch's tests")
    parser.add_argument("--group", choices=GROUPS, default="library", help="which files, and page")
    parser.add_argument("--file", nargs="*", help="files below it, instead of the usual ones")
    parser.add_argument(
        "--only", default="", help="a regular expression that the names of tests match"
    )
    parser.add_argument("--lib", choices=("torch", "tangrad", "both"), default="both")
    parser.add_argument(
        "--sample", type=float, default=2400,
        help="seconds for all files together, tests in the order of their hashes; 0: no end",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, default=30, help="seconds for a test")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "pytorch-tests"))
    parser.add_argument("--last", type=Path, help="the report to compare with")
    parser.add_argument("--show", type=int, default=10, help="kinds of failures to print")
    parser.add_argument("--keep", action="store_true", help="go on with our last run's verdicts")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--page", action="store_true", help="write the page of the group in docs/")
    return parser.parse_args()


def run(runner: Runner, options: argparse.Namespace, files: list[str]) -> None:
    """Run the files; each gets an equal part of the time that those before it left."""
    until = time.monotonic() + (options.sample or float("inf"))
    for number, file in enumerate(files):
        part = (until - time.monotonic()) / (len(files) - number)
        begin = time.monotonic()
        if options.lib != "tangrad":
            runner.run(file, "torch", None, part / 2)
        if options.lib != "torch":
            if not options.keep:
                runner.forget(file, "tangrad")
            passed = [
                name
                for name, entry in runner.verdicts(file, "torch").items()
                if entry["verdict"] == "pass" and re.search(options.only, name)
            ]
            runner.run(file, "tangrad", passed, part - (time.monotonic() - begin))


def report(runner: Runner, options: argparse.Namespace, files: list[str]) -> dict[str, Any]:
    """Return what is known of each file: the cause of each test that passes on PyTorch."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"], cwd=ROOT,
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    run_of = {"commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    return {
        "runs": dict.fromkeys(files, run_of),
        "torch": importlib.metadata.version("torch").partition("+")[0],
        "files": {
            file: {
                name: test
                for name, test in compare(
                    runner.verdicts(file, "torch"), runner.verdicts(file, "tangrad")
                ).items()
                if re.search(options.only, name)
            }
            for file in files
        },
    }


def general(text: str) -> str:
    """Return the first line of a message without what differs within a kind of failure."""
    text = re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?", "N", text.strip().partition("\n")[0])
    return re.sub(r"[\[(](N|[, ])*[\])]", "[N]", text)[:150]


def show(made: dict[str, Any], kinds: int) -> int:
    """Print the counts and the largest kinds of failures; return how many tests ran."""
    total: Counter[str] = Counter()
    groups: dict[tuple[str, str, str], list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for file, tests in made["files"].items():
        counts = Counter(test["cause"] or "pass" for test in tests.values())
        total += counts
        rest = ", ".join(f"{cause} {counts[cause]}" for cause in CAUSES if counts[cause])
        print(f"{file:36} {len(tests):6} {share(counts['pass'], len(tests)):>6} %  {rest}")
        for name, test in tests.items():
            if test["cause"]:
                kind = (test["cause"], test["kind"], general(test["text"]))
                groups[kind].append((f"{file}::{name}", test))
    for kind, members in sorted(groups.items(), key=lambda item: -len(item[1]))[:kinds]:
        name, test = members[0]
        print(
            f"{len(members):5} {' '.join(kind)}\n      {name}\n      {test['at']} {test['raised']}"
        )
    ran, right = total.total(), total["pass"]
    public = ran - sum(total[cause] for cause in OMITTED)
    print(
        f"of {ran} tests that pass on PyTorch, {right} pass: {share(right, ran)} %, "
        f"{share(right, public)} % of the {public} that ask for no private name"
    )
    return ran


def main() -> int:
    """Run, report and compare as the command line says."""
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    runner = Runner(options.source.resolve(), options.work.resolve(), options.limit, options.only)
    place_of_page, names = GROUPS[options.group]
    files = options.file or [f"{name}.py" for name in names]
    missing = [file for file in files if not (runner.tests / file).exists()]
    if missing:
        print(f"{runner.tests} does not hold {', '.join(missing)}", file=sys.stderr)
        files = [file for file in files if file not in missing]
    if not options.report:
        run(runner, options, files)
    made = report(runner, options, files)
    place = options.work / ("report.json" if options.group == "library" else "script-report.json")
    last = options.last or place
    before = json.loads(last.read_text("utf-8")) if last.exists() else {"files": {}}
    ran = show(made, options.show)
    worse = broken(before, made)
    print(f"passed before and fail: {len(worse)}", *worse[: options.show], sep="\n  ")
    # What did not run this time keeps its place in the report.
    kept = {key: {**before.get(key, {}), **made[key]} for key in ("files", "runs")}
    kept["files"] = {file: kept["files"][file] for file in kept["runs"]}
    merged = {**made, **kept}
    if options.only:
        merged["files"] = {
            file: {**before["files"].get(file, {}), **tests}
            for file, tests in merged["files"].items()
        }
    spare = place.with_suffix(".new")
    spare.write_text(json.dumps(merged), "utf-8")
    os.replace(spare, place)
    if options.page:
        text = place_of_page.read_text("utf-8") if place_of_page.exists() else ""
        main_files = [f"{name}.py" for name in _MAIN.split()]
        place_of_page.write_text(page(merged, options.group, text, main_files), "utf-8")
    return 2 if not ran else 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
