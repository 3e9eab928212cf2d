"""Copies within a device: by its kernels and its driver's copies of bytes, or told of."""

from __future__ import annotations

import json
import textwrap

import pytest

DRIVER = """
from tangrad.plugin import DeviceDriver, Tensor, location
API = 1
class Bare(DeviceDriver):
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
class Box(Bare):
    def copy_within(self, handle, offset, source, source_offset, nbytes):
        part = self.boxes[source][source_offset : source_offset + nbytes]
        self.boxes[handle][offset : offset + nbytes] = part
class Copying(Box):
    def array(self, value):
        import numpy
        handle, offset = location(value)
        strides = [n * value.itemsize for n in value.stride()]
        name = value.dtype.name
        return numpy.ndarray(tuple(value.shape), name, self.boxes[handle], offset, strides)
    def copy(self, outs, args):
        self.array(outs[0])[...] = self.array(args[1])
    def register_kernels(self, register):
        register("copy_", self.copy, dtypes=["int64", "float32"])
class Making(Copying):
    def register_kernels(self, register):
        self.asked = []
    def kernel_for(self, op, dtype):
        self.asked.append((op.name, dtype.name))
        if op.name == "copy_" and dtype.name in ("int64", "float32"):
            return self.copy
"""
DEVICES = ("bare", "box", "copying", "making")

HEAD = """
import json, warnings
import tangrad
from tangrad.plugin import fallback_calls, get_driver

host = tangrad.arange(6.0, device="cpu").reshape(2, 3)

def told(device, *actions):
    x = host.to(device)
    found = []
    for action in actions:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            action(x)
        found.append([str(w.message) for w in caught])
    return found
"""


@pytest.fixture
def answer(site):
    """Run a program after `HEAD` with the devices installed; return what it prints as JSON."""
    points = {name: f"acme:{name.capitalize()}" for name in DEVICES}
    site.install("acme", {"tangrad.devices": points}, {"acme.py": DRIVER})

    def run(program: str):
        done = site.run(HEAD + textwrap.dedent(program))
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return run


def test_what_goes_between_host_and_device_or_is_bytes_is_not_told(answer):
    for device in ("box", "copying"):
        found = answer(f"""
            print(json.dumps([told({device!r},
                lambda x: x.cpu(), lambda x: x.t().cpu(), lambda x: x.t().tolist(), repr,
                lambda x: host.t().to({device!r}), lambda x: x.t().copy_(host.t()),
                lambda x: x.to("reference"), lambda x: x.clone(),
                lambda x: x.t().clone(), lambda x: x.to({device!r} + ":1"),
                lambda x: tangrad.empty(1, 3, device={device!r}).copy_(x[1]),
                lambda x: x.clone().resize_(100), lambda x: x[1:].clone()), fallback_calls()]))
        """)
        assert found == [[[]] * 13, {}]


def test_strided_copies_and_casts_without_a_kernel_are_told_once_each_and_counted(answer):
    strided, again, cast, other_cast, promoted, counted = answer("""
        found = told("box", lambda x: x.t().contiguous(), lambda x: x[:, 1].copy_(x[:, 0]),
            lambda x: x.long(), lambda x: x.to(tangrad.float64),
            lambda x: x[:, 1].copy_(x[:, 0].double()))
        print(json.dumps([*found, fallback_calls()["copy_"]]))
    """)
    assert (again, other_cast, promoted) == ([], [], [])
    assert strided == [
        "'copy_' has no kernel on device 'box' for strided memory of float32: it runs on the host "
        "by the reference, with copies both ways; tangrad.plugin.register_kernel('copy_', kernel, "
        "device='box') adds one. `python -m tangrad op copy_` lists its kernels"
    ]
    assert len(cast) == 1
    assert "has no kernel on device 'box' for casts such as float32 to int64: it runs" in cast[0]
    assert counted == 6


