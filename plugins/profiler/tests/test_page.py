"""The page holds its data and code, its sums agree with the profile's, and its code runs."""

from __future__ import annotations

import base64
import copy
import gc
import html
import json
import re
import shutil
import subprocess
import sys
import threading
import zlib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import tangrad
import tangrad_profiler.advice
from tangrad import nn
from tangrad.cli import main
from tangrad.profiler import load, profile


@pytest.fixture(scope="module")
def prof():
    # Memory that other tests left in circles would be given back during the profile, and count.
    gc.collect()
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3)))
    with profile(
        record_shapes=True, profile_memory=True, with_stack=True, with_modules=True
    ) as recorded:
        for _ in range(3):
            model(tangrad.ones(2, 4)).sum().backward()
    return recorded


@pytest.fixture
def page(prof, tmp_path):
    prof.export_html(tmp_path / "page.html", title="a </script> b")
    return (tmp_path / "page.html").read_text()


HERE = Path(__file__).parent


def data_of(page):
    return json.loads(re.search(r"^const data = (.*);$", page, flags=re.M)[1])


def page_without_sources(page):
    return re.sub(r"^const data = .*;$", "", page, flags=re.M)


def texts_of(page):
    return dict(re.findall(r'<script type="text/plain" id="(\w+)">(.*)</script>', page))


def test_page_needs_nothing_else(page):
    assert not re.search(
        r"(src|href)=|fetch\(|import\(|XMLHttp|WebSocket", page_without_sources(page)
    )
    assert page.count("</script>") == 1 + len(texts_of(page))
    assert data_of(page)["title"] == "a </script> b"


def test_sums_of_all_views_are_the_profile_s(page, prof):
    data = data_of(page)
    whole = int(prof.trace.own.sum()) + prof.trace.outside
    assert whole == prof.trace.length
    assert data["modules"][1] == whole
    assert data["flames"][1] == whole
    assert sum(row[2] for row in data["ops"]) == pytest.approx(whole / 1e3, rel=0.01)
    assert "outside of ops" in {row[0] for row in data["ops"]}
    assert data["timeline"]["count"] == len(prof.trace)
    names = {child[0] for child in data["modules"][3]}
    assert {"0 (Linear)", "1 (Sequential)"} <= names


def test_lines_are_those_of_the_program_with_its_source(page):
    data = data_of(page)
    file, line, _, count, text, _ = next(row for row in data["lines"] if "model(" in row[4])
    assert file.endswith("test_page.py")
    assert count > 10
    assert data["sources"][file][line - 1].strip() == text


def test_peak_is_taken_apart_by_kind(page, prof):
    memory = data_of(page)["memory"]
    assert memory["peak"] == int(prof.trace.changes["allocated"].max())
    assert sum(row[1] for row in memory["at_peak"]) == memory["peak"]
    assert {row[2] for row in memory["at_peak"]} <= set(memory["kinds"])
    assert max(map(sum, memory["held"])) == memory["peak"]


def test_roofline_is_against_limits_that_were_measured(page):
    roof = data_of(page)["roofline"]
    assert roof["flops"] > 0
    assert [rate for _, rate in roof["bandwidth"]] == sorted(
        (rate for _, rate in roof["bandwidth"]), reverse=True
    )
    (linear,) = [p for p in roof["points"] if p[0].startswith("linear [2, 4]")]
    _, count, seconds, flops, nbytes, share, lost = linear
    assert count == 3
    assert flops == 2 * 2 * 4 * 8
    assert nbytes == 4 * (2 * 4 + 8 * 4 + 8 + 2 * 8)
    assert share > 0
    assert lost <= seconds


def unpacked(head, text):
    raw = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u4").reshape(-1, head["size"])
    start = head["base"] + np.cumsum(raw[0].astype(np.int64)) * head["unit"]
    return start, raw[1].astype(np.int64) * head["unit"], raw[2], raw[3]


def test_chunks_hold_every_event(page, prof):
    timeline, texts = data_of(page)["timeline"], texts_of(page)
    (head,) = timeline["chunks"]
    start, length, row, name = unpacked(head, texts["chunk0"])
    assert len(start) == len(prof.trace)
    order = np.argsort(prof.trace.events["start"], kind="stable")
    assert np.abs(length - prof.trace.duration[order]).max() <= head["unit"]
    told = [timeline["names"][n] for n in name]
    assert told == [prof.trace.name(int(i)) for i in order]
    assert [timeline["rows"][r][1] for r in row] == prof.trace.depth[order].tolist()
    assert (np.diff(start) >= 0).all()


