"""A history of memory: who allocated what, by line, on a device of our own."""

from __future__ import annotations

import pickle

import pytest

import tangrad
from tangrad.plugin import allocator_of
from tangrad_profiler.history import (
    dump_memory_snapshot,
    holders,
    memory_snapshot,
    record_memory_history,
)

CPU = tangrad.device("cpu")


@pytest.fixture
def history():
    record_memory_history()
    yield
    record_memory_history(None)


def test_changes_tell_bytes_line_and_op(history):
    x = tangrad.ones(3000)
    address = x.data_ptr()
    del x
    traces = memory_snapshot()["device_traces"]
    changes = [c for trace in traces for c in trace if c["addr"] == address]
    assert [c["action"] for c in changes] == ["alloc", "free_completed"]
    assert changes[0]["size"] == changes[1]["size"] >= 12000
    assert changes[0]["op"] == "aten::ones"
    frame = changes[0]["frames"][0]
    assert frame["filename"] == __file__
    assert frame["name"].startswith("test_changes_tell")


def test_only_the_latest_changes_are_told():
    record_memory_history(max_entries=2)
    kept = [tangrad.ones(100) for _ in range(5)]
    told = [trace for trace in memory_snapshot()["device_traces"] if trace]
    record_memory_history(None)
    assert [len(trace) for trace in told] == [2]
    assert len(kept) == 5


def test_holders_are_told_by_kind_module_and_line(history):
    model = tangrad.nn.Sequential(tangrad.nn.Linear(200, 300))
    y = model(tangrad.ones(500, 200)).relu()
    rows = holders(CPU)
    assert rows == sorted(rows, key=lambda row: (-row[0], row[2]))
    # Other tests may hold more.
    largest = next(row for row in rows if f"{__file__}:" in row[2])
    assert largest[0] >= 500 * 300 * 4
    assert largest[1] == "activation"
    assert y.shape == (500, 300)
    assert any(kind == "parameter" and "linear.py" not in place for _, kind, place in rows)


def _out_of_memory() -> str:
    allocator = allocator_of(CPU)
    reserved = allocator.memory_stats()["reserved_bytes.all.current"]
    allocator.set_limit(reserved)
    try:
        with pytest.raises(tangrad.OutOfMemoryError) as raised:
            # Blocks that others have left free hold no more than all reserved bytes.
            tangrad.empty(reserved + 64_000_000, dtype=tangrad.uint8)
    finally:
        allocator.set_limit(None)
    return str(raised.value)


def test_out_of_memory_names_the_largest_lines(history):
    kept = tangrad.ones(200_000)
    text = _out_of_memory()
    assert "Largest by line: " in text
    assert f"by aten::ones at {__file__}:" in text
    assert "nothing to release is enough" in text
    assert kept.numel() == 200_000


def test_without_a_history_an_error_names_no_lines():
    assert "Largest by line" not in _out_of_memory()


def test_a_snapshot_is_pickled_or_a_page(history, tmp_path):
    kept = tangrad.ones(3000)
    dump_memory_snapshot(tmp_path / "memory.pickle")
    found = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    assert set(found) == {"segments", "device_traces"}
    assert found["segments"]
    dump_memory_snapshot(tmp_path / "memory.html")
    page = (tmp_path / "memory.html").read_text("utf-8")
    assert "aten::ones at test_history.py" in page
    assert kept.numel() == 3000
    assert '<script src="' not in page
    assert '<link rel="stylesheet"' not in page


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="enabled='some'"):
        record_memory_history("some")
    with pytest.raises(RuntimeError, match="no history of memory is recorded"):
        holders(CPU)


def test_one_profiler_at_a_time(history):
    with pytest.raises(RuntimeError, match="already"), tangrad.profiler.profile():
        pass