def test_the_warning_points_at_the_line_that_calls(site, answer, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import warnings, tangrad\n"
        "warnings.simplefilter('always')\n"
        "x = tangrad.ones(2, 3, device='box')\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    tangrad.nn.functional.pad(x, (0, 0)).t().reshape(6)\n"
        "    x.to(tangrad.int32)\n"
        "print([(w.filename, w.lineno) for w in caught if 'copy_' in str(w.message)])\n"
    )
    done = site.run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert done.stdout == f"[({str(program)!r}, 5), ({str(program)!r}, 6)]\n", done.stderr


def test_bytes_of_a_driver_without_copy_within_go_by_the_host_and_are_told_once(answer):
    clone, again, counted = answer("""
        found = told("bare", lambda x: x.clone(), lambda x: x.clone())
        print(json.dumps([*found, fallback_calls()]))
    """)
    assert len(clone) == 1
    assert "'copy_' has no kernel on device 'bare', and its driver no copy_within: it" in clone[0]
    assert (again, counted) == ([], {"copy_": 2})


@pytest.mark.parametrize("device", ["copying", "making"])
def test_a_kernel_is_called_for_casts_between_dtypes_that_it_was_registered_for(answer, device):
    own, others = answer(f"""
        def check(x):
            assert x.t().contiguous().tolist() == host.t().tolist()
            assert x.long().t().float().flatten().tolist() == host.t().flatten().tolist()
            square = x.clone()[:, :2]
            square.copy_(square.t())
            assert square.tolist() == [[0, 3], [1, 4]]
        def other(x):
            assert x.to(tangrad.int32).t().contiguous().float().tolist() == host.t().tolist()
        print(json.dumps(told({device!r}, check, other)))
    """)
    assert own == []
    assert [text.partition(": it runs")[0].partition(" for ")[2] for text in others] == [
        "casts such as float32 to int32",
        "strided memory of int32",
    ]


def test_a_driver_is_asked_for_a_kernel_of_copies_once_for_each_dtype(answer):
    asked = answer("""
        told("making", lambda x: x.t().contiguous(), lambda x: x.t().contiguous(),
            lambda x: x.short(), lambda x: x.short())
        print(json.dumps([d for op, d in get_driver("making").asked if op == "copy_"]))
    """)
    assert asked == ["float32", "int16"]


def test_a_kernel_that_is_registered_later_takes_over(answer):
    before, after = answer("""
        from tangrad.plugin import register_kernel
        def enter(x):
            register_kernel("copy_", lambda outs, args: outs[0].fill_(7), device="box")
            assert x.t().contiguous().tolist() == [[7, 7], [7, 7], [7, 7]]
        print(json.dumps(told("box", lambda x: x.t().contiguous(), enter)))
    """)
    assert (len(before), [text for text in after if "copy_" in text]) == (1, [])


def test_copies_between_two_of_a_device_are_made_on_both_and_not_on_the_host(answer):
    for device, expected in (("copying", 0), ("box", 2)):
        told = answer(f"""
            there = {device!r} + ":1"
            def check(x):
                assert x.t().to(there).tolist() == host.t().tolist()
                assert x.to(there, tangrad.int64).tolist() == host.tolist()
                y = tangrad.zeros(3, 2, device=there)
                y.t().copy_(x)
                assert y.tolist() == host.t().tolist()
                y.t().copy_(x.long())
                y.copy_(x[0, 0])
                assert y.tolist() == [[0, 0]] * 3
            print(json.dumps([text for text in told({device!r}, check)[0] if "copy_" in text]))
        """)
        assert len(told) == expected


def test_the_command_line_says_how_a_device_without_a_kernel_copies(site, answer):
    done = site.run("from tangrad.cli import main\nmain(['op', 'copy_'])")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("    ")}
    assert "int64 float32" in lines["copying"], done.stdout + done.stderr
    assert "none: contiguous bytes by the driver's copy_within, all else on" in lines["box"]