def large_trace(count):
    """A trace of as many events: ranges of one microsecond, ten in each longer one."""
    from tangrad_profiler import _record
    from tangrad_profiler.trace import Trace

    e = {name: np.zeros(count, np.int64) for name in _record.EVENT_COLUMNS}
    number = np.arange(count)
    outer = number % 11 == 0
    e["kind"][:] = 2
    e["name"] = np.where(outer, 0, 1 + number % 7)
    e["start"] = number * 1000
    e["end"] = e["start"] + np.where(outer, 11_000, 900)
    e["parent"] = np.where(outer, -1, number - number % 11)
    e["signature"][:] = e["stack"][:] = -1
    changes = {name: np.zeros(0, np.int64) for name in _record.CHANGE_COLUMNS}
    return Trace(e, changes, ["step", *"abcdefg"], [], [], {"shapes": False})


def test_levels_of_detail_bound_what_is_drawn_at_once():
    from tangrad_profiler.page import page_data

    data, texts = page_data(large_trace(300_000), "large")
    timeline = data["timeline"]
    assert len(timeline["first"]["start"]) <= 2 * 1001 * len(timeline["rows"])
    assert sum(timeline["first"]["count"]) == timeline["count"] == 300_000
    assert timeline["fine"]["size"] < 100_000
    assert sum(head["size"] for head in timeline["chunks"]) == 300_000
    assert len(texts) == 1 + len(timeline["chunks"])


# --- advice --------------------------------------------------------------------------------------


def paced(prof):
    """The trace of a profile, in which a millisecond passes between any two beginnings or ends."""
    e = prof.trace.events
    times = np.unique(np.concatenate([e["start"], e["end"]]))
    for name in ("start", "end"):
        e[name] = np.searchsorted(times, e[name]) * 1_000_000
    return prof.trace


def pause_before(trace, op, which, after=0):
    """Let a second pass before an op, of those with its name the first, second, ...; or in it."""
    e = trace.events
    begun = np.sort([e["start"][i] for i in range(len(trace)) if trace.name(i) == op])[which]
    begun += after
    for name in ("start", "end"):
        e[name] += (e[name] >= begun) * 1_000_000_000
    return trace


def told_of(trace):
    from tangrad_profiler.page import advice_of

    return [a.text for a in advice_of(trace)]


def test_advice_is_silent_about_nothing_and_tells_idle_time():
    with profile() as idle:
        for _ in range(2):
            tangrad.ones(2).exp()
    trace = pause_before(paced(idle), "aten::ones", 1)
    assert any("no op was running" in line for line in told_of(trace))
    with profile() as nothing:
        pass
    assert told_of(nothing.trace) == []


