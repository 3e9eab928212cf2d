"""The benchmarks' own promises: what fails shows in its row, and wrong results are no figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import measure
import numpy
import pytest
from measuring import modules, report, supervise
from measuring.limits import Limits
from measuring.paired import QUICK, Figure, Pace
from workloads import registry
from workloads.workload import Cost, Workload, inputs

import tangrad

torch = pytest.importorskip("torch")

RUN = Path(__file__).resolve().parents[1] / "benchmarks" / "run.py"
FULL = os.environ.get("TANGRAD_TESTS") == "full"
BOTH = {"torch": torch, "tangrad": tangrad}


PATIENT = replace(QUICK, patience=100.0)


def measured(statement: str, pace: Pace = PATIENT, **options: object) -> Figure:
    workload = Workload("row", statement, inputs(a=(4,), b=(4,)), 0.5, **options)
    return measure.measure(workload, "group", BOTH, pace)


def test_a_workload_has_the_time_of_each_framework_and_their_ratio():
    figure = measured("a + b", numpy="a + b")
    assert set(figure.values) == {"torch", "tangrad"}
    low, middle, high = figure.ratio
    assert 0 < low <= middle <= high


def test_an_op_that_we_lack_is_absent_with_its_reason():
    tangrad_only = SimpleNamespace(tensor=tangrad.tensor, __name__="tangrad")
    workload = Workload("row", "fw.relu(a)", inputs(a=(4,)))
    fws = {"torch": torch, "tangrad": tangrad_only}
    figure = measure.measure(workload, "group", fws, QUICK)
    assert "relu" in figure.absent
    assert set(figure.values) == {"torch"}
    assert "absent: " in report.line(figure)


def test_a_wrong_result_has_no_time():
    figure = measured("a + (1.0 if fw.__name__ == 'tangrad' else 0.0)")
    assert figure.absent.startswith("wrong result")
    assert figure.ratio is None


def test_a_run_longer_than_our_patience_is_absent():
    slow = "(fw.__name__ == 'tangrad' and __import__('time').sleep(5), a + b)[1]"
    assert "longer than 1.5 s" in measured(slow, QUICK).absent


def test_a_nan_is_different_from_a_number():
    assert measure.difference(numpy.array([numpy.nan]), numpy.array([1.0])) == float("inf")


def test_rows_behind_one_that_kills_the_worker_are_measured(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, os, sys\n"
        "job = json.load(sys.stdin)\n"
        "if not job['limits']: print(json.dumps({'limits': {'bandwidth': {}, 'flops': {}}}))\n"
        "for group, name in job['rows']:\n"
        "    sys.stdout.flush()\n"
        "    if name == 'deadly': os.abort()\n"
        "    print(json.dumps({'figure': {'workload': name, 'group': group, 'unit': 'us',"
        " 'values': {}, 'ratio': None}}))\n",
        "utf-8",
    )
    monkeypatch.setattr(supervise, "WORKER", worker)
    rows = [("group", name) for name in ("first", "deadly", "last")]
    _, *figures = supervise.measured(rows, 1, QUICK)
    assert [f.workload for f in figures] == ["first", "deadly", "last"]
    assert [bool(f.absent) for f in figures] == [False, True, False]


def test_the_limit_is_the_slower_of_moving_and_computing():
    limits = Limits({1000: 1e9, 10**6: 1e8}, {"float32": 1e9})
    assert limits.microseconds(Cost(500)) == pytest.approx(0.5)
    assert limits.microseconds(Cost(5000)) == pytest.approx(50)
    assert limits.microseconds(Cost(500, 1000)) == pytest.approx(1)
    assert limits.microseconds(Cost()) is None


def test_the_mean_of_ratios_is_geometric_and_what_is_over_is_counted():
    figures = [
        Figure("fast", "g", "us", {"tangrad": 1, "torch": 4}, (0.25,) * 3, goal_ratio=0.5),
        Figure("slow", "g", "us", {"tangrad": 4, "torch": 1}, (4.0,) * 3, goal_ratio=0.5),
        Figure("none", "g", "us", {}, absent="no such op"),
    ]
    told = report.summary(figures, 0.4)
    assert "3 workloads, 1 absent" in told
    assert "torch: 1.000 (goal 0.4)" in told
    assert "over their goal: 1 of 2; above 1.05: 1" in told


def test_names_are_unique_within_a_group():
    assert len(registry.workloads()) == sum(map(len, registry.GROUPS.values()))


@pytest.mark.skipif(not FULL, reason="measures the machine; runs with TANGRAD_TESTS=full")
def test_the_command_writes_what_it_measured(tmp_path):
    data, picture = tmp_path / "figures.json", tmp_path / "figures.png"
    command = [sys.executable, str(RUN), "--quick", "--threads", "1", "--only", "relu, 4 floats"]
    command += ["--json", str(data), "--picture", str(picture)]
    subprocess.run(command, check=True, env=os.environ, stdout=subprocess.DEVNULL)
    (figure,) = json.loads(data.read_text("utf-8"))["figures"]
    assert figure["workload"] == "relu, 4 floats"
    assert picture.stat().st_size > 1000


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")  # PyTorch's KLDivLoss
@pytest.mark.parametrize("name", modules.MODULES)
def test_each_module_of_the_table_takes_its_smallest_input(name):
    case = modules.MODULES[name][0]
    for library in (torch, tangrad):
        module = eval(case.make, {"nn": library.nn})
        module(*modules.arguments(library, case, False))
