"""`tangrad.profiler` records what a program does, and answers as PyTorch's does."""

from __future__ import annotations

import gzip
import json
import os
import queue
import threading
import time
import weakref

import pytest

import tangrad
from tangrad import nn
from tangrad.profiler import (
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


@pytest.fixture
def step():
    """A step of training of a small model."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)
    x, target = tangrad.ones(5, 4), tangrad.tensor([0, 1, 2, 0, 1])

    def run():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        return [p.tolist() for p in model.parameters()]

    return run


def row(prof, key, **options):
    (found,) = [r for r in prof.key_averages(**options) if r.key == key]
    return found


def test_namespace_is_the_plugin_s():
    assert tangrad.profiler.profile is profile
    assert tangrad.autograd.profiler.record_function is record_function
    assert ProfilerActivity.CPU in tangrad.profiler.supported_activities()


def test_ops_are_counted_and_times_add_up(step):
    with profile() as prof, record_function("training"):
        for _ in range(3):
            step()
    assert row(prof, "aten::linear").count == 6
    assert row(prof, "LinearBackward0").count == 6
    assert row(prof, "Optimizer.step#SGD.step").count == 3
    whole = row(prof, "training")
    assert whole.count == 1
    assert prof.key_averages().self_cpu_time_total == pytest.approx(whole.cpu_time_total, rel=0.02)


def test_own_times_and_what_is_outside_add_up_to_the_time_of_the_profile(step):
    before = time.monotonic_ns()
    with profile() as prof:
        inside = time.monotonic_ns()
        step()
        step()
        left = time.monotonic_ns()
    after = time.monotonic_ns()
    trace = prof.trace
    assert 0 < trace.outside < trace.length
    assert int(trace.own.sum()) + trace.outside == trace.length
    # By the clock of the records it began and ended where the program says.
    assert before <= trace.began <= inside
    assert left <= trace.began + trace.length <= after


def test_what_is_outside_is_of_the_program_s_thread_alone(step):
    ready = threading.Event()

    def work():
        with record_function("work"):
            ready.set()

    with profile() as prof:
        step()
        other = threading.Thread(target=work)
        other.start()
        assert ready.wait(100)
        other.join()
    trace = prof.trace
    mine = trace.events["thread"] == threading.get_ident()
    assert not mine.all()
    assert int(trace.own[mine].sum()) + trace.outside == trace.length


def test_results_are_those_of_a_run_without_a_profiler():
    def train():
        tangrad.manual_seed(0)
        model = nn.Linear(3, 3)
        model(tangrad.randn(2, 3)).softmax(-1).square().sum().backward()
        return model.weight.grad.tolist()

    plain = train()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True):
        observed = train()
    assert observed == plain


def test_shapes_group_and_flops_are_counted():
    with profile(with_flops=True) as prof:
        for n in (2, 2, 5):
            tangrad.ones(n, 3) @ tangrad.ones(3, 4)
    rows = [r for r in prof.key_averages(group_by_input_shape=True) if r.key == "aten::mm"]
    assert [(r.input_shapes, r.count, r.flops) for r in rows] == [
        ([[2, 3], [3, 4]], 2, 2 * 2 * 2 * 3 * 4),
        ([[5, 3], [3, 4]], 1, 2 * 5 * 3 * 4),
    ]


def test_memory_is_the_allocator_s_own_count():
    from tangrad import _C

    before = _C.allocator_of("cpu").memory_stats()["allocated_bytes.all.current"]
    with profile(profile_memory=True) as prof:
        kept = tangrad.ones(1000)
        tangrad.ones(500) + 1
    after = _C.allocator_of("cpu").memory_stats()["allocated_bytes.all.current"]
    changes = prof.trace.changes
    assert int(changes["nbytes"].sum()) == after - before
    assert int(changes["allocated"][-1]) == after
    assert "Self CPU Mem" in prof.key_averages().table()
    del kept


def test_steps_of_backward_know_the_op_the_line_and_the_module_they_are_of(step):
    with profile(with_stack=True, with_modules=True) as prof:
        step()
    trace = prof.trace
    node = next(i for i in range(len(trace)) if trace.name(i) == "ReluBackward0")
    assert trace.name(int(trace.forward[node])) == "aten::relu"
    assert trace.module_path(node) == "1"
    assert any(function.endswith("run") for _, function, _ in trace.frames(node))
    (event,) = [e for e in prof.events() if e.name == "ReluBackward0"]
    assert event.fwd_thread == threading.get_ident()


def test_table_is_sorted_and_cut(step):
    with profile(record_shapes=True) as prof:
        step()
    table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=2, header="Top")
    lines = table.splitlines()
    assert lines[1] == "Top"
    assert [title in lines[3] for title in ("Name", "Self CPU %", "# of Calls")] == [True] * 3
    assert len(lines) == 3 + 2 + 2 + 2
    assert lines[-1].startswith("Self CPU time total: ")
    with pytest.raises(AttributeError):
        prof.key_averages().table(sort_by="beauty")


@pytest.mark.parametrize("option", ["record_shapes", "profile_memory", "with_stack", "with_flops"])
def test_table_is_laid_out_as_pytorch_s(step, option):
    util = pytest.importorskip("torch.autograd.profiler_util", reason="is the oracle")
    with profile(**{option: True}) as prof:
        step()
    grouped = {"group_by_input_shape": option == "record_shapes",
               "group_by_stack_n": 3 * (option == "with_stack")}  # fmt: skip
    known = {"profile_memory": option == "profile_memory", "with_flops": option == "with_flops"}
    for asked in ({},
                  {"sort_by": "cpu_time_total", "row_limit": 3, "header": "Top"},
                  {"time_unit": "ms", "max_name_column_width": 20, "max_shapes_column_width": 15,
                   "max_src_column_width": 30, "top_level_events_only": True}):  # fmt: skip
        rows = prof.key_averages(**grouped)
        assert rows.table(**asked) == util._build_table(rows, **known, **asked)
    assert type(rows)().table() == ""


def test_schedule_is_pytorch_s():
    theirs = pytest.importorskip("torch.profiler", reason="is the oracle")
    for options in ({"wait": 1, "warmup": 2, "active": 3, "repeat": 2, "skip_first": 1},
                    {"wait": 2, "warmup": 1, "active": 1, "skip_first_wait": 1}):  # fmt: skip
        ours, oracle = schedule(**options), theirs.schedule(**options)
        assert [ours(n).name for n in range(20)] == [oracle(n).name for n in range(20)]
    with pytest.raises(AssertionError, match="need > 0"):
        schedule(wait=1, warmup=1, active=0)


def test_cycles_of_a_schedule_are_recorded_each_by_itself(step):
    ready = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda p: ready.append([r.key for r in p.key_averages()]),
    ) as prof:
        for _ in range(10):
            step()
            prof.step()
    assert len(ready) == 2
    assert {"ProfilerStep#2", "ProfilerStep#3"} <= set(ready[0])
    assert {"ProfilerStep#6", "ProfilerStep#7"} <= set(ready[1])
    assert prof.current_action is ProfilerAction.NONE


def test_chrome_trace_nests_and_links_backward_to_forward(step, tmp_path):
    with profile(record_shapes=True, profile_memory=True) as prof:
        step()
    prof.add_metadata_json("who", '{"a": 1}')
    prof.export_chrome_trace(str(tmp_path / "t.json.gz"))
    told = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    assert told["who"] == {"a": 1}
    kinds = {e["ph"] for e in told["traceEvents"]}
    assert kinds == {"M", "X", "i", "s", "f"}
    linear = next(e for e in told["traceEvents"] if e["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][0] == [5, 4]
    assert (told["record_shapes"], told["profile_memory"], told["with_stack"]) == (1, 1, 0)
    backward = [e for e in told["traceEvents"] if e["name"] == "LinearBackward0"]
    assert linear["args"]["Sequence number"] in {
        e["args"]["Sequence number"] for e in backward if e["ph"] == "X"
    }
    memory = next(e for e in told["traceEvents"] if e["name"] == "[memory]")
    assert (memory["args"]["Device Type"], memory["args"]["Device Id"]) == (0, -1)


def test_stacks_speedscope_and_memory_are_written(step, tmp_path):
    with profile(with_stack=True, profile_memory=True) as prof:
        step()
    prof.export_stacks(str(tmp_path / "stacks"))
    assert any("test_profile.py" in line for line in (tmp_path / "stacks").read_text().splitlines())
    prof.export_speedscope(str(tmp_path / "s.json"))
    (one,) = json.loads((tmp_path / "s.json").read_text())["profiles"]
    opened = [e["type"] for e in one["events"]]
    assert opened.count("O") == opened.count("C") > 10
    prof.export_memory_timeline(str(tmp_path / "m.json"))
    assert (tmp_path / "m.json").stat().st_size > 10
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(str(tmp_path / "x"), "beauty")


def test_tensorboard_handler_writes_a_file_per_cycle(step, tmp_path):
    handler = tensorboard_trace_handler(str(tmp_path / "logs"), "worker", use_gzip=True)
    with profile(on_trace_ready=handler):
        step()
    (name,) = os.listdir(tmp_path / "logs")
    assert name.startswith("worker.")
    assert name.endswith(".pt.trace.json.gz")


def test_execution_trace_is_in_pytorch_s_layout(tmp_path):
    torch = pytest.importorskip("torch", reason="whose layout it is")

    def traced(framework, path):
        observer = framework.profiler.ExecutionTraceObserver().register_callback(str(path))
        observer.start()
        x = framework.ones(2, 3, requires_grad=True)
        (x @ x.t()).sum().backward()
        assert observer.is_running() if framework is tangrad else True
        observer.stop()
        observer.unregister_callback()
        return json.loads(path.read_text())

    ours, theirs = traced(tangrad, tmp_path / "a"), traced(torch, tmp_path / "b")
    assert ours.keys() == theirs.keys()

    def mm(told):
        (node,) = [n for n in told["nodes"] if n["name"] == "aten::mm"][:1]
        return node

    assert mm(ours).keys() == mm(theirs).keys()
    for side in ("inputs", "outputs"):
        for key in ("shapes", "types", "strides"):
            assert mm(ours)[side][key] == mm(theirs)[side][key]
    assert [a["name"] for a in mm(ours)["attrs"]] == [a["name"] for a in mm(theirs)["attrs"]]
    assert "MmBackward0" in {n["name"] for n in ours["nodes"]}
    assert {n["ctrl_deps"] for n in ours["nodes"]} <= {n["id"] for n in ours["nodes"]}


def test_execution_trace_keeps_nothing_alive_and_is_packed_on_request(tmp_path):
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "e.json.gz"))
    with observer:
        x = tangrad.ones(3)
        gone = weakref.ref(x)
        del x
        assert gone() is None
        for _ in range(3):
            tangrad.ones(3).neg()
    told = json.loads(gzip.decompress((tmp_path / "e.json.gz").read_bytes()))
    results = [n["outputs"]["values"][0][0] for n in told["nodes"] if n["name"] == "aten::ones"]
    assert len(set(results)) == 4  # one number each, though they may have lain at one place


# --- bad input ----------------------------------------------------------------------------------


def test_a_second_profiler_is_refused_and_the_first_goes_on(step):
    with profile() as outer:
        with pytest.raises(RuntimeError, match="a profiler is running already"), profile():
            pass
        step()
    assert row(outer, "aten::linear").count == 2


def test_a_profiler_may_be_entered_again_and_not_within_itself(step):
    prof = profile()
    with prof:
        with pytest.raises(RuntimeError, match="a profiler is running already"), prof:
            pass
        step()
    assert row(prof, "aten::linear").count == 2
    with prof:
        tangrad.ones(2).neg()
    assert [r.key for r in prof.key_averages()] == ["aten::ones", "aten::fill_", "aten::neg"]


def test_an_error_in_the_program_leaves_the_profiler_and_a_result(step):
    prof = profile()

    def fail():
        with prof, record_function("outer"):
            step()
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert row(prof, "outer").count == 1
    with profile():
        pass


def test_a_profile_that_was_not_run_says_so():
    with pytest.raises(AssertionError, match="must be stopped"):
        profile().key_averages()
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])


def test_other_threads_are_recorded_that_join():
    def work():
        with tangrad.profiler.thread():
            tangrad.ones(3).exp()

    with profile() as prof:
        other = threading.Thread(target=work)
        other.start()
        other.join()
    threads = {e.thread for e in prof.events()}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_a_thread_that_outlives_the_profile_is_not_recorded_any_more():
    joined, ended = threading.Event(), threading.Event()
    failures = []

    def work():
        try:
            with tangrad.profiler.thread():
                tangrad.ones(3).exp()
                joined.set()
                ended.wait(100)
                tangrad.ones(3).sin()
        except BaseException as error:  # shown by the test
            failures.append(error)

    with profile() as prof:
        other = threading.Thread(target=work)
        other.start()
        joined.wait(100)
    ended.set()
    other.join()
    assert failures == []
    assert {e.name for e in prof.events()} >= {"aten::exp"}
    assert "aten::sin" not in {e.name for e in prof.events()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_records_nothing_and_harms_nothing(step):
    with profile(profile_memory=True) as prof:
        child = os.fork()
        if child == 0:
            step()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        step()
    assert row(prof, "aten::linear").count == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_may_record_itself(step):
    with profile(with_modules=True) as prof:
        step()
        child = os.fork()
        if child == 0:
            try:
                with profile(with_modules=True) as own:
                    step()
                    prof.stop()  # the parent's: of no effect here
                    step()
                os._exit(row(own, "aten::linear").count != 4)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    assert row(prof, "aten::linear").count == 2


def test_collection_may_stay_switched_off_until_the_end(step):
    with profile() as prof:
        step()
        prof.toggle_collection_dynamic(False, [])
        step()
    assert row(prof, "aten::linear").count == 2


def test_a_thread_that_outlived_a_profile_is_recorded_once_in_the_next(step):
    asked, answers = queue.Queue(), queue.Queue()

    def work():
        while asked.get():
            with tangrad.profiler.thread():
                tangrad.ones(2).sin()
            answers.put(None)

    with profile():
        worker = threading.Thread(target=work)
        worker.start()  # recorded by itself, until this profile ends
        asked.put(True)
        answers.get()
    with profile() as prof:
        asked.put(True)
        answers.get()
    asked.put(False)
    worker.join()
    assert row(prof, "aten::sin").count == 1


def test_an_unwritable_path_is_an_error_and_the_profile_stays(step, tmp_path):
    with profile() as prof:
        step()
    with pytest.raises(OSError, match="no"):
        prof.export_chrome_trace(str(tmp_path / "no" / "where.json"))
    assert row(prof, "aten::linear").count == 2


# --- the older interface -------------------------------------------------------------------------


def test_older_profiler_answers_alike(step):
    from tangrad.autograd import profiler

    with profiler.profile(record_shapes=True) as prof:
        with pytest.raises(RuntimeError, match="didn't finish"):
            prof.key_averages()
        step()
    assert "aten::linear" in prof.table()
    assert "aten::linear" in {r.key for r in prof.key_averages()}
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()
    with profiler.profile(enabled=False) as nothing:
        step()
    assert nothing is None


def test_null_contexts_trackers_and_files_of_old_tools():
    from tangrad.autograd import profiler

    with profiler.emit_nvtx(), profiler.emit_itt():
        pass
    unique = profiler.EnforceUnique()
    unique.see("a", 1)
    with pytest.raises(RuntimeError, match="duplicate key"):
        unique.see("a", 1)
    tracker = profiler.KinetoStepTracker
    tracker.init_step_count("one")
    assert tracker.increment_step("one") == tracker.current_step()
    assert tracker.erase_step_count("one")
    with pytest.raises(RuntimeError, match="nvprof"):
        profiler.load_nvprof("x")


def test_record_function_decorates_and_costs_nothing_outside():
    @record_function("named")
    def double(x):
        return x * 2

    assert double(2) == 4
    with profile() as prof:
        assert double(3) == 6
    assert row(prof, "named").count == 1


def test_operations_are_counted_once_and_in_pytorchs_unit():
    """What is within an op that is counted is a part of it."""
    torch = pytest.importorskip("torch")
    totals = {}
    for side in (torch, tangrad):
        layers = side.nn
        model = layers.Sequential(layers.Conv2d(3, 8, 3), layers.Flatten(), layers.Linear(32, 2))
        with side.profiler.profile(with_flops=True) as prof:
            model(side.ones(2, 3, 4, 4))
        averages = prof.key_averages()
        totals[side.__name__] = sum(row.flops for row in averages)
        header = averages.table().splitlines()[1]
        assert header.split()[-2:] == ["Total", "FLOPs"]
    assert totals["torch"] == totals["tangrad"] == 2 * 2 * (4 * 27 * 8 + 32 * 2)


def test_a_division_is_called_as_in_pytorch():
    import torch

    for lib in (tangrad, torch):
        x = lib.ones(3)
        with lib.autograd.profiler.profile() as profile:
            x / 2
        assert "aten::div" in [event.name for event in profile.function_events]
        assert "aten::div" in [average.key for average in profile.key_averages()]