def test_waiting_for_data_is_told_with_its_share():
    class Samples(tangrad.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return tangrad.ones(2)

    with profile() as prof:
        for batch in tangrad.utils.data.DataLoader(Samples(), batch_size=2):
            batch.exp()
    trace = paced(prof)
    for batch in range(3):
        pause_before(trace, "aten::ones", 2 * batch)
    (line,) = [a for a in told_of(trace) if "waits for data" in a]
    # In this clock the loader's own events, such as its reading of a seed, take a while, too.
    assert re.match(r"(99|100) % of the time \(3", line)
    assert "num_workers=2" in line


def test_chain_of_pointwise_ops_is_told_with_its_line_and_what_fusing_saves():
    x = tangrad.ones(200_000)
    with profile(record_shapes=True, with_stack=True) as prof:
        for _ in range(3):
            (x * 2).exp().tanh().sum()
    (line,) = [a for a in told_of(paced(prof)) if "one fused op" in a]
    assert line.startswith("mul + exp + tanh at test_page.py:")
    assert "on [200000], are 3 passes over memory, 3 times" in line


def test_chain_of_which_any_op_was_interrupted_is_told():
    x = tangrad.ones(200_000)
    with profile(record_shapes=True, with_stack=True) as prof:
        for _ in range(3):
            (x * 2).exp().tanh().sum()
    trace = paced(prof)
    for which, op in enumerate(("aten::mul", "aten::exp", "aten::tanh")):
        pause_before(trace, op, which, after=1)
    (line,) = [a for a in told_of(trace) if "one fused op" in a]
    assert "3 times, 3.0 s in all; as one fused op they would save about 2.0 s (66 %" in line


def test_calls_that_are_all_launch_are_told():
    (line,) = [a for a in told_of(large_trace(1100)) if "of less than" in a]
    assert line.startswith("100 % of the ops' time (1.1 ms) is in 1,100 calls of less than 5 us")


def test_long_calls_are_not_told_to_be_all_launch():
    trace = large_trace(1100)
    trace.events["start"] *= 10
    trace.events["end"] *= 10
    assert not [a for a in told_of(trace) if "of less than" in a]


def test_thread_that_waits_is_told():
    def work():
        tangrad.ones(2)
        tangrad.zeros(2)

    with profile() as prof:
        other = threading.Thread(target=work)
        tangrad.ones(2)
        other.start()
        other.join()
        tangrad.ones(2)
    trace = pause_before(paced(prof), "aten::zeros", 0)
    (line,) = [a for a in told_of(trace) if a.startswith("Thread ")]
    assert "had no op running" in line


def trace_of_ranks(waited):
    """Two collectives of 100 us in a thread; the first thread computes, and waits for each."""
    trace = large_trace(7)
    trace.names[:5] = ["step", "aten::mm", "wait for gradients", "gloo:all_reduce", "wait for x"]
    e, us = trace.events, 1000
    e["kind"][:], e["name"][:] = 5, [0, 3, 2, 4, 3, 2, 4]
    e["thread"][:] = [5, 7, 5, 5, 7, 5, 5]
    e["parent"][:] = [-1, -1, 0, 2, -1, 0, 5]  # a wait within a wait counts once
    first, second = (100 - waited) * us, (300 - waited) * us
    e["start"][:] = [0, 0, first, first, 200 * us, second, second]
    e["end"][:] = [300 * us, *[100 * us] * 3, *[300 * us] * 3]
    return trace


def test_waiting_for_other_ranks_is_told_with_what_is_hidden():
    (line,) = [a for a in told_of(trace_of_ranks(60)) if "other ranks" in a]
    assert line.startswith("40 % of the time (0.1 ms of 0.3 ms) this rank waits for other ranks")
    assert "2 collectives take 0.2 ms, of which 40 % are hidden behind its own work" in line
    assert not [a for a in told_of(trace_of_ranks(10)) if "other ranks" in a]


def test_device_without_work_is_told():
    trace = large_trace(1100)
    k = trace.kernels = {name: np.zeros(2, np.int64) for name in trace.kernels}
    k["event"][:] = -1
    k["start"][:], k["end"][:] = [0, 900_000], [100_000, 1_000_000]
    assert any("had nothing to do 80 % of 1.0 ms" in a for a in told_of(trace))


def test_activations_that_could_be_computed_again_are_told(monkeypatch):
    monkeypatch.setattr(tangrad_profiler.advice, "WORTHWHILE", 1 << 14)
    model = nn.Sequential(
        nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3))),
        nn.Linear(64, 64),
    )
    with profile(profile_memory=True, with_modules=True) as prof:
        model(tangrad.randn(1024, 64)).square().sum().backward()
        tangrad.zeros(2)
    prof.trace.events["end"][-1] += 10**12  # beside which the forward pass is short
    (line,) = [a for a in told_of(prof.trace) if "utils.checkpoint" in a]
    assert "are activations of 0" in line


def test_a_list_of_modules_is_not_told_to_compute_again(monkeypatch):
    monkeypatch.setattr(tangrad_profiler.advice, "WORTHWHILE", 1 << 14)

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).tanh()
            return x

    model = Stack()
    with profile(profile_memory=True, with_modules=True) as prof:
        model(tangrad.randn(1024, 64)).square().sum().backward()
        tangrad.zeros(2)
    prof.trace.events["end"][-1] += 10**12
    told = [a for a in told_of(prof.trace) if "utils.checkpoint" in a]
    assert not any("activations of layers that" in a or " 0 % more time" in a for a in told)


