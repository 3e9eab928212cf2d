"""Devices tell by their own clock, through their driver's events, when they worked for which op."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A third party's device: memory that the host cannot address, two streams, each with a thread and
# a queue, and a clock that began at another time than the host's. `exp` takes 5 ms, `neg` 1 ms.
DRIVER = """
import itertools, queue, threading, time
import numpy as np
from tangrad.plugin import DeviceDriver, location

API = 1
current = threading.local()


class Clocked(DeviceDriver):
    def open(self):
        self._boxes, self._handles = {}, itertools.count(1)
        self._events, self._numbers = {}, itertools.count(1)
        self._queues = [queue.SimpleQueue() for _ in range(2)]
        for q in self._queues:
            threading.Thread(target=self._run, args=(q,), daemon=True).start()

    def _run(self, q):
        while True:
            q.get()()

    def allocate(self, nbytes, index):
        handle = next(self._handles)
        self._boxes[handle] = bytearray(nbytes)
        return handle

    def release(self, handle, nbytes):
        self.synchronize()
        del self._boxes[handle]

    def copy_from_host(self, handle, offset, source):
        self.synchronize()
        self._boxes[handle][offset : offset + len(source)] = source

    def copy_to_host(self, handle, offset, target):
        self.synchronize()
        target[:] = self._boxes[handle][offset : offset + len(target)]

    def synchronize(self, index=None):
        for stream in range(2):
            event = self.record_event(stream)
            self.synchronize_event(event)
            self.destroy_event(event)

    def current_stream(self, index):
        return getattr(current, "stream", 0)

    def record_event(self, stream):
        number, event = next(self._numbers), threading.Event()
        self._events[number] = event

        def happen():
            event.time = time.perf_counter() - 1e6
            event.set()

        self._queues[stream].put(happen)
        return number

    def query_event(self, event):
        return self._events[event].is_set()

    def synchronize_event(self, event):
        self._events[event].wait()

    def destroy_event(self, event):
        del self._events[event]

    def elapsed_time(self, event, later):
        return 1e3 * (self._events[later].time - self._events[event].time)

    def register_kernels(self, register):
        register("exp", self.slow(np.exp, 0.005), dtypes=("float32",))
        register("neg", self.slow(np.negative, 0.001), dtypes=("float32",))

    def array(self, t):
        handle, offset = location(t)
        return np.ndarray(tuple(t.shape), np.float32, self._boxes[handle], offset)

    def slow(self, function, seconds):
        def kernel(outs, inputs, params):
            out, x = self.array(outs[0]), self.array(inputs[0])

            def work():
                time.sleep(seconds)
                out[...] = function(x)

            self._queues[self.current_stream(0)].put(work)

        return kernel
"""

PROGRAM = """
import json, sys, threading, warnings
warnings.simplefilter("ignore")
import tangrad
import clocked
from tangrad.profiler import ProfilerActivity, load, profile, supported_activities

x = tangrad.ones(4).to("clocked")
assert ProfilerActivity.PrivateUse1 in supported_activities()

def elsewhere():
    clocked.current.stream = 1
    x.exp()

with profile(record_shapes=True, profile_memory=True) as prof:
    thread = threading.Thread(target=elsewhere)
    thread.start()
    for _ in range(3):
        y = x.exp().neg()
    thread.join()
with profile(activities=[ProfilerActivity.CPU]) as host:
    x.exp()
assert not len(host.trace.kernels["start"])
assert y.cpu().tolist()[0] < -2.7
assert not [e for e in tangrad.plugin.get_driver("clocked")._events], "events were not given back"
prof.export_html(sys.argv[1] + ".html")
before = tangrad.profiler.counters("clocked")
with tangrad.profiler.profile(profile_memory=True) as kept:
    held = [x.exp() for _ in range(3)]
allocated = tangrad.plugin.allocator_of("clocked").memory_stats()["allocated_bytes.all.current"]
w = tangrad.ones(4).to("clocked").requires_grad_()
with tangrad.why_no_grad(w) as why:
    w.exp().detach().neg()
faults = [r.kind for r in why.reasons]
zero = lambda: w.neg().exp().sub(w.exp().reciprocal())
for call in (lambda: w.neg().log(), lambda: zero().mul(0).sqrt().sum().backward()):
    try:
        with tangrad.autograd.detect_anomaly(check_finite=True):
            call()
    except RuntimeError as error:
        faults.append(str(error))
prof.save(sys.argv[1] + ".tgprof")
k = load(sys.argv[1] + ".tgprof").trace.kernels
rows = {r.key: [r.count, r.device_time_total, r.cpu_time_total] for r in prof.key_averages()}
prof.export_chrome_trace(sys.argv[1] + ".json")
print(json.dumps({
    "rows": rows,
    "table": prof.key_averages().table(),
    "streams": sorted(set(prof.trace.kernels["stream"].tolist())),
    "spans": [[int(s), int(e)] for s, e in zip(k["start"], k["end"])],
    "launched": [int(prof.trace.events["start"][i]) for i in k["event"]],
    "names": [prof.trace.name(i) for i in k["event"]],
    "faults": faults,
    "allocated": [int(kept.trace.changes["allocated"][-1]), allocated],
    "counted": (tangrad.profiler.counters("clocked") - before).allocations,
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "clocked.py").write_text(DRIVER)
    info = folder / "clocked-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clocked\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tangrad.devices]\nclocked = clocked:Clocked\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "trace")],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    page = Path(str(folder / "trace") + ".html").read_text()
    return {
        **json.loads(done.stdout),
        "page": page,
        "trace": Path(str(folder / "trace") + ".json").read_text(),
    }


def test_kernels_have_the_device_s_time_and_their_op(told):
    count, device, _ = told["rows"]["aten::exp"]
    assert count == 4
    assert device >= 4 * 5e3  # microseconds
    assert told["rows"]["aten::neg"][1] >= 3 * 1e3
    assert told["names"].count("aten::exp") == 4


def test_streams_are_told_apart_and_work_follows_its_launch(told):
    assert told["streams"] == [0, 1]
    for (start, end), launched in zip(told["spans"], told["launched"], strict=True):
        assert launched <= start + 1_000_000_000  # its clock is a million seconds behind
        assert end - start >= 0


def test_tables_and_traces_show_kernels_beside_the_launch(told):
    assert "Self CLOCKED" in told["table"]
    rows = [e for e in json.loads(told["trace"])["traceEvents"] if e.get("cat") == "kernel"]
    assert len(rows) == 7
    assert {r["args"]["stream"] for r in rows} == {0, 1}
    flows = [e for e in json.loads(told["trace"])["traceEvents"] if e.get("cat") == "ac2g"]
    assert {e["ph"] for e in flows} == {"s", "f"}


def test_memory_faults_and_the_page_work_there_too(told):
    assert told["allocated"][0] == told["allocated"][1] > 0
    assert told["counted"] >= 3
    why, forward, backward = told["faults"]
    assert why == "detached"
    assert forward.startswith("log, called at <string>:")
    assert "4 NaN and 0 infinite, the first at [0]: nan" in forward
    assert "Function 'SqrtBackward0' returned infinite values" in backward
    assert "clocked" in told["page"]
