"""Devices tell by their own clock, through their driver's events, when they worked for which op."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A third party's device: memory that the host cannot address, two streams, each with a thread and
# a queue, and a clock that began at another time than the host's. By this clock `exp` takes 5 ms
# and `neg` 1 ms, however slow the machine is; where a stream is idle it runs as the host's.
DRIVER = """
import itertools, queue, threading, time
import numpy as np
from tangrad.plugin import DeviceDriver, location

API = 1
current = threading.local()
power = threading.Event()
power.set()


class Clocked(DeviceDriver):
    def open(self):
        self._now, self._worked = [-1e9, -1e9], [False, False]
        self._boxes, self._handles = {}, itertools.count(1)
        self._events, self._numbers = {}, itertools.count(1)
        self._queues = [queue.SimpleQueue() for _ in range(2)]
        for q in self._queues:
            threading.Thread(target=self._run, args=(q,), daemon=True).start()

    def _run(self, q):
        while True:
            work = q.get()
            power.wait()
            work()

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
        asked = time.perf_counter() - 1e6

        def happen():
            if not self._worked[stream]:
                self._now[stream] = max(self._now[stream], asked)
            self._worked[stream] = False
            event.time = self._now[stream]
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
            out, x, stream = self.array(outs[0]), self.array(inputs[0]), self.current_stream(0)

            def work():
                self._now[stream] += seconds
                self._worked[stream] = True
                out[...] = function(x)

            self._queues[stream].put(work)

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

kept = []

def elsewhere():
    clocked.current.stream = 1
    kept.append(x.exp())  # the driver chose the stream, which the allocator cannot know of

with profile(record_shapes=True, profile_memory=True) as prof:
    clocked.power.clear()  # a host that waited for the device would wait without end
    thread = threading.Thread(target=elsewhere)
    thread.start()
    for _ in range(3):
        y = x.exp().neg()
    thread.join()
    clocked.power.set()
with profile(activities=[ProfilerActivity.CPU]) as host:
    x.exp()
assert not len(host.trace.kernels["start"])
assert y.cpu().tolist()[0] < -2.7
assert not [e for e in tangrad.plugin.get_driver("clocked")._events], "events were not given back"
prof.save(sys.argv[1] + ".tgprof")
k = load(sys.argv[1] + ".tgprof").trace.kernels
rows = {r.key: [r.count, r.device_time_total, r.cpu_time_total] for r in prof.key_averages()}
prof.export_chrome_trace(sys.argv[1] + ".json")
prof.export_html(sys.argv[1] + ".html")
print(json.dumps({
    "rows": rows,
    "table": prof.key_averages().table(),
    "streams": sorted(set(prof.trace.kernels["stream"].tolist())),
    "spans": [[int(s), int(e)] for s, e in zip(k["start"], k["end"])],
    "launched": [int(prof.trace.events["start"][i]) for i in k["event"]],
    "names": [prof.trace.name(i) for i in k["event"]],
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
    return {**json.loads(done.stdout), "trace": Path(str(folder / "trace") + ".json").read_text()}


def test_kernels_have_the_device_s_time_and_their_op(told):
    assert told["rows"]["aten::exp"][:2] == pytest.approx([4, 4 * 5e3])  # microseconds
    assert told["rows"]["aten::neg"][:2] == pytest.approx([3, 3 * 1e3])
    assert told["names"].count("aten::exp") == 4


def test_streams_are_told_apart_and_work_follows_its_launch(told):
    assert told["streams"] == [0, 1]
    for (start, end), launched in zip(told["spans"], told["launched"], strict=True):
        assert launched <= start + 1_000_000
        assert end - start >= 0


def test_tables_and_traces_show_kernels_beside_the_launch(told):
    assert "Self CLOCKED %" in told["table"]
    assert "Self CLOCKED Mem" in told["table"]
    rows = [e for e in json.loads(told["trace"])["traceEvents"] if e.get("cat") == "kernel"]
    assert len(rows) == 7
    assert {r["args"]["stream"] for r in rows} == {0, 1}
    flows = [e for e in json.loads(told["trace"])["traceEvents"] if e.get("cat") == "ac2g"]
    assert {e["ph"] for e in flows} == {"s", "f"}