def steps_of(model, count, size, **options):
    with profile(record_shapes=True, with_stack=True, **options) as prof:
        for _ in range(count):
            model(tangrad.ones(size, 4)).sum().backward()
    return prof


def test_numbers_that_are_read_one_by_one_are_told():
    x = tangrad.ones(1)
    with profile() as prof:
        for _ in range(60):
            x.item()
            float(x)
    reads = [r for r in prof.key_averages() if r.key == "aten::item"]
    assert [r.count for r in reads] == [120]
    (line,) = [a for a in told_of(prof.trace) if "is read from a tensor" in a]
    assert line.startswith("A number is read from a tensor 120 times")
    with profile() as prof:
        for _ in range(3):
            x.item()
    assert not [a for a in told_of(prof.trace) if "is read from a tensor" in a]


def test_batches_of_one_are_told():
    model = nn.Linear(4, 2)
    (line,) = [a for a in told_of(steps_of(model, 60, 1).trace) if "batch of one" in a]
    assert line.startswith("60 of 60 calls of layers at test_page.py:")
    assert not [a for a in told_of(steps_of(model, 60, 2).trace) if "batch of one" in a]


def test_an_evaluation_that_records_a_graph_is_told():
    model = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

    def told_after(context):
        with profile(with_stack=True) as prof:
            for _ in range(30):
                model(tangrad.ones(3, 4)).sum().backward()
            with context():
                for _ in range(60):
                    model(tangrad.ones(3, 4))
        return [a for a in told_of(paced(prof)) if "no backward runs them" in a]

    (line,) = told_after(nullcontext)
    assert "is in 120 ops at test_page.py:" in line
    assert not told_after(tangrad.no_grad)


def test_a_page_opens_with_what_was_recorded_and_on_what():
    from tangrad_profiler.page import page_data

    with profile() as prof:
        tangrad.ones(2)
    facts = page_data(prof.trace, "")[0]["facts"]
    assert "from the first event to the last, of 1 thread;" in facts
    assert f"{tangrad.get_num_threads()} threads for an op, Python 3." in facts
    assert "A percentage is of this time" in facts


# --- its code --------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's code")
def test_code_of_the_page_runs_in_every_view(page, tmp_path):
    (tmp_path / "page.html").write_text(page)
    done = subprocess.run(
        ["node", HERE / "page_in_node.js", tmp_path / "page.html"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    head = data_of(page)["timeline"]["chunks"][0]
    start, _, _, name = unpacked(head, texts_of(page)["chunk0"])
    assert json.loads(done.stdout) == [*start.tolist(), *name.tolist()]


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--window-size=1100,800 --virtual-time-budget=20000 --dump-dom"
).split()


@pytest.mark.skipif(BROWSER is None, reason="opens the page in chromium")
def test_views_open_search_and_zoom_in_a_browser(page, tmp_path):
    code = (HERE / "page_in_browser.js").read_text()
    (tmp_path / "page.html").write_text(page.replace("</body>", f"<script>{code}</script></body>"))
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'user'}", f"file://{tmp_path}/page.html"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = json.loads(html.unescape(re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S)[1]))
    assert "error" not in told
    views = "Advice Ops Modules Lines Timeline Flames Memory Roofline".split()
    assert all(told[name] > 0 for name in views)
    assert min(told["ink"]) > 500
    assert told["rows"][1] < told["rows"][0]
    assert told["found"].endswith("of what is drawn match")
    assert told["wheeled"] > 0
    assert told["zoomed"] > 5000
    assert "Linear" in told["modules"]
    assert "model(" in told["source"]
    assert told["flames"] > 500


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


def test_a_program_for_pytorch_is_profiled_and_the_best_advice_told(tmp_path):
    pytest.importorskip("tangrad.utils.stand_in")
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom torch import nn\n"
        "model = nn.Linear(4, 2)\n"
        "for _ in range(200):\n"
        "    print(model(torch.ones(1, 4)).sum().item())\n"
    )
    done = run("profile", "--out", tmp_path / "p.html", program)
    assert done.returncode == 0, done.stderr
    assert "aten::linear" in done.stdout
    _, _, told = done.stdout.partition("What stands out, the best 3 of ")
    assert told.count("\n- ") == 3


