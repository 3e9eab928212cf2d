"""Record files survive what happens to programs."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
import zlib

import pytest

import tangrad
from tangrad.profiler import RecordError, load, profile, record


def keys(prof):
    return {r.key: r.count for r in prof.key_averages()}


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "run.tgprof"
    with record(path, record_shapes=True, profile_memory=True, with_stack=True):
        for _ in range(5):
            tangrad.ones(3, 3) @ tangrad.ones(3, 3)
    return path


def test_file_holds_what_was_recorded(recorded):
    prof = load(recorded)
    assert keys(prof)["aten::mm"] == 5
    assert prof.trace.partial == ""
    (shapes,) = {str(e.input_shapes) for e in prof.events() if e.name == "aten::mm"}
    assert shapes == "[[3, 3], [3, 3]]"
    assert any("test_files.py" in line for e in prof.events() for line in e.stack)


def test_profile_in_memory_is_saved_and_read_back(tmp_path):
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        tangrad.ones(3).exp()
    prof.save(tmp_path / "p.tgprof")
    again = load(tmp_path / "p.tgprof")
    assert keys(again) == keys(prof)
    assert (again.trace.length, again.trace.outside) == (prof.trace.length, prof.trace.outside)
    assert again.trace.changes["nbytes"].tolist() == prof.trace.changes["nbytes"].tolist()
    assert [e.stack for e in again.events()] == [e.stack for e in prof.events()]


HEAD = 400  # bytes that the header may have: it tells of the machine, too


def test_file_that_was_cut_off_gives_what_is_whole(recorded, tmp_path):
    data = recorded.read_bytes()
    for size in range(20, len(data), 97):
        (tmp_path / "cut").write_bytes(data[:size])
        try:
            prof = load(tmp_path / "cut")
        except RecordError:
            assert size < HEAD
            continue
        assert prof.trace.partial
    (tmp_path / "cut").write_bytes(data[:-30])
    assert "Partial:" in load(tmp_path / "cut").key_averages().table()


def test_damaged_bytes_are_told_and_never_crash(recorded, tmp_path):
    data = bytearray(recorded.read_bytes())
    for at in range(0, len(data), 61):
        broken = bytearray(data)
        broken[at] ^= 0x55
        (tmp_path / "broken").write_bytes(broken)
        try:
            load(tmp_path / "broken").key_averages()
        except RecordError:
            assert at < HEAD


def test_file_of_a_newer_format_or_of_another_kind_is_refused(recorded, tmp_path):
    data = bytearray(recorded.read_bytes())
    data[6] = 9
    (tmp_path / "newer").write_bytes(data)
    with pytest.raises(RecordError, match="version 9 of the format.*upgrade"):
        load(tmp_path / "newer")
    (tmp_path / "other").write_bytes(b"PNG and so on and on")
    with pytest.raises(RecordError, match="is no record"):
        load(tmp_path / "other")


@pytest.mark.parametrize(
    "head", [b"", b"{", b"[]", b"7", b"{}", b'{"options": 3}', b"\xff\xfe", b"[" * 10_000]
)
def test_file_with_a_damaged_header_is_refused(head, tmp_path):
    (tmp_path / "bad").write_bytes(struct.pack("<6sHI", b"TGPROF", 2, len(head)) + head)
    with pytest.raises(RecordError, match="the header is damaged"):
        load(tmp_path / "bad")


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (2, b"{"), (2, b"[[1]]"), (2, b"[" * 10_000), (3, b"null"), (4, b"[1]"), (6, b"123"),
        (1, bytes([2, 0, 0, 9, 0, 0])), (1, bytes([2, 0, 0, 0, 9, 0])),
    ],
)  # fmt: skip
def test_blocks_that_nobody_writes_are_refused(kind, payload, tmp_path):
    packed = zlib.compress(payload)
    block = struct.pack("<BqII", kind, 1, len(packed), zlib.crc32(packed)) + packed
    head = b'{"options": {}}'
    data = struct.pack("<6sHI", b"TGPROF", 2, len(head)) + head + block
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(RecordError, match="holds what no tangrad-profiler writes"):
        load(tmp_path / "bad")
    (tmp_path / "bad").write_bytes(data[: -len(packed)] + bytes(len(packed)))
    assert load(tmp_path / "bad").trace.partial == "block 0 is damaged"


def test_file_of_an_older_format_is_read(tmp_path):
    with record(tmp_path / "old"):
        tangrad.ones(3).exp()
    data = bytearray((tmp_path / "old").read_bytes())
    assert data[6] == 2
    data[6] = 1
    (tmp_path / "old").write_bytes(data)
    assert keys(load(tmp_path / "old"))["aten::exp"] == 1


def test_purposes_of_memory_are_in_the_file(tmp_path):
    from tangrad_profiler.memory import KINDS, blocks_of

    model = tangrad.nn.Linear(8, 8)
    optimizer = tangrad.optim.Adam(model.parameters())
    with record(tmp_path / "steps", profile_memory=True):
        model(tangrad.ones(4, 8)).sum().backward()
        optimizer.step()
    blocks = blocks_of(load(tmp_path / "steps").trace)
    assert {"parameter", "optimizer state", "gradient"} <= {KINDS[k] for k in blocks.kind}


def test_path_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path):
    with pytest.raises(FileNotFoundError), record(tmp_path / "no" / "x"):
        pytest.fail("the program must not begin")
    with profile():
        pass


def test_a_second_recording_is_refused_and_the_file_of_the_first_stays(tmp_path):
    path = tmp_path / "run.tgprof"
    with record(path) as first:
        tangrad.ones(3).exp()
        for second in (record(path), first):
            with pytest.raises(RuntimeError, match="profiler"), second:
                pytest.fail("the program must not begin")
        tangrad.ones(3).exp()
    prof = load(path)
    assert prof.trace.partial == ""
    assert keys(prof)["aten::exp"] == 2


def test_a_recording_may_be_entered_again_and_replaces_its_file(tmp_path):
    recording = record(tmp_path / "run.tgprof")
    for count in (1, 3):
        with recording:
            for _ in range(count):
                tangrad.ones(3).exp()
        assert keys(load(tmp_path / "run.tgprof"))["aten::exp"] == count


def test_full_disk_leaves_the_program_alone(monkeypatch):
    recording = record("/dev/full", interval=0.01)
    recording.__enter__()
    y = tangrad.ones(3).exp()
    time.sleep(0.05)
    with pytest.warns(RuntimeWarning, match="is partial"):
        recording.__exit__(None, None, None)
    assert y.shape == (3,)


def comes_true(condition):
    """Wait for what another thread or process does in its own time."""
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
    return True


def test_long_run_keeps_sums_in_place_of_events(tmp_path):
    with record(tmp_path / "long", interval=0.01, max_bytes=100) as r:
        x = tangrad.ones(2)
        for _ in range(200):
            x.exp()
        assert comes_true(lambda: r._adder is not None)
        for _ in range(300):
            x.exp()
    prof = load(tmp_path / "long")
    assert keys(prof)["aten::exp"] == 500
    assert "there are sums" in prof.trace.partial


KILLED = """
import signal, sys, tangrad
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from tangrad.profiler import record
with record(sys.argv[1], interval=0.05):
    x = tangrad.ones(2)
    print("ready", flush=True)
    while True:
        x.exp()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_program_that_is_stopped_loses_no_more_than_the_last_interval(tmp_path, how):
    path = tmp_path / "killed"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    assert comes_true(lambda: path.stat().st_size and len(load(path).trace) > 200)
    child.send_signal(how)
    child.communicate(timeout=100)
    prof = load(path)
    assert keys(prof)["aten::exp"] > 100
    if how is signal.SIGKILL:
        assert "ended before" in prof.trace.partial or prof.trace.partial


def test_a_thousand_steps_take_no_more_than_three_megabytes(tmp_path):
    from tangrad import nn

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with record(tmp_path / "steps"):
        for _ in range(100):
            model(tangrad.ones(2, 4)).sum().backward()
    assert (tmp_path / "steps").stat().st_size < 300_000


FORKED = """
import os, sys, tangrad
from tangrad.profiler import record
from tangrad_profiler import file

x, written = tangrad.ones(2), file._write_block

def and_fork(*args):
    size = written(*args)
    file._write_block = written
    child = os.fork()
    if not child:
        r._file.close()  # as whatever closes the files of a process does
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return size

with record(sys.argv[1], interval=1000) as r:
    for _ in range(5):
        x.exp()
    file._write_block = and_fork
    r._flush()
    for _ in range(5):
        x.exp()
"""


def test_child_forked_during_a_flush_writes_nothing_to_the_file(tmp_path):
    path = tmp_path / "forked"
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, str(path)], check=True)
    prof = load(path)
    assert not prof.trace.partial
    assert keys(prof)["aten::exp"] == 10
