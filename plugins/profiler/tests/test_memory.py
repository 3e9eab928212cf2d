"""Every byte is accounted for: by kind, over time, as the allocator counts."""

from __future__ import annotations

import gc
import gzip
import json

import pytest

import tangrad
from tangrad import nn
from tangrad.profiler import profile
from tangrad_profiler.memory import KINDS, blocks_of, held_by_kind


@pytest.fixture(scope="module")
def trained():
    """A profile of two steps with Adam, and sizes: its parameters' bytes as blocks have them."""
    gc.collect()  # what earlier tests left, on other devices, too, would go during the profile
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = tangrad.optim.Adam(model.parameters())
    x = tangrad.randn(512, 64)
    tangrad.plugin.allocator_of("cpu").reset_peak_memory_stats()
    with profile(profile_memory=True, with_modules=True) as prof:
        for _ in range(2):
            optimizer.zero_grad()
            model(x + 0).square().mean().backward()
            optimizer.step()
    stats = tangrad.plugin.allocator_of("cpu").memory_stats()
    bytes_of = sum(p.untyped_storage().nbytes() for p in model.parameters())
    return prof.trace, stats, bytes_of


def at_peak(trace):
    blocks = blocks_of(trace)
    rows = blocks.at_peak
    return {
        name: int(blocks.nbytes[rows][blocks.kind[rows] == k].sum()) for k, name in enumerate(KINDS)
    }


def test_peak_is_the_allocator_s_to_the_byte(trained):
    trace, stats, _ = trained
    blocks = blocks_of(trace)
    assert blocks.peak[1] == stats["allocated_bytes.all.peak"]
    assert sum(at_peak(trace).values()) == blocks.peak[1]


def test_bytes_after_every_change_are_the_allocator_s(trained):
    trace = trained[0]
    times, held = held_by_kind(blocks_of(trace))
    totals = dict(zip(times.tolist(), held.sum(axis=1).tolist(), strict=True))
    last = {}
    for when, allocated in zip(trace.changes["time"], trace.changes["allocated"], strict=True):
        last[int(when)] = int(allocated)
    assert {when: totals[when] for when in last} == last
    assert (held >= 0).all()


def test_parameters_gradients_and_state_have_their_sizes(trained):
    trace, _, parameters = trained
    _, held = held_by_kind(blocks_of(trace))
    most = dict(zip(KINDS, held.max(axis=0).tolist(), strict=True))
    assert most["parameter"] == parameters
    assert 2 * parameters <= most["optimizer state"] <= 2 * parameters + 4096
    assert parameters <= most["gradient"]
    assert most["activation"] >= 512 * 256 * 4


def test_what_does_not_outlive_its_op_is_workspace():
    with profile(profile_memory=True) as prof:
        tangrad.ones(1000).var()
    blocks = blocks_of(prof.trace)
    kinds = {KINDS[k] for k in blocks.kind[blocks.start >= 0]}
    assert kinds <= {"workspace", "activation"}


def test_timelines_are_in_pytorch_s_formats(trained, tmp_path):
    trace = trained[0]
    prof = profile()
    prof._traces = [trace]
    prof.export_memory_timeline(str(tmp_path / "m.json"), "cpu")
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert times == sorted(times)
    assert len(times) == len(sizes) == len(set(times))
    assert {len(row) for row in sizes} == {9}  # a zero, seven kinds and none
    assert max(map(sum, sizes)) <= blocks_of(trace).peak[1]
    prof.export_memory_timeline(str(tmp_path / "m.raw.json.gz"), "cpu")
    rows = json.loads(gzip.decompress((tmp_path / "m.raw.json.gz").read_bytes()))
    assert {action for _, action, _, _ in rows} == {1, 2, 4}
    assert sum(nbytes for _, _, nbytes, _ in rows) == int(trace.changes["allocated"][-1])
    prof.export_memory_timeline(str(tmp_path / "m.json.gz"), "another")
    assert json.loads(gzip.decompress((tmp_path / "m.json.gz").read_bytes())) == [[], []]


def test_a_profile_without_memory_says_so(tmp_path):
    with profile() as prof:
        tangrad.ones(3)
    with pytest.raises(RuntimeError, match="give profile_memory=True"):
        prof.export_memory_timeline(str(tmp_path / "x.json"))