def test_a_program_that_names_tangrad_means_another_by_torch(tmp_path):
    (tmp_path / "torch.py").write_text("name = 'another'\n")
    program = tmp_path / "program.py"
    program.write_text("import tangrad, torch\nprint(torch.name)\n")
    done = run("profile", "--out", tmp_path / "p.html", program)
    assert done.stdout.startswith("another\n"), done.stderr


def test_a_child_that_the_program_forks_writes_no_profile(tmp_path):
    program = tmp_path / "forks.py"
    program.write_text(
        "import os, sys, tangrad\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "tangrad.ones(2).exp()\n"
    )
    done = run("profile", "--out", tmp_path / "p.html", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written: ") == 1


def test_what_cannot_be_read_or_written_is_told_before_the_program_runs(program, tmp_path):
    for out, file, says in [
        (tmp_path / "no" / "p.html", program, "No such file or directory"),
        (tmp_path, program, "Is a directory"),
        (tmp_path / "p.html", tmp_path / "none.py", "none.py"),
    ]:
        done = run("profile", "--out", out, file, "--fast", "x")
        assert done.returncode == 2
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "p.html").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="stands for a full disk")
def test_a_full_disk_is_told_and_the_program_s_status_stays(program):
    done = run("profile", "--out", "/dev/full", program, "--fast", "x")
    assert done.returncode == 1
    assert "the profile could not be written: " in done.stderr
    assert "No space left" in done.stderr


def test_two_records_are_compared_with_a_status_for_ci(program, tmp_path, capsys):
    fast, slow = tmp_path / "fast.tgprof", tmp_path / "slow.tgprof"
    done = run("profile", "--out", fast, program, "--fast", "x")
    assert done.returncode == 0, done.stderr
    recorded = load(fast)
    for name in ("start", "end"):
        recorded.trace.events[name] *= 100
    recorded.save(slow)
    for before, after, status in [(fast, fast, 0), (fast, slow, 1), (slow, fast, 0)]:
        told = main(["profile-diff", str(before), str(after), "--threshold", "5"])
        assert told == status
        assert "aten::exp" in capsys.readouterr().out
    assert main(["profile-diff", str(fast), str(slow), "--by", "line"]) == 0
    assert "program.py:5" in capsys.readouterr().out  # and no line of this framework
    with profile() as prof:
        pass
    prof.save(tmp_path / "empty.tgprof")
    assert main(["profile-diff", str(fast), str(tmp_path / "empty.tgprof")]) == 2
    assert "nothing to compare" in capsys.readouterr().err
    assert run("profile-diff", program, program).returncode == 2


def test_difference_is_sure_only_where_it_is(tmp_path):
    from tangrad_profiler.comparison import compare

    with profile() as prof:
        for _ in range(30):
            tangrad.ones(2).exp()
    before, after = paced(prof), copy.copy(prof.trace)
    after.__dict__["own"] = before.own * 1000 + np.arange(len(before))
    rows = {row.name: row for row in compare(before, after)}
    assert rows["aten::exp"].slower
    assert rows["aten::exp"].low > 10
    before.__dict__["own"] = before.own + np.arange(len(before))
    same = {row.name: row for row in compare(before, before)}["aten::exp"]
    assert same.low < 1 < same.high
    with pytest.raises(ValueError, match="by must be one of"):
        compare(before, before, "colour")


def test_time_of_all_calls_is_compared_where_their_number_changed():
    from tangrad_profiler.comparison import compare

    def recorded(calls):
        with profile() as prof:
            for _ in range(calls):
                tangrad.ones(2).exp()
        prof.trace.__dict__["own"] = prof.trace.own * 0 + 1000
        return prof.trace

    (row,) = [r for r in compare(recorded(40), recorded(10), total=True) if r.name == "aten::exp"]
    assert row.ratio == pytest.approx(0.25)
    assert (row.before, row.after) == (40, 10)


def test_saved_profile_makes_the_same_page(prof, tmp_path):
    prof.save(tmp_path / "p.tgprof")
    prof.export_html(tmp_path / "a.html")
    load(tmp_path / "p.tgprof").export_html(tmp_path / "b.html")
    a, b = (data_of((tmp_path / f"{name}.html").read_text()) for name in "ab")
    assert a == b
