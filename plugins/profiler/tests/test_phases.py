"""Loading of data, its workers and threads are in one timeline."""

from __future__ import annotations

import json
import threading

import pytest

import tangrad
from tangrad.profiler import profile, record_function
from tangrad.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Take two milliseconds for a sample."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        threading.Event().wait(0.002)
        return tangrad.full((2,), float(i))


def row(prof, key):
    (found,) = [r for r in prof.key_averages() if r.key == key]
    return found


def test_waiting_for_a_batch_is_a_phase():
    with profile() as prof:
        batches = list(DataLoader(Slow(), batch_size=4))
    assert len(batches) == 2
    waiting = row(prof, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    assert waiting.count == 3  # the third says that there are no more
    assert waiting.cpu_time_total >= 16e3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_work_of_loader_processes_is_in_the_timeline():
    with profile() as prof:
        list(DataLoader(Slow(), batch_size=4, num_workers=2, multiprocessing_context="fork"))
    events = [e for e in prof.events() if e.name.startswith("DataLoader worker")]
    assert {e.name for e in events} == {"DataLoader worker 0", "DataLoader worker 1"}
    assert len({e.thread for e in events}) == 2
    assert all(e.thread < 0 for e in events)  # no thread of this process
    for e in events:
        assert e.time_range.elapsed_us() >= 8e3
        assert e.time_range.start >= 0
    waiting = row(prof, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    assert waiting.count == 3


def test_threads_that_begin_meanwhile_are_recorded_by_themselves():
    def work():
        tangrad.ones(3).exp()

    with profile() as prof:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert row(prof, "aten::exp").count == 2
    with profile() as later:
        pass
    assert len(later.trace) == 0


def test_profile_function_of_the_program_s_threads_stays():
    seen = []

    def mine(frame, event, argument):
        seen.append(event)

    threading.setprofile(mine)
    try:
        with profile() as prof:
            thread = threading.Thread(target=tangrad.ones, args=(3,))
            thread.start()
            thread.join()
        assert threading.getprofile() is mine
    finally:
        threading.setprofile(None)
    assert "call" in seen
    assert row(prof, "aten::ones").count == 1


def test_nobody_watches_after_the_profile():
    from tangrad.dispatch import phases

    with profile():
        assert phases.watchers
    assert phases.watchers == ()


def test_an_argument_of_a_range_is_no_part_of_its_name(tmp_path):
    with profile() as prof:
        for number in range(3):
            with record_function("block", f"number {number}"):
                tangrad.ones(2) + 1
    (block,) = (e for e in prof.key_averages() if e.key.startswith("block"))
    assert (block.key, block.count) == ("block", 3)
    prof.add_metadata("note", "plain text")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    said = [e["args"]["Concrete Inputs"] for e in trace["traceEvents"] if e["name"] == "block"]
    assert said == [["number 0"], ["number 1"], ["number 2"]]
    assert trace["note"] == "plain text"


def test_dropping_gradients_is_a_phase_of_the_optimizer():
    optimizer = tangrad.optim.Adam([tangrad.ones(2, requires_grad=True)])
    with profile() as prof:
        optimizer.zero_grad()
    assert "Optimizer.zero_grad#Adam.zero_grad" in {e.key for e in prof.key_averages()}
    (event,) = prof.events()
    assert event.device_type is tangrad.autograd.DeviceType.CPU
