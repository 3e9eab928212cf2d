"""The page holds its data and code, its sums agree with the profile's, and its code runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

import tangrad
from tangrad import nn
from tangrad.profiler import load, profile


@pytest.fixture(scope="module")
def prof():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3)))
    with profile(profile_memory=True, with_stack=True, with_modules=True) as recorded:
        for _ in range(3):
            model(tangrad.ones(2, 4)).sum().backward()
    return recorded


@pytest.fixture
def page(prof, tmp_path):
    prof.export_html(tmp_path / "page.html", title="a </script> b")
    return (tmp_path / "page.html").read_text()


def data_of(page):
    return json.loads(re.search(r"^const data = (.*);$", page, flags=re.M)[1])


def test_page_needs_nothing_else(page):
    assert "http" not in page
    assert page.count("</script>") == 1
    assert data_of(page)["title"] == "a </script> b"


def test_sums_of_all_views_are_the_profile_s(page, prof):
    data = data_of(page)
    own = int(prof.trace.own.sum())
    assert data["modules"][1] == own
    assert data["flames"][1] == own
    assert sum(row[2] for row in data["ops"]) == pytest.approx(own / 1e3, rel=0.01)
    assert len(data["timeline"]["events"]) == len(prof.trace)
    names = {child[0] for child in data["modules"][3]}
    assert {"0", "1"} <= names


def test_lines_are_those_of_the_program(page):
    file, _, _, count, text = data_of(page)["lines"][0]
    assert file.endswith("test_page.py")
    assert "model(" in text
    assert count > 10


def test_peak_is_taken_apart(page, prof):
    memory = data_of(page)["memory"]
    assert memory["peak"] == int(prof.trace.changes["allocated"].max())
    assert 0 < sum(nbytes for _, nbytes in memory["at_peak"]) <= memory["peak"]


def test_advice_has_figures_and_is_silent_about_nothing():
    from tangrad_profiler.page import advice

    with profile() as idle:
        tangrad.ones(2).exp()
        sum(range(2_000_000))
        tangrad.ones(2).exp()
    assert any("no op was running" in line for line in advice(idle.trace))
    with profile() as nothing:
        pass
    assert advice(nothing.trace) == []


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's code")
def test_code_of_the_page_runs_in_every_view(page, tmp_path):
    code = re.search(r"<script>(.*)</script>", page, flags=re.S)[1]
    stub = """
const known = {width: 500, height: 500, value: "", querySelectorAll: () => []};
const made = () => new Proxy(function () {}, {
  get: (target, key) => key in known ? known[key] : key === Symbol.toPrimitive ? () => 1 :
    key === Symbol.iterator ? function* () {} : made(),
  set: () => true, apply: () => made()});
globalThis.document = {
  getElementById: made, createElement: made, querySelectorAll: () => [], title: ""};
globalThis.devicePixelRatio = 1;
"""
    (tmp_path / "run.js").write_text(stub + code + "\nfor (const n of Object.keys(views)) show(n);")
    done = subprocess.run(["node", tmp_path / "run.js"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# --- the command line ----------------------------------------------------------------------

PROGRAM = """
import sys, tangrad
assert sys.argv[1:] == ["--fast", "x"], sys.argv
for _ in range(40):
    (tangrad.ones(50) + 1).exp()
    if len(sys.argv) > 5: raise SystemExit(3)
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tangrad", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path


def test_program_is_profiled_with_its_arguments(program, tmp_path):
    done = run("profile", "--out", tmp_path / "p.html", program, "--fast", "x")
    assert done.returncode == 0, done.stderr
    assert "aten::exp" in done.stdout
    assert data_of((tmp_path / "p.html").read_text())["ops"]


def test_two_records_are_compared_with_a_status_for_ci(program, tmp_path):
    for name in ("a", "b"):
        done = run("profile", "--out", tmp_path / f"{name}.tgprof", program, "--fast", "x")
        assert done.returncode == 0, done.stderr
    done = run("profile-diff", tmp_path / "a.tgprof", tmp_path / "b.tgprof", "--threshold", "50")
    assert done.returncode == 0, done.stderr
    assert "aten::exp" in done.stdout
    assert run("profile-diff", program, program).returncode == 2


def test_difference_is_sure_only_where_it_is(tmp_path):
    from tangrad_profiler.comparison import compare

    def recorded(times):
        with profile() as prof:
            for _ in range(30):
                tangrad.ones(2).exp()
        trace = prof.trace
        trace.__dict__["own"] = trace.own * times
        return trace

    before = recorded(1)
    rows = {row.name: row for row in compare(before, recorded(1000))}
    assert rows["aten::exp"].slower
    assert rows["aten::exp"].low > 10
    same = {row.name: row for row in compare(before, before)}["aten::exp"]
    assert same.low < 1 < same.high
    with pytest.raises(ValueError, match="by must be one of"):
        compare(before, before, "colour")


def test_saved_profile_makes_the_same_page(prof, tmp_path):
    prof.save(tmp_path / "p.tgprof")
    prof.export_html(tmp_path / "a.html")
    load(tmp_path / "p.tgprof").export_html(tmp_path / "b.html")
    a, b = (data_of((tmp_path / f"{name}.html").read_text()) for name in "ab")
    assert a == b
