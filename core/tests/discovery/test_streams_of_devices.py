"""Streams, events and memory of devices that bring no streams of their own."""

from __future__ import annotations

import json

DRIVER = """
from tangrad.plugin import DeviceDriver
API = 1
class Box(DeviceDriver):
    def open(self):
        self.boxes = dict()
    def device_count(self):
        return 2
    def allocate(self, nbytes, index):
        self.boxes[len(self.boxes) + 1] = bytearray(nbytes)
        return len(self.boxes)
    def release(self, handle, nbytes):
        self.boxes[handle] = None
    def copy_from_host(self, handle, offset, source):
        self.boxes[handle][offset : offset + len(source)] = source
    def copy_to_host(self, handle, offset, target):
        target[:] = self.boxes[handle][offset : offset + len(target)]
class Late(Box):
    def open(self):
        super().open()
        self.count, self.done, self.ended = 0, 0, []
    def current_stream(self, index):
        return 7 + index
    def record_event(self, stream):
        self.count += 1
        return self.count
    def query_event(self, event):
        return event <= self.done
    def synchronize_event(self, event):
        self.done = max(self.done, event)
    def destroy_event(self, event):
        self.ended.append(event)
class Clocked(Late):
    def elapsed_time(self, event, later):
        return 2.5 * (later - event)
class Kept(Box):
    accelerator = False
class Absent(Box):
    def probe(self):
        return "no such hardware"
class Hosted(DeviceDriver):
    host = True
"""


def answer(site, program: str, *names: str):
    """Return what a program that prints JSON says where some of the devices are installed."""
    names = names or ("box", "late", "clocked")
    points = {name: f"acme:{name.capitalize()}" for name in names}
    site.install("acme", {"tangrad.devices": points}, {"acme.py": DRIVER})
    done = site.run(f"import json, tangrad\nfrom tangrad.plugin import get_driver\n{program}")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_without_events_a_device_is_done_when_a_call_returns(site):
    program = """
s, e = tangrad.Stream("box"), tangrad.Event("box", enable_timing=True)
with s:
    e.record()
    x = tangrad.empty(5, device="box")
f = s.record_event(tangrad.Event("box", enable_timing=True))
s.wait_event(f); s.synchronize(); f.synchronize()
print(json.dumps([str(s.device), s.stream_id, s.query(), f.query(), e.elapsed_time(f) >= 0,
                  tangrad.accelerator.current_stream("box") == tangrad.Stream("box:0")]))
"""
    assert answer(site, program) == ["box:0", 0, True, True, True, True]


def test_with_events_a_device_has_one_stream(site):
    program = """
s, driver = tangrad.Stream("late:1"), get_driver("late")
e = tangrad.Event("late:1")
unrecorded = e.query()
e.record(s)
before = e.query(), s.query()
again = s.record_event(e)
with s:
    tangrad.accelerator.current_stream("late:1").wait_event(e)
e.synchronize()
after = e.query()
s.synchronize()
try:
    a, b = (tangrad.Event("late:1", enable_timing=True) for _ in range(2))
    a.record(), b.record()
    a.elapsed_time(b)
except RuntimeError as error:
    clock = str(error)
del e, again
print(json.dumps([s.stream_id, unrecorded, before, after, clock,
                  s == tangrad.accelerator.current_stream("late:1"), 3 in driver.ended]))
"""
    clock = "device 'late' does not tell when events happened"
    assert answer(site, program) == [8, True, [False, False], True, clock, True, True]


def test_a_driver_with_a_clock_tells_the_time_between_events(site):
    program = """
a, b = (tangrad.Event("clocked", enable_timing=True) for _ in range(2))
a.record(), b.record()
print(json.dumps(a.elapsed_time(b)))
"""
    assert answer(site, program) == 2.5


def test_the_memory_of_every_device_is_told_by_its_name(site):
    program = """
acc = tangrad.accelerator
before = acc.memory_allocated("box")
x = tangrad.empty(1000, device="box")
held = acc.memory_allocated("box") - before
names = sorted(acc.memory_stats("box:1"))[:1]
del x
print(json.dumps([held >= 4000, acc.max_memory_allocated("box") >= 4000,
                  acc.memory_allocated("box") == before, acc.memory_reserved("box") >= 4000,
                  len(names)]))
"""
    assert answer(site, program) == [True, True, True, True, 1]


def test_a_device_without_streams_is_an_accelerator(site):
    program = """
acc = tangrad.accelerator
found = [str(acc.current_accelerator()), acc.is_available(), acc.device_count()]
x = tangrad.empty(1000, device=acc.current_accelerator())
acc.synchronize(); acc.synchronize(1)
with acc.device_index(0), acc.current_stream(1) as stream:
    acc.set_device_index(1)
found += [str(x.device), str(stream.device), acc.memory_allocated() >= 4000]
def said(call, *arguments):
    try:
        return call(*arguments)
    except (RuntimeError, NotImplementedError) as error:
        return str(error)
found += [said(acc.set_device_index, 2), said(acc.get_memory_info)]
print(json.dumps(found))
"""
    outside = "device 'box:2' does not exist: there are 2"
    untold = "device 'box' does not tell how much memory it has"
    expected = ["box", True, 2, "box:0", "box:1", True, outside, untold]
    assert answer(site, program, "box") == expected


def test_the_accelerator_in_use_is_meant_before_one_that_is_installed(site):
    program = """
tangrad.empty(1, device="late")
late = str(tangrad.accelerator.current_accelerator())
get_driver("clocked").pinned = object()
print(json.dumps([late, str(tangrad.accelerator.current_accelerator())]))
"""
    assert answer(site, program) == ["late", "clocked"]


def test_what_cannot_be_used_or_says_that_it_is_none_is_no_accelerator(site):
    site.install("broken", {"tangrad.devices": {"a": "broken_driver:A"}}, {"broken_driver.py": ""})
    program = """
acc = tangrad.accelerator
x = tangrad.empty(1, device="kept")
found = [acc.current_accelerator(), acc.is_available(), acc.device_count()]
try:
    acc.synchronize()
except RuntimeError as error:
    found.append(str(error).partition(";")[0])
acc.synchronize("kept")
print(json.dumps([*found, acc.memory_allocated("kept")]))
"""
    nothing = "Cannot access accelerator device when none is available"
    assert answer(site, program, "kept", "absent", "hosted") == [None, False, 0, nothing, 64]
