"""PyTorch's names for the history of memory, which tangrad-profiler records on every device."""

import pickle

import pytest

import tangrad

pytest.importorskip("tangrad_profiler", reason="it records the history")


def test_a_history_is_recorded_and_written_under_pytorch_s_names(tmp_path):
    memory = tangrad.cuda.memory
    memory._record_memory_history(max_entries=100)
    try:
        kept = tangrad.ones(3000)
        found = memory._snapshot()
        memory._dump_snapshot(str(tmp_path / "memory.pickle"))
    finally:
        memory._record_memory_history(enabled=None)
    written = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    assert set(written) == set(found) == {"segments", "device_traces"}
    assert any(segment["allocated_size"] >= kept.nbytes for segment in found["segments"])
